/* Selection and fusion of the CPU device: random graphs of pointwise nodes, views, transposes and reductions agree
 * with the reference kernels, and plans have the expected kernels. */
#include "base/alloc.h"
#include "cpu_plans.h"

/* ---- Random graphs ---- */

enum { POOL = 64 };

typedef struct pool {
    tu_value values[POOL];
    int count;
} pool;

static void add_to_pool(pool *p, tu_value v) {
    p->values[p->count < POOL ? p->count++ : (int)draw(POOL)] = v;
}

static tu_value random_value(const pool *p) {
    return p->values[draw((uint32_t)p->count)];
}

/* Returns a value of x's type that broadcasts with it: x itself, another value, or a scalar. */
static tu_value broadcast_partner(const pool *p, tu_value x) {
    for (int tries = 0; tries < 8; tries++) {
        tu_value y = random_value(p);
        tu_shape a = tu_value_shape(x), c = tu_value_shape(y);
        bool ok = tu_value_dtype(x) == tu_value_dtype(y) && a.rank >= c.rank;
        for (int64_t i = 0; ok && i < c.rank; i++)
            ok = c.dim[i] == a.dim[a.rank - c.rank + i] || c.dim[i] == 1 || a.dim[a.rank - c.rank + i] == 1;
        if (ok) return y;
    }
    return draw(2) ? x : tu_number(x, 3);
}

/* Returns a boolean scalar: a scalar of the pool, or the mean of x, compared with 0.3. */
static tu_value scalar_condition(const pool *p, tu_value x) {
    tu_value scalar = tu_mean(tu_cast(x, TU_F32));
    for (int tries = 0; tries < 8; tries++) {
        tu_value y = random_value(p);
        if (tu_value_shape(y).rank == 0 && tu_value_dtype(y) == TU_F32) scalar = y;
    }
    return tu_less(scalar, tu_number(scalar, 0.3));
}

static tu_value random_node(const pool *p) {
    tu_value x = random_value(p), y = broadcast_partner(p, x);
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
    bool is_float = tu_dtype_is_float(dtype);
    switch (draw(is_float ? 20 : 8)) {
    case 0: return tu_add(x, y);
    case 1: return tu_minimum(x, y);
    case 2: return tu_maximum(x, y);
    case 3: return tu_select(draw(2) ? tu_less(x, y) : scalar_condition(p, x), x, y);
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
    static const tu_dtype types[] = {TU_F32, TU_F32, TU_F32,  TU_BF16, TU_F16, TU_I32,
                                     TU_I64, TU_U8,  TU_BOOL, TU_F64,  TU_I8};
    int64_t c = 1 + draw(70), r = 1 + draw(40), k = 1 + draw(3);
    const tu_shape shapes[] = {TU_SHAPE(k, r, c), TU_SHAPE(c),       TU_SHAPE(r, 1),
                               TU_SCALAR,         TU_SHAPE(k, 1, c), TU_SHAPE(r, c),
                               TU_SHAPE(k, r, 1), TU_SHAPE(2500),    TU_SHAPE(3, 2500)};
    for (int i = 0; i < 10; i++) {
        char name[16];
        snprintf(name, sizeof name, "leaf%d", i);
        add_to_pool(p, tu_input(g, name, types[draw(11)], shapes[draw(9)]));
    }
}

static void check_random_graph(uint64_t seed, bool in_place) {
    tu_graph *g;
    pair both;
    random_state = seed * 1000003 + 7;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    pool p = {.count = 0};
    random_leaves(g, &p);
    int nodes = 5 + (int)draw(60);
    for (int i = 0; i < nodes; i++) {
        tu_value v = random_node(&p);
        if (tu_shape_elements(tu_value_shape(v)) <= 60000) add_to_pool(&p, v);
    }
    tu_value exports[8];
    size_t count = 1 + draw(8);
    for (size_t i = 0; i < count; i++) do
            exports[i] = random_value(&p);
        while (is_leaf(tu__node_of(exports[i])));
    select_pair(&both, g, 1 + (int)draw(3), count, exports, in_place);
    run_and_compare_all(&both);
    close_pair(&both);
    tu_graph_free(g);
}

static void random_graphs_have_the_same_bits_fused_and_unfused(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) check_random_graph(seed, seed & 1);
}

/* ---- Expected plans ---- */

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
    run_and_compare_all(&both);
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
    run_and_compare_all(&both);
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
    const test_plan *b = &both.fused;
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < i; k++)
            assert_ptr_not_equal(buffer_of(b, b->partition.exports[i]),
                                 buffer_of(b, b->partition.exports[k]));
    run_and_compare_all(&both);
    close_pair(&both);
    tu_graph_free(g);
}

/* A value is sent to another device, which computes a value that is sent back. The kernel that produces the first
 * must not be the one that reads the second. */
static void values_from_another_device_are_not_fused_with_values_sent_to_it(void **state) {
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
    levels[back.node] = 1; /* `out` is copied to the other device */
    levels[both.node] = 2; /* and its result is copied back */
    tu_partition partition = {.struct_size = sizeof partition,
                              .graph = g,
                              .node_count = 3,
                              .nodes = nodes,
                              .export_count = 3,
                              .exports = edges,
                              .levels = levels};
    tu_open_options options = {.struct_size = sizeof options, .logical_count = 1};
    assert_int_equal(tu__cpu_api.open(&options, &device), TU_OK);
    assert_int_equal(tu__cpu_api.lower(device, &partition, &plan), TU_OK);
    assert_int_equal(plan->kernel_count, 2);
    assert_int_equal(plan->kernels[0].node_count, 2);
    assert_int_equal(plan->kernels[1].nodes[0], both.node);
    tu__cpu_api.plan_free(device, plan);
    tu__cpu_api.close(device);
    tu_graph_free(g);
}

/* ---- Out of memory ---- */

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
    tu_partition partition = {.struct_size = sizeof partition,
                              .graph = g,
                              .node_count = count,
                              .nodes = nodes,
                              .export_count = 3,
                              .exports = exports};
    tu_open_options options = {.struct_size = sizeof options, .logical_count = 1};
    assert_int_equal(tu__cpu_api.open(&options, &device), TU_OK);
    int64_t live = tu__alloc_live();
    tu_status status = TU_NO_MEMORY;
    for (uint64_t nth = 1; status != TU_OK; nth++) {
        tu_plan *plan = NULL;
        tu__alloc_fail_at(nth);
        status = tu__cpu_api.lower(device, &partition, &plan);
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
        cmocka_unit_test(exports_never_share_memory),
        cmocka_unit_test(values_from_another_device_are_not_fused_with_values_sent_to_it),
        cmocka_unit_test(selecting_without_memory_fails_and_leaks_nothing),
        cmocka_unit_test(random_graphs_have_the_same_bits_fused_and_unfused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
