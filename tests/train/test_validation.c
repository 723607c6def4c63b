/* The validation split is not trained on, and the test split is evaluated once, at the end. */
#include "train/fresh_run.h"

#include <stdatomic.h>

/* A data set without its own validation split that counts reads of images; loaders read in other threads. */
static bool is_validation[SMALL_TRAIN]; /* images of its validation split */
static atomic_int trained_on, validated_with, tested_with;

static tu_status count_and_read(void *context, tu_split split, int64_t index, void *image, int32_t *label) {
    atomic_int *count = split == TU_TEST       ? &tested_with
                        : is_validation[index] ? &validated_with
                                               : &trained_on;
    atomic_fetch_add(count, 1);
    return small_dataset_read(context, split, index, image, label);
}

static tu_dataset *counting_set(void) {
    const tu_source source = {.struct_size = sizeof source,
                              .name = "counting",
                              .count = {SMALL_TRAIN, SMALL_TEST},
                              .height = SMALL_SIDE,
                              .width = SMALL_SIDE,
                              .channels = 1,
                              .dtype = TU_F32,
                              .classes = SMALL_CLASSES,
                              .read = count_and_read};
    tu_dataset *created;
    assert_int_equal(tu_dataset_from(&source, &created), TU_OK);
    return created;
}

/* Iterates once over the images inside or outside the validation split and marks each. The marks are set at the end:
 * meanwhile the loader's threads may read them. */
static void mark_images(const tu_dataset *of, uint64_t seed, int64_t validation, bool validation_only,
                        bool *marks) {
    tu_loader *loader;
    tu_batch batch = TU_SIZED(tu_batch);
    bool seen[SMALL_TRAIN] = {0};
    assert_int_equal(tu_loader_new(of, &loader, .batch = 9, .seed = seed, .shuffle = true,
                                   .validation = validation, .validation_only = validation_only),
                     TU_OK);
    while (tu_loader_next(loader, &batch) == TU_OK && batch.epoch == 0)
        for (int64_t i = 0; i < batch.count; i++) {
            assert_false(seen[batch.indices[i]]);
            seen[batch.indices[i]] = true;
        }
    tu_loader_free(loader);
    memcpy(marks, seen, sizeof seen);
}

static int count_marks(const bool *marks) {
    int count = 0;
    for (int i = 0; i < SMALL_TRAIN; i++) count += marks[i];
    return count;
}

/* ---- The validation split ---- */

static void the_split_is_the_same_for_every_seed(void **state) {
    (void)state;
    tu_dataset *of = counting_set();
    bool first[SMALL_TRAIN], other[SMALL_TRAIN], rest[SMALL_TRAIN], larger[SMALL_TRAIN];
    mark_images(of, 1, 7, true, first);
    mark_images(of, 2, 7, true, other);
    mark_images(of, 3, 7, false, rest);
    mark_images(of, 1, 20, true, larger);
    assert_int_equal(count_marks(first), 7);
    assert_int_equal(count_marks(rest), SMALL_TRAIN - 7);
    assert_int_equal(count_marks(larger), 20);
    assert_memory_equal(first, other, sizeof first);
    for (int i = 0; i < SMALL_TRAIN; i++) {
        assert_true(first[i] != rest[i]);
        assert_true(!first[i] || larger[i]);
    }
    tu_dataset_free(of);
}

static void a_data_set_may_have_its_own_split_at_its_end(void **state) {
    (void)state;
    bool own[SMALL_TRAIN];
    mark_images(set, 1, SMALL_VALIDATION, true, own);
    for (int i = 0; i < SMALL_TRAIN; i++) assert_int_equal(own[i], i >= SMALL_TRAINED);
    tu_loader *loader;
    expect_error(tu_loader_new(set, &loader, .validation = SMALL_TRAIN), TU_INVALID,
                 "validation split of 70 images: expected 1 to 69");
    expect_error(tu_loader_new(set, &loader, .split = TU_TEST, .validation = 2), TU_INVALID, "TU_TRAIN");
}

/* ---- What a run reads ---- */

/* Counts the evaluations. */
static struct {
    int validations, tests;
    int64_t test_at;
} evaluations;

static void count_evaluations(void *context, const tu_train_report *report) {
    (void)context;
    if (report->event == TU_TRAIN_VALIDATED) evaluations.validations++;
    if (report->event == TU_TRAIN_EVALUATED) evaluations.tests++, evaluations.test_at = report->step;
}

/* Also checks that nothing is read too early. */
static void check_reads(void *context, const tu_train_report *report) {
    count_evaluations(context, report);
    if (report->event == TU_TRAIN_BEGUN) trained_on = validated_with = tested_with = 0;
    if (report->event == TU_TRAIN_STEPPED && !evaluations.validations) assert_int_equal(validated_with, 0);
    if (report->event == TU_TRAIN_STEPPED || report->event == TU_TRAIN_VALIDATED)
        assert_int_equal(tested_with, 0);
}

static void test_images_are_evaluated_once_and_validation_images_are_not_trained_on(void **state) {
    (void)state;
    tu_dataset *of = counting_set();
    tu_train_result result = TU_SIZED(tu_train_result);
    memset(&evaluations, 0, sizeof evaluations);
    mark_images(of, 1, 7, true, is_validation);
    train_small(of, &result, .out = in_scratch("run").text, .epochs = 5, .on_report = check_reads);
    assert_int_equal(result.validation_images, 7);
    assert_int_equal(result.train_images, SMALL_TRAIN - 7);
    assert_int_equal(evaluations.validations, 5);
    assert_int_equal(evaluations.tests, 1);
    assert_int_equal(evaluations.test_at, result.steps);
    assert_true(trained_on > 0 && validated_with > 0 && tested_with >= SMALL_TEST);
    assert_true(result.test_largest_class > 0.3 && result.test_largest_class < 0.4);
    assert_true(exists(in_scratch("run").text, "checkpoints/best.safetensors"));
    tu_dataset_free(of);
}

