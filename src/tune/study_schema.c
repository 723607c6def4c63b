/* Opens a database, makes its tables, and creates or opens a study. See study.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "tune/study.h"

/* ---- Tables ---- */

static const char *const tables[] = {
    "CREATE TABLE IF NOT EXISTS tutti_schema (only_row BIGINT PRIMARY KEY, version BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS study (name TEXT PRIMARY KEY, created DOUBLE PRECISION NOT NULL,"
    " model TEXT NOT NULL, model_digest TEXT NOT NULL, data TEXT NOT NULL, data_digest TEXT NOT NULL,"
    " space TEXT NOT NULL, settings TEXT NOT NULL, objective TEXT NOT NULL, sampler TEXT NOT NULL,"
    " pruner TEXT NOT NULL, folder TEXT NOT NULL, seed BIGINT NOT NULL, trials BIGINT NOT NULL,"
    " steps BIGINT NOT NULL, attempts BIGINT NOT NULL, changes BIGINT NOT NULL,"
    " tested BIGINT, test_accuracy DOUBLE PRECISION, test_loss DOUBLE PRECISION)",
    "CREATE TABLE IF NOT EXISTS trial (study TEXT NOT NULL, number BIGINT NOT NULL, state TEXT NOT NULL,"
    " claim TEXT, worker TEXT, attempts BIGINT NOT NULL, heartbeat DOUBLE PRECISION NOT NULL,"
    " created DOUBLE PRECISION NOT NULL, started DOUBLE PRECISION, ended DOUBLE PRECISION,"
    " step BIGINT NOT NULL, steps BIGINT NOT NULL, seconds DOUBLE PRECISION, cost DOUBLE PRECISION,"
    " run TEXT, message TEXT, PRIMARY KEY (study, number))",
    "CREATE TABLE IF NOT EXISTS parameter (study TEXT NOT NULL, number BIGINT NOT NULL, name TEXT NOT NULL,"
    " value TEXT NOT NULL, PRIMARY KEY (study, number, name))",
    "CREATE TABLE IF NOT EXISTS report (study TEXT NOT NULL, number BIGINT NOT NULL, step BIGINT NOT NULL,"
    " steps BIGINT NOT NULL, share DOUBLE PRECISION NOT NULL, rung BIGINT NOT NULL, cost DOUBLE PRECISION,"
    " loss DOUBLE PRECISION, accuracy DOUBLE PRECISION, PRIMARY KEY (study, number, step))",
    "CREATE INDEX IF NOT EXISTS trial_claim ON trial (study, claim)",
    "CREATE INDEX IF NOT EXISTS report_rung ON report (study, rung)",
};

static tu_status check_version(const tu__sql *sql, int64_t version) {
    if (version == TU__STUDY_SCHEMA) return TU_OK;
    return tu_fail(
        TU_UNSUPPORTED,
        "study '%s': its schema has version %lld: expected %d; use the version of Tutti that made it",
        sql->shown, (long long)version, TU__STUDY_SCHEMA);
}

static tu_status read_version(tu__sql *sql, bool *found, int64_t *version) {
    tu__sql_result rows = {0};
    tu_status status = tu__sql_run(sql, "SELECT version FROM tutti_schema", 0, NULL, &rows);
    *found = rows.rows > 0;
    *version = tu__sql_cell_integer(&rows, 0, 0);
    tu__sql_result_free(&rows);
    return status;
}

static tu_status make_tables(tu__sql *sql, void *context) {
    (void)context;
    bool found;
    int64_t version;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        TU_TRY(tu__sql_run(sql, tables[i], 0, NULL, NULL));
    TU_TRY(read_version(sql, &found, &version));
    if (found) return check_version(sql, version);
    return tu__sql_run(sql, "INSERT INTO tutti_schema (only_row, version) VALUES (1, $1)",
                       TU__SQL_VALUES(tu__sql_integer(TU__STUDY_SCHEMA)), NULL);
}

