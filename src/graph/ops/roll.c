/* Circular shift along an axis. The gradient is the opposite shift. */
#include <inttypes.h>

#include <tutti/ops.h>

#include "base/text.h"
#include "graph/graph.h"
#include "graph/rules.h"
#include "graph/walk.h"

tu_status tu__roll_shape(tu__rule *rule) {
    const struct tu__roll_attrs *a = rule->attrs;
    tu_type x = rule->in[0];
    if (a->axis < 0 || a->axis >= x.shape.rank) return tu__rule_fail_axis(rule, a->axis);
    if (a->shift < 0 || a->shift >= x.shape.dim[a->axis])
        return tu__rule_fail(
            rule, "shift is %" PRId64 ", expected at least 0 and less than %" PRId64 ", the size of the axis",
            a->shift, x.shape.dim[a->axis]);
    rule->out[0] = x;
    return TU_OK;
}

tu_status tu__roll_reference(const tu__reference_call *m) {
    const struct tu__roll_attrs *a = m->attrs;
    tu__lanes lanes = tu__lanes_of(m->in[0].type.shape, a->axis);
    for (int64_t o = 0; o < lanes.outer; o++)
        for (int64_t i = 0; i < lanes.size; i++)
            for (int64_t k = 0; k < lanes.inner; k++) {
                int64_t target = (i + a->shift) % lanes.size;
                m->out[0].data[(o * lanes.size + target) * lanes.inner + k] =
                    m->in[0].data[(o * lanes.size + i) * lanes.inner + k];
            }
    return TU_OK;
}

void tu__roll_gradient(tu__vjp *v) {
    const struct tu__roll_attrs *a = tu__attrs(v->node, roll);
    tu__vjp_accumulate(v, 0, tu_roll(tu__vjp_gradient(v, 0), (int)a->axis, -a->shift));
}

tu_value tu_roll(tu_value x, int axis, int64_t shift) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    tu_shape shape = tu_value_shape(x);
    int64_t normalized = tu__normalize_axis(axis, shape.rank);
    if (normalized < 0) return tu__graph_fail_axis("roll", x, axis);
    int64_t size = shape.dim[normalized];
    struct tu__roll_attrs a = {.axis = normalized, .shift = (shift % size + size) % size};
    return tu__apply(ROLL, &a, x);
}
