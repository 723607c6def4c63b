/* Undoes a step of several micro-batches.
 *
 * A micro-batch assigns not only the sums of gradients but also, for example, the running statistics of batch
 * normalisation. If a later micro-batch is not finite, the earlier ones have already changed these variables. They
 * are therefore copied before the first micro-batch and restored if the step fails. */
#ifndef TU__TRAIN_UNDO_H
#define TU__TRAIN_UNDO_H

#include <tutti/run.h>

typedef struct tu__saved_variable {
    const char *name; /* owned by the graph */
    size_t bytes;
    void *copy; /* NULL: a gradient sum, which is zero before every step */
} tu__saved_variable;

typedef struct tu__undo {
    size_t count;
    tu__saved_variable *saved;
} tu__undo;

/* Allocates copies for all variables that `graph` assigns; `graph` must outlive `undo`. Call tu__undo_free even after
 * a failure. */
tu_status tu__undo_new(tu_graph *graph, tu__undo *undo);
void tu__undo_free(tu__undo *undo);

tu_status tu__undo_save(const tu__undo *undo, const tu_state *state);
/* Restores the copied variables and clears the sums of gradients. */
tu_status tu__undo_restore(const tu__undo *undo, tu_state *state);

#endif
