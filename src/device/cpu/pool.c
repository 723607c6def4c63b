/* Pooling: division of rows and images among workers. The loops are in isa/loops_kernels_pool.c.
 *
 * Memory traffic: the forward pass reads x once, since rows shared by neighbouring windows are still in the cache,
 * and writes y; max_pool_grad reads x and dy and writes dx. max_pool_grad computes the argmax of each window again
 * from x. Storing the argmax in the forward pass would need an extra tensor of y's size, written and read once.
 *
 * The forward pass is divided by rows of y, avg_pool_grad by rows of dx. max_pool_grad is divided by images: a worker
 * first computes the argmax of every window of its image, in its workspace, and then dx. Divided by rows, windows on
 * the border of two ranges would be computed twice. */
#include "device/cpu/isa/kernels.h"
#include "device/cpu/ranges.h"

typedef struct pool_data {
    cpu_pooling p;
    tu_dtype dtype;
    int64_t workers;
    size_t worker_bytes; /* workspace per worker */
} pool_data;

static int64_t x_elements(const cpu_pooling *p) {
    return p->x_size[0] * p->x_size[1] * p->channels;
}

static int64_t y_elements(const cpu_pooling *p) {
    return p->y_size[0] * p->y_size[1] * p->channels;
}

/* Returns the loops for the instruction set in use. */
static const struct cpu_pool_loops *loops_of(const tu__kernel *k) {
    return cpu_of(k)->loops->kernels->pool;
}

/* ---- Running ---- */

typedef void (*forward_row)(const cpu_pooling *p, int64_t row, const void *x, void *y);

static void forward_rows(const tu__kernel *k, forward_row row_loop, int64_t first, int64_t last) {
    const pool_data *d = k->data;
    for (int64_t row_index = first; row_index < last; row_index++) {
        int64_t image = row_index / d->p.y_size[0], row = row_index % d->p.y_size[0];
        row_loop(&d->p, row, cpu_element(k->in[0], d->dtype, image * x_elements(&d->p)),
                 cpu_element(k->out[0], d->dtype, row_index * d->p.y_size[1] * d->p.channels));
    }
}

static void max_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    (void)worker;
    forward_rows(k, loops_of(k)->max[cpu_loop_variant(((const pool_data *)k->data)->dtype)], first, last);
}

static void mean_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    (void)worker;
    forward_rows(k, loops_of(k)->mean[cpu_loop_variant(((const pool_data *)k->data)->dtype)], first, last);
}

static void max_gradient_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const pool_data *d = k->data;
    uint16_t *argmax = (void *)((char *)k->workspace + (size_t)worker * d->worker_bytes);
    for (int64_t image = first; image < last; image++)
        loops_of(k)->max_gradient[cpu_loop_variant(d->dtype)](
            &d->p, cpu_element(k->in[0], d->dtype, image * x_elements(&d->p)),
            cpu_element(k->in[1], d->dtype, image * y_elements(&d->p)), argmax,
            cpu_element(k->out[0], d->dtype, image * x_elements(&d->p)));
}

static void mean_gradient_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const pool_data *d = k->data;
    (void)worker;
    for (int64_t row_index = first; row_index < last; row_index++) {
        int64_t image = row_index / d->p.x_size[0], row = row_index % d->p.x_size[0];
        loops_of(k)->mean_gradient[cpu_loop_variant(d->dtype)](
            &d->p, row, cpu_element(k->in[0], d->dtype, image * y_elements(&d->p)),
            cpu_element(k->out[0], d->dtype, row_index * d->p.x_size[1] * d->p.channels));
    }
}

/* Runs `body` over the work items of all images: rows of an image, or the image itself. `work_per_item`: elements that
 * are read for one item. */
static tu_status run_parallel(const tu__kernel *k, int64_t items_per_image, int64_t work_per_item,
                              tu__parallel_body body) {
    const pool_data *d = k->data;
    int64_t items = d->p.images * items_per_image;
    tu__parallel_for_stealing(items, cpu_grain(items, work_per_item, d->workers), body, (void *)k);
    return TU_OK;
}

static int64_t work_per_output_row(const pool_data *d) {
    return d->p.y_size[1] * d->p.channels * d->p.stride[0] * d->p.stride[1];
}

static tu_status run_max(const tu__kernel *k) {
    const pool_data *d = k->data;
    return run_parallel(k, d->p.y_size[0], work_per_output_row(d), max_range);
}

static tu_status run_mean(const tu__kernel *k) {
    const pool_data *d = k->data;
    return run_parallel(k, d->p.y_size[0], work_per_output_row(d), mean_range);
}

