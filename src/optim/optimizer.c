/* Optimizers: options, gradient norm, guard, clipping, parameter groups, and the calls of the rules in
 * update_rules.c.
 *
 * All operations except the norm are pointwise, so a device can update all parameters in one kernel. Slots and
 * updates are placed on their variable's device, so they need no copies. */
#include "optim/optimizer.h"

#include <inttypes.h>
#include <math.h>

#include <tutti/ops.h>

#include "base/pattern.h"
#include "base/sized.h"
#include "base/text.h"
#include "graph/graph.h"

/* ---- Options ---- */

static tu_status fail_option(const tu__optimizer *s, const char *setting, double given,
                             const char *expected) {
    return tu_fail(TU_INVALID, "optimizer '%s': %s is %g, expected %s", s->rule->name, setting, given,
                   expected);
}

static bool is_finite_non_negative(double number) {
    return number >= 0 && isfinite(number);
}

static tu_status check_rate(const tu__optimizer *s, const tu_graph *graph) {
    const tu_optimizer_options *o = &s->options;
    if (!o->rate.graph) {
        if (!is_finite_non_negative(o->constant_rate))
            return fail_option(s, "rate", o->constant_rate, "a finite number of at least 0");
        if (o->constant_rate == 0)
            return tu_fail(TU_INVALID,
                           "optimizer '%s': the learning rate is missing: set .rate or .constant_rate",
                           s->rule->name);
        return TU_OK;
    }
    tu_type type = tu_value_type(o->rate);
    if (o->rate.graph != graph || !tu_dtype_is_float(type.dtype) || type.shape.rank != 0)
        return tu_fail(
            TU_INVALID,
            "optimizer '%s': the learning rate '%s' is %s, expected a floating-point scalar of the same graph",
            s->rule->name, tu_value_name(o->rate), tu__type_string(type));
    return TU_OK;
}

static tu_status check_groups(const tu__optimizer *s) {
    for (size_t i = 0; i < s->options.group_count; i++) {
        const tu_optimizer_group *group = &s->options.groups[i];
        if (!group->pattern || !*group->pattern)
            return tu_fail(TU_INVALID,
                           "optimizer '%s': group %zu has no .pattern: expected variable names like conv*",
                           s->rule->name, i);
        if (!is_finite_non_negative(group->weight_decay))
            return fail_option(s, "a group's weight_decay", group->weight_decay,
                               "a finite number of at least 0");
        if (!is_finite_non_negative(tu__given_or(group->rate_factor, 1)))
            return fail_option(s, "a group's rate_factor", group->rate_factor,
                               "a finite number of at least 0");
    }
    return TU_OK;
}

static tu_status check_decay_factors(const tu__optimizer *s) {
    const struct {
        const char *name;
        double number;
    } factors[] = {{"momentum", s->options.momentum},
                   {"beta1", s->options.beta1},
                   {"beta2", s->options.beta2},
                   {"average", s->options.average}};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        if (!(factors[i].number >= 0 && factors[i].number < 1))
            return fail_option(s, factors[i].name, factors[i].number, "a number in [0, 1)");
    return TU_OK;
}

static void fill_defaults(tu__optimizer *s) {
    tu_optimizer_options *o = &s->options;
    o->momentum = tu__given_or(o->momentum, s->rule->momentum);
    o->beta1 = tu__given_or(o->beta1, 0.9);
    o->beta2 = tu__given_or(o->beta2, s->rule->beta2);
    o->epsilon = tu__given_or(o->epsilon, 1e-8);
    if (o->trust == 0) o->trust = 0.001;
}

tu_status tu__optimizer_init(tu_graph *graph, const tu_optimizer_options *given, tu__optimizer *optimizer) {
    TU__OPTIONS(tu_optimizer_options, o, given);
    *optimizer = (tu__optimizer){.options = o, .rule = tu__update_rule_find(o.name)};
    if (!optimizer->rule) return TU_INVALID;
    fill_defaults(optimizer);
    TU_TRY(check_rate(optimizer, graph));
    TU_TRY(check_decay_factors(optimizer));
    if (!is_finite_non_negative(optimizer->options.epsilon))
        return fail_option(optimizer, "epsilon", o.epsilon, "a finite number of at least 0");
    if (!is_finite_non_negative(o.trust))
        return fail_option(optimizer, "trust", o.trust, "a finite number of at least 0");
    if (!is_finite_non_negative(o.loss_scale) || (o.loss_scale > 0 && o.loss_scale < 1))
        return fail_option(optimizer, "loss_scale", o.loss_scale, "0, or a finite number of at least 1");
    if (o.loss_scale > 0 && o.unguarded)
        return tu_fail(TU_INVALID,
                       "optimizer '%s': .loss_scale needs the check for non-finite steps: remove .unguarded",
                       optimizer->rule->name);
    if (o.stop_at_nonfinite && o.unguarded)
        return tu_fail(
            TU_INVALID,
            "optimizer '%s': .unguarded and .stop_at_nonfinite are both set: expected at most one of them",
            optimizer->rule->name);
    if (!is_finite_non_negative(o.clip_norm))
        return fail_option(optimizer, "clip_norm", o.clip_norm, "a finite number of at least 0");
    if (!is_finite_non_negative(o.weight_decay))
        return fail_option(optimizer, "weight_decay", o.weight_decay, "a finite number of at least 0");
    return check_groups(optimizer);
}

