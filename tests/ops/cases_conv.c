/* Cases of convolution and transposed convolution. conv2d_dx and conv2d_dw are the first derivatives of conv2d,
 * and the derivatives of each of the three are the other two, so that second-order checks cover all of them.
 *
 * cases.h describes case_pick (0 to count-1; every value occurs) and case_size (random, bounds included). */
#include "ops/cases.h"

typedef struct geometry {
    int64_t kernel[2], stride[2], dilation[2], pad[4], extent[2];
    int64_t groups, in, out; /* in, out: channels per group */
    tu_padding padding;
} geometry;

/* Returns random options of a convolution. Sizes are small, because the gradient check perturbs every element. */
static geometry random_geometry(case_run *c) {
    geometry g = {.padding = (tu_padding)case_pick(c, "padding", 3)};
    int64_t stride = 1 + case_pick(c, "stride", 3), dilation = 1 + case_pick(c, "dilation", 2);
    enum { UNGROUPED, GROUPED, DEPTHWISE, KINDS };
    int kind = case_pick(c, "groups", KINDS);
    g.groups = kind == UNGROUPED ? 1 : case_size(c, 2, 3);
    g.in = kind == DEPTHWISE ? 1 : case_size(c, 1, 2);
    g.out = kind == DEPTHWISE ? case_size(c, 1, 2) : case_size(c, 1, 3);
    for (int axis = 0; axis < 2; axis++) {
        g.kernel[axis] = case_size(c, 1, 3);
        g.stride[axis] = axis == 0 ? stride : case_size(c, 1, 3);
        g.dilation[axis] = axis == 0 ? dilation : case_size(c, 1, 2);
        g.extent[axis] = (g.kernel[axis] - 1) * g.dilation[axis] + 1;
        for (int side = 0; side < 2 && g.padding == TU_EXPLICIT; side++)
            g.pad[2 * axis + side] = case_size(c, 0, 2);
    }
    return g;
}

static tu_value random_filter(case_run *c, const geometry *g) {
    return case_input(c, TU_SHAPE(g->groups * g->out, g->kernel[0], g->kernel[1], g->in), -1, 1);
}

OP_CASE(conv2d, CASE_ALL_CHECKS) {
    geometry g = random_geometry(c);
    int64_t size[2];
    for (int axis = 0; axis < 2; axis++) {
        int64_t pad = g.pad[2 * axis] + g.pad[2 * axis + 1];
        int64_t min_size = g.padding == TU_SAME || g.extent[axis] <= pad ? 1 : g.extent[axis] - pad;
        size[axis] = case_size(c, min_size, min_size < 4 ? 5 : min_size + 1);
    }
    tu_value x = case_input(c, TU_SHAPE(case_size(c, 1, 2), size[0], size[1], g.groups * g.in), -1, 1);
    tu_value y = tu_convolve(x, random_filter(c, &g), .stride = {g.stride[0], g.stride[1]},
                             .dilation = {g.dilation[0], g.dilation[1]}, .padding = g.padding,
                             .pad = {g.pad[0], g.pad[1], g.pad[2], g.pad[3]}, .groups = g.groups);
    case_output(c, y);
}

OP_CASE(conv2d_dx, CASE_ALL_CHECKS) {
    geometry g = random_geometry(c);
    bool sized = case_pick(c, "size", 2);
    int64_t y_size[2], size[2] = {0, 0};
    for (int axis = 0; axis < 2; axis++) {
        y_size[axis] = case_size(c, 1, 3);
        int64_t last_start = (y_size[axis] - 1) * g.stride[axis]; /* of a window in the padded x */
        /* Keep at least one pixel of x. */
        while (g.pad[2 * axis] + g.pad[2 * axis + 1] >= last_start + g.extent[axis])
            g.pad[2 * axis + (g.pad[2 * axis] == 0)]--;
        int64_t min_size = g.padding == TU_SAME
                               ? last_start + 1
                               : last_start + g.extent[axis] - g.pad[2 * axis] - g.pad[2 * axis + 1];
        if (sized) size[axis] = case_size(c, min_size, min_size + g.stride[axis] - 1);
    }
    tu_value y = case_input(c, TU_SHAPE(case_size(c, 1, 2), y_size[0], y_size[1], g.groups * g.out), -1, 1);
    tu_value x = tu_convolve_transpose(y, random_filter(c, &g), .stride = {g.stride[0], g.stride[1]},
                                       .dilation = {g.dilation[0], g.dilation[1]}, .padding = g.padding,
                                       .pad = {g.pad[0], g.pad[1], g.pad[2], g.pad[3]}, .groups = g.groups,
                                       .size = {size[0], size[1]});
    case_output(c, x);
}

/* The results are gradients of conv2d, so the first-order check tests second derivatives of conv2d and the
 * second-order check tests third derivatives. */
OP_CASE(conv2d_gradient, CASE_ALL_CHECKS) {
    tu_value x = case_input(c, TU_SHAPE(1, case_size(c, 2, 4), case_size(c, 2, 4), 2), -1, 1);
    tu_value filter = case_input(c, TU_SHAPE(2, 2, 2, 1), -1, 1);
    tu_value y = tu_convolve(x, filter, .stride = {1 + case_pick(c, "stride", 2), 1}, .groups = 2);
    tu_value wrt[2] = {x, filter}, gradients[2];
    tu_gradients(tu_sum(tu_square(y)), 2, wrt, gradients);
    case_output(c, gradients[0]);
    case_output(c, gradients[1]);
}
