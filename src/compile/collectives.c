/* Compiles collectives: finds their ranks, values and levels. Execution: run/perform_collective.c. */
#include "compile/collectives.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/text.h"

typedef struct collective_node { /* a collective node of the graph */
    tu__collective_info info;
    uint32_t node;
} collective_node;

static int compare_collective_nodes(const void *left, const void *right) {
    const collective_node *a = left, *b = right;
    if (a->info.collective != b->info.collective) return a->info.collective < b->info.collective ? -1 : 1;
    if (a->info.rank != b->info.rank) return a->info.rank < b->info.rank ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

static uint32_t list_collective_nodes(const tu_graph *g, collective_node *list) {
    uint32_t count = 0;
    for (uint32_t id = 0; id < g->node_count; id++) {
        if (!(g->nodes[id]->op->traits & TU__COLLECTIVE)) continue;
        if (list) list[count] = (collective_node){tu__collective_of(g->nodes[id]), id};
        count++;
    }
    return count;
}

/* ---- Checking ---- */

/* Fails if a node differs from the collective, which has the attributes of its first node. */
static tu_status check_same_collective(const tu_graph *g, const collective_node *n, const tu__collective *c) {
    const char *operation = g->nodes[n->node]->op->name, *name = g->nodes[n->node]->name;
    if (n->info.kind != c->kind)
        return tu_fail(TU_INVALID,
                       "%s '%s' is in collective %" PRId64
                       ", which also has a node of operation %s: a collective has one operation",
                       operation, name, c->id, tu__collective_name(c->kind));
    if (n->info.ranks != c->all_ranks)
        return tu_fail(TU_INVALID,
                       "%s '%s' declares %" PRId64 " ranks for collective %" PRId64
                       ", but another %s declares %u",
                       operation, name, n->info.ranks, c->id, operation, c->all_ranks);
    if (n->info.root != c->root)
        return tu_fail(TU_INVALID,
                       "%s '%s' declares root %" PRId64 " for collective %" PRId64
                       ", but another %s declares root %u",
                       operation, name, n->info.root, c->id, operation, c->root);
    return TU_OK;
}

/* Checks the nodes of one rank of a collective, and sets `*partition` to the rank's partition. `list`: the rank's
 * `count` nodes. */
static tu_status check_rank(const tu__unit *unit, const collective_node *list, uint32_t count, int64_t rank,
                            const tu__collective *c, uint32_t *partition) {
    const tu_graph *g = unit->graph;
    if (!count || list[0].info.rank != rank)
        return tu_fail(TU_INVALID,
                       "rank %" PRId64 " of %u passes no value to collective %" PRId64
                       " (%s): all ranks must pass the same number of values",
                       rank, c->all_ranks, c->id, tu__collective_name(c->kind));
    *partition = tu__partition_of(unit, list[0].node);
    for (uint32_t i = 0; i < count; i++) {
        TU_TRY(check_same_collective(g, &list[i], c));
        if (tu__partition_of(unit, list[i].node) != *partition)
            return tu_fail(
                TU_INVALID,
                "rank %" PRId64 " of collective %" PRId64
                " is on device '%s' ('%s') and on another one ('%s'): a rank must be on one device",
                rank, c->id, unit->devices[*partition], g->nodes[list[0].node]->name,
                g->nodes[list[i].node]->name);
    }
    return TU_OK;
}

static tu_status check_same_values(const tu__unit *unit, const tu__collective *c) {
    const tu_graph *g = unit->graph;
    for (uint32_t r = 1; r < c->ranks; r++)
        for (uint32_t v = 0; v < c->value_count; v++) {
            const tu__node *first = g->nodes[c->members[0].nodes[v]],
                           *other = g->nodes[c->members[r].nodes[v]];
            tu_type a = tu_edge_type(g, first->inputs[0]), b = tu_edge_type(g, other->inputs[0]);
            if (a.dtype == b.dtype && tu_shape_equal(a.shape, b.shape)) continue;
            return tu_fail(
                TU_INVALID,
                "value %u of collective %" PRId64
                " is %s (%s '%s') on rank 0, but %s ('%s') on rank %u: all ranks must pass the same types",
                v, c->id, tu__type_string(a), first->op->name, first->name, tu__type_string(b), other->name,
                r);
        }
    for (uint32_t r = 1; r < c->ranks; r++)
        for (uint32_t q = 0; q < r; q++)
            if (c->members[q].partition == c->members[r].partition)
                return tu_fail(TU_INVALID,
                               "ranks %u and %u of collective %" PRId64
                               " are both on device '%s': each rank needs its own device",
                               q, r, c->id, unit->devices[c->members[r].partition]);
    return TU_OK;
}

/* Fails if a node has a rank that the collective does not have. The list is sorted, so the last node has the
 * highest. */
static tu_status check_last_rank(const tu__unit *unit, const collective_node *list, uint32_t count,
                                 const tu__collective *c) {
    const collective_node *last = &list[count - 1];
    return last->info.rank < c->first_rank + c->ranks ? TU_OK : check_same_collective(unit->graph, last, c);
}

/* ---- Finding ---- */

static tu_status allocate_collective(tu__collectives *collectives, tu__collective *c) {
    c->members = tu__arena_alloc(&collectives->arena, c->ranks * sizeof *c->members);
    if (!c->members) return TU_NO_MEMORY;
    for (uint32_t r = 0; r < c->ranks; r++) {
        uint32_t *storage =
            tu__arena_alloc(&collectives->arena, 3 * (size_t)c->value_count * sizeof *storage);
        if (!storage) return TU_NO_MEMORY;
        c->members[r] = (tu__member){
            .nodes = storage, .in = storage + c->value_count, .out = storage + 2 * (size_t)c->value_count};
    }
    return TU_OK;
}

/* Sets the ranks of a collective: all of them, or, if it spans processes, those of this process. */
static tu_status find_ranks(const collective_node *list, uint32_t count, bool spans_processes,
                            tu__collective *c) {
    const tu__collective_info *first = &list[0].info, *last = &list[count - 1].info;
    int64_t ranks = spans_processes ? last->rank - first->rank + 1 : first->ranks;
    if (ranks > TU__MAX_DEVICES)
        return tu_fail(TU_INVALID,
                       "collective %" PRId64 " has %" PRId64 " ranks: a program has at most %d devices",
                       first->collective, ranks, TU__MAX_DEVICES);
    c->ranks = (uint32_t)ranks;
    c->first_rank = spans_processes ? (uint32_t)first->rank : 0;
    c->all_ranks = (uint32_t)first->ranks;
    return TU_OK;
}

static uint32_t count_values(const collective_node *list, uint32_t count, int64_t rank) {
    uint32_t values = 0;
    while (values < count && list[values].info.rank == rank) values++;
    return values;
}

static tu_status add_members(const tu__unit *unit, const collective_node *list, uint32_t count,
                             tu__collective *c) {
    for (uint32_t r = 0, first = 0; r < c->ranks; r++) {
        uint32_t rank_values = count_values(list + first, count - first, c->first_rank + r);
        TU_TRY(check_rank(unit, first < count ? list + first : list + count - 1, rank_values,
                          c->first_rank + r, c, &c->members[r].partition));
        if (rank_values != c->value_count)
            return tu_fail(TU_INVALID,
                           "rank %u passes %u values to collective %" PRId64
                           ", rank %u passes %u: all ranks must pass the same number of values",
                           c->first_rank + r, rank_values, c->id, c->first_rank, c->value_count);
        for (uint32_t v = 0; v < rank_values; v++) c->members[r].nodes[v] = list[first + v].node;
        first += rank_values;
    }
    return check_last_rank(unit, list, count, c);
}

/* Creates the collective of `count` nodes with the same attribute `collective`. */
static tu_status create_collective(const tu__unit *unit, const collective_node *list, uint32_t count,
                                   tu__collectives *collectives, tu__collective *c) {
    const tu_graph *g = unit->graph;
    const tu__collective_info *info = &list[0].info;
    *c = (tu__collective){.id = info->collective, .kind = info->kind, .root = (uint32_t)info->root};
    TU_TRY(find_ranks(list, count, collectives->span_processes, c));
    c->value_count = count_values(list, count, c->first_rank);
    TU_TRY(allocate_collective(collectives, c));
    TU_TRY(add_members(unit, list, count, c));
    TU_TRY(check_same_values(unit, c));
    for (uint32_t v = 0; v < c->value_count; v++)
        c->bytes += tu_type_bytes(tu_edge_type(g, g->nodes[c->members[0].nodes[v]]->inputs[0]));
    return TU_OK;
}

static tu_status create_collectives(const tu__unit *unit, collective_node *list, uint32_t count,
                                    tu__collectives *collectives) {
    qsort(list, count, sizeof *list, compare_collective_nodes);
    collectives->list = tu__arena_alloc(&collectives->arena, count * sizeof *collectives->list);
    if (!collectives->list) return TU_NO_MEMORY;
    for (uint32_t first = 0, node_count; first < count; first += node_count) {
        for (node_count = 1; first + node_count < count &&
                             list[first + node_count].info.collective == list[first].info.collective;)
            node_count++;
        TU_TRY(create_collective(unit, list + first, node_count, collectives,
                                 &collectives->list[collectives->count]));
        collectives->count++;
    }
    return TU_OK;
}

tu_status tu__collectives_find(const tu__unit *unit, tu__collectives *collectives) {
    *collectives = (tu__collectives){.span_processes = unit->replication.process_count > 0,
                                     .share_memory = unit->replication.processes_share_memory,
                                     .arena = {.purpose = "a program's collectives"}};
    uint32_t count = list_collective_nodes(unit->graph, NULL);
    if (!count) return TU_OK;
    collective_node *list = tu__alloc_array(count, sizeof *list, "a program's collectives");
    if (!list) return TU_NO_MEMORY;
    list_collective_nodes(unit->graph, list);
    tu_status status = create_collectives(unit, list, count, collectives);
    tu__free(list);
    return status;
}

void tu__collectives_free(tu__collectives *collectives) {
    tu__arena_free(&collectives->arena);
    *collectives = (tu__collectives){0};
}

/* ---- Unused values and results ---- */

bool tu__collective_needs_value(const tu__node *node, bool spans_processes) {
    const tu__collective_info info = tu__collective_of(node);
    return !spans_processes || info.kind != TU__BROADCAST || info.rank == info.root;
}

bool tu__collective_needs_result(const tu__node *node, bool spans_processes, bool is_read) {
    const tu__collective_info info = tu__collective_of(node);
    bool is_root = info.rank == info.root;
    return !spans_processes || is_read ||
           !(info.kind == TU__BROADCAST ? is_root : info.kind == TU__REDUCE && !is_root);
}

bool tu__collective_reads(const tu__collective *c, uint32_t rank, uint32_t value) {
    const tu__member *m = &c->members[rank];
    return c->kind != TU__BROADCAST || m->in[value] != m->out[value] || c->first_rank + rank == c->root;
}

bool tu__collective_writes(const tu__collective *c, uint32_t rank, uint32_t value) {
    const tu__member *m = &c->members[rank];
    bool is_root = c->first_rank + rank == c->root;
    if (m->in[value] != m->out[value]) return true;
    return c->kind == TU__BROADCAST ? !is_root : c->kind != TU__REDUCE || is_root;
}

/* ---- Levels ---- */

static bool raise_level(uint32_t *level, uint32_t to) {
    if (to <= *level) return false;
    *level = to;
    return true;
}

/* The level of a copy or a collective is one above its input's. */
static bool is_copy_or_collective(const tu__node *node) {
    return node->op->code == TU__OP_COPY || (node->op->traits & TU__COLLECTIVE);
}

/* Raises the levels of all nodes, in one pass in the order of nodes. */
static void raise_node_levels(const tu_graph *g, uint32_t *level) {
    for (uint32_t id = 0; id < g->node_count; id++) {
        const tu__node *node = g->nodes[id];
        for (uint32_t i = 0; i < node->input_count; i++)
            raise_level(&level[id], level[node->inputs[i].node] + is_copy_or_collective(node));
        for (uint32_t i = 0; i < node->after_count; i++)
            raise_level(&level[id], level[node->after[i]] + !is_copy_or_collective(g->nodes[node->after[i]]));
    }
}

/* Sets all nodes of a collective to the highest level among them. True if any level changed. */
static bool raise_collective_level(tu__collective *c, uint32_t *level) {
    bool changed = false;
    for (uint32_t r = 0; r < c->ranks; r++)
        for (uint32_t v = 0; v < c->value_count; v++)
            changed |= raise_level(&c->level, level[c->members[r].nodes[v]]);
    for (uint32_t r = 0; r < c->ranks; r++)
        for (uint32_t v = 0; v < c->value_count; v++)
            changed |= raise_level(&level[c->members[r].nodes[v]], c->level);
    return changed;
}

static int compare_collectives(const void *left, const void *right) {
    const tu__collective *a = left, *b = right;
    if (a->level != b->level) return a->level < b->level ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

/* Makes collectives run in the order of their ids, which is the same in all processes. Their levels alone depend on the
 * nodes of the local replicas. */
static bool raise_levels_by_id(tu__collectives *collectives) {
    bool changed = false;
    for (uint32_t i = 1; collectives->span_processes && i < collectives->count; i++)
        changed |= raise_level(&collectives->list[i].level, collectives->list[i - 1].level);
    return changed;
}

/* Repeats until no level changes. Every round finds the final level of at least one more collective, unless they
 * depend on each other. */
static tu_status propagate_levels(const tu_graph *g, tu__collectives *collectives, uint32_t *level) {
    for (uint32_t rounds = 0;; rounds++) {
        bool changed = false;
        raise_node_levels(g, level);
        for (uint32_t i = 0; i < collectives->count; i++)
            changed |= raise_collective_level(&collectives->list[i], level);
        changed |= raise_levels_by_id(collectives);
        if (!changed) return TU_OK;
        if (rounds > collectives->count + 1) break;
    }
    return tu_fail(
        TU_INVALID,
        "the program's collectives wait for each other: an input of a collective depends on the collective's own result");
}

/* True if the kernel of `reader` can compute `node` on the fly, element by element. */
static bool can_fuse(const tu__node *reader, const tu__node *node) {
    if (reader->op->code == TU__OP_SUM) return true;
    return (reader->op->traits & TU__POINTWISE) &&
           tu_shape_equal(reader->outputs[0].shape, node->outputs[0].shape);
}

/* Returns the level of assignments: if fetched values are broadcast, that of the last collective, so that no kernel
 * computes both a value for another process and the next value of a variable, which it then could not update in place;
 * otherwise 0. */
static uint32_t level_of_assignments(const tu__collectives *collectives) {
    bool broadcasts = false;
    uint32_t last = 0;
    for (uint32_t i = 0; i < collectives->count; i++) {
        broadcasts = broadcasts || collectives->list[i].kind == TU__BROADCAST;
        if (collectives->list[i].level > last) last = collectives->list[i].level;
    }
    return collectives->span_processes && broadcasts ? last : 0;
}

/* Updates `lowest`: per node, the lowest level of its readers; 0 if one of them cannot fuse it. */
static void update_lowest_readers(const tu_graph *g, const uint32_t *level, uint32_t assignments, uint32_t id,
                                  uint32_t *lowest) {
    const tu__node *reader = g->nodes[id];
    for (uint32_t i = 0; i < reader->input_count; i++) {
        uint32_t from = reader->inputs[i].node;
        uint32_t reader_level = can_fuse(reader, g->nodes[from])    ? level[id]
                                : reader->op->code == TU__OP_ASSIGN ? assignments
                                                                    : 0;
        if (reader_level < lowest[from]) lowest[from] = reader_level;
    }
    for (uint32_t i = 0; i < reader->after_count; i++) lowest[reader->after[i]] = 0;
}

/* Raises pointwise nodes to the level of their readers if only pointwise nodes of higher levels read them. A kernel
 * does not contain nodes of different levels, so such a node would otherwise be written to memory and read again.
 * Example: momentum times its factor, which does not depend on the all-reduced gradients. */
static tu_status raise_to_reader_levels(const tu_graph *g, uint32_t assignments, uint32_t *level) {
    uint32_t *lowest = tu__alloc_array(g->node_count, sizeof *lowest, "a partition");
    if (!lowest) return TU_NO_MEMORY;
    for (uint32_t id = 0; id < g->node_count; id++) lowest[id] = UINT32_MAX;
    for (uint32_t id = g->node_count; id-- > 0;) { /* readers have higher ids than the nodes they read */
        bool can_move_later = (g->nodes[id]->op->traits & TU__POINTWISE) && lowest[id] != UINT32_MAX;
        if (can_move_later) raise_level(&level[id], lowest[id]);
        update_lowest_readers(g, level, assignments, id, lowest);
    }
    tu__free(lowest);
    return TU_OK;
}

tu_status tu__find_levels(const tu_graph *graph, tu__collectives *collectives, uint32_t **levels) {
    *levels = tu__alloc_array(graph->node_count, sizeof **levels, "a partition");
    if (!*levels) return TU_NO_MEMORY;
    tu_status status = propagate_levels(graph, collectives, *levels);
    if (status == TU_OK) status = raise_to_reader_levels(graph, level_of_assignments(collectives), *levels);
    if (status == TU_OK && collectives->count)
        qsort(collectives->list, collectives->count, sizeof *collectives->list, compare_collectives);
    return status;
}

/* ---- Buffers and paths ---- */

static bool all_on_host(const tu__collective *c, const tu__partition *partitions) {
    for (uint32_t r = 0; r < c->ranks; r++)
        if (!partitions[c->members[r].partition].device->api->host_memory) return false;
    return true;
}

static bool all_on_one_gpu(const tu__collective *c, const tu__partition *partitions) {
    const tu__partition *first = &partitions[c->members[0].partition];
    for (uint32_t r = 0; r < c->ranks; r++)
        if (!tu__on_same_physical_device(first, &partitions[c->members[r].partition])) return false;
    return first->device->api->build_collective != NULL;
}

/* True if every rank can write its result to every other. */
static bool all_have_peer_access(const tu__collective *c, const tu__partition *partitions) {
    for (uint32_t r = 0; r < c->ranks; r++)
        for (uint32_t q = 0; q < c->ranks; q++) {
            const tu__partition *from = &partitions[c->members[r].partition],
                                *to = &partitions[c->members[q].partition];
            if (!from->device->api->build_collective) return false;
            if (!tu__on_same_physical_device(from, to) && !(from->peer_access >> c->members[q].partition & 1))
                return false;
        }
    return true;
}

static void choose_path(const tu__collectives *collectives, tu__collective *c,
                        const tu__partition *partitions) {
    bool in_shared_memory = collectives->share_memory && all_on_host(c, partitions);
    c->path = in_shared_memory                      ? TU__COLLECTIVE_IN_SHARED_MEMORY
              : collectives->span_processes         ? TU__COLLECTIVE_OVER_PROCESSES
              : all_on_host(c, partitions)          ? TU__COLLECTIVE_ON_HOST
              : all_on_one_gpu(c, partitions)       ? TU__COLLECTIVE_ON_ONE_GPU
              : all_have_peer_access(c, partitions) ? TU__COLLECTIVE_PEER_TO_PEER
                                                    : TU__COLLECTIVE_THROUGH_HOST;
}

static tu_status allocate_memberships(const tu__collectives *collectives, tu__partition *partition,
                                      size_t index) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < collectives->count; i++)
        for (uint32_t r = 0; r < collectives->list[i].ranks; r++)
            count += collectives->list[i].members[r].partition == index;
    partition->collectives = tu__alloc_array(count, sizeof *partition->collectives, "a partition");
    return partition->collectives ? TU_OK : TU_NO_MEMORY;
}

