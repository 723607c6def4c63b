/* Stacking: builds one graph of N graphs with the same structure (decision 45). See tutti/stack.h.
 *
 * A value that differs between members gets a first axis of size N, the member axis. A value that is equal in all members,
 * and depends on no variable, input or random number, is computed once, without that axis. Nodes correspond by their index:
 * builders are deterministic, so equal structures have equal nodes in equal order. stack_rules.c has the rule of every
 * operation. Constants that differ become frozen variables with a row per member, so that a place can be given to another
 * network without compiling again. */
#include "pass/stack.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/text.h"
#include "graph/attrs.h"

/* ---- Comparing members ---- */

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_type(tu_type a, tu_type b) {
    return a.dtype == b.dtype && tu_shape_equal(a.shape, b.shape);
}

/* Returns what differs between two nodes in other things than attributes and data; NULL: nothing. */
static const char *difference(const tu__node *a, const tu__node *b) {
    if (a->op != b->op) return "the operation";
    if (strcmp(a->name, b->name) != 0) return "the name";
    if (a->custom != b->custom) return "the custom operation";
    if (a->input_count != b->input_count || a->output_count != b->output_count)
        return "the number of operands";
    for (uint32_t i = 0; i < a->input_count; i++)
        if (!tu__same_edge(a->inputs[i], b->inputs[i])) return "an operand";
    for (uint32_t i = 0; i < a->output_count; i++)
        if (!same_type(a->outputs[i], b->outputs[i])) return "the type";
    if (!same_text(a->device, b->device)) return "the device";
    return a->flags != b->flags ? "recomputation" : NULL;
}

static tu_status check_node(const tu__node *a, const tu__node *b, size_t member) {
    const char *what = difference(a, b);
    if (!what) return TU_OK;
    return tu_fail(TU_INVALID,
                   "network %zu has another structure than network 0: %s of node %" PRIu32
                   ", %s '%s' %s instead of %s '%s' %s",
                   member, what, a->id, b->op->name, b->name,
                   b->output_count ? tu__type_string(b->outputs[0]) : "", a->op->name, a->name,
                   a->output_count ? tu__type_string(a->outputs[0]) : "");
}

static tu_status check_node_count(const tu_graph *a, const tu_graph *b, size_t member) {
    if (a->node_count == b->node_count) return TU_OK;
    return tu_fail(TU_INVALID,
                   "network %zu has another structure than network 0: %" PRIu32 " nodes instead of %" PRIu32,
                   member, b->node_count, a->node_count);
}

/* True if a cell of a variable's attributes belongs to its initialiser, which a stack does not use. */
static bool is_initialiser(const tu__node *node, uint32_t cell) {
    size_t at = (size_t)cell * 8;
    return node->op->code == TU__OP_VARIABLE && at >= offsetof(struct tu__variable_attrs, init) &&
           at < offsetof(struct tu__variable_attrs, frozen);
}

/* Returns the first cell from `cell` on in which the attributes differ; the number of cells if none does. */
static uint32_t next_difference(const tu__node *node, const void *a, const void *b, uint32_t cell) {
    uint32_t cells = node->op->attr_bytes / 8;
    for (; cell < cells; cell++)
        if (memcmp((const char *)a + 8 * (size_t)cell, (const char *)b + 8 * (size_t)cell, 8) != 0 &&
            !is_initialiser(node, cell))
            return cell;
    return cells;
}

static bool same_data(const tu__node *a, const tu__node *b) {
    return a->op->code != TU__OP_CONSTANT || memcmp(a->data, b->data, tu_type_bytes(a->outputs[0])) == 0;
}

/* Returns the name of the attribute to which a cell belongs. */
static const char *attribute_name(const tu__node *node, uint32_t cell) {
    const unsigned char *at = (const unsigned char *)node->attrs + 8 * (size_t)cell;
    const char *name = "";
    for (tu__field f = tu__first_field(node->op, node->attrs); f.attr && f.cells <= at; f = tu__next_field(f))
        name = f.attr->name;
    return name;
}

/* ---- Constants that differ ---- */

