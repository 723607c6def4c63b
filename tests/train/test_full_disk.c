/* Failing disks: every system call of a checkpoint, of a new run and of a resumed one fails in turn. Earlier
 * checkpoints are never lost, metrics never stop a run, and a run that cannot save its last state reports that. Tests
 * every few calls, unless TUTTI_EVERY_CALL is set. */
#include "train/fresh_run.h"

#include "train/run_folder.h"
#include "unit/fake_disk.h"

static int notices;
static char last_notice[1024];
static void count_notices(void *context, const tu_train_report *report) {
    (void)context;
    if (report->event != TU_TRAIN_NOTICE) return;
    notices++;
    snprintf(last_notice, sizeof last_notice, "%s", report->message);
}

#define RUN                                                                                                  \
    SMALL_RUN, .epochs = 2, .optimizer = "adam", .rate = 0.01, .checkpoint_every = 3,                        \
               .on_report = count_notices

static unsigned stride(unsigned default_stride) {
    return getenv("TUTTI_EVERY_CALL") ? 1 : default_stride;
}

static void remove_folder(const char *folder) {
    command("rm -rf '%s'", folder);
}

static void expected_digest(char digest[TU_DIGEST_TEXT]) {
    tu_train_result result = TU_SIZED(tu_train_result);
    assert_int_equal(tu_train("mlp", NULL, &result, .set = set, .out = in_scratch("whole").text, RUN), TU_OK);
    memcpy(digest, result.digest, TU_DIGEST_TEXT);
}

/* Makes the nth call of a run fail, then resumes the run on a working disk: the result is identical to that of an
 * undisturbed run. */
static void any_call_may_fail(int error, bool forever) {
    char digest[TU_DIGEST_TEXT];
    expected_digest(digest);
    struct scratch_path folder = in_scratch("run");
    unsigned calls = UINT32_MAX;
    int failed = 0, noticed = 0;
    for (unsigned nth = 1; nth <= calls; nth += stride(forever ? 7 : 2)) {
        tu_train_result result = TU_SIZED(tu_train_result);
        remove_folder(folder.text);
        notices = 0;
        if (forever)
            fake_disk_fail_from(nth, error);
        else
            fake_disk_fail_at(nth, error);
        tu_status status = tu_train("mlp", NULL, &result, .set = set, .out = folder.text, RUN);
        unsigned made = fake_disk_calls;
        fake_disk_remove();
        if (made < nth) break; /* beyond the last call */
        if (status == TU_OK)
            assert_string_equal(result.digest, digest);
        else
            assert_int_equal(status, TU_IO);
        if (status != TU_OK && !tu__run_folder_has_run(folder.text))
            assert_int_equal(access(folder.text, F_OK), -1); /* a failed start leaves no folder */
        failed += status != TU_OK;
        noticed += notices > 0;
        status = tu_train("mlp", NULL, &result, .set = set, .out = folder.text, .resume = true, RUN);
        if (status != TU_OK) print_message("call %u: %s\n", nth, tu_message());
        assert_int_equal(status, TU_OK);
        assert_string_equal(result.digest, digest);
    }
    assert_true(failed > 0);  /* creating the folder, saving the last state */
    assert_true(noticed > 0); /* all other calls */
}

static void a_temporarily_full_disk_loses_nothing(void **state) {
    (void)state;
    any_call_may_fail(ENOSPC, false);
}

static void a_disk_that_stays_full_loses_nothing(void **state) {
    (void)state;
    any_call_may_fail(ENOSPC, true);
}

static void a_disk_that_stays_broken_loses_nothing(void **state) {
    (void)state;
    any_call_may_fail(EIO, true);
}

/* ---- Power failure ---- */

/* Records the second half of a run, then simulates a power failure after every call, with every possible loss of
 * unflushed data. The resumed run is bit-identical, and its log has every line, because logs are flushed before a
 * checkpoint is written. */
static void a_power_failure_leaves_a_valid_checkpoint(void **state) {
    (void)state;
    char digest[TU_DIGEST_TEXT];
    expected_digest(digest);
    struct scratch_path folder = in_scratch("run"), after = in_scratch("after"), kept = in_scratch("kept");
    tu_train_result result = TU_SIZED(tu_train_result);
    stop_at = 4;
    stop_flag = 0;
    assert_int_equal(tu_train("mlp", NULL, &result, .set = set, .out = folder.text, SMALL_RUN, .epochs = 2,
                              .optimizer = "adam", .rate = 0.01, .checkpoint_every = 3, .stop = &stop_flag,
                              .on_report = stop_there),
                     TU_OK);
    assert_int_equal(result.step, 4);
    fake_disk_record(folder.text);
    assert_int_equal(tu_train(folder.text, NULL, &result, .set = set, .resume = true), TU_OK);
    unsigned calls = fake_disk_calls;
    fake_disk_remove();
    assert_string_equal(result.digest, digest);
    int lines = count_lines(folder.text, "metrics.jsonl", "");
    for (unsigned nth = 0; nth <= calls; nth += stride(5))
        for (int choice = 0; choice < FAKE_DISK_CHOICES; choice++) {
            remove_folder(after.text);
            assert_int_equal(mkdir(after.text, 0777), 0);
            fake_disk_crash(nth, choice, after.text);
            remove_folder(kept.text);
            command("cp -r '%s' '%s'", after.text, kept.text);
            tu_status status = tu_train(kept.text, NULL, &result, .set = set, .resume = true);
            if (status != TU_OK) print_message("call %u, choice %d: %s\n", nth, choice, tu_message());
            assert_int_equal(status, TU_OK);
            assert_string_equal(result.digest, digest);
            assert_int_equal(count_lines(kept.text, "metrics.jsonl", ""), lines);
        }
    fake_disk_forget();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        fresh(a_temporarily_full_disk_loses_nothing),
        fresh(a_disk_that_stays_full_loses_nothing),
        fresh(a_disk_that_stays_broken_loses_nothing),
        fresh(a_power_failure_leaves_a_valid_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
