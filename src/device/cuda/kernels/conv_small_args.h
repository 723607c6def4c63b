/* Arguments of conv_small.cu, set by conv_small.c. */

typedef struct conv_small_args {
    const void *x, *filter;
    const void *bias, *residual; /* NULL: none */
    void *y;
    int relu;
    int filter_is_constant;    /* it may be read before the kernels before have ended */
    int rows, columns;         /* pixels and channels of y */
    int steps;                 /* of 64 along the depth: taps and channels of x */
    fast_divmod height, width; /* of y */
    fast_divmod tap_steps;     /* steps per tap */
    fast_divmod filter_columns;
    int x_channels;
    int x_size[2], stride[2], dilation[2], pad[2];
} conv_small_args;
