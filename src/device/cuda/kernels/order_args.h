/* Arguments of the kernels in order.cu, shared with order.c. x is [outer, n, inner]; a lane is one of outer * inner. */

typedef struct scan_args {
    const void *x;
    const void *before; /* a segment's start, in the computing type; NULL: 0 */
    void *y;
    long long lanes, n, inner, segment;
    int splits, exclusive, reverse;
} scan_args;

/* The result, or candidates [lanes, runs, kept] where `candidates` is not NULL. */
typedef struct top_to {
    void *values, *places, *candidates;
    long long k, inner, kept, runs;
} top_to;

typedef struct top_sort_args {
    const void *x;
    long long lanes, n;
    int segment; /* elements of a run: a power of two */
    top_to to;
} top_sort_args;

typedef struct top_merge_args {
    const void *from; /* candidates [lanes, runs, kept] */
    long long lanes, runs, kept;
    top_to to;
} top_merge_args;
