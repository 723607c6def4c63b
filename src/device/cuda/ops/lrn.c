/* Local response normalisation: chooses the kernel and the grid. See kernels/lrn.cu. */
#include "device/cuda/ops/columns.h"
#include "device/cuda/ops/ops.h"
#include "device/cuda/ops/relu_grad.h"

#include "device/cuda/kernels/lrn_args.h"

enum {
    THREAD_CHANNELS = 8, /* channels per thread, as in kernels/lrn.cu */
    WARP = 32,
    MAX_RADIUS = THREAD_CHANNELS, /* neighbouring channels come from the next lanes */
};

typedef struct lrn_data {
    lrn_args args; /* without addresses */
    cuda_grid grid;
    cuda_function *function, *terms; /* terms: only for lrn_grad_generic */
    cuda_column_sums sums;
} lrn_data;

/* lrn_grad has the attributes of lrn. A radius beyond the row's length has no effect. */
static lrn_args args_of(const tu__node *node, int64_t channels) {
    const struct tu__lrn_attrs *a = node->attrs;
    return (lrn_args){.rows = tu_shape_elements(node->outputs[0].shape) / channels,
                      .channels = cuda_fast_divmod((uint32_t)channels),
                      .radius = (int)(a->radius < channels ? a->radius : channels - 1),
                      .bias = a->bias,
                      .alpha = a->alpha,
                      .beta = a->beta,
                      .twice_alpha_beta = 2 * a->alpha * a->beta};
}

static int64_t channels_of(const tu__node *node) {
    tu_shape shape = node->outputs[0].shape;
    return shape.dim[shape.rank - 1];
}

/* True if a row fits into the registers of one warp. */
static bool fits_warp(const lrn_args *a) {
    uint32_t channels = a->channels.value;
    return channels % THREAD_CHANNELS == 0 && channels <= THREAD_CHANNELS * WARP && a->radius >= 1 &&
           a->radius <= MAX_RADIUS;
}

/* `sums`: so many equal parts of the rows are summed, with few blocks that have many rows each; 0: nothing is summed. */
static void plan_warps(const cuda_device *device, lrn_data *d, int64_t sums) {
    int lanes = (int)d->args.channels.value / THREAD_CHANNELS;
    d->args.lanes = cuda_fast_divmod((uint32_t)lanes);
    d->args.rows_per_warp = WARP / lanes;
    d->args.rows_per_block = d->args.rows_per_warp * (CUDA_COLUMN_THREADS / WARP);
    if (sums > 1) d->args.rows /= sums;
    unsigned blocks = cuda_even_blocks(device, d->args.rows, d->args.rows_per_block, sums);
    d->grid = (cuda_grid){{blocks, 1, (unsigned)sums}, CUDA_COLUMN_THREADS, 0};
}

static const char *beta_name(double beta) {
    return beta == 0.75 ? "BETA_3_4" : beta == 0.5 ? "BETA_1_2" : "BETA_ANY";
}

static tu_status run_lrn(const tu__kernel *k) {
    const lrn_data *d = k->data;
    lrn_args a = d->args;
    a.x = k->in[0], a.to = k->out[0];
    return cuda_launch(k, d->function, d->grid, &a);
}

tu_status cuda_lower_lrn(tu__selection *s, const tu__node *node) {
    int64_t channels = channels_of(node);
    if (channels > INT32_MAX / 2) return TU_UNSUPPORTED;
    const char *type = cuda_type(node->outputs[0].dtype);
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_lrn);
    lrn_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    d->args = args_of(node, channels);
    bool warps = fits_warp(&d->args);
    if (warps) {
        plan_warps(cuda_of(s), d, 0);
        d->function =
            cuda_request(s, "lrn", "lrn<%s, %d, %s>", type, d->args.radius, beta_name(d->args.beta));
    } else {
        d->grid = cuda_grid_for(k, d->args.rows * channels);
        d->function = cuda_request(s, "lrn", "lrn_generic<%s>", type);
    }
    if (!d->function) return TU_NO_MEMORY;
    TU_TRY(tu__kernel_read(k, node->inputs[0]));
    return tu__kernel_write(k, (tu__edge){node->id, 0}, warps ? 0 : -1);
}

