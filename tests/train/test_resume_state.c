/* Resumes runs whose state is more than weights: gradient accumulation, batch normalisation, early stopping, the best
 * checkpoint. All of them continue as if nothing had happened. */
#include "train/checkpoint_digest.h"
#include "train/fresh_run.h"

#define FULL_STATE                                                                                           \
    .devices = "cpu:0", .threads = 1, .batch = SMALL_BATCH, .base = 4, .epochs = 2, .accumulate = 4,         \
    .average = 0.9, .optimizer = "nesterov", .rate = 0.05, .schedule = "cosine", .flip = 1

static tu_status train_full_state(const char *folder, bool resume, tu_train_result *result) {
    stop_flag = 0;
    return tu_train("resnet20", NULL, result, .set = set, .out = folder, .resume = resume, .stop = &stop_flag,
                    .on_report = stop_there, FULL_STATE);
}

static void expect_same_results(const tu_train_result *a, const tu_train_result *b) {
    assert_string_equal(a->digest, b->digest);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->stopped_early, b->stopped_early);
    assert_int_equal(a->best_step, b->best_step);
    assert_true(a->best_accuracy == b->best_accuracy && a->test_loss == b->test_loss && a->loss == b->loss);
    char best_of_a[TU_DIGEST_TEXT], best_of_b[TU_DIGEST_TEXT];
    checkpoint_digest(a->folder, "best", best_of_a);
    checkpoint_digest(b->folder, "best", best_of_b);
    assert_string_equal(best_of_a, best_of_b);
}

static void accumulation_statistics_and_averages_are_resumed(void **state) {
    (void)state;
    tu_train_result whole = TU_SIZED(tu_train_result), result = TU_SIZED(tu_train_result);
    char name[32];
    stop_at = -1;
    assert_int_equal(train_full_state(in_scratch("whole").text, false, &whole), TU_OK);
    for (int64_t at = 1; at < 2 * SMALL_STEPS;
         at += 2) { /* step 4 has the short batch: stop before and after it */
        snprintf(name, sizeof name, "stopped-%d", (int)at);
        struct scratch_path folder = in_scratch(name);
        stop_at = at;
        assert_int_equal(train_full_state(folder.text, false, &result), TU_OK);
        assert_int_equal(result.step, at);
        stop_at = -1;
        assert_int_equal(train_full_state(folder.text, true, &result), TU_OK);
        expect_same_results(&whole, &result);
    }
}

/* With a learning rate of zero the accuracy never improves after the first evaluation. */
#define STALLED SMALL_RUN, .recipe = "plain", .epochs = 10, .rate = -1, .early_stop = 2, .evaluate_every = 3

static tu_status train_stalled(const char *folder, bool resume, tu_train_result *result) {
    stop_flag = 0;
    return tu_train("mlp", NULL, result, .set = set, .out = folder, .resume = resume, .stop = &stop_flag,
                    .on_report = stop_there, STALLED);
}

static void early_stopping_continues_its_count(void **state) {
    (void)state;
    tu_train_result whole = TU_SIZED(tu_train_result), result = TU_SIZED(tu_train_result);
    stop_at = -1;
    assert_int_equal(train_stalled(in_scratch("whole").text, false, &whole), TU_OK);
    assert_true(whole.stopped_early);
    assert_int_equal(whole.best_step, 3);
    assert_int_equal(whole.step,
                     12); /* first evaluation at least two epochs (eight steps) after the best one */
    struct scratch_path folder = in_scratch("stopped");
    for (stop_at = 2; stop_at < 12; stop_at += 3)
        assert_int_equal(train_stalled(folder.text, stop_at > 2, &result), TU_OK);
    stop_at = -1;
    assert_int_equal(train_stalled(folder.text, true, &result), TU_OK);
    expect_same_results(&whole, &result);

    /* A run that has stopped early stays stopped. */
    assert_int_equal(train_stalled(folder.text, true, &result), TU_OK);
    expect_same_results(&whole, &result);
}

static void the_best_accuracy_is_resumed(void **state) {
    (void)state;
    tu_train_result whole = TU_SIZED(tu_train_result), result = TU_SIZED(tu_train_result);
    struct scratch_path folder = in_scratch("stopped");
    train_small(set, &whole, .out = in_scratch("whole").text, .epochs = 6, .optimizer = "adam", .rate = 0.01,
                .evaluate_every = 1);
    stop_flag = 0;
    stop_at = whole.best_step + 1; /* just after the best step; beyond the end the run is not stopped */
    train_small(set, &result, .out = folder.text, .epochs = 6, .optimizer = "adam", .rate = 0.01,
                .evaluate_every = 1, .stop = &stop_flag, .on_report = stop_there);
    assert_int_equal(result.best_step, whole.best_step);
    assert_int_equal(tu_train(folder.text, NULL, &result, .set = set, .resume = true), TU_OK);
    expect_same_results(&whole, &result);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        fresh(accumulation_statistics_and_averages_are_resumed),
        fresh(early_stopping_continues_its_count),
        fresh(the_best_accuracy_is_resumed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
