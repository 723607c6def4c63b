/* Frozen graphs: the variables of a graph become constants, and everything that depends on them alone is computed. */
#ifndef TU__INFER_FREEZE_H
#define TU__INFER_FREEZE_H

#include "graph/graph.h"
#include "io/safetensors.h"
#include "pass/choices.h"

/* Makes a graph that computes the named results of `graph` with these values of its variables, in this precision. Fails
 * with TU_NOT_FOUND or TU_INVALID if a variable that is needed is missing or has another type, with TU_UNSUPPORTED if
 * the graph assigns or draws random numbers. */
TU__SHARED tu_status tu__freeze(const tu_graph *graph, size_t count, const tu__named_tensor *variables,
                                tu__precision precision, tu_graph **frozen);

/* fold_scale.c: multiplies the filters of convolutions, and the right operands of matrix products, by the constant
 * factors per channel that their results are multiplied by, and merges the constants that are added: what batch
 * normalisation is at inference. */
struct tu__unit;
tu_status tu__fold_scales(struct tu__unit *unit);

#endif
