/* The stepper: runs the compiled training step of a run on batches.
 *
 * One call is one step, also if the batch is short or split into micro-batches and needs several programs. */
#ifndef TU__TRAIN_STEPPER_H
#define TU__TRAIN_STEPPER_H

#include <tutti/data.h>
#include <tutti/run.h>

#include "train/feeder.h"
#include "train/run_graphs.h"
#include "train/undo.h"

typedef struct tu__micro_batch { /* a program for a fixed number of samples */
    tu_graph *graph;             /* owned by the run; NULL: the run needs no program of this size */
    tu_program *program;
    /* If rank 0 computes it alone, the processes that it gives the results; their `program` is NULL. */
    tu_process_group *receivers;
    int64_t samples;
    tu__inputs inputs;
} tu__micro_batch;

typedef struct tu__stepper {
    tu__micro_batch full, short_batch; /* short_batch: the last batch of an epoch, if it is smaller */
    tu_graph *apply_graph;             /* NULL without gradient accumulation */
    tu_program *apply;
    tu__undo undo;       /* restores variables if a later micro-batch is not finite */
    bool counts_correct; /* the step returns how many samples are predicted correctly */
    tu__feeder feeder;   /* with tables of all training samples if steps select theirs by index */
} tu__stepper;

typedef struct tu__step_values {
    double loss;     /* mean of the batch */
    int64_t correct; /* 0 if the task does not count it */
    double rate, gradient_norm;
    bool finite;                   /* false: the step changed nothing because a value was not finite */
    const tu__micro_batch *failed; /* micro-batch with the non-finite value … */
    int64_t failed_first;          /* … and its first sample in the batch */
} tu__step_values;

/* Compiles the step of a run, whose graphs must outlive the stepper. Call tu__stepper_close even after a failure. */
tu_status tu__stepper_open(const tu__run_graphs *graphs, const tu__run_config *config, tu__stepper *stepper);
/* Only plans the programs, which may exceed the memory. They can be inspected but not run. */
tu_status tu__stepper_plan(const tu__run_graphs *graphs, const tu__run_config *config, tu__stepper *stepper);
void tu__stepper_close(tu__stepper *stepper);

/* Makes steps select their samples by index from a data set in memory, if the device's threads can copy them directly
 * into the step's inputs. A thread that prefetches batches would compete with them for a core. `dataset` must outlive the
 * stepper; batches then need no columns. */
tu_status tu__stepper_gather_from(tu__stepper *stepper, const tu__run_config *config,
                                  const tu_dataset *dataset);

/* Creates a state with all variables of the step, initialised; an empty one for a process that has no variables. */
tu_status tu__stepper_state(const tu__stepper *stepper, const tu__run_config *config, tu_state **state);

/* Runs one step. */
tu_status tu__stepper_run(const tu__stepper *stepper, tu_state *state, const tu_batch *batch,
                          tu__step_values *values);

/* For a loader: true if the step reads a row of a batch of `count` samples. */
bool tu__stepper_reads_row(void *stepper, int64_t count, int64_t row);

/* Fills the feeds of the micro-batch that starts at sample `first` of the batch, from the batch's columns. Returns their
 * number. `*share` must live until the run. */
size_t tu__micro_batch_feeds(const tu__stepper *stepper, const tu__micro_batch *micro_batch,
                             const tu_batch *batch, int64_t first, float *share,
                             tu_feed feeds[TU__MAX_FEEDS]);

#endif
