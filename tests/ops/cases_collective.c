/* Cases of what devices make together. One device alone is a group of one rank, whose sum is its share: everything around it,
 * buffers, order and memory, is the same for more (tests/unit/test_collectives.c). */
#include "graph/graph.h"
#include "ops/cases.h"

static tu_value meet_alone(tu_value share, int64_t collective) {
    struct tu__all_reduce_attrs attrs = {.collective = collective, .rank = 0, .ranks = 1};
    return tu__make(
        share.graph,
        &(tu__node_request){.op = TU__OP_ALL_REDUCE, .attrs = &attrs, .inputs = &share, .input_count = 1});
}

OP_CASE(all_reduce, CASE_NO_GRADIENT) {
    tu_value x = case_input(c, case_shape(c, case_size(c, 1, 3), 1, 9), -2, 2), y = tu_square(x);
    tu_value sum = case_pick(c, "of_an_input", 2) ? meet_alone(x, 0) : meet_alone(y, 0);
    switch (case_pick(c, "read", 4)) {
    case 0: case_output(c, sum); break;
    case 1: case_output(c, tu_add(sum, y)); break;
    case 2:
        case_output(c, meet_alone(y, 0)); /* two values in one collective */
        case_output(c, tu_neg(sum));
        break;
    default:
        case_output(c, tu_neg(meet_alone(sum, 1)));
        break; /* what comes from one collective goes to another */
    }
}
