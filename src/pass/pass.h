/* Passes: the steps that transform the user's graph into one partition per device.
 *
 * A unit (compilation unit) is a graph with the request to compile it (fetches, devices, options). Every pass reads a
 * unit and replaces its graph by another one that computes the same results. Each pass has its own file. In
 * debug builds the verifier runs after each pass. The order:
 *
 *   simplify    folds constants, merges equal nodes, drops unused nodes
 *   replicate   computes one shard of the batch per replica, and sums between replicas
 *   precision   uses half precision where requested, with casts at the borders
 *   place       assigns a device to every node
 *   partition   inserts copies on edges between devices
 */
#ifndef TU__PASS_PASS_H
#define TU__PASS_PASS_H

#include "graph/graph.h"
#include "pass/choices.h"

/* Parse a name. NULL selects the default: the dtypes of the graph, and "single". Fail for an unknown name. */
tu_status tu__precision_parse(const char *name, tu__precision *precision);
tu_status tu__strategy_parse(const char *name, tu__strategy *strategy);

/* How the pass `replicate` divides a batch: see tu_compile_options. */
typedef struct tu__replication {
    tu__strategy strategy;
    size_t replica_count;        /* in this process */
    const char *const *replicas; /* names of the devices that compute shards of the batch */
    /* The processes that share a batch, in the order of their replicas; 0: this process alone. */
    uint32_t process_count, process;
    /* Per process, the number of replicas of all processes before it; then the number of all replicas. Owned by the
     * unit; NULL for a process alone. */
    uint32_t *first_replica_of;
    bool processes_share_memory; /* all of them */
    char *
        unequal_devices; /* a notice: results depend on which process has which device; owned by the unit; NULL: no */
    /* CENTRAL: the device of the variables; one of the unit's devices, may also be a replica. Process 0 has the
     * variables; in the others it is the device that receives their values. */
    const char *central;
    int invariant; /* number of shards of a batch; 0: one per replica */
    bool bf16_gradients;
    int sum_threads; /* tu_graph.sum_threads of the replicas' graph */
} tu__replication;

/* Returns the number of replicas of all processes, and that of all processes before this one. */
size_t tu__all_replicas(const tu__replication *replication);
size_t tu__first_replica(const tu__replication *replication);
/* Returns the process of a rank of a collective over several processes. A mirrored collective has a rank per replica,
 * others have one per process. */
uint32_t tu__process_of_rank(const tu__replication *replication, uint32_t rank);

struct tu__unit;

/* Options of the pass `place`, in addition to the devices named in the graph. The pass refers to devices by index and
 * queries them through these callbacks, which compile/placement.c implements. */
typedef struct tu__placement_options {
    const char
        *patterns; /* "conv*=gpu:1,local*=cpu:0": the first match of a node's name decides; NULL: none */
    /* The user's placement function: returns a device's name, or NULL for the default placement. */
    const char *(*choose_device)(const tu_graph *graph, uint32_t node, void *context);
    void *choose_context;
    bool strict; /* fail for a node that its device does not support, instead of moving the node */

    void *context; /* of the callbacks below; all are optional */
    /* Returns TU_OK, or TU_UNSUPPORTED with the reason as message. NULL: every device supports everything. */
    tu_status (*supports)(void *context, size_t device, const tu_graph *graph, uint32_t node);
    /* True if the device computes in host memory. NULL: all do. */
    bool (*is_host)(void *context, size_t device);
    /* Adds a host device to the unit, for operations that no other device supports. NULL: no device is added. */
    tu_status (*add_host)(void *context, struct tu__unit *unit);
} tu__placement_options;

