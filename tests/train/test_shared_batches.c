/* Data-parallel training: results agree with those on one device, up to rounding with every strategy and to the last
 * bit with --invariant, also if a run is stopped and resumed on other devices. */
#include <math.h>

#include "base/pattern.h"
#include "io/safetensors.h"
#include "network/network.h"
#include "network/residual.h"
#include "train/fresh_run.h"

/* The device to split: the CPU, or the device given as argument. */
static const char *device = "cpu:0";

/* Returns a device spec such as "cpu:0/3"; the device itself for 1. Up to eight results are valid at once. */
static const char *split_device(int count) {
    static char lists[8][64];
    static int next;
    char *list = lists[next++ % 8];
    if (count == 1)
        snprintf(list, sizeof *lists, "%s", device);
    else
        snprintf(list, sizeof *lists, "%s/%d", device, count);
    return list;
}

/* Returns "cpu:0.0/2". Its bits are those of all logical devices of that size, which may differ from those of the
 * whole device. */
static const char *first_half(void) {
    static char spec[64];
    snprintf(spec, sizeof spec, "%s.0/2", device);
    return spec;
}

/* Number of steps of the bitwise comparisons; the long tests set more. */
static int64_t invariant_steps(void) {
    const char *text = getenv("TUTTI_INVARIANT_STEPS");
    return text ? strtoll(text, NULL, 10) : 5;
}

/* ---- Comparing runs ---- */

static double largest_of(const float *values, int64_t count) {
    double largest = 0;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)values[i]));
    return largest;
}

/* Returns the maximum difference of two tensors, relative to the largest element. */
static double distance(const tu__named_tensor *a, const tu__named_tensor *b) {
    int64_t count = tu_shape_elements(a->type.shape);
    size_t bytes = tu_type_bytes(a->type);
    float *x = malloc(bytes), *y = malloc(bytes);
    assert_true(x && y);
    memcpy(x, a->data, bytes);
    memcpy(y, b->data, bytes);
    double difference = 0, largest = fmax(largest_of(x, count), 1e-3);
    for (int64_t i = 0; i < count; i++) difference = fmax(difference, fabs((double)x[i] - (double)y[i]));
    free(x);
    free(y);
    return difference / largest;
}

static void open_checkpoint(const char *run, int64_t step, tu__safetensors *file) {
    char path[1024];
    snprintf(path, sizeof path, "%s/checkpoints/step-%lld.safetensors", run, (long long)step);
    assert_int_equal(tu__safetensors_open(path, file), TU_OK);
}

/* Compares the variables that match the pattern after a step. */
static void expect_named_close(const char *pattern, const char *run, const char *other, int64_t step,
                               double tolerance) {
    tu__safetensors a, b;
    open_checkpoint(run, step, &a);
    open_checkpoint(other, step, &b);
    assert_int_equal(a.tensor_count, b.tensor_count);
    for (size_t i = 0; i < a.tensor_count; i++) {
        if (a.tensors[i].type.dtype != TU_F32 || !tu__pattern_matches(pattern, a.tensors[i].name)) continue;
        double difference = distance(&a.tensors[i], tu__safetensors_find(&b, a.tensors[i].name));
        if (!(difference <= tolerance))
            fail_msg("%s: %g apart after step %d", a.tensors[i].name, difference, (int)step);
    }
    tu__safetensors_close(&a);
    tu__safetensors_close(&b);
}

/* Compares all variables, including those of the optimizer. */
static void expect_close(const char *run, const char *other, int64_t step, double tolerance) {
    expect_named_close("*", run, other, step, tolerance);
}

/* Trains a network; the run must succeed. */
#define train_batches(batch_, model, folder, result, ...)                                                    \
    do {                                                                                                     \
        tu_status shared_status_ = tu_train(model, NULL, result, .set = set, .out = folder, .threads = 1,    \
                                            .batch = batch_, .base = 8, __VA_ARGS__);                        \
        if (shared_status_ != TU_OK) print_message("%s\n", tu_message());                                    \
        assert_int_equal(shared_status_, TU_OK);                                                             \
    } while (0)
#define train_shared(...) train_batches(SMALL_BATCH, __VA_ARGS__)

/* ---- Strategies ---- */

/* Augmentation draws per sample. */
#define FEW(steps_)                                                                                          \
    .steps = steps_, .rate = 0.01, .optimizer = "momentum", .flip = 1, .keep = 5, .recipe = "plain"
/* An epoch with its short last batch, and one more step. */
#define FIVE FEW(5)

