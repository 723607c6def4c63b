/* Plans of the CPU device, bound and run without the engine: kernel by kernel against the meaning of their nodes, and a fused
 * plan against one that stores every value. */
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

/* ---- A plan of a graph, bound and run without the engine ---- */

typedef struct bench {
    tu_device_instance *device;
    const tu_graph *graph;
    tu_partition part;
    tu_plan *plan;
    void **buffers, **workspaces;
    bool *borrowed; /* per buffer: it took over another's memory */
    uint32_t *order, *nodes;
    tu_edge *exports;
    uint64_t seed;
} bench;

static inline bool is_leaf(const tu__node *node) {
    return node->op->traits & TU__LEAF;
}

static inline bool same_edge(tu_edge a, tu_edge b) {
    return a.node == b.node && a.output == b.output;
}

static inline void *room(size_t bytes) {
    return aligned_alloc(64, (bytes + 127) & ~(size_t)63);
}

/* Selects the nodes given; NULL: all but the leaves. */
static inline void bench_select(bench *b, const tu_graph *graph, int threads, size_t export_count,
                                const tu_edge *exports) {
    *b = (bench){.graph = graph};
    assert_int_equal(tu_graph_status(graph), TU_OK);
    tu_open_options options = {.struct_size = sizeof options, .parts = 1, .threads = threads};
    assert_int_equal(tu__cpu_api.open(&options, &b->device), TU_OK);
    tu__parallel_set_width(threads);
    uint32_t *nodes = calloc(graph->node_count, sizeof *nodes);
    tu_edge *kept = calloc(export_count + 1, sizeof *kept);
    assert_true(nodes && kept);
    memcpy(kept, exports, export_count * sizeof *kept);
    b->nodes = nodes;
    b->exports = kept;
    b->part = (tu_partition){.struct_size = sizeof b->part,
                             .graph = graph,
                             .nodes = nodes,
                             .export_count = (uint32_t)export_count,
                             .exports = kept};
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (!is_leaf(graph->nodes[i])) nodes[b->part.node_count++] = i;
    if (tu__cpu_api.select(b->device, &b->part, &b->plan) != TU_OK) fail_msg("%s", tu_message());
}

static inline bool is_exported(const bench *b, tu_edge value) {
    bool exported = false;
    for (uint32_t i = 0; i < b->part.export_count; i++) exported |= same_edge(b->part.exports[i], value);
    return exported;
}

static inline uint32_t readers_of(const bench *b, uint32_t buffer) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < b->plan->kernel_count; i++)
        for (uint32_t r = 0; r < b->plan->kernels[i].read_count; r++)
            count += b->plan->kernels[i].reads[r] == buffer;
    return count;
}

/* Where the device offers it, results take over memory that nobody else reads: what the planner may do. */
static inline void work_in_place(bench *b, const tu_kernel *k) {
    for (uint32_t w = 0; w < k->write_count; w++) {
        if (k->in_place[w] < 0) continue;
        uint32_t from = k->reads[k->in_place[w]], to = k->writes[w];
        tu_edge value = b->plan->buffers[from].value;
        bool leaf = value.node != TU_NO_NODE && is_leaf(b->graph->nodes[value.node]);
        bool equal = b->plan->buffers[from].bytes == b->plan->buffers[to].bytes;
        if (leaf || !equal || is_exported(b, value) || readers_of(b, from) != 1) continue;
        free(b->buffers[to]);
        b->buffers[to] = b->buffers[from];
        b->borrowed[to] = true;
    }
}

static inline void bench_bind(bench *b, bool in_place) {
    b->buffers = calloc(b->plan->buffer_count + 1, sizeof *b->buffers);
    b->borrowed = calloc(b->plan->buffer_count + 1, sizeof *b->borrowed);
    b->workspaces = calloc(b->plan->kernel_count + 1, sizeof *b->workspaces);
    b->order = calloc(b->plan->kernel_count + 1, sizeof *b->order);
    assert_true(b->buffers && b->borrowed && b->workspaces && b->order);
    for (uint32_t i = 0; i < b->plan->buffer_count; i++) b->buffers[i] = room(b->plan->buffers[i].bytes);
    for (uint32_t i = 0; i < b->plan->kernel_count; i++) {
        b->order[i] = i;
        if (b->plan->kernels[i].workspace) b->workspaces[i] = room(b->plan->kernels[i].workspace);
        if (in_place) work_in_place(b, &b->plan->kernels[i]);
    }
    tu_binding binding = {sizeof binding, b->order, b->buffers, b->workspaces, &b->seed};
    assert_int_equal(tu__cpu_api.build(b->device, b->plan, &binding), TU_OK);
}

