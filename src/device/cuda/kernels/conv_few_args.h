/* What conv_few.cu and conv_few.c share: convolutions of images with few channels. */

typedef struct conv_few_args {
    const void *x, *filter, *bias; /* bias: NULL, none */
    void *y;                       /* read where the filter's gradient is asked for */
    float *partial;                /* of that gradient: one for each block along x */
    int relu;
    int x_height, row_elements;       /* of x: rows, and the elements of one: columns times channels */
    int y_height, y_width, out;       /* out: channels of y, a multiple of 64 */
    divider width;                    /* y_width */
    int window_rows, window_elements; /* of the filter: rows, and the elements of one: columns times channels */
    int row_steps;                    /* products that a row of the window takes */
    int row_stride, pixel_stride;     /* to the window below, in rows; to the next one, in elements */
    int pad_rows, pad_elements;       /* before the first */
    int band_rows, bands;             /* rows of y that a block makes at a time; such bands of an image */
    long long band_count;             /* of all images */
    int patch_rows;                   /* of x under a band */
    divider patch_elements;           /* of one of these */
    int pitch;                        /* elements from one row of a patch to the next; even */
} conv_few_args;

/* Sums of what blocks left of a filter's gradient, in their order. */
typedef struct conv_few_sum_args {
    const float *partial; /* [parts, count] */
    void *out;
    int parts;
    long long count;
} conv_few_sum_args;
