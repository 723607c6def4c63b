/* Cases of normalisation. */
#include "ops/cases.h"

OP_CASE(batch_norm, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 2, 4), 1, 4);
    shape.dim[0] += 2; /* the variance of a single element is zero */
    tu_shape channels = TU_SHAPE(shape.dim[shape.rank - 1]);
    tu_value x = case_input(c, shape, -2, 2);
    tu_value gamma = case_input(c, channels, 0.5, 1.5), beta = case_input(c, channels, -1, 1);
    tu_batch_scope scope = (tu_batch_scope)case_pick(c, "scope", 3);
    tu_value y = tu_batch_normalize(x, gamma, beta, .epsilon = case_pick(c, "epsilon", 2) ? 0.1 : 0.01,
                                    .scope = scope);
    case_output(c, y);
    if (case_pick(c, "statistics", 2)) { /* outputs 1 and 2 are the statistics */
        case_output(c, tu_output_of(y, 1));
        case_output(c, tu_output_of(y, 2));
    }
}

OP_CASE(layer_norm, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 2, 4), 1, 4);
    shape.dim[shape.rank - 1] += 2;
    int64_t axes = 1 + case_pick(c, "axes", 2);
    tu_shape trailing = tu_shape_of((size_t)axes, shape.dim + shape.rank - axes);
    tu_value x = case_input(c, shape, -2, 2);
    tu_value gamma = case_input(c, trailing, 0.5, 1.5), beta = case_input(c, trailing, -1, 1);
    tu_value y =
        tu_layer_normalize(x, gamma, beta, .epsilon = case_pick(c, "epsilon", 2) ? 0.1 : 0.01, .axes = axes);
    case_output(c, y);
    if (case_pick(c, "statistics", 2)) {
        case_output(c, tu_output_of(y, 1));
        case_output(c, tu_output_of(y, 2));
    }
}

OP_CASE(lrn, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 1, 4), 1, 3);
    shape.dim[shape.rank - 1] = case_size(c, 1, 9);
    static const int64_t radii[] = {1, 2, 4, 20};
    tu_value x = case_input(c, shape, -2, 2);
    case_output(c,
                tu_lrn(x, .radius = radii[case_pick(c, "radius", 4)], .bias = case_pick(c, "bias", 2) ? 2 : 1,
                       .alpha = case_pick(c, "alpha", 2) ? 0.1 : 0.01,
                       .beta = case_pick(c, "beta", 2) ? 0.5 : 0.75));
}
