/* A stopped and resumed run is bit-identical to an uninterrupted one: at every step, at the end of an epoch, in the
 * middle of a measurement, with augmentation, averages and gradient accumulation. A resume that would change the run
 * fails. */
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "train/fresh_run.h"

enum { EPOCHS = 3, STEPS = EPOCHS * SMALL_STEPS };

/* Options that draw random numbers or keep state: a resumed run must restore all of it. */
#define RICH                                                                                                 \
    SMALL_RUN, .epochs = EPOCHS, .optimizer = "adam", .rate = 0.01, .schedule = "one-cycle", .pad = 1,       \
               .flip = 1, .brightness = 0.1, .average = 0.9, .clip = 1, .label_smoothing = 0.1,              \
               .accumulate = 2

static tu_status train_rich(const char *folder, bool resume, tu_train_result *result) {
    stop_flag = 0;
    return tu_train("mlp", NULL, result, .set = set, .out = folder, .resume = resume, .stop = &stop_flag,
                    .on_report = stop_there, RICH);
}

static void train_uninterrupted(char digest[TU_DIGEST_TEXT]) {
    tu_train_result result = TU_SIZED(tu_train_result);
    stop_at = -1;
    assert_int_equal(train_rich(in_scratch("whole").text, false, &result), TU_OK);
    assert_int_equal(result.step, STEPS);
    memcpy(digest, result.digest, TU_DIGEST_TEXT);
}

static void a_stop_at_any_step_is_bit_identical(void **state) {
    (void)state;
    char digest[TU_DIGEST_TEXT], name[32];
    train_uninterrupted(digest);
    for (stop_at = 1; stop_at < STEPS; stop_at++) {
        tu_train_result result = TU_SIZED(tu_train_result);
        snprintf(name, sizeof name, "stopped-%d", (int)stop_at);
        struct scratch_path folder = in_scratch(name);
        assert_int_equal(train_rich(folder.text, false, &result), TU_OK);
        assert_true(result.stopped);
        assert_int_equal(result.step, stop_at);
        assert_int_equal(train_rich(folder.text, true, &result), TU_OK);
        assert_false(result.stopped);
        assert_string_equal(result.digest, digest);
    }
}

static void a_stop_at_every_step_is_bit_identical(void **state) {
    (void)state;
    char digest[TU_DIGEST_TEXT];
    train_uninterrupted(digest);
    struct scratch_path folder = in_scratch("every");
    tu_train_result result = TU_SIZED(tu_train_result);
    for (stop_at = 1; stop_at <= STEPS; stop_at++)
        assert_int_equal(train_rich(folder.text, stop_at > 1, &result), TU_OK);
    assert_string_equal(result.digest, digest);
}

static void resuming_a_finished_run_returns_its_result(void **state) {
    (void)state;
    tu_train_result first = TU_SIZED(tu_train_result), again = TU_SIZED(tu_train_result);
    stop_at = -1;
    struct scratch_path folder = in_scratch("finished");
    assert_int_equal(train_rich(folder.text, false, &first), TU_OK);
    assert_int_equal(tu_train(folder.text, NULL, &again, .set = set, .resume = true), TU_OK);
    assert_string_equal(first.digest, again.digest);
    assert_int_equal(again.step, STEPS);
    assert_true(first.test_accuracy == again.test_accuracy && first.loss == again.loss);
}

/* Reads metrics.jsonl without its times. */
static void read_metrics(const char *folder, char text[8192]) {
    char path[1024], line[512];
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    *text = '\0';
    while (fgets(line, sizeof line, file)) {
        char *speed = strstr(line, ",\"images_per_second\""), *seconds = strstr(line, ",\"seconds\"");
        if (speed) *speed = '\0';
        assert_non_null(seconds);
        char *rest = strchr(seconds + 1, ',');
        size_t used = strlen(text);
        assert_true(used + strlen(line) < 8000);
        snprintf(text + used, 8192 - used, "%.*s%s\n", (int)(seconds - line), line, rest ? rest : "");
    }
    fclose(file);
}

