/* Studies: claims, repeated transactions, silent workers, pruning, and databases that are full, read-only or of others. */
#include "test.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/command.h>
#include <tutti/tune.h>

#include "tune/study_fixture.h"

/* ---- Claims ---- */

static void trials_are_claimed_once_and_in_order(void **state) {
    (void)state;
    tu__study study;
    tu__study_plan plan = plan_of("none", 3);
    open_study(&study, &plan);
    tu__claim claims[3];
    for (int64_t i = 0; i < 3; i++) {
        claims[i] = claim(&study, TU__CLAIMED);
        assert_int_equal(claims[i].number, i);
        assert_int_equal(claims[i].attempt, 1);
    }
    claim(&study, TU__CLAIM_LATER);
    for (int i = 0; i < 3; i++) {
        report(&study, &claims[i], 32, 0.5 - 0.1 * i);
        report(&study, &claims[i], 64, 0.7);
        end(&study, &claims[i], TU__TRIAL_FINISHED);
    }
    claim(&study, TU__CLAIM_NEVER);
    tu__trials trials;
    assert_int_equal(tu__study_read(&study, true, &trials), TU_OK);
    assert_int_equal(trials.count, 3);
    assert_true(trials.trials[0].cost == 0.5); /* the lowest of its reports */
    assert_int_equal(trials.trials[0].report_count, 2);
    assert_int_equal(tu__best_trial(&trials)->number, 2);
    tu__trials_free(&trials);
    tu__study_close(&study);
}

static void interrupted_trials_are_continued_first(void **state) {
    (void)state;
    tu__study study;
    tu__study_plan plan = plan_of("none", 0);
    open_study(&study, &plan);
    tu__claim first = claim(&study, TU__CLAIMED);
    assert_int_equal(tu__study_set_run(&study, &first, "trials/00000"), TU_OK);
    assert_int_equal(tu__study_release(&study, &first), TU_OK);
    tu__claim again = claim(&study, TU__CLAIMED);
    assert_int_equal(again.number, 0);
    assert_int_equal(again.attempt, 1); /* an interruption is no failed attempt */
    assert_string_equal(again.run, "trials/00000");
    assert_memory_equal(again.point.value, first.point.value, 2 * sizeof(double));
    tu__study_close(&study);
}

/* The clock of a database that a test sets. */
static double clock_seconds;

static tu_status read_test_clock(tu__sql *sql, double *seconds) {
    (void)sql;
    *seconds = clock_seconds;
    return TU_OK;
}

static tu__sql_driver clocked_driver(void) {
    tu__sql_driver driver = tu__sql_sqlite;
    driver.now = read_test_clock;
    clock_seconds = 1e9;
    return driver;
}

static void a_silent_worker_loses_its_trial_and_dead_ones_fail_it(void **state) {
    (void)state;
    tu__study study;
    tu__study_plan plan = plan_of("none", 1);
    open_study(&study, &plan);
    tu__sql_driver clocked = clocked_driver();
    study.sql.driver = &clocked;
    tu__claim first = claim(&study, TU__CLAIMED);
    const tu__claim *list[] = {&first};
    for (int i = 0; i < 4; i++) { /* heartbeats keep it */
        clock_seconds += 40;
        assert_int_equal(tu__study_heartbeat(&study, 1, list), TU_OK);
        claim(&study, TU__CLAIM_LATER);
    }
    clock_seconds += 61;
    tu__claim second = claim(&study, TU__CLAIMED);
    assert_int_equal(second.number, 0);
    assert_int_equal(second.attempt, 2);
    bool prune;
    tu__report r = {1, 64, 0.5, 0.5, 0};
    assert_int_equal(tu__study_report(&study, &first, &r, &prune), TU_LOST);
    assert_int_equal(tu__study_end(&study, &first, TU__TRIAL_FINISHED, 1, 1, NULL), TU_LOST);
    clock_seconds += 61;
    claim(&study, TU__CLAIM_NEVER); /* after two attempts it has failed */
    tu__trials trials;
    assert_int_equal(tu__study_read(&study, true, &trials), TU_OK);
    assert_int_equal(trials.trials[0].state, TU__TRIAL_FAILED);
    assert_non_null(strstr(trials.trials[0].message, "its worker died or lost the database 2 times"));
    assert_int_equal(trials.trials[0].report_count, 0);
    tu__trials_free(&trials);
    tu__study_close(&study);
}

