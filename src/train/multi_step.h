/* Multi-step calls: many training steps submitted in one call of the engine, on devices that support it
 * (tu_run_many).
 *
 * A data set in memory is copied to the device once; each step then needs only the indices of its samples from the
 * host. Batches of other data sets are copied into one array. The results of all steps come back as arrays. A call is
 * limited to a fraction of a second, so that a run can be stopped. The trainer ends it at the first step after which
 * something else is due (evaluation, checkpoint). If a step is not finite, the later steps of the call change nothing
 * (tu_optimizer_options.stop_at_nonfinite). */
#ifndef TU__TRAIN_MULTI_STEP_H
#define TU__TRAIN_MULTI_STEP_H

#include "train/stepper.h"

typedef struct tu__multi_step_loop {
    const tu__stepper *stepper; /* NULL: one step per call, and nothing below is used */
    const tu_dataset *dataset;
    tu_process_group *group; /* the processes that make the same calls; NULL: this one alone */
    tu__feeder feeder;       /* with tables of all training samples; else batches are copied */
    int64_t capacity;        /* maximum number of steps per call */
    /* Maximum number of steps of the next call, adapted to its duration; the same in all processes (ranks.h). */
    int64_t length;
    int64_t batch; /* samples per full batch */
    /* Inputs of the steps. */
    tu_batch *batches;                      /* the pointers in it refer to the arrays below */
    unsigned char *columns[TU_MAX_COLUMNS]; /* of all samples; NULL with tables */
    const void **batch_columns; /* [capacity, TU_MAX_COLUMNS]: addresses of each batch in `columns` */
    int64_t *ordinals, *indices;
    /* Results of the steps. */
    float *losses, *rates, *norms;
    int64_t *corrects;
    uint8_t *finite;
} tu__multi_step_loop;

/* Target duration of one call in seconds. Tests set it, so that they do not depend on the clock. */
extern double tu__multi_step_loop_seconds;

/* Prepares multi-step calls if the stepper's device and graphs support them. `dataset` must outlive `multi_step`.
 * Call tu__multi_step_loop_close even after a failure. */
tu_status tu__multi_step_loop_open(const tu__stepper *stepper, const tu_dataset *dataset, int64_t batch,
                                   tu_process_group *group, tu__multi_step_loop *multi_step);
void tu__multi_step_loop_close(tu__multi_step_loop *multi_step);

/* Runs up to `steps` steps of `micro_batch` with the next batches of the loader. Stores the number of steps in
 * `*completed`: fewer than `steps` if a batch cannot be read, by any process. Adapts the length of the next call to the
 * time it took. */
tu_status tu__multi_step_loop_run(tu__multi_step_loop *multi_step, const tu__micro_batch *micro_batch,
                                  tu_state *state, tu_loader *loader, int64_t steps, int64_t *completed);
/* Returns the results of step `index` of the latest call. */
tu__step_values tu__multi_step_loop_values(const tu__multi_step_loop *multi_step,
                                           const tu__micro_batch *micro_batch, int64_t index);

#endif
