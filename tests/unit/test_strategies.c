/* Strategies: training on several devices goes where training on one goes.
 *
 *     test_strategies [DEVICE]     the device whose parts are shown in f32: cpu:0, or a card
 *
 * The reference device in f64 shows the mathematics: what is left are roundings of sums in another order. DEVICE in f32 shows
 * its kernels. A batch that does not divide, draws that belong to samples, statistics of batch-norm and uneven parts all
 * are part of the networks here. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/alloc.h"
#include "base/number.h"

enum { BATCH = 10, MAX_VARIABLES = 1 << 18 };

static const char *device = "cpu:0";

/* "cpu:0/4" */
static const char *in_parts(int parts) {
    static char names[9][24];
    snprintf(names[parts], sizeof names[parts], "%s/%d", device, parts);
    return names[parts];
}

static void assert_ok(tu_status status) {
    if (status != TU_OK) fail_msg("%s", tu_message());
}

/* How a network is trained, and what it comes to. */
typedef struct training {
    const char *network, *devices, *strategy, *central;
    tu_dtype dtype;
    int invariant, steps;
    double *variables; /* all of the state, one behind the other */
    size_t count;
    double first_loss, loss;
} training;

static void read_variables(tu_state *state, training *t) {
    t->variables = calloc(MAX_VARIABLES, sizeof *t->variables);
    unsigned char *data = calloc(MAX_VARIABLES, 8);
    assert_true(t->variables && data);
    for (size_t i = 0; i < tu_state_count(state); i++) {
        const char *name;
        tu_type type;
        assert_ok(tu_state_variable(state, i, &name, &type));
        size_t count = (size_t)tu_shape_elements(type.shape);
        assert_true(t->count + count <= MAX_VARIABLES);
        assert_ok(tu_state_get(state, name, data, tu_type_bytes(type)));
        tu__load_array(type.dtype, data, (int64_t)count, t->variables + t->count);
        t->count += count;
    }
    free(data);
}

/* The network behind flips and noise that are drawn for each sample, with a momentum step. */
static tu_value build(const training *t, tu_graph *g, tu_value *images, tu_value *labels) {
    int64_t side = strcmp(t->network, "tutorial-cnn") == 0 ? 12 : 8;
    int64_t channels = strcmp(t->network, "mlp") == 0 ? 1 : 3;
    *images = tu_batch_input(g, "images", t->dtype, TU_SHAPE(BATCH, side, side, channels));
    *labels = tu_batch_input(g, "labels", TU_I32, TU_SHAPE(BATCH));
    tu_value logits, x = tu_random_brightness(tu_random_flip(*images), 0.1);
    assert_ok(tu_model_logits(x, t->network, &logits, .classes = 10, .base = 4));
    tu_value loss = tu_mean(tu_cross_entropy(tu_dropout(logits, 0.1), *labels, .smoothing = 0.1));
    tu_optimizer_values values;
    assert_ok(
        tu_add_optimizer(loss, &values, .name = "momentum", .constant_rate = 0.05, .weight_decay = 1e-3));
    return loss;
}

static void feed(const training *t, int step, size_t count, unsigned char *images, int32_t *labels) {
    uint64_t random = (uint64_t)step + 1;
    for (size_t i = 0; i < count; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double wide = (double)(random >> 11) * 0x1p-53;
        float narrow = (float)wide;
        if (t->dtype == TU_F64)
            memcpy(images + 8 * i, &wide, 8);
        else
            memcpy(images + 4 * i, &narrow, 4);
    }
    for (int i = 0; i < BATCH; i++) labels[i] = (step * 3 + i * i) % 10;
}

static void train(training *t) {
    tu_graph *g;
    tu_program *program;
    tu_state *state;
    tu_value images, labels;
    unsigned char *data = calloc(BATCH * 24 * 24 * 3, 8);
    int32_t classes[BATCH];
    assert_ok(tu_graph_new(&g));
    tu_value loss = build(t, g, &images, &labels);
    assert_ok(tu_compile(g, &program, .devices = t->devices, .strategy = t->strategy, .central = t->central,
                         .invariant = t->invariant, .fetch = &loss, .fetch_count = 1, .updates = true,
                         .threads = 1, .timeout = 60));
    assert_ok(tu_state_new(g, &state, .seed = 11));
    double fetched = 0;
    for (int step = 0; step < t->steps; step++) {
        feed(t, step, (size_t)tu_shape_elements(tu_value_shape(images)), data, classes);
        assert_ok(
            tu_run(program, state, 2, (tu_feed[]){{images, data}, {labels, classes}}, (void *[]){&fetched}));
        tu__load_array(t->dtype, &fetched, 1, &t->loss);
        if (step == 0) t->first_loss = t->loss;
    }
    assert_true(fabs(t->loss - t->first_loss) > 1e-4); /* it has moved */
    read_variables(state, t);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
    free(data);
}