static inline void *buffer_of(const bench *b, tu_edge value) {
    for (uint32_t i = 0; i < b->plan->buffer_count; i++)
        if (same_edge(b->plan->buffers[i].value, value)) return b->buffers[i];
    return NULL;
}

static inline void bench_run(bench *b) {
    assert_int_equal(tu__cpu_api.launch(b->device, b->plan, 0, b->plan->kernel_count), TU_OK);
}

static inline void bench_close(bench *b) {
    for (uint32_t i = 0; i < b->plan->buffer_count; i++)
        if (!b->borrowed[i]) free(b->buffers[i]);
    for (uint32_t i = 0; i < b->plan->kernel_count; i++) free(b->workspaces[i]);
    tu__cpu_api.plan_free(b->device, b->plan);
    tu__cpu_api.close(b->device);
    free(b->buffers);
    free(b->borrowed);
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

/* ---- Two plans of one graph: in `whole` every value is stored, in `fused` those asked for ---- */

typedef struct pair {
    bench whole, fused;
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

/* `terms`: how many numbers went into one; their rounding errors add up as a random walk does. */
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

/* Every node, from the inputs that the device computed itself, is what its meaning says. */
static inline void check_nodes(const bench *whole) {
    for (uint32_t i = 0; i < whole->part.node_count; i++) {
        const tu__node *node = whole->graph->nodes[whole->part.nodes[i]];
        const void *in[4];
        for (uint32_t k = 0; k < node->input_count; k++) in[k] = buffer_of(whole, node->inputs[k]);
        void *want = room(tu_type_bytes(node->outputs[0]));
        assert_int_equal(tu_node_evaluate(whole->graph, node->id, 0, in, &want), TU_OK);
        compare(node->outputs[0], terms_of(whole->graph, node), buffer_of(whole, (tu_edge){node->id, 0}),
                want, node->name);
        free(want);
    }
}

static inline void check_bits(const pair *p) {
    for (uint32_t i = 0; i < p->fused.part.export_count; i++) {
        tu_edge e = p->fused.part.exports[i];
        const void *have = buffer_of(&p->fused, e), *want = buffer_of(&p->whole, e);
        assert_non_null(have);
        if (memcmp(have, want, tu_type_bytes(tu_edge_type(p->fused.graph, e))) != 0)
            fail_msg("%s has other bits when it is fused", tu_node_name(p->fused.graph, e.node));
    }
}

static inline void select_pair(pair *p, const tu_graph *graph, int threads, size_t count,
                               const tu_value *exports, bool in_place) {
    tu_edge *edges = calloc(graph->node_count + count, sizeof *edges);
    assert_non_null(edges);
    for (size_t i = 0; i < count; i++) edges[i] = (tu_edge){exports[i].node, exports[i].output};
    bench_select(&p->fused, graph, threads, count, edges);
    bench_bind(&p->fused, in_place);
    size_t nodes = 0;
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (!is_leaf(graph->nodes[i])) edges[nodes++] = (tu_edge){i, 0};
    bench_select(&p->whole, graph, threads, nodes, edges);
    bench_bind(&p->whole, in_place);
    free(edges);
}

static inline void fill_leaves(const pair *p) {
    for (uint32_t i = 0; i < p->whole.graph->node_count; i++) {
        const tu__node *node = p->whole.graph->nodes[i];
        void *leaf = is_leaf(node) ? buffer_of(&p->whole, (tu_edge){i, 0}) : NULL;
        if (!leaf) continue;
        fill_leaf(node->outputs[0], leaf);
        void *other = buffer_of(&p->fused, (tu_edge){i, 0});
        if (other) memcpy(other, leaf, tu_type_bytes(node->outputs[0]));
    }
}

/* Both plans run over the same leaves, the fused one with the bits of the other. */
static inline void run_alike(pair *p) {
    fill_leaves(p);
    bench_run(&p->whole);
    bench_run(&p->fused);
    check_bits(p);
}

/* And every node of them is what its meaning says. */
static inline void run_pair(pair *p) {
    run_alike(p);
    check_nodes(&p->whole);
}

static inline void close_pair(pair *p) {
    bench_close(&p->whole);
    bench_close(&p->fused);
}

/* ---- Leaves of graphs ---- */

static inline tu_value numbered_input(tu_graph *g, const char *letter, int number, tu_shape shape) {
    char name[16];
    snprintf(name, sizeof name, "%s%d", letter, number);
    return tu_input(g, name, TU_F32, shape);
}

#endif
