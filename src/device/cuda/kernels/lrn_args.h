/* What the kernels of local response normalisation are told. x, dy, y and dx are [rows, channels]. */
typedef struct lrn_args {
    const void *x, *dy;
    void *to;    /* y or dx */
    void *terms; /* lrn_terms writes them, lrn_grad_any reads them: [rows, channels], in the computing type */
    void *sums;  /* one row a block: sums of dx over its rows */
    long long rows;
    divider channels;
    divider lanes; /* threads of a row: 8 channels each */
    int rows_a_warp, rows_a_block;
    int radius;
    double bias, alpha, beta, twice_alpha_beta;
} lrn_args;
