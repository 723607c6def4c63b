/* Update rules agree with their papers and PyTorch: ten steps are compared with the same formulas in doubles. Weight
 * decay, groups, freezing, clipping and averages affect the right variables.
 *
 * The loss is sum(c w^2) / 2, whose gradient with respect to w is c w. */
#include "test.h"

#include <math.h>
#include <string.h>

#include <tutti/tutti.h>

#include "optim/optimizer.h"

enum { N = 6, B = 3, STEPS = 10 };
static const double curvature[N] = {0.3, -0.7, 1.1, 2.0, -1.3, 0.05};
static const double weights_at_start[N] = {1, -2, 0.5, 0.25, 3, -0.125};
static const double biases_at_start[B] = {0.5, -1, 2};

typedef struct trained {
    tu_graph *graph;
    tu_program *program;
    tu_state *state;
    tu_optimizer_values values;
    double w[N], b[B];
    float rate, norm;
    bool finite;
} trained;

#define OPTIMIZER(...)                                                                                       \
    (&(const tu_optimizer_options){.struct_size = sizeof(tu_optimizer_options), __VA_ARGS__})

/* Builds the loss of layer/w [2,3] and layer/b [3]. */
static tu_value build(tu_graph *g) {
    tu_value w = {0}, b = {0};
    tu_scope(g, "layer") {
        w = tu_variable(g, "w", TU_F64, TU_SHAPE(2, 3));
        b = tu_variable(g, "b", TU_F64, TU_SHAPE(B));
    }
    tu_value c = tu_constant(g, TU_F64, TU_SHAPE(2, 3), curvature);
    return tu_scale(tu_add(tu_sum(tu_mul(c, tu_square(w))), tu_sum(tu_square(b))), 0.5);
}

static void start_training(trained *t, const tu_optimizer_options *options) {
    assert_int_equal(tu_graph_new(&t->graph), TU_OK);
    t->values = TU_SIZED(tu_optimizer_values);
    if (tu_add_optimizer_with(build(t->graph), &t->values, options) != TU_OK) fail_msg("%s", tu_message());
    assert_int_equal(tu_graph_verify(t->graph), TU_OK);
    tu_value fetch[] = {t->values.rate, t->values.gradient_norm, t->values.finite};
    if (tu_compile(t->graph, &t->program, .fetch = fetch, .fetch_count = options->unguarded ? 2 : 3,
                   .updates = true) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(t->graph, &t->state), TU_OK);
    assert_int_equal(tu_state_set(t->state, "layer/w", weights_at_start, sizeof weights_at_start), TU_OK);
    assert_int_equal(tu_state_set(t->state, "layer/b", biases_at_start, sizeof biases_at_start), TU_OK);
}

static void run_step(trained *t) {
    if (tu_run(t->program, t->state, 0, NULL, (void *[]){&t->rate, &t->norm, &t->finite}) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_get(t->state, "layer/w", t->w, sizeof t->w), TU_OK);
    assert_int_equal(tu_state_get(t->state, "layer/b", t->b, sizeof t->b), TU_OK);
}

static void free_training(trained *t) {
    tu_state_free(t->state);
    tu_program_free(t->program);
    tu_graph_free(t->graph);
}

static void assert_near(const char *what, double got, double expected) {
    if (!(fabs(got - expected) <= 1e-12 * fmax(1, fabs(expected))))
        fail_msg("%s: %.17g, expected %.17g", what, got, expected);
}

/* ---- The rules, one element at a time ---- */

typedef struct formula {
    double velocity, mean, square; /* of one element */
    double ratio;                  /* lars */
} formula;

#define RATE 0.03
#define DECAY 0.02

static double sgd(formula *f, double w, double g, int t) {
    (void)f, (void)t;
    return w - RATE * (g + DECAY * w);
}

static double momentum(formula *f, double w, double g, int t) {
    (void)t;
    f->velocity = 0.8 * f->velocity + g + DECAY * w;
    return w - RATE * f->velocity;
}