static void strategies_agree(const char *model, int64_t steps, int64_t image_size, const char *batch_norm) {
    static const struct {
        const char *strategy;
        int count;
    } shared[] = {{"mirrored", 2}, {"central", 2}, {"mirrored", 3}, {"central", 3}};
    struct scratch_path one = in_scratch("one");
    train_shared(model, one.text, NULL, FEW(steps), .devices = device, .image_size = image_size);
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        char name[32];
        snprintf(name, sizeof name, "shared-%zu", i);
        struct scratch_path many = in_scratch(name);
        train_shared(model, many.text, NULL, FEW(steps), .devices = split_device(shared[i].count),
                     .strategy = shared[i].strategy, .image_size = image_size, .batch_norm = batch_norm);
        expect_close(one.text, many.text, steps, 1e-3);
    }
}

static void all_strategies_agree_for_the_perceptron(void **state) {
    (void)state;
    strategies_agree("mlp", 5, 0, NULL);
}

static void all_strategies_agree_for_the_tutorial_network(void **state) {
    (void)state;
    strategies_agree("tutorial-cnn", 5, 24, NULL);
}

/* ---- Global batch norm ----
 *
 * The gradient of ReLU jumps at 0. A step of resnet20 evaluates 94,208 ReLUs, so some inputs are as close to 0 as the
 * rounding errors, which depend on the number of devices and the instruction set. For example, on `ref` the smallest
 * input of step 2 is -9e-8, in channel 7 of stage1/block3/norm1. With TUTTI_ISA=avx2 it is on the other side of 0
 * on two devices, but not on one or three. Largest differences from one device after each of five steps:
 *
 *     two devices:    3e-6, 6e-2, 2e-1, 1e+0, 2e+0
 *     three devices:  3e-6, 4e-6, 7e-6, 4e-5, 3e-5
 *
 * With ten seeds, three instruction sets and two or three devices, 8 of 60 runs of five steps differ by more than 1e-3.
 * Therefore the five steps are those of a network without kinks. resnet20 itself makes only one step. In this step the
 * smallest input of a ReLU is 2e-5 in magnitude, many times the rounding errors. */

/* resnet20 with SiLU, which is smooth. */
static tu_value smooth_block(tu_value x, int64_t filters, int64_t stride) {
    tu_value y = tu__residual_convolution(x, filters, 3, stride, "conv1");
    y = tu_batch_norm(y, .act = TU_SILU, .name = "norm1");
    y = tu__residual_convolution(y, filters, 3, 1, "conv2");
    y = tu_batch_norm(y, .name = "norm2");
    return tu_silu(tu_add(y, tu__residual_shortcut(x, filters, stride)));
}

static tu_value build_smooth_network(tu_value x, const tu_network_options *o) {
    x = tu__residual_convolution(x, o->base, 3, 1, "conv1");
    x = tu_batch_norm(x, .act = TU_SILU, .name = "norm1");
    x = tu__residual_stage(x, "stage1", smooth_block, 3, o->base, 1);
    x = tu__residual_stage(x, "stage2", smooth_block, 3, 2 * o->base, 2);
    x = tu__residual_stage(x, "stage3", smooth_block, 3, 4 * o->base, 2);
    return tu_dense(tu_global_avg_pool(x), .units = o->classes, .name = "logits");
}

static const tu_network_definition smooth_network = {
    TU__BUILT_IN,
    .name = "smooth-resnet20",
    .summary = "resnet20 with SiLU",
    .defaults =
        TU_OPTIONS(tu_network_options, .height = 32, .width = 32, .channels = 3, .classes = 10, .base = 16),
    .build = build_smooth_network,
};

static void all_strategies_agree_for_a_smooth_residual_network_with_global_batch_norm(void **state) {
    (void)state;
    assert_int_equal(tu__network_add(&smooth_network), TU_OK);
    strategies_agree("smooth-resnet20", 5, 0, "global");
}

static void all_strategies_agree_for_a_step_of_resnet20_with_global_batch_norm(void **state) {
    (void)state;
    strategies_agree("resnet20", 1, 0, "global");
}

/* ---- Options of a step ---- */

static void several_equal_devices_use_mirrored_by_default(void **state) {
    (void)state;
    tu_train_result explicit_one = TU_SIZED(tu_train_result), implicit = TU_SIZED(tu_train_result),
                    single = TU_SIZED(tu_train_result), one = TU_SIZED(tu_train_result);
    train_shared("mlp", in_scratch("explicit").text, &explicit_one, FIVE, .devices = split_device(2),
                 .strategy = "mirrored");
    train_shared("mlp", in_scratch("implicit").text, &implicit, FIVE, .devices = split_device(2));
    train_shared("mlp", in_scratch("single").text, &single, FIVE, .devices = split_device(2),
                 .strategy = "single");
    train_shared("mlp", in_scratch("one").text, &one, FIVE, .devices = first_half());
    assert_string_equal(explicit_one.digest, implicit.digest);
    assert_string_equal(single.digest, one.digest);
    assert_string_not_equal(explicit_one.digest, one.digest); /* sums of two halves round differently */
}

