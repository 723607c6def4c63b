/* Collectives over the processes of a group.
 *
 * Processes of one node (process_group.h: those of a host, if the order of additions permits) share memory. The cache
 * lines of a collective are divided into *lanes*, which are independent of each other: a process may compute them one after
 * another or with a thread each, and need not do as the others. A lane is added in pieces. For every piece, each
 * process
 *
 *     load     adds the values of its local ranks into its staging buffer,
 *     reduce   adds its slice of all staging buffers of the node, into its own,
 *     store    copies all slices of the piece to its local ranks.
 *
 * Between two processes, or with little to add, it is faster if each adds everything: it loads, then
 *
 *     add      adds all staging buffers of the node, and writes the sums to its local ranks.
 *
 * Between nodes, a process exchanges its slice with those processes of the other nodes that have the same slice: each of
 * them adds a part of it (reduce-scatter), and sends the result to the others (all-gather), or only to the root's node.
 * A small slice they send whole to each other, and each adds all of it: one message after another instead of two.
 *
 * In a broadcast the root loads the piece. The processes of its node copy it from there, and each sends its slice to the
 * other nodes: a part to each node (scatter), which then send their parts to each other (all-gather), so that the root's
 * host sends as little as possible.
 *
 * Counters in shared memory say how far each process is. The steps of successive pieces overlap: a process loads a piece
 * before it waits for the others' previous one, and while messages are on their way. For that there are several staging
 * buffers. */
#include "comm/group_reduce.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/parallel.h"
#include "comm/comm.h"

enum {
    LINE = 64,
    /* Measured on two and on 16 cores: smaller lanes cost more in synchronization than a further thread saves. */
    MIN_LANE_BYTES = 32 << 10,
    /* Up to this size of a lane, times the number of processes, everybody adds everything. */
    MAX_ADDED_BYTES = 128 << 10,
    TILE_BYTES = 16 << 10,
    /* Up to so many bytes to all other nodes, a process sends them its whole slice: then messages take longer to arrive
     * than to be sent and added. */
    MAX_EXCHANGED_BYTES = 32 << 10,
    MAX_MESSAGES = 2 * TU__MAX_PROCESSES, /* of a piece at a time */
    MAX_STAGES = 5,
    /* Pieces whose parts, and others whose sums, are on their way between nodes. Threads that compute delay the thread
     * that receives: meanwhile the network has other pieces to carry. */
    WINDOW = 6,
    IN_FLIGHT = 2 * WINDOW + 1, /* pieces with messages */
};
_Static_assert((int)TU__RECEIVE_BUFFERS > (int)WINDOW, "a buffer per piece whose parts are received");

/* ---- Lanes and pieces ---- */

/* The messages between nodes of one piece. */
typedef struct message_list {
    tu__transfer *list[MAX_MESSAGES];
    size_t count;
} message_list;

typedef struct lane {
    tu_process_group *group;
    const tu__group_work *work;
    uint32_t index;
    size_t first_line, lines; /* of all values */
    uint32_t buffers;         /* staging buffers */
    uint32_t piece_count;
    uint32_t first_number;  /* of its pieces, counted over all sums */
    message_list *messages; /* per piece modulo IN_FLIGHT; NULL with one node */
    double *waited;         /* seconds */
} lane;

typedef struct piece {
    size_t first_line, lines; /* of all values */
    uint32_t number;          /* counted from 1 */
    size_t staging;           /* offset of its staging buffers */
} piece;

static bool has_one_node(const tu_process_group *g) {
    return g->node_count == 1;
}

/* Returns the first line of part `index` of `count` equal parts. */
static size_t first_of_part(size_t lines, uint32_t count, uint32_t index) {
    size_t rest = lines % count;
    return lines / count * index + (index < rest ? index : rest);
}

static uint32_t lane_count(const tu_process_group *g, size_t lines) {
    size_t count = lines * LINE / MIN_LANE_BYTES;
    if (!has_one_node(g) || count < 1) return 1; /* one thread has the messages */
    return count < g->lanes ? (uint32_t)count : g->lanes;
}