static double nesterov(formula *f, double w, double g, int t) {
    (void)t;
    g += DECAY * w;
    f->velocity = 0.8 * f->velocity + g;
    return w - RATE * (g + 0.8 * f->velocity);
}

static double rmsprop(formula *f, double w, double g, int t) {
    (void)t;
    g += DECAY * w;
    f->square = 0.9 * f->square + 0.1 * g * g;
    return w - RATE * g / (sqrt(f->square) + 1e-8);
}

static double rmsprop_with_momentum(formula *f, double w, double g, int t) {
    (void)t;
    g += DECAY * w;
    f->square = 0.7 * f->square + 0.3 * g * g;
    f->velocity = 0.8 * f->velocity + g / (sqrt(f->square) + 1e-3);
    return w - RATE * f->velocity;
}

static double adam(formula *f, double w, double g, int t) {
    g += DECAY * w;
    f->mean = 0.9 * f->mean + 0.1 * g;
    f->square = 0.999 * f->square + 0.001 * g * g;
    return w - RATE * (f->mean / (1 - pow(0.9, t))) / (sqrt(f->square / (1 - pow(0.999, t))) + 1e-8);
}

static double adamw(formula *f, double w, double g, int t) {
    f->mean = 0.8 * f->mean + 0.2 * g;
    f->square = 0.95 * f->square + 0.05 * g * g;
    double moved = (f->mean / (1 - pow(0.8, t))) / (sqrt(f->square / (1 - pow(0.95, t))) + 1e-4);
    return w - RATE * DECAY * w - RATE * moved;
}

static double lars(formula *f, double w, double g, int t) {
    (void)t;
    f->velocity = 0.9 * f->velocity + RATE * f->ratio * (g + DECAY * w);
    return w - f->velocity;
}

static double ratio_of(const double *w, double trust) {
    double ww = 0, gg = 0;
    for (int i = 0; i < N; i++) {
        ww += w[i] * w[i];
        gg += curvature[i] * w[i] * curvature[i] * w[i];
    }
    return trust * sqrt(ww) / (sqrt(gg) + DECAY * sqrt(ww));
}

static void assert_rule(const tu_optimizer_options *options, double (*next)(formula *, double, double, int)) {
    trained t;
    formula f[N] = {{0}};
    double w[N];
    memcpy(w, weights_at_start, sizeof w);
    start_training(&t, options);
    for (int s = 1; s <= STEPS; s++) {
        double norm = 0, ratio = ratio_of(w, options->trust);
        for (int i = 0; i < N; i++) norm += pow(curvature[i] * w[i], 2);
        if (s == 1)
            for (int i = 0; i < B; i++) norm += biases_at_start[i] * biases_at_start[i];
        for (int i = 0; i < N; i++) {
            f[i].ratio = ratio;
            w[i] = next(&f[i], w[i], curvature[i] * w[i], s);
        }
        run_step(&t);
        for (int i = 0; i < N; i++) assert_near(options->name, t.w[i], w[i]);
        if (s == 1) assert_true(fabs((double)t.norm - sqrt(norm)) < 1e-6);
        assert_true(t.finite && t.rate == (float)RATE);
    }
    int64_t steps;
    assert_int_equal(tu_state_get(t.state, "step", &steps, sizeof steps), TU_OK);
    assert_int_equal(steps, STEPS);
    free_training(&t);
}

