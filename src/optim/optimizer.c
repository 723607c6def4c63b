/* Optimizers: everything around the rules of update_rules.c.
 *
 * From the gradients come their norm, the guard's truth, and the factor that clips them; then each variable gets its
 * group's decay and rate, and its rule. All of it is pointwise but the norm, so a device can update every parameter
 * in one kernel; slots and updates go where their variable is, and need no copies. */
#include "optim/optimizer.h"

#include <inttypes.h>
#include <math.h>

#include <tutti/ops.h>

#include "base/pattern.h"
#include "base/text.h"
#include "graph/graph.h"

/* ---- Settings ---- */

static tu_status refuse(const tu__optimizer *s, const char *setting, double given, const char *expected) {
    return tu_fail(TU_INVALID, "optimizer '%s': %s %g: expected %s", s->rule->name, setting, given, expected);
}

static bool is_size(double number) {
    return number >= 0 && isfinite(number);
}

static tu_status check_rate(const tu__optimizer *s, const tu_graph *graph) {
    const tu_optimizer_options *o = &s->options;
    if (!o->rate.graph) {
        if (!is_size(o->constant_rate)) return refuse(s, "rate", o->constant_rate, "a number of at least 0");
        if (o->constant_rate == 0)
            return tu_fail(TU_INVALID, "optimizer '%s': no rate: expected .rate or .constant_rate",
                           s->rule->name);
        return TU_OK;
    }
    tu_type type = tu_value_type(o->rate);
    if (o->rate.graph != graph || !tu_dtype_is_float(type.dtype) || type.shape.rank != 0)
        return tu_fail(TU_INVALID,
                       "optimizer '%s': the rate '%s' is %s: expected a floating-point scalar of the graph",
                       s->rule->name, tu_value_name(o->rate), tu__type_string(type));
    return TU_OK;
}

static tu_status check_groups(const tu__optimizer *s) {
    for (size_t i = 0; i < s->options.group_count; i++) {
        const tu_optimizer_group *group = &s->options.groups[i];
        if (!group->pattern || !*group->pattern)
            return tu_fail(TU_INVALID, "optimizer '%s': group %zu has no pattern: expected names like conv*",
                           s->rule->name, i);
        if (!is_size(group->weight_decay))
            return refuse(s, "a group's weight_decay", group->weight_decay, "a number of at least 0");
        if (!is_size(group->rate_factor))
            return refuse(s, "a group's rate_factor", group->rate_factor, "a number of at least 0");
    }
    return TU_OK;
}

static tu_status check_shares(const tu__optimizer *s) {
    const struct {
        const char *name;
        double number;
    } shares[] = {{"momentum", s->options.momentum},
                  {"beta1", s->options.beta1},
                  {"beta2", s->options.beta2},
                  {"average", s->options.average}};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        if (!(shares[i].number >= 0 && shares[i].number < 1))
            return refuse(s, shares[i].name, shares[i].number, "a number in [0, 1)");
    return TU_OK;
}

static void fill_defaults(tu__optimizer *s) {
    tu_optimizer_options *o = &s->options;
    if (o->momentum == 0)
        o->momentum = s->rule->momentum;
    else if (o->momentum < 0)
        o->momentum = 0;
    if (o->beta1 == 0) o->beta1 = 0.9;
    if (o->beta2 == 0) o->beta2 = s->rule->beta2;
    if (o->epsilon == 0) o->epsilon = 1e-8;
    if (o->trust == 0) o->trust = 0.001;
}

