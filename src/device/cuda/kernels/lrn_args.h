/* Arguments of the kernels of local response normalisation. x, dy, y and dx are [rows, channels]. */
typedef struct lrn_args {
    const void *x, *dy;
    void *to;    /* y or dx */
    void *terms; /* written by lrn_terms, read by lrn_grad_generic: [rows, channels], in the compute type */
    void *sums;  /* per block and channel: sum of dx over the rows of the block */
    long long rows; /* of one network, if networks are summed one by one */
    fast_divmod channels;
    fast_divmod lanes; /* threads per row: 8 channels each */
    int rows_per_warp, rows_per_block;
    int radius;
    double bias, alpha, beta, twice_alpha_beta;
} lrn_args;
