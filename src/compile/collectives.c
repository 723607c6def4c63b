/* Compiles collectives: finds their ranks, values and levels. Execution: run/perform_collective.c. */
#include "compile/collectives.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/text.h"

typedef struct invitation { /* an all_reduce node of the graph */
    int64_t number, rank, ranks;
    uint32_t node;
} invitation;

static int compare_invitations(const void *left, const void *right) {
    const invitation *a = left, *b = right;
    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

static uint32_t gather(const tu_graph *g, invitation *list) {
    uint32_t count = 0;
    for (uint32_t id = 0; id < g->node_count; id++) {
        if (g->nodes[id]->op->code != TU__OP_ALL_REDUCE) continue;
        const struct tu__all_reduce_attrs *a = g->nodes[id]->attrs;
        if (list) list[count] = (invitation){a->collective, a->rank, a->ranks, id};
        count++;
    }
    return count;
}

/* ---- Checking ---- */

/* Checks the all_reduce nodes of one rank of a collective, and sets `*partition` to the rank's partition. `list`: the
 * rank's `count` nodes. */
static tu_status check_rank(const tu__unit *unit, const invitation *list, uint32_t count, int64_t rank,
                            int64_t ranks, uint32_t *part) {
    const tu_graph *g = unit->graph;
    const char *name = count ? g->nodes[list[0].node]->name : "";
    if (!count || list[0].rank != rank)
        return tu_fail(TU_INVALID,
                       "rank %" PRId64 " of %" PRId64 " brings nothing to collective %" PRId64
                       ": all ranks must bring the same values",
                       rank, ranks, list[0].number);
    *part = tu__partition_of(unit, list[0].node);
    for (uint32_t i = 0; i < count; i++) {
        if (list[i].ranks != ranks)
            return tu_fail(TU_INVALID,
                           "all_reduce '%s' says that collective %" PRId64 " has %" PRId64
                           " ranks, another one says %" PRId64,
                           name, list[i].number, list[i].ranks, ranks);
        if (tu__partition_of(unit, list[i].node) != *part)
            return tu_fail(TU_INVALID,
                           "rank %" PRId64 " of collective %" PRId64
                           " is on device '%s' with '%s' and elsewhere with '%s': a rank is one device",
                           rank, list[i].number, unit->devices[*part], name, g->nodes[list[i].node]->name);
    }
    return TU_OK;
}

static tu_status check_lists(const tu__unit *unit, const tu__collective *m) {
    const tu_graph *g = unit->graph;
    for (uint32_t r = 1; r < m->ranks; r++)
        for (uint32_t v = 0; v < m->value_count; v++) {
            const tu__node *first = g->nodes[m->members[0].nodes[v]],
                           *other = g->nodes[m->members[r].nodes[v]];
            tu_type a = first->outputs[0], b = other->outputs[0];
            if (a.dtype == b.dtype && tu_shape_equal(a.shape, b.shape)) continue;
            return tu_fail(TU_INVALID,
                           "value %u of collective %" PRId64
                           " is %s ('%s') of rank 0, but %s ('%s') of rank %u: all ranks must bring the same",
                           v, m->number, tu__type_string(a), first->name, tu__type_string(b), other->name, r);
        }
    for (uint32_t r = 1; r < m->ranks; r++)
        for (uint32_t q = 0; q < r; q++)
            if (m->members[q].part == m->members[r].part)
                return tu_fail(TU_INVALID,
                               "ranks %u and %u of collective %" PRId64
                               " are both on device '%s': each needs a device of its own",
                               q, r, m->number, unit->devices[m->members[r].part]);
    return TU_OK;
}

/* Fails if a node has a rank that the collective does not have. The list is sorted, so the last node has the
 * highest. */
static tu_status check_all_invited(const tu__unit *unit, const invitation *list, uint32_t count,
                                   const tu__collective *m) {
    const invitation *last = &list[count - 1];
    if (last->rank < m->ranks) return TU_OK;
    return tu_fail(TU_INVALID,
                   "all_reduce '%s' says that collective %" PRId64 " has %" PRId64
                   " ranks, another one says %u",
                   unit->graph->nodes[last->node]->name, m->number, last->ranks, m->ranks);
}

/* ---- Finding ---- */

static tu_status reserve_collective(tu__collectives *all, tu__collective *m) {
    m->members = tu__arena_alloc(&all->arena, m->ranks * sizeof *m->members);
    if (!m->members) return TU_NO_MEMORY;
    for (uint32_t r = 0; r < m->ranks; r++) {
        uint32_t *numbers = tu__arena_alloc(&all->arena, 3 * (size_t)m->value_count * sizeof *numbers);
        if (!numbers) return TU_NO_MEMORY;
        m->members[r] = (tu__member){
            .nodes = numbers, .in = numbers + m->value_count, .out = numbers + 2 * (size_t)m->value_count};
    }
    m->combinations = tu__arena_alloc(&all->arena, TU_DTYPE_COUNT * sizeof *m->combinations);
    m->segments = tu__arena_alloc(&all->arena, m->value_count * sizeof *m->segments);
    m->order = tu__arena_alloc(&all->arena, m->value_count * sizeof *m->order);
    m->addresses = tu__arena_alloc(&all->arena, 2 * (size_t)m->value_count * m->ranks * sizeof(void *));
    return m->combinations && m->segments && m->order && m->addresses ? TU_OK : TU_NO_MEMORY;
}

/* Sorts the values by element type, then by node, and creates a combination for each type. */
static void sort_values(const tu_graph *g, tu__collective *m) {
    uint32_t sorted = 0;
    for (int type = 0; type < TU_DTYPE_COUNT; type++) {
        uint32_t first = sorted;
        for (uint32_t v = 0; v < m->value_count; v++)
            if ((int)g->nodes[m->members[0].nodes[v]]->outputs[0].dtype == type) m->order[sorted++] = v;
        if (sorted == first) continue;
        m->combinations[m->combination_count++] = (tu_combination){.struct_size = sizeof(tu_combination),
                                                                   .dtype = (tu_dtype)type,
                                                                   .ranks = m->ranks,
                                                                   .segment_count = sorted - first,
                                                                   .segments = m->segments + first};
    }
}

/* Creates the collective of `count` all_reduce nodes with one number. */
static tu_status convene(const tu__unit *unit, const invitation *list, uint32_t count, tu__collectives *all,
                         tu__collective *m) {
    const tu_graph *g = unit->graph;
    *m = (tu__collective){.number = list[0].number, .ranks = (uint32_t)list[0].ranks};
    while (m->value_count < count && list[m->value_count].rank == 0) m->value_count++;
    if (list[0].ranks > TU__MAX_DEVICES)
        return tu_fail(TU_INVALID,
                       "collective %" PRId64 " has %" PRId64 " ranks: a program has at most %d devices",
                       m->number, list[0].ranks, TU__MAX_DEVICES);
    TU_TRY(reserve_collective(all, m));
    for (uint32_t r = 0, at = 0; r < m->ranks; r++) {
        uint32_t own = 0;
        while (at + own < count && list[at + own].rank == r) own++;
        TU_TRY(check_rank(unit, at < count ? list + at : list + count - 1, own, r, m->ranks,
                          &m->members[r].part));
        if (own != m->value_count)
            return tu_fail(TU_INVALID,
                           "rank %u brings %u values to collective %" PRId64
                           ", rank 0 brings %u: all ranks must bring "
                           "the same",
                           r, own, m->number, m->value_count);
        for (uint32_t v = 0; v < own; v++) m->members[r].nodes[v] = list[at + v].node;
        at += own;
    }
    TU_TRY(check_all_invited(unit, list, count, m));
    TU_TRY(check_lists(unit, m));
    for (uint32_t v = 0; v < m->value_count; v++)
        m->bytes += tu_type_bytes(g->nodes[m->members[0].nodes[v]]->outputs[0]);
    sort_values(g, m);
    return TU_OK;
}

static tu_status convene_all(const tu__unit *unit, invitation *list, uint32_t count, tu__collectives *all) {
    qsort(list, count, sizeof *list, compare_invitations);
    all->list = tu__arena_alloc(&all->arena, count * sizeof *all->list);
    if (!all->list) return TU_NO_MEMORY;
    for (uint32_t at = 0, own; at < count; at += own) {
        for (own = 1; at + own < count && list[at + own].number == list[at].number;) own++;
        TU_TRY(convene(unit, list + at, own, all, &all->list[all->count]));
        all->count++;
    }
    return TU_OK;
}

tu_status tu__collectives_find(const tu__unit *unit, tu__collectives *collectives) {
    *collectives = (tu__collectives){.arena = {.purpose = "a program's collectives"}};
    uint32_t count = gather(unit->graph, NULL);
    if (!count) return TU_OK;
    invitation *list = tu__alloc_array(count, sizeof *list, "a program's collectives");
    if (!list) return TU_NO_MEMORY;
    gather(unit->graph, list);
    tu_status status = convene_all(unit, list, count, collectives);
    tu__free(list);
    return status;
}

void tu__collectives_end(tu__collectives *collectives) {
    tu__arena_free(&collectives->arena);
    *collectives = (tu__collectives){0};
}

/* ---- Levels ---- */

static bool raise(uint32_t *level, uint32_t to) {
    if (to <= *level) return false;
    *level = to;
    return true;
}

/* The result of a copy or collective already has a level one above its source's. */
static bool is_brought(const tu__node *node) {
    return node->op->code == TU__OP_COPY || node->op->code == TU__OP_ALL_REDUCE;
}

/* Raises the levels of all nodes, in one pass in the order of nodes. */
static void sweep(const tu_graph *g, uint32_t *level) {
    for (uint32_t id = 0; id < g->node_count; id++) {
        const tu__node *node = g->nodes[id];
        for (uint32_t i = 0; i < node->input_count; i++)
            raise(&level[id], level[node->inputs[i].node] + is_brought(node));
        for (uint32_t i = 0; i < node->after_count; i++)
            raise(&level[id], level[node->after[i]] + !is_brought(g->nodes[node->after[i]]));
    }
}

/* Sets all nodes of a collective to the highest level among them. True if any level changed. */
static bool level_collective(tu__collective *m, uint32_t *level) {
    bool rose = false;
    for (uint32_t r = 0; r < m->ranks; r++)
        for (uint32_t v = 0; v < m->value_count; v++) rose |= raise(&m->level, level[m->members[r].nodes[v]]);
    for (uint32_t r = 0; r < m->ranks; r++)
        for (uint32_t v = 0; v < m->value_count; v++) rose |= raise(&level[m->members[r].nodes[v]], m->level);
    return rose;
}

static int compare_collectives(const void *left, const void *right) {
    const tu__collective *a = left, *b = right;
    if (a->level != b->level) return a->level < b->level ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

/* Repeats until no level changes. Every round finds the final level of at least one more collective, unless they
 * depend on each other. */
static tu_status settle(const tu_graph *g, tu__collectives *all, uint32_t *level) {
    for (uint32_t sweeps = 0;; sweeps++) {
        bool rose = false;
        sweep(g, level);
        for (uint32_t i = 0; i < all->count; i++) rose |= level_collective(&all->list[i], level);
        if (!rose) return TU_OK;
        if (sweeps > all->count + 1) break;
    }
    return tu_fail(
        TU_INVALID,
        "the program's collectives wait for each other: what a rank brings to one hangs on its result");
}

/* True if the kernel of `reader` can compute `node` on the fly, element by element. */
static bool takes_in(const tu__node *reader, const tu__node *node) {
    if (reader->op->code == TU__OP_SUM) return true;
    return (reader->op->traits & TU__POINTWISE) &&
           tu_shape_equal(reader->outputs[0].shape, node->outputs[0].shape);
}

/* Updates `lowest`: per node, the lowest level of its readers; 0 if one of them cannot fuse it. */
static void find_lowest_readers(const tu_graph *g, const uint32_t *level, uint32_t id, uint32_t *lowest) {
    const tu__node *reader = g->nodes[id];
    for (uint32_t i = 0; i < reader->input_count; i++) {
        uint32_t from = reader->inputs[i].node;
        uint32_t its = takes_in(reader, g->nodes[from]) ? level[id] : 0;
        if (its < lowest[from]) lowest[from] = its;
    }
    for (uint32_t i = 0; i < reader->after_count; i++) lowest[reader->after[i]] = 0;
}

/* Raises pointwise nodes to the level of their readers if only pointwise nodes of higher levels read them. A kernel
 * does not contain nodes of different levels, so such a node would otherwise be written to memory and read again.
 * Example: momentum times its factor, which does not depend on the all-reduced gradients. */
static tu_status join_readers(const tu_graph *g, uint32_t *level) {
    uint32_t *lowest = tu__alloc_array(g->node_count, sizeof *lowest, "a part");
    if (!lowest) return TU_NO_MEMORY;
    for (uint32_t id = 0; id < g->node_count; id++) lowest[id] = UINT32_MAX;
    for (uint32_t id = g->node_count; id-- > 0;) { /* readers have higher ids than the nodes they read */
        bool waits = (g->nodes[id]->op->traits & TU__POINTWISE) && lowest[id] != UINT32_MAX;
        if (waits) raise(&level[id], lowest[id]);
        find_lowest_readers(g, level, id, lowest);
    }
    tu__free(lowest);
    return TU_OK;
}

tu_status tu__find_levels(const tu_graph *graph, tu__collectives *collectives, uint32_t **levels) {
    *levels = tu__alloc_array(graph->node_count, sizeof **levels, "a part");
    if (!*levels) return TU_NO_MEMORY;
    tu_status status = settle(graph, collectives, *levels);
    if (status == TU_OK) status = join_readers(graph, *levels);
    if (status == TU_OK && collectives->count)
        qsort(collectives->list, collectives->count, sizeof *collectives->list, compare_collectives);
    return status;
}

/* ---- Buffers and paths ---- */

static bool all_on_host(const tu__collective *m, const tu__partition *parts) {
    for (uint32_t r = 0; r < m->ranks; r++)
        if (!parts[m->members[r].part].device->api->host_memory) return false;
    return true;
}

static bool all_on_one_card(const tu__collective *m, const tu__partition *parts) {
    const tu__partition *first = &parts[m->members[0].part];
    for (uint32_t r = 0; r < m->ranks; r++)
        if (!tu__partition_is_with(first, &parts[m->members[r].part])) return false;
    return first->device->api->combine != NULL;
}

/* True if every rank can write its result to every other. */
static bool all_reach_each_other(const tu__collective *m, const tu__partition *parts) {
    for (uint32_t r = 0; r < m->ranks; r++)
        for (uint32_t q = 0; q < m->ranks; q++) {
            const tu__partition *from = &parts[m->members[r].part], *to = &parts[m->members[q].part];
            if (!from->device->api->combine) return false;
            if (!tu__partition_is_with(from, to) && !(from->reaches >> m->members[q].part & 1)) return false;
        }
    return true;
}

static void choose_way(tu__collective *m, const tu__partition *parts) {
    m->way = all_on_host(m, parts)            ? TU__COLLECTIVE_ON_HOST
             : all_on_one_card(m, parts)      ? TU__COLLECTIVE_ON_CARD
             : all_reach_each_other(m, parts) ? TU__COLLECTIVE_BETWEEN_CARDS
                                              : TU__COLLECTIVE_THROUGH_HOST;
}

static tu_status reserve_memberships(const tu__collectives *all, tu__partition *part, size_t index) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < all->count; i++)
        for (uint32_t r = 0; r < all->list[i].ranks; r++) count += all->list[i].members[r].part == index;
    part->collectives = tu__alloc_array(count, sizeof *part->collectives, "a part");
    return part->collectives ? TU_OK : TU_NO_MEMORY;
}

