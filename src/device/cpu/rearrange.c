/* Operations that only move elements: broadcast, transpose, slice, pad, concat, flip, fill, and copies.
 *
 * All of them are strided copies between two dense tensors: out[index . to] = in[start + index . from], over a box.
 * Only the size of an element matters, not its type. A copy is planned once: axes of size 1 are dropped, axes that
 * are contiguous on both sides are merged, and the rest is divided into rows, the innermost axis. There are five
 * kinds of rows:
 *
 *     runs       both strides 1: memcpy
 *     pixels     runs of a few bytes, many along another axis: the channels of a flipped image
 *     repeats    source stride 0: one element repeated
 *     tiles      a large source stride, but stride 1 along another axis: a transpose, copied in blocks of 16 x 16
 *                elements so that every cache line is used completely
 *     strided    anything else, element by element
 *
 * Each element is read and written once; memory traffic is the only cost. */
#include <string.h>

#include "base/number.h"
#include "device/cpu/cpu.h"
#include "device/kit/reordering.h"
#include "graph/walk.h"

typedef struct axis {
    int64_t size, from, to; /* strides in elements */
} axis;

typedef struct copy_plan {
    int64_t element_bytes; /* bytes */
    int64_t from_start, to_start;
    int rank; /* at least 1; the last axis is a row */
    axis axes[TU_MAX_RANK + 1];
    bool tiled;  /* axes [rank - 2] and [rank - 1] are copied in blocks */
    bool pixels; /* axis [rank - 1] is a short run: both last axes are copied together */
} copy_plan;

typedef struct rearrange_data {
    uint32_t count; /* number of copies: one per input of a concatenation */
    copy_plan *copies;
    bool fills;                          /* the output is first filled with `number` */
    _Alignas(8) unsigned char number[8]; /* one element */
    int64_t elements, element_bytes;
} rearrange_data;

/* ---- Planning ---- */

static int64_t abs_i64(int64_t stride) {
    return stride < 0 ? -stride : stride;
}

/* Merges adjacent axes that are contiguous on both sides. */
static void merge_axes(copy_plan *c) {
    int rank = 0;
    for (int i = 0; i < c->rank; i++) {
        axis a = c->axes[i];
        if (a.size == 1) continue;
        axis *last = rank ? &c->axes[rank - 1] : NULL;
        if (last && last->from == a.from * a.size && last->to == a.to * a.size) {
            *last = (axis){last->size * a.size, a.from, a.to};
            continue;
        }
        c->axes[rank++] = a;
    }
    if (rank == 0) c->axes[rank++] = (axis){1, 1, 1};
    c->rank = rank;
}

enum { BLOCK = 16 };

/* Finds a transpose: the row has a large source stride, another axis has source stride 1. Moves that axis next to
 * the row. */
static void find_tiles(copy_plan *c) {
    const axis *row = &c->axes[c->rank - 1];
    if (row->to != 1 || abs_i64(row->from) <= 1) return;
    for (int i = 0; i < c->rank - 1; i++) {
        if (c->axes[i].from != 1 || c->axes[i].size < 4 || row->size < 4) continue;
        axis unit_stride = c->axes[i];
        memmove(&c->axes[i], &c->axes[i + 1], (size_t)(c->rank - 2 - i) * sizeof *c->axes);
        c->axes[c->rank - 2] = unit_stride;
        c->tiled = true;
        return;
    }
}

enum { MAX_PIXEL_BYTES = 16 };

static void find_pixels(copy_plan *c) {
    const axis *row = &c->axes[c->rank - 1];
    c->pixels =
        c->rank > 1 && row->from == 1 && row->to == 1 && row->size * c->element_bytes <= MAX_PIXEL_BYTES;
}

static copy_plan plan_copy(tu_shape box, size_t element_bytes, int64_t from_start, const int64_t *from,
                           int64_t to_start, const int64_t *to) {
    copy_plan c = {.element_bytes = (int64_t)element_bytes,
                   .from_start = from_start,
                   .to_start = to_start,
                   .rank = (int)box.rank};
    for (int64_t i = 0; i < box.rank; i++) c.axes[i] = (axis){box.dim[i], from[i], to[i]};
    merge_axes(&c);
    find_tiles(&c);
    find_pixels(&c);
    return c;
}

/* ---- Copying rows, per element size ---- */

