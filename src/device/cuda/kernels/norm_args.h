/* Arguments of the kernels in norm.cu, set by norm.c. Arrays are in the compute type unless noted: f64 for a
 * normalisation of f64, f32 for all others. */

/* How x [rows, width] is distributed: a block is [slices, columns] threads, a thread handles a word of adjacent
 * columns. For sums, a block handles every splits-th group of `slices` rows; for applying, a segment of rows. */
typedef struct norm_tiling {
    long long rows, width, groups, segment; /* groups: words per row */
    int columns, slices, splits;
} norm_tiling;

/* Two sums per column: partial [splits, 2, width]. */
typedef struct norm_sums_args {
    norm_tiling tiling;
    const void *x, *dy;
    const void *mean, *rstd;  /* batch: mean [width]; layer: both [rows], in the parameters' type */
    const void *relu_factors; /* [3, width]: mean, scale, shift of the y before the relu */
    const void *mask;         /* one byte per word; bit i: the relu of element i is positive */
    const void *addend;       /* if ADDS: added to dy before the mask is applied */
    void *masked_dy;          /* output: dy where the mask is set, otherwise 0 */
    void *partial;
} norm_sums_args;

/* How partial sums are added: a block is [256 / columns, columns] threads. */
typedef struct norm_partial_sums {
    const void *partial;
    long long width;
    int splits, columns;
} norm_partial_sums;

/* Computes statistics and factors of a batch normalisation from partial sums. gamma, beta, mean, variance have the
 * parameters' type. */
typedef struct norm_factors_args {
    norm_partial_sums partial_sums;
    long long rows;
    double epsilon;
    const void *x, *gamma, *beta;
    void *mean, *variance;
    void *factors; /* [3, width]: mean, scale, shift */
} norm_factors_args;

typedef struct norm_apply_args {
    norm_tiling tiling;
    const void *x, *residual, *factors;
    void *y, *mask;
    int relu;
} norm_apply_args;

/* Computes dgamma, dbeta and the factors of dx from the partial sums of a gradient. */
typedef struct norm_gradient_factors_args {
    norm_partial_sums partial_sums;
    long long rows;
    double epsilon;
    const void *gamma, *mean, *variance;
    void *dgamma, *dbeta;
    void *factors; /* [4, width]: mean, scale, dx_offset, dx_slope */
} norm_gradient_factors_args;

typedef struct norm_gradient_args {
    norm_tiling tiling;
    const void *x, *dy, *relu_factors, *factors;
    void *dx;
} norm_gradient_args;

/* Layer normalisation: x, y [rows, n]; gamma, beta [n]; mean, rstd (the inverse standard deviation) [rows]. */
typedef struct layer_norm_args {
    const void *x, *gamma, *beta;
    void *y, *mean, *rstd;
    long long rows, n;
    int lanes;
    double epsilon;
} layer_norm_args;

typedef struct layer_norm_gradient_args {
    const void *x, *gamma, *mean, *rstd, *dy;
    void *dx;
    long long rows, n;
    int lanes;
} layer_norm_gradient_args;

typedef struct layer_norm_finish_args {
    norm_partial_sums partial_sums;
    void *dgamma, *dbeta;
} layer_norm_finish_args;
