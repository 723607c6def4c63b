/* REFUSED(call, parts...) asserts in one line that a call fails with a message that contains all parts.
 *
 *     REFUSED(tu_avg_pool(TENSOR(TU_U8, 2, 5, 5, 3)), "avg_pool", "u8[2,5,5,3]", "tu_cast");
 *
 * The macro declares `g`, a new graph, which the call uses. refusal.h lists the assertions.
 */
#ifndef TESTS_UNIT_REFUSED_CALL_H
#define TESTS_UNIT_REFUSED_CALL_H

#include "unit/refusal.h"

/* The input "x" of the graph `g`, which REFUSED declares, with these dimensions. */
#define TENSOR(dtype, ...) tu_input(g, "x", dtype, TU_SHAPE(__VA_ARGS__))

#define REFUSED(call, ...)                                                                                   \
    do {                                                                                                     \
        tu_graph *g;                                                                                         \
        assert_int_equal(tu_graph_new(&g), TU_OK);                                                           \
        refusal_graph = g;                                                                                   \
        assert_refused(call, __VA_ARGS__);                                                                   \
    } while (0)

#endif
