/* Finding what a batch normalisation's kernels take in: the rectifier and the join of a residual block behind it, and the
 * rectifier's gradient in front of its own.
 *
 * Normalisation is bound by memory, so what counts is how often a value of x's size passes by:
 *
 *     forward    y, then relu                    5 passes    3 in one kernel (statistics; x read, result written)
 *                y, then + join, relu            6           4
 *     backward   dy where y > 0, then dx         8           5
 *
 * The last needs no mask in memory: the forward kernel leaves the factors that y was made with (tu__kernel_leave), the
 * gradient computes y again from x, which it reads anyway, with the same bits.
 *
 * The statistics are results of their own, which anybody may read. So the join must be in memory already, or it might
 * wait for them; and what is taken in must be of the node's level, as in any kernel with several results (select.c).
 */
#include "device/cpu/norm.h"

/* ---- Behind y ---- */

/* The only reader of a value, unless another kernel has it or it is of another level. */
static const tu__node *free_reader(tu__selection *s, tu__edge value) {
    const tu__kernel_plan *p = s->plan;
    const tu__node *reader = tu__only_reader(s, value);
    bool free = reader && p->state[reader->id] != TU__DONE && p->level[reader->id] == p->level[value.node];
    return free ? reader : NULL;
}

static bool same_edge(tu__edge a, tu__edge b) {
    return a.node == b.node && a.output == b.output;
}

static bool same_type(const tu_type *a, const tu_type *b) {
    return a->dtype == b->dtype && tu_shape_equal(a->shape, b->shape);
}

static bool is_in_memory(tu__selection *s, tu__edge value) {
    tu__edge root = tu__root_of(s, value);
    return s->plan->state[root.node] == TU__OUTSIDE || tu__plan_value_of(s, root)->dense != TU__NONE;
}

/* The other value of a sum with `value`, if it can be joined. */
static bool find_join(tu__selection *s, const tu__node *add, tu__edge value, tu__edge *join) {
    if (!add || add->op->code != TU__OP_ADD) return false;
    *join = add->inputs[same_edge(add->inputs[0], value) ? 1 : 0];
    return same_type(tu__type_of(s, *join), tu__type_of(s, value)) && is_in_memory(s, *join);
}

cpu_norm_ending cpu_norm_ending_of(tu__selection *s, const tu__node *node) {
    cpu_norm_ending e = {.result = {node->id, 0}};
    const tu__node *reader = free_reader(s, e.result);
    if (find_join(s, reader, e.result, &e.join)) {
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

const char *cpu_norm_ending_name(const cpu_norm_ending *e) {
    static const char *const names[4] = {"batch_norm", "batch_norm+add", "batch_norm+relu",
                                         "batch_norm+add+relu"};
    return names[(e->relu ? 2 : 0) + (e->add ? 1 : 0)];
}

static tu_status take_in(tu__kernel *k, const tu__node *node) {
    if (!node) return TU_OK;
    tu__mark_done(k->owner, node);
    return tu__kernel_cover(k, node);
}

tu_status cpu_kernel_end_norm(tu__kernel *k, const cpu_norm_ending *e) {
    TU_TRY(take_in(k, e->add));
    TU_TRY(take_in(k, e->relu));
    return e->add ? tu__kernel_read(k, e->join) : TU_OK;
}

/* ---- In front of dx ---- */

static bool is_zero(const tu__selection *s, tu__edge value) {
    const tu__node *node = s->graph->nodes[value.node];
    while (node->op->code == TU__OP_BROADCAST) node = s->graph->nodes[node->inputs[0].node];
    return node->op->code == TU__OP_FILL && tu__attrs(node, fill)->number == 0;
}

/* The normalisation whose rectified y is `value`, where its kernel rectified it and left its factors. */
static const tu__node *rectified_by(const tu__selection *s, tu__edge value) {
    const tu__node *relu = s->graph->nodes[value.node];
    if (relu->op->code != TU__OP_RELU) return NULL;
    const tu__node *norm = s->graph->nodes[relu->inputs[0].node];
    bool own = norm->op->code == TU__OP_BATCH_NORM && relu->inputs[0].output == 0;
    return own && s->plan->beside[norm->id] != TU__NONE ? norm : NULL;
}

/* Whether `gradient` is of `forward`: the same x, and the statistics taken of it. */
static bool belongs_to(const tu__selection *s, const tu__node *gradient, const tu__node *forward) {
    return same_edge(tu__root_of(s, gradient->inputs[0]), tu__root_of(s, forward->inputs[0])) &&
           same_edge(gradient->inputs[2], (tu__edge){forward->id, 1}) &&
           same_edge(gradient->inputs[3], (tu__edge){forward->id, 2});
}

bool cpu_find_rectified(tu__selection *s, const tu__node *node, cpu_rectified *found) {
    if (node->op->code != TU__OP_BATCH_NORM_GRAD) return false;
    const tu__kernel_plan *p = s->plan;
    tu__edge dy = node->inputs[CPU_NORM_DY];
    const tu__node *select = s->graph->nodes[dy.node];
    bool choice = select->op->code == TU__OP_SELECT && p->state[select->id] == TU__PENDING &&
                  tu__only_reader(s, dy) == node && is_zero(s, select->inputs[2]);
    if (!choice) return false;
    const tu__node *greater = s->graph->nodes[select->inputs[0].node];
    bool positive = greater->op->code == TU__OP_GREATER && is_zero(s, greater->inputs[1]);
    const tu__node *forward = positive ? rectified_by(s, greater->inputs[0]) : NULL;
    *found = (cpu_rectified){select, greater, forward, select->inputs[1]};
    return forward && belongs_to(s, node, forward) &&
           same_type(tu__type_of(s, found->dy), tu__type_of(s, dy)) &&
           p->level[select->id] == p->level[node->id];
}

tu_status cpu_kernel_take_rectified(tu__kernel *k, const cpu_rectified *found) {
    TU_TRY(take_in(k, found->select));
    if (tu__only_reader(k->owner, (tu__edge){found->greater->id, 0})) TU_TRY(take_in(k, found->greater));
    return tu__kernel_find(k, found->forward);
}

tu__edge cpu_read_by_maker(tu__selection *s, const tu__node *node, uint32_t index) {
    cpu_rectified r;
    bool itself = index == CPU_NORM_DY && cpu_find_rectified(s, node, &r);
    return itself ? r.dy : node->inputs[index];
}
