/* Inner loops of pooling: windows over [h,w,c], a vector of channels at a time.
 *
 * A window is reduced into one vector, with one load per pixel. The gradients are computed per pixel of dx: each
 * pixel sums over the windows that cover it, in order, and is written once. (If each window added to its pixels,
 * every pixel of dx would be read and written once per window.) */
#include "device/cpu/isa/kernels.h"
#include "device/cpu/isa/lanes.h"

/* The pixels of a window inside the image, or the windows that cover a pixel: rows and columns [begin, end). */
typedef struct box {
    int64_t begin[2], end[2];
} box;

static box pixels_of(const cpu_pooling *p, int64_t row, int64_t column) {
    const int64_t position[2] = {row, column};
    box b;
    for (int axis = 0; axis < 2; axis++) {
        int64_t begin = position[axis] * p->stride[axis] - p->pad[axis], end = begin + p->window[axis];
        b.begin[axis] = begin < 0 ? 0 : begin;
        b.end[axis] = end > p->x_size[axis] ? p->x_size[axis] : end;
    }
    return b;
}

/* Updates the windows that cover `position` of an axis, from those of an earlier position (initially none).
 * Window i covers positions i stride - pad to i stride - pad + window - 1. */
static inline void advance_to(const cpu_pooling *p, int axis, int64_t position, box *windows) {
    int64_t padded = position + p->pad[axis], stride = p->stride[axis];
    while (windows->end[axis] < p->y_size[axis] && windows->end[axis] * stride <= padded)
        windows->end[axis]++;
    while (windows->begin[axis] < windows->end[axis] &&
           windows->begin[axis] * stride + p->window[axis] <= padded)
        windows->begin[axis]++;
}

static float weight_of(const cpu_pooling *p, box b) {
    if (p->count_padding) return 1 / ((float)p->window[0] * (float)p->window[1]);
    return 1 / ((float)(b.end[0] - b.begin[0]) * (float)(b.end[1] - b.begin[1]));
}

/* A loop over channels: whole vectors, for which the width n is a constant, then the remainder. */
#define FOR_EACH_VECTOR(channels, c, n, statement)                                                           \
    do {                                                                                                     \
        int64_t c = 0;                                                                                       \
        for (; c + LANES <= (channels); c += LANES) {                                                        \
            const int64_t n = LANES;                                                                         \
            statement;                                                                                       \
        }                                                                                                    \
        if (c < (channels)) {                                                                                \
            const int64_t n = (channels)-c;                                                                  \
            statement;                                                                                       \
        }                                                                                                    \
    } while (0)

/* ---- Forward ---- */

LANES_INLINE lanes window_max_of_size(bool is_bf16, const cpu_pooling *p, box b, int64_t rows,
                                      int64_t columns, const void *x, int64_t c, int64_t n) {
    const int64_t row = p->x_size[1] * p->channels;
    const int64_t corner = b.begin[0] * row + b.begin[1] * p->channels + c;
    lanes best = lanes_splat(-INFINITY);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            int64_t index = corner + i * row + j * p->channels;
            best = lanes_max_keep_nan(best, lanes_load_upto(is_bf16, x, index, index + n));
        }
    return best;
}

/* The usual sizes are constants after inlining, so that the loops are unrolled. */
LANES_INLINE lanes window_max(bool is_bf16, const cpu_pooling *p, box b, const void *x, int64_t c,
                              int64_t n) {
    int64_t rows = b.end[0] - b.begin[0], columns = b.end[1] - b.begin[1];
    if (rows == 3 && columns == 3) return window_max_of_size(is_bf16, p, b, 3, 3, x, c, n);
    if (rows == 2 && columns == 2) return window_max_of_size(is_bf16, p, b, 2, 2, x, c, n);
    return window_max_of_size(is_bf16, p, b, rows, columns, x, c, n);
}

