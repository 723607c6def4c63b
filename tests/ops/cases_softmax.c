/* Cases of softmax and cross-entropy. */
#include "graph/graph.h"
#include "ops/cases.h"

OP_CASE(softmax, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 1, 4), 1, 5);
    int axis = (int)case_size(c, 0, shape.rank - 1) - (case_pick(c, "from_end", 2) ? (int)shape.rank : 0);
    tu_value x = case_input(c, shape, -3, 3);
    case_output(c, case_pick(c, "logarithm", 2) ? tu_log_softmax(x, axis) : tu_softmax(x, axis));
}

OP_CASE(cross_entropy_sparse, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 1, 3), 1, 5);
    int64_t classes = shape.dim[shape.rank - 1];
    tu_shape rows = tu_shape_of((size_t)shape.rank - 1, shape.dim);
    int out_of_range = case_pick(c, "out_of_range", 2); /* out-of-range class indices mask their rows */
    tu_value logits = case_input(c, shape, -3, 3);
    tu_value labels = case_integers(c, case_pick(c, "i64", 2) ? TU_I64 : TU_I32, rows, -out_of_range,
                                    classes + out_of_range);
    case_output(c, tu_cross_entropy(logits, labels, .smoothing = case_pick(c, "smoothing", 2) ? 0.2 : 0));
}

OP_CASE(cross_entropy_dense, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 1, 3), 1, 5);
    tu_value logits = case_input(c, shape, -3, 3), labels = case_input(c, shape, 0.1, 0.9);
    case_output(c, tu_cross_entropy(logits, labels, .smoothing = case_pick(c, "smoothing", 2) ? 0.2 : 0));
}

OP_CASE(cross_entropy_grad, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 1, 3), 1, 5);
    int64_t classes = shape.dim[shape.rank - 1];
    tu_shape rows = tu_shape_of((size_t)shape.rank - 1, shape.dim);
    int out_of_range = case_pick(c, "out_of_range", 2);
    tu_value logits = case_input(c, shape, -3, 3), gradient;
    tu_value labels = case_integers(c, case_pick(c, "i64", 2) ? TU_I64 : TU_I32, rows, -out_of_range,
                                    classes + out_of_range);
    if (case_pick(c, "with_loss", 2)) {
        tu_value losses = tu_cross_entropy(logits, labels);
        tu_gradients(tu_sum(tu_square(losses)), 1, &logits, &gradient);
        case_output(c, losses);
    } else {
        gradient = tu__apply(CROSS_ENTROPY_GRAD, NULL, logits, labels);
    }
    case_output(c, gradient);
}