static const tu__stack_constant *find_constant(const tu_stacked *stack, uint32_t node, uint32_t cell) {
    for (size_t i = 0; i < stack->constant_count; i++)
        if (stack->constants[i].node == node && stack->constants[i].cell == cell) return &stack->constants[i];
    return NULL;
}

void tu__stack_constant_value(const tu__stack_constant *constant, const tu_graph *graph, void *row) {
    const tu__node *node = graph->nodes[constant->node];
    if (node->op->code == TU__OP_CONSTANT) {
        memcpy(row, node->data, tu_type_bytes(constant->type));
        return;
    }
    double number;
    memcpy(&number, (const char *)node->attrs + 8 * (size_t)constant->cell, sizeof number);
    tu__store(constant->type.dtype, row, 0, number);
}

static tu_status check_constants(const tu_stacked *stack, size_t member, const tu__node *node) {
    const tu__node *first = stack->structure->nodes[node->id];
    const void *const *own = stack->own_attrs[node->id];
    const void *expected = own ? own[member] : first->attrs;
    uint32_t cells = node->op->attr_bytes / 8;
    for (uint32_t cell = 0; (cell = next_difference(node, expected, node->attrs, cell)) < cells; cell++)
        if (own || !find_constant(stack, node->id, cell))
            return tu_fail(TU_INVALID,
                           "the network cannot get place %zu of the stack: '%s' of %s '%s' differs, and the "
                           "networks with which the stack was made had the same value, or it is compiled in",
                           member, attribute_name(node, cell), node->op->name, node->name);
    if (same_data(first, node) || find_constant(stack, node->id, 0)) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "the network cannot get place %zu of the stack: the elements of constant '%s' differ, and the "
        "networks with which the stack was made had the same",
        member, node->name);
}

tu_status tu__stack_check(const tu_stacked *stack, size_t member, const tu_graph *graph) {
    TU_TRY(tu_graph_status(graph));
    TU_TRY(check_node_count(stack->structure, graph, member));
    for (uint32_t i = 0; i < graph->node_count; i++) {
        TU_TRY(check_node(stack->structure->nodes[i], graph->nodes[i], member));
        TU_TRY(check_constants(stack, member, graph->nodes[i]));
    }
    return TU_OK;
}

static tu_shape with_members(size_t count, tu_shape shape) {
    tu_shape to = {.rank = shape.rank + 1};
    to.dim[0] = (int64_t)count;
    for (int64_t i = 0; i < shape.rank && i + 1 < TU_MAX_RANK; i++) to.dim[i + 1] = shape.dim[i];
    return to;
}

static tu_value make_variable(tu__stacker *s, const char *name, tu_dtype dtype, tu_shape row) {
    struct tu__variable_attrs attrs = {
        .dtype = dtype, .shape = with_members(s->stack->count, row), .init = TU_INIT_ZEROS, .frozen = true};
    return tu__rewrite_insert(&s->r, name, "", &(tu__node_request){.op = TU__OP_VARIABLE, .attrs = &attrs});
}

static tu_status record_constant(tu_stacked *stack, const tu__stack_constant *constant) {
    if (stack->constant_count == stack->constant_capacity) {
        size_t capacity = stack->constant_capacity ? 2 * stack->constant_capacity : 16;
        tu__stack_constant *constants =
            tu__realloc(stack->constants, capacity * sizeof *constants, "the constants of a stack");
        if (!constants) return TU_NO_MEMORY;
        stack->constants = constants;
        stack->constant_capacity = capacity;
    }
    stack->constants[stack->constant_count++] = *constant;
    return TU_OK;
}

/* Makes the variable of a constant. `attribute` is part of its name; NULL: the node has one value. */
static tu_value add_constant(tu__stacker *s, const tu__node *node, uint32_t cell, const char *attribute,
                             tu_type row) {
    tu__text name = {0};
    tu__text_printf(&name, "%s/%s%s%s", s->scope, node->name, attribute ? "/" : "",
                    attribute ? attribute : "");
    tu_value variable = name.failed ? tu__graph_fail(s->r.to, TU_NO_MEMORY, "%s", tu_message())
                                    : make_variable(s, tu__text_string(&name), row.dtype, row.shape);
    tu__text_free(&name);
    if (!tu_ok(variable)) return variable;
    const tu__stack_constant constant = {
        .node = node->id, .cell = cell, .name = tu__node_of(variable)->name, .type = row};
    if (record_constant(s->stack, &constant) != TU_OK)
        return tu__graph_fail(s->r.to, TU_NO_MEMORY, "%s", tu_message());
    return variable;
}

