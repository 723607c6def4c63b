/* What matmul.c hands to kernels/gemm.cu. */

/* out[b][i, j] = sum over p of a[b][i, p] b[b][p, j]; distances in elements. */
typedef struct product_args {
    const void *a, *b;
    void *out;
    long long m, n, k, batch;
    long long a_row, a_column, a_step, b_row, b_column, b_step;
} product_args;
