/* Lowering rules of integer convolutions and products.
 *
 * A requantization that is the only reader of the sums is computed by the same kernel, tile by tile, so that the sums
 * never leave the cache: int8_conv.c. A constant filter is packed when it is lowered: once for all programs if its data is shared
 * (packed_weights.h). */
#include "base/alloc.h"
#include "device/cpu/cpu.h"
#include "device/cpu/int8_conv.h"
#include "device/cpu/isa/loops.h"
#include "device/cpu/ranges.h"

/* Inputs of the kernel: x, [the filter, if it is no constant], [factors, bias, [the residual]]. */
typedef struct int8_data {
    cpu_int8_conv *plan;
    /* A constant filter, packed; at most one of these. */
    cpu_packed_weights *shared;
    void *own;
    const void *packed; /* the data of one of them; NULL: the filter is packed in every run */
    bool requantizes, adds;
    cpu_requantization to; /* without addresses */
} int8_data;

static tu_status run_int8(const tu__kernel *k) {
    const int8_data *d = k->data;
    int next = 0;
    cpu_int8_operands o = {.x = k->in[next++], .out = k->out[0], .workspace = k->workspace};
    const cpu_packed_layout *layout = cpu_int8_conv_layout(d->plan);
    const void *packed = d->packed;
    if (!packed) {
        void *memory = (char *)k->workspace + cpu_int8_conv_workspace(d->plan);
        layout->pack(layout, k->in[next++], memory);
        packed = memory;
    }
    o.filter = cpu_int8_filter_at(layout, packed);
    cpu_requantization to = d->to;
    if (d->requantizes) {
        to.factors = k->in[next++];
        to.bias = k->in[next++];
        o.requantization = &to;
    }
    if (d->adds) o.residual = k->in[next];
    cpu_int8_conv_run(d->plan, &o);
    return TU_OK;
}

static void release_int8(void *data) {
    int8_data *d = data;
    cpu_packed_weights_close(d->shared);
    tu__free_aligned(d->own);
}

/* ---- The requantization after the sums ---- */

static cpu_requantization requantization_of(const tu__node *node) {
    if (node->op->code == TU__OP_REQUANTIZE) {
        const struct tu__requantize_attrs *a = tu__attrs(node, requantize);
        return (cpu_requantization){
            .zero = (int32_t)a->zero, .low = (int32_t)a->low, .high = (int32_t)a->high};
    }
    const struct tu__requantize_add_attrs *a = tu__attrs(node, requantize_add);
    return (cpu_requantization){.zero = (int32_t)a->zero,
                                .low = (int32_t)a->low,
                                .high = (int32_t)a->high,
                                .residual_factor = (float)a->factor,
                                .residual_zero = (int32_t)a->residual_zero};
}

/* Returns the requantization that can be fused with the node; NULL if there is none. */
static const tu__node *fusible_requantization(tu__selection *s, const tu__node *node) {
    const tu__node *reader = tu__fusible_reader(s, (tu__edge){node->id, 0});
    if (!reader) return NULL;
    const bool is_requantization =
        reader->op->code == TU__OP_REQUANTIZE || reader->op->code == TU__OP_REQUANTIZE_ADD;
    return is_requantization && reader->inputs[0].node == node->id ? reader : NULL;
}

/* ---- Lowering ---- */

/* Packs the filter if it is a constant. */
static tu_status pack_constant(const tu__selection *s, const tu__node *node, int8_data *d) {
    const tu__node *filter = s->graph->nodes[node->inputs[1].node];
    const cpu_packed_layout *layout = cpu_int8_conv_layout(d->plan);
    if (filter->op->code != TU__OP_CONSTANT) return TU_OK;
    if (filter->shared) {
        TU_TRY(cpu_packed_weights_open(filter->shared, layout, &d->shared));
        d->packed = cpu_packed_weights_data(d->shared);
        return TU_OK;
    }
    d->packed = d->own = tu__alloc_aligned(layout->bytes, "a packed filter");
    if (!d->own) return TU_NO_MEMORY;
    layout->pack(layout, filter->data, d->own);
    return TU_OK;
}

/* Counts the u8 result and the operands of the requantization instead of the sums, which stay in the cache. */
static void count_requantized_bytes(tu__kernel *k, const tu__selection *s, const tu__node *sums,
                                    const tu__node *requantization) {
    k->bytes_moved += (int64_t)tu_type_bytes(requantization->outputs[0]);
    k->bytes_moved -= (int64_t)tu_type_bytes(sums->outputs[0]);
    for (uint32_t i = 1; i < requantization->input_count; i++)
        k->bytes_moved += (int64_t)tu_type_bytes(cpu_input_type(s, requantization, i));
}