static piece piece_of(const lane *l, uint32_t index) {
    size_t first = first_of_part(l->lines, l->piece_count, index),
           end = first_of_part(l->lines, l->piece_count, index + 1);
    uint32_t number = l->first_number + index;
    return (piece){
        .first_line = l->first_line + first,
        .lines = end - first,
        .number = number + 1,
        .staging =
            l->index * (size_t)(TU__STAGING_BYTES / TU__MAX_LANES) + number % l->buffers * TU__PIECE_BYTES,
    };
}

static tu__shared_area *area_of(const lane *l, uint32_t process) {
    return l->group->areas[process];
}

static tu__lane_counters *counters_of(const lane *l, uint32_t process) {
    return &area_of(l, process)->lanes[l->index];
}

static tu__lane_counters *own_counters(const lane *l) {
    return counters_of(l, l->group->node_rank);
}

static char *staging_of(const lane *l, const piece *p, uint32_t process) {
    return area_of(l, process)->staging + p->staging;
}

/* The first line of a process's slice. */
static size_t slice_begin(const lane *l, const piece *p, uint32_t process) {
    return first_of_part(p->lines, l->group->node_size, process);
}

/* ---- The root ---- */

static uint32_t root_node(const lane *l) {
    return l->work->root / l->group->node_size;
}

static uint32_t root_in_node(const lane *l) {
    return l->work->root % l->group->node_size;
}

static bool is_broadcast(const lane *l) {
    return l->work->kind == TU__BROADCAST;
}

static bool is_root(const lane *l) {
    return l->work->root == l->group->info.rank;
}

/* True if the processes of this node get the values from the root's staging buffer. */
static bool is_near_source(const lane *l) {
    return is_broadcast(l) && root_node(l) == l->group->node;
}

static bool gets_result(const lane *l) {
    return l->work->what->out_count > 0;
}

/* ---- Waiting for the node ---- */

typedef struct counter_wait {
    const lane *lane;
    uint32_t first, end; /* processes of the node */
    size_t offset;       /* of the counter in tu__lane_counters */
    uint32_t value;
} counter_wait;

static tu__counter *counter_at(const counter_wait *w, uint32_t process) {
    return (tu__counter *)((char *)counters_of(w->lane, process) + w->offset);
}

/* Lets messages proceed, which MPI does only when it is called. */
static tu_status make_progress(const lane *l) {
    bool done;
    for (message_list *m = l->messages; m < l->messages + IN_FLIGHT; m++)
        TU_TRY(tu__group_test_transfers(l->group, m->count, m->list, &done));
    return TU_OK;
}

static tu_status have_all_reached(void *context, bool *reached) {
    const counter_wait *w = context;
    *reached = true;
    for (uint32_t i = w->first; *reached && i < w->end; i++)
        *reached = tu__counter_has(counter_at(w, i), w->value);
    return *reached ? TU_OK : make_progress(w->lane);
}

static tu_status wait_for(counter_wait w) {
    const lane *l = w.lane;
    tu_process_group *g = l->group;
    if (!has_one_node(g)) return tu__group_wait(g, have_all_reached, &w);
    double deadline = 0; /* of this piece */
    for (uint32_t i = w.first; i < w.end; i++) {
        if (tu__counter_has(counter_at(&w, i), w.value)) continue;
        if (deadline == 0) deadline = tu__now() + g->timeout;
        TU_TRY(tu__group_wait_counter(g, counter_at(&w, i), w.value, deadline, l->waited));
    }
    return TU_OK;
}

static tu_status wait_for_node(const lane *l, size_t offset, uint32_t value) {
    return wait_for((counter_wait){l, 0, l->group->node_size, offset, value});
}

