/* What is added up between devices by one launch. A piece is a run of elements of which every rank has a share; its
 * first element is 16-byte aligned on every rank. Blocks are numbered through: piece p has those from first_block[p]
 * on. */

enum {
    COMBINE_THREADS = 256,
    COMBINE_WORDS = 4, /* of 16 bytes: that a thread adds up */
    COMBINE_RANKS = 8, /* up to so many shares are held in registers, all under way at once */
    COMBINE_MAX_RANKS = 64,
    COMBINE_PIECES = 16,    /* of one launch, at most; fewer where there are many ranks */
    COMBINE_POINTERS = 256, /* of all pieces: 2 a rank */
};

typedef struct combine_args {
    int ranks, pieces;
    unsigned first_block[COMBINE_PIECES + 1];
    long long count[COMBINE_PIECES]; /* elements */
    void *pointers
        [COMBINE_POINTERS]; /* per piece: where each rank's share lies, then where each wants the sum */
} combine_args;
