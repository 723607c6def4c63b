/* Arguments of kernels/squares.cu. Blocks are numbered through: tensor t has those from first_block[t] on, `chunk` elements
 * each. Tensors begin at multiples of 16 bytes. */
enum {
    SQUARES_THREADS = 256,
    SQUARES_TENSORS = 256, /* of one launch, at most */
};

typedef struct squares_args {
    int tensors;
    unsigned first_block[SQUARES_TENSORS + 1];
    long long chunk, count[SQUARES_TENSORS]; /* elements */
    const void *x[SQUARES_TENSORS];
    double *partial; /* of the first block */
} squares_args;

typedef struct add_squares_args {
    const double *partial;
    double *out;
    unsigned char *finite; /* NULL: nobody asks whether it is */
    long long parts;
} add_squares_args;