/* Waits until the root of a broadcast, a process of this node, has loaded a piece. */
static tu_status wait_for_source(const lane *l, const piece *p) {
    uint32_t root = root_in_node(l);
    return wait_for((counter_wait){l, root, root + 1, offsetof(tu__lane_counters, written), p->number});
}

/* ---- Steps of a piece within a node ---- */

/* Calls of the work's functions for the ranges of some lines of a piece. */
typedef struct range_iterator {
    const lane *lane;
    tu__line_iterator lines;
    tu__segment_range range;
    size_t offset, next; /* of the range in the staging buffers, and of the next one */
} range_iterator;

static range_iterator ranges_of(const lane *l, const piece *p, size_t first, size_t end) {
    return (range_iterator){.lane = l,
                            .lines = tu__lines_begin(l->work->what, p->first_line + first, end - first),
                            .next = first * LINE};
}

static bool next_range(range_iterator *r, size_t max_bytes) {
    size_t size = tu_dtype_size(r->lane->work->what->dtype);
    if (!tu__lines_next(&r->lines, max_bytes / size, &r->range)) return false;
    r->offset = r->next;
    r->next += (r->range.count * size + LINE - 1) / LINE * LINE;
    return true;
}

/* Loads lines of a piece into this process's staging buffer. */
static tu_status load_lines(const lane *l, const piece *p, size_t first, size_t end) {
    const tu__group_work *s = l->work;
    char *staging = staging_of(l, p, l->group->node_rank);
    for (range_iterator r = ranges_of(l, p, first, end); next_range(&r, TU__PIECE_BYTES);)
        TU_TRY(s->load(s->context, s->what, &r.range, staging + r.offset));
    return TU_OK;
}

static tu_status store_lines(const lane *l, const piece *p, uint32_t process, size_t first, size_t end) {
    const tu__group_work *s = l->work;
    if (!gets_result(l)) return TU_OK;
    const char *staging = staging_of(l, p, process);
    for (range_iterator r = ranges_of(l, p, first, end); next_range(&r, TU__PIECE_BYTES);)
        TU_TRY(s->store(s->context, s->what, &r.range, staging + r.offset));
    return TU_OK;
}

static tu_status wait_until_read(const lane *l, const piece *p) {
    return wait_for_node(l, offsetof(tu__lane_counters, read), p->number - l->buffers);
}

static tu_status load(const lane *l, uint32_t index) {
    const piece p = piece_of(l, index);
    TU_TRY(wait_until_read(l, &p));
    if (!is_broadcast(l) || is_root(l)) TU_TRY(load_lines(l, &p, 0, p.lines));
    tu__counter_set(&own_counters(l)->written, p.number);
    return TU_OK;
}

/* Copies a broadcast piece to the local ranks. */
static tu_status store_source(const lane *l, uint32_t index) {
    const piece p = piece_of(l, index);
    TU_TRY(wait_for_source(l, &p));
    TU_TRY(store_lines(l, &p, root_in_node(l), 0, p.lines));
    tu__counter_set(&own_counters(l)->read, p.number);
    return TU_OK;
}

/* Adds lines of all processes of the node, and writes the sums to the local ranks. */
static tu_status add_lines(const lane *l, const piece *p) {
    _Alignas(LINE) char tile[TILE_BYTES];
    const void *in[TU__MAX_PROCESSES];
    const tu_process_group *g = l->group;
    const tu__group_work *s = l->work;
    TU_TRY(wait_for_node(l, offsetof(tu__lane_counters, written), p->number));
    for (range_iterator r = ranges_of(l, p, 0, p->lines); next_range(&r, TILE_BYTES);) {
        for (uint32_t i = 0; i < g->node_size; i++) in[i] = staging_of(l, p, i) + r.offset;
        tu__local_add(s->what->dtype, g->node_size, in, r.range.count, tile);
        TU_TRY(s->store(s->context, s->what, &r.range, tile));
    }
    return TU_OK;
}

