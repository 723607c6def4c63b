/* Shared by the files of the pass `replicate`, in the order of their work: global_norm.c expands batch-norm of
 * global scope, replicate_classify.c finds which values are sharded, replicate_make.c builds the nodes,
 * replicate_sums.c adds partial sums, replicate_processes.c exchanges values with other processes if they have a central
 * device. replicate.c is the pass itself. */
#ifndef TU__PASS_REPLICATE_H
#define TU__PASS_REPLICATE_H

#include "pass/pass.h"
#include "pass/shard_rules.h"

enum { TU__BUCKET_BYTES = 4 << 20 }; /* of the values that one collective exchanges, about */

/* The shards of a value along an axis, or its partial sums. */
typedef struct tu__sharded_value {
    int axis;         /* the axis, or TU__PER_SHARD or TU__PARTIAL */
    tu__edge *shards; /* per shard: its value in the new graph; TU_NO_NODE: not built yet */
    struct tu__sharded_value *next;
} tu__sharded_value;

/* How an output of the old graph is distributed over the replicas. */
typedef struct tu__distributed_value {
    int layout;        /* TU__REPLICATED, TU__PER_SHARD or the axis it is sharded along */
    bool is_summed;    /* its shards are partial sums, which are added to get the replicated value */
    bool is_read;      /* a node reads it, or the user fetches it */
    bool feeds_shards; /* a sharded computation depends on the replicated value */
    /* Number of the collective that adds a sum of mirrored replicas or of several processes, or that sends a variable
     * to other processes. */
    uint32_t collective;
    tu__edge *by_device; /* per device: the replicated value in the new graph; TU_NO_NODE: not there */
    tu__sharded_value *sharded_values;
} tu__distributed_value;

typedef struct tu__replicator {
    tu__unit *unit;
    const tu__replication *options;
    const char *strategy; /* its name, for messages */
    tu__rewrite r;
    tu__arena arena;
    int64_t samples;         /* number of samples in the whole batch; 0: the graph has no batched input */
    size_t replicas, shards; /* replicas of this process; shards of the whole batch */
    /* The shards that this process computes: equally many per replica. The nodes of others are not built. */
    size_t first_shard, end_shard;
    size_t device_count; /* replicas, and one more for the central device, which may also be a replica */
    /* CENTRAL, over several processes: all have a central device, that of process 0 has the variables. */
    bool has_central_processes;
    uint32_t collective_count;     /* collectives numbered so far */
    tu__distributed_value *values; /* per output of the old graph, indexed by tu__rewrite's slots */
    const tu__sharding **sharded;  /* per node; NULL: it is replicated */
} tu__replicator;

static inline tu__distributed_value *tu__distributed_value_of(const tu__replicator *p, tu__edge edge) {
    return &p->values[p->r.first_output[edge.node] + edge.output];
}

static inline bool tu__is_batched(const tu__node *node) {
    return node->op->code == TU__OP_INPUT && tu__attrs(node, input)->batched;
}

/* ---- replicate_classify.c ---- */

/* Computes `values`, except the new nodes, and `sharded`. Fails for nodes that cannot be computed from shards. */
tu_status tu__replicator_classify(tu__replicator *p);

/* ---- replicate_make.c ---- */

/* Builds all nodes of the new graph, including the sums. */
tu_status tu__replicator_build(tu__replicator *p);
/* Returns the replicated value on a device, or the central device's if that device has none. Invalid if the value is
 * sharded. `device` here and below: an index below device_count. */
tu_value tu__replicated_value(const tu__replicator *p, tu__edge edge, size_t device);
/* Returns a shard of a value along an axis. If the value is replicated, its rows are sliced on first use. */
tu_value tu__shard_of_value(tu__replicator *p, tu__edge edge, int axis, size_t shard);
/* Returns the index of the device from which the user fetches values: the central device, or the first replica. */
size_t tu__central_device(const tu__replicator *p);
const char *tu__replicator_device_name(const tu__replicator *p, size_t device);
/* Inserts a node that the old graph does not have, for a shard or a device. Its name is
 * "<name of base><suffix_text>", followed by "@2" for instance 2. */
tu_value tu__replicator_insert(tu__replicator *p, const tu__node *base, const char *suffix_text,
                               size_t instance, const tu__node_request *request);
/* Allocates `count` edges, all TU_NO_NODE; NULL if out of memory. */
tu__edge *tu__replicator_new_edges(tu__replicator *p, size_t count);
/* ---- replicate_sums.c ---- */

/* Assigns every sum between mirrored replicas to a collective, by number. */
tu_status tu__number_collectives(tu__replicator *p);
/* Adds the partial sums of an output and stores the result in its `by_device`. `partials`: one per shard of this
 * process; overwritten. */
tu_status tu__sum_partials(tu__replicator *p, const tu__node *node, uint32_t output, tu_value *partials);

/* ---- replicate_processes.c ---- */

/* True if this process has the variables: process 0, or a process alone. */
bool tu__has_variables(const tu__replicator *p);
/* True if other processes than 0 compute the node's value on their central devices, too. */
bool tu__is_computed_elsewhere(const tu__replicator *p, const tu__node *node);
/* Assigns the variables that shards of other processes read to collectives, by number. */
void tu__number_variables(tu__replicator *p);
/* Sends a variable to the central devices of other processes, where the result becomes its replicated value. */
tu_status tu__send_variable(tu__replicator *p, const tu__node *node);
/* Adds the sums of all processes. Returns the result; invalid if this process does not get it. `transfer`: the type in
 * which sums are sent; `value`: the sum of this process's replicas. */
tu_value tu__add_processes(tu__replicator *p, tu__edge edge, tu_dtype transfer, tu_value value);
/* Sends the fetched values to all processes, and maps them. */
tu_status tu__send_fetches(tu__replicator *p);

/* ---- global_norm.c ---- */

/* Expands batch-norm of global scope into sums over samples, which the shard rules support. */
tu_status tu__expand_global_norm(tu__unit *unit);

#endif
