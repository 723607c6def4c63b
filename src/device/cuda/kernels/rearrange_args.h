/* Sizes, strides and counts are in words: elements, or several of them if all runs allow it. */

enum { COPY_MAX_AXES = 8, CONCAT_MAX_PARTS = 16 };

/* An axis of the result. Index i comes from index (i - before) / step of the source if that is an integer and
 * 0 <= i - before < extent_in_source. */
typedef struct copy_axis {
    extent size;
    long long from; /* stride in the source; 0: broadcast, negative: reversed */
    long long before, extent_in_source;
    extent step;
} copy_axis;

typedef struct copy_args {
    const void *x;
    void *y;
    long long count;            /* words of y */
    long long start;            /* offset in the source of index 0 of all axes */
    unsigned long long pattern; /* padding: one element, repeated over 8 bytes */
    int rank;
    copy_axis axes[COPY_MAX_AXES];
} copy_args;

typedef struct tile_axis {
    extent size;
    long long from, to; /* strides in x and y */
} tile_axis;

/* y[outer, c, r] = x[outer, r, c]: the last axis of y is called `along`, that of x `across`. */
typedef struct tile_args {
    const void *x;
    void *y;
    long long start;
    long long along, along_from; /* size of the axis, and its stride in x */
    long long across, across_to; /* size of the axis, and its stride in y */
    unsigned tiles;
    fast_divmod tiles_along, tiles_across;
    int rank; /* number of outer axes */
    tile_axis axes[COPY_MAX_AXES];
} tile_args;

/* A part of every row of y: row o contains the words at from + o * stride, up to index `end` of the row. */
typedef struct concat_part {
    const void *from;
    long long stride, end;
} concat_part;

/* y[o, start + j], j < span: the parts one after another. */
typedef struct concat_args {
    void *y;
    long long count; /* rows x span */
    extent span;
    long long row, start;
    int parts;
    concat_part part[CONCAT_MAX_PARTS];
} concat_args;

typedef struct fill_args {
    void *y;
    long long count;
    unsigned long long pattern; /* one element, repeated over 8 bytes */
} fill_args;

/* Matrices [rows, columns]: keeps the elements within `below` diagonals under the main one and `above` over it;
 * negative: all. */
typedef struct band_args {
    const void *x;
    void *y;
    long long count;
    extent rows, columns;
    long long below, above;
} band_args;