#define EACH_SIZE(X) X(1, uint8_t) X(2, uint16_t) X(4, uint32_t) X(8, uint64_t)

#define COPY_FUNCTIONS(bytes, type)                                                                          \
    static void copy_row_##bytes(int64_t n, const void *from, int64_t from_step, void *to,                   \
                                 int64_t to_step) {                                                          \
        const type *source = from;                                                                           \
        type *target = to;                                                                                   \
        if (from_step == 0 && to_step == 1) {                                                                \
            type element = *source;                                                                          \
            for (int64_t i = 0; i < n; i++) target[i] = element;                                             \
        } else {                                                                                             \
            for (int64_t i = 0; i < n; i++) target[i * to_step] = source[i * from_step];                     \
        }                                                                                                    \
    }                                                                                                        \
    /* target[i * to_step + k] = source[i + k * from_step], i < rows, k < columns */                         \
    static void copy_tile_##bytes(int64_t rows, int64_t columns, const void *from, int64_t from_step,        \
                                  void *to, int64_t to_step) {                                               \
        const type *source = from;                                                                           \
        type *target = to;                                                                                   \
        for (int64_t i = 0; i < rows; i++)                                                                   \
            for (int64_t k = 0; k < columns; k++) target[i * to_step + k] = source[i + k * from_step];       \
    }
EACH_SIZE(COPY_FUNCTIONS)

static void copy_row(int64_t element_bytes, int64_t n, const void *from, int64_t from_step, void *to,
                     int64_t to_step) {
    if (from_step == 1 && to_step == 1) {
        memcpy(to, from, (size_t)(n * element_bytes));
        return;
    }
    switch (element_bytes) {
#define CASE(bytes, type)                                                                                    \
    case bytes: copy_row_##bytes(n, from, from_step, to, to_step); break;
        EACH_SIZE(CASE)
#undef CASE
    default: break;
    }
}

static void copy_tile(int64_t element_bytes, int64_t rows, int64_t columns, const void *from,
                      int64_t from_step, void *to, int64_t to_step) {
    switch (element_bytes) {
#define CASE(bytes, type)                                                                                    \
    case bytes: copy_tile_##bytes(rows, columns, from, from_step, to, to_step); break;
        EACH_SIZE(CASE)
#undef CASE
    default: break;
    }
}

/* Copies `n` runs of `bytes` each; steps in bytes. For the usual sizes, which are constants, memcpy becomes single
 * moves. */
#define EACH_PIXEL(X) X(2) X(3) X(4) X(6) X(8) X(12) X(16)

static void copy_pixels(int64_t n, size_t bytes, const char *from, int64_t from_step, char *to,
                        int64_t to_step) {
    switch (bytes) {
#define CASE(count)                                                                                          \
    case count:                                                                                              \
        for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, count);               \
        return;
        EACH_PIXEL(CASE)
#undef CASE
    default: break;
    }
    for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, bytes);
}

/* ---- Running ---- */

typedef struct copy_call {
    const copy_plan *copy;
    const char *from;
    char *to;
} copy_call;

static int64_t min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Returns the number of work items: rows, strips of BLOCK rows if tiled, or rows of pixels; one per index of the
 * other axes. */
static int64_t count_work_items(const copy_plan *c) {
    int64_t work_items = c->tiled ? (c->axes[c->rank - 2].size + BLOCK - 1) / BLOCK : 1;
    for (int i = 0; i < c->rank - (c->tiled || c->pixels ? 2 : 1); i++) work_items *= c->axes[i].size;
    return work_items;
}

/* Returns the offsets, in elements, of index `work_item` of the outer axes. */
static void offsets_of(const copy_plan *c, int outer, int64_t work_item, int64_t *from, int64_t *to) {
    *from = c->from_start;
    *to = c->to_start;
    for (int i = outer - 1; i >= 0; i--) {
        int64_t index = work_item % c->axes[i].size;
        work_item /= c->axes[i].size;
        *from += index * c->axes[i].from;
        *to += index * c->axes[i].to;
    }
}

static void copy_rows(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const copy_call *m = context;
    const copy_plan *c = m->copy;
    axis row = c->axes[c->rank - 1];
    for (int64_t work_item = first; work_item < last; work_item++) {
        int64_t from, to;
        offsets_of(c, c->rank - 1, work_item, &from, &to);
        copy_row(c->element_bytes, row.size, m->from + from * c->element_bytes, row.from,
                 m->to + to * c->element_bytes, row.to);
    }
}

