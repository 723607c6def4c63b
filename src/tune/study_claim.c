/* What workers do with a study: claim trials, report, end them. study.h says why each change may be repeated. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "tune/study.h"

const char *const tu__trial_state_names[TU__TRIAL_STATES + 1] = {"waiting", "running", "finished",
                                                                 "pruned",  "failed",  NULL};

static const char *name_of(tu__trial_state state) {
    return tu__trial_state_names[state];
}

void tu__claim_text(char text[TU__CLAIM_TEXT]) {
    unsigned char random[16];
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) memset(random, 0, sizeof random);
    int length = snprintf(text, TU__CLAIM_TEXT, "%.60s %ld ", host, (long)getpid());
    for (size_t i = 0; i < sizeof random; i++) length += snprintf(text + length, 3, "%02x", random[i]);
}

/* Runs a transaction of this study; threads take turns. */
static tu_status transact(tu__study *study, tu_status (*body)(tu__sql *sql, void *context), void *context) {
    pthread_mutex_lock(&study->lock);
    tu_status status = tu__sql_transaction(&study->sql, body, context);
    pthread_mutex_unlock(&study->lock);
    return status;
}

/* ---- Claiming ---- */

struct claiming {
    tu__study *study;
    const char *worker;
    tu__claim *claim;
    tu__claimed claimed;
    double now;
    double silent; /* a worker whose latest heartbeat is older has died */
};

/* Locks the study's row: from here to the end of the transaction no other worker claims or makes trials. */
static tu_status lock_study(tu__study *study, tu__sql *sql) {
    return tu__sql_run(sql, "UPDATE study SET changes = changes + 1 WHERE name = $1",
                       TU__SQL_VALUES(tu__sql_text(study->plan.name)), NULL);
}

/* Fills the claim from the trial's row. */
static tu_status read_claimed(struct claiming *c, tu__sql *sql) {
    tu__sql_result found = {0};
    tu__trial trial = {.number = c->claim->number};
    tu_status status = tu__sql_run(
        sql, "SELECT attempts, run FROM trial WHERE study = $1 AND number = $2",
        TU__SQL_VALUES(tu__sql_text(c->study->plan.name), tu__sql_integer(c->claim->number)), &found);
    if (status == TU_OK) status = tu__study_read_points(c->study, sql, 1, &trial);
    c->claim->attempt = tu__sql_cell_integer(&found, 0, 0);
    c->claim->point = trial.point;
    snprintf(c->claim->run, sizeof c->claim->run, "%s", tu__sql_cell(&found, 0, 1));
    tu__sql_result_free(&found);
    c->claimed = TU__CLAIMED;
    return status;
}

/* Finds the trial that an earlier try of this transaction has claimed. */
static tu_status find_repeated(struct claiming *c, tu__sql *sql, bool *found) {
    tu__sql_result rows = {0};
    tu_status status =
        tu__sql_run(sql, "SELECT number FROM trial WHERE study = $1 AND claim = $2 AND state = 'running'",
                    TU__SQL_VALUES(tu__sql_text(c->study->plan.name), tu__sql_text(c->claim->text)), &rows);
    *found = rows.rows > 0;
    c->claim->number = tu__sql_cell_integer(&rows, 0, 0);
    tu__sql_result_free(&rows);
    return status;
}

/* Fails the trials whose workers died too often. */
static tu_status fail_hopeless(struct claiming *c, tu__sql *sql) {
    char message[160];
    int64_t attempts = c->study->plan.attempts;
    snprintf(message, sizeof message, "its worker died or lost the database %" PRId64 " time%s", attempts,
             attempts == 1 ? "" : "s");
    return tu__sql_run(sql,
                       "UPDATE trial SET state = 'failed', claim = NULL, ended = $2, message = $3"
                       " WHERE study = $1 AND state = 'running' AND heartbeat < $4 AND attempts >= $5",
                       TU__SQL_VALUES(tu__sql_text(c->study->plan.name), tu__sql_real(c->now),
                                      tu__sql_text(message), tu__sql_real(c->silent),
                                      tu__sql_integer(attempts)),
                       NULL);
}

