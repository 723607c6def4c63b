/* The metadata of a checkpoint: what belongs to a state beside its tensors.
 *
 * It holds the progress of the run, what the checkpoint belongs to (digests of graph and set), a digest of the tensors,
 * and one of all other entries: a step or a sum that was damaged would send the run another way as surely as a weight.
 * The two are kept apart because the first is also the digest that `tutti train` prints. Numbers are written and read
 * with a decimal point, whatever the locale of the program around the library. */
#ifndef TU__TRAIN_CHECKPOINT_METADATA_H
#define TU__TRAIN_CHECKPOINT_METADATA_H

#include "base/sha256.h"
#include "io/safetensors.h"
#include "train/checkpoint.h"

enum { TU__MAX_ENTRIES = 32, TU__ENTRY_TEXT = 40 };

typedef struct tu__checkpoint_metadata {
    size_t count;
    tu__metadata entries[TU__MAX_ENTRIES];
    char texts[TU__MAX_ENTRIES][TU__ENTRY_TEXT]; /* of those that are numbers */
    char digest[TU__SHA256_HEX];                 /* of all other entries */
} tu__checkpoint_metadata;

/* `tensors`: their digest. The strings must outlive the metadata. */
tu_status tu__metadata_make(const tu__run_config *config, const tu__progress *progress, const char *tensors,
                            tu__checkpoint_metadata *metadata);

/* Whether the file says of itself that it is a checkpoint, of whatever version. */
bool tu__metadata_is_checkpoint(const tu__safetensors *file);
/* TU_CORRUPT, naming `path`, for what is no checkpoint of this version, or where the tensors or the metadata are not those
 * that the file was written with. */
tu_status tu__metadata_check(const tu__safetensors *file, const char *path);
tu_status tu__metadata_progress(const tu__safetensors *file, const char *path, tu__progress *progress);

#endif
