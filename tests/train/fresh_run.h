/* Common parts of the tests of runs. Each test starts with the small data set and an empty scratch folder, trains
 * there, and checks the messages and files of the run.
 *
 *     static void a_run_is_as_it_should_be(void **state) { … train_small(set, …) … }
 *     int main(void) {
 *         const struct CMUnitTest tests[] = {fresh(a_run_is_as_it_should_be)};
 *         return cmocka_run_group_tests(tests, NULL, NULL);
 *     } */
#ifndef TUTTI_FRESH_RUN_H
#define TUTTI_FRESH_RUN_H

#include <stdarg.h>

#include "train/small_dataset.h"

/* ---- Setup and teardown ---- */

static tu_dataset *set;

static inline int begin_fresh(void **state) {
    set = small_dataset();
    return scratch_begin(state);
}

static inline int end_fresh(void **state) {
    tu_dataset_free(set);
    return scratch_end(state);
}

#define fresh(test) cmocka_unit_test_setup_teardown(test, begin_fresh, end_fresh)

/* ---- Messages ---- */

static inline void expect_message(const char *part) {
    if (!strstr(tu_message(), part)) print_message("message: %s\n", tu_message());
    assert_non_null(strstr(tu_message(), part));
}

static inline void expect_error(tu_status status, tu_status expected, const char *part) {
    if (status != expected) print_message("message: %s\n", tu_message());
    assert_int_equal(status, expected);
    expect_message(part);
}

/* All notices of a run, one per line; written by keep_notices, which is an .on_report callback. Clear it before a
 * run. */
static char notice_log[4096];
static inline void keep_notices(void *context, const tu_train_report *report) {
    (void)context;
    size_t length = strlen(notice_log);
    if (report->event == TU_TRAIN_NOTICE)
        snprintf(notice_log + length, sizeof notice_log - length, "%s\n", report->message);
}

/* ---- Files ---- */

/* Runs a shell command, which must succeed. */
static inline void command(const char *format, ...) TU_PRINTF(1, 2);
static inline void command(const char *format, ...) {
    char line[8192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    assert_int_equal(system(line), 0); // NOLINT(cert-env33-c): the paths are ours
}

static inline void replace_in_config(const char *run, const char *from, const char *to) {
    command("sed -i 's/%s/%s/' '%s/config.json'", from, to, run);
}

/* Counts the lines of a file of the run that contain `part`; "": all lines. */
static inline int count_lines(const char *run, const char *name, const char *part) {
    char path[1024], *line = NULL;
    size_t capacity = 0;
    int count = 0;
    snprintf(path, sizeof path, "%s/%s", run, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (getline(&line, &capacity, file) >= 0) count += strstr(line, part) != NULL;
    free(line);
    fclose(file);
    return count;
}

/* ---- Images ---- */

/* Returns the index of the training image at position `position` of the batch of step `step`, counted from 1, in runs
 * with this seed. A negative position counts from the end. */
static inline int64_t image_of_step(int64_t step, uint64_t seed, int64_t position) {
    tu_loader *loader;
    tu_batch batch = TU_SIZED(tu_batch);
    assert_int_equal(tu_loader_new(set, &loader, .split = TU_TRAIN, .batch = SMALL_BATCH, .seed = seed,
                                   .shuffle = true, .validation = SMALL_VALIDATION),
                     TU_OK);
    for (int64_t i = 0; i < step; i++) assert_int_equal(tu_loader_next(loader, &batch), TU_OK);
    int64_t index = batch.indices[position < 0 ? batch.count + position : position];
    tu_loader_free(loader);
    return index;
}

#endif
