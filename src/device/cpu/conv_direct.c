/* Convolution by our own tiles.
 *
 * In NHWC the values under one row of a filter, kw * channels of them, lie beside each other, and so do the values
 * under the same row one pixel further. A convolution is therefore a matrix product whose left matrix is the image
 * itself, read through strides: no im2col matrix is written. All that has to be prepared is
 *
 *   the filter   packed into panels [k, some vectors of output channels], once for the whole batch: 8 bytes moved for
 *                thousands of multiply-adds;
 *   the edges    where a filter hangs over the image. With few channels the image is copied with its padding around
 *                it, one at a time, into memory that stays in the core's cache, and no tile meets an edge. With
 *                more (CPU_DIRECT_EXACT_CHANNELS) the taps that hang over are left out, which saves their arithmetic
 *                (a fifth for 5x5 over 12x12 pixels): a tile at an edge is made of pieces, each over the taps that
 *                its rows share.
 *
 * The three faces of the convolution (src/graph/ops/conv.c) become
 *
 *   y       rows of a tile are neighbouring pixels of y, k the taps and channels of x;
 *   x       the same over y, with the taps in reverse. With a stride, pixels of x fall into stride^2 phases; all of
 *           one phase meet the same taps, and nothing is multiplied by the zeros between strides;
 *   filter  rows of a tile are neighbouring taps and channels, k the pixels of y. Each worker adds up its images in a
 *           matrix of its own; the matrices are then added in the workers' order, so bits depend on the width alone.
 *
 * Work is dealt out by images, by bands of rows where there are few images, and for large filters by taps.
 */
#include "device/cpu/conv_direct_plan.h"

#include <string.h>

enum {
    MAX_PHASES = 64,
    MAX_SCRATCH = 64 << 20 /* bytes of a padded image: beyond, padding is not worth copying */
};

/* ---- Panels: columns in pieces of a few vectors ---- */

void cpu_direct_plan_panels(cpu_direct *d) {
    d->panel_vectors = (d->columns + d->loops->vector - 1) / d->loops->vector;
    d->panels = (d->panel_vectors + d->loops->most_vectors - 1) / d->loops->most_vectors;
}

panel cpu_direct_panel(const cpu_direct *d, int64_t i) {
    int64_t first = part_start(d->panel_vectors, d->panels, i) * d->loops->vector;
    int64_t end = part_start(d->panel_vectors, d->panels, i + 1) * d->loops->vector;
    return (panel){first, smaller(end, d->columns) - first, end - first};
}

/* ---- Tiles: `rows` rows beside each other, cut into as many as registers hold ---- */

void cpu_direct_rows(const cpu_gemm_loops *loops, cpu_gemm_tile t, int64_t rows) {
    int64_t most = loops->most_rows[(t.columns + loops->vector - 1) / loops->vector];
    int64_t parts = (rows + most - 1) / most;
    const char *a = t.a;
    char *c = t.c;
    for (int64_t i = 0; i < parts; i++) {
        int64_t first = part_start(rows, parts, i);
        t.rows = part_start(rows, parts, i + 1) - first;
        t.a = a + first * t.a_row * loops->bytes;
        t.c = c + first * t.c_row * loops->bytes;
        loops->tile(&t);
    }
}

/* ---- Padding ---- */

int64_t cpu_direct_padded_elements(const padded *p, int64_t rows) {
    return rows * p->full[1] * p->channels;
}

const char *cpu_direct_pad(const padded *p, int bytes, const char *image, int64_t first, int64_t last,
                           char *scratch) {
    int64_t pixel = p->channels * bytes, row_bytes = p->full[1] * pixel;
    if (p->as_is) return image + first * row_bytes;
    int64_t from = larger(0, -p->before[1]), left = larger(0, p->before[1]);
    int64_t copied = larger(0, smaller(p->size[1] - from, p->full[1] - left));
    for (int64_t r = first; r < last; r++) {
        char *to = scratch + (r - first) * row_bytes;
        int64_t row = r - p->before[0];
        if (row < 0 || row >= p->size[0] || copied == 0) {
            memset(to, 0, (size_t)row_bytes);
            continue;
        }
        memset(to, 0, (size_t)(left * pixel));
        memcpy(to + left * pixel, image + (row * p->size[1] + from) * pixel, (size_t)(copied * pixel));
        memset(to + (left + copied) * pixel, 0, (size_t)(row_bytes - (left + copied) * pixel));
    }
    return scratch;
}

void cpu_direct_plan_padding(padded *p) {
    p->as_is = p->before[0] == 0 && p->before[1] == 0 && p->full[0] <= p->size[0] && p->full[1] == p->size[1];
}

/* ---- The interface ---- */

/* Paddings, strides and windows may be any numbers that a file can hold: beyond these the reference is as good. */
static bool worth_planning(const cpu_gemm_loops *loops, const cpu_convolution *c) {
    const tu__windows *w = &c->windows;
    int64_t elements =
        loops->bytes * c->groups * (c->x_channels > c->y_channels ? c->x_channels : c->y_channels);
    for (int i = 0; i < 2; i++) {
        int64_t extent = 1;
        if (w->size[i] > 1024 || w->dilation[i] > 1024 || w->stride[i] > 1024 || w->pad[2 * i] > (1 << 20) ||
            w->pad[2 * i + 1] > (1 << 20))
            return false;
        extent = larger(c->x_size[i], c->y_size[i] * w->stride[i]) + w->size[i] * w->dilation[i] +
                 w->pad[2 * i] + w->pad[2 * i + 1];
        if (__builtin_mul_overflow(elements, extent, &elements)) return false;
    }
    return w->stride[0] * w->stride[1] <= MAX_PHASES && elements <= MAX_SCRATCH;
}

tu_status cpu_direct_new(tu__arena *arena, const cpu_gemm_loops *loops, const cpu_convolution *convolution,
                         cpu_convolution_side side, int threads, cpu_direct **plan) {
    *plan = NULL;
    if (!worth_planning(loops, convolution)) return TU_OK;
    cpu_direct *d = tu__arena_alloc(arena, sizeof *d);
    if (!d) return TU_NO_MEMORY;
    d->loops = loops;
    d->side = side;
    d->shape = *convolution;
    d->threads = threads;
    d->taps = convolution->windows.size[0] * convolution->windows.size[1];
    TU_TRY((side == CPU_CONV_FILTER ? cpu_direct_plan_filter : cpu_direct_plan_gather)(arena, d));
    *plan = d;
    return TU_OK;
}

size_t cpu_direct_workspace(const cpu_direct *d) {
    return d->packed_bytes + (size_t)d->threads * (d->scratch_bytes + d->y_bytes);
}

void cpu_direct_run(const cpu_direct *d, const cpu_direct_operands *operands) {
    (d->side == CPU_CONV_FILTER ? cpu_direct_filter : cpu_direct_gather)(d, operands);
}