/* Finds the first trial that waits or whose worker is silent. */
static tu_status find_free(struct claiming *c, tu__sql *sql, bool *found) {
    tu__sql_result rows = {0};
    tu_status status = tu__sql_run(
        sql,
        "SELECT number FROM trial WHERE study = $1 AND (state = 'waiting' OR (state = 'running' AND heartbeat < $2))"
        " ORDER BY number LIMIT 1",
        TU__SQL_VALUES(tu__sql_text(c->study->plan.name), tu__sql_real(c->silent)), &rows);
    *found = rows.rows > 0;
    c->claim->number = tu__sql_cell_integer(&rows, 0, 0);
    tu__sql_result_free(&rows);
    return status;
}

/* Takes the trial that find_free found, unless its worker has ended it or renewed its heartbeat meanwhile: such changes do
 * not wait for the lock of the study. */
static tu_status take(struct claiming *c, tu__sql *sql, bool *taken) {
    tu__sql_result result = {0};
    tu_status status =
        tu__sql_run(sql,
                    "UPDATE trial SET state = 'running', claim = $3, worker = $4, attempts = attempts + 1,"
                    " heartbeat = $5 WHERE study = $1 AND number = $2"
                    " AND (state = 'waiting' OR (state = 'running' AND heartbeat < $6))",
                    TU__SQL_VALUES(tu__sql_text(c->study->plan.name), tu__sql_integer(c->claim->number),
                                   tu__sql_text(c->claim->text), tu__sql_text(c->worker),
                                   tu__sql_real(c->now), tu__sql_real(c->silent)),
                    &result);
    *taken = result.changed > 0;
    tu__sql_result_free(&result);
    return status;
}

static tu_status claim_old(struct claiming *c, tu__sql *sql, bool *taken) {
    bool found;
    *taken = false;
    do {
        TU_TRY(find_free(c, sql, &found));
        if (found) TU_TRY(take(c, sql, taken));
    } while (found && !*taken);
    return TU_OK;
}

/* ---- New trials ---- */

/* Reads what the sampler needs to know of all trials. */
static tu_status read_outcomes(struct claiming *c, tu__sql *sql, size_t count, tu__outcome **outcomes) {
    tu__sql_result rows = {0};
    tu__trial *trials = tu__alloc_array(count + 1, sizeof *trials, "the trials of a study");
    *outcomes = tu__alloc_array(count + 1, sizeof **outcomes, "the trials of a study");
    tu_status status = trials && *outcomes ? TU_OK : TU_NO_MEMORY;
    if (status == TU_OK)
        status = tu__sql_run(sql, "SELECT number, state, cost FROM trial WHERE study = $1 ORDER BY number",
                             TU__SQL_VALUES(tu__sql_text(c->study->plan.name)), &rows);
    for (size_t i = 0; status == TU_OK && i < count; i++)
        trials[i].number = tu__sql_cell_integer(&rows, i, 0);
    if (status == TU_OK) status = tu__study_read_points(c->study, sql, count, trials);
    for (size_t i = 0; status == TU_OK && i < count; i++) {
        const char *state = tu__sql_cell(&rows, i, 1);
        double cost = tu__sql_cell_real(&rows, i, 2);
        bool ended = strcmp(state, "waiting") != 0 && strcmp(state, "running") != 0;
        (*outcomes)[i] =
            (tu__outcome){.point = trials[i].point, .ended = ended, .scored = !isnan(cost), .value = cost};
    }
    tu__sql_result_free(&rows);
    tu__free(trials);
    return status;
}

static tu_status sample(struct claiming *c, tu__sql *sql, int64_t number) {
    tu__outcome *outcomes = NULL;
    tu__study *s = c->study;
    tu__history history = {.space = &s->space, .seed = (uint64_t)s->plan.seed};
    tu_status status = TU_OK;
    if (s->sampler->reads_history) {
        history.count = (size_t)number;
        status = read_outcomes(c, sql, history.count, &outcomes);
        history.outcomes = outcomes;
    }
    if (status == TU_OK) status = s->sampler->sample(&history, number, &c->claim->point);
    tu__free(outcomes);
    return status;
}

