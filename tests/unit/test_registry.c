/* Device lists, options for opening devices, and the calling thread's settings. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "base/parallel.h"
#include "device/device.h"

/* ---- "all" ---- */

/* Three fake GPUs: the device ref with another name. The second cannot be used. */
static bool gpus_exist = true, gpus_are_usable = true;

static tu_status describe_gpu(tu_device_instance *device, int index, tu_device_info *info) {
    static const char *const names[] = {"gpu:0", "gpu:1", "gpu:2"};
    if (!gpus_exist || index > 2) return tu_fail(TU_NOT_FOUND, "there is no GPU %d", index);
    bool usable = gpus_are_usable && index != 1;
    (void)device;
    *info = (tu_device_info){
        .name = names[index], .kind = "gpu", .unusable = usable ? NULL : "it is used by another process"};
    return TU_OK;
}

static tu_device_api gpu_api;

static void register_fake_gpus(void) {
    if (!gpu_api.kind) gpu_api = tu__ref_api;
    gpu_api.kind = "gpu";
    gpu_api.accelerator = true;
    gpu_api.describe = describe_gpu;
    assert_int_equal(tu__device_kind_add(&gpu_api), TU_OK);
}

/* Opens a list and returns the names of its devices, separated by commas; or the error message. */
static const char *open_and_list_names(const char *list) {
    static char names[256];
    tu__device *devices[TU__MAX_DEVICES];
    size_t count;
    if (tu__devices_open(list, NULL, TU__MAX_DEVICES, devices, &count) != TU_OK) return tu_message();
    size_t used = 0;
    names[0] = 0;
    for (size_t i = 0; i < count && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? "," : "", devices[i]->name);
    tu__devices_close(count, devices);
    return names;
}

static void all_means_the_cpu_if_there_is_no_gpu(void **unused) {
    (void)unused;
    assert_string_equal(open_and_list_names("all"), "cpu:0");
    assert_string_equal(open_and_list_names(NULL), "cpu:0");
    assert_string_equal(open_and_list_names("ref,all"), "ref:0,cpu:0");
    assert_non_null(strstr(open_and_list_names("cpu,all"), "device 'cpu:0' is in the list twice"));
    assert_non_null(strstr(open_and_list_names("all:0"), "there is no device 'all:0'"));
}

static void all_means_the_gpus_that_can_be_used(void **unused) {
    (void)unused;
    register_fake_gpus();
    assert_string_equal(open_and_list_names("all"), "gpu:0,gpu:2");
    assert_string_equal(open_and_list_names(NULL), "gpu:0,gpu:2");
    assert_string_equal(open_and_list_names("all,cpu"), "gpu:0,gpu:2,cpu:0");
    gpus_are_usable = false;
    assert_string_equal(open_and_list_names("all"), "cpu:0");
    gpus_exist = gpus_are_usable = false;
    assert_string_equal(open_and_list_names("all"), "cpu:0");
    gpus_exist = gpus_are_usable = true;
}

static void unusable_devices_are_listed_separately(void **unused) {
    (void)unused;
    register_fake_gpus();
    const char *message = open_and_list_names("tpu");
    assert_non_null(strstr(message, "there is no device 'tpu': the devices are cpu:0, ref:0"));
    assert_non_null(strstr(message, ", gpu:0, gpu:2 ("));
    assert_non_null(strstr(message, "; gpu:1 cannot be used: 'tutti devices' shows the reason"));
    gpus_exist = false;
    assert_null(strstr(open_and_list_names("tpu"), "cannot be used"));
    gpus_exist = true;
}

