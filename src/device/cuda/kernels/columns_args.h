/* How blocks lie over values seen as [spots, channels]: kernels/columns.cuh explains it. */
typedef struct column_grid {
    divider packs; /* side by side in a block */
    int rows;      /* spots that a block has at a time */
    int all_packs; /* of a spot */
    long long spots;
} column_grid;

typedef struct sum_blocks_args {
    const void *partial; /* [blocks, channels], in the computing type */
    void *to;            /* [channels] */
    int blocks, channels;
} sum_blocks_args;