/* The largest difference between two trainings' variables. */
static double apart(const training *a, const training *b) {
    double most = fabs(a->loss - b->loss);
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        assert_true(isfinite(a->variables[i]));
        most = fmax(most, fabs(a->variables[i] - b->variables[i]));
    }
    return most;
}

static void assert_same_training(training one, training many, double tolerance) {
    train(&one);
    train(&many);
    double most = apart(&one, &many);
    print_message("%s, %s on %s: %.1e from one device after %d steps\n", many.network, many.strategy,
                  many.devices, most, many.steps);
    if (!(most <= tolerance))
        fail_msg("%s, %s on %s: %g from one device after %d steps, at most %g expected", many.network,
                 many.strategy, many.devices, most, many.steps, tolerance);
    free(one.variables);
    free(many.variables);
}

/* On `devices`, by a strategy, against one device alone. */
static void assert_goes_along(training one, const char *devices, const char *strategy, const char *central,
                              double tolerance) {
    training many = one;
    many.devices = devices;
    many.strategy = strategy;
    many.central = central;
    assert_same_training(one, many, tolerance);
}

static void strategies_are_one_mathematics(void **state) {
    (void)state;
    static const char *const networks[] = {"mlp", "tutorial-cnn", "resnet20"};
    for (int i = 0; i < 3; i++) {
        training one = {.network = networks[i], .devices = "ref", .dtype = TU_F64, .steps = 50};
        assert_goes_along(one, "ref:0/2", "mirrored", NULL, 1e-9);
        assert_goes_along(one, "ref:0/2", "central", NULL, 1e-9);
    }
}

/* Ten samples on four devices: three, three, two and two. */
static void parts_may_be_uneven(void **state) {
    (void)state;
    training one = {.network = "resnet20", .devices = "ref", .dtype = TU_F64, .steps = 8};
    assert_goes_along(one, "ref:0/4", "mirrored", NULL, 1e-11);
    assert_goes_along(one, "ref:0/3", "central", NULL, 1e-11);
}

static void a_device_apart_holds_the_variables(void **state) {
    (void)state;
    training one = {.network = "tutorial-cnn", .devices = "ref", .dtype = TU_F64, .steps = 8};
    assert_goes_along(one, "ref:0/2", "central", "cpu:0", 1e-11);
}

static void a_device_goes_along_in_f32(void **state) {
    (void)state;
    static const char *const networks[] = {"mlp", "tutorial-cnn", "resnet20"};
    for (int i = 0; i < 3; i++) {
        training one = {.network = networks[i], .devices = device, .steps = 5};
        assert_goes_along(one, in_parts(2), "mirrored", NULL, 2e-4);
        assert_goes_along(one, in_parts(2), "central", NULL, 2e-4);
    }
}

/* ---- The same bits ---- */

static void assert_same_bits(const char *network, const char *strategy) {
    training one = {0};
    for (int parts = 1; parts <= 8; parts *= 2) {
        training t = {.network = network,
                      .devices = in_parts(parts),
                      .strategy = parts > 1 ? strategy : NULL,
                      .invariant = 8,
                      .steps = 6};
        train(&t);
        if (parts > 1 && apart(&one, &t) != 0)
            fail_msg("%s %s on %s: other bits than on one device", network, strategy, t.devices);
        if (parts > 1)
            free(t.variables);
        else
            one = t;
    }
    free(one.variables);
}

static void invariant_bits_do_not_depend_on_devices(void **state) {
    (void)state;
    assert_same_bits("tutorial-cnn", "mirrored");
    assert_same_bits("resnet20", "mirrored");
    assert_same_bits("resnet20", "central");
}

/* ---- Options that do not fit ---- */

