/* The CPU device's selection and fusion: random graphs of pointwise nodes, views, moves and reductions give, kernel by
 * kernel, what the reference gives node by node; and the plans have the form they should. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/parallel.h"
#include "device/device.h"
#include "graph/graph.h"
#include "test.h"

/* ---- A plan of a graph, bound and run without the engine ---- */

typedef struct bench {
    tu_device_instance *device;
    const tu_graph *graph;
    tu_part part;
    tu_plan *plan;
    void **buffers, **workspaces;
    bool *borrowed; /* per buffer: it took over another's memory */
    uint32_t *order, *nodes;
    tu_edge *exports;
    uint64_t seed;
} bench;

static bool is_leaf(const tu__node *node) {
    return node->op->traits & TU__LEAF;
}

static bool same_edge(tu_edge a, tu_edge b) {
    return a.node == b.node && a.output == b.output;
}

static void *room(size_t bytes) {
    return aligned_alloc(64, (bytes + 127) & ~(size_t)63);
}

/* Selects the nodes given; NULL: all but the leaves. */
static void bench_select(bench *b, const tu_graph *graph, int threads, size_t export_count,
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
    b->part = (tu_part){.struct_size = sizeof b->part,
                        .graph = graph,
                        .nodes = nodes,
                        .export_count = (uint32_t)export_count,
                        .exports = kept};
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (!is_leaf(graph->nodes[i])) nodes[b->part.node_count++] = i;
    if (tu__cpu_api.select(b->device, &b->part, &b->plan) != TU_OK) fail_msg("%s", tu_message());
}

static bool is_exported(const bench *b, tu_edge value) {
    bool exported = false;
    for (uint32_t i = 0; i < b->part.export_count; i++) exported |= same_edge(b->part.exports[i], value);
    return exported;
}

static uint32_t readers_of(const bench *b, uint32_t buffer) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < b->plan->kernel_count; i++)
        for (uint32_t r = 0; r < b->plan->kernels[i].read_count; r++)
            count += b->plan->kernels[i].reads[r] == buffer;
    return count;
}

