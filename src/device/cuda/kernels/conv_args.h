/* Arguments of conv.cu, set by conv_direct.c: a convolution as a product of matrices that are not stored. */

typedef struct conv_args {
    void *x, *filter, *y; /* two are read, the third is written */
    const void *bias;     /* added to y; NULL: none */
    void *partial;        /* [splits, elements of the filter] in the compute type; NULL: one split */
    int relu;
    int groups;
    int rows, columns, depth;  /* sizes of the matrix product of one group */
    int split_depth;           /* depth per block along z */
    fast_divmod height, width; /* size of the image whose pixels are numbered: y, or x if x is the result */
    fast_divmod channels;      /* channels per group in a tap: x's, or y's if x is the result */
    fast_divmod stride[2];
    int x_size[2], y_size[2];
    fast_divmod filter_columns;
    int dilation[2], pad[2];    /* pad: before the first row, before the first column */
    int x_channels, y_channels; /* per group */
} conv_args;

/* Adds the splits of a filter's gradient in order. */
typedef struct conv_sum_args {
    const void *partial;
    void *out;
    long long count;
    int splits;
} conv_sum_args;

/* Bias, residual and relu of a convolution's result, in place. */
typedef struct conv_epilogue_args {
    void *y;
    const void *bias, *residual; /* NULL: none */
    long long packs;             /* words of several elements in y */
    long long row_packs;         /* words per row */
    int relu;
} conv_epilogue_args;
