/* Finds the nodes to fuse into the kernels of a batch normalisation: the relu and the addition of a residual block
 * after it, and the relu's gradient before its gradient.
 *
 * Normalisation is memory-bound, so the cost is the number of passes over values of x's size:
 *
 *     forward    y, then relu                          5 passes    fused: 3 (statistics; read x, write the result)
 *                y, then + other, relu                 6           4
 *     backward   dy where y > 0, then dx               8           5
 *                dy + dy' where y + other > 0, dx      9           7, and one bit per element
 *
 * The third case needs no mask in memory: the forward kernel saves the factors of y (tu__kernel_save), and the
 * gradient computes y again from x, which it reads anyway, with the same bits. After an addition this would need the
 * other operand too; a device may save a mask instead, and apply it while it sums.
 *
 * The statistics are separate results that other nodes may read. So the other operand must be in memory already
 * (otherwise it might depend on the statistics), and the fused nodes must have the node's level, as in any kernel
 * with several results (select.c). */
#include "device/kit/norm_fusion.h"

/* ---- After y ---- */

/* Returns the only reader of a value, if it is free and of the same level. */
static const tu__node *level_reader(tu__selection *s, tu__edge value) {
    const uint32_t *level = s->plan->level;
    const tu__node *reader = tu__fusible_reader(s, value);
    return reader && level[reader->id] == level[value.node] ? reader : NULL;
}

static bool same_type(const tu_type *a, const tu_type *b) {
    return a->dtype == b->dtype && tu_shape_equal(a->shape, b->shape);
}

static bool is_in_memory(tu__selection *s, tu__edge value) {
    tu__edge root = tu__root_of(s, value);
    return s->plan->state[root.node] == TU__OUTSIDE || tu__plan_value_of(s, root)->dense != TU__NONE;
}

static bool can_add_residual(tu__selection *s, tu__edge other, tu__edge value) {
    return same_type(tu__type_of(s, other), tu__type_of(s, value)) && is_in_memory(s, other);
}

tu__epilogue tu__norm_epilogue_of(tu__selection *s, const tu__node *node) {
    static const tu__epilogue_rules rules = {level_reader, can_add_residual};
    return tu__find_epilogue(s, node, &rules);
}

const char *tu__norm_epilogue_name(const tu__epilogue *e) {
    static const char *const names[4] = {"batch_norm", "batch_norm+add", "batch_norm+relu",
                                         "batch_norm+add+relu"};
    return tu__epilogue_name(e, names);
}

bool tu__norm_relu_has_gradient(tu__selection *s, const tu__epilogue *e) {
    const tu__plan_value *v = tu__plan_value_of(s, e->result);
    for (uint32_t i = 0; i < v->reader_count; i++)
        if (s->graph->nodes[s->plan->readers[v->first_reader + i]]->op->code == TU__OP_RELU_GRAD) return true;
    return false;
}

/* ---- Before dx ---- */

/* Returns the normalisation whose y is `value`, if its kernel saved data. */
static const tu__node *norm_with_saved_data(const tu__selection *s, tu__edge value) {
    const tu__node *norm = s->graph->nodes[value.node];
    bool is_y = norm->op->code == TU__OP_BATCH_NORM && value.output == 0;
    return is_y && s->plan->saved[norm->id] != TU__NONE ? norm : NULL;
}

/* Returns the normalisation with value = relu(y), or relu(y + residual) if *has_residual; NULL if there is none. */
static const tu__node *norm_before_relu(const tu__selection *s, tu__edge value, bool *has_residual) {
    const tu__node *relu = s->graph->nodes[value.node];
    if (relu->op->code != TU__OP_RELU) return NULL;
    const tu__node *inner = s->graph->nodes[relu->inputs[0].node];
    *has_residual = inner->op->code == TU__OP_ADD;
    if (!*has_residual) return norm_with_saved_data(s, relu->inputs[0]);
    const tu__node *norm = norm_with_saved_data(s, inner->inputs[0]);
    return norm ? norm : norm_with_saved_data(s, inner->inputs[1]);
}

