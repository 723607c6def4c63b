/* Cases of collectives with a single rank, whose all-reduce returns its input. Buffers, order and memory are
 * handled as with several ranks, which tests/unit/test_collectives.c covers. */
#include "graph/graph.h"
#include "ops/cases.h"

static tu_value all_reduce_one_rank(tu_value operand, int64_t collective) {
    struct tu__all_reduce_attrs attrs = {.collective = collective, .rank = 0, .ranks = 1};
    return tu__make(
        operand.graph,
        &(tu__node_request){.op = TU__OP_ALL_REDUCE, .attrs = &attrs, .inputs = &operand, .input_count = 1});
}

OP_CASE(all_reduce, CASE_NO_GRADIENT) {
    tu_value x = case_input(c, case_shape(c, case_size(c, 1, 3), 1, 9), -2, 2), y = tu_square(x);
    tu_value sum = case_pick(c, "of_an_input", 2) ? all_reduce_one_rank(x, 0) : all_reduce_one_rank(y, 0);
    switch (case_pick(c, "read", 4)) {
    case 0: case_output(c, sum); break;
    case 1: case_output(c, tu_add(sum, y)); break;
    case 2:
        case_output(c, all_reduce_one_rank(y, 0)); /* two values in one collective */
        case_output(c, tu_neg(sum));
        break;
    default:
        case_output(c, tu_neg(all_reduce_one_rank(sum, 1)));
        break; /* the result of one collective is an operand of another */
    }
}
