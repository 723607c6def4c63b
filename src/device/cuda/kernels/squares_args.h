/* Arguments of kernels/global_norm.cu. Tensor t has the blocks from first_block[t] on, with `chunk` elements each.
 * Tensors start at multiples of 16 bytes. */
enum {
    SQUARES_THREADS = 256,
    SQUARES_TENSORS = 256, /* maximum per launch */
};

typedef struct squares_args {
    int tensors;
    unsigned first_block[SQUARES_TENSORS + 1];
    long long chunk, count[SQUARES_TENSORS]; /* elements */
    const void *x[SQUARES_TENSORS];
    double *partial; /* sums of this launch's blocks */
} squares_args;

typedef struct add_squares_args {
    const double *partial;
    double *out;
    unsigned char *finite; /* whether the norm is finite; NULL: not needed */
    long long parts;
} add_squares_args;
