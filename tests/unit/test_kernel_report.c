/* Tests of kernel reports and of the precision of a program. */
#include "test.h"

#include <string.h>

#include <tutti/tutti.h>

enum { BATCH = 4 };

/* tanh(x w): one matmul and one pointwise operation. */
static tu_graph *new_matmul_graph(tu_value *x, tu_value *y) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    *x = tu_input(g, "x", TU_F32, TU_SHAPE(BATCH, 8));
    tu_value w = tu_variable(g, "w", TU_F32, TU_SHAPE(8, 16), .init = {TU_INIT_CONSTANT, .a = 0.1});
    *y = tu_output(tu_tanh(tu_name(tu_matmul(*x, w), "product")), "y");
    return g;
}

static void kernels_are_reported_in_the_order_they_run(void **unused) {
    (void)unused;
    tu_value x, y;
    tu_graph *g = new_matmul_graph(&x, &y);
    tu_program *program;
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &y, .fetch_count = 1), TU_OK);
    tu_kernel_report report = TU_SIZED(tu_kernel_report);
    assert_int_equal(tu_program_kernel(program, 0, &report), TU_OK);
    assert_string_equal(report.device, "ref:0");
    assert_string_equal(report.kernel, "matmul");
    assert_string_equal(report.node, "product");
    assert_int_equal(report.node_count, 1);
    assert_int_equal(report.flops, 2 * BATCH * 8 * 16);
    assert_int_equal(report.bytes, 4 * (BATCH * 8 + 8 * 16 + BATCH * 16));
    assert_true(report.seconds == 0);
    assert_int_equal(tu_program_kernel(program, 1, &report), TU_OK);
    assert_string_equal(report.kernel, "tanh");
    assert_int_equal(tu_program_kernel(program, 2, &report), TU_NOT_FOUND);
    assert_non_null(strstr(tu_message(), "kernel index 2 is out of range"));
    tu_program_free(program);
    tu_graph_free(g);
}

/* The number of operations does not depend on fusion. */
static void a_device_that_fuses_reports_the_same_operations(void **unused) {
    (void)unused;
    tu_value x, y;
    tu_graph *g = new_matmul_graph(&x, &y);
    const char *const devices[] = {"ref", "cpu"};
    int64_t flops[2] = {0};
    for (int i = 0; i < 2; i++) {
        tu_program *program;
        tu_state *state;
        tu_kernel_report report = TU_SIZED(tu_kernel_report);
        float in[BATCH * 8] = {1, 2, 3}, out[BATCH * 16];
        double seconds = 0;
        assert_int_equal(tu_compile(g, &program, .devices = devices[i], .fetch = &y, .fetch_count = 1),
                         TU_OK);
        assert_int_equal(tu_state_new(g, &state), TU_OK);
        assert_int_equal(tu_run(program, state, 1, (tu_feed[]){{x, in}}, (void *[]){out}), TU_OK);
        for (size_t k = 0;
             k < tu_program_kernel_count(program) && tu_program_kernel(program, k, &report) == TU_OK; k++) {
            flops[i] += report.flops;
            seconds += report.seconds;
        }
        assert_true(i == 0 || seconds > 0); /* the CPU measures its kernels */
        tu_program_free(program);
        tu_state_free(state);
    }
    assert_int_equal(flops[0], flops[1]);
    tu_graph_free(g);
}

/* Doubling b does not depend on the other device, but its reader does: one kernel computes both, after the copy. */
static void an_operation_is_fused_with_its_late_reader(void **unused) {
    (void)unused;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value a = tu_input(g, "a", TU_F32, TU_SHAPE(BATCH)), b = tu_input(g, "b", TU_F32, TU_SHAPE(BATCH));
    tu_value sent = a, y = b;
    tu_with_device(g, "cpu:0.0") sent = tu_exp(a);
    tu_with_device(g, "cpu:0.1") y = tu_sub(tu_scale(b, 2), sent);
    tu_program *program;
    tu_state *state;
    tu_kernel_report report = TU_SIZED(tu_kernel_report);
    assert_int_equal(tu_compile(g, &program, .devices = "cpu:0/2", .fetch = &y, .fetch_count = 1), TU_OK);
    size_t kernels = 0;
    for (size_t k = 0;
         k < tu_program_kernel_count(program) && tu_program_kernel(program, k, &report) == TU_OK; k++) {
        if (strcmp(report.device, "cpu:0.1") != 0) continue;
        assert_string_equal(report.kernel, "mul+sub");
        kernels++;
    }
    assert_int_equal(kernels, 1);
    float zeros[BATCH] = {0}, twos[BATCH] = {2, 2, 2, 2}, got[BATCH];
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    assert_int_equal(tu_run(program, state, 2, (tu_feed[]){{a, zeros}, {b, twos}}, (void *[]){got}), TU_OK);
    for (int i = 0; i < BATCH; i++) assert_true(got[i] == 3);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

static void half_precision_rounds_matmuls_and_keeps_the_types_of_results(void **unused) {
    (void)unused;
    tu_value x, y;
    tu_graph *g = new_matmul_graph(&x, &y);
    const char *const precisions[] = {NULL, "f32", "bf16"};
    float out[3][BATCH * 16], in[BATCH * 8] = {1.0f / 3, 2, 3};
    for (int i = 0; i < 3; i++) {
        tu_program *program;
        tu_state *state;
        assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &y, .fetch_count = 1,
                                    .precision = precisions[i]),
                         TU_OK);
        assert_int_equal(tu_state_new(g, &state), TU_OK);
        assert_int_equal(tu_run(program, state, 1, (tu_feed[]){{x, in}}, (void *[]){out[i]}), TU_OK);
        tu_program_free(program);
        tu_state_free(state);
    }
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    assert_true(out[0][0] != out[2][0]);
    assert_float_equal(out[0][0], out[2][0], 0.01);
    tu_graph_free(g);
}

static void an_unknown_precision_is_rejected(void **unused) {
    (void)unused;
    tu_value x, y;
    tu_graph *g = new_matmul_graph(&x, &y);
    tu_program *program;
    assert_int_equal(tu_compile(g, &program, .fetch = &y, .fetch_count = 1, .precision = "f23"), TU_INVALID);
    assert_null(program);
    assert_non_null(strstr(tu_message(), "f23"));
    assert_non_null(strstr(tu_message(), "bf16"));
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_are_reported_in_the_order_they_run),
        cmocka_unit_test(a_device_that_fuses_reports_the_same_operations),
        cmocka_unit_test(an_operation_is_fused_with_its_late_reader),
        cmocka_unit_test(half_precision_rounds_matmuls_and_keeps_the_types_of_results),
        cmocka_unit_test(an_unknown_precision_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
