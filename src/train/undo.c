/* Copies of what the pieces of a step assign. See undo.h.
 *
 * The sums "gradient/…" are as large as the network but known: they are zero before a step, so nothing is copied of them
 * and they are cleared instead. What is left is small, a few numbers a channel. */
#include "train/undo.h"

#include <string.h>

#include "base/alloc.h"
#include "graph/graph.h"

static bool is_sum(const char *name) {
    return strncmp(name, "gradient/", 9) == 0;
}

tu_status tu__undo_new(tu_graph *piece, tu__undo *undo) {
    *undo = (tu__undo){.kept = tu__alloc_array(piece->node_count, sizeof *undo->kept, "what a step assigns")};
    if (!undo->kept) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < piece->node_count; i++) {
        const tu__node *node = piece->nodes[i];
        if (node->op->code != TU__OP_ASSIGN) continue;
        const tu__node *variable = tu__node_of(tu__input_of(piece, node, 0));
        tu__kept_variable kept = {variable->name, tu_type_bytes(variable->outputs[0]), NULL};
        if (!is_sum(kept.name)) {
            kept.copy = tu__alloc_aligned(kept.bytes, kept.name);
            if (!kept.copy) return TU_NO_MEMORY;
        }
        undo->kept[undo->count++] = kept;
    }
    return TU_OK;
}

void tu__undo_free(tu__undo *undo) {
    for (size_t i = 0; i < undo->count; i++) tu__free_aligned(undo->kept[i].copy);
    tu__free(undo->kept);
    *undo = (tu__undo){0};
}

tu_status tu__undo_keep(const tu__undo *undo, const tu_state *state) {
    for (size_t i = 0; i < undo->count; i++) {
        const tu__kept_variable *kept = &undo->kept[i];
        if (kept->copy) TU_TRY(tu_state_get(state, kept->name, kept->copy, kept->bytes));
    }
    return TU_OK;
}

static tu_status clear(tu_state *state, const tu__kept_variable *sum) {
    void *zeros = tu__alloc(sum->bytes, sum->name);
    if (!zeros) return TU_NO_MEMORY;
    tu_status status = tu_state_set(state, sum->name, zeros, sum->bytes);
    tu__free(zeros);
    return status;
}

tu_status tu__undo_restore(const tu__undo *undo, tu_state *state) {
    for (size_t i = 0; i < undo->count; i++) {
        const tu__kept_variable *kept = &undo->kept[i];
        TU_TRY(kept->copy ? tu_state_set(state, kept->name, kept->copy, kept->bytes) : clear(state, kept));
    }
    return TU_OK;
}
