/* Structures with struct_size that the library fills (base/sized.h): a shorter one is filled up to its end, fields that
 * the library does not have become zero, and a structure without its size is rejected. Iterating lists by their counts
 * does not change tu_message(). */
#include <stddef.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/sized.h"
#include "test.h"

/* One structure in an older, the present and a newer version. */
typedef struct thing_v1 {
    size_t struct_size;
    int64_t first;
} thing_v1;
typedef struct thing {
    size_t struct_size;
    int64_t first, second;
} thing;
typedef struct thing_v3 {
    size_t struct_size;
    int64_t first, second, third;
} thing_v3;

static const thing filled = {.first = 1, .second = 2};

static void a_shorter_structure_is_filled_to_its_end(void **state) {
    (void)state;
    struct {
        thing_v1 thing;
        int64_t guard;
    } old = {{.struct_size = sizeof old.thing}, 77};
    assert_int_equal(tu__check_sized(&old.thing, "thing"), TU_OK);
    tu__copy_sized(&old.thing, &filled, sizeof filled);
    assert_int_equal(old.thing.struct_size, sizeof old.thing);
    assert_int_equal(old.thing.first, 1);
    assert_int_equal(old.guard, 77);
    tu__clear_sized(&old.thing);
    assert_int_equal(old.thing.first, 0);
    assert_int_equal(old.guard, 77);
}

static void fields_that_only_the_caller_has_become_zero(void **state) {
    (void)state;
    thing_v3 newer = {.struct_size = sizeof newer, .first = 9, .second = 9, .third = 9};
    tu__copy_sized(&newer, &filled, sizeof filled);
    assert_int_equal(newer.struct_size, sizeof newer);
    assert_true(newer.first == 1 && newer.second == 2 && newer.third == 0);
}

static void the_error_for_a_missing_struct_size_shows_tu_sized(void **state) {
    (void)state;
    tu_device_info info;
    memset(&info, 0xa5, sizeof info); /* like uninitialised memory */
    assert_int_equal(tu_device(0, &info), TU_INVALID);
    assert_non_null(strstr(tu_message(), "expected sizeof(tu_device_info); declare it as "
                                         "'tu_device_info x = TU_SIZED(tu_device_info);'"));
    info.struct_size = 0;
    assert_int_equal(tu_device(0, &info), TU_INVALID);
    info.struct_size = sizeof(size_t);
    assert_int_equal(tu_device(0, &info), TU_INVALID);
    assert_int_equal(tu_device(0, NULL), TU_INVALID);
    info = TU_SIZED(tu_device_info);
    assert_int_equal(tu_device(0, &info), TU_OK);
    assert_string_equal(info.name, "cpu:0");
}

static void training_checks_struct_size_of_its_result_first(void **state) {
    (void)state;
    tu_train_result result;
    memset(&result, 0, sizeof result);
    assert_int_equal(tu_train("mlp", "no such set", &result), TU_INVALID);
    assert_non_null(strstr(tu_message(), "a tu_train_result has struct_size 0"));
}

/* ---- Iterating lists ---- */

static void expect_message(const char *text) {
    assert_string_equal(tu_message(), text);
}

static void iterating_lists_does_not_change_the_message(void **state) {
    (void)state;
    tu_graph *g;
    tu_program *program;
    tu_state *variables;
    tu_network_graph net = TU_SIZED(tu_network_graph);
    assert_int_equal(tu_graph_new(&g), TU_OK);
    assert_int_equal(tu_network_build(g, "mlp", &net, .batch = 2), TU_OK);
    assert_int_equal(tu_compile(g, &program, .devices = "cpu:0/2", .fetch = &net.loss, .fetch_count = 1),
                     TU_OK);
    assert_int_equal(tu_state_new(g, &variables), TU_OK);
    tu_fail(TU_INVALID, "an earlier failure");

    const char *name, *summary;
    tu_type type;
    tu_device_info info = TU_SIZED(tu_device_info);
    size_t count = tu_device_count();
    assert_true(count >= 3); /* cpu, ref, null */
    for (size_t i = 0; i < count; i++) assert_int_equal(tu_device(i, &info), TU_OK);
    expect_message("an earlier failure");
    count = tu_network_count();
    for (size_t i = 0; i < count; i++) assert_int_equal(tu_network(i, &name, &summary), TU_OK);
    count = tu_recipe_count();
    assert_int_equal(count, 3);
    for (size_t i = 0; i < count; i++) assert_int_equal(tu_recipe(i, &name, &summary), TU_OK);
    count = tu_state_variable_count(variables);
    for (size_t i = 0; i < count; i++) assert_int_equal(tu_state_variable(variables, i, &name, &type), TU_OK);
    count = tu_program_device_count(program);
    assert_int_equal(count, 2);
    tu_device_report device = TU_SIZED(tu_device_report);
    tu_memory_report memory = TU_SIZED(tu_memory_report);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(tu_program_device(program, i, &device), TU_OK);
        assert_int_equal(tu_program_memory(program, i, &memory), TU_OK);
    }
    tu_placement placement = TU_SIZED(tu_placement);
    count = tu_program_placement_count(program);
    for (size_t i = 0; i < count; i++) assert_int_equal(tu_program_placement(program, i, &placement), TU_OK);
    tu_kernel_report kernel = TU_SIZED(tu_kernel_report);
    count = tu_program_kernel_count(program);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) assert_int_equal(tu_program_kernel(program, i, &kernel), TU_OK);
    assert_int_equal(tu_program_copy_count(program), 0); /* all operations are on one device */
    assert_int_equal(tu_program_collective_count(program), 0);
    for (uint32_t i = 0; i < tu_node_count(g); i++) assert_non_null(tu_node_operation(g, i));
    expect_message("an earlier failure");

    assert_int_equal(tu_program_kernel(program, count, &kernel), TU_NOT_FOUND);
    assert_int_equal(tu_device(tu_device_count(), &info), TU_NOT_FOUND);
    tu_state_free(variables);
    tu_program_free(program);
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shorter_structure_is_filled_to_its_end),
        cmocka_unit_test(fields_that_only_the_caller_has_become_zero),
        cmocka_unit_test(the_error_for_a_missing_struct_size_shows_tu_sized),
        cmocka_unit_test(training_checks_struct_size_of_its_result_first),
        cmocka_unit_test(iterating_lists_does_not_change_the_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
