/* Asserts that adding an operation to a graph fails. Each assertion uses a new graph, because a graph keeps only its
 * first error.
 *
 *     tu_value x = first_input(TU_F32, TU_SHAPE(2, 3)), y = next_input(TU_F32, TU_SHAPE(4));
 *     assert_graph_error(tu_matmul(x, y), "matmul", "f32[2,3]", "f32[4]", "at least 2 axes");
 */
#ifndef TESTS_UNIT_GRAPH_ERROR_H
#define TESTS_UNIT_GRAPH_ERROR_H

#include "test.h"

#include <stdio.h>
#include <string.h>

#include <tutti/tutti.h>

static tu_graph *error_graph; /* the graph of the next assertion, which frees it */
static int error_inputs;

/* Adds the input "in1", "in2", … to the graph of first_input(). */
static inline tu_value next_input(tu_dtype dtype, tu_shape shape) {
    char name[16];
    snprintf(name, sizeof name, "in%d", error_inputs++);
    return tu_input(error_graph, name, dtype, shape);
}

/* Creates a new graph and returns its input "in0". */
static inline tu_value first_input(tu_dtype dtype, tu_shape shape) {
    tu_graph_free(error_graph);
    assert_int_equal(tu_graph_new(&error_graph), TU_OK);
    error_inputs = 0;
    return next_input(dtype, shape);
}

/* Asserts that the value is invalid, that the graph's status is TU_INVALID, that the message contains every part, and
 * that the value can be used as an operand without a crash. Then frees the graph. */
static inline void assert_graph_error_parts(tu_value value, const char *const *parts) {
    assert_false(tu_ok(value));
    assert_int_equal(tu_graph_status(error_graph), TU_INVALID);
    for (; *parts; parts++)
        if (!strstr(tu_message(), *parts)) fail_msg("\"%s\" does not contain \"%s\"", tu_message(), *parts);
    assert_false(tu_ok(tu_neg(value)));
    tu_graph_free(error_graph);
    error_graph = NULL;
}
#define assert_graph_error(value, ...)                                                                       \
    assert_graph_error_parts(value, (const char *const[]){__VA_ARGS__, NULL})

#endif
