/* Snapshots of a state. See snapshot.h. */
#include "run/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static int compare_names(const void *a, const void *b) {
    return strcmp(((const tu__named_tensor *)a)->name, ((const tu__named_tensor *)b)->name);
}

static tu_status copy_out(const tu_state *state, size_t index, tu__named_tensor *tensor) {
    TU_TRY(tu_state_variable(state, index, &tensor->name, &tensor->type));
    size_t bytes = tu_type_bytes(tensor->type);
    void *copy = tu__alloc_aligned(bytes, tensor->name);
    tensor->data = copy;
    return copy ? tu_state_get(state, tensor->name, copy, bytes) : TU_NO_MEMORY;
}

static tu_status copy_all(const tu_state *state, tu__snapshot *snapshot) {
    size_t count = tu_state_variable_count(state);
    *snapshot = (tu__snapshot){.tensors = tu__alloc_array(count, sizeof *snapshot->tensors, "a snapshot")};
    if (!snapshot->tensors) return TU_NO_MEMORY;
    while (snapshot->count < count) {
        size_t index = snapshot->count++;
        TU_TRY(copy_out(state, index, &snapshot->tensors[index]));
    }
    qsort(snapshot->tensors, count, sizeof *snapshot->tensors, compare_names);
    return TU_OK;
}

tu_status tu__snapshot_take(const tu_state *state, tu__snapshot *snapshot) {
    if (snapshot->tensors) return TU_OK;
    tu_status status = copy_all(state, snapshot);
    if (status != TU_OK) tu__snapshot_free(snapshot);
    return status;
}

void tu__snapshot_free(tu__snapshot *snapshot) {
    for (size_t i = 0; snapshot->tensors && i < snapshot->count; i++)
        tu__free_aligned((void *)snapshot->tensors[i].data);
    tu__free(snapshot->tensors);
    *snapshot = (tu__snapshot){0};
}

const char *tu__snapshot_digest(tu__snapshot *snapshot) {
    if (!*snapshot->digest) tu__tensors_digest(snapshot->count, snapshot->tensors, snapshot->digest);
    return snapshot->digest;
}

bool tu__is_network_name(const char *name) {
    static const char *const prefixes[] = {"optimizer/", "average/", "gradient/"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return false;
    return strcmp(name, "step") != 0;
}
