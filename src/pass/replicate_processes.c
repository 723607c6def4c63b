/* Strategy central over several processes: what they send each other.
 *
 * Every process has a central device; that of process 0 has the variables. A replicated value that shards of other
 * processes depend on is computed on the central device of every process; all others, such as the updates, only on that
 * of process 0. Three kinds of values are exchanged, by collectives with one rank per process:
 *
 *     variables that such values or shards read       collective_broadcast, before everything else
 *     sums over shards                                all_reduce if shards of other processes depend on the sum (as on
 *                                                     the statistics of batch-norm), otherwise collective_reduce
 *     fetched values                                  collective_broadcast, after everything else
 *
 * A process passes zeros to a broadcast; they are never computed. */
#include <stdio.h>

#include "pass/replicate.h"

bool tu__has_variables(const tu__replicator *p) {
    return !p->has_central_processes || p->options->process == 0;
}

bool tu__is_computed_elsewhere(const tu__replicator *p, const tu__node *node) {
    bool feeds_shards = false;
    for (uint32_t i = 0; i < node->output_count; i++)
        feeds_shards = feeds_shards || tu__distributed_value_of(p, (tu__edge){node->id, i})->feeds_shards;
    return p->has_central_processes && feeds_shards && node->op->code != TU__OP_ASSIGN;
}

void tu__number_variables(tu__replicator *p) {
    uint64_t bytes = 0; /* in the open collective */
    for (uint32_t id = 0; id < p->r.from->node_count; id++) {
        const tu__node *node = p->r.from->nodes[id];
        if (node->op->code != TU__OP_VARIABLE || !tu__is_computed_elsewhere(p, node)) continue;
        if (bytes >= TU__BUCKET_BYTES) p->collective_count++, bytes = 0;
        tu__distributed_value_of(p, (tu__edge){id, 0})->collective = p->collective_count;
        bytes += tu_type_bytes(node->outputs[0]);
    }
    if (bytes) p->collective_count++;
}

/* ---- Nodes ---- */

/* An output of the old graph; the names of new nodes are derived from it. */
static tu_value insert(tu__replicator *p, tu__edge base, const char *kind, tu__node_request request) {
    char suffix[48];
    if (base.output)
        snprintf(suffix, sizeof suffix, ":%u%s", base.output, kind);
    else
        snprintf(suffix, sizeof suffix, "%s", kind);
    request.device = tu__replicator_device_name(p, tu__central_device(p));
    return tu__replicator_insert(p, p->r.from->nodes[base.node], suffix, 0, &request);
}

static tu_value zeros(tu__replicator *p, tu__edge base, tu_type type) {
    const struct tu__fill_attrs a = {.dtype = type.dtype, .shape = type.shape};
    return insert(p, base, "/zeros", (tu__node_request){.op = TU__OP_FILL, .attrs = &a});
}

static tu_value cast(tu__replicator *p, tu__edge base, tu_value x, tu_dtype dtype) {
    if (!tu_ok(x) || tu_value_dtype(x) == dtype) return x;
    const struct tu__cast_attrs a = {.dtype = dtype};
    return insert(p, base, "/cast",
                  (tu__node_request){.op = TU__OP_CAST, .attrs = &a, .inputs = &x, .input_count = 1});
}

/* Inserts this process's node of a collective. */
static tu_value exchange(tu__replicator *p, tu__edge base, const char *kind, tu__opcode op,
                         uint32_t collective, tu_value value) {
    /* The attributes of an all_reduce are the first of these. */
    const struct tu__collective_reduce_attrs a = {
        .collective = collective, .rank = p->options->process, .ranks = p->options->process_count, .root = 0};
    return insert(p, base, kind,
                  (tu__node_request){.op = op, .attrs = &a, .inputs = &value, .input_count = 1});
}

/* Sends a value of process 0. Returns the result. */
static tu_value broadcast(tu__replicator *p, tu__edge base, uint32_t collective, tu_value value) {
    if (!tu__has_variables(p)) value = zeros(p, base, tu_edge_type(p->r.from, base));
    return exchange(p, base, "/broadcast", TU__OP_COLLECTIVE_BROADCAST, collective, value);
}

/* ---- Variables ---- */

tu_status tu__send_variable(tu__replicator *p, const tu__node *node) {
    size_t central = tu__central_device(p);
    tu__edge edge = {node->id, 0};
    tu__distributed_value *value = tu__distributed_value_of(p, edge);
    tu_value sent = broadcast(p, edge, value->collective, tu__replicated_value(p, edge, central));
    if (!tu__has_variables(p)) value->by_device[central] = (tu__edge){sent.node, sent.output};
    return tu_graph_status(p->r.to);
}

/* ---- Sums ---- */

tu_value tu__add_processes(tu__replicator *p, tu__edge edge, tu_dtype transfer, tu_value value) {
    const tu__distributed_value *sum = tu__distributed_value_of(p, edge);
    tu_type type = tu_edge_type(p->r.from, edge);
    tu_dtype dtype = type.dtype;
    type.dtype = tu_dtype_is_float(transfer) ? transfer : TU_F64; /* collectives add floats */
    tu_value result =
        exchange(p, edge, "/sum", sum->feeds_shards ? TU__OP_ALL_REDUCE : TU__OP_COLLECTIVE_REDUCE,
                 sum->collective, cast(p, edge, value, type.dtype));
    bool is_here = sum->feeds_shards || tu__has_variables(p);
    return is_here ? cast(p, edge, result, dtype) : tu__invalid(p->r.to);
}

/* ---- Fetched values ---- */

/* Returns what a fetch of a value copies: of an assignment, the value that the variable gets. */
static tu_value fetched_value(const tu__replicator *p, tu__edge edge) {
    tu_value value = tu__rewrite_value(&p->r, edge);
    if (!tu_ok(value) || tu__node_of(value)->op->code != TU__OP_ASSIGN) return value;
    return tu__input_of(p->r.to, tu__node_of(value), 1);
}

tu_status tu__send_fetches(tu__replicator *p) {
    for (size_t i = 0; p->has_central_processes && i < p->unit->fetch_count; i++) {
        tu__edge edge = p->unit->fetch[i];
        tu_value sent = broadcast(p, edge, p->collective_count, fetched_value(p, edge));
        if (!tu__has_variables(p)) tu__rewrite_map(&p->r, edge, sent);
    }
    return tu_graph_status(p->r.to);
}
