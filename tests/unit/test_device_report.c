/* Tests of tu_program_device: device names, numbers of threads, notices. */
#include "test.h"

#include <string.h>

#include <tutti/tutti.h>

static tu_graph *graph;
static tu_value fill;

static int create_graph(void **unused) {
    (void)unused;
    if (tu_graph_new(&graph) != TU_OK) return 1;
    fill = tu_fill(graph, TU_F32, TU_SCALAR, 1);
    return 0;
}

static int free_graph(void **unused) {
    (void)unused;
    tu_graph_free(graph);
    return 0;
}

static tu_status compile_fill(tu_program **program, const char *devices, int threads) {
    return tu_compile(graph, program, .devices = devices, .threads = threads, .fetch = &fill,
                      .fetch_count = 1);
}

static void logical_devices_report_their_names_and_threads(void **unused) {
    (void)unused;
    tu_program *program;
    tu_device_report report = TU_SIZED(tu_device_report);
    assert_int_equal(compile_fill(&program, "cpu:0/64,ref,null", 0), TU_UNSUPPORTED);
    assert_int_equal(compile_fill(&program, "cpu:0/62,ref,null", 0), TU_OK);
    assert_int_equal(tu_program_device(program, 1, &report), TU_OK);
    assert_string_equal(report.device, "cpu:0.1");
    assert_true(report.threads >= 1);
    assert_int_equal(tu_program_device(program, 62, &report), TU_OK);
    assert_string_equal(report.device, "ref:0");
    assert_int_equal(report.threads, 1);
    assert_int_equal(tu_program_device(program, 63, &report), TU_OK);
    assert_int_equal(report.threads, 0);
    assert_int_equal(tu_program_device(program, 64, &report), TU_NOT_FOUND);
    tu_program_free(program);
}

static void requested_threads_are_reported(void **unused) {
    (void)unused;
    tu_program *program;
    tu_device_report report = TU_SIZED(tu_device_report);
    assert_int_equal(compile_fill(&program, "cpu:0.1/2", 3), TU_OK);
    assert_int_equal(tu_program_device(program, 0, &report), TU_OK);
    assert_int_equal(report.threads, 3);
    tu_program_free(program);
}

static void devices_that_share_cores_have_the_same_notice(void **unused) {
    (void)unused;
    tu_program *program;
    tu_device_report first = TU_SIZED(tu_device_report), second = TU_SIZED(tu_device_report);
    assert_int_equal(compile_fill(&program, "cpu:0.0/1024,ref", 0), TU_OK);
    assert_int_equal(tu_program_device(program, 0, &first), TU_OK);
    assert_non_null(first.notice);
    assert_non_null(strstr(first.notice, "cpu:0/1024: 1024 devices share "));
    assert_int_equal(tu_program_device(program, 1, &second), TU_OK);
    assert_null(second.notice);
    tu_program_free(program);
    assert_int_equal(compile_fill(&program, "cpu:0.5/1024,cpu:0.6/1024", 0), TU_OK);
    assert_int_equal(tu_program_device(program, 0, &first), TU_OK);
    assert_int_equal(tu_program_device(program, 1, &second), TU_OK);
    assert_string_equal(first.notice, second.notice);
    tu_program_free(program);
}

static void a_device_with_its_own_cores_has_no_notice(void **unused) {
    (void)unused;
    tu_program *program;
    tu_device_report report = TU_SIZED(tu_device_report);
    assert_int_equal(compile_fill(&program, "cpu:0", 0), TU_OK);
    assert_int_equal(tu_program_device(program, 0, &report), TU_OK);
    assert_null(report.notice);
    tu_program_free(program);
}

/* Compiles a matmul in the precision, and returns the notice of the first device. `threads` 0: one per
 * core. */
static const char *notice_of(tu_program **program, const char *devices, const char *precision, int threads) {
    static tu_device_report report;
    report = TU_SIZED(tu_device_report);
    tu_value x = tu_input(graph, "x", TU_F32, TU_SHAPE(4, 4)), y = tu_matmul(x, x);
    if (tu_compile(graph, program, .devices = devices, .threads = threads, .precision = precision,
                   .fetch = &y, .fetch_count = 1) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_program_device(*program, 0, &report), TU_OK);
    return report.notice ? report.notice : "";
}

static void new_graph(void) {
    free_graph(NULL);
    assert_int_equal(create_graph(NULL), 0);
}

static void f16_on_a_cpu_has_a_notice(void **unused) {
    (void)unused;
    static const struct {
        const char *devices, *precision;
        bool slow;
    } rows[] = {
        {"cpu:0", "f16", true}, {"cpu:0", "bf16", false}, {"cpu:0", NULL, false}, {"ref", "f16", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tu_program *program;
        new_graph();
        const char *notice = notice_of(&program, rows[i].devices, rows[i].precision, 1);
        assert_int_equal(strstr(notice, "f16 on a CPU is computed by the reference") != NULL, rows[i].slow);
        tu_program_free(program);
    }
    tu_program *program;
    new_graph(); /* the device's own notice comes first */
    const char *notice = notice_of(&program, "cpu:0/2", "f16", 1024);
    assert_non_null(strstr(notice, "1024 threads"));
    assert_non_null(strstr(notice, "; f16 on a CPU"));
    tu_program_free(program);
    new_graph();
    assert_int_equal(tu_compile(graph, &program, .devices = "cpu:0", .threads = 1, .precision = "f16",
                                .fetch = &fill, .fetch_count = 1),
                     TU_OK); /* nothing is computed in f16 */
    tu_device_report report = TU_SIZED(tu_device_report);
    assert_int_equal(tu_program_device(program, 0, &report), TU_OK);
    assert_null(report.notice);
    tu_program_free(program);
}

static void too_many_threads_or_devices_fail_with_the_limit(void **unused) {
    (void)unused;
    tu_program *program;
    assert_int_equal(compile_fill(&program, "cpu:0", 100000), TU_INVALID);
    assert_non_null(strstr(tu_message(), "threads = 100000: expected 1 to 1024"));
    assert_int_equal(compile_fill(&program, "cpu:0", -1), TU_INVALID);
    assert_int_equal(compile_fill(&program, "cpu:0/9999", 0), TU_INVALID);
    assert_non_null(strstr(tu_message(), "1024"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logical_devices_report_their_names_and_threads),
        cmocka_unit_test(requested_threads_are_reported),
        cmocka_unit_test(devices_that_share_cores_have_the_same_notice),
        cmocka_unit_test(a_device_with_its_own_cores_has_no_notice),
        cmocka_unit_test(f16_on_a_cpu_has_a_notice),
        cmocka_unit_test(too_many_threads_or_devices_fail_with_the_limit),
    };
    return cmocka_run_group_tests(tests, create_graph, free_graph);
}
