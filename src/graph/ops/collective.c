/* Collectives: values that the devices of a group make together.
 *
 * The pass replicate puts an all_reduce on each device for a value of which every replica has computed a share. Nodes of
 * one collective number are one collective: rank r of `ranks` brings its share, and every rank takes away the sum, added up
 * pairwise in the order of ranks: ((0 + 1) + (2 + 3)) + …. A rank may bring several values to one collective; all ranks bring
 * the same, in the order of their nodes. It is the engine that holds collectives (compile/collectives.c); on its own a node passes its value on. */
#include <inttypes.h>
#include <string.h>

#include "graph/graph.h"
#include "graph/rules.h"

tu_status tu__all_reduce_shape(tu__rule *rule) {
    const struct tu__all_reduce_attrs *a = rule->attrs;
    if (a->collective < 0 || a->rank < 0 || a->ranks < 1 || a->rank >= a->ranks)
        return tu__refuse(rule,
                          "rank %" PRId64 " of %" PRId64 " in collective %" PRId64
                          ": expected ranks from 0 on, below their number",
                          a->rank, a->ranks, a->collective);
    if (!tu_dtype_is_float(rule->in[0].dtype)) return tu__refuse(rule, "expected a floating-point type");
    rule->out[0] = rule->in[0];
    return TU_OK;
}

tu_status tu__all_reduce_reference(const tu__reference_call *m) {
    size_t count = (size_t)tu_shape_elements(m->out[0].type.shape);
    memcpy(m->out[0].data, m->in[0].data, count * sizeof(double));
    return TU_OK;
}
