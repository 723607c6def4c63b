/* A copy of all variables of a state in host memory: what checkpoints are written from and digests are made of. */
#ifndef TU__TRAIN_SNAPSHOT_H
#define TU__TRAIN_SNAPSHOT_H

#include <stdbool.h>

#include <tutti/run.h>

#include "base/sha256.h"
#include "io/safetensors.h"

typedef struct tu__snapshot {
    size_t count;
    tu__named_tensor *tensors; /* by name */
    void **copies; /* of those that live in a device's memory; NULL where the state's own memory serves */
} tu__snapshot;

/* Valid until the state changes. tu__snapshot_free is needed in any case. */
tu_status tu__snapshot_take(const tu_state *state, tu__snapshot *snapshot);
void tu__snapshot_free(tu__snapshot *snapshot);

/* SHA-256 over names, types and values, in the order of the names. */
void tu__tensors_digest(size_t count, const tu__named_tensor *tensors, char hex[TU__SHA256_HEX]);

/* Whether a variable is the network's own: not one that training added ("optimizer/…", "average/…", "gradient/…"), nor
 * the step. */
bool tu__is_network_name(const char *name);

#endif