/* ---- Repeated transactions ---- */

static int commits_until_lost;

/* Commits, and then behaves as if the connection had been lost before the answer. */
static tu_status run_and_lose(tu__sql *sql, const char *statement, size_t count, const tu__sql_value *values,
                              tu__sql_result *result) {
    tu_status status = tu__sql_sqlite.run(sql, statement, count, values, result);
    if (status != TU_OK || strcmp(statement, "COMMIT") != 0 || commits_until_lost-- != 0) return status;
    tu__sql_sqlite.close(sql);
    tu__sql_sqlite.open(sql);
    sql->may_retry = true;
    return tu_fail(TU_IO, "the connection was lost");
}

static void a_lost_answer_changes_nothing(void **state) {
    (void)state;
    tu__study study;
    tu__study_plan plan = plan_of("none", 2);
    open_study(&study, &plan);
    tu__sql_driver losing = tu__sql_sqlite;
    losing.run = run_and_lose;
    study.sql.driver = &losing;
    commits_until_lost = 0;
    tu__claim first = claim(&study, TU__CLAIMED);
    assert_int_equal(first.number, 0);
    assert_int_equal(first.attempt, 1);
    commits_until_lost = 0;
    assert_false(report(&study, &first, 32, 0.5));
    commits_until_lost = 0;
    end(&study, &first, TU__TRIAL_FINISHED);
    tu__claim second = claim(&study, TU__CLAIMED);
    assert_int_equal(second.number, 1);
    commits_until_lost = 0;
    assert_int_equal(tu__study_release(&study, &second), TU_OK);
    tu__claim again = claim(&study, TU__CLAIMED);
    assert_int_equal(again.number, 1);
    assert_int_equal(again.attempt, 1);
    tu__trials trials;
    assert_int_equal(tu__study_read(&study, true, &trials), TU_OK);
    assert_int_equal(trials.count, 2);
    assert_int_equal(trials.trials[0].report_count, 1);
    assert_int_equal(trials.trials[0].attempts, 1);
    tu__trials_free(&trials);
    tu__study_close(&study);
}

/* Another worker ends the trial between the search for a silent one and its claim. */
static tu_status run_and_end(tu__sql *sql, const char *statement, size_t count, const tu__sql_value *values,
                             tu__sql_result *result) {
    static const char rival[] = "UPDATE trial SET state = 'finished', cost = 0.25 WHERE state = 'running'",
                      claiming[] = "UPDATE trial SET state = 'running'";
    if (strncmp(statement, claiming, sizeof claiming - 1) == 0) {
        tu__sql_result ignored = {0};
        tu_status status = tu__sql_sqlite.run(sql, rival, 0, NULL, &ignored);
        tu__sql_result_free(&ignored);
        if (status != TU_OK) return status;
    }
    return tu__sql_sqlite.run(sql, statement, count, values, result);
}

static void a_trial_that_ends_while_it_is_claimed_stays_ended(void **state) {
    (void)state;
    tu__study study;
    tu__study_plan plan = plan_of("none", 1);
    open_study(&study, &plan);
    tu__sql_driver racing = clocked_driver();
    study.sql.driver = &racing;
    claim(&study, TU__CLAIMED);
    clock_seconds += 61;
    racing.run = run_and_end;
    claim(&study, TU__CLAIM_NEVER);
    tu__trials trials;
    assert_int_equal(tu__study_read(&study, false, &trials), TU_OK);
    assert_int_equal(trials.trials[0].state, TU__TRIAL_FINISHED);
    assert_int_equal(trials.trials[0].attempts, 1);
    tu__trials_free(&trials);
    tu__study_close(&study);
}

