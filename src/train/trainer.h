/* A training run under way: what preparing it (prepare.c) leaves to the loop (trainer.c). */
#ifndef TU__TRAIN_TRAINER_H
#define TU__TRAIN_TRAINER_H

#include <signal.h>

#include <tutti/train.h>

#include "train/burst.h"
#include "train/checkpoint.h"
#include "train/evaluator.h"
#include "train/metrics.h"
#include "train/run_graphs.h"
#include "train/slow_step.h"
#include "train/stepper.h"

typedef struct tu__trainer {
    tu_train_options options;
    tu__arena arena; /* what strings of the configuration live in */
    tu__run_folder folder;
    tu__run_config config;
    tu_dataset *opened; /* by us; NULL where the caller gave the set */
    const tu_dataset *set;
    tu__run_graphs graphs;
    tu__stepper stepper;
    tu__burst burst;         /* where steps are taken many at a time */
    tu__evaluator evaluator; /* closed where there is nothing to evaluate on */
    tu_state *state;
    tu__snapshot snapshot; /* of the state after the latest step, once somebody asked for it */
    tu__progress progress;
    tu__metrics *metrics;
    const tu__run_config *ensemble; /* that the run is a member of; NULL: none */
    bool plan_only;                 /* the programs are planned and nothing else is made */
    tu__text notices; /* while the run is prepared: lines for the user, told once nothing can be refused */
    bool begun;
    tu_train_report report; /* what the caller was told last */
    double began, idle;     /* seconds: when training began; spent since then on other things than steps */
    double seconds_before;  /* of training, by processes before this one */
    bool stopping;          /* the caller's flag, looked at once a step */
    bool best_unsaved;      /* the state has the best accuracy so far, and best.safetensors is not it */
    bool tracing, traced;   /* trace_steps.h */
    tu__step_times times;   /* of this process's steps */
    int64_t first_step, images; /* this process began after that step, and has seen so many images */
} tu__trainer;

/* Everything up to the first step; tu__trainer_end is needed in any case. A new run writes nothing before all that could
 * be refused was tried. `ensemble`: the configuration of the one that the run is a member of, or NULL. */
tu_status tu__trainer_begin(tu__trainer *trainer, const char *model, const char *data,
                            const tu_train_options *options, const tu__run_config *ensemble);
/* The same as far as the plans of a step's programs go, which need not fit. A new run writes nothing. */
tu_status tu__trainer_plan(tu__trainer *trainer, const char *model, const char *data,
                           const tu_train_options *options, const tu__run_config *ensemble);
/* The loop, to the end of the run or until the caller's flag is up; `result` may be NULL. */
tu_status tu__trainer_run(tu__trainer *trainer, tu_train_result *result);
void tu__trainer_end(tu__trainer *trainer);

/* A stop flag may be raised at any time, by a signal handler that runs on another thread. */
static inline bool tu__flag_is_up(const volatile sig_atomic_t *flag) {
    return flag && __atomic_load_n(flag, __ATOMIC_RELAXED) != 0;
}

/* Calls the watcher, if there is one. */
void tu__trainer_tell(tu__trainer *trainer, tu_train_event event, const char *message);
/* A notice to the user, as a tu__notice; kept back until the run has begun. */
void tu__trainer_notice(void *trainer, const char *message);

#endif
