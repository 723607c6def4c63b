/* Cases of tu_roll(): positive and negative shifts, and shifts larger than the axis. */
#include "ops/cases.h"

OP_CASE(roll, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 1, 4), 1, 5);
    int axis = (int)case_size(c, 0, shape.rank - 1) - (case_pick(c, "from_end", 2) ? (int)shape.rank : 0);
    static const int64_t shifts[] = {0, 1, -1, 3, -7};
    tu_value x = case_input(c, shape, -2, 2);
    case_output(c, tu_square(tu_roll(x, axis, shifts[case_pick(c, "shift", 5)])));
}
