/* Finds the additions and the relu after a node, and adds them to its kernel. */
#include "device/kit/epilogue.h"

/* True if `bias` has one number per index of the last axis of `type`. */
static bool is_bias(tu_type bias, tu_type type) {
    int64_t rank = type.shape.rank;
    return bias.dtype == type.dtype && bias.shape.rank >= 1 && bias.shape.rank <= rank &&
           bias.shape.dim[bias.shape.rank - 1] == type.shape.dim[rank - 1] &&
           tu_shape_elements(bias.shape) == type.shape.dim[rank - 1];
}

static bool can_add_bias(tu__selection *s, tu__edge other, tu__edge value) {
    return is_bias(*tu__type_of(s, other), *tu__type_of(s, value));
}

/* Finds the other operand of an addition to `value` that keeps its shape. */
static bool find_added(tu__selection *s, const tu__node *add, tu__edge value, const tu__epilogue_rules *rules,
                       tu__edge *added) {
    if (!add || add->op->code != TU__OP_ADD) return false;
    *added = add->inputs[tu__same_edge(add->inputs[0], value) ? 1 : 0];
    return rules->can_add(s, *added, value) &&
           tu_shape_equal(add->outputs[0].shape, tu__type_of(s, value)->shape);
}

static bool can_add_residual(tu__selection *s, tu__edge other, tu__edge value) {
    return tu__type_of(s, other)->dtype == tu__type_of(s, value)->dtype &&
           tu_shape_equal(tu__type_of(s, other)->shape, tu__type_of(s, value)->shape);
}

static const tu__epilogue_rules bias_rules = {tu__fusible_reader, can_add_bias},
                                residual_rules = {tu__fusible_reader, can_add_residual};

/* `residual`: the conditions of adding a residual; NULL: none is added. */
static tu__epilogue find_epilogue(tu__selection *s, const tu__node *node, const tu__epilogue_rules *rules,
                                  const tu__epilogue_rules *residual) {
    tu__epilogue e = {.result = {node->id, 0}};
    const tu__node *reader = rules->reader_of(s, e.result);
    if (find_added(s, reader, e.result, rules, &e.added)) {
        e.add = reader;
        e.result = (tu__edge){reader->id, 0};
        reader = rules->reader_of(s, e.result);
    }
    if (residual && find_added(s, reader, e.result, residual, &e.residual)) {
        e.add_residual = reader;
        e.result = (tu__edge){reader->id, 0};
        reader = residual->reader_of(s, e.result);
    }
    if (reader && reader->op->code == TU__OP_RELU) {
        e.relu = reader;
        e.result = (tu__edge){reader->id, 0};
    }
    return e;
}

tu__epilogue tu__find_epilogue(tu__selection *s, const tu__node *node, const tu__epilogue_rules *rules) {
    return find_epilogue(s, node, rules, NULL);
}

tu__epilogue tu__epilogue_of(tu__selection *s, const tu__node *node) {
    return find_epilogue(s, node, &bias_rules, NULL);
}

tu__epilogue tu__epilogue_with_residual_of(tu__selection *s, const tu__node *node) {
    return find_epilogue(s, node, &bias_rules, &residual_rules);
}

/* True if `bias` is [members, 1, …, 1, channels]: a row for each member of `type` [members, …, channels]. */
static bool is_bias_per_member(tu_type bias, tu_type type) {
    int64_t rank = type.shape.rank;
    if (bias.dtype != type.dtype || bias.shape.rank != rank || rank < 2) return false;
    for (int64_t i = 1; i + 1 < rank; i++)
        if (bias.shape.dim[i] != 1) return false;
    return bias.shape.dim[0] == type.shape.dim[0] && bias.shape.dim[rank - 1] == type.shape.dim[rank - 1];
}

static bool can_add_bias_per_member(tu__selection *s, tu__edge other, tu__edge value) {
    return is_bias_per_member(*tu__type_of(s, other), *tu__type_of(s, value));
}

static const tu__epilogue_rules member_rules = {tu__fusible_reader, can_add_bias_per_member};

/* True if the view only splits the first axis into members and the rest. */
static bool splits_members(const tu__node *view, tu_shape from, int64_t members) {
    tu_shape to = view->outputs[0].shape;
    if (view->op->code != TU__OP_RESHAPE || to.rank != from.rank + 1 || to.dim[0] != members) return false;
    for (int64_t i = 1; i < from.rank; i++)
        if (to.dim[i + 1] != from.dim[i]) return false;
    return true;
}

tu__epilogue tu__epilogue_of_members(tu__selection *s, const tu__node *node, int64_t members) {
    if (!members) return tu__epilogue_of(s, node);
    const tu__node *view = tu__fusible_reader(s, (tu__edge){node->id, 0});
    if (view && splits_members(view, node->outputs[0].shape, members)) {
        tu__epilogue e = find_epilogue(s, view, &member_rules, NULL);
        if (e.add || e.relu) return e;
    }
    return tu__epilogue_of(s, node);
}

static tu_status read_operand(tu__kernel *k, tu__edge operand) {
    k->bytes_moved += (int64_t)tu_type_bytes(*tu__type_of(k->owner, operand));
    return tu__kernel_read(k, operand);
}

tu_status tu__kernel_add_epilogue(tu__kernel *k, const tu__epilogue *e) {
    const tu__node *const nodes[3] = {e->add, e->add_residual, e->relu};
    for (int i = 0; i < 3; i++) {
        if (!nodes[i]) continue;
        TU_TRY(tu__kernel_add_node(k, nodes[i]));
        tu__mark_done(k->owner, nodes[i]);
    }
    if (e->add) TU_TRY(read_operand(k, e->added));
    return e->add_residual ? read_operand(k, e->residual) : TU_OK;
}

const char *tu__epilogue_name(const tu__epilogue *e, const char *const *names) {
    return names[(e->add_residual ? 4 : 0) + (e->relu ? 2 : 0) + (e->add ? 1 : 0)];
}
