/* The verifier: checks every invariant of graph.h on a complete graph.
 *
 * tu__make enforces the same invariants; the verifier does not rely on that. It checks graphs read from files, the
 * results of passes, and in tests graphs that were corrupted on purpose. Nodes are checked in order; each check
 * relies only on earlier nodes and on earlier checks of the same node. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <tutti/custom.h>

#include "base/alloc.h"
#include "base/text.h"
#include "graph/attrs.h"
#include "graph/graph.h"
#include "graph/walk.h"

typedef struct check {
    const tu_graph *graph;
    const tu__node *node;
    uint32_t index;
    unsigned char *assigned; /* per node: 1 for a variable that an earlier node assigns */
} check;

/* Fails with TU_INTERNAL and "graph: node 12 'conv1/conv2d' (conv2d): <problem>". */
static tu_status fail_node(const check *c, const char *format, ...) TU_PRINTF(2, 3);

static tu_status fail_node(const check *c, const char *format, ...) {
    char problem[640];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem, sizeof problem, format, arguments);
    va_end(arguments);
    const char *name = c->node && c->node->name ? c->node->name : "";
    const char *op = c->node && c->node->op ? c->node->op->name : "no operation";
    return tu_fail(TU_INTERNAL, "graph: node %" PRIu32 " '%.256s' (%s): %s", c->index, name, op, problem);
}

/* ---- One node ---- */

static tu_status check_identity(const check *c) {
    const tu__node *node = c->node;
    if (!node) return fail_node(c, "the node pointer is NULL");
    const tu__op *op = node->op;
    if (!op || (unsigned)op->code >= TU__OP_COUNT || tu__op_get(op->code) != op) {
        check unknown = {.index = c->index};
        return fail_node(&unknown, "the operation is not in the operation table");
    }
    if (node->id != c->index) return fail_node(c, "its id is %" PRIu32, node->id);
    if (!node->name || !*node->name) return fail_node(c, "the name is empty");
    const tu__node *found = tu__find_node(c->graph, node->name);
    if (!found) return fail_node(c, "the name is not in the name table");
    if (found != node) return fail_node(c, "the name table maps its name to node %" PRIu32, found->id);
    uint32_t unknown_flags = node->flags & ~(uint32_t)(TU__NODE_RECOMPUTE | TU__NODE_RECOMPUTED);
    if (unknown_flags) return fail_node(c, "unknown flags 0x%" PRIx32, unknown_flags);
    if (node->group > c->graph->group_count)
        return fail_node(c, "group %" PRIu32 " is larger than the graph's number of groups", node->group);
    if (node->device && !tu__device_name_is_valid(node->device))
        return fail_node(c, "its device '%.64s' is not a valid device name", node->device);
    return TU_OK;
}

/* Checks that constants, and only they, have data, and that custom operations, and only they, have a tu_custom_op. */
static tu_status check_data_and_functions(const check *c) {
    const tu__node *node = c->node;
    bool custom = node->op->code == TU__OP_CUSTOM, constant = node->op->code == TU__OP_CONSTANT;
    if (custom && (!node->custom || !node->custom->shape))
        return fail_node(c, "a custom operation needs a tu_custom_op with a shape function");
    if (!custom && node->custom) return fail_node(c, "only a custom operation may have a tu_custom_op");
    if (constant && !node->data) return fail_node(c, "a constant needs data");
    if (!constant && node->data) return fail_node(c, "only a constant may have data");
    return TU_OK;
}

static tu_status check_inputs(const check *c) {
    const tu__node *node = c->node;
    uint32_t expected = node->op->inputs;
    bool count_ok = expected == TU__ANY_INPUTS ? node->input_count >= 1 : node->input_count == expected;
    if (!count_ok)
        return fail_node(c, "it has %" PRIu32 " inputs: expected %" PRIu32 "%s", node->input_count,
                         expected == TU__ANY_INPUTS ? 1 : expected,
                         expected == TU__ANY_INPUTS ? " or more" : "");
    if (node->input_count && !node->inputs) return fail_node(c, "the array of inputs is missing");
    for (uint32_t i = 0; i < node->input_count; i++) {
        tu__edge edge = node->inputs[i];
        if (edge.node >= c->index)
            return fail_node(c, "input %" PRIu32 " is node %" PRIu32 ", expected an earlier node", i,
                             edge.node);
        const tu__node *source = c->graph->nodes[edge.node];
        if (edge.output >= source->output_count)
            return fail_node(c,
                             "input %" PRIu32 " is output %" PRIu32 " of '%s', which has %" PRIu32 " outputs",
                             i, edge.output, source->name, source->output_count);
    }
    return TU_OK;
}

static tu_status check_dependencies(const check *c) {
    const tu__node *node = c->node;
    if (node->after_count && !node->after)
        return fail_node(c, "the array of control dependencies is missing");
    if (node->after_count && !tu__node_is_computed(node) && node->op->code != TU__OP_ASSIGN)
        return fail_node(c, "an operation that is not computed cannot have control dependencies");
    for (uint32_t i = 0; i < node->after_count; i++) {
        if (node->after[i] >= c->index)
            return fail_node(c, "control dependency on node %" PRIu32 ", expected an earlier node",
                             node->after[i]);
        if (i && node->after[i] <= node->after[i - 1])
            return fail_node(c, "the control dependencies are not in ascending order");
        const tu__node *dependency = c->graph->nodes[node->after[i]];
        if (!tu__node_is_computed(dependency))
            return fail_node(c, "control dependency on %s '%.256s', which is not computed",
                             dependency->op->name, dependency->name);
    }
    return TU_OK;
}

