/* A step with a non-finite value changes nothing, and the message names the step and the cause. */
#include "train/checkpoint_digest.h"
#include "train/fresh_run.h"

static void a_nan_pixel_is_reported_as_the_input(void **state) {
    (void)state;
    small_dataset_nan = 7;
    tu_status status =
        tu_train("mlp", NULL, NULL, .set = set, .out = in_scratch("run").text, SMALL_RUN, .epochs = 2);
    small_dataset_nan = -1;
    assert_int_equal(status, TU_NUMERIC);
    expect_message("first non-finite value: input 'images', training image 7 of the data set");
    expect_message("fix or remove it");
}

static void a_nan_pixel_in_a_later_micro_batch_is_found(void **state) {
    (void)state;
    small_dataset_nan = 7;
    tu_status status = tu_train("mlp", NULL, NULL, .set = set, .out = in_scratch("run").text, SMALL_RUN,
                                .epochs = 2, .accumulate = 4);
    small_dataset_nan = -1;
    assert_int_equal(status, TU_NUMERIC);
    expect_message("input 'images', training image 7 of the data set");
}

/* Every micro-batch updates the running statistics of batch normalisation, also those before the one with the NaN. */
#define WITH_ACCUMULATION                                                                                    \
    .recipe = "plain", .devices = "cpu:0", .threads = 1, .base = 4, .batch = SMALL_BATCH, .accumulate = 4,   \
    .seed = 5

static void a_nan_in_the_last_micro_batch_undoes_the_earlier_ones(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run");
    char digest[TU_DIGEST_TEXT];
    tu_train_result shorter = TU_SIZED(tu_train_result);
    small_dataset_nan = image_of_step(3, 5, -1);
    tu_status status =
        tu_train("resnet20", NULL, NULL, .set = set, .out = run.text, WITH_ACCUMULATION, .epochs = 2);
    small_dataset_nan = -1;
    assert_int_equal(status, TU_NUMERIC);
    expect_message("step 3: ");
    expect_message("the state before the error is saved as checkpoint 2");
    assert_int_equal(tu_train("resnet20", NULL, &shorter, .set = set, .out = in_scratch("shorter").text,
                              WITH_ACCUMULATION, .steps = 2),
                     TU_OK);
    checkpoint_digest(run.text, "step-2", digest);
    assert_string_equal(digest, shorter.digest);
}

static void a_too_high_learning_rate_reports_the_operation_and_keeps_the_state(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run");
    tu_status status =
        tu_train("mlp", NULL, NULL, .set = set, .out = run.text, SMALL_RUN, .recipe = "plain", .epochs = 50,
                 .rate = 1e6, .optimizer = "sgd", .checkpoint_every = 1, .keep = 1000);
    assert_int_equal(status, TU_NUMERIC);
    expect_message("first non-finite value: operation '");
    long long step = 0, saved = -1;
    assert_int_equal(sscanf(tu_message(), "step %lld:", &step), 1);
    const char *where = strstr(tu_message(), "the state before the error is saved as checkpoint ");
    assert_non_null(where);
    assert_int_equal(sscanf(where, "the state before the error is saved as checkpoint %lld", &saved), 1);
    assert_int_equal(saved, step - 1);

    /* The same run with one step less ends in the saved state. */
    tu_train_result shorter = TU_SIZED(tu_train_result);
    train_small(set, &shorter, .out = in_scratch("shorter").text, .recipe = "plain", .epochs = 50,
                .rate = 1e6, .optimizer = "sgd", .steps = step - 1);
    char name[32], digest[TU_DIGEST_TEXT];
    snprintf(name, sizeof name, "step-%lld", saved);
    checkpoint_digest(run.text, name, digest);
    assert_string_equal(digest, shorter.digest);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        fresh(a_nan_pixel_is_reported_as_the_input),
        fresh(a_nan_pixel_in_a_later_micro_batch_is_found),
        fresh(a_nan_in_the_last_micro_batch_undoes_the_earlier_ones),
        fresh(a_too_high_learning_rate_reports_the_operation_and_keeps_the_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
