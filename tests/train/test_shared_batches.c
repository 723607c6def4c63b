/* A run is the same run however many devices share its batches: to the last digits with every strategy, to the last bit
 * with --invariant, and also where it was stopped on some devices and goes on on others. */
#include <math.h>

#include "base/pattern.h"
#include "io/safetensors.h"
#include "train/fresh_run.h"

/* What is divided: the processor, or the device that the program is given. */
static const char *device = "cpu:0";

/* "cpu:0/3"; one part is the device itself. A few of these may be in use at once. */
static const char *parts(int count) {
    static char lists[8][64];
    static int next;
    char *list = lists[next++ % 8];
    if (count == 1)
        snprintf(list, sizeof *lists, "%s", device);
    else
        snprintf(list, sizeof *lists, "%s/%d", device, count);
    return list;
}

/* "cpu:0.0/2": what is placed there has the bits of all parts of that width, which need not be the whole device's. */
static const char *first_half(void) {
    static char word[64];
    snprintf(word, sizeof word, "%s.0/2", device);
    return word;
}

/* Steps of the comparisons bit by bit; the long tests set more. */
static int64_t invariant_steps(void) {
    const char *asked = getenv("TUTTI_INVARIANT_STEPS");
    return asked ? strtoll(asked, NULL, 10) : 5;
}

/* ---- Comparing runs ---- */

static double largest_of(const float *values, int64_t count) {
    double largest = 0;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)values[i]));
    return largest;
}

/* The farthest two tensors are from each other, as a share of the largest number in them. */
static double distance(const tu__named_tensor *a, const tu__named_tensor *b) {
    int64_t count = tu_shape_elements(a->type.shape);
    size_t bytes = tu_type_bytes(a->type);
    float *x = malloc(bytes), *y = malloc(bytes);
    assert_true(x && y);
    memcpy(x, a->data, bytes);
    memcpy(y, b->data, bytes);
    double farthest = 0, largest = fmax(largest_of(x, count), 1e-3);
    for (int64_t i = 0; i < count; i++) farthest = fmax(farthest, fabs((double)x[i] - (double)y[i]));
    free(x);
    free(y);
    return farthest / largest;
}

static void open_checkpoint(const char *run, int64_t step, tu__safetensors *file) {
    char path[1024];
    snprintf(path, sizeof path, "%s/checkpoints/step-%lld.safetensors", run, (long long)step);
    assert_int_equal(tu__safetensors_open(path, file), TU_OK);
}

/* The variables of both runs that the pattern names, after a step. */
static void expect_named_close(const char *pattern, const char *run, const char *other, int64_t step,
                               double tolerance) {
    tu__safetensors a, b;
    open_checkpoint(run, step, &a);
    open_checkpoint(other, step, &b);
    assert_int_equal(a.tensor_count, b.tensor_count);
    for (size_t i = 0; i < a.tensor_count; i++) {
        if (a.tensors[i].type.dtype != TU_F32 || !tu__pattern_fits(pattern, a.tensors[i].name)) continue;
        double apart = distance(&a.tensors[i], tu__safetensors_find(&b, a.tensors[i].name));
        if (!(apart <= tolerance))
            fail_msg("%s: %g apart after step %d", a.tensors[i].name, apart, (int)step);
    }
    tu__safetensors_close(&a);
    tu__safetensors_close(&b);
}

/* All of them, slots of the optimizer included. */
static void expect_close(const char *run, const char *other, int64_t step, double tolerance) {
    expect_named_close("*", run, other, step, tolerance);
}

/* A run that must go well, of any network; its folder has the name of what makes it differ. */
#define train_batches(batch_, model, folder, result, ...)                                                    \
    do {                                                                                                     \
        tu_status shared_status_ = tu_train(model, NULL, result, .set = set, .out = folder, .threads = 1,    \
                                            .batch = batch_, .base = 8, __VA_ARGS__);                        \
        if (shared_status_ != TU_OK) print_message("%s\n", tu_message());                                    \
        assert_int_equal(shared_status_, TU_OK);                                                             \
    } while (0)
#define train_shared(...) train_batches(SMALL_BATCH, __VA_ARGS__)

/* ---- Strategies ---- */

/* Five steps: an epoch with its short last batch, and one more. Augmentation draws by sample. */
#define FIVE .steps = 5, .rate = 0.01, .optimizer = "momentum", .flip = 1, .keep = 5, .recipe = "plain"

static void strategies_agree(const char *model, int64_t image_size, const char *batch_norm) {
    static const struct {
        const char *strategy;
        int count;
    } shared[] = {{"mirrored", 2}, {"central", 2}, {"mirrored", 3}, {"central", 3}};
    struct scratch_path one = in_scratch("one");
    train_shared(model, one.text, NULL, FIVE, .devices = device, .image_size = image_size);
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        char name[32];
        snprintf(name, sizeof name, "shared-%zu", i);
        struct scratch_path many = in_scratch(name);
        train_shared(model, many.text, NULL, FIVE, .devices = parts(shared[i].count),
                     .strategy = shared[i].strategy, .image_size = image_size, .batch_norm = batch_norm);
        expect_close(one.text, many.text, 5, 1e-3);
    }
}

