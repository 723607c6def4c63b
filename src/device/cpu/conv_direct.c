/* Direct convolution.
 *
 * In NHWC the kw * channels values under one row of a filter are contiguous, and so are the values under the same
 * row for the next pixel. A convolution is therefore a matrix product whose left matrix is the image itself, read
 * through strides: no im2col matrix is written. Only these are prepared:
 *
 *   the filter    packed into panels [k, some vectors of output channels], once per batch: 8 bytes moved for
 *                 thousands of multiply-adds;
 *   the borders   with few channels, the image is copied with its padding, one at a time, into memory that stays in
 *                 the core's cache. With more channels (CPU_DIRECT_UNPADDED_CHANNELS) out-of-bounds taps are skipped,
 *                 which saves their arithmetic (a fifth for 5x5 over 12x12 pixels): a tile at a border consists of
 *                 segments, each over the taps that are in bounds for its rows.
 *
 * The three results of a convolution (src/graph/ops/conv.c):
 *
 *   y       rows of a tile are adjacent pixels of y, k runs over the taps and channels of x;
 *   dx      the same over dy, with the taps in reverse order. With a stride, the pixels of x form stride^2 phases;
 *           all pixels of a phase have the same taps, and nothing is multiplied by the zeros between strides;
 *   filter  rows of a tile are adjacent taps and channels, k runs over the pixels of y. Each worker sums its images
 *           into a matrix of its own; the matrices are then added in the order of the workers, so the bits depend
 *           only on the number of threads.
 *
 * Work is divided by images, by bands of rows if there are few images, and for large filters by taps. */
#include "device/cpu/conv_direct_plan.h"

#include <string.h>

enum {
    MAX_PHASES = 64,
    MAX_SCRATCH = 64 << 20 /* maximum bytes of a padded image */
};

/* ---- Panels: groups of columns, a few vectors wide ---- */

void cpu_direct_plan_panels(cpu_direct *plan) {
    plan->panel_vectors = cpu_panel_vectors(plan->loops, plan->columns);
    plan->panels = cpu_panel_count(plan->loops, plan->columns);
}

cpu_panel cpu_direct_panel(const cpu_direct *plan, int64_t i) {
    return cpu_panel_at(plan->loops, plan->columns, i);
}

/* ---- Padding ---- */

int64_t cpu_direct_padded_elements(const padded *p, int64_t rows) {
    return rows * p->padded_size[1] * p->channels;
}

const char *cpu_direct_pad(const padded *p, int bytes, const char *image, int64_t first, int64_t last,
                           char *scratch) {
    int64_t pixel = p->channels * bytes, row_bytes = p->padded_size[1] * pixel;
    if (p->is_unpadded) return image + first * row_bytes;
    int64_t from = max_i64(0, -p->before[1]), left = max_i64(0, p->before[1]);
    int64_t copied = max_i64(0, min_i64(p->size[1] - from, p->padded_size[1] - left));
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
    p->is_unpadded = p->before[0] == 0 && p->before[1] == 0 && p->padded_size[0] <= p->size[0] &&
                     p->padded_size[1] == p->size[1];
}

/* ---- The interface ---- */

/* A file may contain any padding, stride and window. Beyond these limits the reference kernel is used. */
static bool is_worth_planning(const cpu_gemm_loops *loops, const cpu_convolution *c) {
    const tu__windows *w = &c->windows;
    int64_t elements =
        loops->element_bytes * c->groups * (c->x_channels > c->y_channels ? c->x_channels : c->y_channels);
    for (int i = 0; i < 2; i++) {
        int64_t extent = 1;
        if (w->size[i] > 1024 || w->dilation[i] > 1024 || w->stride[i] > 1024 || w->pad[2 * i] > (1 << 20) ||
            w->pad[2 * i + 1] > (1 << 20))
            return false;
        extent = max_i64(c->x_size[i], c->y_size[i] * w->stride[i]) + w->size[i] * w->dilation[i] +
                 w->pad[2 * i] + w->pad[2 * i + 1];
        if (__builtin_mul_overflow(elements, extent, &elements)) return false;
    }
    return w->stride[0] * w->stride[1] <= MAX_PHASES && elements <= MAX_SCRATCH;
}

tu_status cpu_direct_new(tu__arena *arena, const cpu_gemm_loops *loops, const cpu_convolution *convolution,
                         cpu_conv_result result, int threads, cpu_direct **new_plan) {
    *new_plan = NULL;
    if (!is_worth_planning(loops, convolution)) return TU_OK;
    cpu_direct *plan = tu__arena_alloc(arena, sizeof *plan);
    if (!plan) return TU_NO_MEMORY;
    plan->loops = loops;
    plan->computes = result;
    plan->shape = *convolution;
    plan->threads = threads;
    plan->taps = convolution->windows.size[0] * convolution->windows.size[1];
    TU_TRY((result == CPU_CONV_DW ? cpu_direct_plan_filter : cpu_direct_plan_output)(arena, plan));
    *new_plan = plan;
    return TU_OK;
}

void cpu_direct_use_packed(cpu_direct *plan) {
    plan->is_packed = true;
    plan->packed_bytes = 0;
}

size_t cpu_direct_workspace(const cpu_direct *plan) {
    return plan->packed_bytes + (size_t)plan->threads * (plan->scratch_bytes + plan->y_bytes);
}

void cpu_direct_run(const cpu_direct *plan, const cpu_direct_operands *operands) {
    (plan->computes == CPU_CONV_DW ? cpu_direct_filter : cpu_direct_output)(plan, operands);
}
