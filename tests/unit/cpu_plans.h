/* Plans of the CPU device, bound and run without the engine: each kernel is compared with the reference kernels of
 * its nodes, and a fused plan with one that stores every value. */
#ifndef TESTS_UNIT_CPU_PLANS_H
#define TESTS_UNIT_CPU_PLANS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/number.h"
#include "base/parallel.h"
#include "device/device.h"
#include "graph/graph.h"
#include "test.h"

/* ---- A plan of a graph ---- */

typedef struct test_plan {
    tu_device_instance *device;
    const tu_graph *graph;
    tu_partition partition;
    tu_plan *plan;
    tu_executable *executable;
    void **buffers, **workspaces;
    bool *reuses_memory; /* per buffer: it reuses another's memory */
    uint32_t *order, *nodes;
    tu_edge *exports;
    uint64_t seed;
} test_plan;

static inline bool is_leaf(const tu__node *node) {
    return node->op->traits & TU__LEAF;
}

static inline bool same_edge(tu_edge a, tu_edge b) {
    return a.node == b.node && a.output == b.output;
}

static inline void *allocate(size_t bytes) {
    return aligned_alloc(64, (bytes + 127) & ~(size_t)63);
}

/* Selects kernels for all nodes except leaves. */
static inline void test_plan_select(test_plan *b, const tu_graph *graph, int threads, size_t export_count,
                                    const tu_edge *exports) {
    *b = (test_plan){.graph = graph};
    assert_int_equal(tu_graph_status(graph), TU_OK);
    tu_open_options options = {.struct_size = sizeof options, .logical_count = 1, .threads = threads};
    assert_int_equal(tu__cpu_api.open(&options, &b->device), TU_OK);
    tu__parallel_set_threads(threads);
    uint32_t *nodes = calloc(graph->node_count, sizeof *nodes);
    tu_edge *kept = calloc(export_count + 1, sizeof *kept);
    assert_true(nodes && kept);
    memcpy(kept, exports, export_count * sizeof *kept);
    b->nodes = nodes;
    b->exports = kept;
    b->partition = (tu_partition){.struct_size = sizeof b->partition,
                                  .graph = graph,
                                  .nodes = nodes,
                                  .export_count = (uint32_t)export_count,
                                  .exports = kept};
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (!is_leaf(graph->nodes[i])) nodes[b->partition.node_count++] = i;
    if (tu__cpu_api.lower(b->device, &b->partition, &b->plan) != TU_OK) fail_msg("%s", tu_message());
}

static inline bool is_exported(const test_plan *b, tu_edge value) {
    bool exported = false;
    for (uint32_t i = 0; i < b->partition.export_count; i++)
        exported |= same_edge(b->partition.exports[i], value);
    return exported;
}

static inline uint32_t readers_of(const test_plan *b, uint32_t buffer) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < b->plan->kernel_count; i++)
        for (uint32_t r = 0; r < b->plan->kernels[i].read_count; r++)
            count += b->plan->kernels[i].reads[r] == buffer;
    return count;
}

/* Lets results reuse the memory of reads as the device allows, if nothing else reads it, like the memory planner. */
static inline void reuse_memory(test_plan *b, const tu_kernel *k) {
    for (uint32_t w = 0; w < k->write_count; w++) {
        if (k->in_place[w] < 0) continue;
        uint32_t from = k->reads[k->in_place[w]], to = k->writes[w];
        tu_edge value = b->plan->buffers[from].value;
        bool leaf = value.node != TU_NO_NODE && is_leaf(b->graph->nodes[value.node]);
        bool equal = b->plan->buffers[from].bytes == b->plan->buffers[to].bytes;
        if (leaf || !equal || is_exported(b, value) || readers_of(b, from) != 1) continue;
        free(b->buffers[to]);
        b->buffers[to] = b->buffers[from];
        b->reuses_memory[to] = true;
    }
}

