/* Hyper-parameter search: many training runs that differ in settings, and a study that records them.
 *
 *     tu_tune_result result = TU_SIZED(tu_tune_result);
 *     tu_train_options train = {.struct_size = sizeof train, .epochs = 3};
 *     const char *space[] = {"rate=log:1e-4:1", "batch=64|128|256"};
 *     tu_tune("mlp", "mnist", &result, .train = &train, .space = space, .space_count = 2, .trials = 20);
 *     printf("%s: %.2f%%\n", result.best_run, 100 * result.test_accuracy);
 *
 * Trials are compared by the validation split alone. docs/tuning.md explains spaces, samplers, pruning and studies. */
#ifndef TUTTI_TUNE_H
#define TUTTI_TUNE_H

#include <stdio.h>

#include <tutti/train.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Searching -------------------------------------------------------------------------------------------------- */

typedef enum tu_trial_state {
    TU_TRIAL_WAITING, /* interrupted: a worker will continue it */
    TU_TRIAL_RUNNING,
    TU_TRIAL_FINISHED,
    TU_TRIAL_PRUNED, /* stopped, because its validations are worse than those of other trials */
    TU_TRIAL_FAILED, /* it diverged, did not fit into memory, or its settings contradict each other */
} tu_trial_state;
/* Returns "waiting", "running", …. */
TU_API const char *tu_trial_state_name(tu_trial_state state);

typedef enum tu_tune_event {
    TU_TUNE_LOADING, /* the data set is loaded: `message` says what is done */
    TU_TUNE_BEGUN,   /* the workers start: `folder` and `study` are known */
    TU_TUNE_STARTED, /* a trial starts or is continued: `message` lists its values */
    TU_TUNE_STEPPED, /* a step of a trial is done, about ten times per second */
    TU_TUNE_VALIDATED,
    TU_TUNE_ENDED,  /* a trial has ended as `state` */
    TU_TUNE_NOTICE, /* `message` is a warning for the user; the search goes on */
} tu_tune_event;

/* The argument of tu_tune_options.on_report, filled by the library. */
typedef struct tu_tune_report {
    size_t struct_size;
    tu_tune_event event;
    const char *message, *folder, *study;
    int64_t worker, workers; /* the worker that reports, from 0, and their number */
    const char *device;      /* of the worker */
    int64_t trial;           /* its number in the study; -1: none */
    int64_t step, steps;     /* of the trial */
    double loss,
        accuracy; /* of training batches; for VALIDATED and ENDED, of the validation split: its latest */
    double cost;  /* ENDED: best error rate or loss of the trial; NaN: none */
    tu_trial_state state; /* ENDED */
    double images_per_second;
    const char *objective; /* what trials are compared by: "accuracy" or "loss" */
} tu_tune_report;

typedef struct tu_tune_options {
    size_t struct_size;
    const tu_train_options *train; /* settings of all trials; .devices: those to use, a trial on each */
    const char *const *space;      /* parameters, "NAME=VALUES"; see docs/tuning.md */
    size_t space_count;
    const char *space_file; /* more parameters, one a line; NULL: none */
    const char *sampler;    /* "tpe" (NULL), "random", "sobol", "grid" */
    const char *pruner;     /* "asha" (NULL), "median", "none" */
    const char
        *objective; /* "accuracy" or "loss", of the validation split; NULL: accuracy if the task has one */
    int64_t trials; /* budget; 0: 20, for a grid all of its points, none if there is another budget */
    int64_t total_steps; /* budget: training steps of all trials; 0: none */
    double seconds;      /* budget of this call; unfinished trials can be continued; 0: none */
    const char *study;   /* folder or file of SQLite, or postgresql://…; NULL: studies/MODEL-DATA-NUMBER */
    const char *name;    /* of the study in its database; NULL: MODEL-DATA, or the only one */
    const char *out;     /* folder for run folders; NULL: beside the study's file, or studies/NAME */
    bool worker;         /* join the study: model, data, space and settings are its own */
    double heartbeat_timeout; /* seconds of silence after which a worker is taken for dead; 0: 60 */
    int64_t attempts;         /* to train a trial whose worker died; 0: 3, or those of the study */
    double database_timeout;  /* seconds to wait for a database that is away; 0: 300 */
    const volatile sig_atomic_t
        *stop; /* once it is not zero: interrupt all trials, save, return; read atomically */
    void (*on_report)(void *context, const tu_tune_report *report); /* called by one thread at a time */
    void *context;
} tu_tune_options;

