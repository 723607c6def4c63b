/* replicate: one batch shared by several devices.
 *
 * The graph says what one device would do with the whole batch. This pass cuts the batch into parts and gives each replica
 * some of them. A value that depends on no batched input stays whole. One with an axis of samples is cut along it: its node
 * is made once for each part, with the shapes of that part. One that sums over samples is made once for each part too, of
 * which each then has a share; the shares are added up at once (replicate_sums.c), and what hangs on the sum is whole
 * again. Which of these a node is, follows from its operands by the table in shard_rules.c.
 *
 *     mirrored   whole values are computed by every replica; variables have a mirror on each, and each mirror its
 *                assignment; replicas meet to add up shares
 *     central    whole values are computed on one device, which also adds up; copies at the seams (partition) send
 *                parameters out and shares back
 *
 * A whole value that meets a cut one gives each part its rows: a number everywhere is made with fewer of them, what was
 * repeated is repeated less often, and anything else is sliced.
 *
 * Part 0 and the first place of a whole value keep the names of the nodes they stand for; the others end in "@1", "@2", ….
 * A part of an input, and a mirror, know by `stands_for` whose feed or state is theirs. */
#include "pass/replicate.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"

/* ---- What the user gets ---- */

/* Rows of all parts behind each other, on the first replica. */
static tu_value join_parts(tu__replicator *p, tu__edge edge) {
    const tu__replicated *value = tu__replicated_at(p, edge);
    if (p->parts == 1) return tu__replicated_shard(p, edge, value->as, 0);
    tu_value *parts = tu__arena_alloc(&p->arena, p->parts * sizeof *parts);
    if (!parts) return tu__graph_fail(p->r.to, TU_NO_MEMORY, "%s", tu_message());
    for (size_t part = 0; part < p->parts; part++)
        parts[part] = tu__replicated_shard(p, edge, value->as, part);
    struct tu__concat_attrs a = {.axis = value->as};
    return tu__replicator_insert(p, p->r.from->nodes[edge.node], "/whole", 0,
                                 &(tu__node_request){.op = TU__OP_CONCAT,
                                                     .attrs = &a,
                                                     .inputs = parts,
                                                     .input_count = p->parts,
                                                     .device = tu__place_device(p, 0)});
}

/* Every whole value stands on the central device or the first replica for the user; a cut one is joined where it is
 * fetched. */
static tu_status map_results(tu__replicator *p) {
    for (uint32_t id = 0; id < p->r.from->node_count; id++)
        for (uint32_t i = 0; i < p->r.from->nodes[id]->output_count; i++) {
            tu_value whole = tu__replicated_whole(p, (tu__edge){id, i}, tu__central_place(p));
            if (tu_ok(whole)) tu__rewrite_map(&p->r, (tu__edge){id, i}, whole);
        }
    for (size_t i = 0; i < p->unit->fetch_count; i++) {
        tu__edge edge = p->unit->fetch[i];
        bool joined = tu_ok(tu__rewrite_value(&p->r, edge));
        if (!joined) tu__rewrite_map(&p->r, edge, join_parts(p, edge));
    }
    return tu_graph_status(p->r.to);
}

/* ---- What replicas compute for each other's sake ---- */

/* Values of the first replica that the user fetches have memory of their own, and a device fuses what it computes
 * accordingly. So have the same values of the others, where nobody reads them: else replicas would round differently, and
 * their variables part. */
static size_t list_kept(const tu__replicator *p, tu__edge *list) {
    size_t count = 0;
    for (size_t i = 0; i < p->unit->fetch_count; i++) {
        const tu__replicated *value = tu__replicated_at(p, p->unit->fetch[i]);
        for (size_t place = 0; value->whole && place < p->replicas; place++)
            list[count++] = value->whole[place];
        const tu__sharded_value *c = value->sharded_values;
        while (c && c->axis != value->as) c = c->next;
        for (size_t part = 0; c && part < p->parts; part++) list[count++] = c->parts[part];
    }
    return count;
}

/* In the new graph; a leaf, a number and an assignment are there anyway. */
static tu_status find_kept(tu__replicator *p, size_t *count, tu__edge **kept) {
    *kept = tu__alloc_array(p->unit->fetch_count * (p->replicas + p->parts) + 1, sizeof **kept, "a pass");
    if (!*kept) return TU_NO_MEMORY;
    size_t all = list_kept(p, *kept);
    *count = 0;
    for (size_t i = 0; i < all; i++) {
        tu__edge edge = (*kept)[i];
        if (edge.node != TU_NO_NODE && tu__node_is_computed(p->r.to->nodes[edge.node]))
            (*kept)[(*count)++] = edge;
    }
    return TU_OK;
}

/* ---- What is refused before anything is made ---- */