/* Reads the version first: somebody who only looks at a study need not be able to write it. */
tu_status tu__study_connect(const char *address, bool create, tu__study *study) {
    bool found;
    int64_t version;
    *study = (tu__study){.arena = {.purpose = "a study"}, .timeout = 60};
    pthread_mutex_init(&study->lock, NULL);
    TU_TRY(tu__sql_open(address, create, &study->sql));
    if (read_version(&study->sql, &found, &version) == TU_OK && found)
        return check_version(&study->sql, version);
    if (create) return tu__sql_transaction(&study->sql, make_tables, NULL);
    char message[600];
    snprintf(message, sizeof message, "%s", tu_message());
    return tu_fail(TU_NOT_FOUND, "'%s' contains no study (%s)", study->sql.shown, message);
}

void tu__study_close(tu__study *study) {
    tu__sql_close(&study->sql);
    tu__space_free(&study->space);
    tu__arena_free(&study->arena);
    pthread_mutex_destroy(&study->lock);
}

/* ---- A study ---- */

#define COLUMNS                                                                                              \
    "name, model, model_digest, data, data_digest, space, settings, objective, sampler, pruner, folder, "    \
    "seed, trials, steps, attempts"

static tu_status read_plan(tu__study *study, const tu__sql_result *row) {
    tu__study_plan *p = &study->plan;
    const char **texts[] = {&p->name,        &p->model,  &p->model_digest, &p->data,
                            &p->data_digest, &p->space,  &p->settings,     &p->objective,
                            &p->sampler,     &p->pruner, &p->folder};
    int64_t *numbers[] = {&p->seed, &p->trials, &p->steps, &p->attempts};
    enum { TEXTS = sizeof texts / sizeof *texts };
    for (size_t i = 0; i < TEXTS; i++) {
        *texts[i] = tu__arena_string(&study->arena, tu__sql_cell(row, 0, i));
        if (!*texts[i]) return TU_NO_MEMORY;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        *numbers[i] = tu__sql_cell_integer(row, 0, TEXTS + i);
    tu__space_free(&study->space);
    TU_TRY(tu__space_add_lines(&study->space, study->sql.shown, p->space));
    TU_TRY(tu__space_check(&study->space));
    TU_TRY(tu__sampler_find(p->sampler, &study->sampler));
    return tu__pruner_find(p->pruner, &study->pruner);
}

static tu_status list_names(tu__sql *sql, tu__text *names) {
    tu__sql_result found = {0};
    tu_status status = tu__sql_run(sql, "SELECT name FROM study ORDER BY name LIMIT 10", 0, NULL, &found);
    for (size_t i = 0; i < found.rows; i++)
        tu__text_printf(names, "%s%.60s", i ? ", " : "", tu__sql_cell(&found, i, 0));
    tu__sql_result_free(&found);
    return status;
}

static tu_status fail_name(tu__study *study, const char *name, size_t found) {
    tu__text names = {0};
    tu_status status = list_names(&study->sql, &names);
    if (status == TU_OK && !names.length)
        status = tu_fail(TU_NOT_FOUND, "'%s' contains no study", study->sql.shown);
    else if (status == TU_OK && name)
        status = tu_fail(TU_NOT_FOUND, "'%s' contains no study '%.60s': expected %s", study->sql.shown, name,
                         tu__text_string(&names));
    else if (status == TU_OK)
        status = tu_fail(TU_INVALID, "'%s' contains %zu studies: choose one with --name: %s",
                         study->sql.shown, found, tu__text_string(&names));
    tu__text_free(&names);
    return status;
}

tu_status tu__study_load(tu__study *study, const char *name) {
    tu__sql_result found = {0};
    tu_status status = name ? tu__sql_run(&study->sql, "SELECT " COLUMNS " FROM study WHERE name = $1",
                                          TU__SQL_VALUES(tu__sql_text(name)), &found)
                            : tu__sql_run(&study->sql, "SELECT " COLUMNS " FROM study", 0, NULL, &found);
    if (status == TU_OK)
        status = found.rows == 1 ? read_plan(study, &found) : fail_name(study, name, found.rows);
    tu__sql_result_free(&found);
    return status;
}

/* ---- Creating a study ---- */

struct creation {
    tu__study *study;
    const tu__study_plan *plan;
};

static tu_status check_same(const tu__study *study, const tu__study_plan *plan) {
    const tu__study_plan *stored = &study->plan;
    const struct {
        const char *what, *stored, *given, *option;
    } texts[] = {
        {"model", stored->model, plan->model, "another --study or --name"},
        {"data set", stored->data, plan->data, "another --study or --name"},
        {"model with digest", stored->model_digest, plan->model_digest,
         "another --study: the model has changed"},
        {"data set with digest", stored->data_digest, plan->data_digest,
         "another --study: the data has changed"},
        {"space", stored->space, plan->space, "another --study, or the space of the study"},
        {"settings", stored->settings, plan->settings, "another --study, or the options of the study"},
        {"objective", stored->objective, plan->objective, "another --study"},
        {"sampler", stored->sampler, plan->sampler, "another --study"},
        {"pruner", stored->pruner, plan->pruner, "another --study"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(texts[i].stored, texts[i].given) != 0)
            return tu_fail(TU_INVALID, "study '%s' in '%s' has the %s '%.300s', not '%.300s': expected %s",
                           stored->name, study->sql.shown, texts[i].what, texts[i].stored, texts[i].given,
                           texts[i].option);
    if (stored->seed == plan->seed) return TU_OK;
    return tu_fail(TU_INVALID, "study '%s' in '%s' has --seed %lld, not %lld", stored->name, study->sql.shown,
                   (long long)stored->seed, (long long)plan->seed);
}

static tu_status insert_study(tu__sql *sql, const tu__study_plan *p) {
    double now;
    TU_TRY(sql->driver->now(sql, &now));
    return tu__sql_run(
        sql,
        "INSERT INTO study (" COLUMNS ", created, changes) VALUES"
        " ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, 0)",
        TU__SQL_VALUES(tu__sql_text(p->name), tu__sql_text(p->model), tu__sql_text(p->model_digest),
                       tu__sql_text(p->data), tu__sql_text(p->data_digest), tu__sql_text(p->space),
                       tu__sql_text(p->settings), tu__sql_text(p->objective), tu__sql_text(p->sampler),
                       tu__sql_text(p->pruner), tu__sql_text(p->folder), tu__sql_integer(p->seed),
                       tu__sql_integer(p->trials ? p->trials : p->default_trials), tu__sql_integer(p->steps),
                       tu__sql_integer(p->attempts ? p->attempts : p->default_attempts), tu__sql_real(now)),
        NULL);
}

static tu_status change_budgets(tu__sql *sql, const tu__study_plan *p) {
    return tu__sql_run(
        sql,
        "UPDATE study SET trials = CASE WHEN CAST($2 AS BIGINT) > 0 THEN CAST($2 AS BIGINT) ELSE trials END,"
        " steps = CASE WHEN CAST($3 AS BIGINT) > 0 THEN CAST($3 AS BIGINT) ELSE steps END,"
        " attempts = CASE WHEN CAST($4 AS BIGINT) > 0 THEN CAST($4 AS BIGINT) ELSE attempts END"
        " WHERE name = $1",
        TU__SQL_VALUES(tu__sql_text(p->name), tu__sql_integer(p->trials), tu__sql_integer(p->steps),
                       tu__sql_integer(p->attempts)),
        NULL);
}

static tu_status create(tu__sql *sql, void *context) {
    struct creation *c = context;
    tu__sql_result found = {0};
    tu_status status = tu__sql_run(sql, "SELECT name FROM study WHERE name = $1",
                                   TU__SQL_VALUES(tu__sql_text(c->plan->name)), &found);
    bool exists = found.rows > 0;
    tu__sql_result_free(&found);
    TU_TRY(status);
    if (!exists) TU_TRY(insert_study(sql, c->plan));
    if (exists) TU_TRY(tu__study_load(c->study, c->plan->name));
    if (exists) TU_TRY(check_same(c->study, c->plan));
    if (exists) TU_TRY(change_budgets(sql, c->plan));
    return tu__study_load(c->study, c->plan->name);
}

tu_status tu__study_create(tu__study *study, const tu__study_plan *plan) {
    struct creation c = {study, plan};
    return tu__sql_transaction(&study->sql, create, &c);
}