static void the_perceptron_trains_alike_with_every_strategy(void **state) {
    (void)state;
    strategies_agree("mlp", 0, NULL);
}

static void the_tutorial_network_trains_alike_with_every_strategy(void **state) {
    (void)state;
    strategies_agree("tutorial-cnn", 24, NULL);
}

static void a_residual_network_with_global_batch_norm_trains_alike_with_every_strategy(void **state) {
    (void)state;
    strategies_agree("resnet20", 0, "global");
}

static void several_alike_devices_mirror_unless_told_otherwise(void **state) {
    (void)state;
    tu_train_result asked = TU_SIZED(tu_train_result), unasked = TU_SIZED(tu_train_result),
                    single = TU_SIZED(tu_train_result), one = TU_SIZED(tu_train_result);
    train_shared("mlp", in_scratch("asked").text, &asked, FIVE, .devices = parts(2), .strategy = "mirrored");
    train_shared("mlp", in_scratch("unasked").text, &unasked, FIVE, .devices = parts(2));
    train_shared("mlp", in_scratch("single").text, &single, FIVE, .devices = parts(2), .strategy = "single");
    train_shared("mlp", in_scratch("one").text, &one, FIVE, .devices = first_half());
    assert_string_equal(asked.digest, unasked.digest);
    assert_string_equal(single.digest, one.digest);
    assert_string_not_equal(asked.digest, one.digest); /* sums of two halves round otherwise */
}

static void batch_norm_of_replicas_is_another_network(void **state) {
    (void)state;
    tu_train_result global = TU_SIZED(tu_train_result), replica = TU_SIZED(tu_train_result);
    train_shared("resnet20", in_scratch("global").text, &global, FIVE, .devices = parts(2));
    train_shared("resnet20", in_scratch("replica").text, &replica, FIVE, .devices = parts(2),
                 .batch_norm = "replica");
    assert_true(fabs(global.loss - replica.loss) > 1e-3);
}

static void what_a_step_is_made_of_does_not_hang_on_the_strategy(void **state) {
    (void)state;
    struct scratch_path one = in_scratch("one"), many = in_scratch("many"), pieces = in_scratch("pieces");
    struct scratch_path pieces_of_one = in_scratch("pieces-of-one");
#define RICH                                                                                                 \
    .steps = 5, .recipe = "plain", .optimizer = "adam", .rate = 0.003, .clip = 1, .average = 0.9,            \
    .schedule = "cosine", .label_smoothing = 0.1, .pad = 1, .brightness = 0.1
    train_shared("mlp", one.text, NULL, RICH, .devices = device);
    train_shared("mlp", many.text, NULL, RICH, .devices = parts(2));
    expect_close(one.text, many.text, 5, 1e-3);
    train_shared("mlp", pieces_of_one.text, NULL, RICH, .devices = device, .accumulate = 2);
    train_shared("mlp", pieces.text, NULL, RICH, .devices = parts(2), .accumulate = 2);
    expect_close(pieces_of_one.text, pieces.text, 5, 1e-3);
}

/* Slots hold sums of a few gradients, of which half precision rounds away what batches divided otherwise make of them.
 * Three steps: in the fourth, of two samples, f16 may leave a step out on one device that it makes on two. */
static const char weights[] = "*/weights";
#define THREE .steps = 3, .rate = 0.01, .optimizer = "momentum", .recipe = "plain"

static void half_precision_and_its_loss_scale_work_on_several_devices(void **state) {
    (void)state;
    static const char *const precisions[] = {"bf16", "f16"};
    for (size_t i = 0; i < 2; i++) {
        struct scratch_path one = in_scratch(i ? "one-f16" : "one-bf16"),
                            many = in_scratch(i ? "f16" : "bf16");
        train_shared("mlp", one.text, NULL, THREE, .devices = device, .precision = precisions[i]);
        train_shared("mlp", many.text, NULL, THREE, .devices = parts(2), .precision = precisions[i]);
        expect_named_close(weights, one.text, many.text, 3, 0.01);
    }
}

static void gradients_may_travel_as_bf16(void **state) {
    (void)state;
    struct scratch_path thin = in_scratch("thin"), full = in_scratch("full");
    tu_train_result rounded = TU_SIZED(tu_train_result), exact = TU_SIZED(tu_train_result);
    train_shared("tutorial-cnn", full.text, &exact, THREE, .devices = parts(2), .image_size = 24);
    train_shared("tutorial-cnn", thin.text, &rounded, THREE, .devices = parts(2), .image_size = 24,
                 .bf16_gradients = 1);
    assert_string_not_equal(exact.digest, rounded.digest);
    expect_named_close(weights, full.text, thin.text, 3, 0.01);
}