typedef struct tu_tune_result {
    size_t struct_size;
    char folder[4096], study[4096], name[256];
    int64_t trials, finished, pruned, failed; /* of the study */
    bool stopped;                             /* before the budget was used: start it again to go on */
    int64_t best;                             /* number of the best finished trial; -1: none */
    double best_cost;
    char best_run[4096]; /* its run folder */
    /* The best trial's on the test split, which is read once, when the study has ended; -1: not read. */
    double test_accuracy, test_loss;
    double seconds;     /* of this call */
    char objective[16]; /* "accuracy" or "loss" */
} tu_tune_result;

/* Searches for settings with which `model` trains best on `data`: tu_train_with explains both; NULL with `worker`, except
 * for the C file of a network. Trials of other workers in the same study count. A trial that fails is recorded, and the search
 * goes on. `result` may be NULL. */
TU_API tu_status tu_tune_with(const char *model, const char *data, tu_tune_result *result,
                              const tu_tune_options *options);
#define tu_tune(model, data, result, ...)                                                                    \
    tu_tune_with(model, data, result, TU_OPTIONS(tu_tune_options, __VA_ARGS__))

/* ---- Reading a study ---------------------------------------------------------------------------------------------- */

/* A study as it was when it was opened. */
typedef struct tu_study tu_study;

typedef struct tu_study_info {
    size_t struct_size;
    const char *name, *model, *data, *space, *settings, *objective, *sampler, *pruner, *folder;
    int64_t seed, trial_budget, step_budget; /* 0: none */
    int64_t trials, waiting, running, finished, pruned, failed, steps;
    size_t parameters;
    int64_t best; /* -1: none */
    double best_cost;
    int64_t tested; /* the trial that was evaluated on the test split; -1: none */
    double test_accuracy, test_loss;
} tu_study_info;

typedef struct tu_study_trial {
    size_t struct_size;
    int64_t number, attempts, step, steps;
    tu_trial_state state;
    double cost;                        /* NaN: none */
    double seconds;                     /* of training, in the process that ended it; NaN: not ended */
    const char *worker, *run, *message; /* "": none; `run` is a path */
    size_t reports;                     /* validations */
} tu_study_trial;

/* Opens a study: `study` as in tu_tune_options, `name` may be NULL. */
TU_API tu_status tu_study_open(const char *study, const char *name, tu_study **opened);
TU_API void tu_study_free(tu_study *study);
TU_API tu_status tu_study_describe(const tu_study *study, tu_study_info *info);
/* Gets trial `index`, counted from 0. Strings live as long as the study. Fails with TU_NOT_FOUND from the number of trials
 * on. */
TU_API tu_status tu_study_get_trial(const tu_study *study, size_t index, tu_study_trial *trial);
/* Gets the name of parameter `parameter`, and its value in trial `index` as text: NULL if the trial does not use it. */
TU_API tu_status tu_study_get_value(const tu_study *study, size_t index, size_t parameter, const char **name,
                                    const char **value);
/* Gets a validation of a trial. */
TU_API tu_status tu_study_get_report(const tu_study *study, size_t index, size_t report, int64_t *step,
                                     double *loss, double *accuracy);
/* Writes all trials as "csv" or "json". In CSV, text that a spreadsheet would take for a formula begins with a quote. */
TU_API tu_status tu_study_export(const tu_study *study, const char *format, FILE *file);
/* Writes a page of HTML with history, parallel coordinates, slices and curves. It refers to nothing outside itself. */
TU_API tu_status tu_study_save_page(const tu_study *study, const char *path);

/* ---- Finders ------------------------------------------------------------------------------------------------------ */

typedef struct tu_tune_point {
    double value;             /* the learning rate, or the batch size */
    double loss;              /* rate: smoothed training loss; NaN: not measured */
    double images_per_second; /* batch */
} tu_tune_point;

typedef struct tu_tune_found {
    size_t struct_size;
    double suggestion; /* 0: none */
    size_t count;
    const tu_tune_point *points; /* freed with tu_tune_found_free */
    const char *reason;          /* why the search ended at its last point */
    double seconds;
    void *internal; /* used by the library */
} tu_tune_found;

/* Finds a learning rate ("rate"): trains for some steps while the rate grows, and suggests the one with the steepest descent of
 * the loss; or a batch size ("batch"): times steps of growing batches, and suggests the smallest one with at least 90% of the
 * best throughput. Runs are written to a temporary folder, which is removed. */
TU_API tu_status tu_tune_find(const char *what, const char *model, const char *data, tu_tune_found *result,
                              const tu_train_options *options);
TU_API void tu_tune_found_free(tu_tune_found *result);

#ifdef __cplusplus
}
#endif
#endif
