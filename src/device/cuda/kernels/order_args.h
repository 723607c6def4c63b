/* Arguments of the kernels in order.cu, set by order.c. x is [outer, n, inner]; a lane is one of outer * inner. */

typedef struct scan_args {
    const void *x;
    const void *before; /* sums before each segment, in the compute type; NULL: 0 */
    void *y;
    long long lanes, n, inner, segment;
    int splits, exclusive, reverse;
} scan_args;

/* The result, or candidates [lanes, runs, kept] if `candidates` is not NULL. */
typedef struct top_to {
    void *values, *indices, *candidates;
    long long k, inner, kept, runs;
} top_to;

typedef struct top_sort_args {
    const void *x;
    long long lanes, n;
    int segment; /* elements per run: a power of two */
    top_to to;
} top_sort_args;

typedef struct top_merge_args {
    const void *from; /* candidates [lanes, runs, kept] */
    long long lanes, runs, kept;
    top_to to;
} top_merge_args;
