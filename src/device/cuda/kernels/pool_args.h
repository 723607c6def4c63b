/* What the kernels of pooling are told. Pairs are height, width. */
typedef struct pool_args {
    const void *x;    /* where winners are looked for, or means taken */
    const void *from; /* what is picked or spread: u of max_pool_pick, dy of the gradients */
    void *to;         /* y or dx; NULL: only places are wanted */
    void *
        places; /* one a window and channel: max_pool writes them, its gradient reads them; NULL: not wanted */
    void *sums;       /* one row a block: sums of dx over its spots */
    column_grid over; /* spots: windows, places of x, or patches of x, one image after another */
    divider spots_high, spots_wide; /* of an image */
    divider stride[2];
    int x_size[2], y_size[2], window[2], pad[2];
    int channels;
    int count_padding;
} pool_args;