static inline void test_plan_bind(test_plan *b, bool in_place) {
    b->buffers = calloc(b->plan->buffer_count + 1, sizeof *b->buffers);
    b->reuses_memory = calloc(b->plan->buffer_count + 1, sizeof *b->reuses_memory);
    b->workspaces = calloc(b->plan->kernel_count + 1, sizeof *b->workspaces);
    b->order = calloc(b->plan->kernel_count + 1, sizeof *b->order);
    assert_true(b->buffers && b->reuses_memory && b->workspaces && b->order);
    for (uint32_t i = 0; i < b->plan->buffer_count; i++) b->buffers[i] = allocate(b->plan->buffers[i].bytes);
    for (uint32_t i = 0; i < b->plan->kernel_count; i++) {
        b->order[i] = i;
        if (b->plan->kernels[i].workspace) b->workspaces[i] = allocate(b->plan->kernels[i].workspace);
        if (in_place) reuse_memory(b, &b->plan->kernels[i]);
    }
    tu_binding binding = {sizeof binding, b->order, b->buffers, b->workspaces, &b->seed};
    assert_int_equal(tu__cpu_api.build(b->device, NULL, b->plan, &binding, &b->executable), TU_OK);
}

static inline void *buffer_of(const test_plan *b, tu_edge value) {
    for (uint32_t i = 0; i < b->plan->buffer_count; i++)
        if (same_edge(b->plan->buffers[i].value, value)) return b->buffers[i];
    return NULL;
}

static inline void test_plan_run(test_plan *b) {
    assert_int_equal(tu__cpu_api.launch(b->device, b->executable, 0, b->plan->kernel_count), TU_OK);
}

static inline void test_plan_close(test_plan *b) {
    for (uint32_t i = 0; i < b->plan->buffer_count; i++)
        if (!b->reuses_memory[i]) free(b->buffers[i]);
    for (uint32_t i = 0; i < b->plan->kernel_count; i++) free(b->workspaces[i]);
    if (b->executable) tu__cpu_api.executable_free(b->device, b->executable);
    tu__cpu_api.plan_free(b->device, b->plan);
    tu__cpu_api.close(b->device);
    free(b->buffers);
    free(b->reuses_memory);
    free(b->workspaces);
    free(b->order);
    free(b->nodes);
    free(b->exports);
}

/* ---- Random numbers and values ---- */

static uint64_t random_state;

static inline uint32_t draw(uint32_t below) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % below);
}

static inline double uniform(double low, double high) {
    return low + (high - low) * draw(1 << 20) / (1 << 20);
}

static inline void fill_leaf(tu_type type, void *data) {
    int64_t count = tu_shape_elements(type.shape);
    for (int64_t i = 0; i < count; i++) {
        double x = tu_dtype_is_float(type.dtype) ? uniform(-2, 2) : draw(type.dtype == TU_BOOL ? 2 : 200);
        tu__store(type.dtype, data, i, x);
    }
}

/* ---- Two plans of one graph: `unfused` stores every value, `fused` only the exports ---- */

typedef struct pair {
    test_plan unfused, fused;
} pair;

static inline double tolerance_of(tu_dtype dtype) {
    switch (dtype) {
    case TU_F32: return 2e-6;
    case TU_F64: return 1e-14;
    case TU_BF16: return 0x1p-7;
    case TU_F16: return 0x1p-10;
    default: return 0;
    }
}

/* `terms`: the number of terms of each sum; their rounding errors grow like a random walk. */
static inline void compare(tu_type type, double terms, const void *have, const void *want, const char *what) {
    int64_t count = tu_shape_elements(type.shape);
    double tolerance = tolerance_of(type.dtype) * fmax(1, 2 * sqrt(terms));
    for (int64_t i = 0; i < count; i++) {
        double x = tu__load(type.dtype, have, i), y = tu__load(type.dtype, want, i);
        if (x == y || (x != x && y != y)) continue;
        if (!(fabs(x - y) <= tolerance * (1 + fabs(y))))
            fail_msg("%s: element %d of %d is %.9g, expected %.9g", what, (int)i, (int)count, x, y);
    }
}

