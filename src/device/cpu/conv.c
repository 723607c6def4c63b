/* Lowering rules of convolutions: by oneDNN (dnnl.c), or by our direct convolution (conv_direct.c).
 *
 * Both run near the processor's peak on wide layers. Time of ours divided by that of oneDNN 2.6.3, measured on a
 * Xeon with AVX-512 (1, 2 and 16 threads; 32 or 128 images):
 *
 *     y       0.92 to 1.08 for the two layers of tutorial-cnn and over 56x56 pixels, 1.0 to 1.3 for resnet20's, 1.4
 *             to 1.5 over 7x7
 *     dx      0.81 to 0.94 for 64 channels over 12x12 pixels, 0.85 to 1.04 over 14x14 and 56x56, 1.0 to 1.6 for fewer
 *             channels, more with a stride
 *     filter  0.8 to 1.2 up to about 200,000 weights, 1.1 to 1.6 above; with fewer images than threads ours uses
 *     fewer
 *             threads
 *
 * So y and dx are ours if tiles are full, which saves a pass over y for bias and relu (oneDNN's own cannot be used:
 * epilogue.h), and oneDNN's otherwise. For 32 and 64 channels over 8x8 and 16x16 pixels the difference was below the
 * noise (a step of resnet20, medians of three alternating runs: 182 ms with ours, 187 with oneDNN's on 2 threads,
 * 33.5 and 35.1 on 16); they are ours, because our images are distributed dynamically. A filter gradient is ours if
 * there are enough images for all threads and the filter is not large. The choice never depends on the epilogue: a
 * value must not depend on fusion. f64 is always ours. If one of the two does not support a convolution, the other
 * is used.
 *
 * bf16: with AMX and strides of 1 the AMX tiles are used (conv_blocks.c). Otherwise y and dx are oneDNN's, and a
 * filter gradient is ours by the same rule (with AVX-512 BF16, on an EPYC with 1 and 2 threads: 0.8 to 1.04 of
 * oneDNN's time for the two layers of tutorial-cnn, 0.3 to 1.2 for resnet20's except the first, 1.35). What oneDNN
 * computes wrongly or does not support is computed in f32 (widened.h); f16 runs by its reference kernel. */
#include "device/cpu/conv_blocks.h"
#include "device/cpu/conv_direct.h"
#include "device/cpu/cpu.h"
#include "device/cpu/dnnl_bugs.h"
#include "device/cpu/epilogue.h"
#include "device/cpu/frozen.h"
#include "device/cpu/isa/loops.h"
#include "device/cpu/ranges.h"
#include "device/cpu/widened.h"
#include "device/kit/members.h"

enum {
    FULL_CHANNELS = 32, /* two vectors of AVX-512 */
    FULL_PIXELS = 8,
    MAX_CACHED_K = 2304, /* a panel with a larger k does not fit the L2 cache */
    LARGE_FILTER = 1 << 18
};

typedef struct conv_data {
    cpu_direct *direct; /* one of these three is set */
    cpu_dnnl *dnnl;
    cpu_conv_blocks *blocks;
    cpu_widened widened; /* if `direct` computes a bf16 convolution in f32 */
    bool widens, bias, relu;
    tu_type type; /* of the result, of one member */
    tu__members members;
} conv_data;

static void run_widened(const conv_data *d, const cpu_direct_operands *narrow) {
    cpu_direct_operands wide;
    cpu_widen(&d->widened, narrow, &wide);
    cpu_direct_run(d->direct, &wide);
    cpu_narrow(&d->widened, &wide, narrow);
}

static tu_status run_one_conv(const tu__kernel *k) {
    const conv_data *d = k->data;
    const void *bias = d->bias ? k->in[2] : NULL;
    cpu_direct_operands o = {.first = k->in[0],
                             .second = k->in[1],
                             .bias = bias,
                             .out = k->out[0],
                             .workspace = k->workspace,
                             .relu = d->relu};
    if (d->blocks) cpu_conv_blocks_run(d->blocks, &o);
    if (d->direct && !d->widens) cpu_direct_run(d->direct, &o);
    if (d->widens) run_widened(d, &o);
    if (d->dnnl) TU_TRY(cpu_dnnl_run(d->dnnl, &o));
    if (d->dnnl || d->widens) cpu_apply_epilogue(k->device, d->type, k->out[0], bias, d->relu);
    return TU_OK;
}

static tu_status run_conv(const tu__kernel *k) {
    const conv_data *d = k->data;
    return tu__run_members(k, &d->members, run_one_conv);
}