/* Returns the first group whose pattern matches the variable, or the default group. By default only weights (rank 2
 * or more) decay, not biases and scales. */
static tu_optimizer_group group_of(const tu_optimizer_options *o, tu_value variable) {
    tu_optimizer_group group = {.rate_factor = 1};
    if (tu_value_shape(variable).rank >= 2) group.weight_decay = o->weight_decay;
    for (size_t i = 0; i < o->group_count; i++) {
        if (!tu__pattern_matches(o->groups[i].pattern, tu_value_name(variable))) continue;
        group = o->groups[i];
        group.rate_factor = tu__given_or(group.rate_factor, 1);
        break;
    }
    return group;
}

/* ---- Scalars ---- */

typedef struct scalars {
    tu_value rate; /* the learning rate, of any float type */
    tu_value clip; /* f64 factor of the gradients; invalid: no clipping */
    tu__guard guard;
    /* Bools about the step; invalid if there is no guard. */
    tu_value finite;  /* loss and gradients of this step are finite */
    tu_value ok;      /* the step was applied, or skipped because the loss scale was too large */
    tu_value healthy; /* variable: no earlier step was non-finite; invalid without .stop_at_nonfinite */
} scalars;

/* Builds a bool: loss (if given) and gradients of this step are finite. */
static tu_value finite_step(tu_value loss, tu_value squared_norm) {
    tu_value finite = tu_is_finite(squared_norm);
    return tu_ok(loss) ? tu_and(tu_is_finite(loss), finite) : finite;
}

static void build_guard(const tu_optimizer_options *o, tu_value finite, const tu__loss_scale *scale,
                        scalars *s) {
    s->finite = s->guard.apply_step = finite;
    if (o->stop_at_nonfinite) {
        s->healthy = tu_variable(finite.graph, "healthy", TU_BOOL, TU_SCALAR,
                                 .init = {TU_INIT_CONSTANT, .a = 1}, .frozen = true);
        s->guard.apply_step = tu_and(finite, s->healthy);
    }
    s->ok = s->guard.apply_step;
    if (tu_ok(scale->current)) s->ok = tu_or(s->ok, tu_and(tu_not(finite), tu__scale_above_one(scale)));
}

const char *tu__healthy_name(const tu_graph *graph) {
    static const char *const names[] = {TU__HEALTHY, TU__HEALTHY_OLD_NAME};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tu__find_node(graph, names[i])) return names[i];
    return NULL;
}

/* Assigns "healthy" and the loss scale. These assignments are not guarded, because they must happen in
 * non-finite steps too. */
static void assign_health(const scalars *s, const tu__loss_scale *scale) {
    /* Assign and(healthy, ok), not `ok`: an unhealthy state stays unhealthy, and the variable can be updated in place,
     * since other nodes read `ok` and its buffer could not be the variable's. */
    if (tu_ok(s->healthy)) tu_assign(s->healthy, tu_and(s->healthy, s->ok));
    if (tu_ok(scale->current)) tu__loss_scale_update(scale, s->finite, s->guard.apply_step);
}

/* Builds min(1, limit / (norm + 1e-6)), as in PyTorch. */
static tu_value clip_factor(tu_value norm, double limit) {
    tu_value ratio = tu_div(tu_number(norm, limit), tu_shift(norm, 1e-6));
    return tu_minimum(ratio, tu_number(ratio, 1));
}

static scalars build_scalars(tu_graph *graph, const tu_optimizer_options *o, tu_value loss,
                             const tu__loss_scale *scale, const tu__gradients *list,
                             tu_optimizer_values *values) {
    tu_value none = tu__invalid(graph);
    scalars s = {o->rate, none, {none}, none, none, none};
    if (!s.rate.graph) s.rate = tu_fill(graph, TU_F64, TU_SCALAR, o->constant_rate);
    if (values) values->rate = tu_cast(s.rate, TU_F32);
    if (o->unguarded && o->clip_norm == 0 && !values) return s;
    tu_value squared = tu__squared_norm(list), norm = tu_sqrt(squared);
    if (values) values->gradient_norm = tu_cast(norm, TU_F32);
    if (o->clip_norm > 0) s.clip = clip_factor(norm, o->clip_norm);
    if (!o->unguarded) build_guard(o, finite_step(loss, squared), scale, &s);
    if (values) values->finite = s.ok;
    return s;
}