tu_status tu__collectives_locate(tu__collectives *all, const tu_graph *graph, tu__partition *parts,
                                 size_t count, uint32_t *events) {
    for (size_t i = 0; i < count; i++) TU_TRY(reserve_memberships(all, &parts[i], i));
    for (uint32_t i = 0; i < all->count; i++) choose_way(&all->list[i], parts);
    for (uint32_t i = 0; i < all->count; i++)
        for (uint32_t r = 0; r < all->list[i].ranks; r++) {
            tu__collective *m = &all->list[i];
            tu__member *a = &m->members[r];
            tu__partition *part = &parts[a->part];
            a->membership = part->collective_count++;
            part->collectives[a->membership] = (tu__membership){.collective = m, .rank = r};
            a->brought = (*events)++;
            a->done = (*events)++;
            for (uint32_t v = 0; v < m->value_count; v++) {
                a->in[v] = tu__partition_buffer(part, graph->nodes[a->nodes[v]]->inputs[0]);
                a->out[v] = tu__partition_buffer(part, (tu__edge){a->nodes[v], 0});
            }
        }
    return TU_OK;
}

static tu_status equip(const tu__collective *m, tu__member *a, tu__partition *part) {
    const tu_device_api *api = part->device->api;
    if (api->event_new && api->event_synchronize && !a->recorded)
        TU_TRY(api->event_new(part->device->instance, &a->recorded));
    if (m->way != TU__COLLECTIVE_THROUGH_HOST || part->staged_ranks >= m->ranks) return TU_OK;
    tu__free_aligned(part->staging);
    part->staged_ranks = 0;
    part->staging = tu__alloc_aligned((size_t)m->ranks * TU__STAGED_BYTES, "collectives through the host");
    if (!part->staging) return TU_NO_MEMORY;
    part->staged_ranks = m->ranks;
    return TU_OK;
}