static tu_status insert_values(struct claiming *c, tu__sql *sql) {
    const tu__space *space = &c->study->space;
    tu_status status = TU_OK;
    for (size_t i = 0; status == TU_OK && i < space->count; i++) {
        tu__text text = {0};
        if (isnan(c->claim->point.value[i])) continue;
        tu__parameter_format(&space->parameters[i], c->claim->point.value[i], &text);
        status = tu__sql_run(
            sql, "INSERT INTO parameter (study, number, name, value) VALUES ($1, $2, $3, $4)",
            TU__SQL_VALUES(tu__sql_text(c->study->plan.name), tu__sql_integer(c->claim->number),
                           tu__sql_text(space->parameters[i].name), tu__sql_text(tu__text_string(&text))),
            NULL);
        tu__text_free(&text);
    }
    return status;
}

static tu_status insert_trial(struct claiming *c, tu__sql *sql, int64_t number) {
    TU_TRY(sample(c, sql, number));
    c->claim->number = number;
    TU_TRY(tu__sql_run(
        sql,
        "INSERT INTO trial (study, number, state, claim, worker, attempts, heartbeat, created, started,"
        " step, steps) VALUES ($1, $2, 'running', $3, $4, 1, $5, $6, $7, 0, 0)",
        TU__SQL_VALUES(tu__sql_text(c->study->plan.name), tu__sql_integer(number),
                       tu__sql_text(c->claim->text), tu__sql_text(c->worker), tu__sql_real(c->now),
                       tu__sql_real(c->now), tu__sql_real(c->now)),
        NULL));
    return insert_values(c, sql);
}

struct totals {
    int64_t trials, running, steps;
};

static tu_status count_trials(struct claiming *c, tu__sql *sql, struct totals *totals) {
    tu__sql_result rows = {0};
    tu_status status = tu__sql_run(
        sql,
        "SELECT COUNT(*), SUM(CASE WHEN state = 'running' THEN 1 ELSE 0 END), SUM(step) FROM trial WHERE study = $1",
        TU__SQL_VALUES(tu__sql_text(c->study->plan.name)), &rows);
    *totals = (struct totals){tu__sql_cell_integer(&rows, 0, 0), tu__sql_cell_integer(&rows, 0, 1),
                              tu__sql_cell_integer(&rows, 0, 2)};
    tu__sql_result_free(&rows);
    return status;
}

/* Reads the budgets, which another worker may have changed. */
static tu_status read_budgets(tu__study *s, tu__sql *sql) {
    tu__sql_result rows = {0};
    tu_status status = tu__sql_run(sql, "SELECT trials, steps, attempts FROM study WHERE name = $1",
                                   TU__SQL_VALUES(tu__sql_text(s->plan.name)), &rows);
    if (status == TU_OK && rows.rows) {
        s->plan.trials = tu__sql_cell_integer(&rows, 0, 0);
        s->plan.steps = tu__sql_cell_integer(&rows, 0, 1);
        s->plan.attempts = tu__sql_cell_integer(&rows, 0, 2);
    }
    tu__sql_result_free(&rows);
    return status;
}

static bool is_grid_done(const tu__study *s, int64_t trials) {
    return s->sampler == &tu__sample_grid && tu__grid_size(&s->space, trials + 1) <= trials;
}

/* While the database was away no worker could renew its heartbeat. Whoever found it away gives the others a timeout to return:
 * their trials would lose an attempt. Heartbeats are four per timeout, so half of it is no outage for them. */
static double silent_before(const struct claiming *c, const tu__sql *sql) {
    double timeout = c->study->timeout;
    return tu__sql_was_away(sql, timeout / 2, timeout) ? 0 : c->now - timeout;
}