static bool is_connection_lost;

static tu_status open_again(tu__sql *sql) {
    is_connection_lost = false;
    return tu__sql_sqlite.open(sql);
}

/* Every statement fails on a connection that was lost, as on one to a server that was restarted. */
static tu_status run_unless_lost(tu__sql *sql, const char *statement, size_t count,
                                 const tu__sql_value *values, tu__sql_result *result) {
    sql->may_retry = is_connection_lost;
    if (is_connection_lost) return tu_fail(TU_IO, "the connection was lost");
    return tu__sql_sqlite.run(sql, statement, count, values, result);
}

static void a_connection_that_was_lost_while_idle_is_opened_again(void **state) {
    (void)state;
    tu__study study;
    tu__study_plan plan = plan_of("none", 1);
    open_study(&study, &plan);
    tu__sql_driver losing = tu__sql_sqlite;
    losing.run = run_unless_lost;
    losing.open = open_again;
    study.sql.driver = &losing;
    study.sql.patience = 1;
    is_connection_lost = true;
    tu__claim first = claim(&study, TU__CLAIMED);
    is_connection_lost = true;
    assert_false(report(&study, &first, 32, 0.5));
    is_connection_lost = true;
    tu__trials trials;
    assert_int_equal(tu__study_read(&study, true, &trials), TU_OK);
    assert_int_equal(trials.trials[0].report_count, 1);
    tu__trials_free(&trials);
    tu__study_close(&study);
}

static void one_process_takes_the_test_also_if_the_answer_is_lost(void **state) {
    (void)state;
    tu__study study;
    tu__study_plan plan = plan_of("none", 1);
    bool mine;
    open_study(&study, &plan);
    tu__sql_driver losing = tu__sql_sqlite;
    losing.run = run_and_lose;
    study.sql.driver = &losing;
    commits_until_lost = 0;
    assert_int_equal(tu__study_take_test(&study, 0, &mine), TU_OK);
    assert_true(mine);
    assert_int_equal(tu__study_take_test(&study, 0, &mine), TU_OK);
    assert_false(mine);
    tu__study_close(&study);
}

static tu_status always_busy(tu__sql *sql, void *context) {
    ++*(int *)context;
    sql->may_retry = true;
    return tu_fail(TU_IO, "busy");
}

static void waiting_ends_with_the_patience_or_the_stop_flag(void **state) {
    (void)state;
    tu__study study;
    tu__study_plan plan = plan_of("none", 1);
    int tries = 0;
    volatile sig_atomic_t stop = 1;
    open_study(&study, &plan);
    study.sql.patience = 0.2;
    assert_int_equal(tu__sql_transaction(&study.sql, always_busy, &tries), TU_IO);
    assert_true(tries > 2);
    assert_non_null(strstr(tu_message(), "busy (tried for "));
    tries = 0; /* what follows does not wait as long again, until the database answers */
    study.sql.patience = 1000;
    assert_int_equal(tu__sql_transaction(&study.sql, always_busy, &tries), TU_IO);
    assert_int_equal(tries, 1);
    claim(&study, TU__CLAIMED);
    assert_false(study.sql.gave_up);
    tries = 0;
    study.sql.stop = &stop;
    assert_int_equal(tu__sql_transaction(&study.sql, always_busy, &tries), TU_IO);
    assert_int_equal(tries, 1);
    tu__study_close(&study);
}

static int failures;

static tu_status run_or_fail(tu__sql *sql, const char *statement, size_t count, const tu__sql_value *values,
                             tu__sql_result *result) {
    if (!failures) return tu__sql_sqlite.run(sql, statement, count, values, result);
    failures--;
    sql->may_retry = true;
    return tu_fail(TU_IO, "the database is away");
}

