/* Passes: a program on its way from the user's graph to one part a device.
 *
 * A unit is a graph and what is wanted of it. Every pass takes a unit and leaves another graph in it, with
 * the same results; one file a pass. In debug builds the verifier runs after each. The order:
 *
 *   simplify    constants folded, equal nodes merged, dead ones dropped
 *   replicate   a part of the batch for every replica, sums between them
 *   precision   half precision where asked for, casts at the borders
 *   place       a device for every node
 *   partition   copies where an edge crosses devices
 */
#ifndef TU__PASS_PASS_H
#define TU__PASS_PASS_H

#include "graph/graph.h"
#include "pass/choices.h"

/* The one of that name; NULL: as built, and "single". Others are refused. */
tu_status tu__precision_parse(const char *name, tu__precision *precision);
tu_status tu__strategy_parse(const char *name, tu__strategy *strategy);

/* How the pass `replicate` shares a batch: see tu_compile_options. */
typedef struct tu__replication {
    tu__strategy strategy;
    size_t replica_count;
    const char *const *replicas; /* devices that compute parts of the batch; names */
    const char
        *central;  /* CENTRAL: the device that holds the variables; one of the unit's, perhaps a replica's */
    int invariant; /* parts of the batch; 0: one a replica */
    bool bf16_gradients;
} tu__replication;

struct tu__unit;

/* How the pass `place` finds devices, beside what the graph says. It knows them by number and by these calls, which
 * compile/placement.c answers. */
typedef struct tu__placing {
    const char
        *patterns; /* "conv*=gpu:1,local*=cpu:0": the first that fits a node's name places it; NULL: none */
    const char *(*by)(const tu_graph *graph, uint32_t node, void *context); /* a device's name, or NULL */
    void *by_context;
    bool strict; /* a node that its device does not take is an error, instead of being moved */

    void *context; /* of the calls below; all optional */
    /* TU_OK, or TU_UNSUPPORTED with the reason as message. NULL: every device takes everything. */
    tu_status (*supports)(void *context, size_t device, const tu_graph *graph, uint32_t node);
    /* Whether it computes in host memory. NULL: all do. */
    bool (*is_host)(void *context, size_t device);
    /* Gives the unit one more device, on the host, for what the others do not take. NULL: it has those it has. */
    tu_status (*add_host)(void *context, struct tu__unit *unit);
} tu__placing;

typedef struct tu__unit {
    tu_graph *graph; /* owned */
    size_t fetch_count;
    tu__edge *fetch; /* results of a run; assignments count as wanted when `updates` */
    bool updates;
    /* Values that get memory of their own as if they were fetched: what one replica is asked for, all compute in the same
     * way, so that mirrors stay equal to the last bit. */
    size_t kept_count;
    tu__edge *kept;
    tu__precision precision;
    size_t device_count;
    const char *const *devices;  /* full names; the first is the default */
    const tu__placing *placing;  /* NULL: by what the graph says alone */
    char unfitting[256];         /* the first pattern of the placement that fits no name; empty: none */
    tu__replication replication; /* of no strategy: the graph stays as it is */
} tu__unit;

/* Copies the graph, whole (simplify cuts it down), and the request into a unit of its own. */
tu_status tu__unit_begin(tu__unit *unit, const tu_graph *graph, size_t fetch_count, const tu_value *fetch,
                         bool updates);
void tu__unit_end(tu__unit *unit);

typedef struct tu__pass {
    const char *name;
    const char *summary;
    tu_status (*run)(tu__unit *unit);
} tu__pass;
/* All passes, in order; ended by a row without a name. */
extern const tu__pass tu__passes[];
/* Runs all passes, up to and including `last` (NULL: all). An unknown name is refused with the list. */
tu_status tu__run_passes(tu__unit *unit, const char *last);

tu_status tu__pass_simplify(tu__unit *unit);
tu_status tu__pass_replicate(tu__unit *unit);
tu_status tu__pass_precision(tu__unit *unit);
tu_status tu__pass_place(tu__unit *unit);
tu_status tu__pass_partition(tu__unit *unit);

/* Which nodes the fetches, collectives and (with `updates`) the assignments hang on, one truth a node; NULL: out of
 * memory. A collective is held by all ranks or none, so it is needed also where its result is not read. */
bool *tu__unit_needed(const tu__unit *unit);
/* Drops all other nodes. */
tu_status tu__unit_drop_dead(tu__unit *unit);

/* ---- Rewriting: a new graph from an old one, node by node ---- */

typedef struct tu__rewrite {
    const tu_graph *from;
    tu_graph *to;
    uint32_t *slot; /* node of `from` -> its first entry in `map` */
    tu__edge *map;  /* output of `from` -> value of `to`; node TU_NO_NODE: none */
} tu__rewrite;

tu_status tu__rewrite_begin(tu__rewrite *r, const tu_graph *from);
/* Copies a node with its inputs mapped, its name, flags, device and attributes kept; maps its outputs. */
tu_status tu__rewrite_copy(tu__rewrite *r, const tu__node *node);
/* The request that copies a node, for a pass to change. `inputs` has room for the node's inputs. */
tu__node_request tu__rewrite_request(const tu__rewrite *r, const tu__node *node, tu_value *inputs);
/* Makes a node of `to` for one of `from`, under its name; it waits for what that waits for. */
tu_value tu__rewrite_make(tu__rewrite *r, const tu__node *node, const tu__node_request *request);
/* Makes a node that `from` does not have: "<base><suffix>", or with a number when that is taken. */
tu_value tu__rewrite_insert(tu__rewrite *r, const char *base, const char *suffix,
                            const tu__node_request *request);
/* Maps one output of a node of `from` to a value of `to`. */
void tu__rewrite_map(tu__rewrite *r, tu__edge from, tu_value to);
/* Maps all outputs of a node to those of another, output by output. */
void tu__rewrite_map_all(tu__rewrite *r, const tu__node *from, tu_value to);
/* The value of `to` that stands for one of `from`; invalid: none. */
tu_value tu__rewrite_value(const tu__rewrite *r, tu__edge from);
/* Takes over: the unit's graph is freed and replaced, its fetches and named results mapped. A named result
 * that stands for nothing any more is dropped. */
tu_status tu__rewrite_finish(tu__rewrite *r, tu__unit *unit);
/* Gives up: frees what was made. */
void tu__rewrite_abandon(tu__rewrite *r);

#endif
