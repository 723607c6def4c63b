/* A size by which indices are split into quotient and remainder. */
typedef struct extent {
    long long size;
    divider by; /* by `size`, if indices are below 2^31; else unused */
} extent;
