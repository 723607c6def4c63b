/* Compares gradients with central differences. */
#include "ops/check_gradients.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "graph/graph.h"

typedef struct checker {
    gradient_check *check;
    tu_state *state;
    size_t wrt_count;
    size_t *wrt;    /* indices of the differentiable inputs */
    tu_feed *feeds; /* all inputs except variables */
    void **typed;   /* per input: its elements, converted to its dtype */
    size_t feed_count;
} checker;

static double random_unit(uint64_t *state) {
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-52 - 1;
}

/* Stores the first failure in the message and returns false. */
static bool record_failure(checker *c, const char *what) {
    if (!c->check->message[0])
        snprintf(c->check->message, sizeof c->check->message, "%s: %s", what, tu_message());
    return false;
}

static int64_t elements_of(tu_value value) {
    return tu_shape_elements(tu_value_shape(value));
}

/* Returns the sum of <value, random weights> over the f64 values. */
static tu_value weighted_sum(checker *c, size_t count, const tu_value *values) {
    tu_value total = {0};
    for (size_t i = 0; i < count; i++) {
        tu_type type = tu_value_type(values[i]);
        if (!tu_ok(values[i]) || type.dtype != TU_F64) continue;
        int64_t n = tu_shape_elements(type.shape);
        double *weights = malloc((size_t)n * sizeof *weights);
        for (int64_t k = 0; k < n; k++) weights[k] = random_unit(&c->check->seed);
        tu_value term = tu_sum(tu_mul(values[i], tu_constant(c->check->graph, TU_F64, type.shape, weights)));
        total = total.graph ? tu_add(total, term) : term;
        free(weights);
    }
    return total;
}

static bool is_variable(tu_value value) {
    return tu__node_of(value)->op->code == TU__OP_VARIABLE;
}

/* Copies the inputs' elements into the feeds and, for variables, into the state. */
static void load_inputs(checker *c) {
    size_t feed = 0;
    for (size_t i = 0; i < c->check->input_count; i++) {
        tu_value value = c->check->inputs[i];
        tu_type type = tu_value_type(value);
        if (is_variable(value)) {
            tu_state_set(c->state, tu_value_name(value), c->check->data[i], tu_type_bytes(type));
            continue;
        }
        tu__store_array(type.dtype, c->check->data[i], tu_shape_elements(type.shape), c->typed[i]);
        c->feeds[feed++] = (tu_feed){value, c->typed[i]};
    }
    c->feed_count = feed;
}

static double run_scalar(checker *c, tu_program *program) {
    double value = NAN;
    load_inputs(c);
    if (tu_run(program, c->state, c->feed_count, c->feeds, (void *[]){&value}) != TU_OK) {
        record_failure(c, "run");
        return NAN;
    }
    return value;
}

/* Returns the scalar with the input shifted by `distance` along `direction`; restores the input. */
static double run_shifted(checker *c, tu_program *program, size_t input, const double *direction,
                          double distance) {
    int64_t n = elements_of(c->check->inputs[input]);
    double *data = c->check->data[input], *saved = malloc((size_t)n * sizeof *saved);
    memcpy(saved, data, (size_t)n * sizeof *saved);
    for (int64_t i = 0; i < n; i++) data[i] += distance * direction[i];
    double value = run_scalar(c, program);
    memcpy(data, saved, (size_t)n * sizeof *saved);
    free(saved);
    return value;
}

/* Returns the derivative along `direction` by the five-point formula, whose error is of fourth order in the step. */
static double numeric_derivative(checker *c, tu_program *program, size_t input, const double *direction,
                                 double *size) {
    double h = c->check->step > 0 ? c->check->step : 1e-3;
    double a = run_shifted(c, program, input, direction, -2 * h),
           b = run_shifted(c, program, input, direction, -h);
    double d = run_shifted(c, program, input, direction, h),
           e = run_shifted(c, program, input, direction, 2 * h);
    *size = fmax(fabs(b), fabs(d));
    return ((a - e) + 8 * (d - b)) / (12 * h);
}

/* Compares the derivative along a direction with <gradient, direction>. */
static bool derivative_agrees(checker *c, tu_program *program, size_t input, const double *gradient,
                              const double *direction, double scale, const char *order, int64_t element) {
    int64_t n = elements_of(c->check->inputs[input]);
    double exact = 0, size;
    for (int64_t i = 0; i < n; i++) exact += gradient[i] * direction[i];
    double numeric = numeric_derivative(c, program, input, direction, &size);
    double tolerance = c->check->tolerance > 0 ? c->check->tolerance : 1e-6;
    double error = fabs(exact - numeric), bound = fmax(scale, fmax(fabs(exact), fabs(numeric)));
    /* Rounding error of differences between values of this magnitude, independent of the gradient. */
    double noise = 1e-11 * (1 + size);
    if (bound > 1e-3 && error / bound > c->check->max_error) c->check->max_error = error / bound;
    if (error <= tolerance * bound + noise) return true; /* NaN fails */
    if (!c->check->message[0])
        snprintf(c->check->message, sizeof c->check->message,
                 "%s gradient with respect to '%s', %s %lld: %.12g, expected %.12g by central differences",
                 order, tu_value_name(c->check->inputs[input]), element < 0 ? "along a direction" : "element",
                 (long long)element, exact, numeric);
    return false;
}

