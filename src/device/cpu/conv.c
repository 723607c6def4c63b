/* Makers of convolutions: by oneDNN (dnnl.c) or by our own tiles (conv_direct.c).
 *
 * Both run near the processor's peak on wide layers. Measured side by side (a Xeon with AVX-512; 1, 2 and 16
 * threads; 32 or 128 images; time of ours over oneDNN 2.6.3's):
 *
 *     y       0.92 to 1.08 for the two layers of tutorial-cnn and over 56x56 pixels, 1.0 to 1.3 for resnet20's, 1.4 to
 *             1.5 over 7x7
 *     x       0.81 to 0.94 for 64 channels over 12x12 pixels, 0.85 to 1.04 over 14x14 and 56x56, 1.0 to 1.6 for fewer
 *             channels, more with a stride
 *     filter  0.8 to 1.2 up to some 200,000 weights, 1.1 to 1.6 beyond; where there are fewer images than threads
 *             ours does not split the work
 *
 * So y and x are ours where tiles are full, which saves y a pass over the result for a bias and a rectifier (oneDNN's
 * are of no use: epilogue.h), and oneDNN's elsewhere. For 32 and 64 channels over 8x8 and 16x16 pixels no difference could be
 * told from the noise (a step of resnet20, medians of three in turn: 182 ms with ours, 187 with oneDNN's on 2 threads, 33.5
 * and 35.1 on 16); they are ours, whose images are dealt out as workers come free. A filter's gradient is ours
 * where images are enough to go around and the filter is not large. What follows a convolution has no say in it: a value
 * must not depend on what it was fused with. f64 is ours, and each takes what the other does not offer.
 *
 * In bf16 a third way comes first where the processor has AMX and strides are 1 (conv_blocks.c); else y and x are
 * oneDNN's, and a filter's gradient is ours by the same rule (with AVX-512 BF16, on an EPYC with 1 and 2 threads: 0.8 to
 * 1.04 of oneDNN's time for the two layers of tutorial-cnn, 0.3 to 1.2 for resnet20's but the first, 1.35). What oneDNN is
 * not trusted with or does not offer goes through f32 (widened.h); f16 runs by its reference kernel. */
#include "device/cpu/conv_blocks.h"
#include "device/cpu/conv_direct.h"
#include "device/cpu/cpu.h"
#include "device/cpu/distrusted.h"
#include "device/cpu/epilogue.h"
#include "device/cpu/isa/loops.h"
#include "device/cpu/ranges.h"
#include "device/cpu/widened.h"

enum {
    FULL_CHANNELS = 32, /* two vectors of AVX-512 */
    FULL_PIXELS = 8,
    DEEP = 2304, /* k of a panel that no longer stays in the second-level cache */
    LARGE_FILTER = 1 << 18
};

typedef struct conv_data {
    cpu_direct *direct; /* one of these three */
    cpu_dnnl *dnnl;
    cpu_conv_blocks *blocks;
    cpu_widened widened; /* where `direct` computes in f32 what is kept in bf16 */
    bool widens, bias, relu;
    tu_type type; /* of the result */
} conv_data;

static void run_widened(const conv_data *d, const cpu_direct_operands *narrow) {
    cpu_direct_operands wide;
    cpu_widen(&d->widened, narrow, &wide);
    cpu_direct_run(d->direct, &wide);
    cpu_narrow(&d->widened, &wide, narrow);
}

static tu_status run_conv(const tu__kernel *k) {
    const conv_data *d = k->data;
    const void *bias = d->bias ? k->in[2] : NULL;
    cpu_direct_operands o = {k->in[0], k->in[1], bias, k->out[0], k->workspace, d->relu};
    if (d->blocks) cpu_conv_blocks_run(d->blocks, &o);
    if (d->direct && !d->widens) cpu_direct_run(d->direct, &o);
    if (d->widens) run_widened(d, &o);
    if (d->dnnl) TU_TRY(cpu_dnnl_run(d->dnnl, &o));
    if (d->dnnl || d->widens) cpu_end_in_place(k->device, d->type, k->out[0], bias, d->relu);
    return TU_OK;
}