/* Where the device offers it, results take over memory that nobody else reads: what the planner may do. */
static void work_in_place(bench *b, const tu_kernel *k) {
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

static void bench_bind(bench *b, bool in_place) {
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

static void *buffer_of(const bench *b, tu_edge value) {
    for (uint32_t i = 0; i < b->plan->buffer_count; i++)
        if (same_edge(b->plan->buffers[i].value, value)) return b->buffers[i];
    return NULL;
}

static void bench_run(bench *b) {
    assert_int_equal(tu__cpu_api.launch(b->device, b->plan, 0, b->plan->kernel_count), TU_OK);
}

static void bench_close(bench *b) {
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

static uint32_t draw(uint32_t below) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % below);
}

static double uniform(double low, double high) {
    return low + (high - low) * draw(1 << 20) / (1 << 20);
}

static void fill_leaf(tu_type type, void *data) {
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

static double tolerance_of(tu_dtype dtype) {
    switch (dtype) {
    case TU_F32: return 2e-6;
    case TU_F64: return 1e-14;
    case TU_BF16: return 0x1p-7;
    case TU_F16: return 0x1p-10;
    default: return 0;
    }
}

/* `terms`: how many numbers went into one; their rounding errors add up as a random walk does. */
static void compare(tu_type type, double terms, const void *have, const void *want, const char *what) {
    int64_t count = tu_shape_elements(type.shape);
    double tolerance = tolerance_of(type.dtype) * fmax(1, 2 * sqrt(terms));
    for (int64_t i = 0; i < count; i++) {
        double x = tu__load(type.dtype, have, i), y = tu__load(type.dtype, want, i);
        if (x == y || (x != x && y != y)) continue;
        if (!(fabs(x - y) <= tolerance * (1 + fabs(y))))
            fail_msg("%s: element %d of %d is %.9g, expected %.9g", what, (int)i, (int)count, x, y);
    }
}

static double terms_of(const tu_graph *graph, const tu__node *node) {
    if (node->op->code != TU__OP_SUM && node->op->code != TU__OP_MEAN) return 0;
    double all = (double)tu_shape_elements(tu_edge_type(graph, node->inputs[0]).shape);
    return all / (double)tu_shape_elements(node->outputs[0].shape);
}

/* Every node, from the inputs that the device computed itself, is what its meaning says. */
static void check_nodes(const bench *whole) {
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

static void check_bits(const pair *p) {
    for (uint32_t i = 0; i < p->fused.part.export_count; i++) {
        tu_edge e = p->fused.part.exports[i];
        const void *have = buffer_of(&p->fused, e), *want = buffer_of(&p->whole, e);
        assert_non_null(have);
        if (memcmp(have, want, tu_type_bytes(tu_edge_type(p->fused.graph, e))) != 0)
            fail_msg("%s has other bits when it is fused", tu_node_name(p->fused.graph, e.node));
    }
}

static void select_pair(pair *p, const tu_graph *graph, int threads, size_t count, const tu_value *exports,
                        bool in_place) {
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

static void fill_leaves(const pair *p) {
    for (uint32_t i = 0; i < p->whole.graph->node_count; i++) {
        const tu__node *node = p->whole.graph->nodes[i];
        void *leaf = is_leaf(node) ? buffer_of(&p->whole, (tu_edge){i, 0}) : NULL;
        if (!leaf) continue;
        fill_leaf(node->outputs[0], leaf);
        void *other = buffer_of(&p->fused, (tu_edge){i, 0});
        if (other) memcpy(other, leaf, tu_type_bytes(node->outputs[0]));
    }
}

static void run_pair(pair *p) {
    fill_leaves(p);
    bench_run(&p->whole);
    bench_run(&p->fused);
    check_nodes(&p->whole);
    check_bits(p);
}

static void close_pair(pair *p) {
    bench_close(&p->whole);
    bench_close(&p->fused);
}

/* ---- Random graphs ---- */

enum { POOL = 64 };

typedef struct pool {
    tu_value values[POOL];
    int count;
} pool;

static void keep(pool *p, tu_value v) {
    p->values[p->count < POOL ? p->count++ : (int)draw(POOL)] = v;
}

static tu_value pick(const pool *p) {
    return p->values[draw((uint32_t)p->count)];
}

/* Something of x's type that broadcasts with it: x itself, another value, a scalar. */
static tu_value partner(const pool *p, tu_value x) {
    for (int tries = 0; tries < 8; tries++) {
        tu_value y = pick(p);
        tu_shape a = tu_value_shape(x), c = tu_value_shape(y);
        bool ok = tu_value_dtype(x) == tu_value_dtype(y) && a.rank >= c.rank;
        for (int64_t i = 0; ok && i < c.rank; i++)
            ok = c.dim[i] == a.dim[a.rank - c.rank + i] || c.dim[i] == 1 || a.dim[a.rank - c.rank + i] == 1;
        if (ok) return y;
    }
    return draw(2) ? x : tu_number(x, 3);
}

/* A scalar of the pool, or another, compared with 0.3. */
static tu_value scalar_truth(const pool *p, tu_value x) {
    tu_value scalar = tu_mean(tu_cast(x, TU_F32));
    for (int tries = 0; tries < 8; tries++) {
        tu_value y = pick(p);
        if (tu_value_shape(y).rank == 0 && tu_value_dtype(y) == TU_F32) scalar = y;
    }
    return tu_less(scalar, tu_number(scalar, 0.3));
}

static tu_value random_node(const pool *p) {
    tu_value x = pick(p), y = partner(p, x);
    tu_dtype dtype = tu_value_dtype(x);
    tu_shape shape = tu_value_shape(x);
    if (dtype == TU_BOOL) {
        switch (draw(4)) {
        case 0: return tu_not(x);
        case 1: return tu_and(x, y);
        case 2: return tu_cast(x, TU_F32);
        default: return tu_or(x, y);
        }
    }
    bool floats = tu_dtype_is_float(dtype);
    switch (draw(floats ? 20 : 8)) {
    case 0: return tu_add(x, y);
    case 1: return tu_minimum(x, y);
    case 2: return tu_maximum(x, y);
    case 3: return tu_select(draw(2) ? tu_less(x, y) : scalar_truth(p, x), x, y);
    case 4: return tu_cast(x, (tu_dtype)draw(TU_DTYPE_COUNT));
    case 5: return tu_relu(x);
    case 6: return tu_less(x, y);
    case 7: return tu_reshape(x, TU_SHAPE(tu_shape_elements(shape)));
    case 8: return tu_mul(tu_tanh(x), y);
    case 9: return tu_tanh(x);
    case 10: return tu_sigmoid(x);
    case 11: return tu_sub(x, tu_tanh(y));
    case 12:
        return shape.rank < 4 ? tu_broadcast(x, shape.rank == 0   ? TU_SHAPE(3)
                                                : shape.rank == 1 ? TU_SHAPE(3, shape.dim[0])
                                                : shape.rank == 2
                                                    ? TU_SHAPE(2, shape.dim[0], shape.dim[1])
                                                    : TU_SHAPE(2, shape.dim[0], shape.dim[1], shape.dim[2]))
                              : tu_neg(x);
    case 13: return tu_mean(x);
    case 14: return shape.rank ? tu_sum(x, .axes = TU_AXES(0), .keep = true) : tu_neg(x);
    case 15: return shape.rank ? tu_mean(x, .axes = TU_AXES(-1), .keep = true) : tu_neg(x);
    case 16: return shape.rank > 1 ? tu_transpose(x) : tu_abs(x);
    case 17: return tu_stop_gradient(tu_tanh(x));
    case 18: return tu_clip(x, -0.75, 0.5);
    default: return tu_erf(tu_sub(x, y));
    }
}

static void random_leaves(tu_graph *g, pool *p) {
    static const tu_dtype types[] = {TU_F32, TU_F32, TU_F32, TU_BF16, TU_F16,
                                     TU_I32, TU_I64, TU_U8,  TU_BOOL, TU_F64};
    int64_t c = 1 + draw(70), r = 1 + draw(40), k = 1 + draw(3);
    const tu_shape shapes[] = {TU_SHAPE(k, r, c), TU_SHAPE(c),       TU_SHAPE(r, 1),
                               TU_SCALAR,         TU_SHAPE(k, 1, c), TU_SHAPE(r, c),
                               TU_SHAPE(k, r, 1), TU_SHAPE(2500),    TU_SHAPE(3, 2500)};
    for (int i = 0; i < 10; i++) {
        char name[16];
        snprintf(name, sizeof name, "leaf%d", i);
        keep(p, tu_input(g, name, types[draw(10)], shapes[draw(9)]));
    }
}

static void random_graph_agrees(uint64_t seed, bool in_place) {
    tu_graph *g;
    pair both;
    random_state = seed * 1000003 + 7;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    pool p = {.count = 0};
    random_leaves(g, &p);
    int nodes = 5 + (int)draw(60);
    for (int i = 0; i < nodes; i++) {
        tu_value v = random_node(&p);
        if (tu_shape_elements(tu_value_shape(v)) <= 60000) keep(&p, v);
    }
    tu_value exports[8];
    size_t count = 1 + draw(8);
    for (size_t i = 0; i < count; i++) do
            exports[i] = pick(&p);
        while (is_leaf(tu__node_of(exports[i])));
    select_pair(&both, g, 1 + (int)draw(3), count, exports, in_place);
    run_pair(&both);
    close_pair(&both);
    tu_graph_free(g);
}

static void random_graphs_have_the_same_bits_however_fused(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) random_graph_agrees(seed, seed & 1);
}

/* ---- Forms of plans ---- */

static tu_value numbered_input(tu_graph *g, const char *letter, int number, tu_shape shape) {
    char name[16];
    snprintf(name, sizeof name, "%s%d", letter, number);
    return tu_input(g, name, TU_F32, shape);
}

static void updates_of_all_parameters_are_one_kernel(void **state) {
    (void)state;
    enum { PARAMETERS = 20 };
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value exports[2 * PARAMETERS];
    for (int i = 0; i < PARAMETERS; i++) {
        tu_shape s = i % 2 ? TU_SHAPE(10 + i) : TU_SHAPE(10 + i, 300);
        tu_value w = numbered_input(g, "w", i, s), v = numbered_input(g, "v", i, s);
        exports[2 * i] = tu_add(tu_scale(v, 0.9), numbered_input(g, "g", i, s));
        exports[2 * i + 1] = tu_sub(w, tu_scale(exports[2 * i], 0.1));
    }
    pair both;
    select_pair(&both, g, 2, 2 * PARAMETERS, exports, true);
    const tu_plan *plan = both.fused.plan;
    assert_int_equal(plan->kernel_count, 1);
    assert_int_equal(plan->kernels[0].read_count, 3 * PARAMETERS);
    assert_int_equal(plan->kernels[0].write_count, 2 * PARAMETERS);
    for (int i = 0; i < 2 * PARAMETERS; i++) assert_true(plan->kernels[0].in_place[i] >= 0);
    run_pair(&both);
    close_pair(&both);
    tu_graph_free(g);
}

static void a_chain_is_one_kernel_without_intermediate_buffers(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(50, 33)), bias = tu_input(g, "b", TU_F32, TU_SHAPE(33));
    tu_value y = tu_relu(tu_add(x, bias));
    tu_value z = tu_mul(tu_tanh(y), tu_sigmoid(y));
    pair both;
    select_pair(&both, g, 1, 1, &z, false);
    assert_int_equal(both.fused.plan->kernel_count, 1);
    assert_int_equal(both.fused.plan->buffer_count, 3);
    assert_string_equal(both.fused.plan->kernels[0].name, "add+relu+tanh+sigmoid+mul");
    run_pair(&both);
    close_pair(&both);
    tu_graph_free(g);
}

static void exports_never_share_memory(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(6, 4)), y = tu_exp(x);
    tu_value exports[] = {tu_reshape(y, TU_SHAPE(24)),    y, tu_reshape(x, TU_SHAPE(24)), tu_stop_gradient(x),
                          tu_reshape(y, TU_SHAPE(2, 12)), y};
    pair both;
    select_pair(&both, g, 1, 6, exports, false);
    const bench *b = &both.fused;
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < i; k++)
            assert_ptr_not_equal(buffer_of(b, b->part.exports[i]), buffer_of(b, b->part.exports[k]));
    run_pair(&both);
    close_pair(&both);
    tu_graph_free(g);
}

