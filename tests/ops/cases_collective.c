/* Cases of collectives with a single rank, which return their input. Buffers, order and memory are handled as with
 * several ranks, which tests/unit/test_all_reduce.c and test_collective_programs.c cover. */
#include "graph/graph.h"
#include "ops/cases.h"

static tu_value collective_of_one_rank(tu__opcode op, tu_value operand, int64_t collective) {
    /* The attributes of the other operations are the first of these. */
    struct tu__collective_broadcast_attrs attrs = {.collective = collective, .rank = 0, .ranks = 1};
    return tu__make(operand.graph,
                    &(tu__node_request){.op = op, .attrs = &attrs, .inputs = &operand, .input_count = 1});
}

static void add_collectives(case_run *c, tu__opcode op) {
    tu_value x = case_input(c, case_shape(c, case_size(c, 1, 3), 1, 9), -2, 2), y = tu_square(x);
    tu_value result = collective_of_one_rank(op, case_pick(c, "of_an_input", 2) ? x : y, 0);
    switch (case_pick(c, "read", 4)) {
    case 0: case_output(c, result); break;
    case 1: case_output(c, tu_add(result, y)); break;
    case 2:
        case_output(c, collective_of_one_rank(op, y, 0)); /* two values in one collective */
        case_output(c, tu_neg(result));
        break;
    default:
        case_output(c, tu_neg(collective_of_one_rank(op, result, 1)));
        break; /* the result of one collective is an operand of another */
    }
}

OP_CASE(all_reduce, CASE_NO_GRADIENT) {
    add_collectives(c, TU__OP_ALL_REDUCE);
}

OP_CASE(reduce_scatter, CASE_NO_GRADIENT) {
    add_collectives(c, TU__OP_REDUCE_SCATTER);
}

OP_CASE(all_gather, CASE_NO_GRADIENT) {
    add_collectives(c, TU__OP_ALL_GATHER);
}

OP_CASE(collective_broadcast, CASE_NO_GRADIENT) {
    add_collectives(c, TU__OP_COLLECTIVE_BROADCAST);
}

OP_CASE(collective_reduce, CASE_NO_GRADIENT) {
    add_collectives(c, TU__OP_COLLECTIVE_REDUCE);
}