static void options_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const struct {
        tu_compile_options options;
        tu_status status;
        const char *says;
    } bad[] = {
        {{.devices = "ref:0/2", .strategy = "vertical"},
         TU_INVALID,
         "strategy 'vertical': expected single, central or mirrored"},
        {{.devices = "ref:0/2", .strategy = "mirrored", .central = "cpu:0"},
         TU_INVALID,
         "central device 'cpu:0' with strategy 'mirrored': expected strategy 'central'"},
        {{.devices = "ref:0/2", .central = "cpu:0"},
         TU_INVALID,
         "central device 'cpu:0' with strategy 'single'"},
        {{.devices = "ref:0/2", .invariant = 2},
         TU_INVALID,
         "invariant 2 on 2 devices with strategy 'single'"},
        {{.devices = "ref:0/2", .strategy = "mirrored", .invariant = 3},
         TU_INVALID,
         "invariant 3 on 2 devices"},
        {{.devices = "cpu:0", .invariant = 2, .threads = 2},
         TU_INVALID,
         "invariant 2 with 2 threads a device"},
        {{.devices = "ref:0/2", .strategy = "central", .central = "abacus"},
         TU_NOT_FOUND,
         "there is no device 'abacus'"},
        {{.devices = "ref:0/2", .strategy = "central", .central = "cpu:0/2"},
         TU_INVALID,
         "'cpu:0/2' is 2 devices: expected the name of one"},
        {{.devices = "ref:0,cpu:0", .strategy = "mirrored", .invariant = 2},
         TU_INVALID,
         "invariant 2 on 'ref:0' and 'cpu:0': expected devices of one kind"},
        {{.devices = "ref:0/3", .strategy = "mirrored"},
         TU_INVALID,
         "a batch of 2 cannot be divided into 3 shards"},
        {{.devices = "ref:0/2", .strategy = "mirrored", .place = "tanh=ref:0.1"},
         TU_INVALID,
         "cannot be combined with placement patterns"},
    };
    tu_graph *g;
    assert_ok(tu_graph_new(&g));
    tu_value y = tu_tanh(tu_batch_input(g, "x", TU_F32, TU_SHAPE(2, 3)));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tu_program *program;
        tu_compile_options options = bad[i].options;
        options.struct_size = sizeof options;
        options.fetch = &y;
        options.fetch_count = 1;
        int64_t live = tu__alloc_live();
        if (tu_compile_with(g, &program, &options) != bad[i].status)
            fail_msg("\"%s\" was expected", bad[i].says);
        if (!strstr(tu_message(), bad[i].says))
            fail_msg("\"%s\" does not say \"%s\"", tu_message(), bad[i].says);
        assert_int_equal(tu__alloc_live(), live);
        assert_null(program);
    }
    tu_graph_free(g);
}

/* A central device is a replica too only where the list has it. */
static void the_central_device_is_the_first_on_the_host(void **state) {
    (void)state;
    static const struct {
        const char *devices, *central, *expected;
    } lists[] = {
        {"ref:0/2", NULL, "ref:0.0"}, {"ref:0/2", "ref:0.1", "ref:0.1"}, {"ref:0/2", "cpu", "cpu:0"}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        tu_graph *g, *after;
        assert_ok(tu_graph_new(&g));
        tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(4, 3)),
                 w = tu_variable(g, "w", TU_F32, TU_SHAPE(3, 3));
        tu_output(tu_matmul(x, w), "y");
        assert_ok(tu_graph_after(g, &after, .devices = lists[i].devices, .strategy = "central",
                                 .central = lists[i].central));
        assert_string_equal(tu_value_device(tu_find(after, "w")), lists[i].expected);
        assert_string_equal(tu_value_device(tu_find(after, "matmul@1")), "ref:0.1");
        tu_graph_free(after);
        tu_graph_free(g);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) device = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strategies_are_one_mathematics),
        cmocka_unit_test(parts_may_be_uneven),
        cmocka_unit_test(a_device_apart_holds_the_variables),
        cmocka_unit_test(a_device_goes_along_in_f32),
        cmocka_unit_test(invariant_bits_do_not_depend_on_devices),
        cmocka_unit_test(options_that_do_not_fit_are_refused),
        cmocka_unit_test(the_central_device_is_the_first_on_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
