/* Copies between a GPU and a CPU, and parallel branches on a GPU: results are unchanged, large values go through
 * staging buffers, values are copied while kernels run, and a trace shows all of it. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "trace_checks.h"

enum { RUNS = 4, WIDTH = 24, BRANCHES = 6, LENGTH = 5 };

static float *draw(size_t count) {
    float *x = malloc(count * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < count; i++) x[i] = (float)((i * 7919 + 13) % 1009) / 504.5f - 1;
    return x;
}

/* ---- Branches on one GPU ---- */

/* Chains of small products whose results are summed; a variable is updated from the sum. */
static tu_graph *build_branches(tu_value *x, tu_value *y) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    *x = tu_input(g, "x", TU_F32, TU_SHAPE(WIDTH, WIDTH));
    tu_value sum = *x;
    for (int b = 0; b < BRANCHES; b++) {
        tu_value h = tu_mul(*x, tu_fill(g, TU_F32, TU_SCALAR, 0.1 * (b + 1)));
        for (int i = 0; i < LENGTH; i++) h = tu_tanh(tu_matmul(h, *x));
        sum = tu_add(sum, h);
    }
    tu_value w = tu_variable(g, "w", TU_F32, TU_SHAPE(WIDTH, WIDTH));
    tu_assign(w, tu_add(w, sum));
    *y = tu_sum(sum);
    return g;
}

static void run_branches(int streams, float losses[RUNS], float *w) {
    tu_value x, y;
    tu_graph *g = build_branches(&x, &y);
    tu_program *program;
    tu_state *state;
    float *data = draw(WIDTH * WIDTH);
    if (tu_compile(g, &program, .devices = "gpu:0", .streams = streams, .fetch = &y, .fetch_count = 1,
                   .updates = true) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(g, &state, .seed = 3), TU_OK);
    for (int i = 0; i < RUNS / 2; i++)
        if (tu_run(program, state, 1, (tu_feed[]){{x, data}}, (void *[]){&losses[i]}) != TU_OK)
            fail_msg("%s", tu_message());
    if (tu_run_many(program, state, RUNS - RUNS / 2, 1,
                    (tu_feed_many[]){{.input = x, .data = data, .same_batch = true}},
                    (void *[]){&losses[RUNS / 2]}) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_get(state, "w", w, WIDTH * WIDTH * sizeof *w), TU_OK);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
    free(data);
}

static void parallel_branches_compute_the_same_bits(void **unused) {
    (void)unused;
    static float one[RUNS], several[RUNS], w_one[WIDTH * WIDTH], w_several[WIDTH * WIDTH];
    run_branches(1, one, w_one);
    run_branches(0, several, w_several);
    assert_memory_equal(one, several, sizeof one);
    assert_memory_equal(w_one, w_several, sizeof w_one);
}

/* ---- A GPU and a CPU ---- */

typedef struct gpu_cpu_program {
    tu_graph *graph;
    tu_value x, y;
    tu_program *program;
    tu_state *state;
} gpu_cpu_program;

/* y = 2 * exp(tanh(x)) + tanh(softmax(tanh(x))): exp runs on the CPU while the GPU continues. */
static void build_program(gpu_cpu_program *p, const char *devices, const char *device, int64_t count) {
    assert_int_equal(tu_graph_new(&p->graph), TU_OK);
    p->x = tu_input(p->graph, "x", TU_F32, TU_SHAPE(count));
    tu_value h, e, t;
    tu_with_device(p->graph, device) {
        h = tu_tanh(p->x);
        t = tu_tanh(tu_softmax(h, 0));
    }
    tu_with_device(p->graph, "cpu:0") e = tu_exp(h);
    tu_with_device(p->graph, device) p->y = tu_add(tu_add(e, e), t);
    if (tu_compile(p->graph, &p->program, .devices = devices, .fetch = &p->y, .fetch_count = 1) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(p->graph, &p->state), TU_OK);
}

