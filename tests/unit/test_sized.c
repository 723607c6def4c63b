/* Structures that the library fills are those of the caller's version: a shorter one is filled as far as it goes, a
 * longer one is zero where the library knows nothing, and one without a size is rejected. Lists are walked by their
 * count, which leaves tu_message() alone. */
#include <stddef.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/sized.h"
#include "test.h"

/* A structure as it was, as it is and as it may become. */
typedef struct thing_before {
    size_t struct_size;
    int64_t first;
} thing_before;
typedef struct thing {
    size_t struct_size;
    int64_t first, second;
} thing;
typedef struct thing_after {
    size_t struct_size;
    int64_t first, second, third;
} thing_after;

static const thing full = {.first = 1, .second = 2};

static void a_shorter_structure_is_filled_to_its_end(void **state) {
    (void)state;
    struct {
        thing_before thing;
        int64_t behind;
    } old = {{.struct_size = sizeof old.thing}, 77};
    assert_int_equal(tu__check_sized(&old.thing, "thing"), TU_OK);
    tu__give_sized(&old.thing, &full, sizeof full);
    assert_int_equal(old.thing.struct_size, sizeof old.thing);
    assert_int_equal(old.thing.first, 1);
    assert_int_equal(old.behind, 77);
    tu__clear_sized(&old.thing);
    assert_int_equal(old.thing.first, 0);
    assert_int_equal(old.behind, 77);
}

static void fields_that_only_the_caller_has_become_zero(void **state) {
    (void)state;
    thing_after later = {.struct_size = sizeof later, .first = 9, .second = 9, .third = 9};
    tu__give_sized(&later, &full, sizeof full);
    assert_int_equal(later.struct_size, sizeof later);
    assert_true(later.first == 1 && later.second == 2 && later.third == 0);
}

static void a_structure_without_its_size_is_rejected_with_what_to_do(void **state) {
    (void)state;
    tu_device_info info;
    memset(&info, 0xa5, sizeof info); /* as memory that was not initialised */
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

static void training_checks_its_result_before_it_begins(void **state) {
    (void)state;
    tu_train_result result;
    memset(&result, 0, sizeof result);
    assert_int_equal(tu_train("mlp", "no such set", &result), TU_INVALID);
    assert_non_null(strstr(tu_message(), "a tu_train_result has struct_size 0"));
}

/* ---- Counts ---- */

static void expect_message(const char *text) {
    assert_string_equal(tu_message(), text);
}

static void walking_a_list_leaves_the_message_alone(void **state) {
    (void)state;
    tu_graph *g;
    tu_program *program;
    tu_state *variables;
    tu_model_graph net = TU_SIZED(tu_model_graph);
    assert_int_equal(tu_graph_new(&g), TU_OK);
    assert_int_equal(tu_model_build(g, "mlp", &net, .batch = 2), TU_OK);
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
    count = tu_model_count();
    for (size_t i = 0; i < count; i++) assert_int_equal(tu_model(i, &name, &summary), TU_OK);
    count = tu_train_recipe_count();
    assert_int_equal(count, 3);
    for (size_t i = 0; i < count; i++) assert_int_equal(tu_train_recipe(i, &name, &summary), TU_OK);
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
    assert_int_equal(tu_program_copy_count(program), 0); /* one device computes all of it */
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
        cmocka_unit_test(a_structure_without_its_size_is_rejected_with_what_to_do),
        cmocka_unit_test(training_checks_its_result_before_it_begins),
        cmocka_unit_test(walking_a_list_leaves_the_message_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
