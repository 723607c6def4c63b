/* Planning takes time in proportion to the graph: a chain of 200,000 operations is compiled well within the time limit of a
 * test, and needs the memory of two values. */
#include <stdio.h>

#include <tutti/tutti.h>

#include "test.h"

static void a_long_chain_is_planned(void **state) {
    (void)state;
    enum { LENGTH = 200000 };
    tu_graph *g;
    tu_program *program;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(4, 8));
    for (int i = 0; i < LENGTH; i++) x = tu_cumsum(x, 0);
    assert_int_equal(tu_compile(g, &program, .devices = "cpu:0", .fetch = &x, .fetch_count = 1, .threads = 1),
                     TU_OK);
    tu_memory_report memory = TU_SIZED(tu_memory_report);
    assert_int_equal(tu_program_memory(program, 0, &memory), TU_OK);
    assert_true(memory.scratch_bytes > 0 && memory.scratch_bytes <= 4096);
    tu_program_free(program);
    tu_graph_free(g);
}

/* Assignments of 100,000 variables, each of which is checked for being the only one. */
static void many_variables_are_assigned(void **state) {
    (void)state;
    enum { VARIABLES = 100000 };
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value first = {0};
    for (int i = 0; i < VARIABLES; i++) {
        char name[16];
        snprintf(name, sizeof name, "v%d", i);
        tu_value v = tu_variable(g, name, TU_F32, TU_SHAPE(2));
        tu_assign(v, tu_relu(v));
        if (i == 0) first = v;
    }
    assert_int_equal(tu_graph_status(g), TU_OK);
    assert_false(tu_ok(tu_assign(first, tu_relu(first))));
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_chain_is_planned),
        cmocka_unit_test(many_variables_are_assigned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
