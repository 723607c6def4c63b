/* What conv_few.cu and conv_few.c share: convolutions of images with few channels. */

typedef struct conv_few_args {
    const void *x, *filter, *bias; /* bias: NULL, none */
    void *y;                       /* read where the filter's gradient is asked for */
    float *partial;                /* of that gradient: one for each block along x */
    int relu;
    int x_height, row_elements; /* of x: rows, and the elements of one: columns times channels */
    int y_height, y_width, out; /* out: channels of y, a multiple of 64 */
    divider places;             /* of a row of y: its pixels; for the gradient, words of them, filled up */
    int window_rows,
        window_elements;          /* of the filter: rows, and the elements of one: columns times channels */
    int row_steps;                /* products that a row of the window takes, for y */
    int row_stride, pixel_stride; /* to the window below, in rows; to the next one, in elements */
    int pad_rows, lead;           /* rows, and elements, of a patch before the first of x; whole words */
    int shift;                    /* elements of a patch's row before its first window: 0 or 1 */
    int band_rows;                /* rows of y that a block makes at a time, */
    divider bands;                /* such bands of an image, */
    int band_count;               /* and of all of them */
    int patch_rows, pitch;        /* of x under a band, and the elements of one */
    divider patch_words;          /* of one */
    int pair;                     /* from an element of a patch to the one that shares its word */
    int raw_words, y_words;  /* shared memory of a patch, and of y for the gradient: multiples of 4 words */
    int split_tiles, splits; /* tiles of the gradient that a warp sums; parts of the window in a block */
} conv_few_args;

/* Sums of what blocks left of a filter's gradient, in their order. */
typedef struct conv_few_sum_args {
    const float *partial; /* [parts, elements of the window, out] */
    void *filter;         /* [out, elements of the window] */
    int parts, window, out;
} conv_few_sum_args;
