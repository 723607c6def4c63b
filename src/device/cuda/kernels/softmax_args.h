/* Arguments of the kernels in softmax.cu, set by softmax.c and cross_entropy.c. */

/* x and y [rows, n]. */
typedef struct softmax_rows_args {
    const void *x;
    void *y;
    long long rows, n;
    int lanes, logarithm; /* threads per row; 1: log_softmax */
} softmax_rows_args;

/* x and y [outer, n, inner]; a column is one of outer * inner. */
typedef struct softmax_columns_args {
    const void *x;
    void *y;
    long long columns, inner, n;
    int logarithm;
} softmax_columns_args;

/* x [rows, n], labels [rows] or [rows, n], losses [rows] or NULL; gradient [rows, n] of each row's loss, for class
 * indices without smoothing, or NULL. */
typedef struct cross_entropy_args {
    const void *x, *labels;
    void *losses, *gradient;
    long long rows, n;
    int lanes;
    double smoothing;
    double scale; /* narrow_cross_entropy: of the gradient */
} cross_entropy_args;

/* A loss and what follows it, in one block per network. Of each network: x, gradient and cast [rows, n]; labels and losses
 * [rows]; mean: one number; sums [n]: column sums of the gradient. The gradient is that of the sum of all losses, times scale. Results
 * may be NULL. */
typedef struct block_loss_args {
    const void *x, *labels;
    void *losses, *mean, *gradient, *cast, *sums;
    double scale;
    int rows, n, lanes;
} block_loss_args;
