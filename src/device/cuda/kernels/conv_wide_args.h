/* Arguments of conv_wide.cu, set by conv_wide.c. */

enum { CONV_WIDE_TAPS = 32 /* of a filter, at most */ };

typedef struct conv_wide_args {
    const void *x, *filter;
    const void *bias, *residual; /* NULL: none */
    void *y;
    int relu;
    int filter_is_constant;    /* it may be read before the kernels before have ended */
    int rows, columns;         /* pixels and channels of y */
    int steps;                 /* of 64 along the depth: taps and channels of x */
    fast_divmod height, width; /* of y */
    fast_divmod taps, filter_columns;
    int pixel_words;  /* 16-byte words of a pixel of x: its channels / 8 */
    int filter_words; /* of the filter of a channel of y */
    /* Words of x, modulo 2^32: from a tap to the next one in its row; then from behind a row of taps to the next row; then from
     * behind the last row to the first tap of the next 64 channels. */
    unsigned column_words, row_words, channel_words;
    int is_backwards; /* the last tile first */
    int is_product;   /* 1x1 without stride and padding: pixel i of y is computed from pixel i of x */
    int x_size[2], stride[2], dilation[2], pad[2];
} conv_wide_args;