static tu_status check_invariant(const tu__replication *how) {
    size_t parts = (size_t)how->invariant, replicas = how->replica_count;
    if (how->invariant < 0)
        return tu_fail(TU_INVALID, "invariant is %d: expected the number of parts of a batch",
                       how->invariant);
    if (!parts) return TU_OK;
    if (parts % replicas || (replicas & (replicas - 1)))
        return tu_fail(
            TU_INVALID,
            "invariant %d on %zu devices: expected 1, 2, 4, … devices that divide the %d parts, so "
            "that sums are added up in one order",
            how->invariant, replicas, how->invariant);
    if (how->bf16_gradients)
        return tu_fail(TU_INVALID,
                       "invariant %d with gradients as bf16: what is rounded would depend on the "
                       "number of devices; expected one of the two",
                       how->invariant);
    return TU_OK;
}

/* The devices are the strategy's to give. */
static tu_status check_placement(const tu__unit *unit, const char *strategy) {
    const tu__placing *how = unit->placing;
    if (how && (how->patterns || how->by))
        return tu_fail(TU_INVALID,
                       "strategy '%s' gives every operation its device, and so does %s: use one of the two",
                       strategy, how->patterns ? "a placement by patterns" : "a placement function");
    for (uint32_t i = 0; i < unit->graph->node_count; i++)
        if (unit->graph->nodes[i]->device)
            return tu_fail(
                TU_INVALID,
                "strategy '%s' gives every operation its device, but %s '%s' is for '%s' by tu_with_device: use "
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
            return tu_fail(TU_UNSUPPORTED,
                           "strategy '%s' divides one batch, but '%s' is %s and '%s' is %s: expected as many "
                           "samples in both",
                           strategy, first->name, tu__type_string(first->outputs[0]), node->name,
                           tu__type_string(node->outputs[0]));
    }
    return TU_OK;
}

static tu_status check_parts(const tu__replicator *p) {
    if (!p->samples || p->samples >= (int64_t)p->parts) return TU_OK;
    return tu_fail(TU_INVALID,
                   "strategy '%s': a batch of %" PRId64
                   " cannot be divided into %zu parts%s: expected at least "
                   "one sample for each; use a larger batch or fewer %s",
                   p->strategy, p->samples, p->parts, p->how->invariant ? " (invariant)" : ", one a device",
                   p->how->invariant ? "parts" : "devices");
}

/* ---- The pass ---- */

static bool changes_nothing(const tu__replication *how) {
    if (how->strategy == TU__SINGLE) return true;
    bool alone = how->replica_count == 1 && how->invariant <= 1;
    return alone && (how->strategy == TU__MIRRORED || strcmp(how->central, how->replicas[0]) == 0);
}

static tu_status begin(tu__replicator *p, tu__unit *unit) {
    const tu__replication *how = p->how;
    TU_TRY(find_samples(unit, p->strategy, &p->samples));
    p->replicas = how->replica_count;
    p->parts = how->invariant ? (size_t)how->invariant : p->replicas;
    p->places = p->replicas + (how->strategy == TU__CENTRAL);
    TU_TRY(check_parts(p));
    const tu_graph *graph = unit->graph;
    size_t count = graph->node_count, outputs = 0;
    for (uint32_t i = 0; i < count; i++) outputs += graph->nodes[i]->output_count;
    p->values = tu__arena_alloc(&p->arena, (outputs + 1) * sizeof *p->values);
    p->sharded = tu__arena_alloc(&p->arena, (count + 1) * sizeof(tu__shard *));
    if (!p->values || !p->sharded) return TU_NO_MEMORY;
    return tu__rewrite_begin(&p->r, graph);
}

static tu_status replicate(tu__replicator *p, size_t *kept_count, tu__edge **kept) {
    TU_TRY(tu__replicator_classify(p));
    TU_TRY(tu__replicator_make(p));
    TU_TRY(map_results(p));
    return find_kept(p, kept_count, kept);
}

tu_status tu__pass_replicate(tu__unit *unit) {
    const tu__replication *how = &unit->replication;
    if (how->strategy != TU__SINGLE) TU_TRY(check_invariant(how));
    if (changes_nothing(how)) return TU_OK;
    const char *strategy = tu__strategy_names[how->strategy];
    TU_TRY(check_placement(unit, strategy));
    if (!how->invariant) TU_TRY(tu__expand_global_norm(unit));
    tu__replicator p = {.unit = unit, .how = how, .strategy = strategy, .arena = {.purpose = "a pass"}};
    tu_status status = begin(&p, unit);
    if (status == TU_OK) {
        size_t kept_count = 0;
        tu__edge *kept = NULL;
        status = replicate(&p, &kept_count, &kept);
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
