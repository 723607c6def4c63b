/* The metadata of a checkpoint.
 *
 * It contains the progress of the run, the digests of the graph and the data set that the checkpoint belongs to, a
 * digest of the tensors, and a digest of all other entries, because a damaged step or sum would change the run as
 * much as a damaged weight. The digest of the tensors is separate because `tutti train` also prints it. Numbers are
 * written and read with a decimal point in every locale. */
#ifndef TU__TRAIN_CHECKPOINT_METADATA_H
#define TU__TRAIN_CHECKPOINT_METADATA_H

#include "base/sha256.h"
#include "io/safetensors.h"
#include "train/checkpoint.h"

enum { TU__MAX_ENTRIES = 64, TU__ENTRY_TEXT = 48 };

typedef struct tu__checkpoint_metadata {
    size_t count;
    tu__metadata entries[TU__MAX_ENTRIES];
    char texts[TU__MAX_ENTRIES][TU__ENTRY_TEXT];   /* numbers as text */
    char keys[2 * TU_MAX_METRICS][TU__ENTRY_TEXT]; /* names of metrics */
    char digest[TU__SHA256_HEX];                   /* of all entries but itself */
} tu__checkpoint_metadata;

/* Fills the metadata. `tensors` is the digest of the tensors. The strings must outlive the metadata. */
tu_status tu__metadata_build(const tu__run_config *config, const tu__progress *progress, const char *tensors,
                             tu__checkpoint_metadata *metadata);

/* True if the file's format entry names a checkpoint of any version. */
bool tu__metadata_is_checkpoint(const tu__safetensors *file);
/* Returns TU_CORRUPT (the message contains `path`) if the file is not a checkpoint of this version, or if its tensors
 * or metadata do not match their digests. */
tu_status tu__metadata_check(const tu__safetensors *file, const char *path);
tu_status tu__metadata_progress(const tu__safetensors *file, const char *path, const tu__run_config *config,
                                tu__progress *progress);

#endif
