/* Rows of `table` at places that are data: y[o, j, :] = table[o, indices[j], :]. In words. */
typedef struct gather_args {
    const void *table, *indices;
    void *y;
    long long count; /* words of y */
    extent row;      /* words of a row */
    extent indices_each;
    long long size; /* rows to choose from */
} gather_args;

/* y[o, i, k] = x[o, indices[o, i, k], k] */
typedef struct take_args {
    const void *x, *indices;
    void *y;
    long long count;
    extent inner, along; /* elements after the axis, and along it, in y */
    long long size;      /* along it, in x */
} take_args;

/* y[j, c] = indices[j] == c */
typedef struct one_hot_args {
    const void *indices;
    void *y;
    long long count;
    extent classes;
    unsigned long long one; /* the number 1, in the bits of an element */
} one_hot_args;

/* y[o, r, c] = base[o, r, c] + the sum of updates[o, j, c] over all j whose index is r. The index of (o, j, c) is at
 * o * outer_step + j * step + c * inner_step: scatter_add has one for each j, put_along one for each update. */
typedef struct scan_args {
    const void *base, *indices, *updates; /* base NULL: zeros */
    void *y;
    long long count;
    extent inner, size;
    long long along; /* updates for each (o, c) */
    long long outer_step, step, inner_step;
} scan_args;

/* Sorts the numbers of indices by where they lead to. Number j, seen as (o, i, k), leads to (o, index, k). */
typedef struct sort_args {
    const void *indices;
    unsigned *starts; /* targets + 1: where in `sorted` a target's numbers begin */
    unsigned *sorted; /* numbers, by target and then as they came */
    unsigned count;   /* indices, below 2^31 */
    unsigned targets; /* below 2^31 */
    unsigned range;   /* targets a block cares for */
    divider inner, along;
    long long size;
} sort_args;

/* y[o, r, :] = base[o, r, :] + updates[o, j, :] for all j that `sorted` lists for r. In packs. */
typedef struct sum_args {
    const void *base, *updates; /* base NULL: zeros */
    void *y;
    const unsigned *starts, *sorted;
    long long count;     /* packs of y */
    extent row, targets; /* packs of a row; rows for each o */
    long long along;     /* rows of updates for each o */
} sum_args;