tu_status tu__optimizer_init(tu_graph *graph, const tu_optimizer_options *given, tu__optimizer *settled) {
    TU__OPTIONS(tu_optimizer_options, o, given);
    *settled = (tu__optimizer){.options = o, .rule = tu__update_rule_find(o.name)};
    if (!settled->rule) return TU_INVALID;
    fill_defaults(settled);
    TU_TRY(check_rate(settled, graph));
    TU_TRY(check_shares(settled));
    if (!is_size(o.epsilon)) return refuse(settled, "epsilon", o.epsilon, "a number of at least 0");
    if (!is_size(o.trust)) return refuse(settled, "trust", o.trust, "a number of at least 0");
    if (!is_size(o.loss_scale) || (o.loss_scale > 0 && (o.loss_scale < 1 || o.unguarded)))
        return refuse(settled, "loss_scale", o.loss_scale, "0, or at least 1 and a guard");
    if (o.stop_at_bad && o.unguarded)
        return tu_fail(TU_INVALID, "optimizer '%s': unguarded and stop_at_bad: expected one of them",
                       settled->rule->name);
    if (!is_size(o.clip_norm)) return refuse(settled, "clip_norm", o.clip_norm, "a number of at least 0");
    if (!is_size(o.weight_decay))
        return refuse(settled, "weight_decay", o.weight_decay, "a number of at least 0");
    return check_groups(settled);
}

/* The group that decides for a variable. Decay without a group is for weights: a bias or a scale has nothing to
 * shrink against. */
static tu_optimizer_group group_of(const tu_optimizer_options *o, tu_value variable) {
    tu_optimizer_group group = {.rate_factor = 1};
    if (tu_value_shape(variable).rank >= 2) group.weight_decay = o->weight_decay;
    for (size_t i = 0; i < o->group_count; i++) {
        if (!tu__pattern_fits(o->groups[i].pattern, tu_value_name(variable))) continue;
        group = o->groups[i];
        if (group.rate_factor == 0) group.rate_factor = 1;
        break;
    }
    return group;
}

/* ---- Scalars ---- */

typedef struct scalars {
    tu_value rate; /* of any float type */
    tu_value clip; /* f64: what gradients are multiplied by; invalid: nothing */
    tu__guard guard;
    /* The health of the step; invalid where the guard is. */
    tu_value finite;  /* whether its own values are */
    tu_value good;    /* it was applied, or left out because the loss scale was too large */
    tu_value healthy; /* the variable that remembers a bad step; invalid: nothing does */
} scalars;

/* Whether this step's own values are finite. */
static tu_value finite_step(tu_value loss, tu_value squared_norm) {
    tu_value finite = tu_is_finite(squared_norm);
    return tu_ok(loss) ? tu_and(tu_is_finite(loss), finite) : finite;
}

static void make_guard(const tu_optimizer_options *o, tu_value finite, const tu__loss_scale *scale,
                       scalars *s) {
    s->finite = s->guard.finite = finite;
    if (o->stop_at_bad) {
        s->healthy = tu_variable(finite.graph, "healthy", TU_BOOL, TU_SCALAR,
                                 .init = {TU_INIT_CONSTANT, .a = 1}, .frozen = true);
        s->guard.finite = tu_and(finite, s->healthy);
    }
    s->good = s->guard.finite;
    if (tu_ok(scale->now)) s->good = tu_or(s->good, tu_and(tu_not(finite), tu__scale_too_large(scale)));
}

const char *tu__healthy_name(const tu_graph *graph) {
    static const char *const names[] = {TU__HEALTHY, TU__HEALTHY_BEFORE};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tu__find_node(graph, names[i])) return names[i];
    return NULL;
}

/* What a step leaves of its own health to the next: not behind the guard, since bad steps are what this is about. */
static void assign_health(const scalars *s, const tu__loss_scale *scale) {
    if (tu_ok(s->healthy)) /* not `good` itself, which others read: the variable then takes it in place */
        tu_assign(s->healthy, tu_and(s->healthy, s->good));
    if (tu_ok(scale->now)) tu__loss_scale_update(scale, s->finite, s->guard.finite);
}

/* min(1, limit / norm), the norm kept away from zero as PyTorch does. */
static tu_value clip_factor(tu_value norm, double limit) {
    tu_value ratio = tu_div(tu_number(norm, limit), tu_shift(norm, 1e-6));
    return tu_minimum(ratio, tu_number(ratio, 1));
}

static scalars make_scalars(tu_graph *graph, const tu_optimizer_options *o, tu_value loss,
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
    if (!o->unguarded) make_guard(o, finite_step(loss, squared), scale, &s);
    if (values) values->finite = s.good;
    return s;
}