static tu_status run_max_gradient(const tu__kernel *k) {
    const pool_data *d = k->data;
    return run_parallel(k, 1, x_elements(&d->p), max_gradient_range);
}

static tu_status run_mean_gradient(const tu__kernel *k) {
    const pool_data *d = k->data;
    return run_parallel(k, d->p.x_size[0], d->p.x_size[1] * d->p.channels, mean_gradient_range);
}

/* ---- Lowering rules ---- */

/* A stride beyond the padded input has one window, as a stride of the whole input has: this avoids overflows. */
static int64_t effective_stride(int64_t stride, int64_t size, int64_t before, int64_t after) {
    int64_t whole = size + before + after;
    return stride < whole ? stride : whole;
}

static cpu_pooling pooling_of(tu_shape x, tu_shape y, const int64_t window[2], const int64_t stride[2],
                              const int64_t pad[4]) {
    return (cpu_pooling){.images = x.dim[0],
                         .channels = x.dim[3],
                         .x_size = {x.dim[1], x.dim[2]},
                         .y_size = {y.dim[1], y.dim[2]},
                         .window = {window[0], window[1]},
                         .stride = {effective_stride(stride[0], x.dim[1], pad[0], pad[1]),
                                    effective_stride(stride[1], x.dim[2], pad[2], pad[3])},
                         .pad = {pad[0], pad[2]}};
}

/* Plans pooling anew for some of its images. */
static tu_status divide_pooling(tu__kernel *k, int64_t images) {
    pool_data *d = k->data;
    d->p.images = images;
    d->workers = 1;
    k->workspace_bytes = d->worker_bytes;
    return TU_OK;
}

/* `worker_bytes`: workspace per worker. */
static tu_status lower_pooling(tu__selection *s, const tu__node *node, cpu_pooling p, size_t worker_bytes,
                               tu_status (*run)(const tu__kernel *k)) {
    tu_dtype dtype = node->outputs[0].dtype;
    if (cpu_loop_variant(dtype) < 0) return TU_UNSUPPORTED;
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run);
    pool_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    *d = (pool_data){.p = p,
                     .dtype = dtype,
                     .workers = cpu_of(s)->threads,
                     .worker_bytes = cpu_round_up_to_line(worker_bytes)};
    k->workspace_bytes = d->worker_bytes * (size_t)d->workers;
    k->samples = (tu__kernel_samples){.count = p.images, .least = 1, .reads = ~0u, .divide = divide_pooling};
    cpu_kernel_set_costs(k, s, node);
    return cpu_kernel_add_operands(k, node, -1);
}

tu_status cpu_lower_max_pool(tu__selection *s, const tu__node *node) {
    if (node->outputs[0].dtype == TU_U8) return cpu_lower_max_pool_u8(s, node);
    const struct tu__max_pool_attrs *a = tu__attrs(node, max_pool);
    tu_shape x = cpu_input_type(s, node, 0).shape;
    return lower_pooling(s, node, pooling_of(x, node->outputs[0].shape, a->window, a->stride, a->pad), 0,
                         run_max);
}

tu_status cpu_lower_max_pool_grad(tu__selection *s, const tu__node *node) {
    const struct tu__max_pool_grad_attrs *a = tu__attrs(node, max_pool_grad);
    if (a->window[0] > UINT16_MAX || a->window[1] > UINT16_MAX / a->window[0]) return TU_UNSUPPORTED;
    tu_shape x = cpu_input_type(s, node, 0).shape, y = cpu_input_type(s, node, 1).shape;
    cpu_pooling p = pooling_of(x, y, a->window, a->stride, a->pad);
    return lower_pooling(s, node, p, (size_t)y_elements(&p) * sizeof(uint16_t), run_max_gradient);
}

tu_status cpu_lower_avg_pool(tu__selection *s, const tu__node *node) {
    const struct tu__avg_pool_attrs *a = tu__attrs(node, avg_pool);
    tu_shape x = cpu_input_type(s, node, 0).shape;
    cpu_pooling p = pooling_of(x, node->outputs[0].shape, a->window, a->stride, a->pad);
    p.count_padding = a->count_padding;
    return lower_pooling(s, node, p, 0, run_mean);
}

tu_status cpu_lower_avg_pool_grad(tu__selection *s, const tu__node *node) {
    const struct tu__avg_pool_grad_attrs *a = tu__attrs(node, avg_pool_grad);
    tu_shape y = cpu_input_type(s, node, 0).shape;
    cpu_pooling p = pooling_of(node->outputs[0].shape, y, a->window, a->stride, a->pad);
    p.count_padding = a->count_padding;
    return lower_pooling(s, node, p, 0, run_mean_gradient);
}
