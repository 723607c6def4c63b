/* For tests of passes: any graph, run node by node by the meanings of its operations, without a device or a
 * program.
 *
 * Inputs and variables get numbers that depend on their names alone, so that a graph before a pass and the
 * one after it are run on the same.
 *
 *     interpretation before = interpret(graph);
 *     … same_numbers(value_in(&before, edge), value_in(&after, mapped)) …
 *     interpretation_free(&before);
 */
#ifndef TESTS_UNIT_INTERPRET_H
#define TESTS_UNIT_INTERPRET_H

#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/number.h"
#include "graph/graph.h"
#include "pass/pass.h"

typedef struct interpretation {
    const tu_graph *graph;
    tu__tensor **nodes; /* the outputs of each */
} interpretation;

static inline const tu__tensor *value_in(const interpretation *it, tu__edge edge) {
    return &it->nodes[edge.node][edge.output];
}

/* Floats in [-1/4, 1/4), so that networks of them stay tame; others in 0 … 2. */
static inline void draw_leaf(const char *name, tu__tensor *t) {
    uint64_t state = tu__name_hash(name);
    int64_t count = tu_shape_elements(t->type.shape);
    for (int64_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double u = (double)(state >> 11) * 0x1p-53;
        t->data[i] = tu_dtype_is_float(t->type.dtype) ? (u - 0.5) / 2 : floor(3 * u);
    }
}

static inline void interpret_node(interpretation *it, const tu__node *node) {
    tu__tensor *out = calloc(node->output_count, sizeof *out),
               *in = calloc(node->input_count + 1, sizeof *in);
    assert_true(out && in);
    it->nodes[node->id] = out;
    for (uint32_t i = 0; i < node->input_count; i++) in[i] = *value_in(it, node->inputs[i]);
    for (uint32_t i = 0; i < node->output_count; i++) {
        out[i].type = node->outputs[i];
        out[i].data = malloc((size_t)tu_shape_elements(node->outputs[i].shape) * sizeof(double));
        assert_non_null(out[i].data);
    }
    if (node->op->code == TU__OP_INPUT || node->op->code == TU__OP_VARIABLE) {
        draw_leaf(node->name, &out[0]);
    } else {
        tu__meaning m = {.node = node, .attrs = node->attrs, .in = in, .out = out, .seed = 7};
        if (node->op->meaning(&m) != TU_OK) fail_msg("%s", tu_message());
    }
    for (uint32_t i = 0; i < node->output_count; i++)
        tu__round_array(out[i].type.dtype, out[i].data, tu_shape_elements(out[i].type.shape));
    free(in);
}

static inline interpretation interpret(const tu_graph *graph) {
    interpretation it = {.graph = graph, .nodes = calloc(graph->node_count + 1, sizeof *it.nodes)};
    assert_non_null(it.nodes);
    for (uint32_t i = 0; i < graph->node_count; i++) interpret_node(&it, graph->nodes[i]);
    return it;
}

static inline void interpretation_free(interpretation *it) {
    for (uint32_t i = 0; i < it->graph->node_count; i++) {
        for (uint32_t k = 0; k < it->graph->nodes[i]->output_count; k++) free(it->nodes[i][k].data);
        free(it->nodes[i]);
    }
    free(it->nodes);
}

static inline bool same_numbers(const tu__tensor *a, const tu__tensor *b) {
    return a->type.dtype == b->type.dtype && tu_shape_equal(a->type.shape, b->type.shape) &&
           memcmp(a->data, b->data, (size_t)tu_shape_elements(a->type.shape) * sizeof(double)) == 0;
}

/* The largest difference, relative to the largest number. */
static inline double distance(const tu__tensor *a, const tu__tensor *b) {
    assert_true(a->type.dtype == b->type.dtype && tu_shape_equal(a->type.shape, b->type.shape));
    double most = 0, scale = 0;
    for (int64_t i = 0; i < tu_shape_elements(a->type.shape); i++) {
        most = fmax(most, fabs(a->data[i] - b->data[i]));
        scale = fmax(scale, fabs(a->data[i]));
    }
    return scale > 0 ? most / scale : most;
}

/* What a graph assigns to the variable of a name; NULL: nothing. */
static inline const tu__tensor *assigned_in(const interpretation *it, const char *variable) {
    for (uint32_t i = 0; i < it->graph->node_count; i++) {
        const tu__node *node = it->graph->nodes[i];
        if (node->op->code != TU__OP_ASSIGN) continue;
        if (strcmp(it->graph->nodes[node->inputs[0].node]->name, variable) == 0)
            return value_in(it, (tu__edge){i, 0});
    }
    return NULL;
}

/* A unit of the values, taken through the passes up to `last`. */
static inline tu__unit unit_after(const char *last, tu_graph *graph, size_t count, const tu_value *fetch,
                                  tu__precision precision, size_t device_count, const char *const *devices) {
    tu__unit unit;
    if (tu__unit_begin(&unit, graph, count, fetch, true) != TU_OK) fail_msg("%s", tu_message());
    unit.precision = precision;
    unit.device_count = device_count;
    unit.devices = devices;
    if (tu__run_passes(&unit, last) != TU_OK) fail_msg("%s", tu_message());
    if (tu_graph_verify(unit.graph) != TU_OK) fail_msg("%s", tu_message());
    return unit;
}

static inline size_t count_nodes(const tu_graph *graph, tu__opcode op) {
    size_t count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) count += graph->nodes[i]->op->code == op;
    return count;
}

/* Every fetch and every assignment has the same bits (or lies within `tolerance`) before and after. */
static inline void assert_same_results(tu_graph *graph, const tu_value *fetch, const tu__unit *unit,
                                       double tolerance) {
    interpretation before = interpret(graph), after = interpret(unit->graph);
    for (size_t i = 0; i < unit->fetch_count; i++) {
        const tu__tensor *a = value_in(&before, (tu__edge){fetch[i].node, fetch[i].output});
        const tu__tensor *b = value_in(&after, unit->fetch[i]);
        if (tolerance == 0 ? !same_numbers(a, b) : !(distance(a, b) <= tolerance))
            fail_msg("fetch %zu, '%s', has changed", i, tu_value_name(fetch[i]));
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tu__tensor *a = assigned_in(&before, graph->nodes[i]->name);
        if (!a) continue;
        const tu__tensor *b = assigned_in(&after, graph->nodes[i]->name);
        assert_non_null(b);
        if (tolerance == 0 ? !same_numbers(a, b) : !(distance(a, b) <= tolerance))
            fail_msg("what is assigned to '%s' has changed, by %g of the largest", graph->nodes[i]->name,
                     distance(a, b));
    }
    interpretation_free(&before);
    interpretation_free(&after);
}

#endif