LANES_INLINE lanes window_sum(bool is_bf16, const cpu_pooling *p, box b, const void *x, int64_t c,
                              int64_t n) {
    lanes sum = {0};
    for (int64_t i = b.begin[0]; i < b.end[0]; i++) {
        int64_t index = (i * p->x_size[1] + b.begin[1]) * p->channels + c;
        for (int64_t j = b.begin[1]; j < b.end[1]; j++, index += p->channels)
            sum += lanes_load_upto(is_bf16, x, index, index + n);
    }
    return sum;
}

LANES_INLINE void max_row(bool is_bf16, const cpu_pooling *p, int64_t row, const void *x, void *y) {
    for (int64_t column = 0, out = 0; column < p->y_size[1]; column++, out += p->channels) {
        box b = pixels_of(p, row, column);
        FOR_EACH_VECTOR(
            p->channels, c, n,
            lanes_store_upto(is_bf16, y, out + c, out + c + n, window_max(is_bf16, p, b, x, c, n)));
    }
}

LANES_INLINE void mean_row(bool is_bf16, const cpu_pooling *p, int64_t row, const void *x, void *y) {
    for (int64_t column = 0, out = 0; column < p->y_size[1]; column++, out += p->channels) {
        box b = pixels_of(p, row, column);
        float weight = weight_of(p, b);
        FOR_EACH_VECTOR(
            p->channels, c, n,
            lanes_store_upto(is_bf16, y, out + c, out + c + n, window_sum(is_bf16, p, b, x, c, n) * weight));
    }
}

/* ---- Gradient of the maximum ---- */

LANES_INLINE void store_positions(uint16_t *to, int64_t n, lanes_int position) {
    lanes_short narrow = lanes_to_short(position);
    if (n >= LANES)
        memcpy(to, &narrow, sizeof narrow);
    else
        for (int64_t i = 0; i < n; i++) to[i] = narrow[i];
}

LANES_INLINE lanes_int load_positions(const uint16_t *from, int64_t n) {
    lanes_short narrow = {0};
    if (n >= LANES)
        memcpy(&narrow, from, sizeof narrow);
    else
        for (int64_t i = 0; i < n; i++) narrow[i] = from[i];
    return lanes_from_short(narrow);
}

/* A window. argmax_of finds the position, relative to the window's corner, of its first maximum, for a vector of
 * channels. It computes the maximum first and then, from the last pixel to the first, which pixels equal it: so no
 * comparison depends on another. If there is a NaN, which is above all numbers, argmax_among_nans searches like the
 * reference kernel. */
typedef struct window {
    box b;
    int64_t top, left; /* of its corner, which may be in the padding */
} window;

LANES_INLINE lanes_int argmax_among_nans(bool is_bf16, const cpu_pooling *p, window w, const void *x,
                                         int64_t c, int64_t n) {
    lanes best = lanes_splat(-INFINITY);
    lanes_int argmax = {0};
    bool first = true;
    for (int64_t i = w.b.begin[0]; i < w.b.end[0]; i++)
        for (int64_t j = w.b.begin[1]; j < w.b.end[1]; j++, first = false) {
            int64_t index = (i * p->x_size[1] + j) * p->channels;
            lanes current = lanes_load_upto(is_bf16, x, index + c, index + c + n);
            lanes_int position = lanes_int_splat((int32_t)((i - w.top) * p->window[1] + j - w.left));
            lanes_mask is_larger =
                lanes_greater(current, best) | (lanes_nan(current) & lanes_equal(best, best));
            best = first ? current : lanes_select(is_larger, current, best);
            argmax = first ? position : lanes_int_select(is_larger, position, argmax);
        }
    return argmax;
}

