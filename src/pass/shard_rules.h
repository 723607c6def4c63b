/* Shard rules: how each operation behaves if an operand is sharded along the samples of a batch. Used by
 * `replicate`.
 *
 * A value is replicated, or it is sharded along an axis that contains the samples. That axis may have several rows
 * per sample ([8,24,24,3] as [4608,3]), with the rows of a sample together: its size is a multiple of the number of
 * samples. */
#ifndef TU__PASS_SHARD_RULES_H
#define TU__PASS_SHARD_RULES_H

#include "graph/graph.h"

enum { /* layouts; values >= 0: the axis that a value is sharded along */
       TU__REPLICATED = -1,
       TU__PER_SHARD = -2, /* statistics of one shard of the batch */
       TU__PARTIAL = -3,   /* each shard computes a summand of the result */
       TU__ONCE = -4,      /* an operand that must be counted once, not once per shard */
};

enum { TU__MAX_SHARD_OUTPUTS = 3 };

/* How one operation with a sharded operand is computed. */
typedef struct tu__sharding {
    const char
        *strategy;  /* its name, for messages; NULL: the graph gets another batch size (infer/rebatch.c) */
    bool invariant; /* the number of shards does not depend on the number of devices */
    const tu_graph *graph;
    const tu__node *node;
    int64_t samples; /* number of samples in the whole batch */
    /* Per input, `in`: its layout (TU__REPLICATED, TU__PER_SHARD or an axis). `read`, set by the rule: how each
     * shard reads it, a layout or TU__ONCE. If `in` is TU__REPLICATED and `read` an axis, the shard reads its rows
     * of the value. */
    const int *in;
    int *read;
    int out[TU__MAX_SHARD_OUTPUTS]; /* set by the rule: TU__PER_SHARD, TU__PARTIAL or an axis */
    bool is_mean;                   /* the sum must be divided by `divisor` */
    double divisor;
} tu__sharding;

/* Sets `read`, `out`, `is_mean` and `divisor`. Fails with TU_UNSUPPORTED if shards cannot compute the operation. */
tu_status tu__apply_shard_rule(tu__sharding *sharding);

/* Returns the axis of a reshape's input that becomes axis `to` of its result; TU__REPLICATED if there is none. */
int tu__reshape_source_axis(const tu_graph *graph, const tu__node *reshape, int64_t samples, int to);

#endif
