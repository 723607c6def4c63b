/* Arguments of kernels/gemm.cu, set by matmul.c. */

/* out[b][i, j] = sum over p of a[b][i, p] b[b][p, j]; strides in elements. */
typedef struct matmul_args {
    const void *a, *b;
    void *out;
    long long m, n, k, batch;
    long long a_row_stride, a_column_stride, a_batch_stride, b_row_stride, b_column_stride, b_batch_stride;
} matmul_args;
