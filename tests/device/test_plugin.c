/* Tests device plug-ins: one is loaded, trains a network like the device ref, works together with other devices, and
 * one for another ABI, with the kit of another version, or with an incomplete table, is rejected. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti/tutti.h>

/* CMakeLists.txt defines where examples/device and the plug-ins of this folder were built. */
#ifndef PLUGIN_FOLDER
#error "PLUGIN_FOLDER must name the folder of tally.so"
#endif
#ifndef TEST_PLUGIN_FOLDER
#error "TEST_PLUGIN_FOLDER must name the folder of without_launch.so"
#endif

static void load(void) {
    assert_int_equal(tu_device_load(PLUGIN_FOLDER "/tally.so"), TU_OK);
}

/* Trains a small network for five steps and returns its weights. */
static void train(const char *devices, const char *device_of_logits, float weights[12]) {
    tu_graph *g;
    tu_program *step;
    tu_state *state;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(5, 4)), h = {0};
    tu_value y = tu_batch_input(g, "y", TU_I32, TU_SHAPE(5));
    h = tu_dense(x, .units = 3, .act = TU_TANH, .name = "hidden");
    if (device_of_logits)
        tu_with_device(g, device_of_logits) h = tu_dense(h, .units = 2, .name = "logits");
    else
        h = tu_dense(h, .units = 2, .name = "logits");
    tu_value loss = tu_mean(tu_cross_entropy(h, y));
    assert_int_equal(tu_add_sgd(loss, 0.5, 0.9), TU_OK);
    tu_status status =
        tu_compile(g, &step, .devices = devices, .fetch = &loss, .fetch_count = 1, .updates = true);
    if (status != TU_OK) fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(g, &state, .seed = 2), TU_OK);
    static const float images[20] = {1, 2, 3, 4, -1, 0, 1, 0, 2, 2, 1, 1, 0, 0, 0, 1, -2, 1, 3, 0};
    static const int labels[5] = {0, 1, 1, 0, 1};
    float loss_value, first_loss = 0;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(
            tu_run(step, state, 2, (tu_feed[]){{x, images}, {y, labels}}, (void *[]){&loss_value}), TU_OK);
        if (i == 0) first_loss = loss_value;
    }
    assert_true(loss_value < first_loss);
    assert_int_equal(tu_state_get(state, "hidden/weights", weights, 12 * sizeof(float)), TU_OK);
    tu_program_free(step);
    tu_state_free(state);
    tu_graph_free(g);
}

static void a_plugin_trains_like_the_reference_device(void **unused) {
    (void)unused;
    load();
    float expected[12], got[12];
    train("ref", NULL, expected);
    train("tally", NULL, got);
    assert_memory_equal(expected, got, sizeof expected);
}

static void a_plugin_works_in_a_program_with_other_devices(void **unused) {
    (void)unused;
    load();
    float expected[12], got[12];
    train("ref", NULL, expected);
    train("ref,tally:0", "tally:0", got);
    assert_memory_equal(expected, got, sizeof expected);
}

static void plugins_are_listed_as_devices(void **unused) {
    (void)unused;
    load();
    tu_device_info info = TU_SIZED(tu_device_info);
    bool is_listed = false;
    for (size_t i = 0, count = tu_device_count(); i < count && tu_device(i, &info) == TU_OK; i++)
        is_listed = is_listed || strcmp(info.name, "tally:0") == 0;
    assert_true(is_listed);
}

static void plugins_for_another_abi_are_rejected_with_their_name(void **unused) {
    (void)unused;
    assert_int_equal(tu_device_load(PLUGIN_FOLDER "/tally_other_abi.so"), TU_UNSUPPORTED);
    assert_non_null(strstr(tu_message(), "tally_other_abi.so"));
    assert_non_null(strstr(tu_message(), "was built for device interface 2, this library has 4: rebuild"));
    assert_int_equal(tu_device_load("/nowhere/at/all.so"), TU_NOT_FOUND);
    assert_non_null(strstr(tu_message(), "/nowhere/at/all.so"));
}

static void older_plugins_with_a_shorter_table_are_accepted(void **unused) {
    (void)unused;
    assert_int_equal(tu_device_load(PLUGIN_FOLDER "/tally_older.so"), TU_OK);
    /* Loading it again does nothing. */
    assert_int_equal(tu_device_load(PLUGIN_FOLDER "/tally_older.so"), TU_OK);
    tu_device_info info = TU_SIZED(tu_device_info);
    int count_listed = 0;
    for (size_t i = 0, count = tu_device_count(); i < count && tu_device(i, &info) == TU_OK; i++)
        count_listed += strncmp(info.name, "older:", 6) == 0;
    assert_int_equal(count_listed, 1);
}

static void a_plugin_with_the_kit_works(void **unused) {
    (void)unused;
    assert_int_equal(tu_device_load(TEST_PLUGIN_FOLDER "/kit_plugin.so"), TU_OK);
    float expected[12], got[12];
    train("ref", NULL, expected);
    train("checked", NULL, got);
    assert_memory_equal(expected, got, sizeof expected);
}