tu_status tu__collectives_equip(tu__collectives *all, tu__partition *parts) {
    for (uint32_t i = 0; i < all->count; i++)
        for (uint32_t r = 0; r < all->list[i].ranks; r++) {
            tu__member *a = &all->list[i].members[r];
            TU_TRY(equip(&all->list[i], a, &parts[a->part]));
        }
    return TU_OK;
}

void tu__collectives_strip(tu__collectives *all, tu__partition *parts) {
    for (uint32_t i = 0; i < all->count; i++)
        for (uint32_t r = 0; r < all->list[i].ranks; r++) {
            tu__member *a = &all->list[i].members[r];
            tu__partition *part = &parts[a->part];
            if (a->recorded) part->device->api->event_free(part->device->instance, a->recorded);
            tu__free_aligned(part->staging);
            a->recorded = part->staging = NULL;
        }
}

void tu__collectives_bind(tu__collectives *all, const tu_graph *graph, const tu__partition *parts) {
    for (uint32_t i = 0; i < all->count; i++) {
        tu__collective *m = &all->list[i];
        void **next = m->addresses;
        for (uint32_t k = 0; k < m->value_count; k++) {
            uint32_t v = m->order[k];
            void **in = next, **out = next + m->ranks;
            next += 2 * (size_t)m->ranks;
            for (uint32_t r = 0; r < m->ranks; r++) {
                const tu__member *a = &m->members[r];
                in[r] = parts[a->part].addresses[a->in[v]];
                out[r] = parts[a->part].addresses[a->out[v]];
            }
            tu_shape shape = graph->nodes[m->members[0].nodes[v]]->outputs[0].shape;
            m->segments[k] = (tu_combine_segment){
                .in = (const void *const *)in, .out = out, .count = (size_t)tu_shape_elements(shape)};
        }
    }
}
