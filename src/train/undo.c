/* Copies of the variables that a step assigns. See undo.h.
 *
 * The sums "gradient/…" are as large as the network, but zero before a step: they are cleared instead of copied. The
 * rest is small, a few numbers per channel. */
#include "train/undo.h"

#include <string.h>

#include "base/alloc.h"
#include "graph/graph.h"

static bool is_gradient_sum(const char *name) {
    return strncmp(name, "gradient/", 9) == 0;
}

tu_status tu__undo_new(tu_graph *graph, tu__undo *undo) {
    *undo = (tu__undo){.saved = tu__alloc_array(graph->node_count, sizeof *undo->saved,
                                                "the variables that a step assigns")};
    if (!undo->saved) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tu__node *node = graph->nodes[i];
        if (node->op->code != TU__OP_ASSIGN) continue;
        const tu__node *variable = tu__node_of(tu__input_of(graph, node, 0));
        tu__saved_variable saved = {variable->name, tu_type_bytes(variable->outputs[0]), NULL};
        if (!is_gradient_sum(saved.name)) {
            saved.copy = tu__alloc_aligned(saved.bytes, saved.name);
            if (!saved.copy) return TU_NO_MEMORY;
        }
        undo->saved[undo->count++] = saved;
    }
    return TU_OK;
}

void tu__undo_free(tu__undo *undo) {
    for (size_t i = 0; i < undo->count; i++) tu__free_aligned(undo->saved[i].copy);
    tu__free(undo->saved);
    *undo = (tu__undo){0};
}

tu_status tu__undo_save(const tu__undo *undo, const tu_state *state) {
    for (size_t i = 0; i < undo->count; i++) {
        const tu__saved_variable *saved = &undo->saved[i];
        if (saved->copy) TU_TRY(tu_state_get(state, saved->name, saved->copy, saved->bytes));
    }
    return TU_OK;
}

static tu_status clear_sum(tu_state *state, const tu__saved_variable *sum) {
    void *zeros = tu__alloc(sum->bytes, sum->name);
    if (!zeros) return TU_NO_MEMORY;
    tu_status status = tu_state_set(state, sum->name, zeros, sum->bytes);
    tu__free(zeros);
    return status;
}

tu_status tu__undo_restore(const tu__undo *undo, tu_state *state) {
    for (size_t i = 0; i < undo->count; i++) {
        const tu__saved_variable *saved = &undo->saved[i];
        TU_TRY(saved->copy ? tu_state_set(state, saved->name, saved->copy, saved->bytes)
                           : clear_sum(state, saved));
    }
    return TU_OK;
}
