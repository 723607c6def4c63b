/* Interruptions of a run: an unreadable image, a failing evaluation, a full disk when the best checkpoint is saved,
 * Ctrl-C at an awkward moment. No training progress is lost. */
#include "train/fresh_run.h"

#include "unit/fake_disk.h"

#define RUN .epochs = 3, .optimizer = "adam", .rate = 0.01, .checkpoint_every = 100

/* ---- Reading ---- */

/* Trains with an unreadable image, resumes when it is readable, and compares with an undisturbed run. */
static void expect_same_result_after_resume(tu_split split, int64_t index, const char *saved) {
    struct scratch_path run = in_scratch("run");
    tu_train_result whole = TU_SIZED(tu_train_result), result = TU_SIZED(tu_train_result);
    train_small(set, &whole, .out = in_scratch("whole").text, RUN);
    small_dataset_unreadable[split] = index;
    assert_int_equal(tu_train("mlp", NULL, NULL, .set = set, .out = run.text, SMALL_RUN, RUN), TU_IO);
    small_dataset_unreadable[split] = -1;
    expect_message("cannot be read; the state before the error is saved as checkpoint ");
    assert_true(exists(run.text, saved));
    if (tu_train(run.text, NULL, &result, .set = set, .resume = true) != TU_OK) fail_msg("%s", tu_message());
    assert_string_equal(result.digest, whole.digest);
    assert_int_equal(result.best_step, whole.best_step);
    assert_true(result.test_loss == whole.test_loss);
}

static void an_unreadable_training_image_loses_no_step(void **state) {
    (void)state;
    expect_same_result_after_resume(TU_TRAIN, image_of_step(3, 1, 4), "checkpoints/step-2.safetensors");
}

static void a_failed_validation_loses_no_step_and_is_repeated(void **state) {
    (void)state;
    expect_same_result_after_resume(TU_TRAIN, SMALL_TRAINED + 5, "checkpoints/step-4.safetensors");
}

static void a_failed_test_evaluation_loses_no_step_and_is_repeated(void **state) {
    (void)state;
    expect_same_result_after_resume(TU_TEST, 5, "checkpoints/step-12.safetensors");
}

/* ---- The best checkpoint ---- */

static struct best_watch {
    double accuracy; /* the highest so far */
    bool failing, was_there, done;
    char notice[1024];
} best;

/* Fills the disk at the first evaluation, until writing the checkpoint of that step has failed. */
static void fill_disk_until_checkpoint(void *context, const tu_train_report *report) {
    (void)context;
    if (report->event == TU_TRAIN_VALIDATED && report->step == SMALL_STEPS) fake_disk_fail_from(1, ENOSPC);
    if (report->event == TU_TRAIN_NOTICE && strstr(report->message, "step-4.safetensors")) fake_disk_remove();
    if (report->event == TU_TRAIN_STEPPED && report->step == SMALL_STEPS + 1)
        best.was_there = exists(report->folder, "checkpoints/best.safetensors");
}

static void saving_the_best_checkpoint_is_retried(void **state) {
    (void)state;
    best = (struct best_watch){0};
    train_small(set, NULL, .out = in_scratch("run").text, .epochs = 2,
                .on_report = fill_disk_until_checkpoint);
    assert_true(best.was_there);
}

/* Fills the disk when the accuracy improves for the second time, until the next step. */
static void fill_disk_at_improvement(void *context, const tu_train_report *report) {
    (void)context;
    if (report->event == TU_TRAIN_VALIDATED && report->validation_accuracy > best.accuracy) {
        best.accuracy = report->validation_accuracy;
        if (report->step > SMALL_STEPS && !best.done) {
            best.was_there = exists(report->folder, "checkpoints/best.safetensors");
            best.failing = best.done = true;
            fake_disk_fail_from(1, ENOSPC);
        }
    }
    if (report->event == TU_TRAIN_NOTICE && strstr(report->message, "best.safetensors"))
        snprintf(best.notice, sizeof best.notice, "%s", report->message);
    if (report->event == TU_TRAIN_STEPPED && best.failing) {
        fake_disk_remove();
        best.failing = false;
        assert_true(best.was_there);
        assert_false(exists(report->folder, "checkpoints/best.safetensors"));
    }
}

static void an_outdated_best_checkpoint_is_removed(void **state) {
    (void)state;
    best = (struct best_watch){.accuracy = -1};
    train_small(set, NULL, .out = in_scratch("run").text, .epochs = 12, .optimizer = "adam", .rate = 0.005,
                .on_report = fill_disk_at_improvement);
    assert_true(best.done);
    assert_non_null(strstr(best.notice, "the best state so far, of step "));
    assert_non_null(strstr(best.notice, "of an earlier step, is removed"));
}

/* ---- Ctrl-C ---- */

/* Sets the flag after the trainer has decided whether to save: during a checkpoint that fails. */
static void stop_in_a_checkpoint(void *context, const tu_train_report *report) {
    (void)context;
    if (report->event == TU_TRAIN_STEPPED && report->step == 2) fake_disk_fail_from(1, ENOSPC);
    if (report->event != TU_TRAIN_NOTICE || !strstr(report->message, "step-2.safetensors")) return;
    fake_disk_remove();
    stop_flag = 1;
}

static void a_stop_during_a_checkpoint_is_saved(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run");
    tu_train_result result = TU_SIZED(tu_train_result);
    char name[64];
    stop_flag = 0;
    train_small(set, &result, .out = run.text, .epochs = 3, .checkpoint_every = 2, .stop = &stop_flag,
                .on_report = stop_in_a_checkpoint);
    assert_true(result.stopped);
    snprintf(name, sizeof name, "checkpoints/step-%lld.safetensors", (long long)result.step);
    assert_true(exists(run.text, name));
}

static int restore_disk_and_end(void **state) {
    fake_disk_remove();
    return end_fresh(state);
}

#define fresh_disk(test) cmocka_unit_test_setup_teardown(test, begin_fresh, restore_disk_and_end)

int main(void) {
    const struct CMUnitTest tests[] = {
        fresh_disk(an_unreadable_training_image_loses_no_step),
        fresh_disk(a_failed_validation_loses_no_step_and_is_repeated),
        fresh_disk(a_failed_test_evaluation_loses_no_step_and_is_repeated),
        fresh_disk(saving_the_best_checkpoint_is_retried),
        fresh_disk(an_outdated_best_checkpoint_is_removed),
        fresh_disk(a_stop_during_a_checkpoint_is_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
