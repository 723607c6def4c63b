/* Indexing: gather, scatter_add, one_hot and crop. Rows are copied as bytes, so gather, one_hot and crop support
 * every element type; scatter_add supports f32.
 *
 * An index outside [0, size) reads zeros and writes nothing (graph/ops/index.c). Updates to one row are added in the
 * order of the indices: each worker of scatter_add is assigned columns or rows of the result and processes all
 * indices in order. So sums have the same bits for every number of threads, and no two workers write the same
 * element. */
#include <string.h>

#include "base/number.h"
#include "device/cpu/ranges.h"

enum { COLUMNS = 16 }; /* minimum columns per worker of scatter_add: a cache line of f32 */

typedef struct index_data {
    int64_t outer, size, inner; /* the indexed tensor: sizes before, of and after its axis */
    int64_t count;              /* indices */
    tu_dtype index_dtype;
    size_t row_bytes, element_bytes;
    unsigned char one[8]; /* one_hot: the number 1 in the element type */
} index_data;

/* Returns index `j`; -1 if it is out of range. */
static int64_t read_index(const index_data *d, const void *indices, int64_t j) {
    int64_t index = d->index_dtype == TU_I32 ? ((const int32_t *)indices)[j] : ((const int64_t *)indices)[j];
    return index >= 0 && index < d->size ? index : -1;
}

static index_data *new_kernel(tu__selection *s, const tu__node *node, tu_status (*run)(const tu__kernel *k),
                              tu__kernel **k) {
    *k = tu__kernel_new(s, node, node->op->name, run);
    if (!*k) return NULL;
    cpu_kernel_set_costs(*k, s, node);
    return tu__kernel_data(*k, sizeof(index_data));
}

static index_data split_at_axis(tu_type x, int64_t axis, tu_type indices) {
    index_data d = {.outer = 1, .size = x.shape.dim[axis], .inner = 1, .index_dtype = indices.dtype};
    for (int64_t i = 0; i < axis; i++) d.outer *= x.shape.dim[i];
    for (int64_t i = axis + 1; i < x.shape.rank; i++) d.inner *= x.shape.dim[i];
    d.count = tu_shape_elements(indices.shape);
    d.element_bytes = tu_dtype_size(x.dtype);
    d.row_bytes = (size_t)d.inner * d.element_bytes;
    return d;
}

/* Runs `body` over rows that each cost about as much as copying `bytes`. */
static void run_rows(const tu__kernel *k, int64_t rows, size_t bytes, tu__parallel_body body) {
    tu__parallel_for(rows, cpu_grain(rows, (int64_t)(bytes / 4) + 1, cpu_of(k)->threads), body, (void *)k);
}

/* ---- gather: in table, indices ---- */

static void gather_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const index_data *d = k->data;
    (void)worker;
    for (int64_t row = first; row < last; row++) {
        int64_t o = row / d->count, index = read_index(d, k->in[1], row % d->count);
        char *to = (char *)k->out[0] + (size_t)row * d->row_bytes;
        if (index < 0)
            memset(to, 0, d->row_bytes);
        else
            memcpy(to, (const char *)k->in[0] + (size_t)(o * d->size + index) * d->row_bytes, d->row_bytes);
    }
}

static tu_status run_gather(const tu__kernel *k) {
    const index_data *d = k->data;
    run_rows(k, d->outer * d->count, d->row_bytes, gather_range);
    return TU_OK;
}

tu_status cpu_lower_gather(tu__selection *s, const tu__node *node) {
    tu__kernel *k;
    index_data *d = new_kernel(s, node, run_gather, &k);
    if (!d) return TU_NO_MEMORY;
    *d = split_at_axis(cpu_input_type(s, node, 0), tu__attrs(node, gather)->axis, cpu_input_type(s, node, 1));
    /* Only the selected rows of the table are read. */
    k->bytes_moved = 2 * (int64_t)tu_type_bytes(node->outputs[0]);
    return cpu_kernel_add_operands(k, node, -1);
}

/* ---- scatter_add: in base, indices, updates ---- */

/* Computes columns [begin, end) of rows [first, last) of slice `o`: copies the base, then adds the updates. */
static void scatter_block(const tu__kernel *k, int64_t o, int64_t first, int64_t last, int64_t begin,
                          int64_t end) {
    const index_data *d = k->data;
    const float *base = k->in[0], *updates = (const float *)k->in[2] + o * d->count * d->inner;
    float *result = (float *)k->out[0] + o * d->size * d->inner;
    size_t block_bytes = (size_t)(end - begin) * sizeof(float);
    if (result != base + o * d->size * d->inner)
        for (int64_t i = first; i < last; i++)
            memcpy(result + i * d->inner + begin, base + (o * d->size + i) * d->inner + begin, block_bytes);
    for (int64_t j = 0; j < d->count; j++) {
        int64_t index = read_index(d, k->in[1], j);
        if (index < first || index >= last) continue;
        float *to = result + index * d->inner;
        const float *from = updates + j * d->inner;
        for (int64_t c = begin; c < end; c++) to[c] += from[c];
    }
}

static void scatter_slices(void *context, int64_t first, int64_t last, int worker) {
    const index_data *d = ((const tu__kernel *)context)->data;
    (void)worker;
    for (int64_t o = first; o < last; o++) scatter_block(context, o, 0, d->size, 0, d->inner);
}

static void scatter_rows(void *context, int64_t first, int64_t last, int worker) {
    const index_data *d = ((const tu__kernel *)context)->data;
    (void)worker;
    scatter_block(context, 0, first, last, 0, d->inner);
}