/* ---- Gradient. Inputs: x, dy ---- */

static tu_status run_lrn_grad(const tu__kernel *k) {
    const lrn_data *d = k->data;
    lrn_args a = d->args;
    a.x = k->in[0], a.dy = k->in[1], a.to = k->out[0], a.sums = k->workspace;
    TU_TRY(cuda_launch(k, d->function, d->grid, &a));
    return d->sums.function ? cuda_run_column_sums(k, &d->sums, a.sums, k->out[1]) : TU_OK;
}

/* The thread that writes an element is the only one that reads it, so the kernel can work in place. */
static tu_status lower_in_warps(tu__selection *s, const tu__node *node, const lrn_args *args) {
    static const char *const names[8] = CUDA_RELU_GRAD_NAMES("lrn_grad");
    cuda_relu_grad epilogue = cuda_find_relu_grad(s, node, node->inputs[0]);
    int bits = cuda_relu_grad_bits(&epilogue);
    tu_dtype dtype = node->outputs[0].dtype;
    tu__kernel *k = tu__kernel_new(s, node, names[bits], run_lrn_grad);
    lrn_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    d->args = *args;
    plan_warps(cuda_of(s), d, epilogue.sums);
    d->function = cuda_request(s, "lrn", "lrn_grad<%s, %d, %s, %d>", cuda_type(dtype), args->radius,
                               beta_name(args->beta), bits);
    if (!d->function) return TU_NO_MEMORY;
    if (epilogue.sum)
        TU_TRY(cuda_request_column_sums(s, "lrn", dtype, args->channels.value, d->grid, &d->sums));
    k->workspace_bytes = d->sums.bytes;
    TU_TRY(tu__kernel_read(k, node->inputs[0]));
    TU_TRY(tu__kernel_read(k, node->inputs[1]));
    return cuda_kernel_write_relu_grad(k, &epilogue, 1);
}

static tu_status run_lrn_grad_generic(const tu__kernel *k) {
    const lrn_data *d = k->data;
    lrn_args a = d->args;
    a.x = k->in[0], a.dy = k->in[1], a.to = k->out[0], a.terms = k->workspace;
    TU_TRY(cuda_launch(k, d->terms, d->grid, &a));
    return cuda_launch(k, d->function, d->grid, &a);
}

static tu_status lower_generic(tu__selection *s, const tu__node *node, const lrn_args *args) {
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_lrn_grad_generic);
    lrn_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    tu_dtype dtype = node->outputs[0].dtype;
    int64_t elements = tu_shape_elements(node->outputs[0].shape);
    d->args = *args;
    d->grid = cuda_grid_for(k, elements);
    d->terms = cuda_request(s, "lrn", "lrn_terms<%s>", cuda_type(dtype));
    d->function = cuda_request(s, "lrn", "lrn_grad_generic<%s>", cuda_type(dtype));
    if (!d->terms || !d->function) return TU_NO_MEMORY;
    k->workspace_bytes = (size_t)elements * (cuda_is_wide(dtype) ? sizeof(double) : sizeof(float));
    TU_TRY(tu__kernel_read(k, node->inputs[0]));
    TU_TRY(tu__kernel_read(k, node->inputs[1]));
    return tu__kernel_write(k, (tu__edge){node->id, 0}, -1);
}

tu_status cuda_lower_lrn_grad(tu__selection *s, const tu__node *node) {
    int64_t channels = channels_of(node);
    if (channels > INT32_MAX / 2) return TU_UNSUPPORTED;
    lrn_args args = args_of(node, channels);
    return fits_warp(&args) ? lower_in_warps(s, node, &args) : lower_generic(s, node, &args);
}
