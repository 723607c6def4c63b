/* Honest training: what a run chooses by is kept out of what it trains on, and the test images are looked at once. */
#include "train/fresh_run.h"

#include <stdatomic.h>

/* A set without a validation part of its own, that counts how often images were read; loaders do it ahead, in threads. */
static bool inside[SMALL_TRAIN]; /* its validation part */
static atomic_int trained_on, validated_with, tested_with;

static tu_status note_and_read(void *context, tu_split split, int64_t index, void *image, int32_t *label) {
    atomic_int *count = split == TU_TEST ? &tested_with : inside[index] ? &validated_with : &trained_on;
    atomic_fetch_add(count, 1);
    return small_set_read(context, split, index, image, label);
}

static tu_dataset *noting_set(void) {
    const tu_source source = {.struct_size = sizeof source,
                              .name = "noting",
                              .count = {SMALL_TRAIN, SMALL_TEST},
                              .height = SMALL_SIDE,
                              .width = SMALL_SIDE,
                              .channels = 1,
                              .dtype = TU_F32,
                              .classes = SMALL_CLASSES,
                              .read = note_and_read};
    tu_dataset *made;
    assert_int_equal(tu_dataset_from(&source, &made), TU_OK);
    return made;
}

/* Walks a part of the training images once: a mark for each. */
static void mark_part(const tu_dataset *of, uint64_t seed, int64_t validation, bool validating, bool *marks) {
    tu_loader *loader;
    tu_batch batch = TU_SIZED(tu_batch);
    memset(marks, 0, SMALL_TRAIN * sizeof *marks);
    assert_int_equal(tu_loader_new(of, &loader, .batch = 9, .seed = seed, .shuffle = true,
                                   .validation = validation, .validating = validating),
                     TU_OK);
    while (tu_loader_next(loader, &batch) == TU_OK && batch.epoch == 0)
        for (int64_t i = 0; i < batch.count; i++) {
            assert_false(marks[batch.indices[i]]);
            marks[batch.indices[i]] = true;
        }
    tu_loader_free(loader);
}

static int count_marks(const bool *marks) {
    int count = 0;
    for (int i = 0; i < SMALL_TRAIN; i++) count += marks[i];
    return count;
}

/* ---- The part ---- */

