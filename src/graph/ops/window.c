/* Sliding windows over images. See window.h. */
#include "graph/ops/window.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"

static const char *const axis_name[2] = {"height", "width"};

tu__windows tu__windows_of(const int64_t size[2], const int64_t stride[2], const int64_t dilation[2],
                           const int64_t pad[4]) {
    return (tu__windows){.size = {size[0], size[1]},
                         .stride = {stride[0], stride[1]},
                         .dilation = {dilation[0], dilation[1]},
                         .pad = {pad[0], pad[1], pad[2], pad[3]}};
}

/* Computes the number of input pixels that a window spans: (size - 1) * dilation + 1; false if it overflows. */
static bool window_extent(const tu__windows *w, int axis, int64_t *extent) {
    int64_t size = w->size[axis], dilation = w->dilation[axis];
    if (size < 1 || dilation < 1) return false;
    return !__builtin_mul_overflow(size - 1, dilation, extent) && !__builtin_add_overflow(*extent, 1, extent);
}

/* Sets the padding of TU_SAME along one axis. No overflow: with out = ceil(input / stride), (out - 1) * stride <
 * input. */
static void pad_same(tu__windows *w, int axis, int64_t input) {
    int64_t extent, stride = w->stride[axis];
    if (input < 1 || stride < 1 || !window_extent(w, axis, &extent)) return;
    int64_t last_start = (input - 1) / stride * stride;
    int64_t total = extent - (input - last_start);
    if (total <= 0) return;
    w->pad[2 * axis] = total / 2;
    w->pad[2 * axis + 1] = total - total / 2;
}

bool tu__resolve_padding(tu_value x, const char *operation, const int64_t input[2], tu_padding padding,
                         const int64_t given[4], tu__windows *windows) {
    memset(windows->pad, 0, sizeof windows->pad);
    const char *name = tu_value_name(x), *type = tu__type_string(tu_value_type(x));
    if (padding == TU_EXPLICIT) {
        memcpy(windows->pad, given, sizeof windows->pad);
        return true;
    }
    if (padding != TU_SAME && padding != TU_VALID) {
        tu__graph_fail(x.graph, TU_INVALID,
                       "%s of '%s' %s: padding is %d, expected TU_SAME, TU_VALID or TU_EXPLICIT", operation,
                       name, type, (int)padding);
        return false;
    }
    for (int i = 0; i < 4; i++)
        if (given[i] != 0) {
            tu__graph_fail(x.graph, TU_INVALID,
                           "%s of '%s' %s: pad[%d] is %" PRId64 ", but .pad needs .padding = TU_EXPLICIT",
                           operation, name, type, i, given[i]);
            return false;
        }
    if (padding == TU_SAME)
        for (int axis = 0; axis < 2; axis++) pad_same(windows, axis, input[axis]);
    return true;
}

static tu_status fail_below(const tu__rule *r, const char *what, int index, int64_t value, int64_t min) {
    return tu__rule_fail(r, "%s[%d] is %" PRId64 ", expected at least %" PRId64, what, index, value, min);
}

static tu_status check_window_parameters(const tu__rule *r, const tu__windows *w) {
    for (int i = 0; i < 2; i++) {
        if (w->size[i] < 1) return fail_below(r, "window size", i, w->size[i], 1);
        if (w->stride[i] < 1) return fail_below(r, "stride", i, w->stride[i], 1);
        if (w->dilation[i] < 1) return fail_below(r, "dilation", i, w->dilation[i], 1);
    }
    for (int i = 0; i < 4; i++)
        if (w->pad[i] < 0) return fail_below(r, "pad", i, w->pad[i], 0);
    return TU_OK;
}

tu_status tu__window_outputs(const tu__rule *r, const tu__windows *w, const int64_t input[2],
                             int64_t output[2]) {
    TU_TRY(check_window_parameters(r, w));
    for (int axis = 0; axis < 2; axis++) {
        int64_t extent, padded, before = w->pad[2 * axis], after = w->pad[2 * axis + 1];
        if (input[axis] < 1)
            return tu__rule_fail(r, "the %s is %" PRId64 ", expected at least 1", axis_name[axis],
                                 input[axis]);
        if (!window_extent(w, axis, &extent) || __builtin_add_overflow(input[axis], before, &padded) ||
            __builtin_add_overflow(padded, after, &padded))
            return tu__rule_fail(r, "the %s of window or padding is too large: it overflows 64 bits",
                                 axis_name[axis]);
        if (extent > padded)
            return tu__rule_fail(r,
                                 "the window's %s of %" PRId64 " is larger than the input's %" PRId64
                                 " with padding %" PRId64 " + %" PRId64,
                                 axis_name[axis], extent, input[axis], before, after);
        output[axis] = 1 + (padded - extent) / w->stride[axis];
    }
    return TU_OK;
}

tu_status tu__check_window_outputs(const tu__rule *r, const tu__windows *w, const int64_t input[2],
                                   const int64_t expected[2]) {
    int64_t output[2] = {0, 0};
    TU_TRY(tu__window_outputs(r, w, input, output));
    if (output[0] != expected[0] || output[1] != expected[1])
        return tu__rule_fail(r,
                             "an input of %" PRId64 " x %" PRId64 " gives an output of %" PRId64 " x %" PRId64
                             ", but y is %" PRId64 " x %" PRId64,
                             input[0], input[1], output[0], output[1], expected[0], expected[1]);
    return TU_OK;
}

bool tu__window_input(const tu__windows *w, int axis, int64_t count, int64_t *input) {
    int64_t extent;
    return window_extent(w, axis, &extent) && !__builtin_mul_overflow(count - 1, w->stride[axis], input) &&
           !__builtin_add_overflow(*input, extent, input) &&
           !__builtin_sub_overflow(*input, w->pad[2 * axis], input) &&
           !__builtin_sub_overflow(*input, w->pad[2 * axis + 1], input);
}

bool tu__check_nhwc(tu_value x, const char *operation) {
    if (!tu_ok(x)) return false;
    if (tu_value_shape(x).rank == 4) return true;
    tu__graph_fail(x.graph, TU_INVALID, "%s of '%s' %s: the rank is %" PRId64 ", expected 4: [n,h,w,c]",
                   operation, tu_value_name(x), tu__type_string(tu_value_type(x)), tu_value_shape(x).rank);
    return false;
}

const int64_t *tu__input_height_width(const tu__vjp *vjp, uint32_t input) {
    tu__edge edge = vjp->node->inputs[input];
    return vjp->graph->nodes[edge.node]->outputs[edge.output].shape.dim + 1;
}

void tu__fill_zero(const tu__tensor *tensor) {
    memset(tensor->data, 0, (size_t)tu_shape_elements(tensor->type.shape) * sizeof(double));
}

int64_t tu__saturating_product(size_t count, const int64_t *factors) {
    int64_t product = 1;
    for (size_t i = 0; i < count; i++)
        if (__builtin_mul_overflow(product, factors[i], &product)) return INT64_MAX;
    return product;
}
