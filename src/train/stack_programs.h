/* The programs of a stack of trainers, their state and their buffers. stack.c decides when they run. */
#ifndef TU__TRAIN_STACK_PROGRAMS_H
#define TU__TRAIN_STACK_PROGRAMS_H

#include <tutti/stack.h>

#include "train/trainer.h"

typedef struct tu__stack_step { /* the step of all members, for a number of samples each */
    tu_stacked *stack;          /* NULL: the runs need no program of this size */
    tu_program *program;
    tu__inputs inputs;
    int64_t samples; /* of each member */
} tu__stack_step;

typedef struct tu__stack_programs {
    int64_t places;
    tu__stack_step full, short_batch;
    tu_state *state;
    tu__feeder feeder; /* with tables of all training samples; else batches are copied */
    int64_t capacity;  /* steps per call at most */
    int64_t length;    /* steps of the next call at most, adapted to its duration */
    /* Inputs of the steps of a call: [step, place, sample]. */
    unsigned char *columns[TU_MAX_COLUMNS]; /* NULL with tables */
    const void **batch_columns; /* [step, place, TU_MAX_COLUMNS]: addresses of each batch in `columns` */
    int64_t *ordinals, *indices;
    /* Results: [step, place]. */
    float *losses, *rates, *norms;
    int64_t *corrects;
    uint8_t *finite;
} tu__stack_programs;

/* Stacks the networks of `trainers`, one per place (NULL: none yet; at least one is not), and compiles their steps. If the
 * training images of `dataset` are in memory, which must outlive the programs, steps select theirs by index. Call
 * tu__stack_programs_close even after a failure. */
tu_status tu__stack_programs_open(tu__stack_programs *programs, int64_t places, tu__trainer *const *trainers,
                                  const tu_dataset *dataset);
void tu__stack_programs_close(tu__stack_programs *programs);

/* Copy a trainer's network into a place, and the variables of a place to the trainer's state. */
tu_status tu__stack_programs_insert(tu__stack_programs *programs, int64_t place, const tu__trainer *trainer);
tu_status tu__stack_programs_extract(const tu__stack_programs *programs, int64_t place,
                                     const tu__trainer *trainer);

/* Copies a batch of a place into the inputs of step `step`; `*copy` refers to them. */
void tu__stack_programs_copy(tu__stack_programs *programs, const tu__stack_step *s, int64_t step,
                             int64_t place, const tu_batch *batch, tu_batch *copy);
/* Runs `steps` steps of all places. */
tu_status tu__stack_programs_run(tu__stack_programs *programs, const tu__stack_step *s, int64_t steps);

#endif