static void the_part_is_the_same_for_every_seed_and_the_rest_is_the_others(void **state) {
    (void)state;
    tu_dataset *of = noting_set();
    bool first[SMALL_TRAIN], other[SMALL_TRAIN], rest[SMALL_TRAIN], larger[SMALL_TRAIN];
    mark_part(of, 1, 7, true, first);
    mark_part(of, 2, 7, true, other);
    mark_part(of, 3, 7, false, rest);
    mark_part(of, 1, 20, true, larger);
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

static void a_set_has_its_own_part_at_the_end(void **state) {
    (void)state;
    bool own[SMALL_TRAIN];
    mark_part(set, 1, SMALL_VALIDATION, true, own);
    for (int i = 0; i < SMALL_TRAIN; i++) assert_int_equal(own[i], i >= SMALL_TRAINED);
    tu_loader *loader;
    expect_refusal(tu_loader_new(set, &loader, .validation = SMALL_TRAIN), TU_INVALID,
                   "validation part of 70 images: expected 1 to 69");
    expect_refusal(tu_loader_new(set, &loader, .split = TU_TEST, .validation = 2), TU_INVALID, "TU_TRAIN");
}

/* ---- What a run looks at ---- */

/* Counts the steps and what was evaluated when. */
static struct {
    int validations, tests;
    int64_t test_at;
} seen;

static void see(void *context, const tu_train_report *report) {
    (void)context;
    if (report->event == TU_TRAIN_VALIDATED) seen.validations++;
    if (report->event == TU_TRAIN_EVALUATED) seen.tests++, seen.test_at = report->step;
}

/* The same, and that nothing is read before its time. */
static void see_reads(void *context, const tu_train_report *report) {
    see(context, report);
    if (report->event == TU_TRAIN_BEGUN) trained_on = validated_with = tested_with = 0;
    if (report->event == TU_TRAIN_STEPPED && !seen.validations) assert_int_equal(validated_with, 0);
    if (report->event == TU_TRAIN_STEPPED || report->event == TU_TRAIN_VALIDATED)
        assert_int_equal(tested_with, 0);
}

static void the_test_images_are_looked_at_once_and_the_part_is_not_trained_on(void **state) {
    (void)state;
    tu_dataset *of = noting_set();
    tu_train_result result = TU_SIZED(tu_train_result);
    memset(&seen, 0, sizeof seen);
    mark_part(of, 1, 7, true, inside);
    train_small(of, &result, .out = in_scratch("run").text, .epochs = 5, .watch = see_reads);
    assert_int_equal(result.validation_images, 7);
    assert_int_equal(result.train_images, SMALL_TRAIN - 7);
    assert_int_equal(seen.validations, 5);
    assert_int_equal(seen.tests, 1);
    assert_int_equal(seen.test_at, result.steps);
    assert_true(trained_on > 0 && validated_with > 0 && tested_with >= SMALL_TEST);
    assert_true(result.test_largest > 0.3 && result.test_largest < 0.4);
    assert_true(exists(in_scratch("run").text, "checkpoints/best.safetensors"));
    tu_dataset_free(of);
}

static void without_a_part_nothing_is_chosen_and_all_is_trained_on(void **state) {
    (void)state;
    tu_train_result result = TU_SIZED(tu_train_result);
    struct scratch_path run = in_scratch("run");
    memset(&seen, 0, sizeof seen);
    train_small(set, &result, .out = run.text, .epochs = 3, .validation = -1, .watch = see);
    assert_int_equal(result.train_images, SMALL_TRAIN);
    assert_int_equal(result.validation_step, -1);
    assert_int_equal(result.best_step, -1);
    assert_int_equal(seen.validations, 0);
    assert_int_equal(seen.tests, 1);
    assert_false(exists(run.text, "checkpoints/best.safetensors"));
    assert_true(exists(run.text, "curves.svg"));
    expect_refusal(tu_train("mlp", NULL, NULL, .set = set, .out = in_scratch("none").text, SMALL_RUN,
                            .validation = -1, .early_stop = 2),
                   TU_INVALID, "--early-stop without a validation part");
    expect_refusal(tu_train("mlp", NULL, NULL, .set = set, .out = in_scratch("none").text, SMALL_RUN,
                            .recipe = "tutorial", .evaluate_every = 5),
                   TU_INVALID, "--evaluate-every without a validation part");
}

static void the_weights_do_not_depend_on_evaluations(void **state) {
    (void)state;
    tu_train_result often = TU_SIZED(tu_train_result), seldom = TU_SIZED(tu_train_result);
    train_small(set, &often, .out = in_scratch("often").text, .epochs = 3, .evaluate_every = 1);
    train_small(set, &seldom, .out = in_scratch("seldom").text, .epochs = 3, .evaluate_every = 100);
    assert_string_equal(often.digest, seldom.digest);
}

static void parts_that_cannot_be_are_refused(void **state) {
    (void)state;
    const struct {
        double given;
        const char *part;
    } bad[] = {{1, "--validation 1: expected a share below 1"},
               {2.5, "--validation 2.5: expected a share below 1"},
               {70, "--validation 70: expected fewer images than the 70 of the set"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refusal(tu_train("mlp", NULL, NULL, .set = set, .out = in_scratch("run").text, SMALL_RUN,
                                .validation = bad[i].given),
                       TU_INVALID, bad[i].part);
    assert_false(exists(scratch, "run"));
}

/* ---- Runs of earlier versions ---- */

/* Turns a run without a validation part into one as they were written before there was such a setting. */
static void make_old(const char *run) {
    replace_in_config(run, "\"validation\":0,\"skip_bad\":false,\"ignore_label\":\"\",", "");
    assert_int_equal(count_lines(run, "config.json", "validation"), 0);
}

static void a_run_begun_before_goes_on_by_the_test_images(void **state) {
    (void)state;
    tu_train_result whole = TU_SIZED(tu_train_result), result = TU_SIZED(tu_train_result);
    struct scratch_path run = in_scratch("run");
    train_small(set, &whole, .out = in_scratch("whole").text, .epochs = 4, .validation = -1);
    stop_flag = 0;
    stop_at = 2;
    train_small(set, &result, .out = run.text, .epochs = 4, .validation = -1, .stop = &stop_flag,
                .watch = stop_there);
    make_old(run.text);
    memset(&seen, 0, sizeof seen);
    assert_int_equal(tu_train(run.text, NULL, &result, .set = set, .resume = true, .keep = 7, .watch = see),
                     TU_OK);
    assert_string_equal(result.digest, whole.digest);
    assert_int_equal(seen.tests, 4);
    assert_int_equal(seen.validations, 0);
    assert_true(result.best_step > 0);
    assert_true(exists(run.text, "checkpoints/best.safetensors"));
    /* The change was written down, and the run stays what it was. */
    assert_int_equal(count_lines(run.text, "config.json", "\"looks_at_test\":true"), 1);
    assert_int_equal(tu_train(run.text, NULL, &result, .set = set, .resume = true), TU_OK);
    assert_string_equal(result.digest, whole.digest);
}

/* ---- Length ---- */

static void a_small_set_gets_a_least_number_of_steps(void **state) {
    (void)state;
    tu_train_result result = TU_SIZED(tu_train_result);
    told[0] = '\0';
    train_small(set, &result, .out = in_scratch("run").text, .recipe = "plain", .watch = keep_notices);
    assert_int_equal(result.steps, 300);
    assert_non_null(strstr(told, "75 epochs instead of 10, for at least 300 steps"));
    assert_int_equal(count_lines(in_scratch("run").text, "metrics.jsonl", "validation_loss"), 19);
    train_small(set, &result, .out = in_scratch("given").text, .epochs = 2);
    assert_int_equal(result.steps, 2 * SMALL_STEPS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        fresh(the_part_is_the_same_for_every_seed_and_the_rest_is_the_others),
        fresh(a_set_has_its_own_part_at_the_end),
        fresh(the_test_images_are_looked_at_once_and_the_part_is_not_trained_on),
        fresh(without_a_part_nothing_is_chosen_and_all_is_trained_on),
        fresh(the_weights_do_not_depend_on_evaluations),
        fresh(parts_that_cannot_be_are_refused),
        fresh(a_run_begun_before_goes_on_by_the_test_images),
        fresh(a_small_set_gets_a_least_number_of_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
