/* Layout of blocks over values seen as [positions, channels]: see kernels/columns.cuh. */
typedef struct column_grid {
    fast_divmod packs_per_block; /* in each of its rows */
    int rows;                    /* positions per iteration of a block */
    int packs_per_position;
    long long positions;
} column_grid;

typedef struct sum_blocks_args {
    const void *partial; /* [blocks, channels], in the compute type */
    void *to;            /* [channels] */
    int blocks, channels;
} sum_blocks_args;
