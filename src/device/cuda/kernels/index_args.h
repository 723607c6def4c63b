/* Gathers rows of `table`: y[o, j, :] = table[o, indices[j], :]. In words. */
typedef struct gather_args {
    const void *table, *indices;
    void *y;
    long long count; /* words of y */
    extent row;      /* words per row */
    extent indices_per_outer;
    long long size; /* number of rows */
} gather_args;

/* y[o, i, k] = x[o, indices[o, i, k], k] */
typedef struct take_args {
    const void *x, *indices;
    void *y;
    long long count;
    extent inner, along; /* elements after the axis, and along it, in y */
    long long size;      /* along the axis, in x */
} take_args;

/* y[j, c] = indices[j] == c */
typedef struct one_hot_args {
    const void *indices;
    void *y;
    long long count;
    extent classes;
    unsigned long long one; /* the bits of the number 1 in the element type */
} one_hot_args;

/* y[o, r, c] = base[o, r, c] + the sum of updates[o, j, c] over all j whose index is r. The index of (o, j, c) is at
 * o * outer_step + j * step + c * inner_step: scatter_add has one index per j, put_along one per update. */
typedef struct scan_args {
    const void *base, *indices, *updates; /* base NULL: zeros */
    void *y;
    long long count;
    extent inner, size;
    long long along; /* updates per (o, c) */
    long long outer_step, step, inner_step;
} scan_args;

/* Sorts the positions j of indices by target. Position j, seen as (o, i, k), has the target (o, indices[j], k). */
typedef struct sort_args {
    const void *indices;
    unsigned *starts; /* targets + 1: where a target's positions start in `sorted` */
    unsigned *sorted; /* positions, by target and then ascending */
    unsigned count;   /* indices, below 2^31 */
    unsigned targets; /* below 2^31 */
    unsigned range;   /* targets per block */
    fast_divmod inner, along;
    long long size;
} sort_args;

/* y[o, r, :] = base[o, r, :] + updates[o, j, :] for all j that `sorted` lists for r. In packs. */
typedef struct sum_args {
    const void *base, *updates; /* base NULL: zeros */
    void *y;
    const unsigned *starts, *sorted;
    long long count;     /* packs of y */
    extent row, targets; /* packs per row; rows per o */
    long long along;     /* rows of updates per o */
} sum_args;
