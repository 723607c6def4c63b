/* Operations that only copy elements: broadcast, transpose, slice, pad, concat, flip, roll, fill, band, and plain
 * copies.
 *
 * All but concat and roll compute, for every element of the dense result, the offset of its source: a start and one
 * stride per axis. A pad adds elements without a source. Such a copy is planned once. Axes of size 1 are dropped and
 * axes that both sides traverse as one are merged. If the last axis is contiguous on both sides, elements are copied
 * in words of up to 16 bytes. If it is not, but another axis of the source is contiguous, the copy is a transpose and
 * is done in tiles.
 */
#include <string.h>

#include "base/number.h"
#include "device/cuda/ops/extent.h"
#include "device/cuda/ops/ops.h"
#include "device/cuda/runtime/cuda.h"
#include "device/kit/reordering.h"
#include "graph/walk.h"

#include "device/cuda/kernels/rearrange_args.h"

static tu_type input_type(const tu__selection *s, const tu__node *node, uint32_t index) {
    return *tu__type_of(s, node->inputs[index]);
}

/* Repeats the number's element over 8 bytes. */
static unsigned long long pattern_of(tu_dtype dtype, double number) {
    unsigned long long pattern = 0;
    size_t bytes = tu_dtype_size(dtype);
    for (size_t i = 0; i < sizeof pattern / bytes; i++) tu__store(dtype, &pattern, (int64_t)i, number);
    return pattern;
}

static int64_t total_bytes(const tu__selection *s, const tu__node *node) {
    int64_t bytes = (int64_t)tu_type_bytes(node->outputs[0]);
    for (uint32_t i = 0; i < node->input_count; i++) bytes += (int64_t)tu_type_bytes(input_type(s, node, i));
    return bytes;
}

/* Reads every input of the node and writes its result. */
static tu_status add_operands(tu__kernel *k, const tu__node *node) {
    k->bytes_moved = total_bytes(k->owner, node);
    for (uint32_t i = 0; i < node->input_count; i++) TU_TRY(tu__kernel_read(k, node->inputs[i]));
    return tu__kernel_write(k, (tu__edge){node->id, 0}, -1);
}

/* ---- Planning ---- */

/* Like copy_axis (kernels/rearrange_args.h), before words are widened. */
typedef struct axis {
    int64_t size, from, before, extent_in_source, step;
} axis;

typedef struct copy_plan {
    size_t word; /* bytes */
    int64_t start;
    int rank;
    axis axes[TU_MAX_RANK];
    bool has_padding;
    unsigned long long pattern; /* of the padding: one element, repeated over 8 bytes */
} copy_plan;

static axis plain_axis(int64_t size, int64_t from) {
    return (axis){size, from, 0, size, 1};
}

static bool is_plain(axis a) {
    return a.extent_in_source == a.size && a.step == 1;
}

static void merge_axes(copy_plan *p) {
    int rank = 0;
    for (int i = 0; i < p->rank; i++) {
        axis a = p->axes[i], *last = rank ? &p->axes[rank - 1] : NULL;
        if (a.size == 1) continue;
        if (last && is_plain(a) && last->step == 1 && last->from == a.from * a.size)
            *last = (axis){last->size * a.size, a.from, last->before * a.size,
                           last->extent_in_source * a.size, 1};
        else
            p->axes[rank++] = a;
    }
    if (rank == 0) p->axes[rank++] = plain_axis(1, 1);
    p->rank = rank;
}

static bool can_widen(const copy_plan *p, int64_t per_word) {
    const axis *run = &p->axes[p->rank - 1];
    bool is_possible = run->from == 1 && run->step == 1 && run->size % per_word == 0 &&
                       run->before % per_word == 0 && run->extent_in_source % per_word == 0 &&
                       p->start % per_word == 0;
    for (int i = 0; is_possible && i < p->rank - 1; i++) is_possible = p->axes[i].from % per_word == 0;
    return is_possible;
}

/* Combines as many neighbouring elements into one word as possible. */
static void widen_words(copy_plan *p) {
    int64_t per_word = 16 / (int64_t)p->word;
    while (per_word > 1 && !can_widen(p, per_word)) per_word /= 2;
    if (per_word == 1) return;
    axis *run = &p->axes[p->rank - 1];
    run->size /= per_word, run->before /= per_word, run->extent_in_source /= per_word;
    for (int i = 0; i < p->rank - 1; i++) p->axes[i].from /= per_word;
    p->start /= per_word;
    p->word *= (size_t)per_word;
}

static int64_t elements_of(const copy_plan *p) {
    int64_t count = 1;
    for (int i = 0; i < p->rank; i++) count *= p->axes[i].size;
    return count;
}