static tu_status add(const lane *l, uint32_t index) {
    const piece p = piece_of(l, index);
    if (gets_result(l)) TU_TRY(add_lines(l, &p));
    tu__counter_set(&own_counters(l)->read, p.number);
    return TU_OK;
}

/* Loads only what others add. */
static tu_status load_others(const lane *l, uint32_t index) {
    const piece p = piece_of(l, index);
    uint32_t own = l->group->node_rank;
    TU_TRY(wait_until_read(l, &p));
    TU_TRY(load_lines(l, &p, 0, slice_begin(l, &p, own)));
    TU_TRY(load_lines(l, &p, slice_begin(l, &p, own + 1), p.lines));
    tu__counter_set(&own_counters(l)->written, p.number);
    return TU_OK;
}

/* Adds this process's slice. */
static tu_status reduce(const lane *l, uint32_t index) {
    _Alignas(LINE) char tile[TILE_BYTES];
    const void *in[TU__MAX_PROCESSES];
    const tu_process_group *g = l->group;
    const tu__group_work *s = l->work;
    const piece p = piece_of(l, index);
    size_t first = slice_begin(l, &p, g->node_rank), end = slice_begin(l, &p, g->node_rank + 1);
    TU_TRY(wait_for_node(l, offsetof(tu__lane_counters, written), p.number));
    for (range_iterator r = ranges_of(l, &p, first, end); next_range(&r, TILE_BYTES);) {
        for (uint32_t i = 0; i < g->node_size; i++) in[i] = staging_of(l, &p, i) + r.offset;
        in[g->node_rank] = tile;
        TU_TRY(s->load(s->context, s->what, &r.range, tile));
        char *sum = staging_of(l, &p, g->node_rank) + r.offset;
        tu__local_add(s->what->dtype, g->node_size, in, r.range.count, sum);
    }
    tu__counter_set(&own_counters(l)->reduced, p.number);
    return store_lines(l, &p, g->node_rank, first, end);
}

/* Stores what others have added. */
static tu_status store_others(const lane *l, uint32_t index) {
    const piece p = piece_of(l, index);
    if (gets_result(l)) TU_TRY(wait_for_node(l, offsetof(tu__lane_counters, reduced), p.number));
    for (uint32_t i = 0; i < l->group->node_size; i++)
        if (i != l->group->node_rank)
            TU_TRY(store_lines(l, &p, i, slice_begin(l, &p, i), slice_begin(l, &p, i + 1)));
    tu__counter_set(&own_counters(l)->read, p.number);
    return TU_OK;
}

/* ---- Steps of a piece between nodes ---- */

/* This process's slice of a piece, of which every node adds a part. */
typedef struct slice {
    const lane *lane;
    message_list *messages;
    char *data; /* in its staging buffer, or in that of the root of a broadcast */
    size_t lines;
    char *received; /* the parts of the other nodes */
} slice;

static slice slice_of(const lane *l, uint32_t index) {
    const piece p = piece_of(l, index);
    uint32_t own = l->group->node_rank;
    size_t first = slice_begin(l, &p, own);
    return (slice){.lane = l,
                   .messages = &l->messages[index % IN_FLIGHT],
                   .data = staging_of(l, &p, is_near_source(l) ? root_in_node(l) : own) + first * LINE,
                   .lines = slice_begin(l, &p, own + 1) - first,
                   .received = l->group->receive_buffers + index % TU__RECEIVE_BUFFERS * TU__RECEIVE_BYTES};
}

static size_t part_offset(const slice *s, uint32_t node) {
    return LINE * first_of_part(s->lines, s->lane->group->node_count, node);
}

static size_t part_bytes(const slice *s, uint32_t node) {
    return part_offset(s, node + 1) - part_offset(s, node);
}

/* True if all nodes add the whole slice, instead of a part each. */
static bool is_added_by_all(const slice *s) {
    return s->lane->work->kind == TU__ALL_REDUCE &&
           (s->lane->group->node_count - 1) * s->lines * LINE <= MAX_EXCHANGED_BYTES;
}

