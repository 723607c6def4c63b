/* A study: the trials of one search, in a database that any number of workers share.
 *
 * Tables (schema version 1). Every table has the study's name in its key, so that one PostgreSQL database can hold many.
 *
 *     tutti_schema  version
 *     study         what is searched: model, data, space, fixed settings, sampler, pruner, budgets
 *     trial         a row for each trial: state, claim, heartbeat, result, run folder
 *     parameter     the values of a trial, as text
 *     report        a row for each validation of a trial
 *
 * A trial is *waiting* (it was interrupted), *running*, or ended: *finished*, *pruned*, *failed*. Its cost is the error rate or
 * the loss on the validation split: smaller is better. The test split occurs once, in the row of the study, for its best trial.
 *
 * A worker claims a trial with a text that nobody else has used, renews its heartbeat, and writes results only as long as the
 * row of the trial has its claim. So a change may be repeated after a lost connection: claiming finds the trial that has the
 * claim already, a report that is there already stays, an end by the same claim is the end. A trial that is running without a
 * heartbeat for longer than the timeout may be claimed by another worker. */
#ifndef TU__TUNE_STUDY_H
#define TU__TUNE_STUDY_H

#include <pthread.h>

#include "tune/prune.h"
#include "tune/sampler.h"
#include "tune/sql.h"

enum { TU__STUDY_SCHEMA = 1, TU__CLAIM_TEXT = 200 };

typedef enum tu__trial_state {
    TU__TRIAL_WAITING,
    TU__TRIAL_RUNNING,
    TU__TRIAL_FINISHED,
    TU__TRIAL_PRUNED,
    TU__TRIAL_FAILED,
    TU__TRIAL_STATES
} tu__trial_state;
extern const char *const tu__trial_state_names[TU__TRIAL_STATES + 1];

/* What a study searches. All text. */
typedef struct tu__study_plan {
    const char *name; /* of the study, in its database */
    const char *model, *model_digest, *data, *data_digest;
    const char *space;     /* lines of tu__space_add_lines */
    const char *settings;  /* the settings that are fixed: JSON, as in config.json */
    const char *objective; /* "accuracy" or "loss" */
    const char *sampler, *pruner;
    const char *folder; /* run folders are folder/trials/NUMBER */
    int64_t seed;
    int64_t trials;   /* budget; 0: none */
    int64_t steps;    /* budget: training steps of all trials; 0: none */
    int64_t attempts; /* of a trial whose worker died; 0: those of the study */
    /* Of a new study, if the plan has none; an existing one keeps its own. */
    int64_t default_trials, default_attempts;
} tu__study_plan;

typedef struct tu__study {
    tu__sql sql;
    pthread_mutex_t lock; /* one statement at a time */
    tu__arena arena;      /* strings of `plan` */
    tu__study_plan plan;
    tu__space space;
    const tu__sampler *sampler;
    const tu__pruner *pruner;
    double timeout; /* seconds without heartbeat after which a trial may be claimed by others */
} tu__study;

/* ---- Opening: study_schema.c ---- */

/* Opens a database. `create`: makes the file and the tables, unless they exist. Fails for a database of another schema. Call
 * tu__study_close also after a failure. */
tu_status tu__study_connect(const char *address, bool create, tu__study *study);
/* Creates the study in the database, or opens the one with this name if it searches the same: model, data, space and fixed
 * settings. Budgets may differ: they are replaced by the plan's if `plan` has them. */
tu_status tu__study_create(tu__study *study, const tu__study_plan *plan);
/* Opens the study `name`; NULL: the only one of the database. */
tu_status tu__study_load(tu__study *study, const char *name);
void tu__study_close(tu__study *study);

/* ---- Workers: study_claim.c ---- */

typedef struct tu__claim {
    char text[TU__CLAIM_TEXT];
    int64_t number;  /* of the trial */
    int64_t attempt; /* 1: the first */
    tu__point point;
    char run[64]; /* its run folder, within the study's; "": none yet */
} tu__claim;

typedef enum tu__claimed {
    TU__CLAIMED,     /* a trial to train */
    TU__CLAIM_LATER, /* none now, but running trials of others may become free */
    TU__CLAIM_NEVER, /* the budget is used and all trials have ended */
} tu__claimed;

/* Claims an interrupted trial, or makes the next one. `worker` is for people to read. `claim->text` must be unique
 * (tu__claim_text). */
tu_status tu__study_claim(tu__study *study, const char *worker, tu__claim *claim, tu__claimed *claimed);
void tu__claim_text(char text[TU__CLAIM_TEXT]);
/* Records the run folder of a claimed trial. */
tu_status tu__study_set_run(tu__study *study, const tu__claim *claim, const char *run);
/* Renews the heartbeats of several claims. */
tu_status tu__study_heartbeat(tu__study *study, size_t count, const tu__claim *const *claims);

typedef struct tu__report {
    int64_t step, steps; /* done and planned */
    double cost, loss, accuracy;
} tu__report;

/* Records a validation, and decides whether the trial should go on. Fails with TU_LOST if another worker has the trial. */
tu_status tu__study_report(tu__study *study, const tu__claim *claim, const tu__report *report, bool *prune);
/* Ends a trial. Its cost is the lowest of its reports, unless it failed; `message`: why. */
tu_status tu__study_end(tu__study *study, const tu__claim *claim, tu__trial_state state, int64_t step,
                        double seconds, const char *message);
/* Gives a claimed trial back, to be continued by anybody. Does nothing if another worker has it. */
tu_status tu__study_release(tu__study *study, const tu__claim *claim);

/* ---- Reading: study_read.c ---- */

typedef struct tu__trial {
    int64_t number, attempts, step, steps;
    tu__trial_state state;
    tu__point point;
    double cost, created, started, ended, seconds; /* NaN: none */
    const char *worker, *run, *message;
    size_t report_count;
    const tu__report *reports; /* by step */
} tu__trial;

typedef struct tu__trials {
    tu__arena arena;
    size_t count;
    tu__trial *trials; /* by number */
    double now;        /* by the database's clock */
    int64_t tested;    /* trial that was evaluated on the test split; -1: none */
    double test_accuracy, test_loss;
} tu__trials;

/* Reads all trials, with their reports if `reports`. Free with tu__trials_free. */
tu_status tu__study_read(tu__study *study, bool reports, tu__trials *trials);
void tu__trials_free(tu__trials *trials);
/* Returns the finished trial with the lowest cost, the first of equal ones; NULL: none. */
const tu__trial *tu__best_trial(const tu__trials *trials);
/* Takes it upon this process to evaluate trial `number` on the test split: of several, `*mine` is true for one. */
tu_status tu__study_take_test(tu__study *study, int64_t number, bool *mine);
/* Records the evaluation. */
tu_status tu__study_set_test(tu__study *study, int64_t number, double accuracy, double loss);

/* For study_*.c: reads the values of trials (number, name, value; by number) into points. */
tu_status tu__study_read_points(tu__study *study, tu__sql *sql, size_t count, tu__trial *trials);

#endif
