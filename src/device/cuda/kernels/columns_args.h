/* Layout of blocks over values seen as [positions, channels]: see kernels/columns.cuh. */
typedef struct column_grid {
    divider packs; /* packs per row of a block */
    int rows;      /* positions per iteration of a block */
    int all_packs; /* packs per position */
    long long positions;
} column_grid;

typedef struct sum_blocks_args {
    const void *partial; /* [blocks, channels], in the compute type */
    void *to;            /* [channels] */
    int blocks, channels;
} sum_blocks_args;
