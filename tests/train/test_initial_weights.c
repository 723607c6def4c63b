/* A run stores the initial weights it loaded with --init: it can be resumed bit-identically even if their source
 * changes. */
#include "train/fresh_run.h"

static void flip_last_byte(const char *path) {
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    fputc(byte ^ 0x10, file);
    assert_int_equal(fclose(file), 0);
}

static tu_status train_from(const char *init, const char *folder, bool resume, tu_train_result *result) {
    stop_flag = 0;
    return tu_train("mlp", NULL, result, .set = set, .out = folder, .resume = resume, .init = init,
                    .stop = &stop_flag, .on_report = stop_there, SMALL_RUN, .epochs = 1);
}

static void a_resume_does_not_read_the_init_weights_again(void **state) {
    (void)state;
    struct scratch_path first = in_scratch("first"), whole = in_scratch("whole"), run = in_scratch("run");
    tu_train_result result = TU_SIZED(tu_train_result), again = TU_SIZED(tu_train_result);
    char path[1024];
    stop_at = -1;
    train_small(set, NULL, .out = first.text, .steps = 2, .checkpoint_every = 1);
    assert_int_equal(train_from(first.text, whole.text, false, &result), TU_OK);
    stop_at = 1;
    assert_int_equal(train_from(first.text, run.text, false, &again), TU_OK);
    assert_true(exists(run.text, "checkpoints/step-0.safetensors"));
    snprintf(path, sizeof path, "%s/checkpoints/step-1.safetensors", run.text);
    assert_int_equal(unlink(path), 0); /* as if killed before the first step was saved */
    snprintf(path, sizeof path, "%s/checkpoints/step-2.safetensors", first.text);
    assert_int_equal(unlink(path), 0); /* the run folder's last checkpoint is another one now */
    stop_at = -1;
    assert_int_equal(train_from(first.text, run.text, true, &again), TU_OK);
    assert_string_equal(again.digest, result.digest);
}

static void a_resume_without_initial_weights_fails(void **state) {
    (void)state;
    struct scratch_path first = in_scratch("first"), run = in_scratch("run");
    tu_train_result result = TU_SIZED(tu_train_result);
    char path[1024];
    train_small(set, NULL, .out = first.text, .steps = 1);
    stop_at = 1;
    assert_int_equal(train_from(first.text, run.text, false, &result), TU_OK);
    for (int step = 0; step <= 1; step++) {
        snprintf(path, sizeof path, "%s/checkpoints/step-%d.safetensors", run.text, step);
        assert_int_equal(unlink(path), 0);
    }
    expect_error(tu_train(run.text, NULL, NULL, .set = set, .resume = true), TU_CORRUPT,
                 "has no checkpoint left");
}

static void weights_left_by_a_killed_start_are_not_used(void **state) {
    (void)state;
    struct scratch_path first = in_scratch("first"), run = in_scratch("run");
    tu_train_result random_start = TU_SIZED(tu_train_result), result = TU_SIZED(tu_train_result);
    stop_at = -1;
    assert_int_equal(train_from(NULL, first.text, false, &random_start), TU_OK);
    stop_at = 1;
    assert_int_equal(train_from(first.text, run.text, false, &result), TU_OK);
    command("cd '%s' && find . -type f ! -name step-0.safetensors -delete", run.text);
    assert_int_equal(train_from(NULL, run.text, false, &result), TU_OK);
    command("rm '%s/checkpoints/step-1.safetensors'", run.text);
    stop_at = -1;
    assert_int_equal(train_from(NULL, run.text, true, &result), TU_OK);
    assert_string_equal(result.digest, random_start.digest);
}

static void init_from_a_damaged_checkpoint_or_no_run_fails(void **state) {
    (void)state;
    struct scratch_path first = in_scratch("first"), run = in_scratch("run");
    char path[1024];
    train_small(set, NULL, .out = first.text, .steps = 1);
    snprintf(path, sizeof path, "%s/checkpoints/step-1.safetensors", first.text);
    flip_last_byte(path);
    expect_error(train_from(first.text, run.text, false, NULL), TU_CORRUPT, "is damaged");
    expect_error(train_from(scratch, run.text, false, NULL), TU_NOT_FOUND, "is not a run folder");
    assert_int_not_equal(access(run.text, F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        fresh(a_resume_does_not_read_the_init_weights_again),
        fresh(a_resume_without_initial_weights_fails),
        fresh(weights_left_by_a_killed_start_are_not_used),
        fresh(init_from_a_damaged_checkpoint_or_no_run_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