static void batch_norm_per_replica_gives_other_results(void **state) {
    (void)state;
    tu_train_result global = TU_SIZED(tu_train_result), replica = TU_SIZED(tu_train_result);
    train_shared("resnet20", in_scratch("global").text, &global, FIVE, .devices = split_device(2));
    train_shared("resnet20", in_scratch("replica").text, &replica, FIVE, .devices = split_device(2),
                 .batch_norm = "replica");
    assert_true(fabs(global.loss - replica.loss) > 1e-3);
}

static void all_step_options_work_with_several_devices(void **state) {
    (void)state;
    struct scratch_path one = in_scratch("one"), many = in_scratch("many"),
                        accumulated = in_scratch("accumulated");
    struct scratch_path accumulated_on_one = in_scratch("accumulated-on-one");
#define RICH                                                                                                 \
    .steps = 5, .recipe = "plain", .optimizer = "adam", .rate = 0.003, .clip = 1, .average = 0.9,            \
    .schedule = "cosine", .label_smoothing = 0.1, .pad = 1, .brightness = 0.1
    train_shared("mlp", one.text, NULL, RICH, .devices = device);
    train_shared("mlp", many.text, NULL, RICH, .devices = split_device(2));
    expect_close(one.text, many.text, 5, 1e-3);
    train_shared("mlp", accumulated_on_one.text, NULL, RICH, .devices = device, .accumulate = 2);
    train_shared("mlp", accumulated.text, NULL, RICH, .devices = split_device(2), .accumulate = 2);
    expect_close(accumulated_on_one.text, accumulated.text, 5, 1e-3);
}

/* Compares only the weights: optimizer variables contain sums of few gradients, whose half-precision rounding depends
 * on how the batch is sharded. Three steps: the fourth has two samples, and there f16 may skip the step on one device
 * but not on two. */
static const char weights[] = "*/weights";
#define THREE .steps = 3, .rate = 0.01, .optimizer = "momentum", .recipe = "plain"

static void half_precision_and_loss_scaling_work_on_several_devices(void **state) {
    (void)state;
    static const char *const precisions[] = {"bf16", "f16"};
    for (size_t i = 0; i < 2; i++) {
        struct scratch_path one = in_scratch(i ? "one-f16" : "one-bf16"),
                            many = in_scratch(i ? "f16" : "bf16");
        train_shared("mlp", one.text, NULL, THREE, .devices = device, .precision = precisions[i]);
        train_shared("mlp", many.text, NULL, THREE, .devices = split_device(2), .precision = precisions[i]);
        expect_named_close(weights, one.text, many.text, 3, 0.01);
    }
}

static void gradients_can_be_reduced_in_bf16(void **state) {
    (void)state;
    struct scratch_path thin = in_scratch("thin"), full = in_scratch("full");
    tu_train_result rounded = TU_SIZED(tu_train_result), exact = TU_SIZED(tu_train_result);
    train_shared("tutorial-cnn", full.text, &exact, THREE, .devices = split_device(2), .image_size = 24);
    train_shared("tutorial-cnn", thin.text, &rounded, THREE, .devices = split_device(2), .image_size = 24,
                 .bf16_gradients = 1);
    assert_string_not_equal(exact.digest, rounded.digest);
    expect_named_close(weights, full.text, thin.text, 3, 0.01);
}

/* ---- Uneven batches ---- */

static void shards_of_unequal_size_are_weighted(void **state) {
    (void)state;
    struct scratch_path one = in_scratch("one"), three = in_scratch("three"), central = in_scratch("central");
    tu_train_result single = TU_SIZED(tu_train_result), shared = TU_SIZED(tu_train_result);
    train_batches(10, "mlp", one.text, &single, FIVE, .devices = device);
    train_batches(10, "mlp", three.text, &shared, FIVE, .devices = split_device(3));
    expect_close(one.text, three.text, 5, 1e-4);
    assert_true(fabs(single.loss - shared.loss) < 1e-5 && single.accuracy == shared.accuracy);
    train_batches(10, "mlp", central.text, &shared, FIVE, .devices = split_device(3), .strategy = "central");
    expect_close(one.text, central.text, 5, 1e-4);
}

