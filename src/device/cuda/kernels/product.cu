/* Products of the layers of a stack in tf32, with bias and relu: y = a b for a [m, k] and b [k, n], or b [n, k] if B_ALONG is
 * false. A block has 128 x 64 results: half a library's tile, for layers with too few of those to fill the GPU. */
#include "product.cuh"

enum { RESULT_ROWS = 128, RESULT_COLUMNS = 64 };

/* Blocks: x: columns, y: rows, z: batch. */
template <bool B_ALONG> __global__ void __launch_bounds__(THREADS, 2) product(product_result_args r) {
    typedef block_product<RESULT_ROWS, RESULT_COLUMNS, 4, 4, false, B_ALONG> block;
    extern __shared__ u32 shared[];
    int first_row = (int)blockIdx.y * RESULT_ROWS, first_column = (int)blockIdx.x * RESULT_COLUMNS;
    const float *bias = r.bias ? r.bias + (i64)blockIdx.z * r.bias_batch_stride : nullptr;
    float *y = r.y + (i64)blockIdx.z * r.product.m * r.product.n;
    typename block::sums sum = {};
    block::run(r.product, first_row, first_column, shared, sum);
    block::for_each_pair(sum, [&](int row, int column, pack<float, 2> two) {
        row += first_row, column += first_column;
        if (row >= r.product.m || column >= r.product.n) return;
        for (int e = 0; e < 2; e++) {
            float x = bias ? two.element[e] + bias[column + e] : two.element[e];
            two.element[e] = r.relu && x <= 0 ? 0.0f : x;
        }
        *(pack<float, 2> *)(y + (i64)row * r.product.n + column) = two;
    });
}