/* A value that leaves the part and comes back computed elsewhere: the kernel that gives it must not be the one that
 * takes what came of it. */
static void what_comes_back_from_another_device_is_not_fused_with_what_left(void **state) {
    (void)state;
    tu_graph *g;
    tu_device_instance *device;
    tu_plan *plan;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(100));
    tu_value out = tu_neg(x), back = tu_exp(out), both = tu_add(out, back), other = tu_square(x);
    const uint32_t nodes[] = {out.node, both.node, other.node};
    const tu_edge edges[] = {{other.node, 0}, {out.node, 0}, {both.node, 0}};
    uint32_t levels[8] = {0};
    levels[back.node] = 1; /* out was copied to the other device */
    levels[both.node] = 2; /* and what it made of it back */
    tu_part part = {.struct_size = sizeof part,
                    .graph = g,
                    .node_count = 3,
                    .nodes = nodes,
                    .export_count = 3,
                    .exports = edges,
                    .levels = levels};
    tu_open_options options = {.struct_size = sizeof options, .parts = 1};
    assert_int_equal(tu__cpu_api.open(&options, &device), TU_OK);
    assert_int_equal(tu__cpu_api.select(device, &part, &plan), TU_OK);
    assert_int_equal(plan->kernel_count, 2);
    assert_int_equal(plan->kernels[0].node_count, 2);
    assert_int_equal(plan->kernels[1].nodes[0], both.node);
    tu__cpu_api.plan_free(device, plan);
    tu__cpu_api.close(device);
    tu_graph_free(g);
}