static void scatter_columns(void *context, int64_t first, int64_t last, int worker) {
    const index_data *d = ((const tu__kernel *)context)->data;
    int64_t end = last * COLUMNS;
    (void)worker;
    scatter_block(context, 0, 0, d->size, first * COLUMNS, end < d->inner ? end : d->inner);
}

static tu_status run_scatter_add(const tu__kernel *k) {
    const index_data *d = k->data;
    int64_t strips = (d->inner + COLUMNS - 1) / COLUMNS, rows = d->size + d->count;
    if (d->outer > 1)
        run_rows(k, d->outer, (size_t)rows * d->row_bytes, scatter_slices);
    else if (strips >= cpu_of(k)->threads)
        run_rows(k, strips, (size_t)rows * COLUMNS * sizeof(float), scatter_columns);
    else
        run_rows(k, d->size, d->row_bytes, scatter_rows);
    return TU_OK;
}

tu_status cpu_lower_scatter_add(tu__selection *s, const tu__node *node) {
    if (node->outputs[0].dtype != TU_F32) return TU_UNSUPPORTED;
    tu__kernel *k;
    index_data *d = new_kernel(s, node, run_scatter_add, &k);
    if (!d) return TU_NO_MEMORY;
    *d = split_at_axis(node->outputs[0], tu__attrs(node, scatter_add)->axis, cpu_input_type(s, node, 1));
    return cpu_kernel_add_operands(k, node, 0);
}

/* ---- one_hot: `size` is the number of classes ---- */

static void one_hot_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const index_data *d = k->data;
    (void)worker;
    memset((char *)k->out[0] + (size_t)first * d->row_bytes, 0, (size_t)(last - first) * d->row_bytes);
    for (int64_t row = first; row < last; row++) {
        int64_t index = read_index(d, k->in[0], row);
        if (index < 0) continue;
        char *to = (char *)k->out[0] + (size_t)row * d->row_bytes + (size_t)index * d->element_bytes;
        memcpy(to, d->one, d->element_bytes);
    }
}

static tu_status run_one_hot(const tu__kernel *k) {
    const index_data *d = k->data;
    run_rows(k, d->count, d->row_bytes, one_hot_range);
    return TU_OK;
}

tu_status cpu_lower_one_hot(tu__selection *s, const tu__node *node) {
    tu__kernel *k;
    index_data *d = new_kernel(s, node, run_one_hot, &k);
    if (!d) return TU_NO_MEMORY;
    tu_type indices = cpu_input_type(s, node, 0), out = node->outputs[0];
    *d = (index_data){.size = tu__attrs(node, one_hot)->classes, .index_dtype = indices.dtype};
    d->count = tu_shape_elements(indices.shape);
    d->element_bytes = tu_dtype_size(out.dtype);
    d->row_bytes = (size_t)d->size * d->element_bytes;
    tu__store(out.dtype, d->one, 0, 1);
    return cpu_kernel_add_operands(k, node, -1);
}

/* ---- crop: in images [n,h,w,c], offsets [n,2] ---- */

typedef struct crop_data {
    int64_t images, size[2], window[2];
    tu_dtype offset_dtype;
    size_t pixel_bytes;
} crop_data;

/* Returns the offset, clamped so that the window is inside the image. */
static int64_t clamp_offset(const crop_data *d, const void *offsets, int64_t image, int axis) {
    int64_t index = 2 * image + axis, max_offset = d->size[axis] - d->window[axis];
    int64_t offset =
        d->offset_dtype == TU_I32 ? ((const int32_t *)offsets)[index] : ((const int64_t *)offsets)[index];
    return offset < 0 ? 0 : offset > max_offset ? max_offset : offset;
}

static void crop_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const crop_data *d = k->data;
    size_t from_row = (size_t)d->size[1] * d->pixel_bytes, to_row = (size_t)d->window[1] * d->pixel_bytes;
    (void)worker;
    for (int64_t image = first; image < last; image++) {
        int64_t top = clamp_offset(d, k->in[1], image, 0), left = clamp_offset(d, k->in[1], image, 1);
        const char *from = (const char *)k->in[0] + (size_t)(image * d->size[0] + top) * from_row +
                           (size_t)left * d->pixel_bytes;
        char *to = (char *)k->out[0] + (size_t)(image * d->window[0]) * to_row;
        for (int64_t row = 0; row < d->window[0]; row++, from += from_row, to += to_row)
            memcpy(to, from, to_row);
    }
}

static tu_status run_crop(const tu__kernel *k) {
    const crop_data *d = k->data;
    run_rows(k, d->images, (size_t)(d->window[0] * d->window[1]) * d->pixel_bytes, crop_range);
    return TU_OK;
}

tu_status cpu_lower_crop(tu__selection *s, const tu__node *node) {
    tu_type x = cpu_input_type(s, node, 0), offsets = cpu_input_type(s, node, 1);
    if (offsets.dtype != TU_I32 && offsets.dtype != TU_I64) return TU_UNSUPPORTED;
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_crop);
    crop_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    const int64_t *size = x.shape.dim, *window = node->outputs[0].shape.dim;
    *d = (crop_data){.images = size[0],
                     .size = {size[1], size[2]},
                     .window = {window[1], window[2]},
                     .offset_dtype = offsets.dtype,
                     .pixel_bytes = (size_t)size[3] * tu_dtype_size(x.dtype)};
    /* Only the windows of the images are read. */
    k->bytes_moved = 2 * (int64_t)tu_type_bytes(node->outputs[0]);
    return cpu_kernel_add_operands(k, node, -1);
}