static tu_status claim_body(tu__sql *sql, void *context) {
    struct claiming *c = context;
    bool found;
    struct totals totals;
    TU_TRY(lock_study(c->study, sql));
    TU_TRY(sql->driver->now(sql, &c->now));
    c->silent = silent_before(c, sql);
    TU_TRY(find_repeated(c, sql, &found));
    if (found) return read_claimed(c, sql);
    TU_TRY(read_budgets(c->study, sql));
    TU_TRY(fail_hopeless(c, sql));
    TU_TRY(claim_old(c, sql, &found));
    if (found) return read_claimed(c, sql);
    TU_TRY(count_trials(c, sql, &totals));
    const tu__study_plan *p = &c->study->plan;
    c->claimed = totals.running ? TU__CLAIM_LATER : TU__CLAIM_NEVER;
    if ((p->trials && totals.trials >= p->trials) || (p->steps && totals.steps >= p->steps)) return TU_OK;
    if (is_grid_done(c->study, totals.trials)) return TU_OK;
    TU_TRY(insert_trial(c, sql, totals.trials));
    return read_claimed(c, sql);
}

tu_status tu__study_claim(tu__study *study, const char *worker, tu__claim *claim, tu__claimed *claimed) {
    struct claiming c = {.study = study, .worker = worker, .claim = claim};
    tu_status status = transact(study, claim_body, &c);
    *claimed = c.claimed;
    return status;
}

/* ---- Changes of a claimed trial ---- */

struct change {
    tu__study *study;
    const tu__claim *claim;
    const char *run, *message;
    size_t count;
    const tu__claim *const *claims;
    const tu__report *report;
    tu__trial_state state;
    double seconds;
    int64_t step;
    bool prune;
};

#define OWNED " WHERE study = $1 AND number = $2 AND claim = $3 AND state = 'running'"
#define OWNER(c)                                                                                             \
    tu__sql_text((c)->study->plan.name), tu__sql_integer((c)->claim->number), tu__sql_text((c)->claim->text)

static tu_status fail_lost(const struct change *c) {
    return tu_fail(TU_LOST,
                   "trial %" PRId64
                   " was given to another worker, because this one was silent for more than %g s",
                   c->claim->number, c->study->timeout);
}

static tu_status set_run_body(tu__sql *sql, void *context) {
    const struct change *c = context;
    tu__sql_result result = {0};
    TU_TRY(tu__sql_run(sql, "UPDATE trial SET run = $4" OWNED, TU__SQL_VALUES(OWNER(c), tu__sql_text(c->run)),
                       &result));
    int64_t changed = result.changed;
    tu__sql_result_free(&result);
    return changed ? TU_OK : fail_lost(c);
}

tu_status tu__study_set_run(tu__study *study, const tu__claim *claim, const char *run) {
    struct change c = {.study = study, .claim = claim, .run = run};
    return transact(study, set_run_body, &c);
}

static tu_status heartbeat_body(tu__sql *sql, void *context) {
    struct change *c = context;
    double now;
    TU_TRY(sql->driver->now(sql, &now));
    for (size_t i = 0; i < c->count; i++) {
        c->claim = c->claims[i];
        TU_TRY(tu__sql_run(sql, "UPDATE trial SET heartbeat = $4" OWNED,
                           TU__SQL_VALUES(OWNER(c), tu__sql_real(now)), NULL));
    }
    return TU_OK;
}

tu_status tu__study_heartbeat(tu__study *study, size_t count, const tu__claim *const *claims) {
    struct change c = {.study = study, .count = count, .claims = claims};
    return count ? transact(study, heartbeat_body, &c) : TU_OK;
}

/* ---- Reports and pruning ---- */

