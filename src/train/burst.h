/* Bursts: many training steps in one call of the engine, on devices that take them so (tu_run_many).
 *
 * A set that lies in memory is put on the device once, and a step then needs no more of the host than the numbers of its
 * images; batches of other sets are copied one behind the other. Everything that a step tells comes back as an array. A
 * burst is as long as a fraction of a second allows, so that a run can be stopped, and never contains a step after which
 * something else is due: that is the trainer's to see to. A step that is not finite keeps the later ones of its burst from
 * changing anything (tu_optimizer_options.stop_at_bad). */
#ifndef TU__TRAIN_BURST_H
#define TU__TRAIN_BURST_H

#include "train/stepper.h"

typedef struct tu__burst {
    const tu__stepper *stepper; /* NULL: steps are taken one at a time, and nothing here is used */
    const tu_dataset *set;
    tu_table *images, *labels; /* of the training images; NULL: batches are copied */
    int64_t capacity;          /* steps that there is room for */
    int64_t length;            /* steps that the next burst should have at most */
    int64_t batch;             /* samples of a full one */
    /* What the steps get … */
    tu_batch *batches; /* whose pointers lead into: */
    unsigned char *pixels;
    int32_t *classes;
    int64_t *ordinals, *indices;
    /* … and what they tell. */
    float *losses, *rates, *norms;
    int64_t *corrects;
    uint8_t *finite;
} tu__burst;

/* What a burst may take. Tests set it: what they state must not hang on the clock. */
extern double tu__burst_seconds;

/* Prepares bursts for a stepper, where its device and its graphs can take them. `set` must outlive the burst.
 * tu__burst_close is needed in any case. */
tu_status tu__burst_open(const tu__stepper *stepper, const tu_dataset *set, int64_t batch, tu__burst *burst);
void tu__burst_close(tu__burst *burst);

/* Takes up to `steps` steps of `piece`, with the next batches of the loader; `*made` of them, fewer where a batch cannot be
 * read. How long that took decides on the length of the next burst. */
tu_status tu__burst_run(tu__burst *burst, const tu__piece *piece, tu_state *state, tu_loader *loader,
                        int64_t steps, int64_t *made);
/* What step `index` of the latest burst told. */
tu__step_values tu__burst_values(const tu__burst *burst, const tu__piece *piece, int64_t index);
/* The batch of step `index` with its images, wherever they are. */
tu_status tu__burst_batch(tu__burst *burst, int64_t index, tu_batch *batch);

#endif