static void copy_pixel_rows(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const copy_call *m = context;
    const copy_plan *c = m->copy;
    axis row = c->axes[c->rank - 1], along = c->axes[c->rank - 2];
    for (int64_t work_item = first; work_item < last; work_item++) {
        int64_t from, to;
        offsets_of(c, c->rank - 2, work_item, &from, &to);
        copy_pixels(along.size, (size_t)(row.size * c->element_bytes), m->from + from * c->element_bytes,
                    along.from * c->element_bytes, m->to + to * c->element_bytes,
                    along.to * c->element_bytes);
    }
}

static void copy_strips(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const copy_call *m = context;
    const copy_plan *c = m->copy;
    axis row = c->axes[c->rank - 1], strip_axis = c->axes[c->rank - 2];
    int64_t strips = (strip_axis.size + BLOCK - 1) / BLOCK;
    for (int64_t work_item = first; work_item < last; work_item++) {
        int64_t from, to, begin = work_item % strips * BLOCK;
        offsets_of(c, c->rank - 2, work_item / strips, &from, &to);
        from += begin * strip_axis.from;
        to += begin * strip_axis.to;
        int64_t rows = min_i64(BLOCK, strip_axis.size - begin);
        for (int64_t column = 0; column < row.size; column += BLOCK)
            copy_tile(c->element_bytes, rows, min_i64(BLOCK, row.size - column),
                      m->from + (from + column * row.from) * c->element_bytes, row.from,
                      m->to + (to + column) * c->element_bytes, strip_axis.to);
    }
}

enum { GRAIN_BYTES = 1 << 15 };

/* Copies a part of one long run, which is divided among the threads. */
static void copy_run(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const copy_call *m = context;
    const copy_plan *c = m->copy;
    axis row = c->axes[0];
    copy_row(c->element_bytes, last - first, m->from + (c->from_start + first * row.from) * c->element_bytes,
             row.from, m->to + (c->to_start + first * row.to) * c->element_bytes, row.to);
}

static int64_t grain_for(int64_t unit_bytes) {
    return unit_bytes >= GRAIN_BYTES ? 1 : GRAIN_BYTES / (unit_bytes ? unit_bytes : 1);
}

static void run_copy(const copy_plan *c, const void *from, void *to) {
    copy_call m = {c, from, to};
    int64_t work_items = count_work_items(c), row_bytes = c->axes[c->rank - 1].size * c->element_bytes;
    if (c->rank == 1)
        tu__parallel_for(c->axes[0].size, grain_for(c->element_bytes), copy_run, &m);
    else if (c->tiled)
        tu__parallel_for(work_items, grain_for(row_bytes * BLOCK), copy_strips, &m);
    else if (c->pixels)
        tu__parallel_for(work_items, grain_for(row_bytes * c->axes[c->rank - 2].size), copy_pixel_rows, &m);
    else
        tu__parallel_for(work_items, grain_for(row_bytes), copy_rows, &m);
}

static tu_status run_rearrange(const tu__kernel *k) {
    const rearrange_data *d = k->data;
    if (d->fills) {
        copy_plan fill = {.element_bytes = d->element_bytes, .rank = 1, .axes = {{d->elements, 0, 1}}};
        run_copy(&fill, d->number, k->out[0]);
    }
    for (uint32_t i = 0; i < d->count; i++) run_copy(&d->copies[i], k->in[i], k->out[0]);
    return TU_OK;
}

/* ---- Lowering rules ---- */

/* Makes a kernel with room for `count` copies from the given inputs to output 0 of the node. */
static rearrange_data *new_rearrange_kernel(tu__selection *s, const tu__node *node, uint32_t count,
                                            const tu__edge *inputs) {
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_rearrange);
    rearrange_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return NULL;
    d->count = count;
    d->copies = tu__arena_alloc(&s->arena, (count + 1) * sizeof *d->copies);
    d->element_bytes = (int64_t)tu_dtype_size(node->outputs[0].dtype);
    d->elements = tu_shape_elements(node->outputs[0].shape);
    for (uint32_t i = 0; i < count; i++)
        if (tu__kernel_read(k, inputs[i]) != TU_OK) return NULL;
    if (!d->copies || tu__kernel_write(k, (tu__edge){node->id, 0}, -1) != TU_OK) return NULL;
    k->bytes_moved = 2 * d->elements * d->element_bytes;
    return d;
}