static void release_conv(void *data) {
    conv_data *d = data;
    cpu_dnnl_free(d->dnnl);
}

static int64_t members_of(const tu__node *node) {
    switch (node->op->code) {
    case TU__OP_CONV2D_DX: return tu__attrs(node, conv2d_dx)->members;
    case TU__OP_CONV2D_DW: return tu__attrs(node, conv2d_dw)->members;
    default: return tu__attrs(node, conv2d)->members;
    }
}

/* Returns the type of one member's block. */
static tu_type block_type(const tu__node *node, tu_type type) {
    if (members_of(node)) type.shape.dim[0] /= members_of(node);
    return type;
}

/* Returns the convolution of one member. The attributes of the three operations start with the same fields. */
static cpu_convolution shape_of(const tu__node *node, tu_type x, tu_type filter, tu_type y) {
    const struct tu__conv2d_attrs *a = node->attrs;
    x = block_type(node, x);
    filter = block_type(node, filter);
    y = block_type(node, y);
    return (cpu_convolution){.windows = tu__windows_of(filter.shape.dim + 1, a->stride, a->dilation, a->pad),
                             .images = x.shape.dim[0],
                             .x_size = {x.shape.dim[1], x.shape.dim[2]},
                             .y_size = {y.shape.dim[1], y.shape.dim[2]},
                             .groups = a->groups,
                             .x_channels = filter.shape.dim[3],
                             .y_channels = filter.shape.dim[0] / a->groups};
}

/* True if rows of the result fill tiles of four vectors by six pixels, and a panel fits the cache. */
static bool fills_tiles(const cpu_convolution *c, int64_t in_channels, int64_t out_channels, int64_t pixels) {
    return out_channels % FULL_CHANNELS == 0 && pixels >= FULL_PIXELS &&
           c->windows.size[0] * c->windows.size[1] * in_channels <= MAX_CACHED_K;
}

/* True if our direct convolution is the first choice. */
static bool prefers_direct(const cpu_convolution *c, cpu_conv_result result, tu_dtype dtype, int threads) {
    if (dtype == TU_F64) return true;
    if (dtype == TU_BF16 && result != CPU_CONV_DW) return false;
    if (c->groups > 1) return false;
    switch (result) {
    case CPU_CONV_Y: return fills_tiles(c, c->x_channels, c->y_channels, c->y_size[1]);
    case CPU_CONV_DX:
        return c->windows.stride[0] == 1 && c->windows.stride[1] == 1 &&
               fills_tiles(c, c->y_channels, c->x_channels, c->x_size[1]);
    default:
        return c->images >= threads &&
               c->windows.size[0] * c->windows.size[1] * c->x_channels * c->y_channels <= LARGE_FILTER;
    }
}

/* Not in frozen graphs: oneDNN blocks its sums by the batch size, which a model's bits must not depend on (decision 43). */
static tu_status choose_dnnl(tu__selection *s, const cpu_convolution *c, cpu_conv_result result,
                             conv_data *d) {
    if (s->graph->is_frozen || cpu_dnnl_conv_bug(c, result, d->type.dtype)) return TU_OK;
    return cpu_dnnl_convolution(c, result, d->type.dtype, cpu_of(s)->threads, &d->dnnl);
}

/* Returns NULL if there are none. */
static const cpu_gemm_loops *direct_loops(const struct cpu_loops_gemm *loops, tu_dtype dtype,
                                          cpu_conv_result result) {
    if (dtype == TU_F32) return loops->f32;
    if (dtype == TU_F64) return loops->f64;
    if (dtype != TU_BF16 || result != CPU_CONV_DW) return NULL;
    return loops->bf16_dot && cpu_loops_has_bf16_dot() ? loops->bf16_dot : loops->bf16;
}

static tu_status choose_direct(tu__selection *s, const cpu_convolution *c, cpu_conv_result result,
                               conv_data *d) {
    const cpu_gemm_loops *loops = direct_loops(cpu_of(s)->loops->gemm, d->type.dtype, result);
    if (!loops) return TU_OK;
    return cpu_direct_new(&s->arena, loops, c, result, cpu_of(s)->threads, &d->direct);
}

static tu_status choose_blocks(tu__selection *s, const cpu_convolution *c, cpu_conv_result result,
                               conv_data *d) {
    const cpu_blocks *blocks = d->type.dtype == TU_BF16 ? cpu_blocks_for_this_machine() : NULL;
    if (!blocks) return TU_OK;
    return cpu_conv_blocks_new(&s->arena, blocks, cpu_of(s)->loops, c, result, cpu_of(s)->threads,
                               &d->blocks);
}

