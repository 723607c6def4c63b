/* Arguments of the image kernels. Images are [n, h, w, c]; pairs are height, width. */
typedef struct resize_args {
    const void *from;
    void *to;
    column_grid layout; /* positions: pixels of the result */
    fast_divmod to_height, to_width;
    int original[2], resized[2]; /* sizes of the images before and after */
    int nearest;
} resize_args;

typedef struct crop_args {
    const void *from, *offsets; /* offsets: [n, 2], position of the window in each image */
    void *to;
    column_grid layout; /* positions: pixels of the result */
    fast_divmod to_height, to_width;
    int image[2], window[2]; /* sizes of the image and of the window */
} crop_args;