/* ---- Sums at the end of a cluster ---- */

typedef struct sum_case {
    tu_dtype dtype;
    tu_shape shape;
    tu_reduce_options options;
    bool fused; /* or too large for one kernel to do it as a reduction would */
} sum_case;

/* The sum of -x, fused, and of y, a leaf that holds -x: a kernel of its own. */
static void check_sum(const sum_case *c, int threads) {
    tu_graph *g;
    bench b;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", c->dtype, c->shape), y = tu_input(g, "y", c->dtype, c->shape);
    tu_reduce_options options = c->options;
    options.struct_size = sizeof options;
    tu_value fused = tu_mean_with(tu_neg(x), &options), alone = tu_mean_with(y, &options);
    const tu_edge exports[] = {{fused.node, 0}, {alone.node, 0}};
    bench_select(&b, g, threads, 2, exports);
    bench_bind(&b, false);
    assert_int_equal(b.plan->kernel_count, c->fused ? 2 : 3);
    tu_edge leaf = {x.node, 0}, other = {y.node, 0};
    fill_leaf(tu_edge_type(g, leaf), buffer_of(&b, leaf));
    for (int64_t i = 0; i < tu_shape_elements(c->shape); i++)
        tu__store(c->dtype, buffer_of(&b, other), i, -tu__load(c->dtype, buffer_of(&b, leaf), i));
    bench_run(&b);
    assert_memory_equal(buffer_of(&b, exports[0]), buffer_of(&b, exports[1]),
                        tu_type_bytes(tu_edge_type(g, exports[0])));
    bench_close(&b);
    tu_graph_free(g);
}

