/* Fuses the gradient of a relu, and the gradient of a bias, into the kernel of the gradient before them.
 *
 * In the forward pass a convolution's result passes a bias, a relu and then pooling or normalisation. In the backward
 * pass the gradient dx of the latter is kept where x, the relu's result, is positive and set to 0 elsewhere. The
 * result is read by the convolution's gradients and summed over all pixels. Three kernels would pass over values of
 * x's size seven times: write dx; read dx and x, write the relu_grad; read that and sum. One kernel writes the
 * relu_grad and its sums and already knows whether x > 0 (kernels/pool.cu, kernels/lrn.cu).
 *
 * The sums use dx before it is rounded to its type: they are more accurate than separate kernels, and differ in bits.
 * As in any kernel with several results, all must have the same level (device/kit/select.c).
 */
#include "device/cuda/ops/relu_grad.h"

#include "device/cuda/ops/columns.h"

static bool is_free_at_level(const tu__selection *s, const tu__node *node, uint32_t level) {
    return tu__can_fuse(s, node) && s->plan->level[node->id] == level;
}

static bool is_relu_grad(const tu__selection *s, const tu__node *node, tu__edge dx, tu__edge x) {
    return node->op->code == TU__OP_RELU_GRAD &&
           tu__same_edge(tu__root_of(s, node->inputs[0]), tu__root_of(s, x)) &&
           tu__same_edge(node->inputs[1], dx) &&
           tu_shape_equal(node->outputs[0].shape, tu__type_of(s, dx)->shape);
}

/* Returns the number of parts of the positions that a node sums, over all axes but the last, which has the channels: in a stack
 * the first axis is that of the networks. 0: it is no such sum. */
static int64_t count_sums(const tu__selection *s, const tu__node *node, const tu_type *value,
                          int64_t channels) {
    if (value->shape.dim[value->shape.rank - 1] != channels) return 0; /* after a view */
    int64_t members = s->graph->members, all_but_last = ((int64_t)1 << (value->shape.rank - 1)) - 1;
    if (node->op->code != TU__OP_SUM) return 0;
    if (tu__attrs(node, sum)->axes == all_but_last) return 1;
    bool is_per_network = members && members <= CUDA_MAX_SUMS && value->shape.rank > 2 &&
                          value->shape.dim[0] == members &&
                          tu__attrs(node, sum)->axes == (all_but_last & ~(int64_t)1);
    return is_per_network ? members : 0;
}

/* In a stack, the values of pooling have the images of all networks along one axis, and those of pointwise operations and
 * sums have an axis of networks: views are between them. */
static bool is_stack_view(const tu__selection *s, const tu__node *node) {
    return s->graph->members && (node->op->traits & TU__VIEW);
}

static void find_column_sum(tu__selection *s, tu__edge value, int64_t channels, uint32_t level,
                            cuda_relu_grad *r) {
    const tu__kernel_plan *p = s->plan;
    const tu__plan_value *v = tu__plan_value_of(s, value);
    for (uint32_t i = 0; i < v->reader_count && !r->sum; i++) {
        const tu__node *reader = s->graph->nodes[p->readers[v->first_reader + i]];
        if (is_stack_view(s, reader)) find_column_sum(s, (tu__edge){reader->id, 0}, channels, level, r);
        if (r->sum || !is_free_at_level(s, reader, level)) continue;
        r->sums = count_sums(s, reader, tu__type_of(s, value), channels);
        if (r->sums) r->sum = reader;
    }
}

/* Returns the node that reads a value, if it is the only one; in a stack, its views are looked through. */
static const tu__node *find_only_reader(tu__selection *s, tu__edge *value) {
    const tu__node *reader = tu__only_reader(s, *value);
    while (reader && is_stack_view(s, reader)) {
        *value = (tu__edge){reader->id, 0};
        reader = tu__only_reader(s, *value);
    }
    return reader;
}

cuda_relu_grad cuda_find_relu_grad(tu__selection *s, const tu__node *node, tu__edge x) {
    uint32_t level = s->plan->level[node->id];
    cuda_relu_grad r = {.result = {node->id, 0}};
    tu__edge dx = r.result;
    const tu__node *reader = find_only_reader(s, &dx);
    if (reader && is_free_at_level(s, reader, level) && is_relu_grad(s, reader, dx, x)) {
        r.relu_grad = reader;
        r.result = (tu__edge){reader->id, 0};
    }
    tu_shape shape = node->outputs[0].shape;
    find_column_sum(s, r.result, shape.dim[shape.rank - 1], level, &r);
    return r;
}

int cuda_relu_grad_bits(const cuda_relu_grad *r) {
    return (r->relu_grad ? 1 : 0) + (r->sum ? 2 : 0) + (r->sums > 1 ? 4 : 0);
}

static tu_status fuse_node(tu__kernel *k, const tu__node *node) {
    tu__mark_done(k->owner, node);
    return tu__kernel_add_node(k, node);
}

tu_status cuda_kernel_write_relu_grad(tu__kernel *k, const cuda_relu_grad *r, int in_place) {
    if (r->relu_grad) TU_TRY(fuse_node(k, r->relu_grad));
    TU_TRY(tu__kernel_write(k, r->result, in_place));
    if (!r->sum) return TU_OK;
    TU_TRY(fuse_node(k, r->sum));
    return tu__kernel_write(k, (tu__edge){r->sum->id, 0}, -1);
}