/* The bytes of the slice that a node adds, and where they begin. */
static size_t added_bytes(const slice *s, uint32_t node) {
    return is_added_by_all(s) ? s->lines * LINE : part_bytes(s, node);
}

static char *added_data(const slice *s, uint32_t node) {
    return s->data + (is_added_by_all(s) ? 0 : part_offset(s, node));
}

/* The process of another node that has the same slice. */
static uint32_t rank_in_node(const tu_process_group *g, uint32_t node) {
    return node * g->node_size + g->node_rank;
}

enum { TAG_PARTS = 1, TAG_SUMS = 2 };

static tu_status begin_send(const slice *s, uint32_t node, int tag, const void *data, size_t bytes) {
    const tu_process_group *g = s->lane->group;
    message_list *m = s->messages;
    if (!bytes) return TU_OK;
    return g->api->send(g->transport, rank_in_node(g, node), tag, data, bytes, &m->list[m->count++]);
}

static tu_status begin_receive(const slice *s, uint32_t node, int tag, void *data, size_t bytes) {
    const tu_process_group *g = s->lane->group;
    message_list *m = s->messages;
    if (!bytes) return TU_OK;
    return g->api->receive(g->transport, rank_in_node(g, node), tag, data, bytes, &m->list[m->count++]);
}

static tu_status finish(const slice *s) {
    TU_TRY(tu__group_wait_transfers(s->lane->group, s->messages->count, s->messages->list));
    s->messages->count = 0;
    return TU_OK;
}

/* Adds this process's slice of the node. The last line of a value may be partly unused; its bytes are added too, so they
 * must not be signalling values. They never leave the staging buffer. */
static void add_slice(const lane *l, const piece *p) {
    const tu_process_group *g = l->group;
    const void *in[TU__MAX_PROCESSES];
    size_t first = slice_begin(l, p, g->node_rank), end = slice_begin(l, p, g->node_rank + 1);
    tu_dtype dtype = l->work->what->dtype;
    for (uint32_t i = 0; i < g->node_size; i++) in[i] = staging_of(l, p, i) + first * LINE;
    tu__local_add(dtype, g->node_size, in, (end - first) * LINE / tu_dtype_size(dtype),
                  staging_of(l, p, g->node_rank) + first * LINE);
}

/* Begins to receive from all nodes what this node adds of the slice, and to send them what they add. */
static tu_status begin_reduce_scatter(const lane *l, uint32_t index) {
    const tu_process_group *g = l->group;
    const piece p = piece_of(l, index);
    const slice s = slice_of(l, index);
    size_t own = added_bytes(&s, g->node);
    char *received = s.received;
    TU_TRY(wait_for_node(l, offsetof(tu__lane_counters, written), p.number));
    if (g->node_size > 1) add_slice(l, &p);
    for (uint32_t node = 0; node < g->node_count; node++) {
        if (node == g->node) continue;
        TU_TRY(begin_receive(&s, node, TAG_PARTS, received, own));
        received += own;
        TU_TRY(begin_send(&s, node, TAG_PARTS, added_data(&s, node), added_bytes(&s, node)));
    }
    return TU_OK;
}

/* Begins to send every other node its part of the root's slice, or to receive it. */
static tu_status begin_scatter(const lane *l, uint32_t index) {
    const tu_process_group *g = l->group;
    const piece p = piece_of(l, index);
    const slice s = slice_of(l, index);
    uint32_t root = root_node(l);
    if (g->node != root)
        return begin_receive(&s, root, TAG_PARTS, s.data + part_offset(&s, g->node), part_bytes(&s, g->node));
    TU_TRY(wait_for_source(l, &p));
    for (uint32_t node = 0; node < g->node_count; node++)
        if (node != root)
            TU_TRY(begin_send(&s, node, TAG_PARTS, s.data + part_offset(&s, node), part_bytes(&s, node)));
    return TU_OK;
}

