/* Tests of strategies: training on several devices gives the results of training on one.
 *
 *     test_strategies [DEVICE]     the device whose logical devices are tested in f32: cpu:0, or a GPU
 *
 * The device `ref` in f64 tests the mathematics: the only differences are roundings of sums in another order. DEVICE
 * in f32 tests its kernels. The networks have a batch that does not divide evenly, random numbers per sample, and
 * batch-norm statistics. */
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

/* Returns a list of logical devices: "cpu:0/4". */
static const char *logical_devices(int count) {
    static char names[9][24];
    snprintf(names[count], sizeof names[count], "%s/%d", device, count);
    return names[count];
}

static void assert_ok(tu_status status) {
    if (status != TU_OK) fail_msg("%s", tu_message());
}

/* Settings and results of a training run. */
typedef struct training {
    const char *network, *devices, *strategy, *central;
    tu_dtype dtype;
    int invariant, steps;
    double *variables; /* all variables of the state, one after another */
    size_t count;
    double first_loss, loss;
} training;

static void read_variables(tu_state *state, training *t) {
    t->variables = calloc(MAX_VARIABLES, sizeof *t->variables);
    unsigned char *data = calloc(MAX_VARIABLES, 8);
    assert_true(t->variables && data);
    for (size_t i = 0; i < tu_state_variable_count(state); i++) {
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

/* Builds the network after random flips and noise per sample, with a momentum optimizer. */
static tu_value build(const training *t, tu_graph *g, tu_value *images, tu_value *labels) {
    int64_t side = strcmp(t->network, "tutorial-cnn") == 0 ? 12 : 8;
    int64_t channels = strcmp(t->network, "mlp") == 0 ? 1 : 3;
    *images = tu_batch_input(g, "images", t->dtype, TU_SHAPE(BATCH, side, side, channels));
    *labels = tu_batch_input(g, "labels", TU_I32, TU_SHAPE(BATCH));
    tu_value logits, x = tu_random_brightness(tu_random_flip(*images), 0.1);
    assert_ok(tu_network_logits(x, t->network, &logits, .classes = 10, .base = 4));
    tu_value loss = tu_mean(tu_cross_entropy(tu_dropout(logits, 0.1), *labels, .smoothing = 0.1));
    tu_optimizer_values values = TU_SIZED(tu_optimizer_values);
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
    assert_true(fabs(t->loss - t->first_loss) > 1e-4); /* it has learned something */
    read_variables(state, t);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
    free(data);
}

/* Returns the largest difference between the variables and losses of two training runs. */
static double max_difference_between(const training *a, const training *b) {
    double max_difference = fabs(a->loss - b->loss);
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        assert_true(isfinite(a->variables[i]));
        max_difference = fmax(max_difference, fabs(a->variables[i] - b->variables[i]));
    }
    return max_difference;
}

static void assert_same_training(training single, training replicated, double tolerance) {
    train(&single);
    train(&replicated);
    double max_difference = max_difference_between(&single, &replicated);
    print_message("%s, %s on %s: %.1e from one device after %d steps\n", replicated.network,
                  replicated.strategy, replicated.devices, max_difference, replicated.steps);
    if (!(max_difference <= tolerance))
        fail_msg("%s, %s on %s: %g from one device after %d steps, at most %g expected", replicated.network,
                 replicated.strategy, replicated.devices, max_difference, replicated.steps, tolerance);
    free(single.variables);
    free(replicated.variables);
}

/* Compares a training run on `devices` with a strategy to one on a single device. */
static void assert_same_as_one_device(training single, const char *devices, const char *strategy,
                                      const char *central, double tolerance) {
    training replicated = single;
    replicated.devices = devices;
    replicated.strategy = strategy;
    replicated.central = central;
    assert_same_training(single, replicated, tolerance);
}

static void strategies_give_the_same_results(void **state) {
    (void)state;
    static const char *const networks[] = {"mlp", "tutorial-cnn", "resnet20"};
    for (int i = 0; i < 3; i++) {
        training single = {.network = networks[i], .devices = "ref", .dtype = TU_F64, .steps = 50};
        assert_same_as_one_device(single, "ref:0/2", "mirrored", NULL, 1e-9);
        assert_same_as_one_device(single, "ref:0/2", "central", NULL, 1e-9);
    }
}

/* Ten samples on four devices: three, three, two and two. */
static void shards_may_be_uneven(void **state) {
    (void)state;
    training single = {.network = "resnet20", .devices = "ref", .dtype = TU_F64, .steps = 8};
    assert_same_as_one_device(single, "ref:0/4", "mirrored", NULL, 1e-11);
    assert_same_as_one_device(single, "ref:0/3", "central", NULL, 1e-11);
}

static void a_separate_central_device_may_own_the_variables(void **state) {
    (void)state;
    training single = {.network = "tutorial-cnn", .devices = "ref", .dtype = TU_F64, .steps = 8};
    assert_same_as_one_device(single, "ref:0/2", "central", "cpu:0", 1e-11);
}

static void strategies_give_the_same_results_in_f32(void **state) {
    (void)state;
    static const char *const networks[] = {"mlp", "tutorial-cnn", "resnet20"};
    for (int i = 0; i < 3; i++) {
        training single = {.network = networks[i], .devices = device, .steps = 5};
        assert_same_as_one_device(single, logical_devices(2), "mirrored", NULL, 2e-4);
        assert_same_as_one_device(single, logical_devices(2), "central", NULL, 2e-4);
    }
}

/* ---- Bit-identical results ---- */

static void assert_same_bits(const char *network, const char *strategy) {
    training single = {0};
    for (int devices = 1; devices <= 8; devices *= 2) {
        training t = {.network = network,
                      .devices = logical_devices(devices),
                      .strategy = devices > 1 ? strategy : NULL,
                      .invariant = 8,
                      .steps = 6};
        train(&t);
        if (devices > 1 && max_difference_between(&single, &t) != 0)
            fail_msg("%s %s on %s: other bits than on one device", network, strategy, t.devices);
        if (devices > 1)
            free(t.variables);
        else
            single = t;
    }
    free(single.variables);
}

static void invariant_results_are_bit_identical_on_any_devices(void **state) {
    (void)state;
    assert_same_bits("tutorial-cnn", "mirrored");
    assert_same_bits("resnet20", "mirrored");
    assert_same_bits("resnet20", "central");
}

/* ---- Invalid options ---- */

static void invalid_options_are_rejected(void **state) {
    (void)state;
    static const struct {
        tu_compile_options options;
        tu_status status;
        const char *message;
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
         "invariant 2 cannot be combined with 2 threads per device"},
        {{.devices = "ref:0/2", .strategy = "central", .central = "abacus"},
         TU_NOT_FOUND,
         "there is no device 'abacus'"},
        {{.devices = "ref:0/2", .strategy = "central", .central = "cpu:0/2"},
         TU_INVALID,
         "'cpu:0/2' names 2 devices: expected one"},
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
            fail_msg("\"%s\" was expected", bad[i].message);
        if (!strstr(tu_message(), bad[i].message))
            fail_msg("\"%s\" does not say \"%s\"", tu_message(), bad[i].message);
        assert_int_equal(tu__alloc_live(), live);
        assert_null(program);
    }
    tu_graph_free(g);
}

/* The central device is a replica only if it is in the device list. */
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
        cmocka_unit_test(strategies_give_the_same_results),
        cmocka_unit_test(shards_may_be_uneven),
        cmocka_unit_test(a_separate_central_device_may_own_the_variables),
        cmocka_unit_test(strategies_give_the_same_results_in_f32),
        cmocka_unit_test(invariant_results_are_bit_identical_on_any_devices),
        cmocka_unit_test(invalid_options_are_rejected),
        cmocka_unit_test(the_central_device_is_the_first_on_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
