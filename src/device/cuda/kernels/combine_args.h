/* Arguments of one launch that adds or copies between devices. A range is a run of elements with the addresses of its
 * first element in all inputs and outputs. Range p has the blocks from first_block[p] on. */

enum {
    COMBINE_THREADS = 256,
    COMBINE_WORDS = 4,        /* words of 16 bytes per thread */
    COMBINE_INPUTS = 8,       /* up to so many inputs are added in registers, with all loads in flight */
    COMBINE_MAX_INPUTS = 128, /* and the same number of outputs */
    COMBINE_RANGES = 16,      /* maximum per launch; fewer if there are many inputs and outputs */
    COMBINE_POINTERS = 256,   /* for all ranges */
};

typedef struct combine_args {
    int in_count, out_count, ranges;
    unsigned first_block[COMBINE_RANGES + 1];
    long long count[COMBINE_RANGES];  /* per range: number of elements */
    void *pointers[COMBINE_POINTERS]; /* per range: the inputs, then the outputs */
} combine_args;
