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

static bool is_free_at_level(const tu__selection *s, const tu__node *node, uint32_t level) {
    return tu__can_fuse(s, node) && s->plan->level[node->id] == level;
}

static bool is_relu_grad(const tu__selection *s, const tu__node *node, tu__edge dx, tu__edge x) {
    return node->op->code == TU__OP_RELU_GRAD && tu__same_edge(node->inputs[0], x) &&
           tu__same_edge(node->inputs[1], dx) &&
           tu_shape_equal(node->outputs[0].shape, tu__type_of(s, dx)->shape);
}

static bool is_column_sum(const tu__node *node, const tu_type *value) {
    int64_t all_but_last = ((int64_t)1 << (value->shape.rank - 1)) - 1;
    return node->op->code == TU__OP_SUM && tu__attrs(node, sum)->axes == all_but_last;
}

static const tu__node *find_column_sum(tu__selection *s, tu__edge value, uint32_t level) {
    const tu__kernel_plan *p = s->plan;
    const tu__plan_value *v = tu__plan_value_of(s, value);
    for (uint32_t i = 0; i < v->reader_count; i++) {
        const tu__node *reader = s->graph->nodes[p->readers[v->first_reader + i]];
        if (is_free_at_level(s, reader, level) && is_column_sum(reader, tu__type_of(s, value))) return reader;
    }
    return NULL;
}

cuda_relu_grad cuda_find_relu_grad(tu__selection *s, const tu__node *node, tu__edge x) {
    uint32_t level = s->plan->level[node->id];
    cuda_relu_grad r = {.result = {node->id, 0}};
    const tu__node *reader = tu__only_reader(s, r.result);
    if (reader && is_free_at_level(s, reader, level) && is_relu_grad(s, reader, r.result, x)) {
        r.relu_grad = reader;
        r.result = (tu__edge){reader->id, 0};
    }
    r.sum = find_column_sum(s, r.result, level);
    return r;
}

int cuda_relu_grad_bits(const cuda_relu_grad *r) {
    return (r->relu_grad ? 1 : 0) + (r->sum ? 2 : 0);
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
