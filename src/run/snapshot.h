/* A copy of all variables of a state in host memory: what checkpoints, state files, histograms and digests are made from. After a step
 * several of these may be due, so whoever comes first copies, and the others find it there. */
#ifndef TU__RUN_SNAPSHOT_H
#define TU__RUN_SNAPSHOT_H

#include <stdbool.h>

#include "base/shared.h"
#include <tutti/run.h>

#include "io/safetensors_digest.h"

typedef struct tu__snapshot {
    size_t count;
    tu__named_tensor *tensors;   /* by name */
    char digest[TU__SHA256_HEX]; /* "": not made yet */
} tu__snapshot;

/* Copies, unless `snapshot` is a copy already: it is freed when the state changes. When this fails it is empty. */
TU__SHARED tu_status tu__snapshot_take(const tu_state *state, tu__snapshot *snapshot);
/* Leaves it empty; an empty one is fine. */
TU__SHARED void tu__snapshot_free(tu__snapshot *snapshot);
/* tu__tensors_digest of it, made once. */
TU__SHARED const char *tu__snapshot_digest(tu__snapshot *snapshot);

/* Whether a variable is the network's own: not one that training added ("optimizer/…", "average/…", "gradient/…"), nor
 * the step. */
TU__SHARED bool tu__is_network_name(const char *name);

#endif