tu_value tu__stack_number(tu__stacker *s, const tu__node *node, uint32_t cell, tu_dtype dtype) {
    const char *attribute = node->op->code == TU__OP_FILL ? NULL : attribute_name(node, cell);
    return add_constant(s, node, cell, attribute, (tu_type){dtype, TU_SCALAR});
}

tu_value tu__stack_data(tu__stacker *s, const tu__node *node) {
    return add_constant(s, node, 0, NULL, node->outputs[0]);
}

tu_value tu__stack_seeds(tu__stacker *s) {
    if (tu_ok(s->seeds)) return s->seeds;
    tu__text name = {0};
    tu__text_printf(&name, "%s/seeds", s->scope);
    s->seeds = name.failed ? tu__graph_fail(s->r.to, TU_NO_MEMORY, "%s", tu_message())
                           : make_variable(s, tu__text_string(&name), TU_I64, TU_SCALAR);
    tu__text_free(&name);
    if (tu_ok(s->seeds)) s->stack->seeds = tu__node_of(s->seeds)->name;
    return s->seeds;
}

/* ---- Building the graph ---- */

tu_value tu__stack_value(tu__stacker *s, const tu__node *node, tu__edge edge) {
    tu_value value = tu__rewrite_value(&s->r, edge);
    if (s->is_stacked[s->r.first_output[edge.node] + edge.output]) return value;
    struct tu__broadcast_attrs attrs = {with_members(s->stack->count, tu_value_shape(value))};
    return tu__rewrite_insert(&s->r, node->name, "/members",
                              &(tu__node_request){.op = TU__OP_BROADCAST,
                                                  .attrs = &attrs,
                                                  .inputs = &value,
                                                  .input_count = 1,
                                                  .flags = node->flags,
                                                  .device = node->device,
                                                  .group = node->group});
}

/* Compares a node with those of the other members. Sets `differs`. */
static tu_status compare_members(tu__stacker *s, const tu__node *node) {
    s->differs = false;
    for (size_t m = 1; m < s->stack->count; m++) {
        const tu__node *other = s->members[m]->nodes[node->id];
        TU_TRY(check_node(node, other, m));
        bool same = next_difference(node, node->attrs, other->attrs, 0) == node->op->attr_bytes / 8;
        if (!same || !same_data(node, other)) s->differs = true;
    }
    return TU_OK;
}

static bool reads_stacked(const tu__stacker *s, const tu__node *node) {
    for (uint32_t i = 0; i < node->input_count; i++)
        if (s->is_stacked[s->r.first_output[node->inputs[i].node] + node->inputs[i].output]) return true;
    return false;
}

static bool differs_by_nature(const tu__node *node) {
    tu__opcode op = node->op->code;
    return op == TU__OP_VARIABLE || op == TU__OP_INPUT || (node->op->traits & (TU__RANDOM | TU__EFFECT));
}

static tu_status stack_node(tu__stacker *s, const tu__node *node) {
    TU_TRY(compare_members(s, node));
    if (node->op->traits & TU__COLLECTIVE)
        return tu_fail(TU_UNSUPPORTED, "%s '%s' cannot be stacked: stack the networks of one device",
                       node->op->name, node->name);
    if (!s->differs && !reads_stacked(s, node) && !differs_by_nature(node))
        return tu__rewrite_copy(&s->r, node);
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i].shape.rank == TU_MAX_RANK)
            return tu_fail(
                TU_UNSUPPORTED, "%s '%s' %s cannot be stacked: it has %d axes, expected at most %d",
                node->op->name, node->name, tu__type_string(node->outputs[i]), TU_MAX_RANK, TU_MAX_RANK - 1);
        s->is_stacked[s->r.first_output[node->id] + i] = true;
    }
    TU_TRY(tu__stack_node(s, node));
    return tu_graph_status(s->r.to);
}

