/* EXPECT_ERROR(call, parts...) asserts in one line that a call fails with a message that contains all parts.
 *
 *     EXPECT_ERROR(tu_avg_pool(TENSOR(TU_U8, 2, 5, 5, 3)), "avg_pool", "u8[2,5,5,3]", "tu_cast");
 *
 * The macro declares `g`, a new graph, which the call uses. assert_graph_error (graph_error.h) makes the checks and
 * frees the graph.
 */
#ifndef TESTS_UNIT_EXPECT_ERROR_H
#define TESTS_UNIT_EXPECT_ERROR_H

#include "unit/graph_error.h"

/* The input "x" of the graph `g`, which EXPECT_ERROR declares, with these dimensions. */
#define TENSOR(dtype, ...) tu_input(g, "x", dtype, TU_SHAPE(__VA_ARGS__))

#define EXPECT_ERROR(call, ...)                                                                              \
    do {                                                                                                     \
        tu_graph *g;                                                                                         \
        assert_int_equal(tu_graph_new(&g), TU_OK);                                                           \
        error_graph = g; /* assert_graph_error reads and frees it */                                         \
        assert_graph_error(call, __VA_ARGS__);                                                               \
    } while (0)

#endif