/* ---- Copies with any strides ---- */

typedef struct copy_data {
    copy_args args;
    cuda_function *function;
    int words_per_store; /* by one thread */
} copy_data;

static tu_status run_strided(const tu__kernel *k) {
    const copy_data *d = k->data;
    copy_args a = d->args;
    a.x = k->in[0], a.y = k->out[0];
    return cuda_launch(k, d->function,
                       cuda_grid_for(k, (a.count + d->words_per_store - 1) / d->words_per_store), &a);
}

static tu_status lower_strided(tu__selection *s, const tu__node *node, const copy_plan *p) {
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_strided);
    copy_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    d->words_per_store = p->word < 4 ? 4 / (int)p->word : 1;
    d->args = (copy_args){.count = elements_of(p), .start = p->start, .pattern = p->pattern, .rank = p->rank};
    for (int i = 0; i < p->rank; i++) {
        axis a = p->axes[i];
        d->args.axes[i] = (copy_axis){.size = cuda_extent(a.size),
                                      .from = a.from,
                                      .before = a.before,
                                      .extent_in_source = a.extent_in_source,
                                      .step = cuda_extent(a.step)};
    }
    d->function =
        cuda_request(s, "rearrange", "copy_elements<%s, %d, %s, %s>", cuda_word(p->word), d->words_per_store,
                     cuda_index_type(d->args.count + d->words_per_store), p->has_padding ? "true" : "false");
    return d->function ? add_operands(k, node) : TU_NO_MEMORY;
}

/* ---- Transposes ---- */

enum { MIN_TILED = 8, TILE_THREADS = 256 };

typedef struct tile_data {
    tile_args args;
    cuda_function *function;
} tile_data;

/* As tile_of in kernels/rearrange.cu. */
static int64_t tile_side(size_t word) {
    return word < 4 ? 64 : 32;
}

/* Returns the axis along which the source is contiguous if the result's last axis is not and both are long enough;
 * else -1. */
static int contiguous_source_axis(const copy_plan *p) {
    const axis *along = &p->axes[p->rank - 1];
    if (p->has_padding || along->size < MIN_TILED || along->from == 0 || along->from == 1 ||
        along->from == -1)
        return -1;
    for (int i = 0; i < p->rank - 1; i++)
        if (p->axes[i].from == 1 && p->axes[i].size >= MIN_TILED) return i;
    return -1;
}

static int64_t tiles_of(const copy_plan *p, int across) {
    int64_t side = tile_side(p->word), count = 1;
    for (int i = 0; i < p->rank; i++) {
        bool is_tiled = i == across || i == p->rank - 1;
        count *= is_tiled ? (p->axes[i].size + side - 1) / side : p->axes[i].size;
    }
    return count;
}

static tu_status run_tiles(const tu__kernel *k) {
    const tile_data *d = k->data;
    tile_args a = d->args;
    unsigned limit = 32 * (unsigned)cuda_of(k)->multiprocessors;
    a.x = k->in[0], a.y = k->out[0];
    cuda_grid grid = {.blocks = {a.tiles < limit ? a.tiles : limit}, .threads = TILE_THREADS};
    return cuda_launch(k, d->function, grid, &a);
}

static tile_args tile_arguments(const copy_plan *p, int across, const int64_t *to) {
    const axis *along = &p->axes[p->rank - 1];
    int64_t side = tile_side(p->word);
    tile_args a = {.start = p->start,
                   .along = along->size,
                   .along_from = along->from,
                   .across = p->axes[across].size,
                   .across_to = to[across],
                   .tiles = (unsigned)tiles_of(p, across),
                   .tiles_along = cuda_fast_divmod((uint32_t)((along->size + side - 1) / side)),
                   .tiles_across = cuda_fast_divmod((uint32_t)((p->axes[across].size + side - 1) / side))};
    for (int i = 0; i < p->rank - 1; i++)
        if (i != across) a.axes[a.rank++] = (tile_axis){cuda_extent(p->axes[i].size), p->axes[i].from, to[i]};
    return a;
}

static tu_status lower_tiles(tu__selection *s, const tu__node *node, const copy_plan *p, int across) {
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_tiles);
    tile_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    int64_t to[TU_MAX_RANK] = {0};
    for (int64_t i = p->rank - 1, stride = 1; i >= 0; stride *= p->axes[i--].size) to[i] = stride;
    d->args = tile_arguments(p, across, to);
    d->function = cuda_request(s, "rearrange", "copy_tiles<%s>", cuda_word(p->word));
    return d->function ? add_operands(k, node) : TU_NO_MEMORY;
}

/* ---- Lowering rules of strided copies ---- */

