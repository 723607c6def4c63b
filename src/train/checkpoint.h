/* Checkpoints: the whole state of a run between two steps, in one safetensors file.
 *
 * The tensors are the variables under their names, the optimizer's own among them. The metadata holds what else a run
 * needs to go on as if it had never stopped (tu__progress), what it belongs to (digests of graph and set), and digests
 * of the tensors and of itself: a file that was damaged is noticed, and the one before it used. */
#ifndef TU__TRAIN_CHECKPOINT_H
#define TU__TRAIN_CHECKPOINT_H

#include <tutti/run.h>

#include "run/snapshot.h"
#include "train/run_folder.h"

/* How far a run is. COUNT is an int64_t, NUMBER a double; each row is one entry of the metadata. */
#define TU__PROGRESS_LIST(COUNT, NUMBER)                                                                     \
    COUNT(step)    /* steps made */                                                                          \
    COUNT(sample)  /* ordinal of the next sample */                                                          \
    COUNT(samples) /* in the measurement under way … */                                                    \
    COUNT(correct) /* … of which the network had so many right … */                                      \
    NUMBER(losses) /* … with losses of this sum */                                                         \
    NUMBER(loss)   /* in the latest finished measurement */                                                  \
    NUMBER(accuracy)                                                                                         \
    COUNT(test_step) /* of the latest evaluation of the test images; -1: none yet */                         \
    NUMBER(test_loss)                                                                                        \
    NUMBER(test_accuracy)                                                                                    \
    NUMBER(test_top5)                                                                                        \
    COUNT(best_step) /* with the highest accuracy of what the run chooses by; -1: none yet */                \
    NUMBER(best_accuracy)                                                                                    \
    NUMBER(seconds) /* of training so far */                                                                 \
    COUNT(stopped_early)

/* Entries that checkpoints of earlier versions do not have; they stay as they were there. */
#define TU__PROGRESS_ADDED(COUNT, NUMBER)                                                                    \
    NUMBER(test_largest)   /* share of the largest class among the test images; 0: not counted */            \
    COUNT(validation_step) /* of the latest evaluation of the validation part; -1: none yet */               \
    NUMBER(validation_loss)                                                                                  \
    NUMBER(validation_accuracy)                                                                              \
    NUMBER(validation_top5)                                                                                  \
    NUMBER(validation_largest)

typedef struct tu__progress {
#define TU__COUNT_FIELD(name) int64_t name;
#define TU__NUMBER_FIELD(name) double name;
    TU__PROGRESS_LIST(TU__COUNT_FIELD, TU__NUMBER_FIELD)
    TU__PROGRESS_ADDED(TU__COUNT_FIELD, TU__NUMBER_FIELD)
#undef TU__COUNT_FIELD
#undef TU__NUMBER_FIELD
} tu__progress;

/* That of a run before its first step. */
static inline tu__progress tu__progress_begin(void) {
    return (tu__progress){.test_step = -1, .validation_step = -1, .best_step = -1};
}

/* Saves checkpoints/step-N.safetensors, or best.safetensors, from a snapshot that was taken. */
tu_status tu__checkpoint_save(const char *folder, bool best, const tu__run_config *config,
                              tu__snapshot *snapshot, const tu__progress *progress);
/* Removes the checkpoint of a step, where there is one. */
tu_status tu__checkpoint_remove(const char *folder, int64_t step);
/* Of the checkpoints up to step `newest`, which was just saved, removes all but the last `keep`. Later ones can only be
 * damaged: they count for nothing. */
tu_status tu__checkpoint_prune(const char *folder, int64_t newest, int64_t keep);

/* Reads a checkpoint into the state, wholly or not at all. Variables that the state has and the file has not are refused;
 * others are left out, so that an evaluation can load what it needs. TU_CORRUPT for a damaged file. */
tu_status tu__checkpoint_load(const char *path, const tu__run_config *config, tu_state *state,
                              tu__progress *progress);

/* Loads the newest checkpoint that can be read; `notice` is told of each that cannot, and once one was loaded those are
 * renamed to *.damaged, so that nothing takes them for the newest again. `*found` is false, and nothing changes, where
 * there is none at all. */
tu_status tu__checkpoint_load_newest(const char *folder, const tu__run_config *config, tu_state *state,
                                     tu__progress *progress, bool *found,
                                     void (*notice)(void *context, const char *message), void *context);

/* The path of a checkpoint by its name: "last", "best", or a step. */
tu_status tu__checkpoint_find(const char *folder, const char *name, tu__path *path);

#endif
