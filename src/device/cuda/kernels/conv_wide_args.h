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
    int pixel_words;           /* 16-byte words of a pixel of x: its channels / 8 */
    int filter_words;          /* of the filter of a channel of y */
    int tap_row_pixels;        /* of x from a row of taps to the next */
    int filter_size[2], x_size[2], stride[2], dilation[2], pad[2];
} conv_wide_args;
