/* Learning-rate schedules as expressions of the step.
 *
 * Every schedule has a warm-up of W steps, in which the learning rate grows linearly from rate / W to rate. Then it
 * is rate times a factor, which depends on the number t of steps since the warm-up and the number n of steps after
 * the warm-up:
 *
 *     constant      1
 *     step          factor ^ floor(t / every)
 *     exponential   factor ^ (t / every)
 *     cosine        end + (1 - end) * (1 + cos(pi * t / n)) / 2        Loshchilov & Hutter 2016
 *     one-cycle     1 - (1 - end) * t / n, with W = peak_at * steps    Smith 2018, linear up and down
 *
 * After the last step the rate is constant. The computation is in f64, because f32 cannot represent all integers
 * above 16,777,216. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <tutti/ops.h>
#include <tutti/train.h>

#include "base/choice.h"
#include "graph/graph.h"

/* Builds the factor from t, the steps since the warm-up (f64); `length` is n. */
typedef tu_value (*shape_function)(tu_value t, const tu_schedule_options *o, double length);

static tu_value constant(tu_value t, const tu_schedule_options *o, double length) {
    (void)o, (void)length;
    return tu_number(t, 1);
}

static tu_value power(tu_value exponent, const tu_schedule_options *o) {
    return tu_pow(tu_number(exponent, o->factor), exponent);
}

static tu_value exponential(tu_value t, const tu_schedule_options *o, double length) {
    (void)length;
    return power(tu_div(t, tu_number(t, (double)o->every)), o);
}

static tu_value step_decay(tu_value t, const tu_schedule_options *o, double length) {
    (void)length;
    return power(tu_floor(tu_div(t, tu_number(t, (double)o->every))), o);
}

/* t / n, at most 1. */
static tu_value progress(tu_value t, double length) {
    return tu_clip(tu_div(t, tu_number(t, length)), 0, 1);
}

static tu_value cosine(tu_value t, const tu_schedule_options *o, double length) {
    tu_value wave = tu_cos(tu_scale(progress(t, length), 3.14159265358979323846));
    return tu_shift(tu_scale(tu_shift(wave, 1), (1 - o->end) / 2), o->end);
}

static tu_value linear(tu_value t, const tu_schedule_options *o, double length) {
    return tu_shift(tu_scale(progress(t, length), o->end - 1), 1);
}

enum { NEEDS_EVERY = 1, NEEDS_STEPS = 2, HAS_PEAK = 4 };

static const struct schedule {
    const char *kind;
    shape_function shape;
    int traits;
} schedules[] = {
    {"constant", constant, 0},
    {"step", step_decay, NEEDS_EVERY},
    {"exponential", exponential, NEEDS_EVERY},
    {"cosine", cosine, NEEDS_STEPS},
    {"one-cycle", linear, NEEDS_STEPS | HAS_PEAK},
};
enum { SCHEDULE_COUNT = sizeof schedules / sizeof *schedules };

/* ---- Options ---- */

static const struct schedule *find_schedule(const char *kind) {
    const char *names[SCHEDULE_COUNT];
    if (!kind) return &schedules[0];
    for (int i = 0; i < SCHEDULE_COUNT; i++) {
        if (strcmp(schedules[i].kind, kind) == 0) return &schedules[i];
        names[i] = schedules[i].kind;
    }
    tu__fail_unknown_choice(TU_INVALID, "schedule", kind, SCHEDULE_COUNT, names);
    return NULL;
}

static tu_status fail_setting(const tu_schedule_options *o, const char *setting, double given,
                              const char *expected) {
    return tu_fail(TU_INVALID, "schedule '%s': %s is %g, expected %s", o->kind, setting, given, expected);
}

/* Fills in defaults and checks the options. */
static tu_status fill_and_check_options(const struct schedule *s, tu_schedule_options *o) {
    o->kind = s->kind;
    o->factor = tu__given_or(o->factor, 0.1);
    if (o->peak_at == 0) o->peak_at = 0.3;
    if (!(o->rate >= 0) || !isfinite(o->rate))
        return fail_setting(o, "rate", o->rate, "a finite number of at least 0");
    if (o->warmup < 0) return fail_setting(o, "warmup", (double)o->warmup, "a number of steps, at least 0");
    if (s->traits & NEEDS_EVERY && o->every < 1)
        return fail_setting(o, "every", (double)o->every,
                            "at least 1, the number of steps between two drops");
    if (s->traits & NEEDS_EVERY && !(o->factor >= 0 && isfinite(o->factor)))
        return fail_setting(o, "factor", o->factor, "a finite number of at least 0; TU_ZERO stands for 0");
    if (s->traits & NEEDS_STEPS && !(o->end >= 0 && o->end <= 1))
        return fail_setting(o, "end", o->end, "a fraction of the peak rate, 0 to 1");
    if (s->traits & HAS_PEAK) {
        if (o->warmup)
            return fail_setting(o, "warmup", (double)o->warmup,
                                "0, because .peak_at sets the length of the warm-up");
        if (!(o->peak_at > 0 && o->peak_at < 1))
            return fail_setting(o, "peak_at", o->peak_at, "a fraction of the steps, above 0 and below 1");
        o->warmup = (int64_t)floor(o->peak_at * (double)o->steps + 0.5);
    }
    if (s->traits & NEEDS_STEPS && o->steps <= o->warmup)
        return tu_fail(TU_INVALID,
                       "schedule '%s': .steps is %" PRId64 " with a warm-up of %" PRId64
                       ": expected the total number of steps of the run, more than the warm-up",
                       o->kind, o->steps, o->warmup);
    return TU_OK;
}

/* ---- The expression ---- */

static tu_value build_rate(tu_graph *graph, const struct schedule *s, const tu_schedule_options *o) {
    tu_value step = tu_cast(tu_step(graph), TU_F64);
    tu_value steps_after_warmup = tu_maximum(tu_shift(step, -(double)o->warmup), tu_number(step, 0));
    tu_value rate = tu_scale(s->shape(steps_after_warmup, o, (double)(o->steps - o->warmup)), o->rate);
    if (o->warmup) {
        tu_value warmup_rate = tu_scale(tu_shift(step, 1), o->rate / (double)o->warmup);
        rate = tu_select(tu_less(step, tu_number(step, (double)o->warmup)), warmup_rate, rate);
    }
    return tu_cast(rate, TU_F32);
}

tu_value tu_schedule_with(tu_graph *graph, const tu_schedule_options *options) {
    TU__OPTIONS(tu_schedule_options, o, options);
    if (!graph || tu_graph_status(graph) != TU_OK) return tu__invalid(graph);
    const struct schedule *s = find_schedule(o.kind);
    if (!s || fill_and_check_options(s, &o) != TU_OK)
        return tu__graph_fail(graph, TU_INVALID, "%s", tu_message());
    tu_value rate = tu__invalid(graph);
    tu_scope(graph, "schedule") rate = build_rate(graph, s, &o);
    return rate;
}
