/* What the files of the pass `replicate` share, in the order of their work: global_norm.c takes batch-norm of global scope
 * apart, replicate_classify.c finds out what is cut, replicate_make.c makes the nodes, and replicate_sums.c adds shares up;
 * replicate.c is the pass itself. */
#ifndef TU__PASS_REPLICATE_H
#define TU__PASS_REPLICATE_H

#include "pass/pass.h"
#include "pass/shard_rules.h"

/* The parts of a value along an axis, or its shares. */
typedef struct tu__sharded_value {
    int axis;        /* or TU__PER_SHARD, TU__PARTIAL */
    tu__edge *parts; /* per part, of the new graph; TU_NO_NODE: not made yet */
    struct tu__sharded_value *next;
} tu__sharded_value;

/* An output of the old graph. */
typedef struct tu__replicated {
    int as;              /* TU__REPLICATED, TU__PER_SHARD or an axis */
    bool summed;         /* it is whole as a sum over parts */
    bool is_read;        /* by a node, or by the user */
    bool feeds_parts;    /* what reads it whole, or reads that …, computes parts of a batch */
    uint32_t collective; /* of a sum between mirrored replicas */
    tu__edge *whole;     /* per place, of the new graph; TU_NO_NODE: it is not there */
    tu__sharded_value *sharded_values;
} tu__replicated;

typedef struct tu__replicator {
    tu__unit *unit;
    const tu__replication *how;
    const char *strategy; /* its name, for refusals */
    tu__rewrite r;
    tu__arena arena;
    int64_t samples;        /* of the whole batch; 0: the graph has no batched input */
    size_t replicas, parts; /* part p is computed by replica p * replicas / parts */
    size_t places;          /* where whole values can be: the replicas, and after them the central device */
    tu__replicated *values; /* per output of the old graph: by tu__rewrite's slot */
    const tu__shard **sharded; /* per node; NULL: it is whole */
} tu__replicator;

static inline tu__replicated *tu__replicated_at(const tu__replicator *p, tu__edge edge) {
    return &p->values[p->r.slot[edge.node] + edge.output];
}

static inline bool tu__is_batched(const tu__node *node) {
    return node->op->code == TU__OP_INPUT && tu__attrs(node, input)->batched;
}

/* ---- replicate_classify.c ---- */

/* Fills in `values` but for what is made, and `sharded`; refuses what cannot be computed from parts. */
tu_status tu__replicator_classify(tu__replicator *p);

/* ---- replicate_make.c ---- */

/* Makes everything that stands for nodes of the old graph, and the sums. */
tu_status tu__replicator_make(tu__replicator *p);
/* A whole value as a place has it, or can copy it; invalid: it is cut. */
tu_value tu__replicated_whole(const tu__replicator *p, tu__edge edge, size_t place);
/* A part of a value along an axis; made on first use where the value is whole. */
tu_value tu__replicated_shard(tu__replicator *p, tu__edge edge, int axis, size_t part);
/* Where the user's whole values are: on the central device, or the first replica. */
size_t tu__central_place(const tu__replicator *p);
const char *tu__place_device(const tu__replicator *p, size_t place);
/* A node that the old graph does not have, beside one that it has, for a part or a place: "<name><what>", and "@2" after
 * it for number 2. */
tu_value tu__replicator_insert(tu__replicator *p, const tu__node *beside, const char *what, size_t number,
                               const tu__node_request *request);
/* Room for values of the new graph, none of which is there yet; NULL: memory ran out. */
tu__edge *tu__replicator_edges(tu__replicator *p, size_t count);

/* ---- replicate_sums.c ---- */

/* Which sums go together: gives every sum between mirrored replicas the number of its collective. */
tu_status tu__number_collectives(tu__replicator *p);
/* Adds up the shares of an output and notes the sum in its `whole`. `shares` has one for each part, and becomes scratch. */
tu_status tu__sum_partials(tu__replicator *p, const tu__node *node, uint32_t output, tu_value *shares);

/* ---- global_norm.c ---- */

/* Batch-norm of global scope as sums over samples, which the rules can divide. */
tu_status tu__expand_global_norm(tu__unit *unit);

#endif
