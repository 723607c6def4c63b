/* Arguments of kernels/global_norm.cu. Tensor t has the blocks from first_block[t] on, with `chunk` elements each.
 * Tensors start at multiples of 16 bytes. */
enum {
    GLOBAL_NORM_THREADS = 256,
    GLOBAL_NORM_TENSORS = 256, /* maximum per launch */
};

typedef struct global_norm_args {
    int tensors;
    unsigned first_block[GLOBAL_NORM_TENSORS + 1];
    long long chunk, count[GLOBAL_NORM_TENSORS]; /* elements per block; elements of each tensor */
    const void *x[GLOBAL_NORM_TENSORS];
    double *partial; /* per block of this launch: the sum of squares */
} global_norm_args;

typedef struct add_partial_args {
    const double *partial;
    double *out;
    unsigned char *finite; /* whether the norm is finite; NULL: not needed */
    long long partial_count;
} add_partial_args;