static void without_validation_all_images_are_trained_on(void **state) {
    (void)state;
    tu_train_result result = TU_SIZED(tu_train_result);
    struct scratch_path run = in_scratch("run");
    memset(&evaluations, 0, sizeof evaluations);
    train_small(set, &result, .out = run.text, .epochs = 3, .validation = -1, .on_report = count_evaluations);
    assert_int_equal(result.train_images, SMALL_TRAIN);
    assert_int_equal(result.validation_step, -1);
    assert_int_equal(result.best_step, -1);
    assert_int_equal(evaluations.validations, 0);
    assert_int_equal(evaluations.tests, 1);
    assert_false(exists(run.text, "checkpoints/best.safetensors"));
    assert_true(exists(run.text, "curves.svg"));
    expect_error(tu_train("mlp", NULL, NULL, .set = set, .out = in_scratch("none").text, SMALL_RUN,
                          .validation = -1, .early_stop = 2),
                 TU_INVALID, "--early-stop needs a validation split");
    expect_error(tu_train("mlp", NULL, NULL, .set = set, .out = in_scratch("none").text, SMALL_RUN,
                          .recipe = "tutorial", .evaluate_every = 5),
                 TU_INVALID, "--evaluate-every needs a validation split");
}

static void the_weights_do_not_depend_on_evaluations(void **state) {
    (void)state;
    tu_train_result often = TU_SIZED(tu_train_result), seldom = TU_SIZED(tu_train_result);
    train_small(set, &often, .out = in_scratch("often").text, .epochs = 3, .evaluate_every = 1);
    train_small(set, &seldom, .out = in_scratch("seldom").text, .epochs = 3, .evaluate_every = 100);
    assert_string_equal(often.digest, seldom.digest);
}

static void invalid_validation_splits_fail(void **state) {
    (void)state;
    const struct {
        double given;
        const char *part;
    } bad[] = {{1, "--validation 1: expected a fraction below 1"},
               {2.5, "--validation 2.5: expected a fraction below 1"},
               {70, "--validation 70: expected fewer than the 70 training images of the data set"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_error(tu_train("mlp", NULL, NULL, .set = set, .out = in_scratch("run").text, SMALL_RUN,
                              .validation = bad[i].given),
                     TU_INVALID, bad[i].part);
    assert_false(exists(scratch, "run"));
}

/* ---- Runs of earlier versions ---- */

/* Makes the configuration of a run without validation look like that of a version without this setting. */
static void make_config_old(const char *run) {
    replace_in_config(run, "\"validation\":0,\"skip_bad\":false,\"ignore_label\":\"\",", "");
    assert_int_equal(count_lines(run, "config.json", "validation"), 0);
}

static void a_run_of_an_earlier_version_still_selects_on_the_test_images(void **state) {
    (void)state;
    tu_train_result whole = TU_SIZED(tu_train_result), result = TU_SIZED(tu_train_result);
    struct scratch_path run = in_scratch("run");
    train_small(set, &whole, .out = in_scratch("whole").text, .epochs = 4, .validation = -1);
    stop_flag = 0;
    stop_at = 2;
    train_small(set, &result, .out = run.text, .epochs = 4, .validation = -1, .stop = &stop_flag,
                .on_report = stop_there);
    make_config_old(run.text);
    memset(&evaluations, 0, sizeof evaluations);
    assert_int_equal(tu_train(run.text, NULL, &result, .set = set, .resume = true, .keep = 7,
                              .on_report = count_evaluations),
                     TU_OK);
    assert_string_equal(result.digest, whole.digest);
    assert_int_equal(evaluations.tests, 4);
    assert_int_equal(evaluations.validations, 0);
    assert_true(result.best_step > 0);
    assert_true(exists(run.text, "checkpoints/best.safetensors"));
    /* The changed setting was saved, and the run still selects on the test images. */
    assert_int_equal(count_lines(run.text, "config.json", "\"looks_at_test\":true"), 1);
    assert_int_equal(tu_train(run.text, NULL, &result, .set = set, .resume = true), TU_OK);
    assert_string_equal(result.digest, whole.digest);
}

/* ---- Length ---- */

static void a_small_data_set_is_trained_for_a_minimum_number_of_steps(void **state) {
    (void)state;
    tu_train_result result = TU_SIZED(tu_train_result);
    notice_log[0] = '\0';
    train_small(set, &result, .out = in_scratch("run").text, .recipe = "plain", .on_report = keep_notices);
    assert_int_equal(result.steps, 300);
    assert_non_null(strstr(notice_log, "75 epochs instead of 10, for at least 300 steps"));
    assert_int_equal(count_lines(in_scratch("run").text, "metrics.jsonl", "validation_loss"), 19);
    train_small(set, &result, .out = in_scratch("given").text, .epochs = 2);
    assert_int_equal(result.steps, 2 * SMALL_STEPS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        fresh(the_split_is_the_same_for_every_seed),
        fresh(a_data_set_may_have_its_own_split_at_its_end),
        fresh(test_images_are_evaluated_once_and_validation_images_are_not_trained_on),
        fresh(without_validation_all_images_are_trained_on),
        fresh(the_weights_do_not_depend_on_evaluations),
        fresh(invalid_validation_splits_fail),
        fresh(a_run_of_an_earlier_version_still_selects_on_the_test_images),
        fresh(a_small_data_set_is_trained_for_a_minimum_number_of_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
