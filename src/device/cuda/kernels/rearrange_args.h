/* Sizes, strides and counts are in words: elements, or several of them where all runs allow it. */

enum { MOVE_MAX_AXES = 8, MOVE_MAX_PARTS = 16 };

/* An axis of the result. Place i of it comes from place (i - before) / step of the source, where that is a whole number
 * in range: i - before < reach. */
typedef struct move_axis {
    extent size;
    long long from; /* stride in the source; 0 repeats, negative goes backwards */
    long long before, reach;
    extent step;
} move_axis;

typedef struct move_args {
    const void *x;
    void *y;
    long long count;           /* words of y */
    long long start;           /* the source's word that place 0 of all axes comes from */
    unsigned long long number; /* stands where nothing comes from: one element, repeated over 8 bytes */
    int rank;
    move_axis axes[MOVE_MAX_AXES];
} move_args;

typedef struct tile_axis {
    extent size;
    long long from, to;
} tile_axis;

/* y[outer, c, r] = x[outer, r, c]: the last axis of y is called `along`, that of x `across`. */
typedef struct tile_args {
    const void *x;
    void *y;
    long long start;
    long long along, along_from;
    long long across, across_to;
    unsigned tiles;
    divider tiles_along, tiles_across;
    int rank; /* of the outer axes */
    tile_axis axes[MOVE_MAX_AXES];
} tile_args;

/* A part of every row of y: row o holds the words from + o * stride on, up to place `end` of the row. */
typedef struct join_part {
    const void *from;
    long long stride, end;
} join_part;

/* y[o, start + j], j < span: parts one after another. */
typedef struct join_args {
    void *y;
    long long count; /* rows x span */
    extent span;
    long long row, start;
    int parts;
    join_part part[MOVE_MAX_PARTS];
} join_args;

typedef struct fill_args {
    void *y;
    long long count;
    unsigned long long number;
} fill_args;

/* Matrices [rows, columns]: what lies within `below` diagonals under the main one and `above` over it stays; negative:
 * all. */
typedef struct band_args {
    const void *x;
    void *y;
    long long count;
    extent rows, columns;
    long long below, above;
} band_args;
