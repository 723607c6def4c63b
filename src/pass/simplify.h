/* Shared by the three files of the pass `simplify`: simplify.c iterates and merges, algebra.c applies identities,
 * fold.c computes constants. */
#ifndef TU__PASS_SIMPLIFY_H
#define TU__PASS_SIMPLIFY_H

#include "pass/pass.h"

/* A node being simplified: may be changed, or replaced by an existing value, before it enters the new graph. */
typedef struct tu__candidate {
    struct tu__simplifier *simplifier;
    tu__rewrite *r;
    const tu__node *origin; /* the old graph's node; its name and the output's type never change */
    tu__opcode op;
    const void *attrs; /* those of `origin`, or `new_attrs` */
    uint32_t input_count;
    tu_value *inputs; /* values of the new graph */
    union {
        struct tu__reshape_attrs reshape;
        struct tu__broadcast_attrs broadcast;
        struct tu__transpose_attrs transpose;
        struct tu__cast_attrs cast;
    } new_attrs;
    tu_value replacement; /* if the outcome is TU__REPLACED: the value that replaces the node */
} tu__candidate;

typedef enum tu__outcome { TU__KEPT, TU__CHANGED, TU__REPLACED } tu__outcome;

/* Applies one identity, if any applies. */
tu__outcome tu__simplify_by_algebra(tu__candidate *c);
/* Computes the node if all its inputs are constant. If computing fails, the node is kept, so that the run reports the
 * error; returns an error only if out of memory. */
tu_status tu__simplify_by_folding(tu__candidate *c, tu__outcome *outcome);

/* Makes a node of the new graph, or returns an equal one that exists. `inserted` NULL: it replaces the origin, with
 * its name; else it is an additional node named "<name><inserted>". A constant must have the origin's type. */
tu_status tu__simplify_make(tu__candidate *c, const char *inserted, const tu__node_request *request,
                            tu_value *value);
/* Makes a fill, or returns an equal one that exists. */
tu_value tu__simplify_fill(tu__candidate *c, tu_type type, double number);

/* Returns the node of the new graph that computes an input. */
static inline const tu__node *tu__candidate_source(const tu__candidate *c, uint32_t input) {
    return c->r->to->nodes[c->inputs[input].node];
}
/* True if a value is a fill; sets `*number`, rounded to the value's type. */
bool tu__is_fill(tu_value value, double *number);

#endif
