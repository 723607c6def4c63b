/* What an operation makes of samples that are not all there: the rules of the pass `replicate`.
 *
 * A value is whole, or one of its axes counts samples and it is cut along that axis. The axis may hold several rows for
 * each sample ([8,24,24,3] as [4608,3]), those of one sample together: its size is a multiple of the number of samples. */
#ifndef TU__PASS_SHARD_RULES_H
#define TU__PASS_SHARD_RULES_H

#include "graph/graph.h"

enum { /* numbers from 0 on: the axis that a value is cut along */
       TU__REPLICATED = -1,
       TU__PER_SHARD = -2, /* statistics of one part of the batch */
       TU__PARTIAL = -3,   /* a result of which each part computes a summand */
       TU__ONCE = -4,      /* an operand that counts once, not once for each part */
};

enum { TU__MAX_SHARD_OUTPUTS = 3 };

/* One operation with a cut operand. */
typedef struct tu__shard {
    const char *strategy; /* its name, for refusals */
    bool invariant;       /* parts are fixed, however many devices there are */
    const tu_graph *graph;
    const tu__node *node;
    int64_t samples; /* in the whole batch */
    /* of each input: TU__REPLICATED, TU__PER_SHARD or an axis as it comes; and how each part reads it, which the rule says:
     * so too, or TU__ONCE. An axis for a whole value: the part takes its rows of it. */
    const int *in;
    int *read;
    int out[TU__MAX_SHARD_OUTPUTS]; /* the rule's answer: TU__PER_SHARD, TU__PARTIAL or an axis */
    bool is_mean;                   /* it divides what it sums by `divisor` */
    double divisor;
} tu__shard;

/* Fills in `read`, `out` and `divisor`. What cannot be computed from parts is refused, with TU_UNSUPPORTED. */
tu_status tu__shard_node(tu__shard *shard);

/* The axis of a reshape's input that becomes axis `to` of its result; TU__REPLICATED: none does alone. */
int tu__reshape_source_axis(const tu_graph *graph, const tu__node *reshape, int64_t samples, int to);

#endif
