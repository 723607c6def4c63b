/* Values at the ends of their types, from files and plug-ins: undefined arithmetic, which the sanitizers find, endless lists,
 * and checkpoints that vanish while they are read. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "test.h"

#include "device/device.h"
#include "graph/graph.h"
#include "train/checkpoint.h"

/* ---- Operations ---- */

static void a_stride_beyond_the_input_has_one_window(void **state) {
    (void)state;
    static const char *const devices[] = {"cpu:0", "ref"};
    float pixels[16], mean;
    for (int i = 0; i < 16; i++) pixels[i] = (float)i;
    for (size_t d = 0; d < 2; d++) {
        tu_graph *g;
        tu_program *program;
        tu_state *variables;
        assert_int_equal(tu_graph_new(&g), TU_OK);
        tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(1, 4, 4, 1));
        tu_value y = tu_avg_pool(x, .window = {2, 2}, .stride = {INT64_MAX, INT64_MAX / 2});
        assert_int_equal(tu_compile(g, &program, .devices = devices[d], .fetch = &y, .fetch_count = 1),
                         TU_OK);
        assert_int_equal(tu_state_new(g, &variables), TU_OK);
        assert_int_equal(tu_run(program, variables, 1, &(tu_feed){x, pixels}, (void *[]){&mean}), TU_OK);
        assert_true(mean == 2.5F);
        tu_state_free(variables);
        tu_program_free(program);
        tu_graph_free(g);
    }
}

static void the_largest_sample_ordinal_draws_numbers(void **state) {
    (void)state;
    static const char *const devices[] = {"cpu:0", "ref"};
    const int64_t ordinals[2] = {INT64_MAX, INT64_MIN};
    for (size_t d = 0; d < 2; d++) {
        tu_graph *g;
        tu_program *program;
        tu_state *variables;
        float numbers[2];
        assert_int_equal(tu_graph_new(&g), TU_OK);
        tu_value y = tu_random_uniform(g, TU_F32, TU_SHAPE(2), 0, 1, .per_sample = true);
        assert_int_equal(tu_compile(g, &program, .devices = devices[d], .fetch = &y, .fetch_count = 1),
                         TU_OK);
        assert_int_equal(tu_state_new(g, &variables), TU_OK);
        const tu_feed feed = {tu__value(g, tu__find_node(g, "sample_ordinal")->id, 0), ordinals};
        assert_int_equal(tu_run(program, variables, 1, &feed, (void *[]){numbers}), TU_OK);
        assert_true(numbers[0] >= 0 && numbers[0] < 1 && numbers[1] >= 0 && numbers[1] < 1);
        tu_state_free(variables);
        tu_program_free(program);
        tu_graph_free(g);
    }
}

/* ---- Checkpoints ---- */

typedef struct run {
    char folder[64];
    tu_graph *graph;
    tu_state *state;
    tu__run_config config;
} run;

static void begin_run(run *r) {
    *r = (run){.folder = "/tmp/tutti-test-XXXXXX",
               .config = {.model = "m", .graph_digest = "g", .task = "classification"}};
    r->config.dataset.digest = "d";
    assert_non_null(mkdtemp(r->folder));
    char folder[80];
    snprintf(folder, sizeof folder, "%s/checkpoints", r->folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(tu_graph_new(&r->graph), TU_OK);
    tu_variable(r->graph, "w", TU_F32, TU_SHAPE(1000));
    assert_int_equal(tu_state_new(r->graph, &r->state), TU_OK);
}

static void end_run(run *r) {
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", r->folder);
    assert_int_equal(system(command), 0);
    tu_state_free(r->state);
    tu_graph_free(r->graph);
}

static tu_status save_step(run *r, int64_t step) {
    tu__snapshot snapshot = {0};
    tu__progress progress = tu__progress_initial();
    progress.step = step;
    tu_status status = tu__snapshot_take(r->state, &snapshot);
    if (status == TU_OK) status = tu__checkpoint_save(r->folder, false, &r->config, &snapshot, &progress);
    tu__snapshot_free(&snapshot);
    return status;
}

static void a_checkpoint_of_the_last_possible_step_is_rejected(void **state) {
    (void)state;
    run r;
    tu__progress progress;
    begin_run(&r);
    assert_int_equal(save_step(&r, INT64_MAX), TU_OK);
    assert_int_equal(tu__checkpoint_load_named(r.folder, "last", &r.config, r.state, &progress), TU_CORRUPT);
    assert_non_null(strstr(tu_message(), "step or sample counts are out of range"));
    end_run(&r);
}

static atomic_bool stops;

/* Saves and prunes like a training. */
static void *save_steps(void *context) {
    run *r = context;
    for (int64_t step = 2; !atomic_load(&stops); step++)
        if (save_step(r, step) != TU_OK || tu__checkpoint_prune(r->folder, step, 1) != TU_OK) return r;
    return NULL;
}

static void the_newest_checkpoint_is_found_while_a_training_removes_old_ones(void **state) {
    (void)state;
    run r;
    pthread_t thread;
    void *failed;
    begin_run(&r);
    tu_state *read;
    assert_int_equal(tu_state_new(r.graph, &read), TU_OK);
    assert_int_equal(save_step(&r, 1), TU_OK);
    atomic_store(&stops, false);
    assert_int_equal(pthread_create(&thread, NULL, save_steps, &r), 0);
    tu_status status = TU_OK;
    for (int i = 0; i < 2000 && status == TU_OK; i++) {
        tu__progress progress;
        status = tu__checkpoint_load_named(r.folder, "last", &r.config, read, &progress);
    }
    atomic_store(&stops, true);
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(status, TU_OK);
    tu_state_free(read);
    end_run(&r);
}

/* ---- Devices ---- */

static tu_status describe_endlessly(tu_device_instance *device, int index, tu_device_info *info) {
    (void)device, (void)index;
    *info = (tu_device_info){.struct_size = sizeof *info, .name = "endless:0", .kind = "endless"};
    return TU_OK;
}

/* Last: the kind stays registered. */
static void a_kind_without_end_has_as_many_devices_as_there_may_be(void **state) {
    (void)state;
    static tu_device_api api;
    size_t before = tu_device_count();
    api = tu__ref_api;
    api.kind = "endless";
    api.describe = describe_endlessly;
    assert_int_equal(tu__device_kind_add(&api), TU_OK);
    assert_int_equal(tu_device_count(), before + 1024);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stride_beyond_the_input_has_one_window),
        cmocka_unit_test(the_largest_sample_ordinal_draws_numbers),
        cmocka_unit_test(a_checkpoint_of_the_last_possible_step_is_rejected),
        cmocka_unit_test(the_newest_checkpoint_is_found_while_a_training_removes_old_ones),
        cmocka_unit_test(a_kind_without_end_has_as_many_devices_as_there_may_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
