/* Tests that files of older versions, which use other names for some attributes and variables, can still be read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <tutti/tutti.h>

/* TEST_DATA is the path of tests/data, defined by CMake. older_run is a run folder after 6 of 12 steps. */

static void graph_files_with_the_old_attribute_name_of_all_reduce_can_be_read(void **state) {
    (void)state;
    tu_graph *graph;
    if (tu_graph_load(TEST_DATA "/older_all_reduce.graph", &graph) != TU_OK) fail_msg("%s", tu_message());
    assert_int_equal(tu_graph_verify(graph), TU_OK);
    int collectives = 0;
    for (uint32_t node = 0; node < tu_node_count(graph); node++) {
        int64_t collective;
        if (strcmp(tu_node_operation(graph, node), "all_reduce") != 0) continue;
        assert_int_equal(tu_node_attribute(graph, node, "collective", 1, &collective), TU_OK);
        assert_int_not_equal(tu_node_attribute(graph, node, "meeting", 1, &collective), TU_OK);
        if (collective > 0) collectives++;
    }
    assert_true(collectives > 0);
    tu_graph_free(graph);
}

static void checkpoints_with_the_old_name_of_optimizer_healthy_can_be_loaded(void **state) {
    (void)state;
    tu_graph *graph;
    tu_state *variables;
    bool healthy = false;
    assert_int_equal(tu_graph_new(&graph), TU_OK);
    tu_scope(graph, "optimizer") tu_variable(graph, "healthy", TU_BOOL, TU_SCALAR, .frozen = true);
    assert_int_equal(tu_state_new(graph, &variables), TU_OK);
    if (tu_state_load(variables, TEST_DATA "/older_run/checkpoints/step-6.safetensors") != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_get(variables, "optimizer/healthy", &healthy, sizeof healthy), TU_OK);
    assert_true(healthy);
    tu_state_free(variables);
    tu_graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graph_files_with_the_old_attribute_name_of_all_reduce_can_be_read),
        cmocka_unit_test(checkpoints_with_the_old_name_of_optimizer_healthy_can_be_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