/* Nobody could renew heartbeats while the database was away: others get time to return, and lose no attempt. */
static void a_database_that_was_away_costs_no_attempt(void **state) {
    (void)state;
    tu__study study, other;
    tu__study_plan plan = plan_of("none", 1);
    tu__sql_driver driver = tu__sql_sqlite;
    driver.run = run_or_fail;
    plan.attempts = 1;
    open_study(&study, &plan);
    study.timeout = 0.1;
    tu__claim first = claim(&study, TU__CLAIMED);
    assert_int_equal(tu__sql_run(&study.sql, "UPDATE trial SET heartbeat = 1", 0, NULL, NULL), TU_OK);
    open_study(&other, &plan);
    other.timeout = 0.1;
    other.sql.driver = &driver;
    failures = 10; /* with pauses of 10 ms and more, which grow: together more than half of the timeout */
    claim(&other, TU__CLAIM_LATER);
    other.timeout = 1000; /* in the time after it, too */
    other.sql.away_seconds = 1000;
    claim(&other, TU__CLAIM_LATER);
    const tu__claim *claims[] = {&first};
    assert_int_equal(tu__study_heartbeat(&study, 1, claims), TU_OK); /* it still has its trial */
    assert_int_equal(tu__sql_run(&study.sql, "UPDATE trial SET heartbeat = 1, attempts = 0", 0, NULL, NULL),
                     TU_OK);
    other.sql.back_at -= 2000; /* a worker that does not return is dead */
    assert_int_equal(claim(&other, TU__CLAIMED).attempt, 1);
    tu__study_close(&other);
    tu__study_close(&study);
}

/* ---- Pruning ---- */

static void asha_keeps_the_best_quarter_of_a_rung(void **state) {
    (void)state;
    tu__study study;
    tu__study_plan plan = plan_of("asha", 0);
    open_study(&study, &plan);
    static const double costs[] = {0.5, 0.6, 0.4, 0.7, 0.45, 0.39, 0.8, 0.41};
    /* Of n so far the best (n + 3) / 4 go on: the first, then a new best; of five and more the second, too. */
    static const bool pruned[] = {false, true, false, true, false, false, true, true};
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        tu__claim c = claim(&study, TU__CLAIMED);
        if (report(&study, &c, 16, costs[i]) != pruned[i]) fail_msg("trial %zu with cost %g", i, costs[i]);
        assert_false(report(&study, &c, 20, 9)); /* between rungs */
        assert_false(report(&study, &c, 64, 9)); /* it is done */
        end(&study, &c, TU__TRIAL_FINISHED);
    }
    tu__study_close(&study);
}

static void the_median_of_others_prunes_after_five_trials(void **state) {
    (void)state;
    tu__study study;
    tu__study_plan plan = plan_of("median", 0);
    open_study(&study, &plan);
    for (int i = 0; i < 5; i++) {
        tu__claim c = claim(&study, TU__CLAIMED);
        assert_false(report(&study, &c, 16, 0.1 * (i + 1)));
        assert_false(report(&study, &c, 48, 0.01));
        end(&study, &c, TU__TRIAL_FINISHED);
    }
    tu__claim c = claim(&study, TU__CLAIMED);
    assert_false(report(&study, &c, 16, 0.29)); /* the median at a quarter is 0.3 */
    c = claim(&study, TU__CLAIMED);
    assert_true(report(&study, &c, 16, 0.31));
    tu__study_close(&study);
}

static void pruners_are_found_by_name(void **state) {
    (void)state;
    const tu__pruner *pruner;
    assert_int_equal(tu__pruner_find("medan", &pruner), TU_INVALID);
    assert_non_null(strstr(tu_message(), "did you mean 'median'?"));
}

/* ---- Other studies ---- */