/* Nodes without a placement go to the first of these devices. */
static void programs_without_a_device_list_use_the_first_of_all(void **unused) {
    (void)unused;
    register_fake_gpus();
    tu_graph *g, *placed;
    tu_program *program;
    tu_kernel_report kernel = TU_SIZED(tu_kernel_report);
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value y = tu_output(tu_exp(tu_input(g, "x", TU_F32, TU_SHAPE(3))), "y");
    gpus_exist = false;
    assert_int_equal(tu_compile(g, &program, .fetch = &y, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_program_kernel(program, 0, &kernel), TU_OK);
    assert_string_equal(kernel.device, "cpu:0");
    tu_program_free(program);
    gpus_exist = true;
    assert_int_equal(tu_compile(g, &program, .fetch = &y, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_program_kernel(program, 0, &kernel), TU_OK);
    assert_string_equal(kernel.device, "gpu:0");
    assert_int_equal(tu_program_kernel(program, 1, &kernel), TU_NOT_FOUND);
    tu_program_free(program);
    assert_int_equal(tu_graph_after(g, &placed, .pass = "place"), TU_OK);
    assert_string_equal(tu_value_device(tu_find_output(placed, "y")), "gpu:0");
    tu_graph_free(placed);
    tu_graph_free(g);
}

/* ---- Options ---- */

static tu_open_options opened_with[8];
static int open_count;

static tu_status open_and_record(const tu_open_options *options, tu_device_instance **device) {
    opened_with[open_count++] = *options;
    return tu__ref_api.open(options, device);
}

static bool partition_had_tf32;

static tu_status lower_and_record(tu_device_instance *device, const tu_partition *partition, tu_plan **plan) {
    partition_had_tf32 = partition->tf32;
    return tu__ref_api.lower(device, partition, plan);
}

static void register_recording_device(void) {
    static tu_device_api recorder;
    recorder = tu__ref_api;
    recorder.kind = "recorder";
    recorder.open = open_and_record;
    recorder.lower = lower_and_record;
    assert_int_equal(tu__device_kind_add(&recorder), TU_OK);
    open_count = 0;
}

/* Programs with the same options share a device; programs with tuning, or with any order, get another one. */
static void a_device_is_opened_once_per_set_of_options(void **unused) {
    (void)unused;
    static const tu_compile_options rows[] = {{.devices = "recorder"},
                                              {.devices = "recorder", .tune_kernels = true},
                                              {.devices = "recorder", .nondeterministic = true},
                                              {.devices = "recorder", .tune_kernels = true},
                                              {.devices = "recorder"}};
    enum { ROWS = sizeof rows / sizeof *rows };
    tu_program *programs[ROWS];
    tu_graph *g;
    register_recording_device();
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value y = tu_exp(tu_input(g, "x", TU_F32, TU_SHAPE(3)));
    for (int i = 0; i < ROWS; i++) {
        tu_compile_options o = rows[i];
        o.struct_size = sizeof o;
        o.fetch = &y;
        o.fetch_count = 1;
        assert_int_equal(tu_compile_with(g, &programs[i], &o), TU_OK);
    }
    assert_int_equal(open_count, 3);
    assert_true(!opened_with[0].tune && !opened_with[0].nondeterministic);
    assert_true(opened_with[1].tune && !opened_with[1].nondeterministic);
    assert_true(!opened_with[2].tune && opened_with[2].nondeterministic);
    for (int i = 0; i < ROWS; i++) tu_program_free(programs[i]);
    tu_graph_free(g);
}

static void devices_receive_the_tf32_option(void **unused) {
    (void)unused;
    static const struct {
        const char *precision;
        bool tf32;
    } rows[] = {{"tf32", true}, {"f32", false}, {NULL, false}, {"bf16", false}};
    tu_graph *g;
    tu_program *program;
    register_recording_device();
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value y = tu_exp(tu_input(g, "x", TU_F32, TU_SHAPE(3)));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(tu_compile(g, &program, .devices = "recorder", .precision = rows[i].precision,
                                    .fetch = &y, .fetch_count = 1),
                         TU_OK);
        assert_int_equal(partition_had_tf32, rows[i].tf32);
        tu_program_free(program);
    }
    tu_graph_free(g);
}

static tu_status fail_to_reserve(tu_device_instance *device, uint64_t bytes) {
    (void)device;
    return tu_fail(TU_NO_MEMORY, "%d bytes are not available", (int)bytes);
}

/* Devices other than GPUs ignore the option. */
static void failure_to_reserve_gpu_memory_is_reported(void **unused) {
    (void)unused;
    tu_graph *g;
    tu_program *program;
    register_fake_gpus();
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value y = tu_exp(tu_input(g, "x", TU_F32, TU_SHAPE(3)));
    for (int i = 0; i < 2; i++) {
        gpu_api.reserve = i ? fail_to_reserve : NULL;
        assert_int_equal(tu_compile(g, &program, .devices = "cpu,gpu:2", .fetch = &y, .fetch_count = 1,
                                    .gpu_memory_reserve = 64),
                         i ? TU_NO_MEMORY : TU_UNSUPPORTED);
        assert_string_equal(tu_message(),
                            i ? "64 bytes are not available" : "device 'gpu:2' cannot reserve memory");
    }
    gpu_api.reserve = NULL;
    assert_int_equal(
        tu_compile(g, &program, .devices = "cpu", .fetch = &y, .fetch_count = 1, .gpu_memory_reserve = 64),
        TU_OK);
    tu_program_free(program);
    tu_graph_free(g);
}

/* ---- Bundled plug-ins ---- */

static void bundled_plugins_are_found_next_to_the_program_or_one_folder_up(void **unused) {
    (void)unused;
    char path[1024];
    assert_true(tu__bundled_plugin("test_registry", sizeof path, path));
    assert_int_equal(path[0], '/');
    assert_int_equal(access(path, X_OK), 0);
    assert_true(tu__bundled_plugin("build.ninja", sizeof path, path) ||
                tu__bundled_plugin("Makefile", sizeof path, path));
    assert_false(tu__bundled_plugin("no_such_plugin.so", sizeof path, path));
    char small[16];
    assert_false(tu__bundled_plugin("test_registry", sizeof small, small));
}

/* ---- The caller's thread ---- */

static tu__parallel_setting settings_of_this_thread(void) {
    tu__parallel_setting setting = tu__parallel_begin(1);
    tu__parallel_end(setting);
    return setting;
}

/* A program on one device runs on the calling thread; the thread count of the user's OpenMP loops does not change. */
static void a_run_restores_the_calling_threads_settings(void **unused) {
    (void)unused;
    tu_graph *g;
    tu_program *program;
    tu_state *state;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(64, 64)), y = tu_matmul(x, tu_exp(x));
    static float data[64 * 64], result[64 * 64];
    tu__parallel_set_threads(5);
    tu__parallel_setting before = settings_of_this_thread();
    assert_int_equal(tu_compile(g, &program, .devices = "cpu:0", .threads = 2, .fetch = &y, .fetch_count = 1),
                     TU_OK);
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(tu_run(program, state, 1, (tu_feed[]){{x, data}}, (void *[]){result}), TU_OK);
    tu__parallel_setting after = settings_of_this_thread();
    assert_int_equal(after.thread_count, 5);
    assert_int_equal(after.threads, before.threads);
    assert_int_equal(after.dynamic, before.dynamic);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

int main(void) {
    setenv("TUTTI_CUDA", "off", 1); /* ignore the GPUs of this machine */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_means_the_cpu_if_there_is_no_gpu),
        cmocka_unit_test(all_means_the_gpus_that_can_be_used),
        cmocka_unit_test(unusable_devices_are_listed_separately),
        cmocka_unit_test(programs_without_a_device_list_use_the_first_of_all),
        cmocka_unit_test(a_device_is_opened_once_per_set_of_options),
        cmocka_unit_test(devices_receive_the_tf32_option),
        cmocka_unit_test(failure_to_reserve_gpu_memory_is_reported),
        cmocka_unit_test(bundled_plugins_are_found_next_to_the_program_or_one_folder_up),
        cmocka_unit_test(a_run_restores_the_calling_threads_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