/* Adds what this node has received from the others. */
static void add_parts(const slice *s) {
    const tu_process_group *g = s->lane->group;
    const void *in[TU__MAX_PROCESSES];
    size_t own = added_bytes(s, g->node);
    char *received = s->received, *sum = added_data(s, g->node);
    tu_dtype dtype = s->lane->work->what->dtype;
    for (uint32_t node = 0; node < g->node_count; node++) {
        in[node] = node == g->node ? sum : received;
        if (node != g->node) received += own;
    }
    tu__local_add(dtype, g->node_count, in, own / tu_dtype_size(dtype), sum);
}

/* True if a node gets the parts of the slice that other nodes have. */
static bool gathers_parts(const lane *l, uint32_t node) {
    if (l->work->kind == TU__ALL_REDUCE) return true;
    return is_broadcast(l) ? node != root_node(l) : node == root_node(l);
}

/* When the parts have been received: adds them, unless it is a broadcast, and begins to exchange the results that not all
 * nodes have. */
static tu_status begin_all_gather(const lane *l, uint32_t index) {
    const tu_process_group *g = l->group;
    const slice s = slice_of(l, index);
    const char *own = s.data + part_offset(&s, g->node);
    TU_TRY(finish(&s));
    if (!is_broadcast(l)) add_parts(&s);
    if (is_added_by_all(&s)) return TU_OK;
    for (uint32_t node = 0; node < g->node_count; node++) {
        if (node == g->node) continue;
        if (gathers_parts(l, g->node))
            TU_TRY(begin_receive(&s, node, TAG_SUMS, s.data + part_offset(&s, node), part_bytes(&s, node)));
        if (gathers_parts(l, node)) TU_TRY(begin_send(&s, node, TAG_SUMS, own, part_bytes(&s, g->node)));
    }
    return TU_OK;
}

static tu_status finish_all_gather(const lane *l, uint32_t index) {
    const slice s = slice_of(l, index);
    TU_TRY(finish(&s));
    tu__counter_set(&own_counters(l)->reduced, piece_of(l, index).number);
    return TU_OK;
}

static tu_status store(const lane *l, uint32_t index) {
    const piece p = piece_of(l, index);
    if (is_near_source(l)) return store_source(l, index);
    if (gets_result(l)) TU_TRY(wait_for_node(l, offsetof(tu__lane_counters, reduced), p.number));
    for (uint32_t i = 0; i < l->group->node_size; i++)
        TU_TRY(store_lines(l, &p, i, slice_begin(l, &p, i), slice_begin(l, &p, i + 1)));
    tu__counter_set(&own_counters(l)->read, p.number);
    return TU_OK;
}

/* ---- A lane ---- */

/* A step of a piece, which a process executes together with the first step of the piece `delay` later. */
typedef struct stage {
    tu_status (*run)(const lane *l, uint32_t index);
    uint32_t delay;
} stage;

static const stage add_everything[MAX_STAGES] = {{load, 0}, {add, 1}},
                   in_one_node[MAX_STAGES] = {{load_others, 0}, {reduce, 1}, {store_others, 2}},
                   between_nodes[MAX_STAGES] = {{load, 0},
                                                {begin_reduce_scatter, 1},
                                                {begin_all_gather, 1 + WINDOW},
                                                {finish_all_gather, 1 + 2 * WINDOW},
                                                {store, 2 + 2 * WINDOW}},
                   broadcast_in_node[MAX_STAGES] = {{load, 0}, {store_source, 1}},
                   broadcast_between_nodes[MAX_STAGES] = {{load, 0},
                                                          {begin_scatter, 1},
                                                          {begin_all_gather, 1 + WINDOW},
                                                          {finish_all_gather, 1 + 2 * WINDOW},
                                                          {store, 2 + 2 * WINDOW}};