/* `rows` and `columns`: the size of the window inside the image. */
LANES_INLINE lanes_int argmax_of_size(bool is_bf16, const cpu_pooling *p, window w, int64_t rows,
                                      int64_t columns, const void *x, int64_t c, int64_t n) {
    const int64_t row = p->x_size[1] * p->channels;
    const int64_t corner = w.b.begin[0] * row + w.b.begin[1] * p->channels + c;
    lanes max = lanes_splat(-INFINITY), current;
    lanes_mask nan = lanes_nan(max);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            int64_t index = corner + i * row + j * p->channels;
            current = lanes_load_upto(is_bf16, x, index, index + n);
            max = lanes_max(max, current);
            nan |= lanes_nan(current);
        }
    if (lanes_any(nan)) return argmax_among_nans(is_bf16, p, w, x, c, n);
    const int32_t first = (int32_t)((w.b.begin[0] - w.top) * p->window[1] + w.b.begin[1] - w.left);
    lanes_int argmax = {0};
    for (int64_t i = rows - 1; i >= 0; i--)
        for (int64_t j = columns - 1; j >= 0; j--) {
            int64_t index = corner + i * row + j * p->channels;
            current = lanes_load_upto(is_bf16, x, index, index + n);
            lanes_int position = lanes_int_splat(first + (int32_t)(i * p->window[1] + j));
            argmax = lanes_int_select(lanes_equal(current, max), position, argmax);
        }
    return argmax;
}

LANES_INLINE lanes_int argmax_of(bool is_bf16, const cpu_pooling *p, window w, const void *x, int64_t c,
                                 int64_t n) {
    int64_t rows = w.b.end[0] - w.b.begin[0], columns = w.b.end[1] - w.b.begin[1];
    if (rows == 3 && columns == 3) return argmax_of_size(is_bf16, p, w, 3, 3, x, c, n);
    if (rows == 2 && columns == 2) return argmax_of_size(is_bf16, p, w, 2, 2, x, c, n);
    return argmax_of_size(is_bf16, p, w, rows, columns, x, c, n);
}

LANES_INLINE void find_argmax(bool is_bf16, const cpu_pooling *p, const void *x, uint16_t *argmax) {
    for (int64_t row = 0; row < p->y_size[0]; row++)
        for (int64_t column = 0; column < p->y_size[1]; column++, argmax += p->channels) {
            window w = {pixels_of(p, row, column), row * p->stride[0] - p->pad[0],
                        column * p->stride[1] - p->pad[1]};
            FOR_EACH_VECTOR(p->channels, c, n,
                            store_positions(argmax + c, n, argmax_of(is_bf16, p, w, x, c, n)));
        }
}

/* Sums dy over the windows whose maximum is this pixel of x. `position`: its position in the first of them. */
LANES_INLINE lanes sum_windows_with_argmax_of_size(bool is_bf16, const cpu_pooling *p, box b, int64_t rows,
                                                   int64_t columns, int64_t position, const void *dy,
                                                   const uint16_t *argmax, int64_t c, int64_t n) {
    const int64_t row = p->y_size[1] * p->channels;
    const int64_t corner = b.begin[0] * row + b.begin[1] * p->channels + c;
    lanes sum = {0};
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            int64_t index = corner + i * row + j * p->channels;
            int32_t current = (int32_t)(position - i * p->stride[0] * p->window[1] - j * p->stride[1]);
            lanes_mask is_argmax =
                lanes_int_equal(load_positions(argmax + index, n), lanes_int_splat(current));
            sum += lanes_select(is_argmax, lanes_load_upto(is_bf16, dy, index, index + n), (lanes){0});
        }
    return sum;
}

