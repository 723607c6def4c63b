/* On a machine with an NVIDIA GPU but without the CUDA plug-in, the reason is reported in the list of devices, when
 * the GPU is requested, and to programs that would have used it. */
#include "test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "device/device.h"

static void create_file(const char *root, const char *folder, const char *file) {
    char path[256] = "", *end = path + snprintf(path, sizeof path, "%s", root);
    for (const char *from = folder; *from;) { /* one folder at a time */
        size_t length = strcspn(from + 1, "/") + 1;
        end += snprintf(end, sizeof path - (size_t)(end - path), "%.*s", (int)length, from);
        mkdir(path, 0700);
        from += length;
    }
    snprintf(end, sizeof path - (size_t)(end - path), "/%s", file);
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    fclose(stream);
}

static void remove_tree(const char *root) {
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c): a folder that mkdtemp stream
}

static void expect_gpu(const char *folder, const char *file, bool expected) {
    char root[] = "/tmp/tutti-gpu-XXXXXX", path[256] = "";
    assert_non_null(mkdtemp(root));
    create_file(root, folder, file);
    assert_int_equal(tu__find_nvidia_gpu_in(root, sizeof path, path), expected);
    if (expected) assert_non_null(strstr(path, file));
    remove_tree(root);
}

static void a_gpu_is_detected_without_a_driver(void **unused) {
    (void)unused;
    expect_gpu("/dev", "nvidia0", true);
    expect_gpu("/dev", "nvidia11", true);
    expect_gpu("/proc/driver/nvidia/gpus", "0000:00:06.0", true);
    expect_gpu("/usr/lib/wsl/lib", "libcuda.so.1", true);
    expect_gpu("/dev", "nvidiactl", false);
    expect_gpu("/usr/lib/x86_64-linux-gnu", "libcuda.so.1", false); /* a driver without a GPU */
}

static void hidden_gpus_are_not_detected(void **unused) {
    (void)unused;
    char path[256];
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    assert_false(tu__find_nvidia_gpu(sizeof path, path));
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    assert_false(tu__find_nvidia_gpu(sizeof path, path));
    unsetenv("CUDA_VISIBLE_DEVICES");
}

static tu_status compile_for(const char *devices, char notice[1024]) {
    tu_graph *graph = NULL;
    tu_program *program = NULL;
    tu_device_report report = TU_SIZED(tu_device_report);
    assert_int_equal(tu_graph_new(&graph), TU_OK);
    tu_value x = tu_fill(graph, TU_F32, TU_SCALAR, 1);
    tu_status status = tu_compile(graph, &program, .devices = devices, .fetch = &x, .fetch_count = 1);
    if (status == TU_OK) assert_int_equal(tu_program_device(program, 0, &report), TU_OK);
    snprintf(notice, 1024, "%s", report.notice ? report.notice : "");
    tu_program_free(program);
    tu_graph_free(graph);
    return status;
}

static void a_missing_cuda_plugin_is_reported(void **unused) {
    (void)unused;
    char notice[1024];
    tu_device_info info = TU_SIZED(tu_device_info);
    bool is_listed = false;
    assert_int_equal(tu__device_kind_add(&tu__missing_cuda_api), TU_OK);
    for (size_t i = 0, count = tu_device_count(); i < count && tu_device(i, &info) == TU_OK; i++)
        if (strcmp(info.name, "gpu:0") == 0)
            is_listed = info.unusable && strstr(info.unusable, "libtutti_cuda.so");
    assert_true(is_listed);

    assert_int_equal(compile_for("gpu", notice), TU_UNSUPPORTED);
    assert_non_null(strstr(tu_message(), "device 'gpu' cannot be used: libtutti_cuda.so was not found"));
    assert_int_equal(compile_for(NULL, notice), TU_OK);
    assert_non_null(strstr(notice, "gpu:0 cannot be used, so the CPU is used: libtutti_cuda.so"));
    assert_int_equal(compile_for("all", notice), TU_OK);
    assert_non_null(strstr(notice, "libtutti_cuda.so"));
    assert_int_equal(compile_for("cpu", notice), TU_OK);
    assert_string_equal(notice, "");
}

static void a_gpu_plugin_loaded_later_replaces_the_missing_one(void **unused) {
    (void)unused;
    char notice[1024];
    static tu_device_api other;
    other = tu__ref_api;
    other.kind = "gpu";
    assert_int_equal(tu__device_kind_add(&tu__missing_cuda_api), TU_OK);
    assert_int_equal(tu__device_kind_add(&other), TU_OK);
    assert_int_equal(compile_for("all", notice), TU_OK);
    assert_string_equal(notice, "");
}

int main(void) {
    setenv("TUTTI_CUDA", "off", 1); /* ignore the GPUs of this machine */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_is_detected_without_a_driver),
        cmocka_unit_test(hidden_gpus_are_not_detected),
        cmocka_unit_test(a_missing_cuda_plugin_is_reported),
        cmocka_unit_test(a_gpu_plugin_loaded_later_replaces_the_missing_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
