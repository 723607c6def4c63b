/* How many there are of something, by which indices are split into a quotient and a remainder. */
typedef struct extent {
    long long size;
    divider by; /* of `size`, where indices stay below 2^31; unused otherwise */
} extent;
