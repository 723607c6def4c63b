/* What conv.cu and conv_direct.c share: a convolution as a product of matrices that are never stored. */

typedef struct conv_args {
    void *x, *filter, *y; /* two of them are read, the third is written */
    const void *bias;     /* of y; NULL: none */
    void *
        partial; /* [splits, elements of the filter] in the computing type; NULL: one split, stored at once */
    int relu;
    int groups;
    int rows, columns, depth; /* of the product of one group */
    int split_depth;          /* of `depth`, for each block along z */
    divider height, width;    /* of the image whose pixels are counted: y's, or x's when that is asked for */
    divider channels;         /* of one group in a tap: x's, or y's when x is asked for */
    divider stride[2];
    int x_size[2], y_size[2];
    divider filter_columns;
    int dilation[2], pad[2];    /* pad: before the first row, before the first column */
    int x_channels, y_channels; /* of one group */
} conv_args;

/* Sums of the splits of a filter's gradient, in their order. */
typedef struct conv_sum_args {
    const void *partial;
    void *out;
    long long count;
    int splits;
} conv_sum_args;

/* What follows a convolution, in place: rows of `channels` elements. */
typedef struct conv_end_args {
    void *y;
    const void *bias; /* NULL: none */
    long long packs;  /* words of several elements, in all and in a row */
    long long row_packs;
    int relu;
} conv_end_args;