static inline double terms_of(const tu_graph *graph, const tu__node *node) {
    if (node->op->code != TU__OP_SUM && node->op->code != TU__OP_MEAN) return 0;
    double all = (double)tu_shape_elements(tu_edge_type(graph, node->inputs[0]).shape);
    return all / (double)tu_shape_elements(node->outputs[0].shape);
}

/* Compares every node with its reference kernel, given the inputs that the device computed. */
static inline void check_nodes(const test_plan *unfused) {
    for (uint32_t i = 0; i < unfused->partition.node_count; i++) {
        const tu__node *node = unfused->graph->nodes[unfused->partition.nodes[i]];
        const void *in[4];
        for (uint32_t k = 0; k < node->input_count; k++) in[k] = buffer_of(unfused, node->inputs[k]);
        void *want = allocate(tu_type_bytes(node->outputs[0]));
        assert_int_equal(tu_node_evaluate(unfused->graph, node->id, 0, in, &want), TU_OK);
        compare(node->outputs[0], terms_of(unfused->graph, node), buffer_of(unfused, (tu_edge){node->id, 0}),
                want, node->name);
        free(want);
    }
}

static inline void check_bits(const pair *p) {
    for (uint32_t i = 0; i < p->fused.partition.export_count; i++) {
        tu_edge e = p->fused.partition.exports[i];
        const void *have = buffer_of(&p->fused, e), *want = buffer_of(&p->unfused, e);
        assert_non_null(have);
        if (memcmp(have, want, tu_type_bytes(tu_edge_type(p->fused.graph, e))) != 0)
            fail_msg("%s has different bits when fused", tu_node_name(p->fused.graph, e.node));
    }
}

static inline void select_pair(pair *p, const tu_graph *graph, int threads, size_t count,
                               const tu_value *exports, bool in_place) {
    tu_edge *edges = calloc(graph->node_count + count, sizeof *edges);
    assert_non_null(edges);
    for (size_t i = 0; i < count; i++) edges[i] = (tu_edge){exports[i].node, exports[i].output};
    test_plan_select(&p->fused, graph, threads, count, edges);
    test_plan_bind(&p->fused, in_place);
    size_t nodes = 0;
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (!is_leaf(graph->nodes[i])) edges[nodes++] = (tu_edge){i, 0};
    test_plan_select(&p->unfused, graph, threads, nodes, edges);
    test_plan_bind(&p->unfused, in_place);
    free(edges);
}

static inline void fill_leaves(const pair *p) {
    for (uint32_t i = 0; i < p->unfused.graph->node_count; i++) {
        const tu__node *node = p->unfused.graph->nodes[i];
        void *leaf = is_leaf(node) ? buffer_of(&p->unfused, (tu_edge){i, 0}) : NULL;
        if (!leaf) continue;
        fill_leaf(node->outputs[0], leaf);
        void *other = buffer_of(&p->fused, (tu_edge){i, 0});
        if (other) memcpy(other, leaf, tu_type_bytes(node->outputs[0]));
    }
}

/* Runs both plans with the same leaves and checks that their results are bit-identical. */
static inline void run_and_compare_bits(pair *p) {
    fill_leaves(p);
    test_plan_run(&p->unfused);
    test_plan_run(&p->fused);
    check_bits(p);
}

/* Also compares every node with its reference kernel. */
static inline void run_and_compare_all(pair *p) {
    run_and_compare_bits(p);
    check_nodes(&p->unfused);
}

static inline void close_pair(pair *p) {
    test_plan_close(&p->unfused);
    test_plan_close(&p->fused);
}

/* ---- Leaves of graphs ---- */

static inline tu_value numbered_input(tu_graph *g, const char *letter, int number, tu_shape shape) {
    char name[16];
    snprintf(name, sizeof name, "%s%d", letter, number);
    return tu_input(g, name, TU_F32, shape);
}

#endif