static tu_status lower_planned(tu__selection *s, const tu__node *node, copy_plan *p) {
    p->word = tu_dtype_size(node->outputs[0].dtype);
    merge_axes(p);
    int across = contiguous_source_axis(p);
    if (across >= 0 && cuda_fits_u32(tiles_of(p, across))) return lower_tiles(s, node, p, across);
    widen_words(p);
    return lower_strided(s, node, p);
}

/* Lowers broadcast, transpose, slice and flip. */
tu_status cuda_lower_reordering(tu__selection *s, const tu__node *node) {
    tu_shape shape = node->outputs[0].shape;
    tu__reordering from = tu__reordering_of(s, node);
    copy_plan p = {.start = from.start, .rank = (int)shape.rank};
    for (int64_t i = 0; i < shape.rank; i++) p.axes[i] = plain_axis(shape.dim[i], from.strides[i]);
    return lower_planned(s, node, &p);
}

tu_status cuda_lower_pad(tu__selection *s, const tu__node *node) {
    const struct tu__pad_attrs *attrs = tu__attrs(node, pad);
    tu_shape from = input_type(s, node, 0).shape, to = node->outputs[0].shape;
    int64_t strides[TU_MAX_RANK] = {0};
    copy_plan p = {.rank = (int)to.rank, .pattern = pattern_of(node->outputs[0].dtype, attrs->number)};
    tu__strides(from, strides);
    for (int64_t i = 0; i < to.rank; i++) {
        /* A single element has no gap after it. */
        int64_t step = from.dim[i] > 1 ? attrs->between[i] + 1 : 1;
        p.axes[i] = (axis){.size = to.dim[i],
                           .from = strides[i],
                           .before = attrs->before[i],
                           .extent_in_source = (from.dim[i] - 1) * step + 1,
                           .step = step};
        p.has_padding |= to.dim[i] != from.dim[i];
    }
    return lower_planned(s, node, &p);
}

/* ---- Concatenation of rows ---- */

typedef struct concat_data {
    size_t word;
    int64_t rows, row; /* of the result, in words */
    uint32_t part_count;
    struct part {
        uint32_t read; /* index of the input */
        int64_t start, stride,
            end; /* in words: offset in its input, distance of rows, and end in a row of the result */
    } * parts;
    cuda_function *function;
} concat_data;

/* Copies the parts [first, last) with one launch. */
static tu_status concat_some(const tu__kernel *k, uint32_t first, uint32_t last) {
    const concat_data *d = k->data;
    int64_t begin = first ? d->parts[first - 1].end : 0, span = d->parts[last - 1].end - begin;
    concat_args a = {.y = k->out[0],
                     .count = d->rows * span,
                     .span = cuda_extent(span),
                     .row = d->row,
                     .start = begin,
                     .parts = (int)(last - first)};
    for (uint32_t i = first; i < last; i++) {
        const struct part *part = &d->parts[i];
        const char *from = k->in[part->read];
        a.part[i - first] =
            (concat_part){from + (size_t)part->start * d->word, part->stride, part->end - begin};
    }
    return cuda_launch(k, d->function, cuda_grid_for(k, a.count), &a);
}

static tu_status run_concat(const tu__kernel *k) {
    const concat_data *d = k->data;
    for (uint32_t first = 0; first < d->part_count; first += CONCAT_MAX_PARTS) {
        uint32_t left = d->part_count - first;
        TU_TRY(concat_some(k, first, first + (left < CONCAT_MAX_PARTS ? left : CONCAT_MAX_PARTS)));
    }
    return TU_OK;
}

/* `parts` are in elements. Uses the widest words that divide all of them. */
static tu_status lower_concat_rows(tu__selection *s, const tu__node *node, int64_t rows, uint32_t count,
                                   struct part *parts) {
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_concat);
    concat_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    int64_t element = (int64_t)tu_dtype_size(node->outputs[0].dtype), combined = 0;
    for (uint32_t i = 0; i < count; i++) combined |= parts[i].start | parts[i].stride | parts[i].end;
    d->word = cuda_widest_word(combined * element);
    for (uint32_t i = 0; i < count; i++) {
        parts[i].start = parts[i].start * element / (int64_t)d->word;
        parts[i].stride = parts[i].stride * element / (int64_t)d->word;
        parts[i].end = parts[i].end * element / (int64_t)d->word;
    }
    d->rows = rows, d->row = parts[count - 1].end, d->part_count = count, d->parts = parts;
    d->function = cuda_request(s, "rearrange", "concat_rows<%s, %s>", cuda_word(d->word),
                               cuda_index_type(rows * d->row));
    return d->function ? add_operands(k, node) : TU_NO_MEMORY;
}

