/* Finds the addition and the relu after a node, and adds them to its kernel. */
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

tu__epilogue tu__find_epilogue(tu__selection *s, const tu__node *node, const tu__epilogue_rules *rules) {
    tu__epilogue e = {.result = {node->id, 0}};
    const tu__node *reader = rules->reader_of(s, e.result);
    if (find_added(s, reader, e.result, rules, &e.added)) {
        e.add = reader;
        e.result = (tu__edge){reader->id, 0};
        reader = rules->reader_of(s, e.result);
    }
    if (reader && reader->op->code == TU__OP_RELU) {
        e.relu = reader;
        e.result = (tu__edge){reader->id, 0};
    }
    return e;
}

tu__epilogue tu__epilogue_of(tu__selection *s, const tu__node *node) {
    static const tu__epilogue_rules rules = {tu__fusible_reader, can_add_bias};
    return tu__find_epilogue(s, node, &rules);
}

tu_status tu__kernel_add_epilogue(tu__kernel *k, const tu__epilogue *e) {
    const tu__node *const nodes[2] = {e->add, e->relu};
    for (int i = 0; i < 2; i++) {
        if (!nodes[i]) continue;
        TU_TRY(tu__kernel_add_node(k, nodes[i]));
        tu__mark_done(k->owner, nodes[i]);
    }
    return e->add ? tu__kernel_read(k, e->added) : TU_OK;
}

const char *tu__epilogue_name(const tu__epilogue *e, const char *const names[4]) {
    return names[(e->relu ? 2 : 0) + (e->add ? 1 : 0)];
}
