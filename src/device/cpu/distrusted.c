/* The one table of oneDNN's primitives that are wrong. Each row has the case that shows it, found by tests/sweep and kept
 * there (known.c); what a row excludes is computed by our own kernels.
 *
 * Rows are wider than the cases seen: the cause is inside a generated kernel, and its border is not worth guessing at.
 * Nothing wrong was found in f32. All of it is of oneDNN 2.6.3; other versions are held to the same rows. */
#include "device/cpu/distrusted.h"

#include "device/cpu/isa/instruction_sets.h"

/* ---- Convolutions ---- */

typedef struct convolution_rule {
    const char *reason;
    bool (*applies)(const cpu_convolution *c, cpu_convolution_side side);
} convolution_rule;

/* n6 5x1 c50 o65 k1x1 held to AVX512_CORE, forward: error 0.7. So are 1x1 of 5 pixels with an even number of channels to
 * sum over and more than 64 to compute, and their input gradients. bf16 is emulated there, and slower than our f32. */
static bool emulates_bf16(const cpu_convolution *c, cpu_convolution_side side) {
    (void)c, (void)side;
    return cpu_isa_in_use() < CPU_AVX512_BF16;
}

/* n4 10x18 c23 o13 k1x1: error 0.35; c50 o1: 2.0. Seen where the pixels of an image are a multiple of 30. */
static bool odd_channels_by_pairs(const cpu_convolution *c, cpu_convolution_side side) {
    return side == CPU_CONV_X && c->windows.size[0] == 1 && c->windows.size[1] == 1 && c->y_channels % 2 == 1;
}

/* Whether some place of the filter along an axis never meets a pixel, whichever window is looked at. */
static bool has_idle_place(const cpu_convolution *c, int axis) {
    for (int64_t k = 0; k < c->windows.size[axis]; k++) {
        bool meets = false;
        for (int64_t y = 0; y < c->y_size[axis] && !meets; y++) {
            int64_t x =
                y * c->windows.stride[axis] + k * c->windows.dilation[axis] - c->windows.pad[2 * axis];
            meets = x >= 0 && x < c->x_size[axis];
        }
        if (!meets) return true;
    }
    return false;
}

/* n5 3x1 c20 o24 k2x2 stride 3 pad 0,0,1,1 groups 2, filter gradient: error 1.8; n6 14x2 c32 depthwise k6x7: 1e37. Where a
 * column of the filter meets no pixel its gradient is zero, and oneDNN leaves there what lay in memory. */
static bool idle_places_keep_garbage(const cpu_convolution *c, cpu_convolution_side side) {
    return side == CPU_CONV_FILTER && (has_idle_place(c, 0) || has_idle_place(c, 1));
}

static const convolution_rule convolution_rules[] = {
    {"oneDNN emulates bf16 below AVX512_BF16: wrong for 1x1 filters over 5 pixels", emulates_bf16},
    {"oneDNN's bf16 input gradient of 1x1 filters is wrong for odd numbers of output channels",
     odd_channels_by_pairs},
    {"oneDNN's bf16 filter gradient leaves garbage where the filter meets no pixel",
     idle_places_keep_garbage},
};

const char *cpu_distrusted_convolution(const cpu_convolution *convolution, cpu_convolution_side side,
                                       tu_dtype dtype) {
    if (dtype != TU_BF16) return NULL;
    for (size_t i = 0; i < sizeof convolution_rules / sizeof *convolution_rules; i++)
        if (convolution_rules[i].applies(convolution, side)) return convolution_rules[i].reason;
    return NULL;
}

/* ---- Products ---- */

const char *cpu_distrusted_product(const cpu_dnnl_product *product) {
    if (product->dtype == TU_BF16 && cpu_isa_in_use() < CPU_AVX512_BF16)
        return "oneDNN emulates bf16 below AVX512_BF16";
    return NULL;
}
