/* Arguments of conv_f32.cu, set by conv_f32.c: a convolution as a product of matrices, one of which is gathered from
 * an image. */

typedef struct conv_f32_args {
    const float *image; /* the image that is gathered: x, or y if x is the result */
    const float *other; /* the filter, or y if the filter is the result */
    const float *bias;  /* NULL: none */
    float *out;         /* the result, or partial results [splits, elements] */
    int relu;
    int rows, columns, depth; /* sizes of the matrix product */
    int split_depth;          /* depth per block along z */
    fast_divmod height,
        width; /* size of the image whose pixels are numbered: the result's, or y's if the filter is the result */
    fast_divmod channels; /* channels of the image */
    fast_divmod filter_columns;
    int taps;
    int image_size[2];
    int scale[2], shift[2], tap_step[2]; /* tap t of pixel p is at p * scale + t * tap_step + shift */
} conv_f32_args;