static bool check_input(checker *c, tu_program *program, size_t input, const double *gradient,
                        const char *order) {
    int64_t n = elements_of(c->check->inputs[input]),
            max_elements = c->check->elements ? c->check->elements : 40;
    double *direction = calloc((size_t)n, sizeof *direction), scale = 0;
    bool ok = true;
    for (int64_t i = 0; i < n; i++) scale = fmax(scale, fabs(gradient[i]));
    for (int64_t k = 0; ok && k < (n < max_elements ? n : max_elements); k++) {
        int64_t i = n <= max_elements ? k : (int64_t)((random_unit(&c->check->seed) + 1) / 2 * (double)n) % n;
        direction[i] = 1;
        ok = derivative_agrees(c, program, input, gradient, direction, scale, order, i);
        direction[i] = 0;
    }
    for (int64_t i = 0; i < n; i++) direction[i] = random_unit(&c->check->seed);
    ok = ok && derivative_agrees(c, program, input, gradient, direction, scale, order, -1);
    free(direction);
    return ok;
}

/* Checks `gradients`, those of `scalar` with respect to all differentiable inputs. */
static bool check_scalar(checker *c, tu_value scalar, const tu_value *gradients, const char *order) {
    tu_program *value_program = NULL, *gradient_program = NULL;
    void **fetched = calloc(c->wrt_count, sizeof *fetched);
    for (size_t i = 0; i < c->wrt_count; i++)
        fetched[i] = calloc((size_t)elements_of(c->check->inputs[c->wrt[i]]), sizeof(double));
    bool ok = (tu_compile(c->check->graph, &value_program, .devices = "ref", .fetch = &scalar,
                          .fetch_count = 1, .no_updates = true) == TU_OK &&
               tu_compile(c->check->graph, &gradient_program, .devices = "ref", .fetch = gradients,
                          .fetch_count = c->wrt_count, .no_updates = true) == TU_OK) ||
              record_failure(c, "compile");
    if (ok) {
        load_inputs(c);
        ok = tu_run(gradient_program, c->state, c->feed_count, c->feeds, fetched) == TU_OK ||
             record_failure(c, "run");
    }
    for (size_t i = 0; ok && i < c->wrt_count; i++)
        ok = check_input(c, value_program, c->wrt[i], fetched[i], order);
    for (size_t i = 0; i < c->wrt_count; i++) free(fetched[i]);
    free(fetched);
    tu_program_free(value_program);
    tu_program_free(gradient_program);
    return ok;
}

static bool check_orders(checker *c) {
    gradient_check *check = c->check;
    tu_value *wrt = calloc(c->wrt_count, sizeof *wrt), *first = calloc(c->wrt_count, sizeof *first),
             *second = calloc(c->wrt_count, sizeof *second);
    for (size_t i = 0; i < c->wrt_count; i++) wrt[i] = check->inputs[c->wrt[i]];
    tu_value s = weighted_sum(c, check->output_count, check->outputs), t = {0};
    bool ok = tu_gradients(s, c->wrt_count, wrt, first) == TU_OK || record_failure(c, "gradients");
    if (ok && check->order > 1) {
        t = weighted_sum(c, c->wrt_count, first);
        ok = tu_gradients(t, c->wrt_count, wrt, second) == TU_OK || record_failure(c, "second gradients");
    }
    ok = ok && (tu_graph_verify(check->graph) == TU_OK || record_failure(c, "verify"));
    ok = ok && (tu_state_new(check->graph, &c->state, .seed = 7) == TU_OK || record_failure(c, "state"));
    ok = ok && check_scalar(c, s, first, "first");
    if (ok && check->order > 1) ok = check_scalar(c, t, second, "second");
    free(wrt);
    free(first);
    free(second);
    return ok;
}

bool gradients_agree(gradient_check *check) {
    checker c = {.check = check};
    size_t n = check->input_count;
    c.wrt = calloc(n + 1, sizeof *c.wrt);
    c.feeds = calloc(n + 1, sizeof *c.feeds);
    c.typed = calloc(n + 1, sizeof *c.typed);
    for (size_t i = 0; i < n; i++) {
        c.typed[i] = calloc(1, tu_type_bytes(tu_value_type(check->inputs[i])));
        if (check->differentiable[i]) c.wrt[c.wrt_count++] = i;
    }
    bool ok = check_orders(&c);
    for (size_t i = 0; i < n; i++) free(c.typed[i]);
    free(c.typed);
    free(c.feeds);
    free(c.wrt);
    tu_state_free(c.state);
    return ok;
}
