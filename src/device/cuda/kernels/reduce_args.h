/* Arguments of the kernels in reduce.cu, set by reduce.c and order.c. */

/* x [outer, reduced] -> y [outer, splits]; a split is a segment of each row. */
typedef struct reduce_rows_args {
    const void *x;
    void *y;
    long long rows; /* outer * splits */
    long long reduced, segment;
    int splits, lanes;
    double divisor;
} reduce_rows_args;

/* x [outer, reduced, inner] -> y [outer, splits, inner]; a group is the adjacent elements along `inner` that one
 * thread handles. */
typedef struct reduce_columns_args {
    const void *x;
    void *y;
    long long groups, row_groups; /* outer * inner / width, inner / width */
    long long reduced, inner, segment;
    int columns, slices; /* per block: groups, and threads that share the rows of each */
    double divisor;
} reduce_columns_args;
