/* Checkpoints: the complete state of a run between two steps, in one safetensors file.
 *
 * The tensors are the variables under their names, including the optimizer's. The metadata contains the progress of
 * the run (tu__progress), so that a resumed run is bit-identical to an uninterrupted one, the digests of the graph
 * and the data set that the checkpoint belongs to, and digests of the tensors and of the metadata. If a file is
 * damaged, the previous checkpoint is used. */
#ifndef TU__TRAIN_CHECKPOINT_H
#define TU__TRAIN_CHECKPOINT_H

#include <tutti/run.h>

#include "run/snapshot.h"
#include "train/run_folder.h"

#define TU__BEST_CHECKPOINT "checkpoints/best.safetensors" /* in a run folder */

/* Progress of a run. COUNT is an int64_t, NUMBER a double; each row is one entry of the metadata. */
#define TU__PROGRESS_LIST(COUNT, NUMBER)                                                                     \
    COUNT(step)    /* completed steps */                                                                     \
    COUNT(sample)  /* ordinal of the next sample */                                                          \
    COUNT(samples) /* samples in the current measurement */                                                  \
    COUNT(correct) /* correctly classified samples in the current measurement */                             \
    NUMBER(losses) /* sum of the losses in the current measurement */                                        \
    NUMBER(loss)   /* loss and accuracy of the latest finished measurement */                                \
    NUMBER(accuracy)                                                                                         \
    COUNT(test_step) /* step of the latest evaluation of the test split; -1: none yet */                     \
    NUMBER(test_loss)                                                                                        \
    NUMBER(test_accuracy)                                                                                    \
    NUMBER(test_top5)                                                                                        \
    COUNT(best_step) /* step with the best first metric on the validation split; -1: none yet */             \
    NUMBER(best_accuracy)                                                                                    \
    NUMBER(seconds) /* training time so far */                                                               \
    COUNT(stopped_early)

/* Entries that checkpoints of earlier versions lack; loading such a checkpoint leaves these fields unchanged. */
#define TU__PROGRESS_ADDED(COUNT, NUMBER)                                                                    \
    NUMBER(test_largest)   /* fraction of the test images in the largest class; 0: not counted */            \
    COUNT(validation_step) /* step of the latest evaluation of the validation split; -1: none yet */         \
    NUMBER(validation_loss)                                                                                  \
    NUMBER(validation_accuracy)                                                                              \
    NUMBER(validation_top5)                                                                                  \
    NUMBER(validation_largest)

typedef struct tu__progress {
#define TU__COUNT_FIELD(name) int64_t name;
#define TU__NUMBER_FIELD(name) double name;
    TU__PROGRESS_LIST(TU__COUNT_FIELD, TU__NUMBER_FIELD)
    TU__PROGRESS_ADDED(TU__COUNT_FIELD, TU__NUMBER_FIELD)
    /* Metrics of the latest evaluations, of other tasks than classification. */
    double validation_metrics[TU_MAX_METRICS], test_metrics[TU_MAX_METRICS];
#undef TU__COUNT_FIELD
#undef TU__NUMBER_FIELD
} tu__progress;

/* Returns the progress of a run before its first step. */
static inline tu__progress tu__progress_initial(void) {
    return (tu__progress){.test_step = -1, .validation_step = -1, .best_step = -1};
}

/* Saves a snapshot as checkpoints/step-N.safetensors, or as best.safetensors. */
tu_status tu__checkpoint_save(const char *folder, bool best, const tu__run_config *config,
                              tu__snapshot *snapshot, const tu__progress *progress);
/* Removes the checkpoint of a step; succeeds if there is none. */
tu_status tu__checkpoint_remove(const char *folder, int64_t step);
/* Removes all checkpoints up to step `newest`, which was just saved, except the last `keep`. Leaves later ones, which
 * can only be damaged files, in place. */
tu_status tu__checkpoint_prune(const char *folder, int64_t newest, int64_t keep);

/* Loads the checkpoint `name` of a run folder, as tu__checkpoint_find returns it, into the state; changes nothing on
 * failure. Fails if a variable of the state is missing in the
 * file. Ignores additional tensors, so that an evaluation can load only the variables it needs. Returns TU_CORRUPT
 * for a damaged file. */
tu_status tu__checkpoint_load(const char *folder, const char *name, const tu__run_config *config,
                              tu_state *state, tu__progress *progress);

/* Loads the checkpoint that tu__checkpoint_find finds. Finds it again if a training in the same folder removes it
 * meanwhile. */
tu_status tu__checkpoint_load_named(const char *folder, const char *name, const tu__run_config *config,
                                    tu_state *state, tu__progress *progress);

/* Loads the newest readable checkpoint. Calls `notice` for each damaged one and, after a successful load, renames
 * these to *.damaged, so that they are not tried again. Sets `*found` to false and changes nothing if there is no
 * checkpoint. */
tu_status tu__checkpoint_load_newest(const char *folder, const tu__run_config *config, tu_state *state,
                                     tu__progress *progress, bool *found,
                                     void (*notice)(void *context, const char *message), void *context);

/* Finds a checkpoint: "last", "best", or a step number. `path` is its path within the run folder. */
tu_status tu__checkpoint_find(const char *folder, const char *name, tu__path *path);

#endif