static void run(gpu_cpu_program *p, const float *x, float *y) {
    if (tu_run(p->program, p->state, 1, (tu_feed[]){{p->x, x}}, (void *[]){y}) != TU_OK)
        fail_msg("%s", tu_message());
}

static void free_program(gpu_cpu_program *p) {
    tu_program_free(p->program);
    tu_state_free(p->state);
    tu_graph_free(p->graph);
}

static void values_are_copied_while_kernels_run(void **unused) {
    (void)unused;
    enum { COUNT = 3000 };
    gpu_cpu_program gpu, cpu;
    float *x = draw(COUNT), *expected = draw(COUNT), *got = draw(COUNT);
    build_program(&gpu, "gpu:0,cpu:0", "gpu:0", COUNT);
    build_program(&cpu, "cpu:0", "cpu:0", COUNT);
    for (int i = 0; i < RUNS; i++) {
        x[0] = (float)i / 8;
        run(&cpu, x, expected);
        run(&gpu, x, got);
        for (int k = 0; k < COUNT; k++)
            if (!(got[k] - expected[k] < 1e-5f && expected[k] - got[k] < 1e-5f))
                fail_msg("run %d, element %d: %g, expected %g", i, k, (double)got[k], (double)expected[k]);
    }
    free_program(&gpu);
    free_program(&cpu);
    free(x);
    free(expected);
    free(got);
}

/* Less than a staging buffer, a little more than one, several: uploaded and downloaded. */
static void large_values_use_staging_buffers(void **unused) {
    (void)unused;
    static const int64_t counts[] = {5, 20000, (1 << 20) + 3, (5 << 19) + 1};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        tu_graph *g;
        tu_program *program;
        tu_state *state;
        assert_int_equal(tu_graph_new(&g), TU_OK);
        tu_value in = tu_input(g, "x", TU_F32, TU_SHAPE(counts[i]));
        tu_value x = in, y = x;
        tu_with_device(g, "gpu:0") y = tu_neg(x);
        assert_int_equal(tu_compile(g, &program, .devices = "gpu:0", .fetch = &y, .fetch_count = 1), TU_OK);
        assert_int_equal(tu_state_new(g, &state), TU_OK);
        float *sent = draw((size_t)counts[i]), *got = calloc((size_t)counts[i], sizeof *got);
        assert_int_equal(tu_run(program, state, 1, (tu_feed[]){{in, sent}}, (void *[]){got}), TU_OK);
        for (int64_t k = 0; k < counts[i]; k++)
            if (got[k] != -sent[k]) fail_msg("element %lld of %lld", (long long)k, (long long)counts[i]);
        free(sent);
        free(got);
        tu_program_free(program);
        tu_state_free(state);
        tu_graph_free(g);
    }
}

static void a_trace_covers_gpu_and_cpu(void **unused) {
    (void)unused;
    enum { COUNT = 3000 };
    const double clock_error = 500; /* microseconds of clock error to allow on a busy machine */
    gpu_cpu_program p;
    float *x = draw(COUNT), *y = draw(COUNT);
    build_program(&p, "gpu:0,cpu:0", "gpu:0", COUNT);
    run(&p, x, y);
    assert_int_equal(tu_program_trace_begin(p.program), TU_OK);
    for (int i = 0; i < RUNS; i++) run(&p, x, y);
    decoded d = decode(p.program);
    rows_are_in_order(&d, clock_error);
    spans_lie_within_their_run(&d, RUNS, clock_error);
    every_planned_kernel_is_there(&d, p.program, RUNS);
    bytes_copied_are_those_predicted(&d, p.program, RUNS);
    drop(&d);
    free_program(&p);
    free(x);
    free(y);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parallel_branches_compute_the_same_bits),
        cmocka_unit_test(values_are_copied_while_kernels_run),
        cmocka_unit_test(large_values_use_staging_buffers),
        cmocka_unit_test(a_trace_covers_gpu_and_cpu),
    };
    return cmocka_run_group_tests_name("gpu_copies", tests, NULL, NULL);
}