static void metrics_of_a_resumed_run_are_complete(void **state) {
    (void)state;
    char digest[TU_DIGEST_TEXT], whole[8192], resumed[8192];
    train_uninterrupted(digest);
    read_metrics(in_scratch("whole").text, whole);
    struct scratch_path folder = in_scratch("metrics");
    tu_train_result result = TU_SIZED(tu_train_result);
    stop_at = 6;
    assert_int_equal(train_rich(folder.text, false, &result), TU_OK);
    char path[1024];
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder.text);
    FILE *file =
        fopen(path, "a"); /* lines of later steps, the last one incomplete, as a killed process leaves them */
    fputs("{\"step\":7,\"epoch\":1.75,\"seconds\":1,\"loss\":9,\"accuracy\":0}\n{\"step\":8,\"ep", file);
    fclose(file);
    stop_at = -1;
    assert_int_equal(train_rich(folder.text, true, &result), TU_OK);
    read_metrics(folder.text, resumed);
    assert_string_equal(whole, resumed);
}

static void a_run_killed_before_its_first_checkpoint_restarts(void **state) {
    (void)state;
    char digest[TU_DIGEST_TEXT], path[1024];
    train_uninterrupted(digest);
    struct scratch_path folder = in_scratch("early");
    tu_train_result result = TU_SIZED(tu_train_result);
    stop_at = 2;
    assert_int_equal(train_rich(folder.text, false, &result), TU_OK);
    snprintf(path, sizeof path, "%s/checkpoints/step-2.safetensors", folder.text);
    assert_int_equal(unlink(path), 0);
    stop_at = -1;
    assert_int_equal(train_rich(folder.text, true, &result), TU_OK);
    assert_string_equal(result.digest, digest);
}

static void a_run_saved_with_a_decimal_comma_locale_can_be_resumed(void **state) {
    (void)state;
    static const char *const with_comma[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
    char digest[TU_DIGEST_TEXT];
    train_uninterrupted(digest);
    bool found = false;
    for (size_t i = 0; i < sizeof with_comma / sizeof *with_comma && !found; i++)
        found = setlocale(LC_NUMERIC, with_comma[i]) != NULL;
    if (!found) skip(); /* no such locale is installed */
    struct scratch_path folder = in_scratch("comma");
    tu_train_result result = TU_SIZED(tu_train_result);
    stop_at = 7;
    tu_status status = train_rich(folder.text, false, &result);
    setlocale(LC_NUMERIC, "C");
    assert_int_equal(status, TU_OK);
    stop_at = -1;
    assert_int_equal(train_rich(folder.text, true, &result), TU_OK);
    assert_string_equal(result.digest, digest);
}

/* ---- Damage ---- */

static void damage(const char *path, off_t offset) {
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    struct stat info;
    assert_int_equal(fstat(fd, &info), 0);
    unsigned char byte;
    off_t at = offset < 0 ? info.st_size + offset : offset;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void a_damaged_checkpoint_is_reported_and_the_previous_one_used(void **state) {
    (void)state;
    char digest[TU_DIGEST_TEXT], path[1024];
    train_uninterrupted(digest);
    const off_t offsets[] = {0, 9, -1, -500}; /* in the length, the header, the tensors */
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        char name[32];
        snprintf(name, sizeof name, "damaged-%zu", i);
        struct scratch_path folder = in_scratch(name);
        tu_train_result result = TU_SIZED(tu_train_result);
        stop_at = 7;
        assert_int_equal(train_rich(folder.text, false, &result), TU_OK); /* checkpoints of steps 4 and 7 */
        snprintf(path, sizeof path, "%s/checkpoints/step-7.safetensors", folder.text);
        damage(path, offsets[i]);
        *notice_log = '\0';
        assert_int_equal(
            tu_train(folder.text, NULL, &result, .set = set, .resume = true, .on_report = keep_notices),
            TU_OK);
        assert_non_null(strstr(notice_log, "step-7.safetensors"));
        assert_non_null(strstr(notice_log, "loading the previous checkpoint"));
        assert_string_equal(result.digest, digest);
    }
}

static void a_damaged_checkpoint_does_not_count_as_kept(void **state) {
    (void)state;
    struct scratch_path folder = in_scratch("displaced");
    char path[1024];
    tu_train_result result = TU_SIZED(tu_train_result);
    stop_at = 7;
    assert_int_equal(train_rich(folder.text, false, &result), TU_OK); /* checkpoints of steps 4 and 7 */
    snprintf(path, sizeof path, "%s/checkpoints/step-7.safetensors", folder.text);
    damage(path, -1);
    stop_at = 5;
    stop_flag = 0;
    assert_int_equal(tu_train(folder.text, NULL, &result, .set = set, .resume = true, .keep = 1,
                              .stop = &stop_flag, .on_report = stop_there),
                     TU_OK);
    assert_int_equal(result.step, 5);
    assert_true(exists(folder.text, "checkpoints/step-5.safetensors"));
    assert_false(exists(folder.text, "checkpoints/step-7.safetensors"));
    assert_true(exists(folder.text, "checkpoints/step-7.safetensors.damaged"));
    assert_int_equal(tu_train(folder.text, NULL, &result, .set = set, .resume = true), TU_OK);
    assert_int_equal(result.step, STEPS);
}

/* Replaces a part of the header in place. */
static void change_metadata(const char *path, const char *from, const char *to) {
    assert_int_equal(strlen(from), strlen(to));
    command("grep -q '%s' '%s' && sed -i 's/%s/%s/' '%s'", from, path, from, to, path);
}

static void damaged_progress_is_detected(void **state) {
    (void)state;
    const char *changes[][2] = {{"\"step\":\"7\"", "\"step\":\"6\""},
                                {"\"sample\":\"98\"", "\"sample\":\"99\""},
                                {"\"best_step\":\"4\"", "\"best_step\":\"3\""}};
    char digest[TU_DIGEST_TEXT], path[1024], name[32];
    train_uninterrupted(digest);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        snprintf(name, sizeof name, "progress-%zu", i);
        struct scratch_path folder = in_scratch(name);
        tu_train_result result = TU_SIZED(tu_train_result);
        stop_at = 7;
        assert_int_equal(train_rich(folder.text, false, &result), TU_OK);
        snprintf(path, sizeof path, "%s/checkpoints/step-7.safetensors", folder.text);
        change_metadata(path, changes[i][0], changes[i][1]);
        *notice_log = '\0';
        assert_int_equal(
            tu_train(folder.text, NULL, &result, .set = set, .resume = true, .on_report = keep_notices),
            TU_OK);
        assert_non_null(strstr(notice_log, "its metadata does not match its digest"));
        assert_string_equal(result.digest, digest);
    }
}