static tu_status choose_widened(tu__selection *s, const cpu_convolution *c, cpu_conv_result result,
                                conv_data *d) {
    if (d->type.dtype != TU_BF16) return TU_OK;
    TU_TRY(cpu_direct_new(&s->arena, cpu_of(s)->loops->gemm->f32, c, result, cpu_of(s)->threads, &d->direct));
    const int64_t x = c->images * c->x_size[0] * c->x_size[1] * c->groups * c->x_channels;
    const int64_t y = c->images * c->y_size[0] * c->y_size[1] * c->groups * c->y_channels;
    const int64_t filter =
        c->windows.size[0] * c->windows.size[1] * c->groups * c->y_channels * c->x_channels;
    const int64_t first[] = {x, y, x}, second[] = {filter, filter, y}, out[] = {y, x, filter};
    d->widened = (cpu_widened){first[result], second[result], out[result], cpu_of(s)->loops};
    d->widens = d->direct != NULL;
    return TU_OK;
}

/* Sets one of the implementations in `d`; returns TU_UNSUPPORTED if there is none. */
static tu_status choose_implementation(tu__selection *s, const cpu_convolution *c, cpu_conv_result result,
                                       conv_data *d) {
    TU_TRY(choose_blocks(s, c, result, d));
    if (d->blocks) return TU_OK;
    bool use_direct = prefers_direct(c, result, d->type.dtype, cpu_of(s)->threads);
    for (int attempt = 0; attempt < 2 && !d->dnnl && !d->direct; attempt++, use_direct = !use_direct)
        TU_TRY((use_direct ? choose_direct : choose_dnnl)(s, c, result, d));
    if (!d->dnnl && !d->direct) TU_TRY(choose_widened(s, c, result, d));
    return d->dnnl || d->direct ? TU_OK : TU_UNSUPPORTED;
}

static tu_status lower_convolution(tu__selection *s, const tu__node *node, cpu_conv_result result,
                                   const cpu_convolution *c, const char *const names[4]) {
    tu__epilogue epilogue = {.result = {node->id, 0}};
    if (result == CPU_CONV_Y) epilogue = tu__epilogue_of_members(s, node, members_of(node));
    conv_data data = {
        .bias = epilogue.add, .relu = epilogue.relu, .type = block_type(node, node->outputs[0])};
    tu__members_of(&data.members, s, node, members_of(node));
    if (epilogue.add) tu__members_add_bias(&data.members, s, epilogue.added, c->groups * c->y_channels, 2);
    TU_TRY(choose_implementation(s, c, result, &data));
    tu__kernel *k = tu__kernel_new(s, node, tu__epilogue_name(&epilogue, names), run_conv);
    conv_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) {
        cpu_dnnl_free(data.dnnl);
        return TU_NO_MEMORY;
    }
    *d = data;
    k->release = release_conv;
    k->workspace_bytes = d->blocks ? cpu_conv_blocks_workspace(d->blocks)
                         : d->dnnl ? cpu_dnnl_workspace(d->dnnl)
                                   : cpu_direct_workspace(d->direct);
    if (d->widens) k->workspace_bytes += cpu_widened_workspace(&d->widened);
    return cpu_kernel_add_epilogue_operands(k, s, node, &epilogue);
}

tu_status cpu_lower_conv2d(tu__selection *s, const tu__node *node) {
    static const char *const names[4] = TU__EPILOGUE_NAMES("conv2d");
    cpu_convolution c =
        shape_of(node, cpu_input_type(s, node, 0), cpu_input_type(s, node, 1), node->outputs[0]);
    tu_status status = members_of(node) ? TU_UNSUPPORTED : cpu_lower_frozen_conv2d(s, node, &c);
    return status == TU_UNSUPPORTED ? lower_convolution(s, node, CPU_CONV_Y, &c, names) : status;
}

tu_status cpu_lower_conv2d_dx(tu__selection *s, const tu__node *node) {
    static const char *const names[4] = {"conv2d_dx"};
    cpu_convolution c =
        shape_of(node, node->outputs[0], cpu_input_type(s, node, 1), cpu_input_type(s, node, 0));
    return lower_convolution(s, node, CPU_CONV_DX, &c, names);
}

tu_status cpu_lower_conv2d_dw(tu__selection *s, const tu__node *node) {
    static const char *const names[4] = {"conv2d_dw"};
    cpu_convolution c =
        shape_of(node, cpu_input_type(s, node, 0), node->outputs[0], cpu_input_type(s, node, 1));
    return lower_convolution(s, node, CPU_CONV_DW, &c, names);
}
