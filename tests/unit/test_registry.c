/* Statements about which devices a list names, and about the thread that a program runs on. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "base/parallel.h"
#include "device/device.h"

/* ---- "all" ---- */

/* Three GPUs that are none: the reference under another name. The second cannot be used. */
static bool gpus_are_there = true, gpus_are_usable = true;

static tu_status describe_gpu(int index, tu_device_info *info) {
    static const char *const names[] = {"gpu:0", "gpu:1", "gpu:2"};
    if (!gpus_are_there || index > 2) return tu_fail(TU_NOT_FOUND, "there is no GPU %d", index);
    bool usable = gpus_are_usable && index != 1;
    *info = (tu_device_info){
        .name = names[index], .kind = "gpu", .unusable = usable ? NULL : "it is held by somebody else"};
    return TU_OK;
}

static tu_device_api gpu_api;

static void plug_in_gpus(void) {
    if (!gpu_api.kind) gpu_api = tu__ref_api;
    gpu_api.kind = "gpu";
    gpu_api.describe = describe_gpu;
    assert_int_equal(tu__device_kind_add(&gpu_api), TU_OK);
}

/* The names of the devices that a list opens, with commas between. */
static const char *opened(const char *list) {
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

static void all_means_the_processor_where_there_is_no_gpu(void **unused) {
    (void)unused;
    assert_string_equal(opened("all"), "cpu:0");
    assert_string_equal(opened(NULL), "cpu:0");
    assert_string_equal(opened("ref,all"), "ref:0,cpu:0");
    assert_non_null(strstr(opened("cpu,all"), "device 'cpu:0' is in the list twice"));
    assert_non_null(strstr(opened("all:0"), "there is no device 'all:0'"));
}

static void all_means_the_gpus_that_can_be_used(void **unused) {
    (void)unused;
    plug_in_gpus();
    assert_string_equal(opened("all"), "gpu:0,gpu:2");
    assert_string_equal(opened(NULL), "gpu:0,gpu:2");
    assert_string_equal(opened("all,cpu"), "gpu:0,gpu:2,cpu:0");
    gpus_are_usable = false;
    assert_string_equal(opened("all"), "cpu:0");
    gpus_are_there = gpus_are_usable = false;
    assert_string_equal(opened("all"), "cpu:0");
    gpus_are_there = gpus_are_usable = true;
}

static void what_cannot_be_used_is_not_offered(void **unused) {
    (void)unused;
    plug_in_gpus();
    const char *message = opened("tpu");
    assert_non_null(strstr(message, "there is no device 'tpu': the devices are cpu:0, ref:0"));
    assert_non_null(strstr(message, ", gpu:0, gpu:2 ("));
    assert_non_null(strstr(message, "; gpu:1 cannot be used: 'tutti devices' shows the reason"));
    gpus_are_there = false;
    assert_null(strstr(opened("tpu"), "cannot be used"));
    gpus_are_there = true;
}

/* What nobody placed goes to the first of them. */
static void a_program_that_names_no_device_runs_on_the_first_of_all(void **unused) {
    (void)unused;
    plug_in_gpus();
    tu_graph *g, *placed;
    tu_program *program;
    tu_kernel_report kernel;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value y = tu_output(tu_exp(tu_input(g, "x", TU_F32, TU_SHAPE(3))), "y");
    gpus_are_there = false;
    assert_int_equal(tu_compile(g, &program, .fetch = &y, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_program_kernel(program, 0, &kernel), TU_OK);
    assert_string_equal(kernel.device, "cpu:0");
    tu_program_free(program);
    gpus_are_there = true;
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
static int openings;

static tu_status open_noting(const tu_open_options *options, tu_device_instance **device) {
    opened_with[openings++] = *options;
    return tu__ref_api.open(options, device);
}

static bool part_had_tf32;

static tu_status select_noting(tu_device_instance *device, const tu_partition *part, tu_plan **plan) {
    part_had_tf32 = part->tf32;
    return tu__ref_api.select(device, part, plan);
}

static void plug_in_noting(void) {
    static tu_device_api noting;
    noting = tu__ref_api;
    noting.kind = "noting";
    noting.open = open_noting;
    noting.select = select_noting;
    assert_int_equal(tu__device_kind_add(&noting), TU_OK);
    openings = 0;
}

/* Programs that want the same of a device share it; those that want it tuned, or in any order, have another. */
static void a_device_is_opened_once_for_each_way_it_is_wanted(void **unused) {
    (void)unused;
    static const tu_compile_options rows[] = {{.devices = "noting"},
                                              {.devices = "noting", .tune_kernels = true},
                                              {.devices = "noting", .any_order = true},
                                              {.devices = "noting", .tune_kernels = true},
                                              {.devices = "noting"}};
    enum { ROWS = sizeof rows / sizeof *rows };
    tu_program *programs[ROWS];
    tu_graph *g;
    plug_in_noting();
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value y = tu_exp(tu_input(g, "x", TU_F32, TU_SHAPE(3)));
    for (int i = 0; i < ROWS; i++) {
        tu_compile_options o = rows[i];
        o.struct_size = sizeof o;
        o.fetch = &y;
        o.fetch_count = 1;
        assert_int_equal(tu_compile_with(g, &programs[i], &o), TU_OK);
    }
    assert_int_equal(openings, 3);
    assert_true(!opened_with[0].tune && !opened_with[0].any_order);
    assert_true(opened_with[1].tune && !opened_with[1].any_order);
    assert_true(!opened_with[2].tune && opened_with[2].any_order);
    for (int i = 0; i < ROWS; i++) tu_program_free(programs[i]);
    tu_graph_free(g);
}

static void a_device_hears_that_products_may_be_tf32(void **unused) {
    (void)unused;
    static const struct {
        const char *precision;
        bool tf32;
    } rows[] = {{"tf32", true}, {"f32", false}, {NULL, false}, {"bf16", false}};
    tu_graph *g;
    tu_program *program;
    plug_in_noting();
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value y = tu_exp(tu_input(g, "x", TU_F32, TU_SHAPE(3)));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(tu_compile(g, &program, .devices = "noting", .precision = rows[i].precision,
                                    .fetch = &y, .fetch_count = 1),
                         TU_OK);
        assert_int_equal(part_had_tf32, rows[i].tf32);
        tu_program_free(program);
    }
    tu_graph_free(g);
}

static tu_status no_reserve(tu_device_instance *device, uint64_t bytes) {
    (void)device;
    return tu_fail(TU_NO_MEMORY, "%d bytes are not there", (int)bytes);
}

/* Other devices do not hear of it. */
static void a_gpu_that_cannot_reserve_memory_says_so(void **unused) {
    (void)unused;
    tu_graph *g;
    tu_program *program;
    plug_in_gpus();
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value y = tu_exp(tu_input(g, "x", TU_F32, TU_SHAPE(3)));
    for (int i = 0; i < 2; i++) {
        gpu_api.reserve = i ? no_reserve : NULL;
        assert_int_equal(tu_compile(g, &program, .devices = "cpu,gpu:2", .fetch = &y, .fetch_count = 1,
                                    .gpu_memory_reserve = 64),
                         i ? TU_NO_MEMORY : TU_UNSUPPORTED);
        assert_string_equal(tu_message(),
                            i ? "64 bytes are not there" : "device 'gpu:2' cannot reserve memory");
    }
    gpu_api.reserve = NULL;
    assert_int_equal(
        tu_compile(g, &program, .devices = "cpu", .fetch = &y, .fetch_count = 1, .gpu_memory_reserve = 64),
        TU_OK);
    tu_program_free(program);
    tu_graph_free(g);
}

/* ---- Plug-ins that come with the engine ---- */

static void a_bundled_plugin_lies_beside_the_program_or_one_folder_up(void **unused) {
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
    tu__parallel_setting now = tu__parallel_begin(1);
    tu__parallel_end(now);
    return now;
}

/* A program on one whole device runs on the thread that called; OpenMP loops of the user's own are as wide as before. */
static void a_run_leaves_the_callers_thread_as_it_was(void **unused) {
    (void)unused;
    tu_graph *g;
    tu_program *program;
    tu_state *state;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(64, 64)), y = tu_matmul(x, tu_exp(x));
    static float data[64 * 64], result[64 * 64];
    tu__parallel_set_width(5);
    tu__parallel_setting before = settings_of_this_thread();
    assert_int_equal(tu_compile(g, &program, .devices = "cpu:0", .threads = 2, .fetch = &y, .fetch_count = 1),
                     TU_OK);
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(tu_run(program, state, 1, (tu_feed[]){{x, data}}, (void *[]){result}), TU_OK);
    tu__parallel_setting after = settings_of_this_thread();
    assert_int_equal(after.width, 5);
    assert_int_equal(after.threads, before.threads);
    assert_int_equal(after.dynamic, before.dynamic);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

int main(void) {
    setenv("TUTTI_CUDA", "off", 1); /* the GPUs of these statements are not the machine's */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_means_the_processor_where_there_is_no_gpu),
        cmocka_unit_test(all_means_the_gpus_that_can_be_used),
        cmocka_unit_test(what_cannot_be_used_is_not_offered),
        cmocka_unit_test(a_program_that_names_no_device_runs_on_the_first_of_all),
        cmocka_unit_test(a_device_is_opened_once_for_each_way_it_is_wanted),
        cmocka_unit_test(a_device_hears_that_products_may_be_tf32),
        cmocka_unit_test(a_gpu_that_cannot_reserve_memory_says_so),
        cmocka_unit_test(a_bundled_plugin_lies_beside_the_program_or_one_folder_up),
        cmocka_unit_test(a_run_leaves_the_callers_thread_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