static tu_status check_attributes(const check *c) {
    if (!c->node->op->attr_count) return TU_OK;
    if (!c->node->attrs) return fail_node(c, "the attributes are missing");
    for (tu__field f = tu__first_field(c->node->op, c->node->attrs); f.attr; f = tu__next_field(f))
        if (tu__check_field(f) != TU_OK) return fail_node(c, "%s", tu_message());
    return TU_OK;
}

static tu_status compare_types(const check *c, const tu_type *inferred) {
    for (uint32_t i = 0; i < c->node->output_count; i++) {
        tu_type stored = c->node->outputs[i];
        if ((unsigned)stored.dtype >= TU_DTYPE_COUNT || !tu__shape_valid(stored.shape))
            return fail_node(c, "output %" PRIu32 " has the invalid type %s", i, tu__type_string(stored));
        if (stored.dtype != inferred[i].dtype || !tu_shape_equal(stored.shape, inferred[i].shape))
            return fail_node(c, "output %" PRIu32 " has type %s, but the inferred type is %s", i,
                             tu__type_string(stored), tu__type_string(inferred[i]));
    }
    return TU_OK;
}

static tu_status check_outputs(const check *c) {
    const tu__node *node = c->node;
    uint32_t expected = node->op->outputs ? node->op->outputs : node->custom->outputs;
    if (node->output_count != expected || !node->outputs)
        return fail_node(c, "it has %" PRIu32 " outputs: expected %" PRIu32,
                         node->outputs ? node->output_count : 0, expected);
    size_t count = (size_t)node->input_count + node->output_count;
    tu_type *types = tu__alloc_array(count, sizeof *types, "the types of an operation");
    if (!types) return TU_NO_MEMORY;
    tu_type *inferred = types + node->input_count;
    tu_status status = tu__node_infer(c->graph, node, types, inferred);
    if (status == TU_INVALID || status == TU_UNSUPPORTED)
        status = fail_node(c, "type inference fails: %s", tu_message());
    else if (status == TU_OK)
        status = compare_types(c, inferred);
    tu__free(types);
    return status;
}

/* Checks that bools are 0 or 1: fast kernels add them and use them as masks. */
static tu_status check_constant(const check *c) {
    if (c->node->op->code != TU__OP_CONSTANT || c->node->outputs[0].dtype != TU_BOOL) return TU_OK;
    const unsigned char *data = c->node->data;
    int64_t count = tu_shape_elements(c->node->outputs[0].shape);
    for (int64_t i = 0; i < count; i++)
        if (data[i] > 1)
            return fail_node(c, "element %" PRId64 " of its data is %u: expected 0 or 1 for a bool", i,
                             data[i]);
    return TU_OK;
}

static tu_status check_assignment(const check *c) {
    if (c->node->op->code != TU__OP_ASSIGN) return TU_OK;
    tu__edge target = c->node->inputs[0], source = c->node->inputs[1];
    const tu__node *variable = c->graph->nodes[target.node];
    if (variable->op->code != TU__OP_VARIABLE)
        return fail_node(c, "the target is %s '%s': expected a variable", variable->op->name, variable->name);
    if (c->assigned[target.node]) return fail_node(c, "variable '%s' is assigned twice", variable->name);
    c->assigned[target.node] = 1;
    tu_type expected = variable->outputs[0], given = c->graph->nodes[source.node]->outputs[source.output];
    if (expected.dtype != given.dtype || !tu_shape_equal(expected.shape, given.shape))
        return fail_node(c, "cannot assign %s to variable '%s' of type %s", tu__type_string(given),
                         variable->name, tu__type_string(expected));
    return TU_OK;
}

static tu_status check_node(const check *c) {
    TU_TRY(check_identity(c));
    TU_TRY(check_data_and_functions(c));
    TU_TRY(check_inputs(c));
    TU_TRY(check_dependencies(c));
    TU_TRY(check_attributes(c));
    TU_TRY(check_outputs(c));
    TU_TRY(check_constant(c));
    return check_assignment(c);
}

/* ---- The graph ---- */

static tu_status check_results(const tu_graph *graph) {
    for (uint32_t i = 0; i < graph->result_count; i++) {
        const tu__named_value *result = &graph->results[i];
        if (!result->name || !*result->name)
            return tu_fail(TU_INTERNAL, "graph: result %" PRIu32 " has no name", i);
        if (result->value.node >= graph->node_count)
            return tu_fail(TU_INTERNAL,
                           "graph: result '%s' is an output of node %" PRIu32 ", which does not exist",
                           result->name, result->value.node);
        const tu__node *node = graph->nodes[result->value.node];
        if (result->value.output >= node->output_count)
            return tu_fail(TU_INTERNAL,
                           "graph: result '%s' is output %" PRIu32 " of '%s', which has %" PRIu32 " outputs",
                           result->name, result->value.output, node->name, node->output_count);
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(graph->results[j].name, result->name) == 0)
                return tu_fail(TU_INTERNAL, "graph: two results are named '%s'", result->name);
    }
    return TU_OK;
}

tu_status tu_graph_verify(const tu_graph *graph) {
    TU_TRY(tu_graph_status(graph));
    unsigned char *assigned = tu__alloc((size_t)graph->node_count + 1, "verifying a graph");
    if (!assigned) return TU_NO_MEMORY;
    tu_status status = TU_OK;
    for (uint32_t i = 0; i < graph->node_count && status == TU_OK; i++) {
        check c = {.graph = graph, .node = graph->nodes[i], .index = i, .assigned = assigned};
        status = check_node(&c);
    }
    tu__free(assigned);
    return status == TU_OK ? check_results(graph) : status;
}
