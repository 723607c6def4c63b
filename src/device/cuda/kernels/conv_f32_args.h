/* What conv_f32.cu and conv_f32.c share: a convolution as a product of matrices, one of which is gathered from an image. */

typedef struct conv_f32_args {
    const float *image; /* that windows are taken from: x, or y when x is asked for */
    const float *other; /* the filter, or y when the filter is asked for */
    const float *bias;  /* NULL: none */
    float *out;         /* the result, or its parts: [splits, elements] */
    int relu;
    int rows, columns, depth; /* of the product */
    int split_depth;          /* of `depth`, for each block along z */
    divider height,
        width;        /* of the pixels that are counted: the result's, or y's when the filter is asked for */
    divider channels; /* of the image */
    divider filter_columns;
    int taps;
    int image_size[2];
    int scale[2], shift[2], tap_step[2]; /* a tap t of pixel p lies at p * scale + t * tap_step + shift */
} conv_f32_args;
