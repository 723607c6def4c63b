/* Evaluates graphs of constants on the reference device, for tests of operations.
 *
 *     tu_value x = counting_constant(new_graph(), TU_F32, TU_SHAPE(2, 3));              // 0 1 2 / 3 4 5
 *     assert_computes(tu_transpose(x, 1, 0), TU_SHAPE(3, 2), 0, 3, 1, 4, 2, 5);
 */
#ifndef TESTS_UNIT_EVALUATE_H
#define TESTS_UNIT_EVALUATE_H

#include "test.h"

#include <math.h>
#include <stdlib.h>

#include <tutti/tutti.h>

#include "base/number.h"

static tu_graph *evaluate_graph;

/* Returns a new graph and frees the previous one. */
static inline tu_graph *new_graph(void) {
    tu_graph_free(evaluate_graph);
    assert_int_equal(tu_graph_new(&evaluate_graph), TU_OK);
    return evaluate_graph;
}

/* Group teardown for cmocka. */
static inline int free_last_graph(void **state) {
    (void)state;
    tu_graph_free(evaluate_graph);
    evaluate_graph = NULL;
    return 0;
}

/* Returns a constant of any dtype with the given elements. */
static inline tu_value constant_of(tu_graph *graph, tu_dtype dtype, tu_shape shape, const double *list) {
    void *data = malloc(tu_type_bytes((tu_type){dtype, shape}));
    assert_non_null(data);
    tu__store_array(dtype, list, tu_shape_elements(shape), data);
    tu_value value = tu_constant(graph, dtype, shape, data);
    free(data);
    return value;
}

/* Returns a constant with the elements 0, 1, 2, … */
static inline tu_value counting_constant(tu_graph *graph, tu_dtype dtype, tu_shape shape) {
    int64_t count = tu_shape_elements(shape);
    double *list = malloc((size_t)count * sizeof *list);
    assert_non_null(list);
    for (int64_t i = 0; i < count; i++) list[i] = (double)i;
    tu_value value = constant_of(graph, dtype, shape, list);
    free(list);
    return value;
}

/* Computes one value on the reference device. The caller frees the elements. */
static inline double *computed(tu_value value) {
    tu_program *program = NULL;
    tu_state *state = NULL;
    tu_type type = tu_value_type(value);
    if (tu_compile(value.graph, &program, .devices = "ref", .fetch = &value, .fetch_count = 1) != TU_OK)
        fail_msg("%s", tu_message());
    void *data = malloc(tu_type_bytes(type));
    double *list = malloc((size_t)tu_shape_elements(type.shape) * sizeof *list);
    assert_true(data && list && tu_state_new(value.graph, &state) == TU_OK);
    if (tu_run(program, state, 0, NULL, &data) != TU_OK) fail_msg("%s", tu_message());
    tu__load_array(type.dtype, data, tu_shape_elements(type.shape), list);
    free(data);
    tu_program_free(program);
    tu_state_free(state);
    return list;
}

/* Asserts that the value has this shape and the elements of the array, up to `tolerance`. */
static inline void assert_computes_array(tu_value value, tu_shape shape, size_t count, const double *expected,
                                         double tolerance) {
    if (!tu_ok(value)) {
        tu_graph_status(value.graph);
        fail_msg("%s", tu_message());
    }
    assert_true(tu_shape_equal(tu_value_shape(value), shape));
    assert_int_equal(tu_shape_elements(shape), count);
    double *got = computed(value);
    for (size_t i = 0; i < count; i++)
        if (!(fabs(got[i] - expected[i]) <= tolerance))
            fail_msg("'%s': element %zu is %.17g, expected %.17g", tu_value_name(value), i, got[i],
                     expected[i]);
    free(got);
}
/* The same for elements given as arguments; without a tolerance they must be equal. */
#define assert_computes(value, shape, ...) assert_computes_within(0, value, shape, __VA_ARGS__)
#define assert_computes_within(tolerance, value, shape, ...)                                                 \
    assert_computes_array(value, shape, sizeof((double[]){__VA_ARGS__}) / sizeof(double),                    \
                          (const double[]){__VA_ARGS__}, tolerance)

#endif
