/* replicate: data parallelism, which divides one batch among several devices.
 *
 * The input graph describes what one device would compute for the whole batch. This pass divides the batch into
 * shards and assigns them to the replicas. A value that depends on no batched input stays replicated. A value with
 * an axis of samples is sharded along it: its node is built once per shard, with the shapes of that shard. A sum
 * over samples is also built once per shard, which gives partial sums; these are added immediately
 * (replicate_sums.c), and everything computed from the sum is replicated again. The table in shard_rules.c decides
 * this for each node from its operands.
 *
 *     mirrored   every replica computes the replicated values; every replica has a copy of each variable and of its
 *                assignment; an all-reduce adds the partial sums
 *     central    one device computes the replicated values and the sums; copies (pass `partition`) send parameters to
 *                the replicas and partial sums back
 *
 * If an operation reads a replicated value together with a sharded one, each shard gets its rows of it: a fill or
 * broadcast is built with fewer rows, anything else is sliced.
 *
 * Shard 0, and a replicated value on the first device, keep the names of the original nodes; the others end in "@1",
 * "@2", …. The field `stands_for` of an input's shard, or of a variable's mirror, names the original input or
 * variable. */
#include "pass/replicate.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"

/* ---- Fetched values ---- */

/* Concatenates all shards, on the first replica. */
static tu_value concat_shards(tu__replicator *p, tu__edge edge) {
    const tu__distributed_value *value = tu__distributed_value_of(p, edge);
    if (p->shards == 1) return tu__shard_of_value(p, edge, value->layout, 0);
    if (p->end_shard - p->first_shard < p->shards)
        return tu__graph_fail(
            p->r.to, TU_UNSUPPORTED,
            "'%s' has a row per sample, and each process computes only its own rows: expected to "
            "fetch a sum or mean over the batch",
            p->r.from->nodes[edge.node]->name);
    tu_value *shards = tu__arena_alloc(&p->arena, p->shards * sizeof *shards);
    if (!shards) return tu__graph_fail(p->r.to, TU_NO_MEMORY, "%s", tu_message());
    for (size_t shard = 0; shard < p->shards; shard++)
        shards[shard] = tu__shard_of_value(p, edge, value->layout, shard);
    struct tu__concat_attrs a = {.axis = value->layout};
    return tu__replicator_insert(p, p->r.from->nodes[edge.node], "/whole", 0,
                                 &(tu__node_request){.op = TU__OP_CONCAT,
                                                     .attrs = &a,
                                                     .inputs = shards,
                                                     .input_count = p->shards,
                                                     .device = tu__replicator_device_name(p, 0)});
}

/* Maps every replicated value to the one on the central device or first replica, and concatenates sharded values that
 * are fetched. */
static tu_status map_results(tu__replicator *p) {
    for (uint32_t id = 0; id < p->r.from->node_count; id++)
        for (uint32_t i = 0; i < p->r.from->nodes[id]->output_count; i++) {
            tu_value replicated = tu__replicated_value(p, (tu__edge){id, i}, tu__central_device(p));
            if (tu_ok(replicated)) tu__rewrite_map(&p->r, (tu__edge){id, i}, replicated);
        }
    for (size_t i = 0; i < p->unit->fetch_count; i++) {
        tu__edge edge = p->unit->fetch[i];
        bool is_mapped = tu_ok(tu__rewrite_value(&p->r, edge));
        bool is_sharded = tu__distributed_value_of(p, edge)->layout >= 0;
        if (!is_mapped && (is_sharded || tu__has_variables(p)))
            tu__rewrite_map(&p->r, edge, concat_shards(p, edge));
    }
    return tu__send_fetches(p);
}

/* ---- Values that all replicas must keep ---- */

/* Fetched values of the first replica are written to buffers, which prevents some fusion. The same values of the
 * other replicas are kept too, although no node reads them. Otherwise replicas would round differently, and their
 * variables would diverge. */
static size_t list_replicas_of_fetches(const tu__replicator *p, tu__edge *list) {
    size_t count = 0;
    for (size_t i = 0; i < p->unit->fetch_count; i++) {
        const tu__distributed_value *value = tu__distributed_value_of(p, p->unit->fetch[i]);
        for (size_t device = 0; value->by_device && device < p->replicas; device++)
            list[count++] = value->by_device[device];
        const tu__sharded_value *c = value->sharded_values;
        while (c && c->axis != value->layout) c = c->next;
        for (size_t shard = 0; c && shard < p->shards; shard++) list[count++] = c->shards[shard];
    }
    return count;
}

/* Lists them as values of the new graph. Leaves, fills and assignments have memory anyway. */
static tu_status find_kept_values(tu__replicator *p, size_t *count, tu__edge **kept) {
    *kept = tu__alloc_array(p->unit->fetch_count * (p->replicas + p->shards) + 1, sizeof **kept, "a pass");
    if (!*kept) return TU_NO_MEMORY;
    size_t candidate_count = list_replicas_of_fetches(p, *kept);
    *count = 0;
    for (size_t i = 0; i < candidate_count; i++) {
        tu__edge edge = (*kept)[i];
        if (edge.node != TU_NO_NODE && tu__node_is_computed(p->r.to->nodes[edge.node]))
            (*kept)[(*count)++] = edge;
    }
    return TU_OK;
}

/* ---- Validation ---- */

static tu_status check_invariant(const tu__replication *options) {
    size_t shards = (size_t)options->invariant, replicas = tu__all_replicas(options);
    if (options->invariant < 0)
        return tu_fail(TU_INVALID, "invariant is %d: expected a number of shards of at least 0",
                       options->invariant);
    if (!shards) return TU_OK;
    if (shards % replicas || (replicas & (replicas - 1)))
        return tu_fail(TU_INVALID,
                       "invariant %d on %zu devices: expected a number of devices that is a power of two and "
                       "divides the %d shards, so that sums are always added in the same order",
                       options->invariant, replicas, options->invariant);
    if (options->bf16_gradients)
        return tu_fail(TU_INVALID,
                       "invariant %d cannot be combined with bf16 gradients: rounding would depend on the "
                       "number of devices",
                       options->invariant);
    return TU_OK;
}

