/* If a device fails or hangs while it trains its shard of a batch, the run ends with one message that names it, and
 * can be resumed from its last checkpoint, on the same devices or on others. */
#include "faulty_device.h"

#include <time.h>

#include "train/checkpoint_digest.h"
#include "train/fresh_run.h"

/* Resources that a hung device may still use are never freed (tu_program_free), so leak detection is off. */
const char *__lsan_default_options(void);  // NOLINT(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
const char *__lsan_default_options(void) { // NOLINT(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
    return "detect_leaks=0";
}

/* ---- Runs ---- */

enum { STEPS = 8 };

#define MIRRORED                                                                                             \
    .devices = "cpu:0,faulty:0", .strategy = "mirrored", .threads = 1, .batch = SMALL_BATCH, .base = 8,      \
    .steps = STEPS, .recipe = "plain", .checkpoint_every = 1, .keep = STEPS

static int launches_of_a_run(void) {
    clear_faults();
    assert_int_equal(tu_train("mlp", NULL, NULL, .set = set, .out = in_scratch("whole").text, MIRRORED),
                     TU_OK);
    return faulty.launches;
}

/* The newest checkpoint is identical to that of an undisturbed run. Returns its step. */
static int64_t expect_good_checkpoint(const char *folder) {
    char name[64], path[64], expected[TU_DIGEST_TEXT], actual[TU_DIGEST_TEXT];
    int64_t newest = 0;
    for (int64_t i = 1; i <= STEPS; i++) {
        snprintf(path, sizeof path, "checkpoints/step-%d.safetensors", (int)i);
        if (exists(folder, path)) newest = i;
    }
    assert_true(newest > 0 && newest < STEPS);
    snprintf(name, sizeof name, "step-%d", (int)newest);
    checkpoint_digest(in_scratch("whole").text, name, expected);
    checkpoint_digest(folder, name, actual);
    assert_string_equal(actual, expected);
    return newest;
}

static void expect_resume_works(const char *folder) {
    char expected[TU_DIGEST_TEXT];
    tu_train_result result = TU_SIZED(tu_train_result);
    clear_faults();
    tu_status status = TU_OK;
    for (int tries = 0; tries < 1000; tries++) { /* a released thread needs some time to return */
        status = tu_train(folder, NULL, &result, .set = set, .resume = true);
        if (status == TU_OK || !strstr(tu_message(), "is still busy")) break;
        usleep(10000);
    }
    if (status != TU_OK) print_message("%s\n", tu_message());
    assert_int_equal(status, TU_OK);
    checkpoint_digest(in_scratch("whole").text, "step-8", expected);
    assert_string_equal(result.digest, expected);
}

static void a_failing_replica_is_named_and_loses_no_checkpoint(void **state) {
    (void)state;
    int launches = launches_of_a_run();
    struct scratch_path run = in_scratch("failed");
    clear_faults();
    faulty.failing_launch = launches / 2;
    expect_error(tu_train("mlp", NULL, NULL, .set = set, .out = run.text, MIRRORED), TU_DEVICE,
                 "device 'faulty:0' failed at ");
    expect_message("its fan has stopped");
    expect_good_checkpoint(run.text);
    expect_resume_works(run.text);
}

static void a_run_can_be_resumed_without_the_failed_device(void **state) {
    (void)state;
    int launches = launches_of_a_run();
    struct scratch_path run = in_scratch("actual");
    clear_faults();
    faulty.failing_launch = launches / 2;
    assert_int_equal(tu_train("mlp", NULL, NULL, .set = set, .out = run.text, MIRRORED), TU_DEVICE);
    int64_t step = expect_good_checkpoint(run.text);
    tu_train_result result = TU_SIZED(tu_train_result);
    assert_int_equal(tu_train(run.text, NULL, &result, .set = set, .resume = true, .devices = "cpu:0"),
                     TU_OK);
    assert_int_equal(result.step, STEPS);
    assert_true(step < STEPS);
}

/* Releases the device some time after the run has timed out, because freeing the run waits for it. */
static void *free_later(void *unused) {
    pthread_mutex_lock(&faulty.lock);
    while (!faulty.blocked) pthread_cond_wait(&faulty.changed, &faulty.lock);
    pthread_mutex_unlock(&faulty.lock);
    nanosleep(&(struct timespec){.tv_sec = 4}, NULL);
    unblock_faulty_device();
    return unused;
}

static void a_hanging_replica_ends_the_run_at_the_timeout(void **state) {
    (void)state;
    int launches = launches_of_a_run();
    struct scratch_path run = in_scratch("late");
    clear_faults();
    faulty.blocking_launch = launches / 2;
    pthread_t helper;
    assert_int_equal(pthread_create(&helper, NULL, free_later, NULL), 0);
    expect_error(tu_train("mlp", NULL, NULL, .set = set, .out = run.text, MIRRORED, .timeout = 2), TU_DEVICE,
                 "device 'faulty:0'");
    pthread_join(helper, NULL);
    expect_good_checkpoint(run.text);
    expect_resume_works(run.text);
}

static int plug_in(void **unused) {
    (void)unused;
    register_faulty_device();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        fresh(a_failing_replica_is_named_and_loses_no_checkpoint),
        fresh(a_run_can_be_resumed_without_the_failed_device),
        fresh(a_hanging_replica_ends_the_run_at_the_timeout),
    };
    return cmocka_run_group_tests(tests, plug_in, NULL);
}
