/* Softmax, log-softmax and cross-entropy along the last axis: division of the rows among workers. Other axes use the
 * reference kernel.
 *
 * Memory traffic: x is read once, since a row stays in the cache between the passes over it, and y is written once;
 * cross-entropy writes one number per row. The loops are in isa/loops_kernels_softmax.c. */
#include "device/cpu/isa/kernels.h"
#include "device/cpu/ranges.h"

enum { CHUNK = 256 }; /* rows whose labels and losses are on the stack at a time */

typedef struct softmax_data {
    int64_t rows, k;
    tu_dtype dtype, label_dtype;
    bool is_log;
    double smoothing;
} softmax_data;

static void run_rows(const tu__kernel *k, tu__parallel_body body) {
    const softmax_data *d = k->data;
    /* An exponential costs as much as moving about ten elements, so ranges may be smaller. */
    tu__parallel_for(d->rows, cpu_grain(d->rows, 8 * d->k, cpu_of(k)->threads), body, (void *)k);
}

/* ---- Softmax ---- */

static void softmax_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const softmax_data *d = k->data;
    const struct cpu_softmax_loops *loops = cpu_of(k)->loops->kernels->softmax;
    int type = cpu_loop_variant(d->dtype);
    (void)worker;
    (d->is_log ? loops->log_softmax : loops->softmax)[type](last - first, d->k,
                                                            cpu_element(k->in[0], d->dtype, first * d->k),
                                                            cpu_element(k->out[0], d->dtype, first * d->k));
}

static tu_status run_softmax(const tu__kernel *k) {
    run_rows(k, softmax_range);
    return TU_OK;
}

static tu_status lower_softmax(tu__selection *s, const tu__node *node, int64_t axis, bool is_log) {
    tu_type x = node->outputs[0];
    if (cpu_loop_variant(x.dtype) < 0 || axis != x.shape.rank - 1) return TU_UNSUPPORTED;
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_softmax);
    softmax_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    d->k = x.shape.dim[axis];
    d->rows = tu_shape_elements(x.shape) / d->k;
    d->dtype = x.dtype;
    d->is_log = is_log;
    cpu_kernel_set_costs(k, s, node);
    return cpu_kernel_add_operands(k, node, 0);
}

tu_status cpu_lower_softmax(tu__selection *s, const tu__node *node) {
    return lower_softmax(s, node, tu__attrs(node, softmax)->axis, false);
}

tu_status cpu_lower_log_softmax(tu__selection *s, const tu__node *node) {
    return lower_softmax(s, node, tu__attrs(node, log_softmax)->axis, true);
}

/* ---- Cross-entropy: in logits [rows, k], labels; out losses [rows], or of its gradient [rows, k] ---- */

static bool is_sparse(const softmax_data *d) {
    return d->label_dtype == TU_I32 || d->label_dtype == TU_I64;
}

static void read_labels(const tu__kernel *k, int64_t first, int64_t count, int64_t *labels) {
    const softmax_data *d = k->data;
    for (int64_t i = 0; i < count; i++)
        labels[i] = d->label_dtype == TU_I32 ? ((const int32_t *)k->in[1])[first + i]
                                             : ((const int64_t *)k->in[1])[first + i];
}

static void cross_entropy_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const softmax_data *d = k->data;
    bool sparse = is_sparse(d);
    (void)worker;
    for (int64_t row = first; row < last; row += CHUNK) {
        int64_t labels[CHUNK], count = last - row < CHUNK ? last - row : CHUNK;
        float losses[CHUNK];
        if (sparse) read_labels(k, row, count, labels);
        cpu_of(k)->loops->kernels->softmax->cross_entropy[cpu_loop_variant(d->dtype)](
            count, d->k, (float)d->smoothing, cpu_element(k->in[0], d->dtype, row * d->k),
            sparse ? labels : NULL, sparse ? NULL : cpu_element(k->in[1], d->dtype, row * d->k), losses);
        cpu_of(k)->loops->kernels->reduce->finish[cpu_loop_variant(d->dtype)](
            count, losses, 1, cpu_element(k->out[0], d->dtype, row));
    }
}

static tu_status run_cross_entropy(const tu__kernel *k) {
    run_rows(k, cross_entropy_range);
    return TU_OK;
}

static void gradient_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const softmax_data *d = k->data;
    (void)worker;
    for (int64_t row = first; row < last; row += CHUNK) {
        int64_t labels[CHUNK], count = last - row < CHUNK ? last - row : CHUNK;
        read_labels(k, row, count, labels);
        cpu_of(k)->loops->kernels->softmax->cross_entropy_grad[cpu_loop_variant(d->dtype)](
            count, d->k, cpu_element(k->in[0], d->dtype, row * d->k), labels,
            cpu_element(k->out[0], d->dtype, row * d->k));
    }
}

static tu_status run_gradient(const tu__kernel *k) {
    run_rows(k, gradient_range);
    return TU_OK;
}

static tu_status lower_loss(tu__selection *s, const tu__node *node, tu_status (*run)(const tu__kernel *k),
                            double smoothing, int in_place) {
    tu_type x = cpu_input_type(s, node, 0);
    if (cpu_loop_variant(x.dtype) < 0) return TU_UNSUPPORTED;
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run);
    softmax_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    d->k = x.shape.dim[x.shape.rank - 1];
    d->rows = tu_shape_elements(x.shape) / d->k;
    d->dtype = x.dtype;
    d->label_dtype = cpu_input_type(s, node, 1).dtype;
    d->smoothing = smoothing;
    cpu_kernel_set_costs(k, s, node);
    return cpu_kernel_add_operands(k, node, in_place);
}

tu_status cpu_lower_cross_entropy(tu__selection *s, const tu__node *node) {
    return lower_loss(s, node, run_cross_entropy, tu__attrs(node, cross_entropy)->smoothing, -1);
}

tu_status cpu_lower_cross_entropy_grad(tu__selection *s, const tu__node *node) {
    return lower_loss(s, node, run_gradient, 0, 0);
}
