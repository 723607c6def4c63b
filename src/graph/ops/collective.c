/* Collectives.
 *
 * Nodes with the same attribute `collective` form one collective: rank r of `ranks` passes its value, and all ranks
 * continue when they have the result. They have the same operation:
 *
 *     all_reduce             [n, …] -> [n, …]           every rank gets the sum of all ranks' values
 *     reduce_scatter         [ranks * n, …] -> [n, …]   rank r gets rows r * n … (r + 1) * n - 1 of the sum
 *     all_gather             [n, …] -> [ranks * n, …]   every rank gets the rows of rank 0, then of rank 1, …
 *     collective_broadcast   [n, …] -> [n, …]           every rank gets the value of rank `root`
 *     collective_reduce      [n, …] -> [n, …]           rank `root` gets the sum of all ranks' values
 *
 * Sums are pairwise in the order of ranks, ((0 + 1) + (2 + 3)) + …, so a reduce_scatter followed by an all_gather
 * computes the same bits as an all_reduce. In a collective_broadcast all ranks pass a value of the same type; those of
 * the other ranks are ignored. The results of a collective_reduce on other ranks than `root` are unspecified, as in
 * MPI: nothing may read them. A rank may pass several values to one collective; all ranks pass the same ones, in node
 * order. The pass replicate adds an all_reduce on each device for a value of which every replica has computed a
 * partial sum.
 *
 * The engine runs collectives (compile/collectives.c). The reference kernel of a node knows only the value of its own
 * rank: it takes the values of the other ranks as zeros, and its own as that of `root`. With one rank it returns its
 * input. */
#include "graph/collective.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "graph/graph.h"
#include "graph/rules.h"
#include "graph/walk.h"

static const tu__opcode operations[] = {
    [TU__ALL_REDUCE] = TU__OP_ALL_REDUCE,    [TU__REDUCE_SCATTER] = TU__OP_REDUCE_SCATTER,
    [TU__ALL_GATHER] = TU__OP_ALL_GATHER,    [TU__BROADCAST] = TU__OP_COLLECTIVE_BROADCAST,
    [TU__REDUCE] = TU__OP_COLLECTIVE_REDUCE,
};

const char *tu__collective_name(tu__collective_kind kind) {
    return tu__op_get(operations[kind])->name;
}

bool tu__collective_may_be_in_place(tu__collective_kind kind) {
    return kind != TU__REDUCE_SCATTER && kind != TU__ALL_GATHER;
}

/* The attributes of all collectives begin with these. */
typedef struct tu__all_reduce_attrs common_attrs;

