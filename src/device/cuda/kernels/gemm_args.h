/* Arguments of kernels/gemm.cu, set by matmul.c. */

/* out[b][i, j] = sum over p of a[b][i, p] b[b][p, j]; strides in elements. */
typedef struct product_args {
    const void *a, *b;
    void *out;
    long long m, n, k, batch;
    long long a_row, a_column, a_step, b_row, b_column, b_step;
} product_args;