static int compare_numbers(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Decides by the costs in the first column of `rows`. */
static tu_status decide(struct change *c, double cost, const tu__sql_result *rows) {
    double *costs = tu__alloc_array(rows->rows + 1, sizeof *costs, "the costs of trials");
    size_t count = 0;
    if (!costs) return TU_NO_MEMORY;
    for (size_t i = 0; i < rows->rows; i++) {
        costs[count] = tu__sql_cell_real(rows, i, 0);
        if (!isnan(costs[count])) count++;
    }
    qsort(costs, count, sizeof *costs, compare_numbers);
    c->prune = c->study->pruner->stops(cost, count, costs);
    tu__free(costs);
    return TU_OK;
}

static tu_status prune_by_rung(struct change *c, tu__sql *sql, int rung) {
    tu__sql_result rows = {0};
    if (!rung) return TU_OK;
    tu_status status =
        tu__sql_run(sql, "SELECT cost FROM report WHERE study = $1 AND rung = $2 AND number <> $3",
                    TU__SQL_VALUES(tu__sql_text(c->study->plan.name), tu__sql_integer(rung),
                                   tu__sql_integer(c->claim->number)),
                    &rows);
    if (status == TU_OK) status = decide(c, c->report->cost, &rows);
    tu__sql_result_free(&rows);
    return status;
}

/* Compares the lowest costs up to this share of the steps, of trials that have got so far. */
static tu_status prune_by_share(struct change *c, tu__sql *sql, double share) {
    tu__sql_result own = {0}, rows = {0};
    const char *name = c->study->plan.name;
    tu_status status =
        tu__sql_run(sql, "SELECT MIN(cost) FROM report WHERE study = $1 AND number = $2",
                    TU__SQL_VALUES(tu__sql_text(name), tu__sql_integer(c->claim->number)), &own);
    if (status == TU_OK)
        status = tu__sql_run(sql,
                             "SELECT MIN(CASE WHEN share <= $2 THEN cost END) FROM report"
                             " WHERE study = $1 AND number <> $3 GROUP BY number HAVING MAX(share) >= $4",
                             TU__SQL_VALUES(tu__sql_text(name), tu__sql_real(share),
                                            tu__sql_integer(c->claim->number), tu__sql_real(share)),
                             &rows);
    if (status == TU_OK && share < 1) status = decide(c, tu__sql_cell_real(&own, 0, 0), &rows);
    tu__sql_result_free(&own);
    tu__sql_result_free(&rows);
    return status;
}

static tu_status previous_share(const struct change *c, tu__sql *sql, double *share) {
    tu__sql_result rows = {0};
    tu_status status =
        tu__sql_run(sql, "SELECT MAX(share) FROM report WHERE study = $1 AND number = $2 AND step < $3",
                    TU__SQL_VALUES(tu__sql_text(c->study->plan.name), tu__sql_integer(c->claim->number),
                                   tu__sql_integer(c->report->step)),
                    &rows);
    *share = status == TU_OK && !tu__sql_cell_is_null(&rows, 0, 0) ? tu__sql_cell_real(&rows, 0, 0) : 0;
    tu__sql_result_free(&rows);
    return status;
}

static tu_status insert_report(const struct change *c, tu__sql *sql, double share, int rung) {
    const tu__report *r = c->report;
    return tu__sql_run(
        sql,
        "INSERT INTO report (study, number, step, steps, share, rung, cost, loss, accuracy)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (study, number, step) DO NOTHING",
        TU__SQL_VALUES(tu__sql_text(c->study->plan.name), tu__sql_integer(c->claim->number),
                       tu__sql_integer(r->step), tu__sql_integer(r->steps), tu__sql_real(share),
                       tu__sql_integer(rung), tu__sql_real(r->cost), tu__sql_real(r->loss),
                       tu__sql_real(r->accuracy)),
        NULL);
}

static tu_status report_body(tu__sql *sql, void *context) {
    struct change *c = context;
    const tu__report *r = c->report;
    tu__sql_result result = {0};
    double now, before, share = r->steps > 0 ? (double)r->step / (double)r->steps : 1;
    c->prune = false;
    TU_TRY(sql->driver->now(sql, &now));
    TU_TRY(tu__sql_run(
        sql, "UPDATE trial SET heartbeat = $4, step = $5, steps = $6" OWNED,
        TU__SQL_VALUES(OWNER(c), tu__sql_real(now), tu__sql_integer(r->step), tu__sql_integer(r->steps)),
        &result));
    int64_t changed = result.changed;
    tu__sql_result_free(&result);
    if (!changed) return fail_lost(c);
    TU_TRY(previous_share(c, sql, &before));
    int rung = c->study->pruner->rung(before, share);
    TU_TRY(insert_report(c, sql, share, rung));
    if (c->study->pruner->compares == TU__PRUNE_RUNG) return prune_by_rung(c, sql, rung);
    if (c->study->pruner->compares == TU__PRUNE_SHARE) return prune_by_share(c, sql, share);
    return TU_OK;
}

tu_status tu__study_report(tu__study *study, const tu__claim *claim, const tu__report *report, bool *prune) {
    struct change c = {.study = study, .claim = claim, .report = report};
    tu_status status = transact(study, report_body, &c);
    *prune = c.prune;
    return status;
}

/* ---- Ending ---- */

/* True if an earlier try of this transaction has ended the trial: an ended trial keeps its claim. */
static tu_status find_ended(const struct change *c, tu__sql *sql, bool *found) {
    tu__sql_result rows = {0};
    tu_status status = tu__sql_run(
        sql, "SELECT number FROM trial WHERE study = $1 AND number = $2 AND claim = $3 AND state = $4",
        TU__SQL_VALUES(OWNER(c), tu__sql_text(name_of(c->state))), &rows);
    *found = rows.rows > 0;
    tu__sql_result_free(&rows);
    return status;
}

static tu_status end_body(tu__sql *sql, void *context) {
    const struct change *c = context;
    tu__sql_result result = {0};
    double now;
    bool ended;
    TU_TRY(sql->driver->now(sql, &now));
    TU_TRY(tu__sql_run(
        sql,
        "UPDATE trial SET state = $4, step = $5, seconds = $6, message = $7, ended = $8,"
        " cost = CASE WHEN $9 = 'failed' THEN NULL ELSE"
        " (SELECT MIN(r.cost) FROM report r WHERE r.study = trial.study AND r.number = trial.number) END" OWNED,
        TU__SQL_VALUES(OWNER(c), tu__sql_text(name_of(c->state)), tu__sql_integer(c->step),
                       tu__sql_real(c->seconds), tu__sql_text(c->message), tu__sql_real(now),
                       tu__sql_text(name_of(c->state))),
        &result));
    int64_t changed = result.changed;
    tu__sql_result_free(&result);
    if (changed) return TU_OK;
    TU_TRY(find_ended(c, sql, &ended));
    return ended ? TU_OK : fail_lost(c);
}

/* Copies a message as UTF-8, which PostgreSQL expects: other bytes become '?'. */
static void copy_message(const char *message, char *copy, size_t bytes) {
    size_t used = 0;
    for (size_t left = strlen(message); left > 0;) {
        bool valid;
        size_t length = tu__utf8_length(message, left, &valid);
        if (used + length + 1 > bytes) break;
        memcpy(copy + used, valid ? message : "????", length);
        used += length, message += length, left -= length;
    }
    copy[used] = '\0';
}

tu_status tu__study_end(tu__study *study, const tu__claim *claim, tu__trial_state state, int64_t step,
                        double seconds, const char *message) {
    char copy[1024];
    copy_message(message ? message : "", copy, sizeof copy);
    struct change c = {.study = study,
                       .claim = claim,
                       .state = state,
                       .step = step,
                       .seconds = seconds,
                       .message = message ? copy : NULL};
    return transact(study, end_body, &c);
}

static tu_status release_body(tu__sql *sql, void *context) {
    const struct change *c = context;
    return tu__sql_run(sql, "UPDATE trial SET state = 'waiting', claim = NULL, attempts = attempts - 1" OWNED,
                       TU__SQL_VALUES(OWNER(c)), NULL);
}

tu_status tu__study_release(tu__study *study, const tu__claim *claim) {
    struct change c = {.study = study, .claim = claim};
    return transact(study, release_body, &c);
}
