/* Tests of the default strategy. */
#include <string.h>

#include <tutti/device.h>

#include "test.h"
#include <tutti/command.h>

static void several_devices_of_one_kind_are_mirrored(void **state) {
    (void)state;
    static const char *const lists[] = {
        "cpu:0/2", "gpu:0-3", "gpu:0,gpu:1", "gpu:0/4", "cpu:0.0/2,cpu:0.1/2", "gpu:0-1/2"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        assert_string_equal(tu_default_strategy(lists[i], false, false), "mirrored");
}

static void one_device_is_single(void **state) {
    (void)state;
    static const char *const lists[] = {"cpu",     "cpu:0",     "gpu:1",     "cpu:0/1",
                                        "gpu:2-2", "cpu:0.1/2", "cpu:0.1/2,"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        assert_string_equal(tu_default_strategy(lists[i], false, false), "single");
}

static void devices_of_several_kinds_are_single(void **state) {
    (void)state;
    assert_string_equal(tu_default_strategy("gpu:0,cpu:0", false, false), "single");
    assert_string_equal(tu_default_strategy("cpu:0/2,ref:0", false, false), "single");
}

static void explicit_placement_is_single(void **state) {
    (void)state;
    assert_string_equal(tu_default_strategy("cpu:0/2", true, false), "single");
}

static void invariant_is_mirrored(void **state) {
    (void)state;
    assert_string_equal(tu_default_strategy("cpu:0", false, true), "mirrored");
}

static void all_means_all_gpus(void **state) {
    (void)state;
    tu_device_info info = TU_SIZED(tu_device_info);
    int gpus = 0;
    for (size_t i = 0, count = tu_device_count(); i < count && tu_device(i, &info) == TU_OK; i++)
        gpus += !info.unusable && strcmp(info.kind, "gpu") == 0;
    const char *expected = gpus > 1 ? "mirrored" : "single";
    assert_string_equal(tu_default_strategy("all", false, false), expected);
    assert_string_equal(tu_default_strategy(NULL, false, false), expected);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_devices_of_one_kind_are_mirrored),
        cmocka_unit_test(one_device_is_single),
        cmocka_unit_test(devices_of_several_kinds_are_single),
        cmocka_unit_test(explicit_placement_is_single),
        cmocka_unit_test(invariant_is_mirrored),
        cmocka_unit_test(all_means_all_gpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
