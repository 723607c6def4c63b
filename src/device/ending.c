/* Finding the bias and the rectifier that follow a node, and taking them into its kernel. */
#include "device/ending.h"

/* One number for each place along the last axis of `type`. */
static bool is_bias(tu_type bias, tu_type type) {
    int64_t rank = type.shape.rank;
    return bias.dtype == type.dtype && bias.shape.rank >= 1 && bias.shape.rank <= rank &&
           bias.shape.dim[bias.shape.rank - 1] == type.shape.dim[rank - 1] &&
           tu_shape_elements(bias.shape) == type.shape.dim[rank - 1];
}

/* The other input of an addition to `value`, if it is a bias. */
static bool find_bias(const tu__selection *s, const tu__node *add, tu__edge value, tu__edge *bias) {
    if (!add || add->op->code != TU__OP_ADD) return false;
    int own = add->inputs[0].node == value.node && add->inputs[0].output == value.output ? 0 : 1;
    tu__edge other = add->inputs[1 - own];
    const tu_type type = s->graph->nodes[value.node]->outputs[value.output];
    *bias = other;
    return is_bias(s->graph->nodes[other.node]->outputs[other.output], type) &&
           tu_shape_equal(add->outputs[0].shape, type.shape);
}

/* The only reader, unless another kernel has it already: where two products are added, one of them takes the sum. */
static const tu__node *free_reader(tu__selection *s, tu__edge value) {
    const tu__node *reader = tu__only_reader(s, value);
    return reader && s->plan->state[reader->id] != TU__DONE ? reader : NULL;
}

tu__ending tu__ending_of(tu__selection *s, const tu__node *node) {
    tu__ending e = {.result = {node->id, 0}};
    const tu__node *reader = free_reader(s, e.result);
    if (find_bias(s, reader, e.result, &e.bias)) {
        e.add = reader;
        e.result = (tu__edge){reader->id, 0};
        reader = free_reader(s, e.result);
    }
    if (reader && reader->op->code == TU__OP_RELU) {
        e.relu = reader;
        e.result = (tu__edge){reader->id, 0};
    }
    return e;
}

tu_status tu__kernel_end(tu__kernel *k, const tu__ending *e) {
    const tu__node *const nodes[2] = {e->add, e->relu};
    for (int i = 0; i < 2; i++) {
        if (!nodes[i]) continue;
        TU_TRY(tu__kernel_cover(k, nodes[i]));
        tu__mark_done(k->owner, nodes[i]);
    }
    return e->add ? tu__kernel_read(k, e->bias) : TU_OK;
}

const char *tu__ending_name(const tu__ending *e, const char *const names[4]) {
    return names[(e->relu ? 2 : 0) + (e->add ? 1 : 0)];
}