static tu_status add_operands(tu__kernel *k, const tu__node *node, const tu__node *requantization) {
    const int8_data *d = k->data;
    TU_TRY(tu__kernel_read(k, node->inputs[0]));
    if (!d->packed) TU_TRY(tu__kernel_read(k, node->inputs[1]));
    if (!requantization) return tu__kernel_write(k, (tu__edge){node->id, 0}, -1);
    for (uint32_t i = 1; i < requantization->input_count; i++)
        TU_TRY(tu__kernel_read(k, requantization->inputs[i]));
    return tu__kernel_write(k, (tu__edge){requantization->id, 0}, -1);
}

static const char *name_of(const char *const names[3], const int8_data *d) {
    return names[d->adds ? 2 : d->requantizes ? 1 : 0];
}

/* `order`: steps of the weights, by k and by output channel; NULL: OHWI. */
static tu_status lower_int8(tu__selection *s, const tu__node *node, const cpu_convolution *shape,
                            int64_t zero, const int64_t order[2], const char *const names[3]) {
    const tu__node *requantization = fusible_requantization(s, node);
    int8_data data = {.requantizes = requantization != NULL};
    if (requantization) {
        data.adds = requantization->op->code == TU__OP_REQUANTIZE_ADD;
        data.to = requantization_of(requantization);
    }
    const cpu_int8_dot *dot = cpu_int8_dot_for_this_machine(cpu_int8_conv_block_bytes(shape));
    TU_TRY(cpu_int8_conv_new(&s->arena, cpu_of(s)->loops->int8, dot, shape, (int32_t)zero, cpu_of(s)->threads,
                             &data.plan));
    if (!data.plan) return TU_UNSUPPORTED;
    if (order) cpu_int8_conv_set_order(data.plan, order[0], order[1]);
    tu__kernel *k = tu__kernel_new(s, node, name_of(names, &data), run_int8);
    int8_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    *d = data;
    k->release = release_int8;
    TU_TRY(pack_constant(s, node, d));
    const size_t filter_bytes = cpu_int8_conv_layout(d->plan)->bytes;
    k->workspace_bytes = cpu_int8_conv_workspace(d->plan) + (d->packed ? 0 : filter_bytes);
    k->resident_bytes = d->packed ? filter_bytes : 0;
    cpu_kernel_set_costs(k, s, node);
    if (requantization) {
        count_requantized_bytes(k, s, node, requantization);
        TU_TRY(tu__kernel_add_node(k, requantization));
        tu__mark_done(s, requantization);
    }
    return add_operands(k, node, requantization);
}

tu_status cpu_lower_conv2d_int8(tu__selection *s, const tu__node *node) {
    static const char *const names[3] = {"conv2d_int8", "conv2d_int8+requantize",
                                         "conv2d_int8+requantize_add"};
    const struct tu__conv2d_int8_attrs *a = tu__attrs(node, conv2d_int8);
    const tu_shape x = cpu_input_type(s, node, 0).shape, filter = cpu_input_type(s, node, 1).shape;
    const tu_shape y = node->outputs[0].shape;
    const cpu_convolution shape = {.windows = tu__windows_of(filter.dim + 1, a->stride, a->dilation, a->pad),
                                   .images = x.dim[0],
                                   .x_size = {x.dim[1], x.dim[2]},
                                   .y_size = {y.dim[1], y.dim[2]},
                                   .groups = a->groups,
                                   .x_channels = filter.dim[3],
                                   .y_channels = filter.dim[0]};
    return lower_int8(s, node, &shape, a->zero, NULL, names);
}

/* A product is a convolution of images of one pixel. */
tu_status cpu_lower_matmul_int8(tu__selection *s, const tu__node *node) {
    static const char *const names[3] = {"matmul_int8", "matmul_int8+requantize",
                                         "matmul_int8+requantize_add"};
    static const int64_t one[2] = {1, 1}, none[4] = {0};
    const int64_t *a = cpu_input_type(s, node, 0).shape.dim, columns = node->outputs[0].shape.dim[1];
    const cpu_convolution shape = {.windows = tu__windows_of(one, one, one, none),
                                   .images = a[0],
                                   .x_size = {1, 1},
                                   .y_size = {1, 1},
                                   .groups = 1,
                                   .x_channels = a[1],
                                   .y_channels = columns};
    const int64_t order[2] = {columns, 1};
    return lower_int8(s, node, &shape, tu__attrs(node, matmul_int8)->zero, order, names);
}
