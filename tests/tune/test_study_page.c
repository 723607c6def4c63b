/* Pages of studies: those that somebody has edited, and those of more trials than a browser draws quickly. */
#include <string.h>
#include <unistd.h>

#include <tutti/command.h>
#include <tutti/tune.h>

#include "tune/study_fixture.h"

static void a_study_that_somebody_has_edited_is_shown(void **state) {
    (void)state;
    tu__study study;
    tu__study_plan plan = plan_of("none", 2);
    tu_study_info info = TU_SIZED(tu_study_info);
    char page[300];
    open_study(&study, &plan);
    tu__claim c = claim(&study, TU__CLAIMED);
    report(&study, &c, 64, 0.5);
    end(&study, &c, TU__TRIAL_FINISHED);
    assert_int_equal(tu__sql_run(&study.sql, "UPDATE trial SET number = 1000000000", 0, NULL, NULL), TU_OK);
    tu__study_close(&study);
    tu_study *view;
    assert_int_equal(tu_study_open(folder, NULL, &view), TU_OK);
    snprintf(page, sizeof page, "%s/page.html", folder);
    assert_int_equal(tu_study_save_page(view, page), TU_OK);
    assert_int_equal(tu_study_describe(view, &info), TU_OK);
    assert_int_equal(info.best, 1000000000);
    tu_study_free(view);
}

static size_t count_of(const char *text, const char *part) {
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) count++;
    return count;
}

/* Copies the first trial, with its values and its report. Costs are different; the best one is that of the last trial. */
static void add_copies(tu__study *study, int trials) {
    char first[100], sql[600];
    snprintf(first, sizeof first,
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) ", trials - 1);
    const char *const inserts[] = {
        ("INSERT INTO trial SELECT study, i, state, claim || i, worker, attempts, heartbeat, created, started, ended,"
         " step, steps, seconds, 0.5 - i / 40000.0, run, message FROM trial, n"),
        "INSERT INTO parameter SELECT study, i, name, value FROM parameter, n",
        "INSERT INTO report SELECT study, i, step, steps, share, rung, cost, loss, accuracy FROM report, n"};
    for (size_t k = 0; k < 3; k++) {
        const char *select = strstr(inserts[k], "SELECT");
        snprintf(sql, sizeof sql, "%.*s %s %s", (int)(select - inserts[k]), inserts[k], first, select);
        if (tu__sql_run(&study->sql, sql, 0, NULL, NULL) != TU_OK) fail_msg("%s", tu_message());
    }
}

/* Writes the page of a study with as many trials; the caller frees it. */
static char *page_of(int trials) {
    tu__study study;
    tu__study_plan plan = plan_of("none", trials);
    char path[300];
    unlink(database);
    open_study(&study, &plan);
    tu__claim c = claim(&study, TU__CLAIMED);
    report(&study, &c, 64, 0.5);
    end(&study, &c, TU__TRIAL_FINISHED);
    if (trials > 1) add_copies(&study, trials);
    tu__study_close(&study);
    tu_study *view;
    if (tu_study_open(folder, NULL, &view) != TU_OK) fail_msg("%s", tu_message());
    snprintf(path, sizeof path, "%s/page.html", folder);
    if (tu_study_save_page(view, path) != TU_OK) fail_msg("%s", tu_message());
    tu_study_free(view);
    void *bytes;
    size_t length;
    assert_int_equal(tu_file_read(path, 100 << 20, &bytes, &length), TU_OK);
    char *text = malloc(length + 1);
    assert_non_null(text);
    memcpy(text, bytes, length);
    text[length] = '\0';
    tu_bytes_free(bytes);
    return text;
}

/* A browser needed seconds for a page with 10,000 trials in each plot. */
static void the_page_of_many_trials_draws_some(void **state) {
    (void)state;
    char *page = page_of(10000);
    assert_non_null(strstr(
        page, "The plots draw 1000 of 10000 trials: the best 500, and others evenly over the search."));
    assert_non_null(
        strstr(page, "The best 1000 of 10000 trials; <code>tutti tune --export csv</code> writes all."));
    assert_int_equal(count_of(page, "<circle"), 3 * 1000);     /* history and two slices */
    assert_int_equal(count_of(page, " trial\" d="), 2 * 1000); /* parallel coordinates and curves */
    assert_int_equal(count_of(page, "</tr>\n<tr><td class=\"number\">"), 999);
    assert_int_equal(count_of(page, "<title>trial 9999, "), 5); /* the best */
    assert_int_equal(count_of(page, "<title>trial 9500, "), 5); /* the 500th */
    assert_true(count_of(page, "<title>trial 0, ") == 5);       /* the first of the others … */
    assert_int_equal(count_of(page, "<title>trial 1, "), 0);
    assert_int_equal(count_of(page, "<title>trial 19, "), 5); /* … of 19 each */
    assert_true(strlen(page) < 3000000);
    free(page);
}

static void the_page_of_few_trials_draws_all(void **state) {
    (void)state;
    char *page = page_of(1000);
    assert_null(strstr(page, "The plots draw"));
    assert_null(strstr(page, "The best 1000 of"));
    assert_int_equal(count_of(page, "<circle"), 3 * 1000);
    assert_int_equal(count_of(page, "class=\"q0\" r="), 3 * 200); /* a fifth in each colour */
    assert_int_equal(count_of(page, "class=\"q4\" r="), 3 * 200);
    free(page);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        STUDY_TEST(a_study_that_somebody_has_edited_is_shown),
        STUDY_TEST(the_page_of_many_trials_draws_some),
        STUDY_TEST(the_page_of_few_trials_draws_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
