/* Arguments of conv_few_channels.cu, set by conv_few_channels.c: convolutions of images with few channels. */

typedef struct conv_few_channels_args {
    const void *x, *filter, *bias; /* bias: NULL if there is none */
    void *y;                       /* read if the filter's gradient is computed */
    float *partial;                /* of the filter's gradient: one per block along x */
    int relu;
    int x_height, row_elements; /* of x: rows, and elements per row (columns times channels) */
    int y_height, y_width, out; /* out: channels of y, a multiple of 64 */
    fast_divmod row_pixels;     /* per row of y: pixels; for the gradient: words of pixels, rounded up */
    int window_rows, window_elements; /* of the filter: rows, and elements per row (columns times channels) */
    int row_steps;                    /* products per row of the window, for y */
    int row_stride, pixel_stride;     /* to the window below, in rows; to the next window, in elements */
    int pad_rows, lead;               /* rows and elements of a patch before the first of x; full words */
    int shift;                        /* elements of a patch's row before its first window: 0 or 1 */
    int band_rows;                    /* rows of y per band */
    fast_divmod bands;                /* bands per image */
    int band_count;                   /* bands in total */
    int patch_rows, pitch;            /* rows of a patch, and elements per row */
    fast_divmod patch_words;          /* words per row of a patch */
    int pair;                         /* distance between the two elements that share a word */
    int raw_words,
        y_words; /* words of shared memory for a patch, and for y in the gradient: multiples of 4 */
    int split_tiles, splits; /* tiles of the gradient per warp; splits of the window per block */
} conv_few_channels_args;

/* Adds the partial sums of a filter's gradient in the order of blocks. */
typedef struct conv_few_channels_sum_args {
    const float *partial; /* [parts, elements of the window, out] */
    void *filter;         /* [out, elements of the window] */
    int blocks, window, out;
} conv_few_channels_sum_args;
