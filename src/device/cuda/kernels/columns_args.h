/* Layout of blocks over values seen as [positions, channels]: see kernels/columns.cuh. */
typedef struct column_grid {
    fast_divmod packs_per_block; /* packs of one position that a block processes at once */
    int rows;                    /* positions that a block processes at once */
    int packs_per_position;
    long long positions; /* of one network, if networks are summed one by one */
} column_grid;

typedef struct sum_blocks_args {
    const void *partial; /* [networks, blocks, channels], in the compute type */
    void *to;            /* [networks, channels] */
    int blocks, channels;
} sum_blocks_args;