tu_status cuda_lower_concat(tu__selection *s, const tu__node *node) {
    int64_t axis_index = tu__attrs(node, concat)->axis, end = 0;
    struct part *parts = tu__arena_alloc(&s->arena, node->input_count * sizeof *parts);
    if (!parts) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < node->input_count; i++) {
        tu__lanes lanes = tu__lanes_of(input_type(s, node, i).shape, axis_index);
        int64_t run = lanes.size * lanes.inner;
        end += run;
        parts[i] = (struct part){.read = i, .stride = run, .end = end};
    }
    return lower_concat_rows(s, node, tu__lanes_of(node->outputs[0].shape, axis_index).outer,
                             node->input_count, parts);
}

/* The end of each row comes first, then the rest. */
tu_status cuda_lower_roll(tu__selection *s, const tu__node *node) {
    const struct tu__roll_attrs *attrs = tu__attrs(node, roll);
    tu__lanes lanes = tu__lanes_of(node->outputs[0].shape, attrs->axis);
    int64_t row = lanes.size * lanes.inner, first = attrs->shift * lanes.inner;
    struct part *parts = tu__arena_alloc(&s->arena, 2 * sizeof *parts);
    if (!parts) return TU_NO_MEMORY;
    uint32_t count = 0;
    if (first) parts[count++] = (struct part){.start = row - first, .stride = row, .end = first};
    parts[count++] = (struct part){.stride = row, .end = row};
    return lower_concat_rows(s, node, lanes.outer, count, parts);
}

/* ---- Fills ---- */

typedef struct fill_data {
    fill_args args;
    size_t word;
    cuda_function *function; /* NULL: zeros, by cuMemsetD8Async */
} fill_data;

static tu_status run_fill(const tu__kernel *k) {
    const fill_data *d = k->data;
    fill_args a = d->args;
    a.y = k->out[0];
    if (!d->function) return cuda_clear(k, a.y, (size_t)a.count * d->word);
    return cuda_launch(k, d->function, cuda_grid_for(k, a.count), &a);
}

tu_status cuda_lower_fill(tu__selection *s, const tu__node *node) {
    tu__kernel *k = tu__kernel_new(s, node, "fill", run_fill);
    fill_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    int64_t bytes = (int64_t)tu_type_bytes(node->outputs[0]);
    d->word = cuda_widest_word(bytes);
    d->args = (fill_args){.count = bytes / (int64_t)d->word,
                          .pattern = pattern_of(node->outputs[0].dtype, tu__attrs(node, fill)->number)};
    if (d->args.pattern) {
        d->function = cuda_request(s, "rearrange", "fill<%s>", cuda_word(d->word));
        if (!d->function) return TU_NO_MEMORY;
    }
    return add_operands(k, node);
}

/* ---- Band matrices ---- */

typedef struct band_data {
    band_args args;
    cuda_function *function;
} band_data;

static tu_status run_band(const tu__kernel *k) {
    const band_data *d = k->data;
    band_args a = d->args;
    a.x = k->in[0], a.y = k->out[0];
    return cuda_launch(k, d->function, cuda_grid_for(k, a.count), &a);
}

tu_status cuda_lower_band(tu__selection *s, const tu__node *node) {
    tu__kernel *k = tu__kernel_new(s, node, "band", run_band);
    band_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    tu_type type = node->outputs[0];
    d->args = (band_args){.count = tu_shape_elements(type.shape),
                          .rows = cuda_extent(type.shape.dim[type.shape.rank - 2]),
                          .columns = cuda_extent(type.shape.dim[type.shape.rank - 1]),
                          .below = tu__attrs(node, band)->below,
                          .above = tu__attrs(node, band)->above};
    d->function = cuda_request(s, "rearrange", "band<%s, %s>", cuda_word(tu_dtype_size(type.dtype)),
                               cuda_index_type(d->args.count));
    return d->function ? add_operands(k, node) : TU_NO_MEMORY;
}

/* ---- Plain copies ---- */

static tu_status run_copy(const tu__kernel *k) {
    return cuda_copy(k, k->out[0], k->in[0], *(const size_t *)k->data);
}

tu_status cuda_lower_copy(tu__selection *s, tu__edge from, tu__edge to) {
    tu__kernel *k = tu__kernel_new(s, s->graph->nodes[to.node], "copy", run_copy);
    size_t *bytes = k ? tu__kernel_data(k, sizeof *bytes) : NULL;
    if (!bytes) return TU_NO_MEMORY;
    *bytes = tu_type_bytes(*tu__type_of(s, to));
    k->bytes_moved = 2 * (int64_t)*bytes;
    TU_TRY(tu__kernel_read(k, from));
    return tu__kernel_write(k, to, -1);
}