/* Gives every named output the member axis. */
static tu_status stack_outputs(tu__stacker *s) {
    const tu_graph *from = s->r.from;
    for (uint32_t i = 0; i < from->result_count; i++) {
        tu__edge edge = from->results[i].value;
        bool *is_stacked = &s->is_stacked[s->r.first_output[edge.node] + edge.output];
        if (*is_stacked) continue;
        tu_value value = tu__stack_value(s, from->nodes[edge.node], edge);
        if (!tu_ok(value)) return tu_graph_status(s->r.to);
        tu__rewrite_map(&s->r, edge, value);
        *is_stacked = true;
    }
    return TU_OK;
}

static tu_status stack_nodes(tu__stacker *s) {
    const tu_graph *from = s->r.from;
    size_t outputs = 0;
    for (uint32_t i = 0; i < from->node_count; i++) outputs += from->nodes[i]->output_count;
    s->is_stacked = tu__arena_alloc(s->arena, (outputs + 1) * sizeof *s->is_stacked);
    if (!s->is_stacked) return TU_NO_MEMORY;
    for (size_t m = 1; m < s->stack->count; m++) TU_TRY(check_node_count(from, s->members[m], m));
    for (uint32_t i = 0; i < from->node_count; i++) TU_TRY(stack_node(s, from->nodes[i]));
    return stack_outputs(s);
}

static tu_status build(tu_stacked *stack, tu_graph *const *members, const char *scope) {
    tu__arena arena = {.purpose = "stacking networks"};
    tu__unit unit = {0}, copy;
    TU_TRY(tu__unit_begin(&copy, members[0], 0, NULL, false));
    stack->structure = copy.graph;
    copy.graph = NULL;
    tu__unit_end(&copy);
    stack->own_attrs =
        tu__arena_alloc(&stack->arena, ((size_t)stack->structure->node_count + 1) * sizeof *stack->own_attrs);
    if (!stack->own_attrs) return TU_NO_MEMORY;
    tu__stacker s = {.stack = stack,
                     .members = (const tu_graph *const *)members,
                     .scope = scope,
                     .seeds = {.node = TU_NO_NODE},
                     .arena = &arena};
    TU_TRY(tu__rewrite_begin(&s.r, members[0]));
    s.r.to->members =
        s.r.from->members ? 0 : (int64_t)stack->count; /* a stack of stacks has two member axes */
    tu_status status = stack_nodes(&s);
    if (status == TU_OK)
        status = tu__rewrite_finish(&s.r, &unit);
    else
        tu__rewrite_abandon(&s.r);
    stack->graph = unit.graph;
    tu__arena_free(&arena);
    return status;
}

static tu_status check_members(size_t count, tu_graph *const *members) {
    if (count == 0) return tu_fail(TU_INVALID, "stack: the number of networks is 0, expected at least 1");
    for (size_t m = 0; m < count; m++) {
        if (!members[m]) return tu_fail(TU_INVALID, "stack: network %zu is NULL", m);
        TU_TRY(tu_graph_status(members[m]));
    }
    return TU_OK;
}

tu_status tu_stacked_new_with(size_t count, tu_graph *const *members, tu_stacked **stack,
                              const tu_stacked_options *options) {
    TU__OPTIONS(tu_stacked_options, o, options);
    *stack = NULL;
    TU_TRY(check_members(count, members));
    tu_stacked *made = tu__alloc(sizeof *made, "a stack");
    if (!made) return TU_NO_MEMORY;
    *made = (tu_stacked){.arena = {.purpose = "a stack"}, .count = count};
    tu_status status = build(made, members, o.scope ? o.scope : "stack");
    if (status == TU_OK)
        *stack = made;
    else
        tu_stacked_free(made);
    return status;
}

void tu_stacked_free(tu_stacked *stack) {
    if (!stack) return;
    tu_graph_free(stack->graph);
    tu_graph_free(stack->structure);
    tu__free(stack->constants);
    tu__arena_free(&stack->arena);
    tu__free(stack);
}

tu_graph *tu_stacked_graph(tu_stacked *stack) {
    return stack->graph;
}

size_t tu_stacked_members(const tu_stacked *stack) {
    return stack->count;
}