static void a_sum_has_the_same_bits_fused_and_alone(void **state) {
    (void)state;
    const sum_case cases[] = {
        {TU_F32, TU_SHAPE(1000, 64), {.axes = TU_AXES(0)}, true},
        {TU_F32, TU_SHAPE(7, 33, 9, 70), {.axes = TU_AXES(0, 1, 2)}, true},
        {TU_F32, TU_SHAPE(129, 192), {.axes = TU_AXES(0), .keep = true}, true},
        {TU_F32, TU_SHAPE(4000, 10), {.axes = TU_AXES(0)}, true},
        {TU_BF16, TU_SHAPE(777, 65), {.axes = TU_AXES(0)}, true},
        {TU_F32, TU_SHAPE(300, 77), {.axes = TU_AXES(1)}, true},
        {TU_F32, TU_SHAPE(5, 9000), {.axes = TU_AXES(-1)}, true},
        {TU_BF16, TU_SHAPE(40, 3, 101), {.axes = TU_AXES(1, 2)}, true},
        {TU_F32, TU_SHAPE(100, 100), {.axes = TU_AXES(0, 1)}, true},
        {TU_F32, TU_SHAPE(100, 1000), {.axes = TU_AXES(0, 1)}, false},
        {TU_F32, TU_SHAPE(20, 30, 40), {.axes = TU_AXES(1)}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int threads = 1; threads <= 4; threads++) check_sum(&cases[i], threads);
}

/* What a norm is made of: the sum of x x, squared and added up in one pass, and of y, a leaf that holds the squares. */
static void check_squares(tu_shape shape, int threads, float odd) {
    tu_graph *g;
    bench b;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, shape), y = tu_input(g, "y", TU_F32, shape);
    tu_reduce_options rows = {.struct_size = sizeof rows, .axes = TU_AXES(-1)};
    tu_value fused = tu_sum_with(tu_square(x), &rows), alone = tu_sum_with(y, &rows);
    const tu_edge exports[] = {{fused.node, 0}, {alone.node, 0}}, leaf = {x.node, 0}, other = {y.node, 0};
    bench_select(&b, g, threads, 2, exports);
    bench_bind(&b, false);
    assert_int_equal(b.plan->kernel_count, 2);
    float *numbers = buffer_of(&b, leaf), *squares = buffer_of(&b, other);
    int64_t count = tu_shape_elements(shape);
    fill_leaf(tu_edge_type(g, leaf), numbers);
    numbers[count - 1] = odd;
    for (int64_t i = 0; i < count; i++) squares[i] = numbers[i] * numbers[i];
    bench_run(&b);
    assert_memory_equal(buffer_of(&b, exports[0]), buffer_of(&b, exports[1]),
                        tu_type_bytes(tu_edge_type(g, exports[0])));
    bench_close(&b);
    tu_graph_free(g);
}

static void a_sum_of_squares_has_the_bits_of_the_sum_of_stored_squares(void **state) {
    (void)state;
    const tu_shape shapes[] = {TU_SHAPE(300, 77), TU_SHAPE(784, 512), TU_SHAPE(5, 9000),
                               TU_SHAPE(3, 2),    TU_SHAPE(1000),     TU_SHAPE(2, 1500)};
    random_state = 11;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int threads = 1; threads <= 3; threads++) {
            check_squares(shapes[i], threads, 0.5f);
            check_squares(shapes[i], threads, 3e38f);
            check_squares(shapes[i], threads, INFINITY);
        }
}

/* ---- Choices with one condition for all ---- */

/* Updates behind a guard: next values where it holds, the old ones where it does not. The next value of `v` is read again
 * (by the next `w`), guarded or not, so that both a choice whose option is wanted elsewhere and one whose option is not
 * are there. */
