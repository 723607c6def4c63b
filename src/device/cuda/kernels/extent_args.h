/* A size by which indices are split into quotient and remainder. */
typedef struct extent {
    long long size;
    fast_divmod divmod; /* by `size`, if indices are below 2^31; else unused */
} extent;