/* Broadcast, transpose, slice, flip: one copy from input 0 to the output. */
tu_status cpu_lower_reordering(tu__selection *s, const tu__node *node) {
    rearrange_data *d = new_rearrange_kernel(s, node, 1, node->inputs);
    if (!d) return TU_NO_MEMORY;
    tu__reordering from = tu__reordering_of(s, node);
    int64_t dense[TU_MAX_RANK] = {0};
    tu__strides(node->outputs[0].shape, dense);
    d->copies[0] =
        plan_copy(node->outputs[0].shape, (size_t)d->element_bytes, from.start, from.strides, 0, dense);
    return TU_OK;
}

static void set_number(rearrange_data *d, tu_dtype dtype, double number) {
    d->fills = true;
    tu__store(dtype, d->number, 0, number);
}

tu_status cpu_lower_fill(tu__selection *s, const tu__node *node) {
    rearrange_data *d = new_rearrange_kernel(s, node, 0, NULL);
    if (!d) return TU_NO_MEMORY;
    set_number(d, node->outputs[0].dtype, tu__attrs(node, fill)->number);
    return TU_OK;
}

/* Fills the whole output, then copies x: writes x's part twice, but pads are small. */
tu_status cpu_lower_pad(tu__selection *s, const tu__node *node) {
    const struct tu__pad_attrs *attrs = tu__attrs(node, pad);
    tu_shape from = tu__type_of(s, node->inputs[0])->shape;
    int64_t from_strides[TU_MAX_RANK] = {0}, to_strides[TU_MAX_RANK] = {0}, start = 0;
    rearrange_data *d = new_rearrange_kernel(s, node, 1, node->inputs);
    if (!d) return TU_NO_MEMORY;
    tu__strides(from, from_strides);
    tu__strides(node->outputs[0].shape, to_strides);
    for (int64_t i = 0; i < from.rank; i++) {
        start += attrs->before[i] * to_strides[i];
        /* A single element has no next one, so its stride does not matter, however large the gap. */
        to_strides[i] = from.dim[i] > 1 ? to_strides[i] * (attrs->between[i] + 1) : 0;
    }
    set_number(d, node->outputs[0].dtype, attrs->number);
    d->copies[0] = plan_copy(from, (size_t)d->element_bytes, 0, from_strides, start, to_strides);
    return TU_OK;
}

tu_status cpu_lower_concat(tu__selection *s, const tu__node *node) {
    int64_t axis_joined = tu__attrs(node, concat)->axis, start = 0;
    int64_t to[TU_MAX_RANK] = {0};
    rearrange_data *d = new_rearrange_kernel(s, node, node->input_count, node->inputs);
    if (!d) return TU_NO_MEMORY;
    tu__strides(node->outputs[0].shape, to);
    for (uint32_t i = 0; i < node->input_count; i++) {
        tu_shape input = tu__type_of(s, node->inputs[i])->shape;
        int64_t from[TU_MAX_RANK] = {0};
        tu__strides(input, from);
        d->copies[i] = plan_copy(input, (size_t)d->element_bytes, 0, from, start, to);
        start += input.dim[axis_joined] * to[axis_joined];
    }
    return TU_OK;
}

tu_status cpu_lower_copy(tu__selection *s, tu__edge from, tu__edge to) {
    const tu__node *node = s->graph->nodes[to.node];
    tu__kernel *k = tu__kernel_new(s, node, "copy", run_rearrange);
    rearrange_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    const tu_type *type = tu__type_of(s, to);
    d->count = 1;
    d->copies = tu__arena_alloc(&s->arena, sizeof *d->copies);
    if (!d->copies) return TU_NO_MEMORY;
    *d->copies = (copy_plan){.element_bytes = (int64_t)tu_dtype_size(type->dtype),
                             .rank = 1,
                             .axes = {{tu_shape_elements(type->shape), 1, 1}}};
    k->bytes_moved = 2 * (int64_t)tu_type_bytes(*type);
    TU_TRY(tu__kernel_read(k, from));
    return tu__kernel_write(k, to, -1);
}