static void a_run_with_only_damaged_checkpoints_fails(void **state) {
    (void)state;
    struct scratch_path folder = in_scratch("ruined");
    char path[1024];
    tu_train_result result = TU_SIZED(tu_train_result);
    stop_at = 2;
    assert_int_equal(train_rich(folder.text, false, &result), TU_OK);
    snprintf(path, sizeof path, "%s/checkpoints/step-2.safetensors", folder.text);
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(tu_train(folder.text, NULL, &result, .set = set, .resume = true), TU_CORRUPT);
    assert_non_null(strstr(tu_message(), "step-2.safetensors"));
}

/* ---- Changed options ---- */

static void a_resume_with_changed_options_fails(void **state) {
    (void)state;
    struct scratch_path folder = in_scratch("other");
    tu_train_result result = TU_SIZED(tu_train_result);
    stop_at = 2;
    assert_int_equal(train_rich(folder.text, false, &result), TU_OK);
    const char *run = folder.text;
    expect_error(tu_train(run, NULL, NULL, .set = set, .resume = true, .rate = 0.5), TU_INVALID,
                 "--resume cannot change --rate to 0.5: the run was started with 0.01");
    expect_error(tu_train(run, NULL, NULL, .set = set, .resume = true, .average = -1), TU_INVALID,
                 "--average to 0");
    expect_error(tu_train(run, NULL, NULL, .set = set, .resume = true, .optimizer = "sgd"), TU_INVALID,
                 "'adam'");
    expect_error(tu_train("resnet20", NULL, NULL, .set = set, .out = run, .resume = true), TU_INVALID,
                 "trains 'mlp'");
    expect_error(tu_train(run, NULL, NULL, .set = set), TU_INVALID,
                 "is a run folder: continue it with --resume");
    expect_error(tu_train("mlp", NULL, NULL, .set = set, .out = run), TU_INVALID, "already contains a run");
    expect_error(tu_train(in_scratch("nothing").text, NULL, NULL, .set = set, .resume = true), TU_NOT_FOUND,
                 "is not a run folder");
    expect_error(tu_train("mlp", NULL, NULL, .set = set, .out = scratch), TU_INVALID, "not empty");
}