typedef struct tu__unit {
    tu_graph *graph; /* owned */
    size_t fetch_count;
    tu__edge *fetch; /* values that the user fetches */
    bool updates;    /* assignments are computed, too */
    /* Values that get a buffer as if they were fetched. If the user fetches a value of one replica, all
     * replicas keep theirs, so that all fuse and round alike and mirrored variables stay bit-identical. */
    size_t kept_count;
    tu__edge *kept;
    tu__precision precision;
    size_t device_count;
    const char *const *devices;             /* full names; the first is the default */
    const tu__placement_options *placement; /* NULL: only the devices named in the graph */
    char unmatched_pattern[256]; /* the first placement pattern that matches no node; empty: all match */
    tu__replication replication; /* strategy TU__SINGLE: the graph is not replicated */
} tu__unit;

/* Initialises a unit with a copy of the graph and of the request. */
tu_status tu__unit_begin(tu__unit *unit, const tu_graph *graph, size_t fetch_count, const tu_value *fetch,
                         bool updates);
void tu__unit_end(tu__unit *unit);

typedef struct tu__pass {
    const char *name;
    const char *summary;
    tu_status (*run)(tu__unit *unit);
} tu__pass;
/* All passes, in order; the last row has no name. */
extern const tu__pass tu__passes[];
/* Runs all passes up to and including `last` (NULL: all). Fails for an unknown name, with the list of names. */
tu_status tu__run_passes(tu__unit *unit, const char *last);

tu_status tu__pass_simplify(tu__unit *unit);
tu_status tu__pass_replicate(tu__unit *unit);
tu_status tu__pass_precision(tu__unit *unit);
tu_status tu__pass_place(tu__unit *unit);
tu_status tu__pass_partition(tu__unit *unit);

/* Returns an array with a flag per node: true if a fetch, a collective or (with `updates`) an assignment depends on
 * it. A collective is always needed, even if its result is not read, because the other ranks wait for it. Returns
 * NULL if out of memory. */
bool *tu__unit_needed(const tu__unit *unit);
/* Removes the nodes that are not needed. */
tu_status tu__unit_drop_dead(tu__unit *unit);

/* ---- Rewriting: build a new graph from an old one, node by node ---- */

typedef struct tu__rewrite {
    const tu_graph *from;
    tu_graph *to;
    uint32_t *first_output; /* node of `from` -> its first entry in `map` */
    tu__edge *map;          /* output of `from` -> value of `to`; node TU_NO_NODE: not mapped */
} tu__rewrite;

tu_status tu__rewrite_begin(tu__rewrite *r, const tu_graph *from);
/* Copies a node: maps its inputs, keeps name, flags, device and attributes, and maps its outputs. */
tu_status tu__rewrite_copy(tu__rewrite *r, const tu__node *node);
/* Returns the request that copies a node, for the pass to modify. `inputs` has room for the node's inputs. */
tu__node_request tu__rewrite_request(const tu__rewrite *r, const tu__node *node, tu_value *inputs);
/* Makes the node of `to` that replaces one of `from`, with its name and control dependencies. */
tu_value tu__rewrite_make(tu__rewrite *r, const tu__node *node, const tu__node_request *request);
/* Makes a node that `from` does not have, named "<base><suffix>", with a number appended if that name exists. */
tu_value tu__rewrite_insert(tu__rewrite *r, const char *base, const char *suffix,
                            const tu__node_request *request);
/* Maps one output of a node of `from` to a value of `to`. */
void tu__rewrite_map(tu__rewrite *r, tu__edge from, tu_value to);
/* Maps all outputs of a node to those of another, output by output. */
void tu__rewrite_map_all(tu__rewrite *r, const tu__node *from, tu_value to);
/* Returns the value of `to` that replaces one of `from`; invalid if there is none. */
tu_value tu__rewrite_value(const tu__rewrite *r, tu__edge from);
/* Replaces the unit's graph by `to`, frees the old graph, and maps the fetches and named results. Named results that
 * are not mapped are dropped. */
tu_status tu__rewrite_finish(tu__rewrite *r, tu__unit *unit);
/* Frees the new graph and leaves the unit unchanged. */
void tu__rewrite_abandon(tu__rewrite *r);

#endif
