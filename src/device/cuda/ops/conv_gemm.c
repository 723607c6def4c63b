/* 1x1 convolutions of models as products of cuBLASLt: x [pixels, c] times the filter [o, c] transposed, with bias, residual and
 * relu in the epilogue (gemm.h).
 *
 * Used for many results. conv_small.c computes few results faster, and also up to 64 channels of y: then it reads x once. More
 * channels it computes in several tiles of 64, which reads and writes 1.1 to 1.6 TB/s on an H200; copies reach 4.1 TB/s. cuDNN's
 * products need a pass over the result for bias, residual and relu (conv.c).
 *
 * NaN. cuBLASLt's relu turns NaN into 0; whether it does in the chosen algorithm is tested when the plan is made. If so, a kernel
 * that restores NaN follows the product (kernels/conv_nan.cu). It reads x, and the residual unless that is such a result
 * itself, whose notes say which of its tiles have NaN. Filter and bias must be finite, which is known if they are constants, as
 * in models. A sum of finite numbers that overflows f32, as bf16 allows, may give 0 instead of NaN.
 */
#include <math.h>

#include "base/number.h"
#include "device/cuda/ops/conv.h"
#include "device/cuda/ops/gemm.h"

#include "device/cuda/kernels/conv_nan_args.h"

enum {
    SMALL_CHANNELS = 64, /* of a tile of conv_small.c */
    NOTE_ROWS = 64,
    RESTORE_THREADS = 256, /* as in conv_nan.cu */
    VECTOR = 8             /* elements in 16 bytes */
};

struct cuda_conv_gemm {
    cuda_gemm_plan *plan;
    const cuda_function *restore; /* NULL: the relu keeps NaN, or there is none */
    int64_t rows;
    int x_channels, y_channels;
    bool bias, residual;
    bool has_residual_notes;
};

/* ---- Choosing ---- */

bool cuda_conv_is_product(const cuda_convolution *c) {
    const tu__windows *w = &c->windows;
    for (int i = 0; i < 2; i++)
        if (w->size[i] != 1 || w->stride[i] != 1 || w->pad[2 * i] || w->pad[2 * i + 1]) return false;
    return c->result == CUDA_CONV_FORWARD && c->groups == 1;
}

static bool is_supported(const cuda_convolution *c) {
    return cuda_conv_is_product(c) && (c->dtype == TU_BF16 || c->dtype == TU_F16) &&
           c->x_channels % VECTOR == 0 && c->y_channels % VECTOR == 0 && c->x_channels <= INT32_MAX &&
           c->y_channels <= INT32_MAX / NOTE_ROWS;
}

static bool is_preferred(const cuda_device *device, const cuda_convolution *c) {
    const cuda_conv_choice preference = cuda_conv_preference();
    return (preference == CUDA_CONV_AUTO || preference == CUDA_CONV_WIDE) && c->y_channels > SMALL_CHANNELS &&
           cuda_conv_has_many_results(c, device->multiprocessors);
}

static bool is_finite_constant(const tu__selection *s, tu__edge value) {
    const tu__node *node = s->graph->nodes[value.node];
    tu_type type = node->outputs[0];
    if (node->op->code == TU__OP_FILL)
        return isfinite(tu__round_to(type.dtype, tu__attrs(node, fill)->number));
    if (node->op->code != TU__OP_CONSTANT) return false;
    for (int64_t i = 0; i < tu_shape_elements(type.shape); i++)
        if (!isfinite(tu__load(type.dtype, node->data, i))) return false;
    return true;
}

/* True if NaN can be restored, and if that is faster than what cuDNN's products need, a pass: it reads x, a pass reads and writes
 * y, and both may read the residual. */
static bool can_restore(const tu__selection *s, const cuda_convolution *c) {
    return c->x_channels < 2 * c->y_channels && is_finite_constant(s, c->filter_value) &&
           (!c->bias || is_finite_constant(s, c->bias_value));
}

/* ---- Planning ---- */

static cuda_gemm describe(const cuda_convolution *c) {
    static const cublasLtEpilogue_t epilogues[2][2] = {{CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS},
                                                       {CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS}};
    return (cuda_gemm){.m = c->images * c->y_size[0] * c->y_size[1],
                       .n = c->y_channels,
                       .k = c->x_channels,
                       .transpose_b = true,
                       .a_row_stride = c->x_channels,
                       .b_row_stride = c->x_channels,
                       .out_row_stride = c->y_channels,
                       .batch = 1,
                       .dtype = c->dtype,
                       .residual = c->residual,
                       .epilogue = epilogues[c->relu][c->bias]};
}

