/* Computes start and strides from an operation's attributes: one rule per operation. See reordering.h. */
#include "device/kit/reordering.h"

#include "graph/walk.h"

/* On entry `r` contains the strides of the dense input. */
typedef void (*reorder_rule)(const tu__node *node, tu_shape from, tu__reordering *r);

static void broadcast(const tu__node *node, tu_shape from, tu__reordering *r) {
    tu__broadcast_strides(from, node->outputs[0].shape, r->strides);
}

static void transpose(const tu__node *node, tu_shape from, tu__reordering *r) {
    tu__reordering dense = *r;
    for (int64_t i = 0; i < from.rank; i++)
        r->strides[i] = dense.strides[tu__attrs(node, transpose)->permutation[i]];
}

static void slice(const tu__node *node, tu_shape from, tu__reordering *r) {
    const struct tu__slice_attrs *attrs = tu__attrs(node, slice);
    for (int64_t i = 0; i < from.rank; i++) {
        r->start += attrs->begin[i] * r->strides[i];
        r->strides[i] *= attrs->step[i];
    }
}

static void flip(const tu__node *node, tu_shape from, tu__reordering *r) {
    for (int64_t i = 0; i < from.rank; i++)
        if (tu__attrs(node, flip)->axes >> i & 1) {
            r->start += (from.dim[i] - 1) * r->strides[i];
            r->strides[i] = -r->strides[i];
        }
}

static const reorder_rule rules[TU__OP_COUNT] = {
    [TU__OP_BROADCAST] = broadcast,
    [TU__OP_TRANSPOSE] = transpose,
    [TU__OP_SLICE] = slice,
    [TU__OP_FLIP] = flip,
};

tu__reordering tu__reordering_of(const tu__selection *s, const tu__node *node) {
    tu_shape from = tu__type_of(s, node->inputs[0])->shape;
    tu__reordering r = {0};
    tu__strides(from, r.strides);
    rules[node->op->code](node, from, &r);
    return r;
}