/* True if `gradient` is that of `forward`: the same x and the statistics computed from it. */
static bool is_gradient_of(const tu__selection *s, const tu__node *gradient, const tu__node *forward) {
    return tu__same_edge(tu__root_of(s, gradient->inputs[0]), tu__root_of(s, forward->inputs[0])) &&
           tu__same_edge(gradient->inputs[2], (tu__edge){forward->id, 1}) &&
           tu__same_edge(gradient->inputs[3], (tu__edge){forward->id, 2});
}

static bool is_pending(tu__selection *s, tu__edge value) {
    return s->plan->state[tu__root_of(s, value).node] == TU__PENDING;
}

/* Fuses an addition of two values in memory that only the relu_grad reads. */
static void find_sum(tu__selection *s, tu__relu_gradient *r) {
    const tu__node *add = s->graph->nodes[r->dy.node];
    const tu_type *type = tu__type_of(s, r->dy);
    bool can_fuse = add->op->code == TU__OP_ADD && s->plan->state[add->id] == TU__PENDING &&
                    s->plan->level[add->id] == s->plan->level[r->relu_grad->id] &&
                    tu__only_reader(s, r->dy) == r->relu_grad;
    for (uint32_t i = 0; i < 2 && can_fuse; i++)
        can_fuse = same_type(tu__type_of(s, add->inputs[i]), type) && !is_pending(s, add->inputs[i]);
    if (!can_fuse) return;
    r->add = add;
    r->dy = add->inputs[0];
    r->addend = add->inputs[1];
}

/* With a mask, dy must be in memory anyway. If it is still pending, it is better fused with the relu_grad. */
static bool can_mask(tu__selection *s, tu__relu_gradient *r) {
    find_sum(s, r);
    return !is_pending(s, r->dy);
}

bool tu__find_relu_gradient(tu__selection *s, const tu__node *node, tu__relu_gradient *found) {
    if (node->op->code != TU__OP_BATCH_NORM_GRAD) return false;
    const tu__kernel_plan *p = s->plan;
    tu__edge dy = node->inputs[TU__NORM_DY];
    const tu__node *relu_grad = s->graph->nodes[dy.node];
    bool has_residual = false;
    if (relu_grad->op->code != TU__OP_RELU_GRAD || p->state[relu_grad->id] != TU__PENDING ||
        p->level[relu_grad->id] != p->level[node->id])
        return false;
    const tu__node *forward = norm_before_relu(s, relu_grad->inputs[0], &has_residual);
    if (!forward) return false;
    *found = (tu__relu_gradient){
        .relu_grad = relu_grad, .forward = forward, .has_residual = has_residual, .dy = relu_grad->inputs[1]};
    for (uint32_t i = 0; i < 2; i++)
        if (!same_type(tu__type_of(s, relu_grad->inputs[i]), tu__type_of(s, dy))) return false;
    return has_residual ? can_mask(s, found)
                        : tu__only_reader(s, dy) == node && is_gradient_of(s, node, forward);
}

static tu_status fuse_node(tu__kernel *k, const tu__node *node) {
    if (!node) return TU_OK;
    tu__mark_done(k->owner, node);
    return tu__kernel_add_node(k, node);
}

tu_status tu__kernel_add_relu_gradient(tu__kernel *k, const tu__relu_gradient *found) {
    TU_TRY(fuse_node(k, found->relu_grad));
    TU_TRY(fuse_node(k, found->add));
    TU_TRY(tu__kernel_read_saved(k, found->forward));
    return found->add ? tu__kernel_read(k, found->addend) : TU_OK;
}

tu__edge tu__norm_input_after_fusion(tu__selection *s, const tu__node *node, uint32_t index) {
    tu__relu_gradient r;
    bool fuses_relu = index == TU__NORM_DY && tu__find_relu_gradient(s, node, &r);
    return fuses_relu ? r.dy : node->inputs[index];
}
