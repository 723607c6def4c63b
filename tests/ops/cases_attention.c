/* Cases of attention. */
#include "ops/cases.h"

OP_CASE(attention, CASE_ALL_CHECKS) {
    tu_shape shape =
        TU_SHAPE(case_size(c, 1, 2), case_size(c, 1, 5), 3, case_size(c, 1, 2), case_size(c, 1, 4));
    tu_value x = case_input(c, shape, -1, 1);
    tu_value y =
        tu_attention(x, .causal = case_pick(c, "causal", 2), .scale = case_pick(c, "scale", 2) ? 0.75 : 0);
    case_output(c, y);
    if (case_pick(c, "logarithms", 2)) case_output(c, tu_output_of(y, 1));
}

/* Widths for tensor cores, and several blocks of positions. Second derivatives: the case above has them. */
OP_CASE(attention_of_blocks, CASE_NO_SECOND) {
    static const int64_t widths[] = {16, 32, 64, 80, 128}, times[] = {1, 33, 64, 70, 129};
    int64_t width = widths[case_pick(c, "width", 5)], time = times[case_pick(c, "time", 5)];
    tu_value x = case_input(c, TU_SHAPE(1, time, 3, time > 64 || width > 64 ? 1 : 2, width), -1, 1);
    tu_value y = tu_attention(x, .causal = case_pick(c, "causal", 2));
    case_output(c, y);
    case_output(c, tu_output_of(y, 1));
}
