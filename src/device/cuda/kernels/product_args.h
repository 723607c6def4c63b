/* Arguments of kernels/product.cuh: a [batch, k, m] and b [batch, k, n], with rows and matrices at any distance. */
typedef struct product_args {
    const float *a, *b;
    long long a_row_stride, b_row_stride, a_batch_stride, b_batch_stride; /* multiples of 4 */
    int m, n, k;                                                          /* m and n: multiples of 4 */
} product_args;