static void an_evaluation_is_the_same_on_any_number_of_devices(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("judged");
    train_shared("mlp", run.text, NULL, FIVE, .devices = device);
    tu_evaluation one = TU_SIZED(tu_evaluation), many = TU_SIZED(tu_evaluation);
    assert_int_equal(tu_evaluate(run.text, &one, .set = set), TU_OK);
    static const int counts[] = {2, 3, 7};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        assert_int_equal(tu_evaluate(run.text, &many, .set = set, .devices = split_device(counts[i])), TU_OK);
        assert_true(many.accuracy == one.accuracy && many.top5 == one.top5 && many.images == one.images);
        assert_true(fabs(many.loss - one.loss) < 1e-6);
        assert_memory_equal(many.confusion, one.confusion,
                            SMALL_CLASSES * SMALL_CLASSES * sizeof *one.confusion);
        tu_evaluation_free(&many);
    }
    tu_evaluation_free(&one);
}

/* ---- Bit-identical results ---- */

/* If the CPU holds the variables of a GPU's replicas, it adds and updates with its own arithmetic; otherwise the
 * strategies give the same bits too, also if one of the replicas' devices holds the variables. */
static void expect_bits_independent_of_devices(const char *model) {
    enum { MIRRORED, CENTRAL, CENTRAL_ON_A_REPLICA, MODES };
    bool is_cpu = strncmp(device, "cpu", 3) == 0;
    char first[2][TU_DIGEST_TEXT] = {"", ""};
    for (int count = 1; count <= 8; count *= 2) {
        for (int mode = 0; mode < MODES; mode++) {
            char name[32], part[32];
            snprintf(name, sizeof name, "%s-%d-%d", model, count, mode);
            snprintf(part, sizeof part, "%s%s", device, count > 1 ? ".0" : "");
            tu_train_result result = TU_SIZED(tu_train_result);
            train_shared(model, in_scratch(name).text, &result, .devices = split_device(count),
                         .invariant = 8, .strategy = mode == MIRRORED ? "mirrored" : "central",
                         .central = mode == CENTRAL_ON_A_REPLICA ? part : NULL, .steps = invariant_steps(),
                         .flip = 1, .recipe = "plain", .rate = 0.001);
            char *expected = first[!is_cpu && mode == CENTRAL];
            if (!*expected) memcpy(expected, result.digest, sizeof *first);
            assert_string_equal(result.digest, expected);
        }
    }
}

static void the_perceptron_is_bit_identical_on_any_number_of_devices(void **state) {
    (void)state;
    expect_bits_independent_of_devices("mlp");
}

static void a_residual_network_is_bit_identical_on_any_number_of_devices(void **state) {
    (void)state;
    expect_bits_independent_of_devices("resnet20");
}

/* ---- Resuming on other devices ---- */

#define TWELVE_STEPS .steps = 12, .recipe = "plain", .rate = 0.01, .flip = 1

struct device_choice {
    int count;
    const char *strategy;
};

/* Trains to the end, stopped after every third step and resumed on the next devices. */
static void train_on_changing_devices(const char *folder, int64_t invariant,
                                      const struct device_choice choices[4], tu_train_result *result) {
    for (int i = 0; i < 4; i++) {
        stop_flag = 0;
        stop_at = i < 3 ? 3 * (i + 1) : -1;
        tu_status status =
            i == 0 ? tu_train("mlp", NULL, result, .set = set, .out = folder, .threads = 1,
                              .batch = SMALL_BATCH, .base = 8, TWELVE_STEPS,
                              .devices = split_device(choices[i].count), .strategy = choices[i].strategy,
                              .invariant = invariant, .stop = &stop_flag, .on_report = stop_there)
                   : tu_train(folder, NULL, result, .set = set, .resume = true, .threads = 1,
                              .devices = split_device(choices[i].count), .strategy = choices[i].strategy,
                              .stop = &stop_flag, .on_report = stop_there);
        if (status != TU_OK) print_message("%s\n", tu_message());
        assert_int_equal(status, TU_OK);
    }
}

static void a_run_can_be_resumed_with_other_devices_and_strategies(void **state) {
    (void)state;
    static const struct device_choice choices[4] = {
        {2, "mirrored"}, {3, "central"}, {1, "single"}, {2, "central"}};
    struct scratch_path whole = in_scratch("whole"), around = in_scratch("around");
    tu_train_result result = TU_SIZED(tu_train_result);
    train_shared("mlp", whole.text, NULL, TWELVE_STEPS, .devices = device);
    train_on_changing_devices(around.text, 0, choices, &result);
    assert_int_equal(result.step, 12);
    expect_close(whole.text, around.text, 12, 1e-3);
    assert_int_equal(count_lines(around.text, "config.json", "\"strategy\":\"central\""), 1);
}

