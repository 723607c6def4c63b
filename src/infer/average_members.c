/* Averages the probabilities of several graphs in one. See average_members.h.
 *
 * Devices, colocation and recomputation are not copied: they served training. */
#include "infer/average_members.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <tutti/ops.h>

#include "base/alloc.h"
#include "base/text.h"
#include "graph/graph.h"

#define RESULT "probability"

typedef struct copier {
    const tu_graph *from;
    tu_graph *to;
    const char *scope;      /* of the member */
    uint32_t *first_output; /* per node of `from`: index of its first output in `map` */
    tu_value *map;          /* per output of `from`: the value of `to` that replaces it */
    tu_value *inputs;       /* of the node that is being copied */
} copier;

tu__member_scope tu__member_scope_of(size_t number) {
    tu__member_scope scope;
    snprintf(scope.text, sizeof scope.text, "member%zu", number);
    return scope;
}

static void free_copier(copier *c) {
    tu__free(c->first_output);
    tu__free(c->map);
    tu__free(c->inputs);
}

static tu_status prepare(copier *c) {
    size_t outputs = 0, most_inputs = 0;
    c->first_output =
        tu__alloc_array((size_t)c->from->node_count + 1, sizeof *c->first_output, "an ensemble's graph");
    if (!c->first_output) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < c->from->node_count; i++) {
        const tu__node *node = c->from->nodes[i];
        c->first_output[i] = (uint32_t)outputs;
        outputs += node->output_count;
        if (node->input_count > most_inputs) most_inputs = node->input_count;
    }
    c->map = tu__alloc_array(outputs + 1, sizeof *c->map, "an ensemble's graph");
    c->inputs = tu__alloc_array(most_inputs + 1, sizeof *c->inputs, "an ensemble's graph");
    return c->map && c->inputs ? TU_OK : TU_NO_MEMORY;
}

static tu_value mapped(const copier *c, tu__edge edge) {
    return c->map[c->first_output[edge.node] + edge.output];
}

/* Returns the input that all members share; makes it for the first one. */
static tu_value share_input(const copier *c, const tu__node *node) {
    const tu__node *existing = tu__find_node(c->to, node->name);
    if (!existing) {
        if (tu__scope_replace(c->to, "", NULL) != TU_OK)
            return tu__graph_fail(c->to, TU_NO_MEMORY, "%s", tu_message());
        return tu__make(
            c->to, &(tu__node_request){
                       .op = TU__OP_INPUT, .name = node->name, .exact_name = true, .attrs = node->attrs});
    }
    tu_type type = existing->outputs[0];
    if (existing->op->code == TU__OP_INPUT && type.dtype == node->outputs[0].dtype &&
        tu_shape_equal(type.shape, node->outputs[0].shape))
        return tu__value(c->to, existing->id, 0);
    return tu__graph_fail(c->to, TU_INVALID, "input '%s' of %s is %s, that of the first member is %s",
                          node->name, c->scope, tu__type_string(node->outputs[0]), tu__type_string(type));
}

/* Makes a copy of the node in the scope that its name has, within that of the member. */
static tu_value copy_in_scope(const copier *c, const tu__node *node) {
    const char *slash = strrchr(node->name, '/');
    tu__text scope = {0};
    tu__text_printf(&scope, "%s%s%.*s", c->scope, slash ? "/" : "", slash ? (int)(slash - node->name) : 0,
                    node->name);
    tu_status status = scope.failed ? TU_NO_MEMORY : tu__scope_replace(c->to, tu__text_string(&scope), NULL);
    tu__text_free(&scope);
    if (status != TU_OK) return tu__graph_fail(c->to, status, "%s", tu_message());
    for (uint32_t i = 0; i < node->input_count; i++) c->inputs[i] = mapped(c, node->inputs[i]);
    return tu__make(c->to, &(tu__node_request){.op = node->op->code,
                                               .name = slash ? slash + 1 : node->name,
                                               .exact_name = true,
                                               .attrs = node->attrs,
                                               .inputs = c->inputs,
                                               .input_count = node->input_count,
                                               .data = node->data,
                                               .custom = node->custom});
}

static tu_status copy_node(copier *c, const tu__node *node) {
    tu_value copy = node->op->code == TU__OP_INPUT ? share_input(c, node) : copy_in_scope(c, node);
    if (!tu_ok(copy)) return tu_graph_status(c->to);
    for (uint32_t i = 0; i < node->output_count; i++)
        c->map[c->first_output[node->id] + i] = tu__value(c->to, copy.node, i);
    for (uint32_t i = 0; i < node->after_count; i++) {
        tu_value dependency = mapped(c, (tu__edge){node->after[i], 0});
        TU_TRY(tu__node_add_dependency(c->to, copy.node, dependency.node));
    }
    return TU_OK;
}

static tu_status copy_nodes(copier *c, tu_value *probability) {
    TU_TRY(prepare(c));
    for (uint32_t i = 0; i < c->from->node_count; i++) TU_TRY(copy_node(c, c->from->nodes[i]));
    for (uint32_t i = 0; i < c->from->result_count; i++) {
        if (strcmp(c->from->results[i].name, RESULT) != 0) continue;
        *probability = mapped(c, c->from->results[i].value);
        return TU_OK;
    }
    return tu_fail(TU_INVALID, "%s has no output '" RESULT "'", c->scope);
}

/* Divides before it adds, like tu_predict. */
static tu_value add_share(tu_value sum, tu_value probability, size_t count) {
    tu_value share = tu_div(probability, tu_number(probability, (double)count));
    return tu_ok(sum) ? tu_add(sum, share) : share;
}

static tu_status average(size_t count, tu_graph *const *members, tu_graph *graph) {
    tu_value sum = tu__invalid(graph);
    tu_set_training(graph, false);
    for (size_t i = 0; i < count; i++) {
        tu__member_scope scope = tu__member_scope_of(i);
        copier c = {.from = members[i], .to = graph, .scope = scope.text};
        tu_value probability = tu__invalid(graph);
        tu_status status = copy_nodes(&c, &probability);
        free_copier(&c);
        TU_TRY(status);
        TU_TRY(tu__scope_replace(graph, "", NULL));
        sum = add_share(sum, probability, count);
    }
    tu_output(sum, RESULT);
    return tu_graph_status(graph);
}

tu_status tu__average_members(size_t count, tu_graph *const *members, tu_graph **result) {
    *result = NULL;
    tu_graph *graph;
    TU_TRY(tu_graph_new(&graph));
    tu_status status = average(count, members, graph);
    if (status == TU_OK)
        *result = graph;
    else
        tu_graph_free(graph);
    return status;
}
