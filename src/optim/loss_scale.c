/* Loss scaling as operations of the step. See loss_scale.h.
 *
 * All updates are to be fused into one kernel that works in place, so that a device can run many steps without the
 * host. Therefore no subkernel may read a variable that another writes, or a value that another computes. Values on
 * which several updates depend are computed from the variables at the beginning of the step; otherwise the updates
 * share no operation, not even a comparison. Steps are counted in f32, the type of the other values. */
#include "optim/loss_scale.h"

#include <tutti/ops.h>

#include "graph/graph.h"

/* The scale doubles after this number of finite steps, as in PyTorch, up to a maximum that keeps it finite. */
enum { GROWTH_INTERVAL = 2000, MAX_SCALE = 1 << 24 };

static tu_value scale_must_grow(tu_value good_steps) {
    return tu_greater_equal(good_steps, tu_number(good_steps, GROWTH_INTERVAL));
}

tu__loss_scale tu__no_loss_scale(tu_graph *graph) {
    tu_value none = tu__invalid(graph);
    return (tu__loss_scale){none, none, none, none};
}

tu__loss_scale tu__loss_scale_new(tu_graph *graph, double initial) {
    tu__loss_scale s;
    s.stored = tu_variable(graph, "loss_scale", TU_F32, TU_SCALAR, .init = {TU_INIT_CONSTANT, .a = initial},
                           .frozen = true);
    s.good_steps = tu_variable(graph, "good_steps", TU_F32, TU_SCALAR, .frozen = true);
    tu_value grown = tu_minimum(tu_scale(s.stored, 2), tu_number(s.stored, MAX_SCALE));
    s.current = tu_select(scale_must_grow(s.good_steps), grown, s.stored);
    s.inverse = tu_div(tu_number(s.current, 1), s.current);
    return s;
}

void tu__unscale_gradients(const tu__loss_scale *scale, const tu__gradients *list) {
    for (size_t i = 0; i < list->count; i++)
        tu_with_device(scale->current.graph, tu_value_device(list->variables[i])) list->gradients[i] =
            tu_mul(list->gradients[i], tu_cast(scale->inverse, tu_value_dtype(list->gradients[i])));
}

tu_value tu__scale_above_one(const tu__loss_scale *scale) {
    return tu_less(scale->inverse, tu_number(scale->inverse, 1));
}

void tu__loss_scale_update(const tu__loss_scale *scale, tu_value finite, tu_value applied) {
    tu_value half = tu_maximum(tu_scale(scale->current, 0.5), tu_number(scale->current, 1));
    tu_assign(scale->stored, tu_select(applied, scale->current, tu_select(finite, scale->stored, half)));

    tu_value old_count = scale->good_steps, none = tu_number(old_count, 0);
    tu_value counted = tu_shift(tu_select(scale_must_grow(old_count), none, old_count), 1);
    tu_value reset = tu_select(tu_greater(scale->current, tu_number(scale->current, 1)), none, old_count);
    tu_assign(old_count, tu_select(applied, counted, tu_select(finite, old_count, reset)));
}
