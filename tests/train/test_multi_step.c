/* Training with multi-step calls gives the same result as step by step on the CPU, for data sets in memory and for
 * batches that are read. The same holds if a step is not finite, an image cannot be read or the run is stopped. */
#include "discrete_device.h"

#include "train/checkpoint_digest.h"
#include "train/fresh_run.h"
#include "train/memory_dataset.h"

#include "train/multi_step.h"

/* 1000 steps with a measurement every ten, so that there is room for multi-step calls. */
#define LONG_RUN                                                                                             \
    .threads = 1, .batch = SMALL_BATCH, .base = 8, .epochs = 250, .evaluate_every = 500,                     \
    .checkpoint_every = 250

#define train_long(result, devices_, out_, ...)                                                              \
    tu_train("mlp", NULL, result, .set = set, .devices = devices_, .out = in_scratch(out_).text, LONG_RUN,   \
             ##__VA_ARGS__)

static void expect_same(const tu_train_result *a, const tu_train_result *b) {
    assert_string_equal(a->digest, b->digest);
    assert_int_equal(a->step, b->step);
    assert_true(a->loss == b->loss && a->accuracy == b->accuracy);
    assert_int_equal(a->test_step, b->test_step);
    assert_true(a->test_loss == b->test_loss && a->test_accuracy == b->test_accuracy);
    assert_int_equal(a->best_step, b->best_step);
    assert_int_equal(a->validation_step, b->validation_step);
    assert_true(a->validation_loss == b->validation_loss &&
                a->validation_largest_class == b->validation_largest_class);
}

/* ---- Tests ---- */

static void multi_step_calls_give_the_result_of_single_steps(void **state) {
    (void)state;
    tu_train_result one = TU_SIZED(tu_train_result), copied = TU_SIZED(tu_train_result),
                    from_table = TU_SIZED(tu_train_result);
    assert_int_equal(train_long(&one, "cpu:0", "one"), TU_OK);
    register_discrete_device();
    if (train_long(&copied, "discrete:0", "copied") != TU_OK) fail_msg("%s", tu_message());
    expect_same(&one, &copied);
    assert_int_equal(discrete.rows_read, 0);
    assert_int_equal(discrete.longest_call, 3); /* all full batches of an epoch */
    assert_in_range(discrete.calls, 500, 999);
    register_discrete_device();
    keep_dataset_in_memory();
    if (train_long(&from_table, "discrete:0", "table") != TU_OK) fail_msg("%s", tu_message());
    stop_keeping_dataset_in_memory();
    expect_same(&one, &from_table);
    /* Images and labels: of all epochs, and of the full batch of two validations and of the test. */
    assert_int_equal(discrete.rows_read, 2 * (250 * SMALL_TRAINED + 3 * SMALL_BATCH));
    assert_int_equal(discrete.longest_call, 3);
    assert_int_equal(discrete.live_allocations, 0);
}

/* Not the data set's own validation split: its images are scattered among the others. */
static void a_scattered_validation_split_gives_the_same_result_from_a_table(void **state) {
    (void)state;
    tu_train_result one = TU_SIZED(tu_train_result), from_table = TU_SIZED(tu_train_result);
    enum { SPLIT = 2 * SMALL_BATCH + 3 };
    assert_int_equal(train_long(&one, "cpu:0", "one", .validation = SPLIT), TU_OK);
    assert_int_equal(one.validation_images, SPLIT);
    register_discrete_device();
    keep_dataset_in_memory();
    if (train_long(&from_table, "discrete:0", "table", .validation = SPLIT) != TU_OK)
        fail_msg("%s", tu_message());
    stop_keeping_dataset_in_memory();
    expect_same(&one, &from_table);
    assert_true(discrete.rows_read > 0);
    assert_int_equal(discrete.live_allocations, 0);
}

/* Result of a run with a NaN image: its message and the digest of its last checkpoint. */
struct failure {
    char message[1024], digest[TU_DIGEST_TEXT];
};

static struct failure fail_long(const char *devices, const char *name, int64_t step) {
    struct failure f;
    char out[64], checkpoint[64];
    snprintf(out, sizeof out, "%s-%d", name, (int)step);
    snprintf(checkpoint, sizeof checkpoint, "step-%d", (int)step - 1);
    assert_int_equal(train_long(NULL, devices, out), TU_NUMERIC);
    snprintf(f.message, sizeof f.message, "%s", tu_message());
    checkpoint_digest(in_scratch(out).text, checkpoint, f.digest);
    return f;
}

/* Steps 2 and 3 are submitted in one call: the failing step comes first or last in it. */
static void a_failing_step_in_a_multi_step_call_keeps_the_state_before_it(void **state) {
    (void)state;
    for (int64_t step = 2; step <= 3; step++) {
        small_dataset_nan = image_of_step(step, 1, 4);
        struct failure expected = fail_long("cpu:0", "bad-one", step);
        assert_non_null(
            strstr(expected.message, "of the data set; the state before the error is saved as checkpoint"));
        register_discrete_device();
        struct failure copied = fail_long("discrete:0", "bad-copied", step);
        assert_int_equal(discrete.longest_call, 2);
        keep_dataset_in_memory();
        struct failure from_table = fail_long("discrete:0", "bad-table", step);
        stop_keeping_dataset_in_memory();
        small_dataset_nan = -1;
        assert_string_equal(expected.message, copied.message);
        assert_string_equal(expected.message, from_table.message);
        assert_string_equal(expected.digest, copied.digest);
        assert_string_equal(expected.digest, from_table.digest);
    }
    /* After the image is fixed, the run continues as if nothing had happened. */
    tu_train_result whole = TU_SIZED(tu_train_result), resumed = TU_SIZED(tu_train_result);
    assert_int_equal(train_long(&whole, "cpu:0", "whole"), TU_OK);
    if (train_long(&resumed, "discrete:0", "bad-copied-3", .resume = true) != TU_OK)
        fail_msg("%s", tu_message());
    assert_string_equal(whole.digest, resumed.digest);
}

static void a_resumed_run_is_bit_identical(void **state) {
    (void)state;
    tu_train_result whole = TU_SIZED(tu_train_result), part = TU_SIZED(tu_train_result),
                    rest = TU_SIZED(tu_train_result);
    register_discrete_device();
    keep_dataset_in_memory();
    assert_int_equal(train_long(&whole, "discrete:0", "unstopped"), TU_OK);
    stop_flag = 0;
    stop_at = 301; /* the second step of an epoch */
    assert_int_equal(train_long(&part, "discrete:0", "stopped", .stop = &stop_flag, .on_report = stop_there),
                     TU_OK);
    assert_true(part.stopped);
    assert_in_range(part.step, 301, 303); /* the current call is completed */
    assert_int_equal(train_long(&rest, "discrete:0", "stopped", .resume = true), TU_OK);
    stop_keeping_dataset_in_memory();
    expect_same(&whole, &rest);
}

static void an_unreadable_image_loses_no_step_before_it(void **state) {
    (void)state;
    char expected[1024];
    small_dataset_unreadable[TU_TRAIN] = image_of_step(3, 1, 4);
    assert_int_equal(train_long(NULL, "cpu:0", "unread-one"), TU_IO);
    snprintf(expected, sizeof expected, "%s", tu_message());
    register_discrete_device();
    assert_int_equal(train_long(NULL, "discrete:0", "unread-many"), TU_IO);
    assert_string_equal(tu_message(), expected);
    small_dataset_unreadable[TU_TRAIN] = -1;
}

/* Gradient accumulation needs several programs: these steps run one by one. */
static void gradient_accumulation_uses_no_multi_step_calls(void **state) {
    (void)state;
    tu_train_result one = TU_SIZED(tu_train_result), on_discrete = TU_SIZED(tu_train_result);
    assert_int_equal(train_long(&one, "cpu:0", "micro-batches-one", .accumulate = 2, .steps = 20), TU_OK);
    register_discrete_device();
    assert_int_equal(
        train_long(&on_discrete, "discrete:0", "micro-batches-discrete", .accumulate = 2, .steps = 20),
        TU_OK);
    assert_int_equal(discrete.calls, 0);
    assert_string_equal(one.digest, on_discrete.digest);
}

/* Returns the loss scale stored in a checkpoint. */
static float scale_after(const char *out, int64_t step) {
    char path[1024];
    tu__safetensors file;
    snprintf(path, sizeof path, "%s/checkpoints/step-%d.safetensors", in_scratch(out).text, (int)step);
    assert_int_equal(tu__safetensors_open(path, &file), TU_OK);
    const tu__named_tensor *scale = tu__safetensors_find(&file, "optimizer/loss_scale");
    assert_non_null(scale);
    float value;
    memcpy(&value, scale->data, sizeof value);
    tu__safetensors_close(&file);
    return value;
}

/* At the initial scale, 65536, sums over a batch exceed 65504, the largest f16 number. */
static void f16_lowers_the_loss_scale_until_gradients_are_finite(void **state) {
    (void)state;
    tu_train_result one = TU_SIZED(tu_train_result), many = TU_SIZED(tu_train_result);
    assert_int_equal(train_long(&one, "cpu:0", "f16-one", .precision = "f16", .steps = 200), TU_OK);
    register_discrete_device();
    if (train_long(&many, "discrete:0", "f16-many", .precision = "f16", .steps = 200) != TU_OK)
        fail_msg("%s", tu_message());
    expect_same(&one, &many);
    assert_true(discrete.longest_call > 1);
    assert_true(isfinite(many.loss));
    float scale = scale_after("f16-one", 200);
    assert_true(scale >= 1 && scale < 65536 && scale == scale_after("f16-many", 200));
}

static void f16_learns(void **state) {
    (void)state;
    tu_train_result result = TU_SIZED(tu_train_result);
    assert_int_equal(train_long(&result, "cpu:0", "f16", .precision = "f16", .rate = 0.05), TU_OK);
    assert_true(result.test_accuracy > 0.9);
    assert_int_equal(train_long(NULL, "cpu:0", "f16-micro-batches", .precision = "f16", .accumulate = 2),
                     TU_UNSUPPORTED);
    assert_non_null(strstr(tu_message(), "--precision f16 cannot be combined with --accumulate 2"));
}

/* The CPU device has no tf32: it computes in f32. */
static void tf32_is_f32_on_the_cpu(void **state) {
    (void)state;
    tu_train_result plain = TU_SIZED(tu_train_result), tf32 = TU_SIZED(tu_train_result);
    assert_int_equal(train_long(&plain, "cpu:0", "f32", .steps = 50), TU_OK);
    assert_int_equal(train_long(&tf32, "cpu:0", "tf32", .steps = 50, .precision = "tf32", .tune_kernels = 1),
                     TU_OK);
    assert_string_equal(plain.digest, tf32.digest);
}

static int begin_with_long_calls(void **state) {
    tu__multi_step_loop_seconds = 1e9;
    return begin_fresh(state);
}

#define with_long_calls(test) cmocka_unit_test_setup_teardown(test, begin_with_long_calls, end_fresh)

int main(void) {
    const struct CMUnitTest tests[] = {
        with_long_calls(multi_step_calls_give_the_result_of_single_steps),
        with_long_calls(a_scattered_validation_split_gives_the_same_result_from_a_table),
        with_long_calls(a_failing_step_in_a_multi_step_call_keeps_the_state_before_it),
        with_long_calls(a_resumed_run_is_bit_identical),
        with_long_calls(an_unreadable_image_loses_no_step_before_it),
        with_long_calls(f16_lowers_the_loss_scale_until_gradients_are_finite),
        with_long_calls(f16_learns),
        with_long_calls(tf32_is_f32_on_the_cpu),
        with_long_calls(gradient_accumulation_uses_no_multi_step_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
