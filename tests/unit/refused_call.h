/* For long lists of mistakes: each one a line, with operands written where they are used.
 *
 *     REFUSED(tu_avg_pool(TENSOR(TU_U8, 2, 5, 5, 3)), "avg_pool", "u8[2,5,5,3]", "tu_cast");
 *
 * The call is made on a new graph, which it can name as g; see refusal.h for what is then asserted.
 */
#ifndef TESTS_UNIT_REFUSED_CALL_H
#define TESTS_UNIT_REFUSED_CALL_H

#include "unit/refusal.h"

/* The input "x" of the graph g with these dimensions. */
#define TENSOR(dtype, ...) tu_input(g, "x", dtype, TU_SHAPE(__VA_ARGS__))

#define REFUSED(call, ...)                                                                                   \
    do {                                                                                                     \
        tu_graph *g;                                                                                         \
        assert_int_equal(tu_graph_new(&g), TU_OK);                                                           \
        refusal_graph = g;                                                                                   \
        assert_refused(call, __VA_ARGS__);                                                                   \
    } while (0)

#endif
