/* Runs a graph node by node with the operations' reference kernels, without a device or a program. For tests of
 * passes.
 *
 * Inputs and variables get random elements that depend only on their names, so that a graph has the same inputs
 * before and after a pass. A shard of an input gets its rows of that input, a mirror gets all elements of its
 * variable. Collectives add the operands pairwise in rank order, or copy them, as the engine does.
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
#include "graph/collective.h"
#include "graph/graph.h"
#include "pass/pass.h"

typedef struct interpretation {
    const tu_graph *graph;
    tu__tensor **nodes; /* per node: its outputs */
} interpretation;

static inline const tu__tensor *value_in(const interpretation *it, tu__edge edge) {
    return &it->nodes[edge.node][edge.output];
}

/* Fills an input or variable: floats in [-1/4, 1/4), so that networks do not overflow; integers in 0 … 2; sample
 * indices start at 5. */
static inline void fill_leaf_by_name(const tu__node *node, tu__tensor *t) {
    const char *name = node->stands_for ? node->stands_for : node->name;
    bool is_sample_index = strcmp(name, "sample_ordinal") == 0;
    uint64_t state = tu__name_hash(name);
    int64_t count = tu_shape_elements(t->type.shape), skipped = 0;
    if (node->first_row) skipped = node->first_row * (count / t->type.shape.dim[0]);
    for (int64_t i = -skipped; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double u = (double)(state >> 11) * 0x1p-53;
        if (i < 0) continue;
        t->data[i] = is_sample_index                    ? (double)(5 + skipped + i)
                     : tu_dtype_is_float(t->type.dtype) ? (u - 0.5) / 2
                                                        : floor(3 * u);
    }
}

static inline void interpret_node(interpretation *it, const tu__node *node);

static inline bool is_of_rank(const tu__node *node, int64_t collective, int64_t rank) {
    if (!(node->op->traits & TU__COLLECTIVE)) return false;
    tu__collective_info info = tu__collective_of(node);
    return info.collective == collective && info.rank == rank;
}

/* Returns the number of operands of the node's collective and rank that precede `node`. */
static inline uint32_t index_in_collective(const tu_graph *graph, const tu__node *node) {
    tu__collective_info info = tu__collective_of(node);
    uint32_t index = 0;
    for (uint32_t i = 0; i < node->id; i++) index += is_of_rank(graph->nodes[i], info.collective, info.rank);
    return index;
}

/* Returns the node of `rank` that passes the same value to the collective as `node`. */
static inline const tu__node *collective_of_rank(const tu_graph *graph, const tu__node *node, int64_t rank) {
    uint32_t index = index_in_collective(graph, node);
    int64_t collective = tu__collective_of(node).collective;
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (is_of_rank(graph->nodes[i], collective, rank) && index-- == 0) return graph->nodes[i];
    fail_msg("rank %d has no operand in collective %d", (int)rank, (int)collective);
    return NULL;
}

/* Returns the pairwise sum over ranks first … first + count - 1. `width` is a power of two, at least `count`. */
static inline double pairwise_sum(const tu__tensor *const *operands, int64_t first, int64_t count,
                                  int64_t width, int64_t i, tu_dtype dtype) {
    if (count == 1) return operands[first]->data[i];
    int64_t half = width / 2;
    if (count <= half) return pairwise_sum(operands, first, count, half, i, dtype);
    double sum = pairwise_sum(operands, first, half, half, i, dtype) +
                 pairwise_sum(operands, first + half, count - half, half, i, dtype);
    tu__round_array(dtype, &sum, 1);
    return sum;
}

static inline void interpret_collective(interpretation *it, const tu__node *node, tu__tensor *out) {
    tu__collective_info info = tu__collective_of(node);
    int64_t width = 1, count = tu_shape_elements(out->type.shape), in_count;
    const tu__tensor *operands[64];
    assert_true(info.ranks <= 64);
    while (width < info.ranks) width *= 2;
    for (int64_t rank = 0; rank < info.ranks; rank++) {
        const tu__node *other = collective_of_rank(it->graph, node, rank);
        assert_ptr_equal(other->op, node->op);
        interpret_node(it, it->graph->nodes[other->inputs[0].node]);
        operands[rank] = value_in(it, other->inputs[0]);
        assert_true(tu_shape_equal(operands[rank]->type.shape, operands[0]->type.shape));
        assert_int_equal(operands[rank]->type.dtype, out->type.dtype);
    }
    in_count = tu_shape_elements(operands[0]->type.shape);
    for (int64_t i = 0; i < count; i++) {
        int64_t first = info.kind == TU__REDUCE_SCATTER ? info.rank * count : 0;
        out->data[i] = info.kind == TU__ALL_GATHER ? operands[i / in_count]->data[i % in_count]
                       : info.kind == TU__BROADCAST
                           ? operands[info.root]->data[i]
                           : pairwise_sum(operands, 0, info.ranks, width, first + i, out->type.dtype);
    }
}

/* Computes a node, and first the nodes it reads. Does nothing if it was computed before. */
static inline void interpret_node(interpretation *it, const tu__node *node) {
    if (it->nodes[node->id]) return;
    for (uint32_t i = 0; i < node->input_count; i++)
        interpret_node(it, it->graph->nodes[node->inputs[i].node]);
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
        fill_leaf_by_name(node, &out[0]);
    } else if (node->op->traits & TU__COLLECTIVE) {
        interpret_collective(it, node, &out[0]);
    } else {
        tu__reference_call m = {.node = node, .attrs = node->attrs, .in = in, .out = out, .seed = 7};
        if (node->op->reference(&m) != TU_OK) fail_msg("%s", tu_message());
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

/* Returns the largest difference, relative to the largest element. */
static inline double distance(const tu__tensor *a, const tu__tensor *b) {
    assert_true(a->type.dtype == b->type.dtype && tu_shape_equal(a->type.shape, b->type.shape));
    double largest = 0, scale = 0;
    for (int64_t i = 0; i < tu_shape_elements(a->type.shape); i++) {
        largest = fmax(largest, fabs(a->data[i] - b->data[i]));
        scale = fmax(scale, fabs(a->data[i]));
    }
    return scale > 0 ? largest / scale : largest;
}

/* Returns the value that the graph assigns to a variable; NULL if none. */
static inline const tu__tensor *assigned_in(const interpretation *it, const char *variable) {
    for (uint32_t i = 0; i < it->graph->node_count; i++) {
        const tu__node *node = it->graph->nodes[i];
        if (node->op->code != TU__OP_ASSIGN) continue;
        if (strcmp(it->graph->nodes[node->inputs[0].node]->name, variable) == 0)
            return value_in(it, (tu__edge){i, 0});
    }
    return NULL;
}

/* Creates a compilation unit that computes `fetch` and runs the passes up to `last`. */
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

/* Asserts that every fetched and assigned value is bit-identical (or within `tolerance`) before and after the
 * passes. */
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
            fail_msg("the value assigned to '%s' has changed by %g of its largest element",
                     graph->nodes[i]->name, distance(a, b));
    }
    interpretation_free(&before);
    interpretation_free(&after);
}

#endif