#define HAS_COMMON_ATTRS(name)                                                                               \
    (offsetof(struct tu__##name##_attrs, collective) == offsetof(common_attrs, collective) &&                \
     offsetof(struct tu__##name##_attrs, rank) == offsetof(common_attrs, rank) &&                            \
     offsetof(struct tu__##name##_attrs, ranks) == offsetof(common_attrs, ranks))
_Static_assert(HAS_COMMON_ATTRS(reduce_scatter), "ops.def");
_Static_assert(HAS_COMMON_ATTRS(all_gather), "ops.def");
_Static_assert(HAS_COMMON_ATTRS(collective_broadcast), "ops.def");
_Static_assert(HAS_COMMON_ATTRS(collective_reduce), "ops.def");

tu__collective_info tu__collective_of(const tu__node *node) {
    const common_attrs *a = node->attrs;
    tu__collective_info info = {.collective = a->collective, .rank = a->rank, .ranks = a->ranks};
    while (operations[info.kind] != node->op->code) info.kind++;
    if (info.kind == TU__BROADCAST) info.root = tu__attrs(node, collective_broadcast)->root;
    if (info.kind == TU__REDUCE) info.root = tu__attrs(node, collective_reduce)->root;
    return info;
}

/* ---- Shapes ---- */

static tu_status check_rank(const tu__rule *rule) {
    const common_attrs *a = rule->attrs;
    if (a->collective < 0 || a->rank < 0 || a->ranks < 1 || a->rank >= a->ranks)
        return tu__rule_fail(rule,
                             "rank %" PRId64 " of %" PRId64 " in collective %" PRId64
                             ": expected 0 <= rank < ranks and collective >= 0",
                             a->rank, a->ranks, a->collective);
    return TU_OK;
}

static tu_status check_float(const tu__rule *rule) {
    if (!tu_dtype_is_float(rule->in[0].dtype))
        return tu__rule_fail(rule, "expected an input of floating-point type");
    return TU_OK;
}

static tu_status check_has_rows(const tu__rule *rule) {
    if (rule->in[0].shape.rank == 0)
        return tu__rule_fail(rule,
                             "the input is a scalar: expected at least one axis, whose rows the ranks share");
    return TU_OK;
}

tu_status tu__all_reduce_shape(tu__rule *rule) {
    TU_TRY(check_rank(rule));
    TU_TRY(check_float(rule));
    rule->out[0] = rule->in[0];
    return TU_OK;
}

tu_status tu__reduce_scatter_shape(tu__rule *rule) {
    const struct tu__reduce_scatter_attrs *a = rule->attrs;
    TU_TRY(check_rank(rule));
    TU_TRY(check_float(rule));
    TU_TRY(check_has_rows(rule));
    int64_t rows = rule->in[0].shape.dim[0];
    if (rows % a->ranks)
        return tu__rule_fail(rule,
                             "%" PRId64 " rows cannot be divided among %" PRId64
                             " ranks: expected a first axis whose size is a multiple of the number of ranks",
                             rows, a->ranks);
    rule->out[0] = rule->in[0];
    rule->out[0].shape.dim[0] = rows / a->ranks;
    return TU_OK;
}

tu_status tu__all_gather_shape(tu__rule *rule) {
    const struct tu__all_gather_attrs *a = rule->attrs;
    TU_TRY(check_rank(rule));
    TU_TRY(check_has_rows(rule));
    tu_type type = rule->in[0];
    bool fits = a->ranks <= INT64_MAX / type.shape.dim[0];
    if (fits) type.shape.dim[0] *= a->ranks;
    if (!fits || !tu__shape_valid(type.shape))
        return tu__rule_fail(
            rule, "the rows of %" PRId64 " ranks are too many: expected a result of at most 2^48 elements",
            a->ranks);
    rule->out[0] = type;
    return TU_OK;
}

static tu_status check_root(const tu__rule *rule, int64_t root) {
    int64_t ranks = ((const common_attrs *)rule->attrs)->ranks;
    if (root < 0 || root >= ranks)
        return tu__rule_fail(rule, "root %" PRId64 " is not a rank: expected 0 to %" PRId64, root, ranks - 1);
    return TU_OK;
}

tu_status tu__collective_broadcast_shape(tu__rule *rule) {
    TU_TRY(check_rank(rule));
    TU_TRY(check_root(rule, ((const struct tu__collective_broadcast_attrs *)rule->attrs)->root));
    rule->out[0] = rule->in[0];
    return TU_OK;
}

tu_status tu__collective_reduce_shape(tu__rule *rule) {
    TU_TRY(check_rank(rule));
    TU_TRY(check_float(rule));
    TU_TRY(check_root(rule, ((const struct tu__collective_reduce_attrs *)rule->attrs)->root));
    rule->out[0] = rule->in[0];
    return TU_OK;
}

/* ---- Reference kernels ---- */

static size_t elements_of(const tu__tensor *t) {
    return (size_t)tu_shape_elements(t->type.shape);
}

static tu_status copy_input(const tu__reference_call *m) {
    memcpy(m->out[0].data, m->in[0].data, elements_of(&m->out[0]) * sizeof(double));
    return TU_OK;
}

tu_status tu__all_reduce_reference(const tu__reference_call *m) {
    return copy_input(m);
}

tu_status tu__collective_broadcast_reference(const tu__reference_call *m) {
    return copy_input(m);
}

tu_status tu__collective_reduce_reference(const tu__reference_call *m) {
    return copy_input(m);
}

tu_status tu__reduce_scatter_reference(const tu__reference_call *m) {
    size_t rank = (size_t)((const common_attrs *)m->attrs)->rank, count = elements_of(&m->out[0]);
    memcpy(m->out[0].data, m->in[0].data + rank * count, count * sizeof(double));
    return TU_OK;
}

tu_status tu__all_gather_reference(const tu__reference_call *m) {
    size_t rank = (size_t)((const common_attrs *)m->attrs)->rank, count = elements_of(&m->in[0]);
    memset(m->out[0].data, 0, elements_of(&m->out[0]) * sizeof(double));
    memcpy(m->out[0].data + rank * count, m->in[0].data, count * sizeof(double));
    return TU_OK;
}