static void expect_other_kit(const char *path, const char *version) {
    char expected[512];
    snprintf(expected, sizeof expected,
             "device plug-in '%s' was built with the kit of Tutti %s, this library is %s: rebuild it", path,
             version, tu_version());
    assert_int_equal(tu_device_load(path), TU_UNSUPPORTED);
    assert_string_equal(tu_message(), expected);
}

static void a_plugin_with_the_kit_of_another_version_is_rejected(void **unused) {
    (void)unused;
    expect_other_kit(TEST_PLUGIN_FOLDER "/other_kit_plugin.so", "0.0.9");
}

/* Copies a file to an open one and replaces a text by another of the same length; returns how often it occurred. */
static int copy_with(const char *from, int to, const char *text, const char *replacement) {
    static char bytes[1 << 22];
    FILE *file = fopen(from, "rb");
    assert_non_null(file);
    size_t size = fread(bytes, 1, sizeof bytes, file), length = strlen(text);
    fclose(file);
    assert_in_range(size, 1, sizeof bytes - 1);
    int count = 0;
    for (size_t i = 0; i + length <= size; i++)
        if (memcmp(bytes + i, text, length) == 0) {
            memcpy(bytes + i, replacement, length);
            count++;
        }
    assert_int_equal(write(to, bytes, size), (ssize_t)size);
    return count;
}

/* The loader rejects it, before any code of the plug-in runs. */
static void a_plugin_that_needs_functions_of_another_version_is_rejected(void **unused) {
    (void)unused;
    char path[] = "/tmp/tutti_other_kit_XXXXXX", node[64], other[64], *version = other;
    snprintf(node, sizeof node, "TUTTI_PRIVATE_%s", tu_version());
    snprintf(other, sizeof other, "%s", node);
    version += strlen("TUTTI_PRIVATE_");
    version[0] = version[0] == '9' ? '8' : '9';
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_true(copy_with(TEST_PLUGIN_FOLDER "/kit_plugin.so", file, node, other) > 0);
    close(file);
    expect_other_kit(path, version);
    unlink(path);
}

static void expect_rejected(const char *path, const char *reason) {
    char expected[512];
    snprintf(expected, sizeof expected, "device plug-in '%s' (incomplete) %s", path, reason);
    assert_int_equal(tu_device_load(path), TU_INVALID);
    assert_string_equal(tu_message(), expected);
}

/* Lists need queues. */
static void plugins_with_an_incomplete_table_are_rejected(void **unused) {
    (void)unused;
    static const char *const groups[][2] = {{TEST_PLUGIN_FOLDER "/without_wait.so", "queues"},
                                            {TEST_PLUGIN_FOLDER "/without_build_collective.so", "peers"},
                                            {TEST_PLUGIN_FOLDER "/without_submit.so", "lists"},
                                            {TEST_PLUGIN_FOLDER "/without_queue_new.so", "queues"}};
    expect_rejected(TEST_PLUGIN_FOLDER "/without_launch.so", "does not define all mandatory functions");
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        char reason[128];
        snprintf(reason, sizeof reason, "defines some functions of the group '%s', but not all of them",
                 groups[i][1]);
        expect_rejected(groups[i][0], reason);
    }
    tu_device_info info = TU_SIZED(tu_device_info);
    for (size_t i = 0, count = tu_device_count(); i < count && tu_device(i, &info) == TU_OK; i++)
        assert_string_not_equal(info.kind, "incomplete");
}

/* Invalid device lists, each with text that the message must contain. */
static void invalid_device_lists_are_rejected(void **unused) {
    (void)unused;
    static const char *const rows[][2] = {
        {"gpu9:0", "gpu9:0"}, {"cpu:77", "cpu:77"},   {"cpu:0/0", "expected KIND"}, {"cpu:0.5/2", "KIND"},
        {"cpu:x", "KIND"},    {"ref,,ref", "commas"}, {"ref:0,ref:0", "twice"},     {"null:3-1", "expected"}};
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_fill(g, TU_F32, TU_SHAPE(2), 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tu_program *p;
        assert_int_not_equal(tu_compile(g, &p, .devices = rows[i][0], .fetch = &x, .fetch_count = 1), TU_OK);
        if (!strstr(tu_message(), rows[i][1])) fail_msg("'%s' gives: %s", rows[i][0], tu_message());
    }
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plugin_trains_like_the_reference_device),
        cmocka_unit_test(a_plugin_works_in_a_program_with_other_devices),
        cmocka_unit_test(plugins_are_listed_as_devices),
        cmocka_unit_test(plugins_for_another_abi_are_rejected_with_their_name),
        cmocka_unit_test(older_plugins_with_a_shorter_table_are_accepted),
        cmocka_unit_test(a_plugin_with_the_kit_works),
        cmocka_unit_test(a_plugin_with_the_kit_of_another_version_is_rejected),
        cmocka_unit_test(a_plugin_that_needs_functions_of_another_version_is_rejected),
        cmocka_unit_test(plugins_with_an_incomplete_table_are_rejected),
        cmocka_unit_test(invalid_device_lists_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
