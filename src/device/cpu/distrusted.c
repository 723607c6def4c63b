/* The one table of oneDNN's primitives that are wrong, with the cases that show it: found by tests/sweep, kept there
 * (known.c). What a row excludes is computed by our own kernels.
 *
 * oneDNN 2.6.3 was right in every sweep of f32, and in bf16 where networks usually are: square strides of 1 or 2, no
 * dilation, no groups, channels in multiples of 8. Outside of that it was wrong in so many corners, each with a border of its
 * own inside some generated kernel, that it is not asked at all. Other versions are held to the same rows. */
#include "device/cpu/distrusted.h"

#include "device/cpu/isa/instruction_sets.h"

/* ---- Convolutions ---- */

typedef struct convolution_rule {
    const char *reason;
    bool (*applies)(const cpu_convolution *c, cpu_convolution_side side);
} convolution_rule;

/* n6 5x1 c50 o65 k1x1 held to AVX512_CORE, forward: error 0.7. bf16 is emulated there, and slower than our f32. */
static bool emulates_bf16(const cpu_convolution *c, cpu_convolution_side side) {
    (void)c, (void)side;
    return cpu_isa_emulates_bf16();
}

/* Filter gradients: n3 16x33 c26 depthwise k2x3 dilation 2,1: error 5.6; n5 3x1 c20 o24 k2x2 stride 3 groups 2: 1.8; n6 14x2 c32
 * depthwise k6x7: 1e37. */
static bool has_groups(const cpu_convolution *c, cpu_convolution_side side) {
    (void)side;
    return c->groups > 1;
}

/* Filter gradient: n2 18x32 c50 o2 k3x1 dilation 2,1 on 3 threads: 7e36. Forward: n1 1x19 c101 o23 k1x3 stride 1,3
 * dilation 1,3 on 3 threads: 0.18. */
static bool has_holes(const cpu_convolution *c, cpu_convolution_side side) {
    (void)side;
    return c->windows.dilation[0] > 1 || c->windows.dilation[1] > 1;
}

/* Forward: n2 14x8 c17 o23 k4x4 stride 1,4 on 3 threads: 4e12. With AMX n1 25x3 c97 o128 k1x4 stride 4: 0.08. Filter gradient:
 * n2 32x23 c8 o1 k1x1 stride 2,1 on 3 threads: 0.1. */
static bool has_unusual_strides(const cpu_convolution *c, cpu_convolution_side side) {
    (void)side;
    return c->windows.stride[0] != c->windows.stride[1] || c->windows.stride[0] > 2;
}

/* Input gradient: n4 10x18 c23 o13 k1x1: 0.35; c50 o1: 2.0. A first layer has few channels, and is right forward. */
static bool has_unusual_channels(const cpu_convolution *c, cpu_convolution_side side) {
    bool first_layer = side == CPU_CONV_Y && c->x_channels <= 4;
    return c->y_channels % 8 != 0 || (c->x_channels % 8 != 0 && !first_layer);
}

/* Whether some place of the filter along an axis never meets a pixel, whichever window is looked at. */
static bool has_idle_place(const cpu_convolution *c, int axis) {
    const tu__windows *w = &c->windows;
    for (int64_t k = 0; k < w->size[axis]; k++) {
        int64_t pixel = k * w->dilation[axis] - w->pad[2 * axis], stride = w->stride[axis];
        int64_t window =
            pixel < 0 ? (stride - 1 - pixel) / stride : 0; /* the first that meets none before the image */
        if (window >= c->y_size[axis] || pixel + window * stride >= c->x_size[axis]) return true;
    }
    return false;
}

/* n5 3x1 c20 o24 k2x2 stride 3 pad 0,0,1,1, filter gradient: a column of the filter that meets no pixel has a gradient of
 * zero, and keeps what lay in memory. */
static bool leaves_garbage(const cpu_convolution *c, cpu_convolution_side side) {
    return side == CPU_CONV_FILTER && (has_idle_place(c, 0) || has_idle_place(c, 1));
}

static const convolution_rule convolution_rules[] = {
    {"bf16 is emulated below AVX512_BF16", emulates_bf16},
    {"groups in bf16", has_groups},
    {"dilated filters in bf16", has_holes},
    {"strides beyond 1 and 2 in bf16", has_unusual_strides},
    {"channels that are no multiple of 8 in bf16", has_unusual_channels},
    {"filter gradients in bf16 where the filter meets no pixel", leaves_garbage},
};

const char *cpu_distrusted_convolution(const cpu_convolution *convolution, cpu_convolution_side side,
                                       tu_dtype dtype) {
    if (dtype != TU_BF16) return NULL;
    for (size_t i = 0; i < sizeof convolution_rules / sizeof *convolution_rules; i++)
        if (convolution_rules[i].applies(convolution, side)) return convolution_rules[i].reason;
    return NULL;
}

/* ---- Products ---- */

/* m257 n5 k63, a transposed, with AMX on 2 threads: an illegal instruction. m63 n53 k41 on 3 threads: 8e28; a gradient with
 * m93 n67 k63, both transposed, batch 3 against one: 0.99. */
static bool fills_no_tiles(const cpu_dnnl_product *p) {
    enum { TILE = 16 };
    return cpu_isa_in_use() >= CPU_AMX && (p->m % TILE != 0 || p->n % TILE != 0 || p->k % TILE != 0);
}

const char *cpu_distrusted_product(const cpu_dnnl_product *product) {
    if (product->dtype != TU_BF16) return NULL;
    if (cpu_isa_emulates_bf16()) return "bf16 is emulated below AVX512_BF16";
    return fills_no_tiles(product) ? "sizes that are no multiple of 16 in bf16 with AMX" : NULL;
}
