/* Resizing of f32 images: a preprocessing operation of every step if the images do not have the network's size.
 *
 * The source pixels of each column, and their weights, are the same for all rows and images: they are computed once.
 * Weights and sums are doubles, added in the order of the reference kernel, so the results are the same. A work item
 * is a row. */
#include "graph/ops/resize.h"
#include "device/cpu/ranges.h"

typedef struct resize_data {
    int64_t images, channels, method;
    int64_t original[2], resized[2]; /* height, width */
    tu__neighbours *columns;         /* per column of the result */
} resize_data;

/* Computes one pixel from up to four source pixels and their weights. */
static void resize_pixel(const resize_data *d, const float *image, const tu__neighbours *row,
                         const tu__neighbours *column, float *to) {
    const float *corner[4];
    double weight[4];
    int count = 0;
    for (int i = 0; i < 4; i++) {
        double both = row->weight[i / 2] * column->weight[i % 2];
        if (both == 0) continue;
        weight[count] = both;
        corner[count++] = image + (row->index[i / 2] * d->original[1] + column->index[i % 2]) * d->channels;
    }
    for (int64_t c = 0; c < d->channels; c++) {
        double sum = 0;
        for (int i = 0; i < count; i++) sum += weight[i] * (double)corner[i][c];
        to[c] = (float)sum;
    }
}

static void resize_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const resize_data *d = k->data;
    (void)worker;
    for (int64_t work_item = first; work_item < last; work_item++) {
        int64_t image = work_item / d->resized[0], index = work_item % d->resized[0];
        tu__neighbours row = tu__neighbours_of(index, d->original[0], d->resized[0], d->method);
        const float *from = (const float *)k->in[0] + image * d->original[0] * d->original[1] * d->channels;
        float *to = (float *)k->out[0] + work_item * d->resized[1] * d->channels;
        for (int64_t i = 0; i < d->resized[1]; i++)
            resize_pixel(d, from, &row, &d->columns[i], to + i * d->channels);
    }
}

static tu_status run_resize(const tu__kernel *k) {
    const resize_data *d = k->data;
    int64_t rows = d->images * d->resized[0];
    /* an element costs about as much as moving ten */
    int64_t grain = cpu_grain(rows, 10 * d->resized[1] * d->channels, cpu_of(k)->threads);
    tu__parallel_for(rows, grain, resize_range, (void *)k);
    return TU_OK;
}

tu_status cpu_lower_resize(tu__selection *s, const tu__node *node) {
    tu_type x = cpu_input_type(s, node, 0);
    if (x.dtype != TU_F32) return TU_UNSUPPORTED;
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_resize);
    resize_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    const int64_t *size = x.shape.dim, *resized = node->outputs[0].shape.dim;
    *d = (resize_data){.images = size[0],
                       .channels = size[3],
                       .method = tu__attrs(node, resize)->method,
                       .original = {size[1], size[2]},
                       .resized = {resized[1], resized[2]}};
    d->columns = tu__arena_alloc(&s->arena, (size_t)resized[2] * sizeof *d->columns);
    if (!d->columns) return TU_NO_MEMORY;
    for (int64_t i = 0; i < resized[2]; i++)
        d->columns[i] = tu__neighbours_of(i, size[2], resized[2], d->method);
    cpu_kernel_set_costs(k, s, node);
    return cpu_kernel_add_operands(k, node, -1);
}
