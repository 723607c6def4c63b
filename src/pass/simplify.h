/* What the three files of the pass `simplify` share: simplify.c walks and merges, algebra.c knows identities,
 * fold.c computes constants. */
#ifndef TU__PASS_SIMPLIFY_H
#define TU__PASS_SIMPLIFY_H

#include "pass/pass.h"

/* A node on its way into the new graph: may still be changed, or replaced by a value that is there. */
typedef struct tu__candidate {
    struct tu__simplifier *simplifier;
    tu__rewrite *r;
    const tu__node *origin; /* of the old graph: its name, and the type of the output, which never changes */
    tu__opcode op;
    const void *attrs; /* the origin's, or `own` */
    uint32_t input_count;
    tu_value *inputs; /* of the new graph */
    union {
        struct tu__reshape_attrs reshape;
        struct tu__broadcast_attrs broadcast;
        struct tu__transpose_attrs transpose;
        struct tu__cast_attrs cast;
    } own;
    tu_value replacement; /* set by whoever answers TU__REPLACED */
} tu__candidate;

typedef enum tu__outcome { TU__KEPT, TU__CHANGED, TU__REPLACED } tu__outcome;

/* Applies one identity, if any fits. */
tu__outcome tu__simplify_by_algebra(tu__candidate *c);
/* Computes the node now, if all its inputs are constants. A failure to compute is left for the run to
 * report; only memory that ran out fails. */
tu_status tu__simplify_by_folding(tu__candidate *c, tu__outcome *outcome);

/* A node of the new graph, in the origin's place (`inserted` NULL: under its name) or beside it
 * ("<name><inserted>"); an equal one is used again. A constant must have the origin's type. */
tu_status tu__simplify_make(tu__candidate *c, const char *inserted, const tu__node_request *request,
                            tu_value *value);
/* One number everywhere, as a node of the new graph; an equal one is used again. */
tu_value tu__simplify_fill(tu__candidate *c, tu_type type, double number);

/* The node in the new graph behind an input. */
static inline const tu__node *tu__candidate_source(const tu__candidate *c, uint32_t input) {
    return c->r->to->nodes[c->inputs[input].node];
}
/* Whether a value is one number everywhere, and which, rounded to its type. */
bool tu__is_fill(tu_value value, double *number);

#endif
