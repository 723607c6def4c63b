/* Arguments of the kernels in reduce.cu, shared with reduce.c and order.c. */

/* x [outer, reduced] -> y [outer, splits], a part of each row to a split. */
typedef struct fold_rows_args {
    const void *x;
    void *y;
    long long rows; /* outer * splits */
    long long reduced, segment;
    int splits, lanes;
    double divisor;
} fold_rows_args;

/* x [outer, reduced, inner] -> y [outer, splits, inner]; a group is as many neighbours along `inner` as a thread takes. */
typedef struct fold_columns_args {
    const void *x;
    void *y;
    long long groups, row_groups; /* outer * inner / width, inner / width */
    long long reduced, inner, segment;
    int columns, slices; /* of a block: groups, and threads that share the rows of each */
    double divisor;
} fold_columns_args;
