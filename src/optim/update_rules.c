/* The update rules, one function each. w: the variable, g: its gradient, t: the step counted from 1.
 *
 * Momentum is defined as in PyTorch: the learning rate multiplies the velocity, not the gradient, so that a change of
 * the rate takes effect at once. LARS includes the rate in the velocity, as in its paper. Adam's bias corrections are
 * f64 scalars shared by all variables. */
#include "optim/update_rules.h"

#include <string.h>

#include <tutti/ops.h>

#include "base/choice.h"
#include "base/text.h"
#include "graph/graph.h"

/* ---- Slots ---- */

/* Creates the variable "optimizer/PURPOSE/NAME" with the type of the updated variable, initially zero. */
static tu_value slot(const tu__variable_update *u, const char *purpose) {
    tu_graph *graph = u->variable.graph;
    tu_type type = tu_value_type(u->variable);
    tu__text name = {0};
    tu__text_printf(&name, "%s/%s", purpose, tu_value_name(u->variable));
    tu_value variable =
        name.failed ? tu__graph_fail(graph, TU_NO_MEMORY, "%s", tu_message())
                    : tu_variable(graph, tu__text_string(&name), type.dtype, type.shape, .frozen = true);
    tu__text_free(&name);
    return variable;
}

/* Assigns decay * slot + weight * x to the slot and returns it. */
static tu_value update_moving_average(const tu__variable_update *u, const char *purpose, double decay,
                                      double weight, tu_value x) {
    tu_value before = slot(u, purpose);
    return tu__guarded_assign(u->guard, before,
                              tu_add(tu_scale(before, decay), weight == 1 ? x : tu_scale(x, weight)));
}

/* Returns w - rate * direction. */
static tu_value descend(const tu__variable_update *u, tu_value direction) {
    return tu_sub(u->variable, tu_mul(direction, u->rate));
}

/* ---- Rules ---- */

/* w = w - rate * g */
static tu_value sgd(const tu__variable_update *u) {
    return descend(u, u->gradient);
}

/* v = momentum * v + g; w = w - rate * v */
static tu_value momentum(const tu__variable_update *u) {
    return descend(u, update_moving_average(u, "velocity", u->options->momentum, 1, u->gradient));
}

/* v = momentum * v + g; w = w - rate * (g + momentum * v) */
static tu_value nesterov(const tu__variable_update *u) {
    tu_value velocity = update_moving_average(u, "velocity", u->options->momentum, 1, u->gradient);
    return descend(u, tu_add(u->gradient, tu_scale(velocity, u->options->momentum)));
}

/* s = beta2 * s + (1 - beta2) * g^2; w = w - rate * g / (sqrt(s) + epsilon), with momentum of the quotient if
 * .momentum is set (Tieleman & Hinton 2012) */
static tu_value rmsprop(const tu__variable_update *u) {
    const tu_optimizer_options *o = u->options;
    tu_value square = update_moving_average(u, "mean_square", o->beta2, 1 - o->beta2, tu_square(u->gradient));
    tu_value direction = tu_div(u->gradient, tu_shift(tu_sqrt(square), o->epsilon));
    return descend(u, o->momentum == 0 ? direction
                                       : update_moving_average(u, "velocity", o->momentum, 1, direction));
}

/* Returns 1 - beta^t, in f64. */
static tu_value correction(tu_graph *graph, double beta) {
    tu_value t = tu_cast(tu_shift(tu_step(graph), 1), TU_F64);
    return tu_sub(tu_number(t, 1), tu_pow(tu_number(t, beta), t));
}

/* m = beta1 * m + (1 - beta1) * g; s = beta2 * s + (1 - beta2) * g^2;
 * w = w - rate * (m / (1 - beta1^t)) / (sqrt(s / (1 - beta2^t)) + epsilon)          (Kingma & Ba 2015) */
static tu_value adam(const tu__variable_update *u) {
    const tu_optimizer_options *o = u->options;
    tu_graph *graph = u->variable.graph;
    tu_dtype dtype = tu_value_dtype(u->variable);
    tu_value mean = update_moving_average(u, "mean", o->beta1, 1 - o->beta1, u->gradient);
    tu_value square = update_moving_average(u, "mean_square", o->beta2, 1 - o->beta2, tu_square(u->gradient));
    tu_value mean_factor = tu_cast(tu_reciprocal(correction(graph, o->beta1)), dtype);
    tu_value root_factor = tu_cast(tu_rsqrt(correction(graph, o->beta2)), dtype);
    tu_value root = tu_shift(tu_mul(tu_sqrt(square), root_factor), o->epsilon);
    return tu_sub(u->variable, tu_mul(tu_div(mean, root), tu_mul(u->rate, mean_factor)));
}

/* Adam with decoupled weight decay: w -= rate * weight_decay * w (Loshchilov & Hutter 2019). */
static tu_value adamw(const tu__variable_update *u) {
    tu_value next = adam(u);
    if (u->weight_decay == 0) return next;
    return tu_sub(next, tu_mul(u->variable, tu_scale(u->rate, u->weight_decay)));
}

static tu_value norm_of(tu_value x) {
    return tu_sqrt(tu_sum(tu_square(x)));
}

/* Returns trust * |w| / (|g| + weight_decay * |w|), or 1 if a norm is zero. */
static tu_value trust_ratio(const tu__variable_update *u) {
    tu_value w = norm_of(u->variable), g = norm_of(u->gradient), none = tu_number(w, 0);
    tu_value ratio = tu_div(tu_scale(w, u->options->trust), tu_add(g, tu_scale(w, u->weight_decay)));
    tu_value comparable = tu_and(tu_greater(w, none), tu_greater(g, none));
    return tu_select(comparable, ratio, tu_number(w, 1));
}

/* v = momentum * v + rate * ratio * (g + weight_decay * w); w = w - v               (You et al. 2017)
 * Biases and scales (rank below 2) are updated without the ratio. */
static tu_value lars(const tu__variable_update *u) {
    tu_value direction = u->gradient, rate = u->rate;
    if (u->weight_decay != 0) direction = tu_add(direction, tu_scale(u->variable, u->weight_decay));
    if (tu_value_shape(u->variable).rank >= 2) rate = tu_mul(rate, trust_ratio(u));
    tu_value velocity =
        update_moving_average(u, "velocity", u->options->momentum, 1, tu_mul(direction, rate));
    return tu_sub(u->variable, velocity);
}

/* ---- The table ---- */

static const tu__update_rule rules[] = {
    {"sgd", true, 0, 0, sgd},
    {"momentum", true, 0.9, 0, momentum},
    {"nesterov", true, 0.9, 0, nesterov},
    {"rmsprop", true, 0, 0.9, rmsprop},
    {"adam", true, 0, 0.999, adam},
    {"adamw", false, 0, 0.999, adamw},
    {"lars", false, 0.9, 0, lars},
};
enum { RULE_COUNT = sizeof rules / sizeof *rules };

const tu__update_rule *tu__update_rule_find(const char *name) {
    const char *names[RULE_COUNT];
    if (!name) name = "momentum";
    for (int i = 0; i < RULE_COUNT; i++) {
        if (strcmp(rules[i].name, name) == 0) return &rules[i];
        names[i] = rules[i].name;
    }
    tu__fail_unknown_choice(TU_INVALID, "optimizer", name, RULE_COUNT, names);
    return NULL;
}
