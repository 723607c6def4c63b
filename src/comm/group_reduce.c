/* Collectives over the processes of a group, in pieces that fit the staging buffers.
 *
 * Processes of one node (process_group.h: those of a host, if the order of additions permits) share memory. For every
 * piece of a sum, each process
 *
 *     1. adds the values of its local ranks into its staging buffer,
 *     2. adds its slice of all staging buffers of the node, into its own,
 *     3. exchanges that slice with the processes of the other nodes that have the same slice: each of them adds a part
 *        of it, and sends the result to the others, or only to the root's node,
 *     4. copies all slices of the piece to its local ranks, if they get the sum.
 *
 * In a broadcast the root's staging buffer has the piece. The processes of its node copy it from there, and each sends
 * its slice to the other nodes: a part to each node, which then send their parts to each other, so that the root's host
 * sends as little as possible.
 *
 * Steps are separated by counters in shared memory. There are two staging buffers per process, so that a process may
 * begin the next piece while others still read this one. */
#include "comm/group_reduce.h"

#include <string.h>

#include "comm/comm.h"

enum { LINE = 64 };

/* The values of one element type in a part of a collective. */
typedef struct part_work {
    const tu__group_work *work;
    uint32_t index; /* of the part */
    /* The rows of one rank are reduced to it in a reduce-scatter, and broadcast from it in an all-gather. */
    tu__collective_kind kind;   /* all-reduce, reduce or broadcast */
    uint32_t root;              /* of the last two: a process */
    const tu_combination *what; /* not divided into slices */
} part_work;

typedef struct piece {
    tu_process_group *group;
    const part_work *part;
    size_t first_line, lines; /* of all values */
    uint64_t number;
} piece;

/* ---- Shared memory ---- */

static tu__host_counters *counters_of(const tu_process_group *g, uint32_t process) {
    return g->areas[process];
}

static char *staging_of(const piece *p, uint32_t process) {
    return (char *)p->group->areas[process] + sizeof(tu__host_counters) +
           p->number % TU__STAGING_BUFFERS * TU__PIECE_BYTES;
}

typedef struct counter_wait {
    const tu_process_group *group;
    uint32_t first, end; /* processes of the node */
    size_t offset;       /* of the counter in tu__host_counters */
    uint64_t at_least;
} counter_wait;

static bool have_all_reached(void *context) {
    const counter_wait *w = context;
    for (uint32_t i = w->first; i < w->end; i++) {
        const char *counters = (const char *)counters_of(w->group, i);
        const atomic_uint_least64_t *counter = (const void *)(counters + w->offset);
        if (atomic_load_explicit(counter, memory_order_acquire) < w->at_least) return false;
    }
    return true;
}

static tu_status wait_for_node(tu_process_group *g, size_t offset, uint64_t at_least) {
    counter_wait w = {g, 0, g->node_size, offset, at_least};
    return tu__group_wait(g, have_all_reached, &w);
}

static tu_status wait_for_process(tu_process_group *g, uint32_t process, size_t offset, uint64_t at_least) {
    counter_wait w = {g, process, process + 1, offset, at_least};
    return tu__group_wait(g, have_all_reached, &w);
}

static void reach(atomic_uint_least64_t *counter, uint64_t number) {
    atomic_store_explicit(counter, number, memory_order_release);
}

/* ---- The root ---- */

static uint32_t root_node(const piece *p) {
    return p->part->root / p->group->node_size;
}

static uint32_t root_in_node(const piece *p) {
    return p->part->root % p->group->node_size;
}

static bool is_broadcast(const piece *p) {
    return p->part->kind == TU__BROADCAST;
}

static bool is_root(const piece *p) {
    return p->part->root == p->group->info.rank;
}

/* True if all processes of this node get the piece from the root's staging buffer. */
static bool is_near_source(const piece *p) {
    return is_broadcast(p) && root_node(p) == p->group->node;
}

/* ---- Slices ---- */

/* Returns the first line of part `index` of `count` equal parts. */
static size_t first_of_part(size_t lines, uint32_t count, uint32_t index) {
    size_t rest = lines % count;
    return lines / count * index + (index < rest ? index : rest);
}

/* ---- Between nodes ---- */

typedef struct exchange {
    const piece *p;
    char *slice; /* in this process's staging buffer, or the root's of a broadcast */
    size_t lines;
    tu__transfer *transfers[2 * TU__MAX_PROCESSES];
    size_t count;
} exchange;

static size_t part_offset(const exchange *x, uint32_t node) {
    return LINE * first_of_part(x->lines, x->p->group->node_count, node);
}

static size_t part_bytes(const exchange *x, uint32_t node) {
    return part_offset(x, node + 1) - part_offset(x, node);
}

