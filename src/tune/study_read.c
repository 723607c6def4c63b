/* Reads the trials of a study. See study.h. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "tune/study.h"

/* ---- Values ---- */

static size_t find_parameter(const tu__space *space, const char *name) {
    size_t i = 0;
    while (i < space->count && strcmp(space->parameters[i].name, name) != 0) i++;
    return i;
}

static tu__trial *find_trial(size_t count, tu__trial *trials, int64_t number) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (trials[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && trials[low].number == number ? &trials[low] : NULL;
}

static tu_status store_values(const tu__study *study, const tu__sql_result *rows, size_t count,
                              tu__trial *trials) {
    for (size_t i = 0; i < rows->rows; i++) {
        tu__trial *trial = find_trial(count, trials, tu__sql_cell_integer(rows, i, 0));
        const char *name = tu__sql_cell(rows, i, 1);
        size_t parameter = find_parameter(&study->space, name);
        if (!trial) continue;
        if (parameter == study->space.count)
            return tu_fail(TU_CORRUPT,
                           "study '%s': trial %lld has a parameter '%.60s', which is not in the space",
                           study->sql.shown, (long long)trial->number, name);
        TU_TRY(tu__parameter_parse(&study->space.parameters[parameter], tu__sql_cell(rows, i, 2),
                                   &trial->point.value[parameter]));
    }
    return TU_OK;
}

tu_status tu__study_read_points(tu__study *study, tu__sql *sql, size_t count, tu__trial *trials) {
    tu__sql_result rows = {0};
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < TU__MAX_PARAMETERS; k++) trials[i].point.value[k] = (double)NAN;
    if (count == 0) return TU_OK;
    tu_status status = tu__sql_run(
        sql, "SELECT number, name, value FROM parameter WHERE study = $1 AND number >= $2 AND number <= $3",
        TU__SQL_VALUES(tu__sql_text(study->plan.name), tu__sql_integer(trials[0].number),
                       tu__sql_integer(trials[count - 1].number)),
        &rows);
    if (status == TU_OK) status = store_values(study, &rows, count, trials);
    tu__sql_result_free(&rows);
    return status;
}

/* ---- Trials ---- */

static tu__trial_state state_named(const char *name) {
    tu__trial_state state = TU__TRIAL_WAITING;
    while (state < TU__TRIAL_FAILED && strcmp(tu__trial_state_names[state], name) != 0) state++;
    return state;
}

static tu_status store_trials(const tu__sql_result *rows, tu__trials *t) {
    t->count = rows->rows;
    t->trials = tu__arena_alloc(&t->arena, (rows->rows + 1) * sizeof *t->trials);
    if (!t->trials) return TU_NO_MEMORY;
    for (size_t i = 0; i < rows->rows; i++) {
        tu__trial *trial = &t->trials[i];
        *trial = (tu__trial){.number = tu__sql_cell_integer(rows, i, 0),
                             .state = state_named(tu__sql_cell(rows, i, 1)),
                             .attempts = tu__sql_cell_integer(rows, i, 2),
                             .step = tu__sql_cell_integer(rows, i, 3),
                             .steps = tu__sql_cell_integer(rows, i, 4),
                             .cost = tu__sql_cell_real(rows, i, 5),
                             .created = tu__sql_cell_real(rows, i, 6),
                             .started = tu__sql_cell_real(rows, i, 7),
                             .ended = tu__sql_cell_real(rows, i, 8),
                             .seconds = tu__sql_cell_real(rows, i, 9),
                             .worker = tu__arena_string(&t->arena, tu__sql_cell(rows, i, 10)),
                             .run = tu__arena_string(&t->arena, tu__sql_cell(rows, i, 11)),
                             .message = tu__arena_string(&t->arena, tu__sql_cell(rows, i, 12))};
        if (!trial->worker || !trial->run || !trial->message) return TU_NO_MEMORY;
    }
    return TU_OK;
}

static tu_status store_reports(const tu__sql_result *rows, tu__trials *t) {
    tu__report *reports = tu__arena_alloc(&t->arena, (rows->rows + 1) * sizeof *reports);
    if (!reports) return TU_NO_MEMORY;
    for (size_t i = 0; i < rows->rows; i++) {
        tu__trial *trial = find_trial(t->count, t->trials, tu__sql_cell_integer(rows, i, 0));
        reports[i] = (tu__report){.step = tu__sql_cell_integer(rows, i, 1),
                                  .steps = tu__sql_cell_integer(rows, i, 2),
                                  .cost = tu__sql_cell_real(rows, i, 3),
                                  .loss = tu__sql_cell_real(rows, i, 4),
                                  .accuracy = tu__sql_cell_real(rows, i, 5)};
        if (!trial) continue; /* of a database that somebody has edited */
        if (!trial->report_count) trial->reports = &reports[i];
        trial->report_count++;
    }
    return TU_OK;
}