static void devices_and_checkpoint_settings_may_change(void **state) {
    (void)state;
    struct scratch_path folder = in_scratch("moved");
    tu_train_result result = TU_SIZED(tu_train_result);
    stop_at = 2;
    assert_int_equal(train_rich(folder.text, false, &result), TU_OK);
    assert_int_equal(
        tu_train(folder.text, NULL, &result, .set = set, .resume = true, .devices = "ref", .keep = 1), TU_OK);
    assert_int_equal(result.step, STEPS);
    assert_true(exists(folder.text, "checkpoints/step-12.safetensors"));
    assert_false(exists(folder.text, "checkpoints/step-8.safetensors"));
}

static bool config_contains(const char *run, const char *part) {
    return count_lines(run, "config.json", part) > 0;
}

static void changed_settings_are_kept_for_the_next_resume(void **state) {
    (void)state;
    struct scratch_path folder = in_scratch("recorded");
    tu_train_result result = TU_SIZED(tu_train_result);
    stop_at = 2;
    assert_int_equal(train_rich(folder.text, false, &result), TU_OK);
    assert_true(config_contains(folder.text, "\"devices\":\"cpu:0\"") &&
                config_contains(folder.text, "\"keep\":3"));
    stop_at = 3;
    stop_flag = 0;
    assert_int_equal(tu_train(folder.text, NULL, &result, .set = set, .resume = true, .devices = "ref",
                              .keep = 1, .checkpoint_every = 2, .stop = &stop_flag, .on_report = stop_there),
                     TU_OK);
    assert_true(config_contains(folder.text, "\"devices\":\"ref\"") &&
                config_contains(folder.text, "\"keep\":1") &&
                config_contains(folder.text, "\"checkpoint_every\":2"));
    assert_int_equal(tu_train(folder.text, NULL, &result, .set = set, .resume = true), TU_OK);
    assert_false(exists(folder.text, "checkpoints/step-8.safetensors"));
}

static void a_batch_larger_than_the_data_set_can_be_resumed(void **state) {
    (void)state;
    struct scratch_path folder = in_scratch("same");
    tu_train_result result = TU_SIZED(tu_train_result);
    for (int i = 0; i < 2; i++) {
        tu_status status =
            tu_train("mlp", NULL, &result, .set = set, .out = folder.text, .resume = i > 0,
                     .devices = "cpu:0", .threads = 1, .base = 8, .batch = 4 * SMALL_TRAIN, .epochs = 1);
        if (status != TU_OK) print_message("%s\n", tu_message());
        assert_int_equal(status, TU_OK);
    }
}

static void large_seeds_are_compared_exactly(void **state) {
    (void)state;
    struct scratch_path folder = in_scratch("seeds");
    const int64_t seed = INT64_C(9007199254740993); /* no double has this value */
    train_small(set, NULL, .out = folder.text, .steps = 1, .seed = seed);
    assert_int_equal(tu_train(folder.text, NULL, NULL, .set = set, .resume = true, .seed = seed), TU_OK);
    expect_error(
        tu_train(folder.text, NULL, NULL, .set = set, .resume = true, .seed = seed - 1), TU_INVALID,
        "--resume cannot change --seed to 9007199254740992: the run was started with 9007199254740993");
}

/* ---- Which run is resumed ---- */

static void out_is_resumed_although_a_folder_has_the_networks_name(void **state) {
    (void)state;
    char before[1024];
    tu_train_result result = TU_SIZED(tu_train_result);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(scratch), 0);
    train_small(set, NULL, .out = "mlp", .steps = 1);
    stop_at = 2;
    assert_int_equal(train_rich("wanted", false, &result), TU_OK);
    stop_at = -1;
    tu_status status = train_rich("wanted", true, &result);
    assert_int_equal(chdir(before), 0);
    if (status != TU_OK) print_message("%s\n", tu_message());
    assert_int_equal(status, TU_OK);
    assert_string_equal(result.folder, "wanted");
    assert_int_equal(result.step, STEPS);
}

