/* Arguments of one launch that sums between devices. A range is a run of elements that every rank has; its first
 * element is 16-byte aligned on every rank. Range p has the blocks from first_block[p] on. */

enum {
    COMBINE_THREADS = 256,
    COMBINE_WORDS = 4, /* words of 16 bytes per thread */
    COMBINE_RANKS = 8, /* up to so many ranks are summed in registers, with all loads in flight */
    COMBINE_MAX_RANKS = 64,
    COMBINE_RANGES = 16,    /* maximum per launch; fewer if there are many ranks */
    COMBINE_POINTERS = 256, /* for all ranges: 2 per rank */
};

typedef struct combine_args {
    int ranks, ranges;
    unsigned first_block[COMBINE_RANGES + 1];
    long long count[COMBINE_RANGES];  /* per range: number of elements */
    void *pointers[COMBINE_POINTERS]; /* per range: the input of each rank, then the output of each rank */
} combine_args;