/* Sets *is_usable to false if the relu loses NaN that cannot be restored. */
static tu_status prepare_restoring(tu__selection *s, const cuda_convolution *c, const cuda_gemm *product,
                                   cuda_conv_gemm *g, bool *is_usable) {
    bool keeps_nan = true;
    if (c->relu) TU_TRY(cuda_gemm_keeps_nan(cuda_of(s), product, g->plan, &keeps_nan));
    *is_usable = keeps_nan || can_restore(s, c);
    if (keeps_nan || !*is_usable) return TU_OK;
    g->restore = cuda_request(s, "conv_nan", "conv_nan<%s>", cuda_type(c->dtype));
    return g->restore ? TU_OK : TU_NO_MEMORY;
}

tu_status cuda_conv_gemm_new(tu__selection *s, const cuda_convolution *c, cuda_conv_gemm **created) {
    *created = NULL;
    if (!is_supported(c) || !is_preferred(cuda_of(s), c)) return TU_OK;
    const cuda_gemm product = describe(c);
    cuda_conv_gemm *g = tu__arena_alloc(&s->arena, sizeof *g);
    if (!g) return TU_NO_MEMORY;
    *g = (cuda_conv_gemm){.rows = product.m,
                          .x_channels = (int)c->x_channels,
                          .y_channels = (int)c->y_channels,
                          .bias = c->bias,
                          .residual = c->residual};
    tu_status status = cuda_gemm_plan_new(cuda_of(s), &product, &g->plan);
    if (status != TU_OK) return status == TU_UNSUPPORTED ? TU_OK : status;
    bool is_usable = false;
    status = prepare_restoring(s, c, &product, g, &is_usable);
    if (status == TU_OK && is_usable)
        *created = g;
    else
        cuda_conv_gemm_free(g);
    return status;
}

void cuda_conv_gemm_free(cuda_conv_gemm *g) {
    if (g) cuda_gemm_plan_free(g->plan);
}

size_t cuda_conv_gemm_workspace(const cuda_conv_gemm *g) {
    return cuda_gemm_workspace(g->plan);
}

bool cuda_conv_gemm_restores_nan(const cuda_conv_gemm *g) {
    return g->restore;
}

/* ---- Notes: kept for the node of the relu ---- */

static int64_t count_tiles(const cuda_conv_gemm *g) {
    return (g->rows + NOTE_ROWS - 1) / NOTE_ROWS;
}

/* Returns the relu whose kernel has notes about the value; NULL: there are none. Only cuda_conv_gemm_add_notes saves anything
 * for a relu. */
static const tu__node *find_notes(const tu__selection *s, tu__edge value, tu_shape shape) {
    tu__edge root = tu__root_of(s, value);
    const tu__node *node = s->graph->nodes[root.node];
    bool has_notes = node->op->code == TU__OP_RELU && s->plan->saved[node->id] != TU__NONE;
    return has_notes && tu_shape_equal(node->outputs[0].shape, shape) ? node : NULL;
}

tu_status cuda_conv_gemm_add_notes(tu__kernel *k, cuda_conv_gemm *g, const tu__epilogue *e) {
    tu__selection *s = k->owner;
    if (!g->restore) return TU_OK;
    const tu__node *noted =
        e->add_residual ? find_notes(s, e->residual, tu__type_of(s, e->result)->shape) : NULL;
    g->has_residual_notes = noted;
    if (noted) TU_TRY(tu__kernel_read_saved(k, noted));
    return tu__kernel_save(k, e->relu, (size_t)count_tiles(g) * sizeof(int));
}

/* ---- Running ---- */

/* Inputs: x, filter, then bias, residual and the residual's notes if there are any. Outputs: y and its notes. */
static tu_status restore_nan(const tu__kernel *k, const cuda_conv_gemm *g) {
    const int residual = 2 + g->bias, notes = residual + 1;
    const conv_nan_args a = {.x = k->in[0],
                             .filter = k->in[1],
                             .bias = g->bias ? k->in[2] : NULL,
                             .residual = g->residual ? k->in[residual] : NULL,
                             .residual_notes = g->has_residual_notes ? k->in[notes] : NULL,
                             .y = k->out[0],
                             .notes = k->out[1],
                             .rows = g->rows,
                             .depth = g->x_channels,
                             .columns = g->y_channels};
    return cuda_launch(k, g->restore,
                       (cuda_grid){.blocks = {(unsigned)count_tiles(g)}, .threads = RESTORE_THREADS}, &a);
}

tu_status cuda_conv_gemm_run(const tu__kernel *k, const cuda_conv_gemm *g) {
    const cuda_gemm_operands o = {.a = k->in[0],
                                  .b = k->in[1],
                                  .out = k->out[0],
                                  .workspace = k->workspace,
                                  .bias = g->bias ? k->in[2] : NULL,
                                  .residual = g->residual ? k->in[2 + g->bias] : NULL};
    TU_TRY(cuda_gemm_run(k, g->plan, &o));
    return g->restore ? restore_nan(k, g) : TU_OK;
}