static void a_study_of_something_else_is_refused(void **state) {
    (void)state;
    static const struct {
        size_t offset;
        const char *message;
    } changes[] = {
        {offsetof(tu__study_plan, model), "has the model 'mlp', not 'other'"},
        {offsetof(tu__study_plan, model_digest), "has the model with digest 'a', not 'other'"},
        {offsetof(tu__study_plan, data), "has the data set 'mnist', not 'other'"},
        {offsetof(tu__study_plan, data_digest), "has the data set with digest 'b', not 'other'"},
        {offsetof(tu__study_plan, space), "has the space"},
        {offsetof(tu__study_plan, settings), "has the settings '{}', not 'other'"},
        {offsetof(tu__study_plan, sampler), "has the sampler 'random', not 'other'"},
    };
    tu__study study;
    tu__study_plan plan = plan_of("none", 5);
    open_study(&study, &plan);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        tu__study_plan other = plan;
        *(const char **)((char *)&other + changes[i].offset) = "other";
        assert_int_equal(tu__study_create(&study, &other), TU_INVALID);
        if (!strstr(tu_message(), changes[i].message))
            fail_msg("'%s', expected '%s'", tu_message(), changes[i].message);
    }
    plan.trials = 7; /* a budget may grow */
    assert_int_equal(tu__study_create(&study, &plan), TU_OK);
    assert_int_equal(study.plan.trials, 7);
    tu__study_close(&study);
}

static void another_schema_is_refused(void **state) {
    (void)state;
    tu__study study;
    tu__study_plan plan = plan_of("none", 5);
    open_study(&study, &plan);
    assert_int_equal(tu__sql_run(&study.sql, "UPDATE tutti_schema SET version = 2", 0, NULL, NULL), TU_OK);
    tu__study_close(&study);
    assert_int_equal(tu__study_connect(database, true, &study), TU_UNSUPPORTED);
    assert_non_null(strstr(tu_message(), "its schema has version 2: expected 1"));
    tu__study_close(&study);
}

static void what_is_no_study_is_refused(void **state) {
    (void)state;
    tu__study study;
    assert_int_equal(tu__study_connect(database, false, &study), TU_NOT_FOUND);
    tu__study_close(&study);
    assert_int_equal(access(database, F_OK), -1); /* looking creates nothing */
    FILE *file = fopen(database, "w");
    for (int i = 0; i < 1000; i++) fputs("this is a text\n", file);
    fclose(file);
    assert_int_equal(tu__study_connect(database, true, &study), TU_CORRUPT);
    assert_non_null(strstr(tu_message(), "file is not a database"));
    tu__study_close(&study);
    assert_int_equal(tu__study_connect("/none/study.db", true, &study), TU_IO);
    assert_non_null(strstr(tu_message(), "unable to open database file"));
    tu__study_close(&study);
}

