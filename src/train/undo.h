/* Taking a step back that was begun in several pieces.
 *
 * A piece assigns more than its gradients' sums: the running statistics of batch normalisation move with every one. Each
 * piece is guarded by itself, so when a later one is not finite the earlier ones have already left their mark. What they
 * assign is therefore copied before the first and put back when the step is not made: a bad step changes nothing. */
#ifndef TU__TRAIN_UNDO_H
#define TU__TRAIN_UNDO_H

#include <tutti/run.h>

typedef struct tu__kept_variable {
    const char *name; /* the graph's */
    size_t bytes;
    void *copy; /* NULL: it begins every step as zeros, and needs none */
} tu__kept_variable;

typedef struct tu__undo {
    size_t count;
    tu__kept_variable *kept;
} tu__undo;

/* Makes room for all that `piece` assigns; the graph must outlive this. tu__undo_free is needed in any case. */
tu_status tu__undo_new(tu_graph *piece, tu__undo *undo);
void tu__undo_free(tu__undo *undo);

tu_status tu__undo_keep(const tu__undo *undo, const tu_state *state);
/* The state as it was when it was kept, the sums of gradients empty. */
tu_status tu__undo_restore(const tu__undo *undo, tu_state *state);

#endif