/* ---- Updates ---- */

static void add_update(const tu__optimizer *optimizer, const scalars *s, tu_value variable,
                       tu_value gradient) {
    tu_dtype dtype = tu_value_dtype(variable);
    tu_optimizer_group group = group_of(&optimizer->options, variable);
    tu__variable_update u = {.options = &optimizer->options,
                             .guard = &s->guard,
                             .variable = variable,
                             .gradient = gradient,
                             .rate = tu_cast(s->rate, dtype),
                             .weight_decay = group.weight_decay};
    if (group.rate_factor != 1) u.rate = tu_scale(u.rate, group.rate_factor);
    if (tu_ok(s->clip)) u.gradient = tu_mul(u.gradient, tu_cast(s->clip, dtype));
    if (optimizer->rule->decay_in_gradient && group.weight_decay != 0)
        u.gradient = tu_add(u.gradient, tu_scale(variable, group.weight_decay));
    tu__guarded_assign(&s->guard, variable, optimizer->rule->next(&u));
}

tu_status tu__optimize(tu_graph *graph, const tu__optimizer *optimizer, tu_value loss,
                       const tu__loss_scale *scale, const tu__gradients *list, tu_optimizer_values *values) {
    const tu_optimizer_options *o = &optimizer->options;
    scalars s = {0};
    tu_scope(graph, "optimizer") {
        if (tu_ok(scale->current)) tu__unscale_gradients(scale, list);
        s = build_scalars(graph, o, loss, scale, list, values);
        tu__guard_assignments(&s.guard, graph, o->freeze);
        assign_health(&s, scale);
        for (size_t i = 0; i < list->count; i++)
            tu_with_device(graph, tu_value_device(list->variables[i]))
                add_update(optimizer, &s, list->variables[i], list->gradients[i]);
        tu_value step = tu_step(graph);
        tu__guarded_assign(&s.guard, step, tu_shift(step, 1));
    }
    TU_TRY(tu_graph_status(graph));
    return o->average > 0 ? tu__average_variables(graph, &s.guard, o->average) : TU_OK;
}

/* Sets `*scaled` to the value to differentiate: the loss, multiplied by the loss scale if there is one. */
static tu_status scale_loss(const tu__optimizer *optimizer, tu_value loss, tu__loss_scale *scale,
                            tu_value *scaled) {
    char *saved_scope;
    *scale = tu__no_loss_scale(loss.graph);
    *scaled = loss;
    if (optimizer->options.loss_scale == 0) return TU_OK;
    TU_TRY(tu__leave_scopes(loss.graph, &saved_scope));
    tu_scope(loss.graph, "optimizer") {
        *scale = tu__loss_scale_new(loss.graph, optimizer->options.loss_scale);
        *scaled = tu_mul(loss, tu_cast(scale->current, tu_value_dtype(loss)));
    }
    TU_TRY(tu__restore_scopes(loss.graph, saved_scope));
    return tu_graph_status(loss.graph);
}

tu_status tu_add_optimizer_with(tu_value loss, tu_optimizer_values *values,
                                const tu_optimizer_options *options) {
    tu__optimizer optimizer;
    tu__gradients list;
    char *saved_scope;
    tu_value none = tu__invalid(loss.graph);
    tu_optimizer_values full = {.rate = none, .gradient_norm = none, .finite = none};
    if (values) TU_TRY(TU__CHECK_SIZED(tu_optimizer_values, values));
    if (values) TU__COPY_SIZED(values, full);
    if (!loss.graph) return tu_fail(TU_INVALID, "optimizer: the loss is an uninitialised tu_value");
    TU_TRY(tu_graph_status(loss.graph));
    TU_TRY(tu__optimizer_init(loss.graph, options, &optimizer));
    tu__loss_scale scale;
    tu_value scaled;
    TU_TRY(scale_loss(&optimizer, loss, &scale, &scaled));
    TU_TRY(tu__gradients_of(scaled, optimizer.options.freeze, &list));
    tu_status status = tu__leave_scopes(loss.graph, &saved_scope);
    if (status == TU_OK) {
        status = tu__optimize(loss.graph, &optimizer, loss, &scale, &list, values ? &full : NULL);
        if (values) TU__COPY_SIZED(values, full);
        tu_status restored = tu__restore_scopes(loss.graph, saved_scope);
        if (status == TU_OK) status = restored;
    }
    tu__gradients_free(&list);
    return status;
}