static void passwords_are_not_shown(void **state) {
    (void)state;
    tu__sql sql;
    assert_int_not_equal(
        tu__sql_open("postgresql://me:secret@127.0.0.1:1/db?connect_timeout=1&password=more", false, &sql),
        TU_OK);
    assert_string_equal(sql.shown, "postgresql://me:***@127.0.0.1:1/db");
    assert_null(strstr(tu_message(), "secret"));
    assert_null(strstr(tu_message(), "more"));
    tu__sql_close(&sql);
    static const char *const others[][2] = {
        {"postgresql://127.0.0.1:1/db?connect_timeout=1&user=me@x&password=secret",
         "postgresql://127.0.0.1:1/db"},
        {"postgresql://127.0.0.1:1/db?connect_timeout=1&password=secret@more", "postgresql://127.0.0.1:1/db"},
        {"postgresql://me@127.0.0.1:1/db?connect_timeout=1", "postgresql://me@127.0.0.1:1/db"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_not_equal(tu__sql_open(others[i][0], false, &sql), TU_OK);
        assert_string_equal(sql.shown, others[i][1]);
        tu__sql_close(&sql);
    }
}

/* An existing study keeps what the caller did not choose. */
static void defaults_do_not_change_an_existing_study(void **state) {
    (void)state;
    tu__study study;
    tu__study_plan plan = plan_of("none", 50);
    open_study(&study, &plan);
    plan.trials = plan.attempts = 0;
    plan.default_trials = 20, plan.default_attempts = 3;
    assert_int_equal(tu__study_create(&study, &plan), TU_OK);
    assert_int_equal(study.plan.trials, 50);
    assert_int_equal(study.plan.attempts, 2);
    plan.name = "new";
    assert_int_equal(tu__study_create(&study, &plan), TU_OK);
    assert_int_equal(study.plan.trials, 20);
    assert_int_equal(study.plan.attempts, 3);
    tu__study_close(&study);
}

/* ---- Hostile text ---- */

static const char hostile[] = "x'); DROP TABLE trial; --<script>alert(1)</script>\"&";

static void hostile_text_is_only_text(void **state) {
    (void)state;
    tu__study study;
    tu__study_plan plan = plan_of("none", 2);
    char space[200], page[300];
    snprintf(space, sizeof space, "rate=0:1\nkind=%s|=2+3\n", hostile);
    plan.name = hostile, plan.model = hostile, plan.space = space;
    open_study(&study, &plan);
    for (int i = 0; i < 2; i++) {
        tu__claim c = claim(&study, TU__CLAIMED);
        report(&study, &c, 16, 0.5);
        assert_int_equal(tu__study_end(&study, &c, i ? TU__TRIAL_FAILED : TU__TRIAL_FINISHED, 1, 1,
                                       "=cmd|'/c calc'!A1 <b>\xFF"),
                         TU_OK);
    }
    tu__study_close(&study);
    tu_study *view;
    if (tu_study_open(folder, NULL, &view) != TU_OK) fail_msg("%s", tu_message());
    snprintf(page, sizeof page, "%s/page.html", folder);
    assert_int_equal(tu_study_save_page(view, page), TU_OK);
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    assert_int_equal(tu_study_export(view, "csv", memory), TU_OK);
    fclose(memory);
    assert_non_null(text);
    for (const char *field = text; field; field = strchr(field + 1, ',')) { /* no field is a formula */
        const char *begin = *field == ',' ? field + 1 : field;
        if (*begin == '"') begin++;
        assert_null(strchr("=+@", *begin ? *begin : ' '));
    }
    assert_non_null(strstr(text, "\"'=cmd|"));
    free(text);
    tu_study_free(view);
    static char html[400000];
    FILE *file = fopen(page, "r");
    html[fread(html, 1, sizeof html - 1, file)] = '\0';
    fclose(file);
    assert_non_null(strstr(html, "&lt;script&gt;alert(1)"));
    static const char *const forbidden[] = {"<script", "<b>",   "http://", "https://",
                                            " src=",   "href=", "url(",    "@import"};
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++)
        if (strstr(html, forbidden[i])) fail_msg("the page contains %s", forbidden[i]);
}

/* ---- Full and read-only disks ---- */