/* ---- Uneven batches ---- */

static void a_batch_that_does_not_divide_is_weighted(void **state) {
    (void)state;
    struct scratch_path one = in_scratch("one"), three = in_scratch("three"), central = in_scratch("central");
    tu_train_result alone = TU_SIZED(tu_train_result), shared = TU_SIZED(tu_train_result);
    train_batches(10, "mlp", one.text, &alone, FIVE, .devices = device);
    train_batches(10, "mlp", three.text, &shared, FIVE, .devices = parts(3));
    expect_close(one.text, three.text, 5, 1e-4);
    assert_true(fabs(alone.loss - shared.loss) < 1e-5 && alone.accuracy == shared.accuracy);
    train_batches(10, "mlp", central.text, &shared, FIVE, .devices = parts(3), .strategy = "central");
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
        assert_int_equal(tu_evaluate(run.text, &many, .set = set, .devices = parts(counts[i])), TU_OK);
        assert_true(many.accuracy == one.accuracy && many.top5 == one.top5 && many.images == one.images);
        assert_true(fabs(many.loss - one.loss) < 1e-6);
        assert_memory_equal(many.confusion, one.confusion,
                            SMALL_CLASSES * SMALL_CLASSES * sizeof *one.confusion);
        tu_evaluation_free(&many);
    }
    tu_evaluation_free(&one);
}

/* ---- The same bits ---- */

/* A processor that holds the variables of a card's replicas adds and updates with its own arithmetic; otherwise the
 * strategies give the same bits too, also where one of the replicas' devices holds them. */
static void invariant_bits_do_not_hang_on_the_devices(const char *model) {
    enum { MIRRORED, CENTRAL, CENTRAL_ON_A_PART, WAYS };
    bool one_kind = strncmp(device, "cpu", 3) == 0;
    char first[2][TU_DIGEST_TEXT] = {"", ""};
    for (int count = 1; count <= 8; count *= 2) {
        for (int way = 0; way < WAYS; way++) {
            char name[32], part[32];
            snprintf(name, sizeof name, "%s-%d-%d", model, count, way);
            snprintf(part, sizeof part, "%s%s", device, count > 1 ? ".0" : "");
            tu_train_result result = TU_SIZED(tu_train_result);
            train_shared(model, in_scratch(name).text, &result, .devices = parts(count), .invariant = 8,
                         .strategy = way == MIRRORED ? "mirrored" : "central",
                         .central = way == CENTRAL_ON_A_PART ? part : NULL, .steps = invariant_steps(),
                         .flip = 1, .recipe = "plain", .rate = 0.001);
            char *expected = first[!one_kind && way == CENTRAL];
            if (!*expected) memcpy(expected, result.digest, sizeof *first);
            assert_string_equal(result.digest, expected);
        }
    }
}

static void the_perceptron_has_the_same_bits_on_any_number_of_devices(void **state) {
    (void)state;
    invariant_bits_do_not_hang_on_the_devices("mlp");
}

static void a_residual_network_has_the_same_bits_on_any_number_of_devices(void **state) {
    (void)state;
    invariant_bits_do_not_hang_on_the_devices("resnet20");
}

/* ---- Going on elsewhere ---- */

#define ELSEWHERE .steps = 12, .recipe = "plain", .rate = 0.01, .flip = 1

struct place {
    int count;
    const char *strategy;
};

/* Trains to the end, stopped after every third step and gone on with on the next devices. */
static void train_around(const char *folder, int64_t invariant, const struct place places[4],
                         tu_train_result *result) {
    for (int i = 0; i < 4; i++) {
        stop_flag = 0;
        stop_at = i < 3 ? 3 * (i + 1) : -1;
        tu_status status = i == 0
                               ? tu_train("mlp", NULL, result, .set = set, .out = folder, .threads = 1,
                                          .batch = SMALL_BATCH, .base = 8, ELSEWHERE,
                                          .devices = parts(places[i].count), .strategy = places[i].strategy,
                                          .invariant = invariant, .stop = &stop_flag, .watch = stop_there)
                               : tu_train(folder, NULL, result, .set = set, .resume = true, .threads = 1,
                                          .devices = parts(places[i].count), .strategy = places[i].strategy,
                                          .stop = &stop_flag, .watch = stop_there);
        if (status != TU_OK) print_message("%s\n", tu_message());
        assert_int_equal(status, TU_OK);
    }
}