static void check_guarded(tu_dtype dtype, tu_dtype stored, bool reads_guarded, bool condition, int threads,
                          bool in_place) {
    tu_graph *g;
    pair both;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_shape shape = TU_SHAPE(90, 310);
    tu_value guard = tu_input(g, "guard", TU_BOOL, TU_SCALAR);
    tu_value w = tu_input(g, "w", dtype, shape), v = tu_input(g, "v", dtype, shape);
    tu_value next = tu_add(tu_scale(v, 0.9), tu_input(g, "g", dtype, shape));
    tu_value next_v = tu_select(guard, next, v);
    tu_value next_w = tu_select(guard, tu_sub(w, tu_scale(reads_guarded ? next_v : next, 0.1)), w);
    const tu_value exports[] = {next_v, stored == dtype ? next_w : tu_cast(next_w, stored)};
    select_pair(&both, g, threads, 2, exports, in_place);
    assert_int_equal(both.fused.plan->kernel_count, reads_guarded ? 1 : 2);
    fill_leaves(&both);
    const tu_edge leaf = {guard.node, 0};
    *(bool *)buffer_of(&both.whole, leaf) = *(bool *)buffer_of(&both.fused, leaf) = condition;
    bench_run(&both.whole);
    bench_run(&both.fused);
    check_nodes(&both.whole);
    check_bits(&both);
    close_pair(&both);
    tu_graph_free(g);
}

static void a_guard_has_the_same_bits_fused_and_alone(void **state) {
    (void)state;
    static const tu_dtype types[][2] = {
        {TU_F32, TU_F32}, {TU_F32, TU_BF16}, {TU_BF16, TU_BF16}, {TU_F64, TU_F64}};
    random_state = 5;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int threads = 1; threads <= 3; threads++)
            for (unsigned bits = 0; bits < 8; bits++)
                check_guarded(types[i][0], types[i][1], bits & 1, bits & 2, threads, bits & 4);
}

/* ---- What normalisations take in ---- */

static int kernels_named(const bench *b, const char *name) {
    int count = 0;
    for (uint32_t i = 0; i < b->plan->kernel_count; i++) count += strcmp(b->plan->kernels[i].name, name) == 0;
    return count;
}

static tu_value normalised(tu_graph *g, tu_value x, int number) {
    tu_shape s = tu_value_shape(x);
    tu_shape parameter = TU_SHAPE(s.dim[s.rank - 1]);
    return tu_batch_normalize(x, numbered_input(g, "gamma", number, parameter),
                              numbered_input(g, "beta", number, parameter));
}

/* Both plans run over the same leaves, the fused one with the bits of the other. */
static void run_alike(pair *p) {
    fill_leaves(p);
    bench_run(&p->whole);
    bench_run(&p->fused);
    check_bits(p);
}

static void check_block(tu_dtype dtype, int64_t channels, int threads, bool in_place) {
    tu_graph *g;
    pair both;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_shape shape = TU_SHAPE(3, 15, 11, channels);
    tu_value x = tu_input(g, "x", dtype, shape), weight = tu_input(g, "w", dtype, shape);
    tu_value inner = tu_relu(normalised(g, x, 0));
    tu_value y = tu_relu(tu_add(normalised(g, inner, 1), x));
    tu_value dx = {0};
    tu_gradients(tu_sum(tu_mul(y, weight)), 1, &x, &dx);
    const tu_value exports[] = {y, dx};
    select_pair(&both, g, threads, 2, exports, in_place);
    assert_int_equal(kernels_named(&both.fused, "batch_norm+relu"), 1);
    assert_int_equal(kernels_named(&both.fused, "batch_norm+add+relu"), 1);
    assert_int_equal(kernels_named(&both.fused, "relu_grad+batch_norm_grad"), 1);
    assert_int_equal(kernels_named(&both.fused, "batch_norm_grad"), 1);
    assert_int_equal(kernels_named(&both.whole, "batch_norm"), 2);
    assert_int_equal(kernels_named(&both.whole, "batch_norm_grad"), 2);
    run_alike(&both);
    close_pair(&both);
    tu_graph_free(g);
}

static void a_residual_block_has_the_same_bits_fused_and_alone(void **state) {
    (void)state;
    static const int64_t channels[] = {1, 5, 16, 70};
    random_state = 3;
    for (int i = 0; i < 4; i++)
        for (int threads = 1; threads <= 3; threads++) {
            check_block(TU_F32, channels[i], threads, i & 1);
            check_block(TU_BF16, channels[i], threads, !(i & 1));
        }
}