/* The process of another node that has the same slice. */
static uint32_t rank_in_node(const tu_process_group *g, uint32_t node) {
    return node * g->node_size + g->node_rank;
}

enum { TAG_PARTS = 1, TAG_SUMS = 2 };

static tu_status begin_send(exchange *x, uint32_t node, int tag, const void *data, size_t bytes) {
    const tu_process_group *g = x->p->group;
    if (!bytes) return TU_OK;
    return g->api->send(g->transport, rank_in_node(g, node), tag, data, bytes, &x->transfers[x->count++]);
}

static tu_status begin_receive(exchange *x, uint32_t node, int tag, void *data, size_t bytes) {
    const tu_process_group *g = x->p->group;
    if (!bytes) return TU_OK;
    return g->api->receive(g->transport, rank_in_node(g, node), tag, data, bytes, &x->transfers[x->count++]);
}

static tu_status finish(exchange *x) {
    size_t count = x->count;
    x->count = 0;
    return tu__group_wait_transfers(x->p->group, count, x->transfers);
}

/* Receives this node's part of the slice from all nodes, and adds them. */
static tu_status reduce_scatter(exchange *x) {
    tu_process_group *g = x->p->group;
    const tu_combination *what = x->p->part->what;
    const void *in[TU__MAX_PROCESSES];
    size_t own = part_bytes(x, g->node);
    char *received = g->receive_buffer;
    for (uint32_t node = 0; node < g->node_count; node++) {
        in[node] = node == g->node ? x->slice + part_offset(x, node) : received;
        if (node == g->node) continue;
        TU_TRY(begin_receive(x, node, TAG_PARTS, received, own));
        received += own;
        TU_TRY(begin_send(x, node, TAG_PARTS, x->slice + part_offset(x, node), part_bytes(x, node)));
    }
    TU_TRY(finish(x));
    tu__local_add(what->dtype, g->node_count, in, own / tu_dtype_size(what->dtype),
                  x->slice + part_offset(x, g->node));
    return TU_OK;
}

/* The root's node sends every other node its part of the slice. */
static tu_status scatter(exchange *x) {
    const tu_process_group *g = x->p->group;
    uint32_t root = root_node(x->p);
    if (g->node != root)
        TU_TRY(begin_receive(x, root, TAG_PARTS, x->slice + part_offset(x, g->node), part_bytes(x, g->node)));
    for (uint32_t node = 0; node < g->node_count && g->node == root; node++)
        if (node != root)
            TU_TRY(begin_send(x, node, TAG_PARTS, x->slice + part_offset(x, node), part_bytes(x, node)));
    return finish(x);
}

/* True if a node gets the parts of the slice that other nodes have. */
static bool gathers_parts(const piece *p, uint32_t node) {
    if (p->part->kind == TU__ALL_REDUCE) return true;
    return is_broadcast(p) ? node != root_node(p) : node == root_node(p);
}

/* Every node sends its part of the slice to the nodes that gather them. */
static tu_status gather(exchange *x) {
    const tu_process_group *g = x->p->group;
    for (uint32_t node = 0; node < g->node_count; node++) {
        if (node == g->node) continue;
        if (gathers_parts(x->p, g->node))
            TU_TRY(begin_receive(x, node, TAG_SUMS, x->slice + part_offset(x, node), part_bytes(x, node)));
        if (gathers_parts(x->p, node))
            TU_TRY(begin_send(x, node, TAG_SUMS, x->slice + part_offset(x, g->node), part_bytes(x, g->node)));
    }
    return finish(x);
}

/* ---- A piece ---- */

/* The processes of the node that have the result: each its slice, or one all of them. */
static char *result_of(const piece *p, size_t line, size_t *end) {
    const tu_process_group *g = p->group;
    uint32_t owner = 0;
    *end = p->lines;
    if (is_near_source(p)) return staging_of(p, root_in_node(p)) + line * LINE;
    while (first_of_part(p->lines, g->node_size, owner + 1) <= line) owner++;
    *end = first_of_part(p->lines, g->node_size, owner + 1);
    return staging_of(p, owner) + line * LINE;
}

/* Adds the values of the local ranks into the staging buffer, or copies the result from the staging buffers to them. */
static tu_status for_each_range(const piece *p, bool is_load) {
    const tu__group_work *w = p->part->work;
    const tu_combination *what = p->part->what;
    size_t size = tu_dtype_size(what->dtype), line = 0, end = p->lines;
    tu__segment_range range;
    tu__line_iterator iterator = tu__lines_begin(what, p->first_line, p->lines);
    while (line < p->lines) {
        /* A slice ends at a line, so a range of the result is in one staging buffer. */
        char *staging = is_load ? staging_of(p, p->group->node_rank) + line * LINE : result_of(p, line, &end);
        if (!tu__lines_next(&iterator, (end - line) * (LINE / size), &range)) break;
        TU_TRY(is_load ? w->load(w->context, p->part->index, what, &range, staging)
                       : w->store(w->context, p->part->index, what, &range, staging));
        line += (range.count * size + LINE - 1) / LINE;
    }
    return TU_OK;
}

