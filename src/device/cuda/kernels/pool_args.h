/* Arguments of the pooling kernels. Pairs are height, width. */
typedef struct pool_args {
    const void *x;      /* input of max_pool and avg_pool */
    const void *from;   /* u of max_pool_pick, dy of the gradients */
    void *to;           /* y or dx; NULL: max_pool computes only `argmax` */
    void *argmax;       /* per window and channel, written by max_pool and read by its gradient; or NULL */
    void *sums;         /* per block and channel: sum of dx over the positions of the block */
    column_grid layout; /* positions: windows, elements of x, or patches of x, one image after another */
    fast_divmod position_rows, position_columns; /* rows and columns of positions per image */
    fast_divmod stride[2];
    int x_size[2], y_size[2], window[2], pad[2];
    int channels;
    int count_padding;
} pool_args;