static void a_run_goes_on_with_other_devices_and_another_strategy(void **state) {
    (void)state;
    static const struct place places[4] = {{2, "mirrored"}, {3, "central"}, {1, "single"}, {2, "central"}};
    struct scratch_path whole = in_scratch("whole"), around = in_scratch("around");
    tu_train_result result = TU_SIZED(tu_train_result);
    train_shared("mlp", whole.text, NULL, ELSEWHERE, .devices = device);
    train_around(around.text, 0, places, &result);
    assert_int_equal(result.step, 12);
    expect_close(whole.text, around.text, 12, 1e-3);
    assert_int_equal(count_lines(around.text, "config.json", "\"strategy\":\"central\""), 1);
}

static void an_invariant_run_goes_on_elsewhere_with_the_same_bits(void **state) {
    (void)state;
    static const struct place places[4] = {{4, "mirrored"}, {2, "central"}, {1, "mirrored"}, {8, "mirrored"}};
    tu_train_result whole = TU_SIZED(tu_train_result), around = TU_SIZED(tu_train_result);
    train_shared("mlp", in_scratch("whole").text, &whole, ELSEWHERE, .devices = device, .invariant = 8);
    train_around(in_scratch("around").text, 8, places, &around);
    assert_string_equal(around.digest, whole.digest);
}

/* ---- What is refused ---- */

#define begin_batches(batch_, ...)                                                                           \
    tu_train("mlp", NULL, NULL, .set = set, .out = in_scratch("bad").text, .threads = 1, .base = 8,          \
             .batch = batch_, __VA_ARGS__)
#define begin_bad(...) begin_batches(SMALL_BATCH, __VA_ARGS__)

static void what_cannot_be_shared_is_refused_before_the_first_step(void **state) {
    (void)state;
    expect_refusal(begin_batches(2, .devices = parts(3)), TU_INVALID, "batch of 2");
    expect_refusal(begin_batches(4, .devices = parts(3), .accumulate = 2), TU_INVALID, "batch of 2");
    expect_refusal(begin_bad(.devices = parts(2), .strategy = "mirrord"), TU_INVALID,
                   "did you mean 'mirrored'?");
    expect_refusal(begin_bad(.devices = parts(2), .strategy = "mirrored", .central = "cpu:0"), TU_INVALID,
                   "'central'");
    expect_refusal(begin_bad(.devices = parts(3), .invariant = 8), TU_INVALID, "invariant 8 on 3 devices");
    expect_refusal(begin_bad(.devices = parts(2), .invariant = 32), TU_INVALID, "32 parts");
    expect_refusal(begin_bad(.devices = parts(2), .strategy = "mirrored", .place = "*=cpu:0"), TU_INVALID,
                   "use one of the two");
    expect_refusal(begin_bad(.devices = parts(2), .batch_norm = "local"), TU_INVALID, "--batch-norm 'local'");
    assert_int_equal(access(in_scratch("bad").text, F_OK), -1);
}

static void how_batches_are_cut_stays_as_it_was_begun(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("kept");
    train_shared("mlp", run.text, NULL, .steps = 2, .devices = parts(2), .invariant = 8);
    expect_refusal(tu_train(run.text, NULL, NULL, .set = set, .resume = true, .invariant = 4), TU_INVALID,
                   "--invariant 4 with --resume: the run was begun with 8");
    expect_refusal(tu_train(run.text, NULL, NULL, .set = set, .resume = true, .strategy = "centrl"),
                   TU_INVALID, "did you mean 'central'?");
}

/* Given a device, all of it is stated of that one; given a pattern too, what it fits: test_shared_batches gpu:0 '*bits*' */
int main(int argc, char **argv) {
    if (argc > 1) device = argv[1];
    if (argc > 2) cmocka_set_test_filter(argv[2]);
    const struct CMUnitTest tests[] = {
        fresh(the_perceptron_trains_alike_with_every_strategy),
        fresh(the_tutorial_network_trains_alike_with_every_strategy),
        fresh(a_residual_network_with_global_batch_norm_trains_alike_with_every_strategy),
        fresh(several_alike_devices_mirror_unless_told_otherwise),
        fresh(batch_norm_of_replicas_is_another_network),
        fresh(what_a_step_is_made_of_does_not_hang_on_the_strategy),
        fresh(half_precision_and_its_loss_scale_work_on_several_devices),
        fresh(gradients_may_travel_as_bf16),
        fresh(a_batch_that_does_not_divide_is_weighted),
        fresh(an_evaluation_is_the_same_on_any_number_of_devices),
        fresh(the_perceptron_has_the_same_bits_on_any_number_of_devices),
        fresh(a_residual_network_has_the_same_bits_on_any_number_of_devices),
        fresh(a_run_goes_on_with_other_devices_and_another_strategy),
        fresh(an_invariant_run_goes_on_elsewhere_with_the_same_bits),
        fresh(what_cannot_be_shared_is_refused_before_the_first_step),
        fresh(how_batches_are_cut_stays_as_it_was_begun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