static void rules_follow_their_formulas(void **state) {
    (void)state;
    assert_rule(OPTIMIZER(.name = "sgd", .constant_rate = RATE, .weight_decay = DECAY), sgd);
    assert_rule(OPTIMIZER(.name = "momentum", .constant_rate = RATE, .weight_decay = DECAY, .momentum = 0.8),
                momentum);
    assert_rule(OPTIMIZER(.name = "nesterov", .constant_rate = RATE, .weight_decay = DECAY, .momentum = 0.8),
                nesterov);
    assert_rule(OPTIMIZER(.name = "rmsprop", .constant_rate = RATE, .weight_decay = DECAY), rmsprop);
    assert_rule(OPTIMIZER(.name = "rmsprop", .constant_rate = RATE, .weight_decay = DECAY, .momentum = 0.8,
                          .beta2 = 0.7, .epsilon = 1e-3),
                rmsprop_with_momentum);
    assert_rule(OPTIMIZER(.name = "adam", .constant_rate = RATE, .weight_decay = DECAY), adam);
    assert_rule(OPTIMIZER(.name = "adamw", .constant_rate = RATE, .weight_decay = DECAY, .beta1 = 0.8,
                          .beta2 = 0.95, .epsilon = 1e-4),
                adamw);
    assert_rule(OPTIMIZER(.name = "lars", .constant_rate = RATE, .weight_decay = DECAY, .trust = 0.5), lars);
}

/* Zero means the default, so TU_ZERO stands for zero; other negative numbers are rejected. */
static void TU_ZERO_means_zero(void **state) {
    (void)state;
    tu_graph *g;
    tu__optimizer optimizer;
    static const tu_optimizer_group still = {.pattern = "*", .rate_factor = TU_ZERO};
    assert_int_equal(tu_graph_new(&g), TU_OK);
    assert_int_equal(tu__optimizer_init(g,
                                        OPTIMIZER(.name = "adam", .constant_rate = RATE, .beta1 = TU_ZERO,
                                                  .beta2 = TU_ZERO, .epsilon = TU_ZERO, .momentum = TU_ZERO,
                                                  .groups = &still, .group_count = 1),
                                        &optimizer),
                     TU_OK);
    const tu_optimizer_options *o = &optimizer.options;
    assert_true(o->beta1 == 0 && o->beta2 == 0 && o->epsilon == 0 && o->momentum == 0);
    assert_int_equal(tu__optimizer_init(g, OPTIMIZER(.name = "adam", .constant_rate = RATE), &optimizer),
                     TU_OK);
    assert_true(o->beta1 == 0.9 && o->beta2 == 0.999 && o->epsilon == 1e-8);
    assert_int_equal(tu__optimizer_init(g, OPTIMIZER(.constant_rate = RATE, .momentum = -0.5), &optimizer),
                     TU_INVALID);
    tu_graph_free(g);
}

static void a_momentum_of_TU_ZERO_is_none(void **state) {
    (void)state;
    assert_rule(
        OPTIMIZER(.name = "momentum", .constant_rate = RATE, .weight_decay = DECAY, .momentum = TU_ZERO),
        sgd);
    assert_rule(
        OPTIMIZER(.name = "nesterov", .constant_rate = RATE, .weight_decay = DECAY, .momentum = TU_ZERO),
        sgd);
    assert_rule(
        OPTIMIZER(.name = "rmsprop", .constant_rate = RATE, .weight_decay = DECAY, .momentum = TU_ZERO),
        rmsprop);
}

/* LARS updates a bias without weight decay and without the trust ratio; weights of zero have no ratio either. */
static void lars_updates_biases_without_the_trust_ratio(void **state) {
    (void)state;
    trained t;
    start_training(&t, OPTIMIZER(.name = "lars", .constant_rate = 0.1, .weight_decay = 1));
    run_step(&t);
    for (int i = 0; i < B; i++) assert_near("bias", t.b[i], 0.9 * biases_at_start[i]);
    free_training(&t);
}

/* ---- Weight decay and groups ---- */

/* Checks the weight decay of each variable after one SGD step with rate 0.5. */
static void assert_decays(const tu_optimizer_options *options, double of_w, double of_b, double rate_b) {
    trained t;
    start_training(&t, options);
    run_step(&t);
    for (int i = 0; i < N; i++)
        assert_near("w", t.w[i], weights_at_start[i] * (1 - 0.5 * (curvature[i] + of_w)));
    for (int i = 0; i < B; i++) assert_near("b", t.b[i], biases_at_start[i] * (1 - rate_b * (1 + of_b)));
    free_training(&t);
}