static void an_invariant_run_is_bit_identical_after_a_change_of_devices(void **state) {
    (void)state;
    static const struct device_choice choices[4] = {
        {4, "mirrored"}, {2, "central"}, {1, "mirrored"}, {8, "mirrored"}};
    tu_train_result whole = TU_SIZED(tu_train_result), around = TU_SIZED(tu_train_result);
    train_shared("mlp", in_scratch("whole").text, &whole, TWELVE_STEPS, .devices = device, .invariant = 8);
    train_on_changing_devices(in_scratch("around").text, 8, choices, &around);
    assert_string_equal(around.digest, whole.digest);
}

/* ---- Errors ---- */

#define begin_batches(batch_, ...)                                                                           \
    tu_train("mlp", NULL, NULL, .set = set, .out = in_scratch("bad").text, .threads = 1, .base = 8,          \
             .batch = batch_, __VA_ARGS__)
#define begin_bad(...) begin_batches(SMALL_BATCH, __VA_ARGS__)

static void batches_that_cannot_be_sharded_fail_before_the_first_step(void **state) {
    (void)state;
    expect_error(begin_batches(2, .devices = split_device(3)), TU_INVALID, "batch of 2");
    expect_error(begin_batches(4, .devices = split_device(3), .accumulate = 2), TU_INVALID, "batch of 2");
    expect_error(begin_bad(.devices = split_device(2), .strategy = "mirrord"), TU_INVALID,
                 "did you mean 'mirrored'?");
    expect_error(begin_bad(.devices = split_device(2), .strategy = "mirrored", .central = "cpu:0"),
                 TU_INVALID, "'central'");
    expect_error(begin_bad(.devices = split_device(3), .invariant = 8), TU_INVALID,
                 "invariant 8 on 3 devices");
    expect_error(begin_bad(.devices = split_device(2), .invariant = 32), TU_INVALID, "32 shards (invariant)");
    expect_error(begin_bad(.devices = split_device(2), .strategy = "mirrored", .place = "*=cpu:0"),
                 TU_INVALID, "cannot be combined with placement patterns");
    expect_error(begin_bad(.devices = split_device(2), .batch_norm = "local"), TU_INVALID,
                 "--batch-norm 'local'");
    assert_int_equal(access(in_scratch("bad").text, F_OK), -1);
}

static void the_number_of_shards_cannot_change_on_resume(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("kept");
    train_shared("mlp", run.text, NULL, .steps = 2, .devices = split_device(2), .invariant = 8);
    expect_error(tu_train(run.text, NULL, NULL, .set = set, .resume = true, .invariant = 4), TU_INVALID,
                 "--resume cannot change --invariant to 4: the run was started with 8");
    expect_error(tu_train(run.text, NULL, NULL, .set = set, .resume = true, .strategy = "centrl"), TU_INVALID,
                 "did you mean 'central'?");
}

/* Runs on the device given as argument, and only the tests that match a second argument: test_shared_batches gpu:0
 * '*bit*' */
int main(int argc, char **argv) {
    if (argc > 1) device = argv[1];
    if (argc > 2) cmocka_set_test_filter(argv[2]);
    const struct CMUnitTest tests[] = {
        fresh(all_strategies_agree_for_the_perceptron),
        fresh(all_strategies_agree_for_the_tutorial_network),
        fresh(all_strategies_agree_for_a_smooth_residual_network_with_global_batch_norm),
        fresh(all_strategies_agree_for_a_step_of_resnet20_with_global_batch_norm),
        fresh(several_equal_devices_use_mirrored_by_default),
        fresh(batch_norm_per_replica_gives_other_results),
        fresh(all_step_options_work_with_several_devices),
        fresh(half_precision_and_loss_scaling_work_on_several_devices),
        fresh(gradients_can_be_reduced_in_bf16),
        fresh(shards_of_unequal_size_are_weighted),
        fresh(an_evaluation_is_the_same_on_any_number_of_devices),
        fresh(the_perceptron_is_bit_identical_on_any_number_of_devices),
        fresh(a_residual_network_is_bit_identical_on_any_number_of_devices),
        fresh(a_run_can_be_resumed_with_other_devices_and_strategies),
        fresh(an_invariant_run_is_bit_identical_after_a_change_of_devices),
        fresh(batches_that_cannot_be_sharded_fail_before_the_first_step),
        fresh(the_number_of_shards_cannot_change_on_resume),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
