/* Arguments of conv_nan.cu, set by conv_gemm.c. */

typedef struct conv_nan_args {
    const void *x, *filter;
    const void *bias, *residual; /* NULL: none */
    const int *residual_notes;   /* one per tile of the residual, 0: it has no NaN; NULL: unknown */
    void *y;
    int *notes; /* one per tile of y */
    long long rows;
    int depth, columns; /* channels of x, of y; divisible by 8 */
} conv_nan_args;