static tu_status read_study_row(tu__study *study, tu__sql *sql, tu__trials *t) {
    tu__sql_result rows = {0};
    TU_TRY(sql->driver->now(sql, &t->now));
    tu_status status = tu__sql_run(sql, "SELECT tested, test_accuracy, test_loss FROM study WHERE name = $1",
                                   TU__SQL_VALUES(tu__sql_text(study->plan.name)), &rows);
    t->tested = tu__sql_cell_is_null(&rows, 0, 0) ? -1 : tu__sql_cell_integer(&rows, 0, 0);
    t->test_accuracy = tu__sql_cell_real(&rows, 0, 1);
    t->test_loss = tu__sql_cell_real(&rows, 0, 2);
    tu__sql_result_free(&rows);
    return status;
}

static tu_status read_all(tu__study *study, tu__sql *sql, bool reports, tu__trials *t) {
    tu__sql_result rows = {0};
    const char *name = study->plan.name;
    TU_TRY(read_study_row(study, sql, t));
    tu_status status =
        tu__sql_run(sql,
                    "SELECT number, state, attempts, step, steps, cost, created, started, ended,"
                    " seconds, worker, run, message FROM trial WHERE study = $1 ORDER BY number",
                    TU__SQL_VALUES(tu__sql_text(name)), &rows);
    if (status == TU_OK) status = store_trials(&rows, t);
    if (status == TU_OK) status = tu__study_read_points(study, sql, t->count, t->trials);
    if (status == TU_OK && reports)
        status = tu__sql_run(sql,
                             "SELECT number, step, steps, cost, loss, accuracy FROM report WHERE study = $1"
                             " ORDER BY number, step",
                             TU__SQL_VALUES(tu__sql_text(name)), &rows);
    if (status == TU_OK && reports) status = store_reports(&rows, t);
    tu__sql_result_free(&rows);
    return status;
}

struct reading {
    tu__study *study;
    bool reports;
    tu__trials *trials;
};

static tu_status read_body(tu__sql *sql, void *context) {
    const struct reading *r = context;
    tu__trials_free(r->trials); /* of an earlier try */
    *r->trials = (tu__trials){.arena = {.purpose = "the trials of a study"}, .tested = -1};
    return read_all(r->study, sql, r->reports, r->trials);
}

tu_status tu__study_read(tu__study *study, bool reports, tu__trials *trials) {
    struct reading r = {study, reports, trials};
    *trials = (tu__trials){0};
    pthread_mutex_lock(&study->lock);
    tu_status status = tu__sql_read(&study->sql, read_body, &r);
    pthread_mutex_unlock(&study->lock);
    if (status != TU_OK) tu__trials_free(trials);
    return status;
}

void tu__trials_free(tu__trials *trials) {
    tu__arena_free(&trials->arena);
    *trials = (tu__trials){0};
}

const tu__trial *tu__best_trial(const tu__trials *trials) {
    const tu__trial *best = NULL;
    for (size_t i = 0; i < trials->count; i++) {
        const tu__trial *t = &trials->trials[i];
        if (t->state != TU__TRIAL_FINISHED || isnan(t->cost)) continue;
        if (!best || t->cost < best->cost) best = t;
    }
    return best;
}

/* ---- The test split ---- */

struct tested {
    const char *name;
    int64_t number;
    double accuracy, loss;
    bool mine;
};

static tu_status take_test_body(tu__sql *sql, void *context) {
    struct tested *t = context;
    tu__sql_result result = {0};
    tu_status status = tu__sql_run(
        sql,
        "UPDATE study SET tested = $2, test_accuracy = NULL, test_loss = NULL"
        " WHERE name = $1 AND (tested IS NULL OR tested <> $3)",
        TU__SQL_VALUES(tu__sql_text(t->name), tu__sql_integer(t->number), tu__sql_integer(t->number)),
        &result);
    /* A repeated try finds what an earlier one has written, whose answer was lost. */
    t->mine = t->mine || result.changed > 0;
    tu__sql_result_free(&result);
    return status;
}

tu_status tu__study_take_test(tu__study *study, int64_t number, bool *mine) {
    struct tested t = {.name = study->plan.name, .number = number};
    pthread_mutex_lock(&study->lock);
    tu_status status = tu__sql_transaction(&study->sql, take_test_body, &t);
    pthread_mutex_unlock(&study->lock);
    *mine = t.mine;
    return status;
}

static tu_status set_test_body(tu__sql *sql, void *context) {
    const struct tested *t = context;
    return tu__sql_run(sql,
                       "UPDATE study SET tested = $2, test_accuracy = $3, test_loss = $4 WHERE name = $1",
                       TU__SQL_VALUES(tu__sql_text(t->name), tu__sql_integer(t->number),
                                      tu__sql_real(t->accuracy), tu__sql_real(t->loss)),
                       NULL);
}

tu_status tu__study_set_test(tu__study *study, int64_t number, double accuracy, double loss) {
    struct tested t = {study->plan.name, number, accuracy, loss, false};
    pthread_mutex_lock(&study->lock);
    tu_status status = tu__sql_transaction(&study->sql, set_test_body, &t);
    pthread_mutex_unlock(&study->lock);
    return status;
}