static void groups_match_variables_by_name(void **state) {
    (void)state;
    static const tu_optimizer_group bias[] = {{.pattern = "*/b", .weight_decay = 0.3, .rate_factor = 0.1}};
    static const tu_optimizer_group first[] = {{.pattern = "layer/*", .weight_decay = 0}, {"*/w", 9, 9}};
    assert_decays(OPTIMIZER(.name = "sgd", .constant_rate = 0.5), 0, 0, 0.5);
    assert_decays(OPTIMIZER(.name = "sgd", .constant_rate = 0.5, .weight_decay = 0.25), 0.25, 0, 0.5);
    assert_decays(OPTIMIZER(.name = "sgd", .constant_rate = 0.5, .weight_decay = 0.25, .groups = bias,
                            .group_count = 1),
                  0.25, 0.3, 0.05);
    assert_decays(OPTIMIZER(.name = "sgd", .constant_rate = 0.5, .weight_decay = 0.25, .groups = first,
                            .group_count = 2),
                  0, 0, 0.5);
}

static void frozen_variables_do_not_change(void **state) {
    (void)state;
    trained t;
    start_training(&t, OPTIMIZER(.constant_rate = 0.5, .freeze = "*/b"));
    run_step(&t);
    assert_memory_equal(t.b, biases_at_start, sizeof t.b);
    assert_true(t.w[0] != weights_at_start[0]);
    double none;
    assert_int_equal(tu_state_get(t.state, "optimizer/velocity/layer/b", &none, sizeof none), TU_NOT_FOUND);
    free_training(&t);
}

/* ---- Clipping ---- */

static void gradients_are_clipped_by_their_global_norm(void **state) {
    (void)state;
    double squares = 0;
    for (int i = 0; i < N; i++) squares += pow(curvature[i] * weights_at_start[i], 2);
    for (int i = 0; i < B; i++) squares += pow(biases_at_start[i], 2);
    double norm = sqrt(squares);
    static const double limits[] = {0.5, 100};
    for (int k = 0; k < 2; k++) {
        trained t;
        double factor = fmin(1, limits[k] / (norm + 1e-6));
        start_training(&t, OPTIMIZER(.name = "sgd", .constant_rate = 0.5, .clip_norm = limits[k]));
        run_step(&t);
        for (int i = 0; i < N; i++)
            assert_near("w", t.w[i], weights_at_start[i] * (1 - 0.5 * factor * curvature[i]));
        for (int i = 0; i < B; i++) assert_near("b", t.b[i], biases_at_start[i] * (1 - 0.5 * factor));
        assert_true(fabs((double)t.norm - norm) < 1e-6); /* before clipping */
        free_training(&t);
    }
}

/* ---- Averages ---- */

static void averages_start_at_the_variables_and_follow_them(void **state) {
    (void)state;
    trained t;
    double average[N], got[N];
    memcpy(average, weights_at_start, sizeof average);
    start_training(&t, OPTIMIZER(.constant_rate = 0.1, .average = 0.4));
    for (int s = 0; s < STEPS; s++) {
        double decay = fmin(0.4, (1.0 + s) / (10.0 + s));
        run_step(&t);
        assert_int_equal(tu_state_get(t.state, "average/layer/w", got, sizeof got), TU_OK);
        for (int i = 0; i < N; i++) {
            average[i] = decay * average[i] + (1 - decay) * t.w[i];
            assert_near("average", got[i], average[i]);
        }
    }
    free_training(&t);
}

/* ---- Invalid options ---- */

static void assert_optimizer_fails(const tu_optimizer_options *options, tu_status status, const char *part) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    assert_int_equal(tu_add_optimizer_with(build(g), NULL, options), status);
    if (!strstr(tu_message(), part)) fail_msg("\"%s\" does not contain \"%s\"", tu_message(), part);
    assert_int_equal(tu_graph_status(g), TU_OK); /* the graph is unchanged */
    tu_graph_free(g);
}

