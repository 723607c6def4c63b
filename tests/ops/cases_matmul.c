/* Cases of matmul. */
#include "ops/cases.h"

/* Appends the two axes of a matrix to `batch`, exchanged if `transposed`. */
static tu_shape matrix_shape(tu_shape batch, int64_t rows, int64_t columns, bool transposed) {
    batch.dim[batch.rank++] = transposed ? columns : rows;
    batch.dim[batch.rank++] = transposed ? rows : columns;
    return batch;
}

OP_CASE(matmul, CASE_ALL_CHECKS) {
    bool transpose_a = case_pick(c, "transpose_a", 2), transpose_b = case_pick(c, "transpose_b", 2);
    int64_t m = case_size(c, 1, 4), k = case_size(c, 1, 6), n = case_size(c, 1, 4);
    tu_shape batch = case_shape(c, case_size(c, 1, 2), 1, 3), a_batch = {0}, b_batch = {0};
    switch (case_pick(c, "batch", 4)) {
    case 0: break;                            /* two matrices */
    case 1: a_batch = b_batch = batch; break; /* the same batch axes */
    case 2: a_batch = batch; break;           /* a batch of a, one b */
    default: a_batch = case_broadcastable(c, batch); b_batch = case_broadcastable(c, batch);
    }
    tu_value a = case_input(c, matrix_shape(a_batch, m, k, transpose_a), -1, 1);
    tu_value b = case_input(c, matrix_shape(b_batch, k, n, transpose_b), -1, 1);
    case_output(c, tu_matmul(a, b, .transpose_a = transpose_a, .transpose_b = transpose_b));
}

/* Larger than one block of the CPU's kernels, and no multiple of it. Second derivatives are left to the smaller cases:
 * central differences over so many elements are slow. */
OP_CASE(matmul_blocks, CASE_NO_SECOND) {
    bool transpose_a = case_pick(c, "transpose_a", 2), transpose_b = case_pick(c, "transpose_b", 2);
    tu_value a = case_input(c, matrix_shape(TU_SCALAR, 3, 133, transpose_a), -1, 1);
    tu_value b = case_input(c, matrix_shape(TU_SCALAR, 133, 19, transpose_b), -1, 1);
    case_output(c, tu_matmul(a, b, .transpose_a = transpose_a, .transpose_b = transpose_b));
}

/* One value is both operands: its two gradients are added, and the second derivative is not zero. */
OP_CASE(matmul_square, CASE_ALL_CHECKS) {
    int64_t n = case_size(c, 1, 4);
    tu_value x = case_input(c, TU_SHAPE(case_size(c, 1, 3), n, n), -1, 1);
    case_output(c, tu_matmul(x, x, .transpose_a = case_pick(c, "transpose_a", 2),
                             .transpose_b = case_pick(c, "transpose_b", 2)));
}

OP_CASE(matmul_integers, CASE_NO_GRADIENT) {
    static const tu_dtype types[] = {TU_I32, TU_I64, TU_U8, TU_I8};
    tu_dtype dtype = types[case_pick(c, "type", 4)];
    int64_t k = case_size(c, 1, 5);
    tu_value a = case_integers(c, dtype, TU_SHAPE(3, k), 0, 9),
             b = case_integers(c, dtype, TU_SHAPE(k, 2), 0, 9);
    case_output(c, tu_matmul(a, b));
}