/* Staging buffers: one more than the last delay, and one for processes that are not as far as this one. */
enum { MESSAGE_BUFFERS = 4 + 2 * WINDOW };
_Static_assert((size_t)MESSAGE_BUFFERS *TU__PIECE_BYTES <= TU__STAGING_BYTES,
               "the staging buffers of one lane");

static const stage *choose_stages(const lane *l) {
    const tu_process_group *g = l->group;
    if (!has_one_node(g)) return is_broadcast(l) ? broadcast_between_nodes : between_nodes;
    if (is_broadcast(l)) return broadcast_in_node;
    bool is_small = l->lines * LINE * g->node_size <= MAX_ADDED_BYTES;
    return is_small ? add_everything : in_one_node;
}

static tu_status run_stages(const lane *l, const stage *stages) {
    uint32_t last_delay = 0;
    for (uint32_t s = 0; s < MAX_STAGES && stages[s].run; s++) last_delay = stages[s].delay;
    for (uint32_t i = 0; i < l->piece_count + last_delay; i++)
        for (uint32_t s = 0; s < MAX_STAGES && stages[s].run; s++)
            if (i >= stages[s].delay && i - stages[s].delay < l->piece_count)
                TU_TRY(stages[s].run(l, i - stages[s].delay));
    return TU_OK;
}

static tu_status run_lane(tu_process_group *g, const tu__group_work *work, uint32_t index, double *waited) {
    message_list messages[IN_FLIGHT];
    size_t all = tu__line_count(work->what);
    uint32_t lanes = lane_count(g, all);
    lane l = {.group = g,
              .work = work,
              .index = index,
              .first_line = first_of_part(all, lanes, index),
              .buffers = has_one_node(g) ? TU__LANE_BUFFERS : MESSAGE_BUFFERS,
              .first_number = g->pieces[index],
              .waited = waited};
    l.lines = first_of_part(all, lanes, index + 1) - l.first_line;
    l.piece_count = (uint32_t)((l.lines * LINE + TU__PIECE_BYTES - 1) / TU__PIECE_BYTES);
    g->pieces[index] += l.piece_count;
    if (!has_one_node(g)) {
        for (uint32_t i = 0; i < IN_FLIGHT; i++) messages[i].count = 0;
        l.messages = messages;
    }
    return run_stages(&l, choose_stages(&l));
}

/* ---- A collective ---- */

bool tu__group_adds_in_memory(const tu_process_group *g) {
    return has_one_node(g);
}

typedef struct part_work {
    tu_process_group *group;
    const tu__group_work *work;
    uint32_t part, parts;
    double *waited; /* of the caller, who computes the first lane */
    atomic_bool failed;
    tu_status status;
    char message[1024];
} part_work;

static void run_lanes(void *context, int64_t first, int64_t last, int worker) {
    part_work *w = context;
    double ignored = 0;
    for (int64_t i = first; i < last && !atomic_load(&w->failed); i++) {
        uint32_t index = w->part + (uint32_t)i * w->parts;
        tu_status status = run_lane(w->group, w->work, index, worker ? &ignored : w->waited);
        if (status == TU_OK || atomic_exchange(&w->failed, true)) continue;
        w->status = status;
        snprintf(w->message, sizeof w->message, "%s", tu_message());
    }
}

tu_status tu__group_perform_part(tu_process_group *g, const tu__group_work *work, uint32_t part,
                                 uint32_t parts, double *waited) {
    uint32_t lanes = lane_count(g, tu__line_count(work->what));
    part_work w = {.group = g, .work = work, .part = part, .parts = parts, .waited = waited};
    if (part >= lanes) return TU_OK;
    tu__parallel_for((lanes - part + parts - 1) / parts, 1, run_lanes, &w);
    return atomic_load(&w.failed) ? tu_fail(w.status, "%s", w.message) : TU_OK;
}

tu_status tu__group_perform(tu_process_group *g, const tu__group_work *work) {
    double waited = 0;
    return tu__group_perform_part(g, work, 0, 1, &waited);
}