static void release_conv(void *data) {
    conv_data *d = data;
    cpu_dnnl_free(d->dnnl);
}

/* Attributes of the three operations begin alike. */
static cpu_convolution shape_of(const tu__node *node, tu_type x, tu_type filter, tu_type y) {
    const struct tu__conv2d_attrs *a = node->attrs;
    return (cpu_convolution){.windows = tu__windows_of(filter.shape.dim + 1, a->stride, a->dilation, a->pad),
                             .images = x.shape.dim[0],
                             .x_size = {x.shape.dim[1], x.shape.dim[2]},
                             .y_size = {y.shape.dim[1], y.shape.dim[2]},
                             .groups = a->groups,
                             .x_channels = filter.shape.dim[3],
                             .y_channels = filter.shape.dim[0] / a->groups};
}

/* Rows of the result fill tiles of four vectors by six pixels, and a panel stays in the cache. */
static bool fills_tiles(const cpu_convolution *c, int64_t in_channels, int64_t out_channels, int64_t pixels) {
    return out_channels % FULL_CHANNELS == 0 && pixels >= FULL_PIXELS &&
           c->windows.size[0] * c->windows.size[1] * in_channels <= DEEP;
}

/* Whether ours is the first choice. */
static bool prefers_own(const cpu_convolution *c, cpu_convolution_side side, tu_dtype dtype, int threads) {
    if (dtype == TU_F64) return true;
    if (dtype == TU_BF16 && side != CPU_CONV_FILTER) return false;
    if (c->groups > 1) return false;
    switch (side) {
    case CPU_CONV_Y: return fills_tiles(c, c->x_channels, c->y_channels, c->y_size[1]);
    case CPU_CONV_X:
        return c->windows.stride[0] == 1 && c->windows.stride[1] == 1 &&
               fills_tiles(c, c->y_channels, c->x_channels, c->x_size[1]);
    default:
        return c->images >= threads &&
               c->windows.size[0] * c->windows.size[1] * c->x_channels * c->y_channels <= LARGE_FILTER;
    }
}

static tu_status choose_dnnl(tu__selection *s, const cpu_convolution *c, cpu_convolution_side side,
                             conv_data *d) {
    if (cpu_distrusted_convolution(c, side, d->type.dtype)) return TU_OK;
    return cpu_dnnl_convolution(c, side, d->type.dtype, cpu_of(s)->threads, &d->dnnl);
}

/* NULL where there are none. */
static const cpu_gemm_loops *own_loops(const struct cpu_loops_gemm *loops, tu_dtype dtype,
                                       cpu_convolution_side side) {
    if (dtype == TU_F32) return loops->f32;
    if (dtype == TU_F64) return loops->f64;
    if (dtype != TU_BF16 || side != CPU_CONV_FILTER) return NULL;
    return loops->bf16_dot && cpu_loops_has_bf16_dot() ? loops->bf16_dot : loops->bf16;
}

static tu_status choose_own(tu__selection *s, const cpu_convolution *c, cpu_convolution_side side,
                            conv_data *d) {
    const cpu_gemm_loops *loops = own_loops(cpu_of(s)->loops->gemm, d->type.dtype, side);
    if (!loops) return TU_OK;
    return cpu_direct_new(&s->arena, loops, c, side, cpu_of(s)->threads, &d->direct);
}

static tu_status choose_blocks(tu__selection *s, const cpu_convolution *c, cpu_convolution_side side,
                               conv_data *d) {
    const cpu_blocks *blocks = d->type.dtype == TU_BF16 ? cpu_blocks_for_this_machine() : NULL;
    if (!blocks) return TU_OK;
    return cpu_conv_blocks_new(&s->arena, blocks, cpu_of(s)->loops, c, side, cpu_of(s)->threads, &d->blocks);
}