/* A kernel that joined this one would wait for its own statistics. */
static void a_join_made_of_the_statistics_waits_for_them(void **state) {
    (void)state;
    tu_graph *g;
    pair both;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(6, 7, 16)), y = normalised(g, x, 0);
    tu_value mean = {.graph = g, .node = y.node, .output = 1};
    tu_value z = tu_relu(tu_add(y, tu_mul(x, mean)));
    select_pair(&both, g, 2, 1, &z, false);
    assert_int_equal(kernels_named(&both.fused, "batch_norm"), 1);
    run_alike(&both);
    close_pair(&both);
    tu_graph_free(g);
}

/* The gradient of a rectifier that others read is stored for them; the mask is then taken from the rectified value. */
static void a_gradient_that_others_read_is_not_taken_in(void **state) {
    (void)state;
    tu_graph *g;
    pair both;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_shape shape = TU_SHAPE(6, 7, 16);
    tu_value x = tu_input(g, "x", TU_F32, shape), weight = tu_input(g, "w", TU_F32, shape);
    tu_value before = normalised(g, x, 0);
    tu_value y = tu_relu(before), wanted[] = {x, before}, gradients[2] = {{0}};
    tu_gradients(tu_sum(tu_mul(y, weight)), 2, wanted, gradients);
    select_pair(&both, g, 2, 2, gradients, true);
    assert_int_equal(kernels_named(&both.fused, "batch_norm_grad"), 1);
    run_alike(&both);
    close_pair(&both);
    tu_graph_free(g);
}

/* ---- Memory that runs out ---- */

static void selecting_without_memory_fails_and_leaks_nothing(void **state) {
    (void)state;
    tu_graph *g;
    tu_device_instance *device;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(64, 40)), b = tu_input(g, "b", TU_F32, TU_SHAPE(40));
    tu_value y = tu_tanh(tu_add(tu_transpose(tu_transpose(x)), b)), z = tu_cumsum(y, 0);
    const tu_edge exports[] = {
        {tu_sum(y, .axes = TU_AXES(0)).node, 0}, {tu_exp(z).node, 0}, {tu_flatten(y).node, 0}};
    uint32_t nodes[16], count = 0;
    for (uint32_t i = 0; i < g->node_count; i++)
        if (!is_leaf(g->nodes[i])) nodes[count++] = i;
    tu_part part = {.struct_size = sizeof part,
                    .graph = g,
                    .node_count = count,
                    .nodes = nodes,
                    .export_count = 3,
                    .exports = exports};
    tu_open_options options = {.struct_size = sizeof options, .parts = 1};
    assert_int_equal(tu__cpu_api.open(&options, &device), TU_OK);
    int64_t live = tu__alloc_live();
    tu_status status = TU_NO_MEMORY;
    for (uint64_t nth = 1; status != TU_OK; nth++) {
        tu_plan *plan = NULL;
        tu__alloc_fail_at(nth);
        status = tu__cpu_api.select(device, &part, &plan);
        tu__alloc_fail_at(0);
        assert_true(status == TU_OK || status == TU_NO_MEMORY);
        if (status == TU_OK) tu__cpu_api.plan_free(device, plan);
        assert_int_equal(tu__alloc_live(), live);
    }
    tu__cpu_api.close(device);
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_is_one_kernel_without_intermediate_buffers),
        cmocka_unit_test(updates_of_all_parameters_are_one_kernel),
        cmocka_unit_test(a_sum_has_the_same_bits_fused_and_alone),
        cmocka_unit_test(a_sum_of_squares_has_the_bits_of_the_sum_of_stored_squares),
        cmocka_unit_test(a_guard_has_the_same_bits_fused_and_alone),
        cmocka_unit_test(exports_never_share_memory),
        cmocka_unit_test(a_residual_block_has_the_same_bits_fused_and_alone),
        cmocka_unit_test(a_join_made_of_the_statistics_waits_for_them),
        cmocka_unit_test(a_gradient_that_others_read_is_not_taken_in),
        cmocka_unit_test(what_comes_back_from_another_device_is_not_fused_with_what_left),
        cmocka_unit_test(selecting_without_memory_fails_and_leaks_nothing),
        cmocka_unit_test(random_graphs_have_the_same_bits_however_fused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
