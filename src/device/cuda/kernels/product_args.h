/* Arguments of kernels/product.cuh and product.cu: matrices of a batch, with rows and matrices at any distance. */
typedef struct product_args {
    const float *a, *b;
    long long a_row_stride, b_row_stride, a_batch_stride, b_batch_stride; /* multiples of 4 */
    int m, n, k; /* the contiguous axes of a and b: multiples of 4 */
} product_args;

/* y [batch, m, n]; n: a multiple of 2. */
typedef struct product_result_args {
    product_args product;
    float *y;
    const float *bias; /* [n] for each matrix; NULL: none */
    long long bias_batch_stride;
    int relu;
} product_result_args;
