/* Collectives.
 *
 * The pass replicate adds an all_reduce on each device for a value of which every replica has computed a partial sum.
 * Nodes with the same attribute `collective` form one collective: rank r of `ranks` contributes its value, and every
 * rank receives the sum, reduced pairwise in rank order: ((0 + 1) + (2 + 3)) + …. A rank may contribute several
 * values to one collective; all ranks contribute the same ones, in node order. The engine runs collectives
 * (compile/collectives.c). The reference kernel of a single node returns its input. */
#include <inttypes.h>
#include <string.h>

#include "graph/graph.h"
#include "graph/rules.h"

tu_status tu__all_reduce_shape(tu__rule *rule) {
    const struct tu__all_reduce_attrs *a = rule->attrs;
    if (a->collective < 0 || a->rank < 0 || a->ranks < 1 || a->rank >= a->ranks)
        return tu__rule_fail(rule,
                             "rank %" PRId64 " of %" PRId64 " in collective %" PRId64
                             ": expected 0 <= rank < ranks and collective >= 0",
                             a->rank, a->ranks, a->collective);
    if (!tu_dtype_is_float(rule->in[0].dtype))
        return tu__rule_fail(rule, "expected an input of floating-point type");
    rule->out[0] = rule->in[0];
    return TU_OK;
}

tu_status tu__all_reduce_reference(const tu__reference_call *m) {
    size_t count = (size_t)tu_shape_elements(m->out[0].type.shape);
    memcpy(m->out[0].data, m->in[0].data, count * sizeof(double));
    return TU_OK;
}