static void invalid_options_are_rejected(void **state) {
    (void)state;
    static const tu_optimizer_group without_pattern = {.weight_decay = 1},
                                    negative = {.pattern = "*", .weight_decay = -1};
    assert_optimizer_fails(
        OPTIMIZER(.name = "adams", .constant_rate = 1), TU_INVALID,
        "optimizer 'adams': expected sgd, momentum, nesterov, rmsprop, adam, adamw or lars; did you mean 'adam'?");
    assert_optimizer_fails(OPTIMIZER(.name = "adam"), TU_INVALID,
                           "optimizer 'adam': the learning rate is missing: set .rate or .constant_rate");
    assert_optimizer_fails(OPTIMIZER(.constant_rate = -1), TU_INVALID,
                           "optimizer 'momentum': rate is -1, expected");
    assert_optimizer_fails(OPTIMIZER(.constant_rate = 1, .momentum = 1), TU_INVALID,
                           "momentum is 1, expected a number in [0, 1)");
    assert_optimizer_fails(OPTIMIZER(.constant_rate = 1, .beta1 = -0.1), TU_INVALID, "beta1 is -0.1");
    assert_optimizer_fails(OPTIMIZER(.constant_rate = 1, .beta2 = 1), TU_INVALID, "beta2 is 1");
    assert_optimizer_fails(OPTIMIZER(.constant_rate = 1, .average = 1), TU_INVALID, "average is 1");
    assert_optimizer_fails(OPTIMIZER(.constant_rate = 1, .epsilon = -2), TU_INVALID, "epsilon is -2");
    assert_optimizer_fails(OPTIMIZER(.constant_rate = 1, .clip_norm = INFINITY), TU_INVALID,
                           "clip_norm is inf");
    assert_optimizer_fails(OPTIMIZER(.constant_rate = 1, .weight_decay = -1), TU_INVALID,
                           "weight_decay is -1");
    assert_optimizer_fails(OPTIMIZER(.constant_rate = 1, .trust = -1), TU_INVALID, "trust is -1");
    assert_optimizer_fails(OPTIMIZER(.constant_rate = 1, .groups = &without_pattern, .group_count = 1),
                           TU_INVALID, "has no .pattern");
    assert_optimizer_fails(OPTIMIZER(.constant_rate = 1, .groups = &negative, .group_count = 1), TU_INVALID,
                           "a group's weight_decay is -1");
    assert_optimizer_fails(
        OPTIMIZER(.constant_rate = 1, .freeze = "conv*"), TU_NOT_FOUND,
        "freeze 'conv*' matches no variable of the network: expected names like 'layer/w'");
    assert_optimizer_fails(OPTIMIZER(.constant_rate = 1, .freeze = "*"), TU_INVALID,
                           "freeze '*' leaves no variable to train");
}

static void the_learning_rate_must_be_a_scalar_of_the_graph(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value loss = build(g), x = tu_input(g, "x", TU_F32, TU_SHAPE(2));
    assert_int_equal(tu_add_optimizer(loss, NULL, .rate = x), TU_INVALID);
    assert_non_null(
        strstr(tu_message(), "the learning rate 'x' is f32[2], expected a floating-point scalar"));
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_follow_their_formulas),
        cmocka_unit_test(a_momentum_of_TU_ZERO_is_none),
        cmocka_unit_test(TU_ZERO_means_zero),
        cmocka_unit_test(lars_updates_biases_without_the_trust_ratio),
        cmocka_unit_test(groups_match_variables_by_name),
        cmocka_unit_test(frozen_variables_do_not_change),
        cmocka_unit_test(gradients_are_clipped_by_their_global_norm),
        cmocka_unit_test(averages_start_at_the_variables_and_follow_them),
        cmocka_unit_test(invalid_options_are_rejected),
        cmocka_unit_test(the_learning_rate_must_be_a_scalar_of_the_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