/* ---- Updates ---- */

static void update(const tu__optimizer *optimizer, const scalars *s, tu_value variable, tu_value gradient) {
    tu_dtype dtype = tu_value_dtype(variable);
    tu_optimizer_group group = group_of(&optimizer->options, variable);
    tu__update u = {.options = &optimizer->options,
                    .guard = &s->guard,
                    .variable = variable,
                    .gradient = gradient,
                    .rate = tu_cast(s->rate, dtype),
                    .weight_decay = group.weight_decay};
    if (group.rate_factor != 1) u.rate = tu_scale(u.rate, group.rate_factor);
    if (tu_ok(s->clip)) u.gradient = tu_mul(u.gradient, tu_cast(s->clip, dtype));
    if (optimizer->rule->adds_decay && group.weight_decay != 0)
        u.gradient = tu_add(u.gradient, tu_scale(variable, group.weight_decay));
    tu__guarded_assign(&s->guard, variable, optimizer->rule->next(&u));
}

tu_status tu__optimize(tu_graph *graph, const tu__optimizer *optimizer, tu_value loss,
                       const tu__loss_scale *scale, const tu__gradients *list, tu_optimizer_values *values) {
    const tu_optimizer_options *o = &optimizer->options;
    scalars s = {0};
    tu_scope(graph, "optimizer") {
        if (tu_ok(scale->now)) tu__unscale_gradients(scale, list);
        s = make_scalars(graph, o, loss, scale, list, values);
        tu__guard_assignments(&s.guard, graph, o->freeze);
        assign_health(&s, scale);
        for (size_t i = 0; i < list->count; i++)
            tu_with_device(graph, tu_value_device(list->variables[i]))
                update(optimizer, &s, list->variables[i], list->gradients[i]);
        tu_value step = tu_step(graph);
        tu__guarded_assign(&s.guard, step, tu_shift(step, 1));
    }
    TU_TRY(tu_graph_status(graph));
    return o->average > 0 ? tu__average_variables(graph, &s.guard, o->average) : TU_OK;
}

/* What is differentiated: the loss, or, with a loss scale, a multiple of it. */
static tu_status scale_loss(const tu__optimizer *optimizer, tu_value loss, tu__loss_scale *scale,
                            tu_value *scaled) {
    char *outer;
    *scale = tu__no_loss_scale(loss.graph);
    *scaled = loss;
    if (optimizer->options.loss_scale == 0) return TU_OK;
    TU_TRY(tu__enter_root(loss.graph, &outer));
    tu_scope(loss.graph, "optimizer") {
        *scale = tu__loss_scale_new(loss.graph, optimizer->options.loss_scale);
        *scaled = tu_mul(loss, tu_cast(scale->now, tu_value_dtype(loss)));
    }
    TU_TRY(tu__leave_root(loss.graph, outer));
    return tu_graph_status(loss.graph);
}

tu_status tu_add_optimizer_with(tu_value loss, tu_optimizer_values *values,
                                const tu_optimizer_options *options) {
    tu__optimizer optimizer;
    tu__gradients list;
    char *outer;
    if (values)
        *values =
            (tu_optimizer_values){tu__invalid(loss.graph), tu__invalid(loss.graph), tu__invalid(loss.graph)};
    if (!loss.graph) return tu_fail(TU_INVALID, "optimizer: the loss was never set");
    TU_TRY(tu_graph_status(loss.graph));
    TU_TRY(tu__optimizer_init(loss.graph, options, &optimizer));
    tu__loss_scale scale;
    tu_value scaled;
    TU_TRY(scale_loss(&optimizer, loss, &scale, &scaled));
    TU_TRY(tu__gradients_of(scaled, optimizer.options.freeze, &list));
    tu_status status = tu__enter_root(loss.graph, &outer);
    if (status == TU_OK) {
        status = tu__optimize(loss.graph, &optimizer, loss, &scale, &list, values);
        tu_status left = tu__leave_root(loss.graph, outer);
        if (status == TU_OK) status = left;
    }
    tu__gradients_free(&list);
    return status;
}
