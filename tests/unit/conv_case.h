/* Convolutions of the CPU device with random operands, and their expected results by the definition. */
#ifndef TESTS_UNIT_CONV_CASE_H
#define TESTS_UNIT_CONV_CASE_H

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/parallel.h"
#include "device/cpu/conv_direct.h"
#include "test.h"

static uint32_t random_state = 1;

static int64_t random_int(int64_t low, int64_t high) {
    random_state = random_state * 1664525 + 1013904223;
    return low + (int64_t)(random_state >> 8) % (high - low + 1);
}

static tu_dtype dtype_of(int bytes) {
    return bytes == 8 ? TU_F64 : bytes == 4 ? TU_F32 : TU_BF16;
}

/* Allocates f64, f32 or bf16 numbers, small multiples of 1/64: sums of products are exact in f32, in any order. */
static void *new_numbers(int64_t count, int bytes) {
    void *x = tu__alloc_aligned((size_t)(count * bytes), "a test");
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) tu__store(dtype_of(bytes), x, i, (double)random_int(-16, 16) / 64);
    return x;
}

static double load_number(const void *x, int bytes, int64_t i) {
    return tu__load(dtype_of(bytes), x, i);
}

/* ---- The definition of a convolution, as in src/graph/ops/conv.c ---- */

typedef struct sizes {
    int64_t x, filter, y;
} sizes;

static sizes sizes_of(const cpu_convolution *c) {
    return (sizes){c->images * c->x_size[0] * c->x_size[1] * c->groups * c->x_channels,
                   c->groups * c->y_channels * c->windows.size[0] * c->windows.size[1] * c->x_channels,
                   c->images * c->y_size[0] * c->y_size[1] * c->groups * c->y_channels};
}

typedef void visitor(int64_t x, int64_t filter, int64_t y, void *context);

/* Calls `visit` for all channels of a pixel of x, a tap and a pixel of y. */
static void visit_channels(const cpu_convolution *c, int64_t x, int64_t tap, int64_t y, visitor *visit,
                           void *context) {
    int64_t taps = c->windows.size[0] * c->windows.size[1];
    for (int64_t g = 0; g < c->groups; g++)
        for (int64_t o = 0; o < c->y_channels; o++)
            for (int64_t i = 0; i < c->x_channels; i++)
                visit((x * c->groups + g) * c->x_channels + i,
                      ((g * c->y_channels + o) * taps + tap) * c->x_channels + i,
                      (y * c->groups + g) * c->y_channels + o, context);
}

static bool is_inside(const cpu_convolution *c, int axis, int64_t pixel, int64_t tap, int64_t *position) {
    *position = pixel * c->windows.stride[axis] + tap * c->windows.dilation[axis] - c->windows.pad[2 * axis];
    return *position >= 0 && *position < c->x_size[axis];
}

static void visit_multiply_adds(const cpu_convolution *c, visitor *visit, void *context) {
    int64_t row, column, taps = c->windows.size[0] * c->windows.size[1];
    for (int64_t y = 0; y < c->images * c->y_size[0] * c->y_size[1]; y++)
        for (int64_t tap = 0; tap < taps; tap++) {
            int64_t image = y / (c->y_size[0] * c->y_size[1]), p = y / c->y_size[1] % c->y_size[0];
            if (is_inside(c, 0, p, tap / c->windows.size[1], &row) &&
                is_inside(c, 1, y % c->y_size[1], tap % c->windows.size[1], &column))
                visit_channels(c, (image * c->x_size[0] + row) * c->x_size[1] + column, tap, y, visit,
                               context);
        }
}

typedef struct definition {
    cpu_conv_result computes;
    const void *first, *second;
    int bytes;
    double *out;
} definition;

static void add_product(int64_t x, int64_t filter, int64_t y, void *context) {
    definition *d = context;
    int64_t indices[3][3] = {{x, filter, y}, {y, filter, x}, {x, y, filter}},
            *operand_indices = indices[d->computes];
    d->out[operand_indices[2]] += load_number(d->first, d->bytes, operand_indices[0]) *
                                  load_number(d->second, d->bytes, operand_indices[1]);
}

