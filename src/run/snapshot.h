/* A copy of all variables of a state in host memory. Checkpoints, state files, histograms and digests are made from
 * it. Several of them may be due after a step: the first one copies, the others reuse the copy. */
#ifndef TU__RUN_SNAPSHOT_H
#define TU__RUN_SNAPSHOT_H

#include <stdbool.h>

#include "base/shared.h"
#include <tutti/run.h>

#include "io/safetensors_digest.h"

typedef struct tu__snapshot {
    size_t count;
    tu__named_tensor *tensors;   /* sorted by name */
    char digest[TU__SHA256_HEX]; /* "": not computed yet */
} tu__snapshot;

/* Copies the variables, unless `snapshot` contains a copy already: free it when the state changes. Leaves it empty on
 * failure. */
TU__SHARED tu_status tu__snapshot_take(const tu_state *state, tu__snapshot *snapshot);
/* Frees the copy and leaves `snapshot` empty. It may be empty already. */
TU__SHARED void tu__snapshot_free(tu__snapshot *snapshot);
/* Returns tu__tensors_digest of the snapshot; computes it once. */
TU__SHARED const char *tu__snapshot_digest(tu__snapshot *snapshot);

/* True if a variable belongs to the network: it was not added by training ("optimizer/…", "average/…", "gradient/…")
 * and is not the step counter. */
TU__SHARED bool tu__is_network_name(const char *name);

#endif
