/* Local response normalisation across channels: division of the rows among workers, and scratch. The loops are in
 * isa/loops_kernels_lrn.c; the formulas are in graph/ops/lrn.c.
 *
 * oneDNN is not used: for windows other than 5 channels it runs its reference code (150 to 220 ms backward for the
 * tutorial network's 128 x 12 x 12 x 64). Memory traffic: the forward pass reads x and writes y, the backward pass
 * reads x and dy and writes dx, each once; s is recomputed from x, which is in the cache, and never stored. */
#include <string.h>

#include "device/cpu/isa/kernels.h"
#include "device/cpu/ranges.h"

typedef struct lrn_data {
    cpu_lrn p;
    tu_dtype dtype;
    int64_t rows, workers;
    size_t worker_bytes;
} lrn_data;

/* Returns zeroed scratch. The zeros around each row make bounds checks of the windows unnecessary. */
static float *cleared_scratch(const tu__kernel *k, int worker) {
    const lrn_data *d = k->data;
    float *scratch = (void *)((char *)k->workspace + (size_t)worker * d->worker_bytes);
    memset(scratch, 0, d->worker_bytes);
    return scratch;
}

static void forward_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const lrn_data *d = k->data;
    int64_t offset = first * d->p.channels;
    cpu_of(k)->loops->kernels->lrn->forward[cpu_loop_variant(d->dtype)](
        &d->p, last - first, cpu_element(k->in[0], d->dtype, offset), cleared_scratch(k, worker),
        cpu_element(k->out[0], d->dtype, offset));
}

static void backward_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const lrn_data *d = k->data;
    int64_t offset = first * d->p.channels;
    cpu_of(k)->loops->kernels->lrn->backward[cpu_loop_variant(d->dtype)](
        &d->p, last - first, cpu_element(k->in[0], d->dtype, offset), cpu_element(k->in[1], d->dtype, offset),
        cleared_scratch(k, worker), cpu_element(k->out[0], d->dtype, offset));
}

static tu_status run_forward(const tu__kernel *k) {
    const lrn_data *d = k->data;
    tu__parallel_for_stealing(d->rows, cpu_grain(d->rows, d->p.channels, d->workers), forward_range,
                              (void *)k);
    return TU_OK;
}

static tu_status run_backward(const tu__kernel *k) {
    const lrn_data *d = k->data;
    tu__parallel_for_stealing(d->rows, cpu_grain(d->rows, d->p.channels, d->workers), backward_range,
                              (void *)k);
    return TU_OK;
}

static cpu_lrn lrn_of(const struct tu__lrn_attrs *a, int64_t channels, int64_t lanes) {
    /* The maximum distance of two channels. */
    int64_t radius = a->radius < channels ? a->radius : channels - 1;
    return (cpu_lrn){.channels = channels,
                     .radius = radius,
                     /* the last vector of a row extends `lanes` past it, and its window 2 radius further */
                     .stride = channels + 2 * radius + 2 * lanes,
                     .bias = (float)a->bias,
                     .alpha = (float)a->alpha,
                     .beta = (float)a->beta};
}

/* lrn_grad has the attributes of lrn. Each row is read before it is written, so the kernels can work in place. */
static tu_status lower_lrn(tu__selection *s, const tu__node *node, int in_place,
                           tu_status (*run)(const tu__kernel *k)) {
    tu_type x = node->outputs[0];
    if (cpu_loop_variant(x.dtype) < 0) return TU_UNSUPPORTED;
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run);
    lrn_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    int64_t channels = x.shape.dim[x.shape.rank - 1];
    d->p = lrn_of(node->attrs, channels, cpu_of(s)->loops->kernels->lrn->lanes);
    d->dtype = x.dtype;
    d->rows = tu_shape_elements(x.shape) / channels;
    d->workers = cpu_of(s)->threads;
    d->worker_bytes = cpu_round_up_to_line((size_t)d->p.stride * 3 * CPU_LRN_ROWS * sizeof(float));
    k->workspace_bytes = d->worker_bytes * (size_t)d->workers;
    cpu_kernel_set_costs(k, s, node);
    return cpu_kernel_add_operands(k, node, in_place);
}

tu_status cpu_lower_lrn(tu__selection *s, const tu__node *node) {
    return lower_lrn(s, node, 0, run_forward);
}

tu_status cpu_lower_lrn_grad(tu__selection *s, const tu__node *node) {
    return lower_lrn(s, node, 1, run_backward);
}