/* A strategy places every operation itself, so it excludes other placement options. */
static tu_status check_no_placement(const tu__unit *unit, const char *strategy) {
    const tu__placement_options *options = unit->placement;
    if (options && (options->patterns || options->choose_device))
        return tu_fail(TU_INVALID,
                       "strategy '%s' places every operation itself and cannot be combined with %s", strategy,
                       options->patterns ? "placement patterns" : "a placement function");
    for (uint32_t i = 0; i < unit->graph->node_count; i++)
        if (unit->graph->nodes[i]->device)
            return tu_fail(
                TU_INVALID,
                "strategy '%s' places every operation itself, but %s '%s' is placed on '%s' by tu_with_device: use "
                "one of the two",
                strategy, unit->graph->nodes[i]->op->name, unit->graph->nodes[i]->name,
                unit->graph->nodes[i]->device);
    return TU_OK;
}

static tu_status find_samples(const tu__unit *unit, const char *strategy, int64_t *samples) {
    const tu__node *first = NULL;
    *samples = 0;
    for (uint32_t i = 0; i < unit->graph->node_count; i++) {
        const tu__node *node = unit->graph->nodes[i];
        if (!tu__is_batched(node)) continue;
        if (!first) first = node;
        *samples = first->outputs[0].shape.dim[0];
        if (node->outputs[0].shape.dim[0] != *samples)
            return tu_fail(
                TU_UNSUPPORTED,
                "strategy '%s' divides one batch, but '%s' is %s and '%s' is %s: expected the same "
                "number of samples in both",
                strategy, first->name, tu__type_string(first->outputs[0]), node->name,
                tu__type_string(node->outputs[0]));
    }
    return TU_OK;
}

static tu_status check_shard_count(const tu__replicator *p) {
    if (!p->samples || p->samples >= (int64_t)p->shards) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "strategy '%s': a batch of %" PRId64 " cannot be divided into %zu shards%s: expected at least "
        "one sample per shard; use a larger batch or fewer %s",
        p->strategy, p->samples, p->shards, p->options->invariant ? " (invariant)" : ", one per device",
        p->options->invariant ? "shards" : "devices");
}

/* ---- The pass ---- */

static bool is_single_device(const tu__replication *options) {
    if (options->strategy == TU__SINGLE) return true;
    bool is_single = tu__all_replicas(options) == 1 && options->invariant <= 1 && options->process_count <= 1;
    return is_single &&
           (options->strategy == TU__MIRRORED || strcmp(options->central, options->replicas[0]) == 0);
}

static tu_status init_replicator(tu__replicator *p, tu__unit *unit) {
    const tu__replication *options = p->options;
    TU_TRY(find_samples(unit, p->strategy, &p->samples));
    p->replicas = options->replica_count;
    p->shards = options->invariant ? (size_t)options->invariant : tu__all_replicas(options);
    size_t shards_per_replica = p->shards / tu__all_replicas(options);
    p->first_shard = tu__first_replica(options) * shards_per_replica;
    p->end_shard = p->first_shard + p->replicas * shards_per_replica;
    p->device_count = p->replicas + (options->strategy == TU__CENTRAL);
    p->has_central_processes = options->strategy == TU__CENTRAL && options->process_count;
    TU_TRY(check_shard_count(p));
    const tu_graph *graph = unit->graph;
    size_t count = graph->node_count, outputs = 0;
    for (uint32_t i = 0; i < count; i++) outputs += graph->nodes[i]->output_count;
    p->values = tu__arena_alloc(&p->arena, (outputs + 1) * sizeof *p->values);
    p->sharded = tu__arena_alloc(&p->arena, (count + 1) * sizeof(tu__sharding *));
    if (!p->values || !p->sharded) return TU_NO_MEMORY;
    TU_TRY(tu__rewrite_begin(&p->r, graph));
    p->r.to->sum_threads = options->sum_threads;
    return TU_OK;
}

static tu_status build_replicas(tu__replicator *p, size_t *kept_count, tu__edge **kept) {
    TU_TRY(tu__replicator_classify(p));
    TU_TRY(tu__replicator_build(p));
    TU_TRY(map_results(p));
    return find_kept_values(p, kept_count, kept);
}

tu_status tu__pass_replicate(tu__unit *unit) {
    const tu__replication *options = &unit->replication;
    if (options->strategy != TU__SINGLE) TU_TRY(check_invariant(options));
    if (is_single_device(options)) return TU_OK;
    const char *strategy = tu__strategy_names[options->strategy];
    TU_TRY(check_no_placement(unit, strategy));
    if (!options->invariant) TU_TRY(tu__expand_global_norm(unit));
    tu__replicator p = {
        .unit = unit, .options = options, .strategy = strategy, .arena = {.purpose = "a pass"}};
    tu_status status = init_replicator(&p, unit);
    if (status == TU_OK) {
        size_t kept_count = 0;
        tu__edge *kept = NULL;
        status = build_replicas(&p, &kept_count, &kept);
        if (status == TU_OK)
            status = tu__rewrite_finish(&p.r, unit);
        else
            tu__rewrite_abandon(&p.r);
        unit->kept = kept;
        unit->kept_count = status == TU_OK ? kept_count : 0;
    }
    tu__arena_free(&p.arena);
    return status == TU_OK ? tu__unit_drop_dead(unit) : status;
}