static tu_status choose_widened(tu__selection *s, const cpu_convolution *c, cpu_convolution_side side,
                                conv_data *d) {
    if (d->type.dtype != TU_BF16) return TU_OK;
    TU_TRY(cpu_direct_new(&s->arena, cpu_of(s)->loops->gemm->f32, c, side, cpu_of(s)->threads, &d->direct));
    const int64_t x = c->images * c->x_size[0] * c->x_size[1] * c->groups * c->x_channels;
    const int64_t y = c->images * c->y_size[0] * c->y_size[1] * c->groups * c->y_channels;
    const int64_t filter =
        c->windows.size[0] * c->windows.size[1] * c->groups * c->y_channels * c->x_channels;
    const int64_t first[] = {x, y, x}, second[] = {filter, filter, y}, out[] = {y, x, filter};
    d->widened = (cpu_widened){first[side], second[side], out[side], cpu_of(s)->loops};
    d->widens = d->direct != NULL;
    return TU_OK;
}

/* Fills `d` with one of the ways; TU_UNSUPPORTED when there is none. */
static tu_status choose(tu__selection *s, const cpu_convolution *c, cpu_convolution_side side, conv_data *d) {
    TU_TRY(choose_blocks(s, c, side, d));
    if (d->blocks) return TU_OK;
    bool own = prefers_own(c, side, d->type.dtype, cpu_of(s)->threads);
    for (int attempt = 0; attempt < 2 && !d->dnnl && !d->direct; attempt++, own = !own)
        TU_TRY((own ? choose_own : choose_dnnl)(s, c, side, d));
    if (!d->dnnl && !d->direct) TU_TRY(choose_widened(s, c, side, d));
    return d->dnnl || d->direct ? TU_OK : TU_UNSUPPORTED;
}

static tu_status make(tu__selection *s, const tu__node *node, cpu_convolution_side side,
                      const cpu_convolution *c, const char *const names[4]) {
    tu__epilogue epilogue = {.result = {node->id, 0}};
    if (side == CPU_CONV_Y) epilogue = tu__epilogue_of(s, node);
    conv_data found = {.bias = epilogue.add, .relu = epilogue.relu, .type = node->outputs[0]};
    TU_TRY(choose(s, c, side, &found));
    tu__kernel *k = tu__kernel_new(s, node, tu__epilogue_name(&epilogue, names), run_conv);
    conv_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) {
        cpu_dnnl_free(found.dnnl);
        return TU_NO_MEMORY;
    }
    *d = found;
    k->release = release_conv;
    k->workspace_bytes = d->blocks ? cpu_conv_blocks_workspace(d->blocks)
                         : d->dnnl ? cpu_dnnl_workspace(d->dnnl)
                                   : cpu_direct_workspace(d->direct);
    if (d->widens) k->workspace_bytes += cpu_widened_workspace(&d->widened);
    return cpu_kernel_bind_to_end(k, s, node, &epilogue);
}

tu_status cpu_lower_conv2d(tu__selection *s, const tu__node *node) {
    static const char *const names[4] = TU__EPILOGUE_NAMES("conv2d");
    cpu_convolution c =
        shape_of(node, cpu_input_type(s, node, 0), cpu_input_type(s, node, 1), node->outputs[0]);
    return make(s, node, CPU_CONV_Y, &c, names);
}

tu_status cpu_lower_conv2d_dx(tu__selection *s, const tu__node *node) {
    static const char *const names[4] = {"conv2d_dx"};
    cpu_convolution c =
        shape_of(node, node->outputs[0], cpu_input_type(s, node, 1), cpu_input_type(s, node, 0));
    return make(s, node, CPU_CONV_X, &c, names);
}

tu_status cpu_lower_conv2d_dw(tu__selection *s, const tu__node *node) {
    static const char *const names[4] = {"conv2d_dw"};
    cpu_convolution c =
        shape_of(node, cpu_input_type(s, node, 0), node->outputs[0], cpu_input_type(s, node, 1));
    return make(s, node, CPU_CONV_FILTER, &c, names);
}