/* Runs `body` in a process of its own with a limit of the size of files, as on a full disk. */
static int with_full_disk(int (*body)(void)) {
    pid_t child = fork();
    if (child == 0) {
        struct stat info;
        struct rlimit limit = {0};
        signal(SIGXFSZ, SIG_IGN);
        stat(database, &info);
        limit.rlim_cur = limit.rlim_max = (rlim_t)info.st_size;
        setrlimit(RLIMIT_FSIZE, &limit);
        _exit(body());
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

/* Returns 0 if the study goes on until there is no space, and then says so. */
static int fill_study(void) {
    tu__study study;
    tu__claimed claimed;
    if (tu__study_connect(database, false, &study) != TU_OK || tu__study_load(&study, NULL) != TU_OK)
        return 1;
    for (int i = 0; i < 10000; i++) {
        tu__claim c = {0};
        tu__claim_text(c.text);
        if (tu__study_claim(&study, "worker", &c, &claimed) == TU_OK) continue;
        bool clear = strstr(tu_message(), "full") || strstr(tu_message(), "disk I/O error");
        if (!clear) fprintf(stderr, "%s\n", tu_message());
        return clear ? 0 : 2;
    }
    return 3;
}

static void a_full_disk_loses_nothing(void **state) {
    (void)state;
    tu__study study;
    tu__study_plan plan = plan_of("none", 0);
    open_study(&study, &plan);
    for (int i = 0; i < 30; i++) {
        tu__claim c = claim(&study, TU__CLAIMED);
        report(&study, &c, 64, 0.5);
        end(&study, &c, TU__TRIAL_FINISHED);
    }
    tu__study_close(&study);
    assert_int_equal(with_full_disk(fill_study), 0);
    tu__trials trials;
    assert_int_equal(tu__study_connect(database, false, &study), TU_OK);
    assert_int_equal(tu__study_load(&study, NULL), TU_OK);
    assert_int_equal(tu__study_read(&study, true, &trials), TU_OK);
    assert_true(trials.count >= 30);
    for (int i = 0; i < 30; i++) assert_int_equal(trials.trials[i].state, TU__TRIAL_FINISHED);
    tu__trials_free(&trials);
    claim(&study, TU__CLAIMED); /* with space it goes on */
    tu__study_close(&study);
}

static int use_read_only(void) {
    tu__study study;
    tu__trials trials;
    tu__claim c = {0};
    tu__claimed claimed;
    if (geteuid() == 0 && (setegid(65534) != 0 || seteuid(65534) != 0)) return 77;
    if (tu__study_connect(database, false, &study) != TU_OK || tu__study_load(&study, NULL) != TU_OK)
        return 1;
    if (tu__study_read(&study, true, &trials) != TU_OK || trials.count != 1) return 2;
    tu__claim_text(c.text);
    if (tu__study_claim(&study, "worker", &c, &claimed) == TU_OK) return 3;
    return strstr(tu_message(), "the file or its folder is read-only") ? 0 : 4;
}

static void a_read_only_study_can_be_read(void **state) {
    (void)state;
    tu__study study;
    tu__study_plan plan = plan_of("none", 0);
    open_study(&study, &plan);
    claim(&study, TU__CLAIMED);
    tu__study_close(&study);
    chmod(database, 0444);
    chmod(folder, 0555);
    pid_t child = fork();
    if (child == 0) _exit(use_read_only());
    int status;
    waitpid(child, &status, 0);
    chmod(folder, 0755);
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        STUDY_TEST(trials_are_claimed_once_and_in_order),
        STUDY_TEST(interrupted_trials_are_continued_first),
        STUDY_TEST(a_silent_worker_loses_its_trial_and_dead_ones_fail_it),
        STUDY_TEST(a_lost_answer_changes_nothing),
        STUDY_TEST(a_trial_that_ends_while_it_is_claimed_stays_ended),
        STUDY_TEST(a_connection_that_was_lost_while_idle_is_opened_again),
        STUDY_TEST(one_process_takes_the_test_also_if_the_answer_is_lost),
        STUDY_TEST(waiting_ends_with_the_patience_or_the_stop_flag),
        STUDY_TEST(a_database_that_was_away_costs_no_attempt),
        STUDY_TEST(asha_keeps_the_best_quarter_of_a_rung),
        STUDY_TEST(the_median_of_others_prunes_after_five_trials),
        cmocka_unit_test(pruners_are_found_by_name),
        STUDY_TEST(a_study_of_something_else_is_refused),
        STUDY_TEST(defaults_do_not_change_an_existing_study),
        STUDY_TEST(another_schema_is_refused),
        STUDY_TEST(what_is_no_study_is_refused),
        cmocka_unit_test(passwords_are_not_shown),
        STUDY_TEST(hostile_text_is_only_text),
        STUDY_TEST(a_full_disk_loses_nothing),
        STUDY_TEST(a_read_only_study_can_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
