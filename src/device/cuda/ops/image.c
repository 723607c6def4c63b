/* Host side of image resizing, cropping and their gradients: kernels/image.cu, one launch each. */
#include <tutti/ops.h>

#include "device/cuda/ops/columns.h"
#include "device/cuda/ops/extent.h"
#include "device/cuda/ops/ops.h"

#include "device/cuda/kernels/image_args.h"

/* True if rows and columns fit into 32 bits, as kernels/image.cu needs. */
static bool is_small(tu_shape images) {
    const int64_t limit = INT32_MAX / 4;
    return images.dim[1] <= limit && images.dim[2] <= limit && images.dim[3] <= limit;
}

/* Plans a grid over the pixels of the result. Returns TU_UNSUPPORTED if the sizes are too large. */
static tu_status plan_pixels(tu__selection *s, tu_shape from, tu_shape to, int pack, column_grid *layout,
                             fast_divmod *height, fast_divmod *width, cuda_grid *grid) {
    if (!is_small(from) || !is_small(to)) return TU_UNSUPPORTED;
    *height = cuda_fast_divmod((uint32_t)to.dim[1]);
    *width = cuda_fast_divmod((uint32_t)to.dim[2]);
    int64_t pixels = to.dim[0] * to.dim[1] * to.dim[2];
    return cuda_plan_columns(cuda_of(s), pixels, to.dim[3] / pack, 0, layout, grid) ? TU_OK : TU_UNSUPPORTED;
}

static tu_status add_operands(tu__kernel *k, const tu__node *node) {
    for (uint32_t i = 0; i < node->input_count; i++) TU_TRY(tu__kernel_read(k, node->inputs[i]));
    return tu__kernel_write(k, (tu__edge){node->id, 0}, -1);
}

/* ---- Resizing ---- */

typedef struct resize_data {
    resize_args args; /* without addresses */
    cuda_grid grid;
    cuda_function *function;
} resize_data;

static tu_status run_resize(const tu__kernel *k) {
    const resize_data *d = k->data;
    resize_args a = d->args;
    a.from = k->in[0], a.to = k->out[0];
    return cuda_launch(k, d->function, d->grid, &a);
}

/* `kernel` is the template's name, `type` its element type. */
static tu_status lower_resize_kernel(tu__selection *s, const tu__node *node, tu_shape original,
                                     tu_shape resized, int64_t method, const char *kernel, const char *type) {
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_resize);
    resize_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    tu_type to = node->outputs[0];
    int pack = cuda_pack_width(to.dtype, to.shape.dim[3]);
    resize_args *a = &d->args;
    TU_TRY(plan_pixels(s, tu__type_of(s, node->inputs[0])->shape, to.shape, pack, &a->layout, &a->to_height,
                       &a->to_width, &d->grid));
    a->nearest = method == TU_NEAREST;
    for (int i = 0; i < 2; i++) {
        a->original[i] = (int)original.dim[1 + i];
        a->resized[i] = (int)resized.dim[1 + i];
    }
    d->function = cuda_request(s, "image", "%s<%s, %d>", kernel, type, pack);
    return d->function ? add_operands(k, node) : TU_NO_MEMORY;
}

tu_status cuda_lower_resize(tu__selection *s, const tu__node *node) {
    tu_type x = *tu__type_of(s, node->inputs[0]);
    int64_t method = tu__attrs(node, resize)->method;
    bool is_copy = method == TU_NEAREST;
    return lower_resize_kernel(s, node, x.shape, node->outputs[0].shape, method,
                               is_copy ? "resize_nearest" : "resize",
                               is_copy ? cuda_word(tu_dtype_size(x.dtype)) : cuda_type(x.dtype));
}

tu_status cuda_lower_resize_grad(tu__selection *s, const tu__node *node) {
    tu_type dy = *tu__type_of(s, node->inputs[0]);
    return lower_resize_kernel(s, node, node->outputs[0].shape, dy.shape,
                               tu__attrs(node, resize_grad)->method, "resize_grad", cuda_type(dy.dtype));
}

/* ---- Cropping. Inputs: images or their gradient, offsets ---- */

typedef struct crop_data {
    crop_args args; /* without addresses */
    cuda_grid grid;
    cuda_function *function;
} crop_data;

static tu_status run_crop(const tu__kernel *k) {
    const crop_data *d = k->data;
    crop_args a = d->args;
    a.from = k->in[0], a.offsets = k->in[1], a.to = k->out[0];
    return cuda_launch(k, d->function, d->grid, &a);
}

static tu_status lower_crop_kernel(tu__selection *s, const tu__node *node, tu_shape image, tu_shape window) {
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_crop);
    crop_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    tu_type to = node->outputs[0];
    int pack = cuda_pack_width(to.dtype, to.shape.dim[3]);
    crop_args *a = &d->args;
    TU_TRY(plan_pixels(s, tu__type_of(s, node->inputs[0])->shape, to.shape, pack, &a->layout, &a->to_height,
                       &a->to_width, &d->grid));
    for (int i = 0; i < 2; i++) {
        a->image[i] = (int)image.dim[1 + i];
        a->window[i] = (int)window.dim[1 + i];
    }
    /* only the windows of the images are read */
    k->bytes_moved = (int64_t)(tu_type_bytes((tu_type){to.dtype, window}) + tu_type_bytes(to));
    d->function =
        cuda_request(s, "image", "%s<%s, %d, %s>", node->op->name, cuda_word(tu_dtype_size(to.dtype)), pack,
                     cuda_type(tu__type_of(s, node->inputs[1])->dtype));
    return d->function ? add_operands(k, node) : TU_NO_MEMORY;
}

tu_status cuda_lower_crop(tu__selection *s, const tu__node *node) {
    return lower_crop_kernel(s, node, tu__type_of(s, node->inputs[0])->shape, node->outputs[0].shape);
}

tu_status cuda_lower_crop_grad(tu__selection *s, const tu__node *node) {
    return lower_crop_kernel(s, node, node->outputs[0].shape, tu__type_of(s, node->inputs[0])->shape);
}