LANES_INLINE lanes sum_windows_with_argmax(bool is_bf16, const cpu_pooling *p, box b, int64_t position,
                                           const void *dy, const uint16_t *argmax, int64_t c, int64_t n) {
    int64_t rows = b.end[0] - b.begin[0], columns = b.end[1] - b.begin[1];
    if (rows == 1 && columns == 1)
        return sum_windows_with_argmax_of_size(is_bf16, p, b, 1, 1, position, dy, argmax, c, n);
    if (rows == 1 && columns == 2)
        return sum_windows_with_argmax_of_size(is_bf16, p, b, 1, 2, position, dy, argmax, c, n);
    if (rows == 2 && columns == 1)
        return sum_windows_with_argmax_of_size(is_bf16, p, b, 2, 1, position, dy, argmax, c, n);
    if (rows == 2 && columns == 2)
        return sum_windows_with_argmax_of_size(is_bf16, p, b, 2, 2, position, dy, argmax, c, n);
    return sum_windows_with_argmax_of_size(is_bf16, p, b, rows, columns, position, dy, argmax, c, n);
}

LANES_INLINE void max_gradient(bool is_bf16, const cpu_pooling *p, const void *x, const void *dy,
                               uint16_t *argmax, void *dx) {
    find_argmax(is_bf16, p, x, argmax);
    int64_t out = 0;
    box b = {{0, 0}, {0, 0}};
    for (int64_t row = 0; row < p->x_size[0]; row++) {
        advance_to(p, 0, row, &b);
        b.begin[1] = b.end[1] = 0;
        for (int64_t column = 0; column < p->x_size[1]; column++, out += p->channels) {
            advance_to(p, 1, column, &b);
            int64_t down = row - (b.begin[0] * p->stride[0] - p->pad[0]);
            int64_t right = column - (b.begin[1] * p->stride[1] - p->pad[1]);
            int64_t position = down * p->window[1] + right;
            FOR_EACH_VECTOR(
                p->channels, c, n,
                lanes_store_upto(is_bf16, dx, out + c, out + c + n,
                                 sum_windows_with_argmax(is_bf16, p, b, position, dy, argmax, c, n)));
        }
    }
}

/* ---- Gradient of the mean ---- */

LANES_INLINE lanes weighted_sum(bool is_bf16, const cpu_pooling *p, box b, const void *dy, int64_t c,
                                int64_t n) {
    lanes sum = {0};
    for (int64_t i = b.begin[0]; i < b.end[0]; i++)
        for (int64_t j = b.begin[1]; j < b.end[1]; j++) {
            int64_t index = (i * p->y_size[1] + j) * p->channels + c;
            sum += lanes_load_upto(is_bf16, dy, index, index + n) * weight_of(p, pixels_of(p, i, j));
        }
    return sum;
}

LANES_INLINE void mean_gradient_row(bool is_bf16, const cpu_pooling *p, int64_t row, const void *dy,
                                    void *dx) {
    box b = {{0, 0}, {0, 0}};
    advance_to(p, 0, row, &b);
    for (int64_t column = 0, out = 0; column < p->x_size[1]; column++, out += p->channels) {
        advance_to(p, 1, column, &b);
        FOR_EACH_VECTOR(
            p->channels, c, n,
            lanes_store_upto(is_bf16, dx, out + c, out + c + n, weighted_sum(is_bf16, p, b, dy, c, n)));
    }
}

/* ---- The table ---- */

LANES_BOTH_TYPES(max_row, (const cpu_pooling *p, int64_t row, const void *x, void *y), p, row, x, y)
LANES_BOTH_TYPES(mean_row, (const cpu_pooling *p, int64_t row, const void *x, void *y), p, row, x, y)
LANES_BOTH_TYPES(max_gradient,
                 (const cpu_pooling *p, const void *x, const void *dy, uint16_t *argmax, void *dx), p, x, dy,
                 argmax, dx)
LANES_BOTH_TYPES(mean_gradient_row, (const cpu_pooling *p, int64_t row, const void *dy, void *dx), p, row, dy,
                 dx)

const struct cpu_pool_loops LOOP(cpu_pool_loops) = {
    .max = {max_row_f32, max_row_bf16},
    .mean = {mean_row_f32, mean_row_bf16},
    .max_gradient = {max_gradient_f32, max_gradient_bf16},
    .mean_gradient = {mean_gradient_row_f32, mean_gradient_row_bf16},
};