/* Loads this process's values. A process without any contributes zeros to a sum. */
static tu_status load_piece(const piece *p) {
    if (is_broadcast(p) && !is_root(p)) return TU_OK;
    if (p->part->what->in_count) return for_each_range(p, true);
    memset(staging_of(p, p->group->node_rank), 0, p->lines * LINE);
    return TU_OK;
}

/* The last line of a value may be partly unused; its bytes are added too, so they must not be signalling values. They
 * never leave the staging buffer. */
static void add_slice(const piece *p, char *slice, size_t offset, size_t bytes) {
    const tu_process_group *g = p->group;
    const tu_combination *what = p->part->what;
    const void *in[TU__MAX_PROCESSES];
    for (uint32_t i = 0; i < g->node_size; i++) in[i] = staging_of(p, i) + offset;
    tu__local_add(what->dtype, g->node_size, in, bytes / tu_dtype_size(what->dtype), slice);
}

/* Adds, or sends, this process's slice of the piece. */
static tu_status exchange_slice(const piece *p) {
    const tu_process_group *g = p->group;
    size_t first = first_of_part(p->lines, g->node_size, g->node_rank),
           lines = first_of_part(p->lines, g->node_size, g->node_rank + 1) - first;
    uint32_t owner = is_near_source(p) ? root_in_node(p) : g->node_rank;
    exchange x = {.p = p, .slice = staging_of(p, owner) + first * LINE, .lines = lines};
    if (!is_broadcast(p) && g->node_size > 1) add_slice(p, x.slice, first * LINE, lines * LINE);
    if (g->node_count == 1) return TU_OK;
    TU_TRY(is_broadcast(p) ? scatter(&x) : reduce_scatter(&x));
    return gather(&x);
}

/* Waits until the other processes of the node have written what this one reads. */
static tu_status wait_for_values(const piece *p, uint64_t done) {
    size_t written = offsetof(tu__host_counters, written);
    if (is_near_source(p)) return wait_for_process(p->group, root_in_node(p), written, done);
    return is_broadcast(p) ? TU_OK : wait_for_node(p->group, written, done);
}

static tu_status store_piece(const piece *p, uint64_t done) {
    if (!p->part->what->out_count) return TU_OK;
    if (!is_near_source(p)) TU_TRY(wait_for_node(p->group, offsetof(tu__host_counters, reduced), done));
    return for_each_range(p, false);
}

static tu_status perform_piece(const piece *p) {
    tu__host_counters *own = counters_of(p->group, p->group->node_rank);
    uint64_t done = p->number + 1;
    /* The previous contents of the staging buffer have been read. */
    if (p->number >= TU__STAGING_BUFFERS)
        TU_TRY(wait_for_node(p->group, offsetof(tu__host_counters, read), done - TU__STAGING_BUFFERS));
    TU_TRY(load_piece(p));
    reach(&own->written, done);
    TU_TRY(wait_for_values(p, done));
    TU_TRY(exchange_slice(p));
    reach(&own->reduced, done);
    TU_TRY(store_piece(p, done));
    reach(&own->read, done);
    return TU_OK;
}

static tu_status perform_part(tu_process_group *g, const part_work *part) {
    size_t lines = tu__line_count(part->what);
    for (size_t first = 0, count; first < lines; first += count) {
        count = lines - first < TU__PIECE_BYTES / LINE ? lines - first : TU__PIECE_BYTES / LINE;
        const piece p = {
            .group = g, .part = part, .first_line = first, .lines = count, .number = g->pieces++};
        TU_TRY(perform_piece(&p));
    }
    return TU_OK;
}

static tu__collective_kind kind_of_part(tu__collective_kind kind) {
    return kind == TU__REDUCE_SCATTER ? TU__REDUCE : kind == TU__ALL_GATHER ? TU__BROADCAST : kind;
}

tu_status tu__group_perform(tu_process_group *g, const tu__group_work *work) {
    const tu__communicator *c = work->communicator;
    for (uint32_t index = 0; index < tu__communicator_part_count(c); index++) {
        part_work part = {.work = work, .index = index, .kind = kind_of_part(c->kind)};
        part.root = work->process_of(work->context, tu__communicator_rank_of_part(c, index));
        for (uint32_t i = 0; i < c->combination_count; i++) {
            part.what = &tu__communicator_of_rank(c, index)[i];
            TU_TRY(perform_part(g, &part));
        }
    }
    return TU_OK;
}
