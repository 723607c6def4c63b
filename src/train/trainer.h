/* State of a training run: filled by prepare.c, used by the training loop in trainer.c. */
#ifndef TU__TRAIN_TRAINER_H
#define TU__TRAIN_TRAINER_H

#include <signal.h>

#include <tutti/train.h>

#include "train/checkpoint.h"
#include "train/evaluator.h"
#include "train/metrics.h"
#include "train/multi_step.h"
#include "train/rank_waits.h"
#include "train/run_graphs.h"
#include "train/slow_step.h"
#include "train/stack.h"
#include "train/stepper.h"

/* What the trials of a study share, and how its finders train. */
typedef struct tu__shared_inputs {
    const tu_dataset *dataset; /* opened as `data` says; NULL: each run opens its own */
    const char *network;       /* name of the network, which has been loaded if it is a file */
    double rate_growth; /* the learning rate is multiplied by this after each step; 0: by the settings */
} tu__shared_inputs;

typedef struct tu__trainer {
    tu_train_options options;
    tu_train_hooks hooks; /* options.hooks, with the fields that the caller's version lacks */
    tu__arena arena;      /* holds the strings of `config` */
    tu__run_folder folder;
    tu__run_config config;
    tu_dataset *opened; /* data set opened by tu_train; NULL if the caller passed one */
    const tu_dataset *dataset;
    tu__run_graphs graphs;
    tu__stepper stepper;
    tu__multi_step_loop multi_step; /* used if the device runs many steps per call */
    struct tu__train_stack *stack;  /* in which the run trains together with others; NULL: alone */
    int64_t place;                  /* in the stack */
    tu__evaluator evaluator;        /* zeroed if there is nothing to evaluate on */
    tu_state *state;
    tu__snapshot snapshot; /* of the state after the latest step; taken on demand */
    tu__progress progress;
    tu__metrics *metrics;
    const tu__run_config *ensemble;  /* ensemble that the run is a member of; NULL: none */
    const tu__shared_inputs *shared; /* NULL: none; with it the test split is not evaluated */
    bool plan_only;                  /* only plan the programs */
    tu__text notices;                /* notices queued while the run is prepared */
    bool started;                    /* the run has started: notices are reported at once instead of queued */
    tu_train_report report;          /* latest report to the caller */
    tu_metric metric_values[TU_MAX_METRICS]; /* of the latest evaluation, for the report */
    double start_time, idle;                 /* start time; seconds since then not spent on steps */
    double seconds_before;                   /* training time in earlier processes */
    tu__rank_waits *waits;                   /* on several processes; NULL: one */
    int64_t waited_step;                     /* of the latest sample of `waits` */
    bool stopping;                           /* the caller's stop flag, read once per step */
    bool best_unsaved; /* the state has the best accuracy so far but is not saved as best.safetensors yet */
    bool tracing, traced;       /* a trace is being recorded; it was written (trace_steps.h) */
    tu__step_times times;       /* step times of this process */
    int64_t first_step, images; /* first step of this process; number of images it has processed */
} tu__trainer;

/* Prepares a run up to its first step. Call tu__trainer_end even after a failure. A new run writes nothing before all
 * checks have passed. `ensemble`: configuration of the ensemble that the run is a member of, or NULL. */
tu_status tu__trainer_begin(tu__trainer *trainer, const char *model, const char *data,
                            const tu_train_options *options, const tu__run_config *ensemble);
/* Does the same for a trial of a study. */
tu_status tu__trainer_begin_trial(tu__trainer *trainer, const char *model, const char *data,
                                  const tu_train_options *options, const tu__shared_inputs *shared);
/* Only plans the programs of the step, which may exceed the memory. A new run writes nothing. */
tu_status tu__trainer_plan(tu__trainer *trainer, const char *model, const char *data,
                           const tu_train_options *options, const tu__run_config *ensemble);
/* Trains to the end of the run or until the caller's stop flag is set. `result` may be NULL. */
tu_status tu__trainer_run(tu__trainer *trainer, tu_train_result *result);
void tu__trainer_end(tu__trainer *trainer);

/* True if the flag is set. A signal handler on another thread may set it at any time. */
static inline bool tu__flag_is_set(const volatile sig_atomic_t *flag) {
    return flag && __atomic_load_n(flag, __ATOMIC_RELAXED) != 0;
}

/* Chooses the task of a new run (choose_task.c), once data set and network are known. Fails if they or the settings do not
 * fit it. */
tu_status tu__choose_task(tu__trainer *trainer);

/* Calls the caller's on_report callback, if any. */
void tu__trainer_report(tu__trainer *trainer, tu_train_event event, const char *message);
/* Reports a notice to the user (a tu__notice). Queues it until the run has started. */
void tu__trainer_notice(void *trainer, const char *message);

#endif