static void resuming_two_folders_fails(void **state) {
    (void)state;
    struct scratch_path one = in_scratch("one"), two = in_scratch("two");
    train_small(set, NULL, .out = one.text, .steps = 1);
    train_small(set, NULL, .out = two.text, .steps = 1);
    expect_error(tu_train(one.text, NULL, NULL, .set = set, .out = two.text, .resume = true), TU_INVALID,
                 "--resume is ambiguous");
    expect_error(tu_train(one.text, NULL, NULL, .set = set, .out = in_scratch("new").text, .resume = true),
                 TU_INVALID, "--resume is ambiguous");
    assert_int_equal(tu_train(one.text, NULL, NULL, .set = set, .out = one.text, .resume = true), TU_OK);
}

static void a_folder_of_another_version_fails_with_both_version_numbers(void **state) {
    (void)state;
    struct scratch_path folder = in_scratch("version");
    tu_train_result result = TU_SIZED(tu_train_result);
    stop_at = 1;
    assert_int_equal(train_rich(folder.text, false, &result), TU_OK);
    replace_in_config(folder.text, "\"version\":1", "\"version\":7");
    expect_error(tu_train(folder.text, NULL, NULL, .set = set, .resume = true), TU_UNSUPPORTED,
                 "has version 7, but Tutti");
    expect_error(tu_train(folder.text, NULL, NULL, .set = set, .resume = true), TU_UNSUPPORTED,
                 "reads version 1");
    replace_in_config(folder.text, "\"version\":7", "\"version\":1");
    replace_in_config(folder.text, "\"flip\":true", "\"flop\":true");
    expect_error(tu_train(folder.text, NULL, NULL, .set = set, .resume = true), TU_CORRUPT, "setting 'flop'");
    replace_in_config(folder.text, "\"flop\":true", "\"flip\":true,,");
    expect_error(tu_train(folder.text, NULL, NULL, .set = set, .resume = true), TU_CORRUPT, "config.json");
}

static void a_folder_in_use_fails(void **state) {
    (void)state;
    struct scratch_path folder = in_scratch("locked");
    tu_train_result result = TU_SIZED(tu_train_result);
    stop_at = 1;
    assert_int_equal(train_rich(folder.text, false, &result), TU_OK);
    char path[1024];
    snprintf(path, sizeof path, "%s/lock", folder.text);
    int fd = open(path, O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    expect_error(tu_train(folder.text, NULL, NULL, .set = set, .resume = true), TU_INVALID, "is in use");
    close(fd);
    assert_int_equal(tu_train(folder.text, NULL, &result, .set = set, .resume = true), TU_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        fresh(a_stop_at_any_step_is_bit_identical),
        fresh(a_stop_at_every_step_is_bit_identical),
        fresh(resuming_a_finished_run_returns_its_result),
        fresh(metrics_of_a_resumed_run_are_complete),
        fresh(a_run_killed_before_its_first_checkpoint_restarts),
        fresh(a_run_saved_with_a_decimal_comma_locale_can_be_resumed),
        fresh(a_damaged_checkpoint_is_reported_and_the_previous_one_used),
        fresh(a_damaged_checkpoint_does_not_count_as_kept),
        fresh(damaged_progress_is_detected),
        fresh(a_run_with_only_damaged_checkpoints_fails),
        fresh(a_resume_with_changed_options_fails),
        fresh(devices_and_checkpoint_settings_may_change),
        fresh(changed_settings_are_kept_for_the_next_resume),
        fresh(a_batch_larger_than_the_data_set_can_be_resumed),
        fresh(large_seeds_are_compared_exactly),
        fresh(out_is_resumed_although_a_folder_has_the_networks_name),
        fresh(resuming_two_folders_fails),
        fresh(a_folder_of_another_version_fails_with_both_version_numbers),
        fresh(a_folder_in_use_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