static void assign_value_buffers(const tu__collectives *collectives, const tu_graph *graph,
                                 const tu__partition *partition, const tu__member *member, uint32_t value) {
    const tu__node *node = graph->nodes[member->nodes[value]];
    uint32_t out = tu__partition_buffer(partition, (tu__edge){node->id, 0}), in = out;
    if (tu__collective_needs_value(node, collectives->span_processes))
        in = tu__partition_buffer(partition, node->inputs[0]);
    member->in[value] = in;
    member->out[value] = out == TU_NO_NODE ? in : out;
}

tu_status tu__collectives_assign_buffers(tu__collectives *collectives, const tu_graph *graph,
                                         tu__partition *partitions, size_t count) {
    for (size_t i = 0; i < count; i++) TU_TRY(allocate_memberships(collectives, &partitions[i], i));
    for (uint32_t i = 0; i < collectives->count; i++) {
        collectives->list[i].index = i;
        choose_path(collectives, &collectives->list[i], partitions);
    }
    for (uint32_t i = 0; i < collectives->count; i++)
        for (uint32_t r = 0; r < collectives->list[i].ranks; r++) {
            tu__collective *c = &collectives->list[i];
            tu__member *member = &c->members[r];
            tu__partition *partition = &partitions[member->partition];
            member->membership = partition->collective_count++;
            partition->collectives[member->membership] = (tu__membership){.collective = c, .rank = r};
            for (uint32_t v = 0; v < c->value_count; v++)
                assign_value_buffers(collectives, graph, partition, member, v);
        }
    return TU_OK;
}

uint32_t tu__collectives_number_events(tu__collectives *collectives, uint32_t first) {
    for (uint32_t i = 0; i < collectives->count; i++)
        for (uint32_t r = 0; r < collectives->list[i].ranks; r++) {
            collectives->list[i].members[r].posted = first++;
            collectives->list[i].members[r].done = first++;
        }
    return first;
}