typedef struct
    conv_case { /* operands of a convolution, its expected result, and memory for the computed one */
    void *first, *second, *out;
    double *expected;
    int64_t count;
    int bytes;
} conv_case;

static conv_case conv_case_new(const cpu_convolution *c, cpu_conv_result result, int bytes) {
    sizes n = sizes_of(c);
    int64_t first = result == CPU_CONV_DX ? n.y : n.x, second = result == CPU_CONV_DW ? n.y : n.filter;
    conv_case t = {.bytes = bytes,
                   .count = result == CPU_CONV_Y    ? n.y
                            : result == CPU_CONV_DX ? n.x
                                                    : n.filter};
    t.first = new_numbers(first, bytes);
    t.second = new_numbers(second, bytes);
    t.out = new_numbers(t.count, bytes);
    t.expected = calloc((size_t)t.count, sizeof *t.expected);
    assert_non_null(t.expected);
    definition d = {result, t.first, t.second, bytes, t.expected};
    visit_multiply_adds(c, add_product, &d);
    tu__round_array(dtype_of(bytes), t.expected, t.count);
    return t;
}

static void conv_case_free(conv_case *t) {
    tu__free_aligned(t->first);
    tu__free_aligned(t->second);
    tu__free_aligned(t->out);
    free(t->expected);
}

static void assert_expected_result(const conv_case *t) {
    for (int64_t i = 0; i < t->count; i++)
        if (load_number(t->out, t->bytes, i) != t->expected[i]) /* NOLINT: exact, see new_numbers */
            fail_msg("element %d of %d is %g, expected %g", (int)i, (int)t->count,
                     load_number(t->out, t->bytes, i), t->expected[i]);
}

/* ---- Memory ---- */

enum { FENCE = 64 }; /* bytes after a workspace, which must not be written */

/* Fills the workspace with NaN, to detect reads of uninitialised memory. */
static unsigned char *new_workspace(size_t bytes) {
    unsigned char *workspace = tu__alloc_aligned(bytes + FENCE, "a test");
    assert_non_null(workspace);
    memset(workspace, 0xff, bytes + FENCE);
    return workspace;
}

static void free_workspace(unsigned char *workspace, size_t bytes) {
    for (size_t i = 0; i < FENCE; i++) assert_int_equal(workspace[bytes + i], 0xff);
    tu__free_aligned(workspace);
}

/* ---- Shapes ---- */

/* Returns false if the window does not fit the image. */
static bool random_convolution(cpu_convolution *c, int64_t max_channels) {
    c->images = random_int(1, 3);
    c->groups = random_int(0, 2) == 0 ? random_int(2, 3) : 1;
    c->x_channels = random_int(1, max_channels);
    c->y_channels = random_int(1, max_channels);
    for (int i = 0; i < 2; i++) {
        c->windows.size[i] = random_int(1, 4);
        c->windows.stride[i] = random_int(1, 3);
        c->windows.dilation[i] = random_int(1, 2);
        c->windows.pad[2 * i] = random_int(0, 4);
        c->windows.pad[2 * i + 1] = random_int(0, 4);
        c->x_size[i] = random_int(1, 9);
        int64_t last_offset = c->x_size[i] + c->windows.pad[2 * i] + c->windows.pad[2 * i + 1] -
                              (c->windows.size[i] - 1) * c->windows.dilation[i] - 1;
        if (last_offset < 0) return false;
        c->y_size[i] = 1 + last_offset / c->windows.stride[i];
    }
    return true;
}

/* SAME padding, stride 1. */
static cpu_convolution same_padded_convolution(int64_t images, int64_t pixels, int64_t in, int64_t out,
                                               int64_t size) {
    int64_t before = (size - 1) / 2, after = size - 1 - before;
    return (cpu_convolution){.windows = {.size = {size, size},
                                         .stride = {1, 1},
                                         .dilation = {1, 1},
                                         .pad = {before, after, before, after}},
                             .images = images,
                             .x_size = {pixels, pixels},
                             .y_size = {pixels, pixels},
                             .groups = 1,
                             .x_channels = in,
                             .y_channels = out};
}

#endif
