/* Verifies a command list: see the rules of decision 41.
 *
 * The list is executed symbolically for two steps. Every command gets a vector clock: for each queue, the number of its
 * commands that have ended before this one starts. A collective counts as a queue with one command per step, which
 * starts after all POSTs and ends before every AWAIT. Two commands are ordered if the clock of one contains the other.
 *
 * The commands of one queue are ordered anyway, so only memory that a copy queue or a collective touches is examined:
 * each of these accesses is compared with all others to the same bytes. A broken rule is an error of a device (its
 * plan) or of the engine. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "compile/command_list.h"

enum { STEPS = 2 };

typedef struct access { /* of one command to one buffer's memory */
    uint32_t actor;     /* queue; from queue_count on: collective */
    uint32_t position;  /* of the command in the queue; for a collective: the value */
    bool writes;
    uint32_t external; /* a buffer that is not in scratch memory; TU_NO_NODE: it is */
    size_t begin, end; /* of scratch memory */
} access;

typedef struct access_list { /* the accesses of copy queues and collectives to one partition's memory */
    access *items;
    uint32_t count;
    size_t *highest_end; /* per item: of it and all before it */
} access_list;

typedef struct checker {
    const tu_command_list *list;
    const tu__collectives *collectives;
    const tu__partition *partitions;
    uint32_t actor_count; /* queues and collectives */
    uint32_t *first;      /* per queue: number of commands of the queues before it */
    uint32_t command_count;
    uint32_t *clocks;       /* [step][command][actor] */
    uint32_t *reduce_clock; /* [step][collective][actor] */
    uint32_t *posts;        /* [step][collective]: number of ranks that have posted */
    uint8_t *stages; /* [collective][rank], padded to TU__MAX_DEVICES: 1: has a POST; 2: an AWAIT as well */
    bool *is_signalled;     /* per event: a command signals it */
    uint32_t **event_clock; /* [step][event]: clock of its SIGNAL; NULL: not signalled yet */
    uint32_t *done;         /* per queue: number of commands executed, of all steps */
    access_list *accesses;  /* per partition */
    tu__arena arena;
} checker;

/* ---- Messages ---- */

static const char *device_of(const checker *c, uint32_t queue) {
    return c->partitions[c->list->queues[queue].partition].device->name;
}

static tu_status fail_rule(const checker *c, int rule, uint32_t queue, uint32_t position, const char *what) {
    const tu_command_queue *q = &c->list->queues[queue];
    return tu_fail(TU_INTERNAL, "the command list breaks rule %d: %s of device '%s', command %u (%s): %s",
                   rule, q->source == q->partition ? "the compute queue" : "a copy queue",
                   device_of(c, queue), position, tu__command_describe(&q->commands[position]).text, what);
}

/* ---- Commands by themselves ---- */

static bool is_known_place(const checker *c, tu_place place) {
    return place.partition < c->list->partition_count &&
           place.buffer < c->partitions[place.partition].buffer_count;
}

static bool is_known_index(const checker *c, const tu_command *command) {
    switch (command->kind) {
    case TU_COMMAND_FEED: return command->index < c->list->feed_count;
    case TU_COMMAND_FETCH: return command->index < c->list->fetch_count;
    case TU_COMMAND_POST:
    case TU_COMMAND_AWAIT: return command->index < c->list->collective_count;
    case TU_COMMAND_SIGNAL:
    case TU_COMMAND_WAIT:
    case TU_COMMAND_WAIT_PREVIOUS: return command->index < c->list->event_count;
    case TU_COMMAND_COPY: return is_known_place(c, command->from) && is_known_place(c, command->to);
    case TU_COMMAND_LAUNCH:
    case TU_COMMAND_COMMIT: return true;
    }
    return false;
}

/* True if the command is one that its queue may have, and touches only memory that its queue may touch. */
static bool belongs_to_queue(const checker *c, const tu_command_queue *q, const tu_command *command) {
    switch (command->kind) {
    case TU_COMMAND_FEED:
        return q->source == q->partition && c->list->feeds[command->index].place.partition == q->partition;
    case TU_COMMAND_FETCH:
        return q->source == q->partition && c->list->fetches[command->index].place.partition == q->partition;
    case TU_COMMAND_COPY:
        return command->from.partition == q->source && command->to.partition == q->partition;
    case TU_COMMAND_LAUNCH:
    case TU_COMMAND_POST:
    case TU_COMMAND_AWAIT:
    case TU_COMMAND_COMMIT: return q->source == q->partition;
    case TU_COMMAND_SIGNAL:
    case TU_COMMAND_WAIT:
    case TU_COMMAND_WAIT_PREVIOUS: return true;
    }
    return false;
}

static uint32_t rank_of(const tu__collective *collective, uint32_t partition) {
    uint32_t rank = 0;
    while (rank < collective->ranks && collective->members[rank].partition != partition) rank++;
    return rank;
}

/* Checks that each rank posts first, then awaits. */
static tu_status check_collective_command(const checker *c, uint32_t queue, uint32_t position) {
    const tu_command_queue *q = &c->list->queues[queue];
    uint32_t index = q->commands[position].index, rank = rank_of(&c->collectives->list[index], q->partition);
    bool is_post = q->commands[position].kind == TU_COMMAND_POST;
    if (rank == c->collectives->list[index].ranks)
        return fail_rule(c, 4, queue, position, "the partition is no rank of the collective");
    uint8_t *stage = &c->stages[(size_t)index * TU__MAX_DEVICES + rank];
    if (is_post && *stage) return fail_rule(c, 4, queue, position, "the rank has posted before");
    if (!is_post && !*stage) return fail_rule(c, 4, queue, position, "the rank has not posted yet");
    if (*stage == 2) return fail_rule(c, 4, queue, position, "the rank has awaited the collective before");
    ++*stage;
    return TU_OK;
}

static tu_status check_all_ranks(const checker *c) {
    for (uint32_t i = 0; i < c->list->collective_count; i++)
        for (uint32_t r = 0; r < c->collectives->list[i].ranks; r++) {
            uint8_t stage = c->stages[(size_t)i * TU__MAX_DEVICES + r];
            if (stage < 2)
                return tu_fail(TU_INTERNAL,
                               "the command list breaks rule 4: device '%s' does not %s collective %u",
                               c->partitions[c->collectives->list[i].members[r].partition].device->name,
                               stage ? "await" : "post its values of", i);
        }
    return TU_OK;
}

/* Checks that an event is signalled once, if a command waits for it. */
static tu_status check_events(const checker *c) {
    for (uint32_t q = 0; q < c->list->queue_count; q++)
        for (uint32_t i = 0; i < c->list->queues[q].count; i++) {
            const tu_command *command = &c->list->queues[q].commands[i];
            if (command->kind != TU_COMMAND_SIGNAL) continue;
            if (c->is_signalled[command->index])
                return fail_rule(c, 1, q, i, "the event is signalled twice in a step");
            c->is_signalled[command->index] = true;
        }
    for (uint32_t q = 0; q < c->list->queue_count; q++)
        for (uint32_t i = 0; i < c->list->queues[q].count; i++) {
            const tu_command *command = &c->list->queues[q].commands[i];
            if (command->kind != TU_COMMAND_WAIT && command->kind != TU_COMMAND_WAIT_PREVIOUS) continue;
            if (!c->is_signalled[command->index])
                return fail_rule(c, 1, q, i, "no command signals the event");
        }
    return TU_OK;
}

static tu_status check_commands(const checker *c) {
    for (uint32_t q = 0; q < c->list->queue_count; q++)
        for (uint32_t i = 0; i < c->list->queues[q].count; i++) {
            const tu_command *command = &c->list->queues[q].commands[i];
            if (!is_known_index(c, command)) return fail_rule(c, 1, q, i, "its index is out of range");
            if (!belongs_to_queue(c, &c->list->queues[q], command))
                return fail_rule(c, 1, q, i, "it belongs to another queue");
            if (command->kind == TU_COMMAND_POST || command->kind == TU_COMMAND_AWAIT)
                TU_TRY(check_collective_command(c, q, i));
        }
    TU_TRY(check_events(c));
    return check_all_ranks(c);
}

/* ---- Clocks ---- */

static uint32_t *clock_of(const checker *c, uint32_t step, uint32_t queue, uint32_t position) {
    return c->clocks + ((size_t)step * c->command_count + c->first[queue] + position) * c->actor_count;
}

static uint32_t *reduce_clock_of(const checker *c, uint32_t step, uint32_t collective) {
    return c->reduce_clock + ((size_t)step * c->list->collective_count + collective) * c->actor_count;
}

static uint32_t **event_clock_of(const checker *c, uint32_t step, uint32_t event) {
    return &c->event_clock[(size_t)step * c->list->event_count + event];
}

static void join(const checker *c, uint32_t *clock, const uint32_t *other) {
    for (uint32_t i = 0; i < c->actor_count; i++)
        if (other[i] > clock[i]) clock[i] = other[i];
}

static uint32_t *posts_of(const checker *c, uint32_t step, uint32_t collective) {
    return &c->posts[(size_t)step * c->list->collective_count + collective];
}

/* Returns the clock that a command waits for; sets `*ready` to false if it cannot run yet. */
static const uint32_t *awaited_clock(const checker *c, uint32_t step, const tu_command *command,
                                     bool *ready) {
    const uint32_t *clock = NULL;
    switch (command->kind) {
    case TU_COMMAND_WAIT: clock = *event_clock_of(c, step, command->index); break;
    case TU_COMMAND_WAIT_PREVIOUS:
        if (!step) return NULL;
        clock = *event_clock_of(c, step - 1, command->index);
        break;
    case TU_COMMAND_AWAIT:
        if (*posts_of(c, step, command->index) == c->collectives->list[command->index].ranks)
            clock = reduce_clock_of(c, step, command->index);
        break;
    default: return NULL;
    }
    *ready = clock != NULL;
    return clock;
}

static void post(const checker *c, uint32_t step, uint32_t collective, const uint32_t *clock) {
    ++*posts_of(c, step, collective);
    join(c, reduce_clock_of(c, step, collective), clock);
    reduce_clock_of(c, step, collective)[c->list->queue_count + collective] = step + 1;
}

/* Executes the next command of a queue; returns false if it must wait. */
static bool execute_next(checker *c, uint32_t queue) {
    const tu_command_queue *q = &c->list->queues[queue];
    uint32_t step = c->done[queue] / q->count, position = c->done[queue] % q->count;
    const tu_command *command = &q->commands[position];
    bool ready = true;
    const uint32_t *awaited = awaited_clock(c, step, command, &ready);
    if (!ready) return false;
    uint32_t *clock = clock_of(c, step, queue, position);
    if (position)
        join(c, clock, clock_of(c, step, queue, position - 1));
    else if (step)
        join(c, clock, clock_of(c, step - 1, queue, q->count - 1));
    if (awaited) join(c, clock, awaited);
    clock[queue] = ++c->done[queue];
    if (command->kind == TU_COMMAND_POST) post(c, step, command->index, clock);
    if (command->kind == TU_COMMAND_SIGNAL) *event_clock_of(c, step, command->index) = clock;
    return true;
}

/* Returns the position of a queue's first COMMIT; if there is none, the number of its commands. */
static uint32_t find_commit(const tu_command_queue *q) {
    uint32_t position = 0;
    while (position < q->count && q->commands[position].kind != TU_COMMAND_COMMIT) position++;
    return position;
}

/* Checks that each compute queue has a COMMIT, which waits for no command after that of another queue: the engine
 * interprets COMMIT as a barrier. */
static tu_status check_commits(const checker *c) {
    for (uint32_t q = 0; q < c->list->queue_count; q++) {
        const tu_command_queue *queue = &c->list->queues[q];
        uint32_t commit = find_commit(queue);
        if (queue->source != queue->partition) continue;
        if (commit == queue->count)
            return tu_fail(TU_INTERNAL,
                           "the command list breaks rule 3: the compute queue of device '%s' has no COMMIT",
                           device_of(c, q));
        for (uint32_t other = 0; other < c->list->queue_count; other++)
            if (other != q && clock_of(c, 0, q, commit)[other] > find_commit(&c->list->queues[other]) + 1)
                return fail_rule(c, 3, q, commit, "it waits for a command after the COMMIT of another queue");
    }
    return TU_OK;
}

static tu_status check_all_executed(const checker *c) {
    for (uint32_t q = 0; q < c->list->queue_count; q++)
        if (c->done[q] < STEPS * c->list->queues[q].count)
            return fail_rule(c, 1, q, c->done[q] % c->list->queues[q].count,
                             "it waits for a command that never runs");
    return TU_OK;
}

static tu_status execute_steps(checker *c) {
    bool any = true;
    while (any) {
        any = false;
        for (uint32_t q = 0; q < c->list->queue_count; q++)
            while (c->done[q] < STEPS * c->list->queues[q].count && execute_next(c, q)) any = true;
    }
    return check_all_executed(c);
}

/* ---- Memory ---- */

/* Returns the access of a command to a buffer of its partition. */
static access describe_access(const tu__partition *partition, uint32_t buffer, bool writes, uint32_t actor,
                              uint32_t position) {
    const tu__memory_plan *memory = &partition->memory;
    access a = {.actor = actor, .position = position, .writes = writes, .external = buffer};
    if (buffer >= partition->plan->buffer_count) return a;
    if (memory->alias_of[buffer] != TU_NO_NODE) a.external = memory->alias_of[buffer];
    if (memory->alias_of[buffer] != TU_NO_NODE || memory->storage[buffer] != TU__STORAGE_SCRATCH) return a;
    a.external = TU_NO_NODE;
    a.begin = memory->offset[buffer];
    a.end = a.begin + partition->plan->buffers[buffer].bytes;
    return a;
}

static uint64_t clock_entry(const checker *c, const access *a, uint32_t step) {
    if (a->actor >= c->list->queue_count) return step + 1;
    return (uint64_t)step * c->list->queues[a->actor].count + a->position + 1;
}

static const uint32_t *clock_of_access(const checker *c, const access *a, uint32_t step) {
    return a->actor < c->list->queue_count ? clock_of(c, step, a->actor, a->position)
                                           : reduce_clock_of(c, step, a->actor - c->list->queue_count);
}

/* True if `a` in one step has ended before `b` starts in another. */
static bool is_before(const checker *c, const access *a, uint32_t step, const access *b, uint32_t b_step) {
    return clock_of_access(c, b, b_step)[a->actor] >= clock_entry(c, a, step);
}

static bool are_ordered(const checker *c, const access *a, const access *b) {
    return (is_before(c, a, 0, b, 0) || is_before(c, b, 0, a, 0)) && is_before(c, a, 0, b, 1) &&
           is_before(c, b, 0, a, 1);
}

static bool overlap(const access *a, const access *b) {
    if (a->external != b->external) return false;
    return a->external != TU_NO_NODE || (a->begin < b->end && b->begin < a->end);
}

static bool conflict(const access *a, const access *b) {
    return a->actor != b->actor && (a->writes || b->writes) && overlap(a, b);
}

/* True if a collective writes memory of a rank that it also reads, or writes for another value: an input and a result
 * in the same memory are allowed if they belong to one value and the kind of collective allows it. */
static bool overwrites_itself(const checker *c, const access *a, const access *b) {
    if (a == b || a->actor != b->actor || a->actor < c->list->queue_count || (!a->writes && !b->writes))
        return false;
    const tu__collective *collective = &c->collectives->list[a->actor - c->list->queue_count];
    bool is_in_place = a->position == b->position && a->writes != b->writes && a->begin == b->begin &&
                       tu__collective_may_be_in_place(collective->kind);
    return overlap(a, b) && !is_in_place;
}

static tu_status fail_overwriting(const checker *c, const access *a) {
    const tu__collective *collective = &c->collectives->list[a->actor - c->list->queue_count];
    return tu_fail(TU_INTERNAL,
                   "the command list breaks rule 2: collective %u (%s) writes memory that it uses for "
                   "another value or cannot overwrite",
                   collective->index, tu__collective_name(collective->kind));
}

/* The position in a queue to report for an access: of a collective, the POST of a rank. */
static tu_status fail_unordered(const checker *c, const access *a, const access *b) {
    char what[160];
    const access *in_queue = a->actor < c->list->queue_count ? a : b, *other = in_queue == a ? b : a;
    if (in_queue->actor >= c->list->queue_count)
        return tu_fail(TU_INTERNAL,
                       "the command list breaks rule 2: collectives %u and %u touch the same memory at once",
                       a->actor - c->list->queue_count, b->actor - c->list->queue_count);
    if (other->actor >= c->list->queue_count)
        snprintf(what, sizeof what, "collective %u touches the same memory at the same time",
                 other->actor - c->list->queue_count);
    else
        snprintf(what, sizeof what, "command %u of another queue (%.80s) touches the same %s at once",
                 other->position,
                 tu__command_describe(&c->list->queues[other->actor].commands[other->position]).text,
                 a->external == TU_NO_NODE ? "memory" : "variable");
    return fail_rule(c, a->external == TU_NO_NODE ? 2 : 3, in_queue->actor, in_queue->position, what);
}

/* Compares an access with all those of copy queues and collectives to the same memory. */
static tu_status check_access(const checker *c, uint32_t partition, const access *a) {
    const access_list *list = &c->accesses[partition];
    uint32_t low = 0, high = list->count;
    while (low < high) { /* the first one that begins at or after the end of `a` */
        uint32_t middle = (low + high) / 2;
        bool is_after =
            a->external != TU_NO_NODE
                ? list->items[middle].external != TU_NO_NODE && list->items[middle].external > a->external
                : list->items[middle].external != TU_NO_NODE || list->items[middle].begin >= a->end;
        if (is_after)
            high = middle;
        else
            low = middle + 1;
    }
    while (low-- > 0) {
        const access *b = &list->items[low];
        if (a->external == TU_NO_NODE ? list->highest_end[low] <= a->begin : b->external != a->external)
            break;
        if (overwrites_itself(c, a, b)) return fail_overwriting(c, a);
        if (conflict(a, b) && !are_ordered(c, a, b)) return fail_unordered(c, a, b);
    }
    return TU_OK;
}

/* ---- Accesses of copy queues and collectives ---- */

static int compare_accesses(const void *left, const void *right) {
    const access *a = left, *b = right;
    bool a_outside = a->external != TU_NO_NODE, b_outside = b->external != TU_NO_NODE;
    if (a_outside != b_outside) return a_outside - b_outside; /* scratch memory first */
    if (a_outside) return (a->external > b->external) - (a->external < b->external);
    return (a->begin > b->begin) - (a->begin < b->begin);
}

static void add_access(const checker *c, tu_place place, bool writes, uint32_t actor, uint32_t position) {
    access_list *list = &c->accesses[place.partition];
    if (list->items)
        list->items[list->count] =
            describe_access(&c->partitions[place.partition], place.buffer, writes, actor, position);
    list->count++;
}

/* Without lists, only counts. */
static void list_accesses(const checker *c) {
    for (uint32_t q = 0; q < c->list->queue_count; q++) {
        const tu_command_queue *queue = &c->list->queues[q];
        for (uint32_t i = 0; i < queue->count && queue->source != queue->partition; i++) {
            if (queue->commands[i].kind != TU_COMMAND_COPY) continue;
            add_access(c, queue->commands[i].from, false, q, i);
            add_access(c, queue->commands[i].to, true, q, i);
        }
    }
    for (uint32_t k = 0; k < c->list->collective_count; k++) {
        const tu__collective *collective = &c->collectives->list[k];
        for (uint32_t r = 0; r < collective->ranks; r++)
            for (uint32_t v = 0; v < collective->value_count; v++) {
                const tu__member *member = &collective->members[r];
                uint32_t actor = c->list->queue_count + k;
                if (tu__collective_reads(collective, r, v))
                    add_access(c, (tu_place){member->partition, member->in[v]}, false, actor, v);
                if (tu__collective_writes(collective, r, v))
                    add_access(c, (tu_place){member->partition, member->out[v]}, true, actor, v);
            }
    }
}

static tu_status sort_accesses(checker *c) {
    list_accesses(c);
    for (uint32_t p = 0; p < c->list->partition_count; p++) {
        access_list *list = &c->accesses[p];
        list->items = tu__arena_alloc(&c->arena, (list->count + 1) * sizeof *list->items);
        list->highest_end = tu__arena_alloc(&c->arena, (list->count + 1) * sizeof *list->highest_end);
        if (!list->items || !list->highest_end) return TU_NO_MEMORY;
        list->count = 0;
    }
    list_accesses(c);
    for (uint32_t p = 0; p < c->list->partition_count; p++) {
        access_list *list = &c->accesses[p];
        if (list->count) qsort(list->items, list->count, sizeof *list->items, compare_accesses);
        for (uint32_t i = 0; i < list->count; i++) {
            size_t before = i ? list->highest_end[i - 1] : 0;
            list->highest_end[i] = list->items[i].end > before ? list->items[i].end : before;
        }
    }
    return TU_OK;
}

/* ---- Rules ---- */

static bool is_outside_scratch(const tu__partition *partition, uint32_t buffer) {
    return describe_access(partition, buffer, true, 0, 0).external != TU_NO_NODE;
}

static tu_status check_buffer(const checker *c, uint32_t queue, uint32_t position, uint32_t buffer,
                              bool writes, bool committed) {
    uint32_t partition = c->list->queues[queue].partition;
    const tu__partition *p = &c->partitions[partition];
    if (writes && !committed && is_outside_scratch(p, buffer))
        return fail_rule(c, 3, queue, position, "it writes a variable or a constant before COMMIT");
    if (!c->accesses[partition].count) return TU_OK;
    access a = describe_access(p, buffer, writes, queue, position);
    return check_access(c, partition, &a);
}

static tu_status check_kernel(const checker *c, uint32_t queue, uint32_t position, uint32_t kernel,
                              bool committed) {
    uint32_t partition = c->list->queues[queue].partition;
    const tu__partition *p = &c->partitions[partition];
    const tu_kernel *k = &p->plan->kernels[kernel];
    for (uint32_t i = 0; i < k->read_count; i++)
        TU_TRY(check_buffer(c, queue, position, k->reads[i], false, committed));
    for (uint32_t i = 0; i < k->write_count; i++)
        TU_TRY(check_buffer(c, queue, position, k->writes[i], true, committed));
    if (!k->workspace || !c->accesses[partition].count) return TU_OK;
    access a = {.actor = queue,
                .position = position,
                .writes = true,
                .external = TU_NO_NODE,
                .begin = p->memory.workspace_offset[kernel],
                .end = p->memory.workspace_offset[kernel] + k->workspace};
    return check_access(c, partition, &a);
}

static tu_status check_launch(const checker *c, uint32_t queue, uint32_t position, uint32_t *launched,
                              bool committed) {
    const tu_command *command = &c->list->queues[queue].commands[position];
    const tu__partition *p = &c->partitions[c->list->queues[queue].partition];
    if (command->first != *launched || command->count > p->plan->kernel_count - *launched)
        return fail_rule(c, 1, queue, position, "it does not continue the partition's order of kernels");
    for (uint32_t i = 0; i < command->count; i++)
        TU_TRY(check_kernel(c, queue, position, p->order[command->first + i], committed));
    *launched += command->count;
    return TU_OK;
}

static tu_status check_compute_queue(const checker *c, uint32_t queue) {
    const tu_command_queue *q = &c->list->queues[queue];
    const tu__partition *p = &c->partitions[q->partition];
    uint32_t launched = 0, commits = 0;
    for (uint32_t i = 0; i < q->count; i++) {
        const tu_command *command = &q->commands[i];
        bool committed = commits > 0;
        switch (command->kind) {
        case TU_COMMAND_LAUNCH: TU_TRY(check_launch(c, queue, i, &launched, committed)); break;
        case TU_COMMAND_FEED:
            TU_TRY(check_buffer(c, queue, i, c->list->feeds[command->index].place.buffer, true, committed));
            break;
        case TU_COMMAND_FETCH:
            TU_TRY(
                check_buffer(c, queue, i, c->list->fetches[command->index].place.buffer, false, committed));
            break;
        case TU_COMMAND_COPY:
            TU_TRY(check_buffer(c, queue, i, command->from.buffer, false, committed));
            TU_TRY(check_buffer(c, queue, i, command->to.buffer, true, committed));
            break;
        case TU_COMMAND_COMMIT:
            if (committed) return fail_rule(c, 3, queue, i, "the queue has committed before");
            commits++;
            break;
        default: break;
        }
    }
    if (launched != p->plan->kernel_count)
        return tu_fail(TU_INTERNAL, "the command list breaks rule 1: device '%s' launches %u of %u kernels",
                       p->device->name, launched, p->plan->kernel_count);
    return TU_OK;
}

/* Copies and collectives never write variables, which only change after COMMIT. */
static tu_status check_other_accesses(const checker *c, uint32_t partition) {
    const access_list *list = &c->accesses[partition];
    for (uint32_t i = 0; i < list->count; i++) {
        const access *a = &list->items[i];
        if (a->writes && a->external != TU_NO_NODE && a->actor < c->list->queue_count)
            return fail_rule(c, 3, a->actor, a->position, "it writes a variable or a constant");
        if (a->writes && a->external != TU_NO_NODE)
            return tu_fail(TU_INTERNAL, "the command list breaks rule 3: collective %u writes a variable",
                           a->actor - c->list->queue_count);
        TU_TRY(check_access(c, partition, a));
    }
    return TU_OK;
}

static tu_status check_rules(checker *c) {
    TU_TRY(check_commands(c));
    TU_TRY(execute_steps(c));
    TU_TRY(check_commits(c));
    TU_TRY(sort_accesses(c));
    for (uint32_t q = 0; q < c->list->queue_count; q++)
        if (c->list->queues[q].source == c->list->queues[q].partition) TU_TRY(check_compute_queue(c, q));
    for (uint32_t p = 0; p < c->list->partition_count; p++) TU_TRY(check_other_accesses(c, p));
    return TU_OK;
}

static tu_status allocate(checker *c) {
    const tu_command_list *list = c->list;
    size_t collectives = list->collective_count;
    c->first = tu__arena_alloc(&c->arena, list->queue_count * sizeof *c->first);
    if (!c->first) return TU_NO_MEMORY;
    for (uint32_t q = 0; q < list->queue_count; q++) {
        c->first[q] = c->command_count;
        c->command_count += list->queues[q].count;
    }
    c->actor_count = list->queue_count + list->collective_count;
    size_t clock = c->actor_count * sizeof *c->clocks;
    c->clocks = tu__arena_alloc(&c->arena, STEPS * c->command_count * clock);
    c->reduce_clock = tu__arena_alloc(&c->arena, STEPS * collectives * clock);
    c->posts = tu__arena_alloc(&c->arena, STEPS * collectives * sizeof *c->posts);
    c->stages = tu__arena_alloc(&c->arena, collectives * TU__MAX_DEVICES);
    c->is_signalled = tu__arena_alloc(&c->arena, list->event_count * sizeof *c->is_signalled);
    c->event_clock = tu__arena_alloc(&c->arena, STEPS * list->event_count * sizeof(uint32_t *));
    c->done = tu__arena_alloc(&c->arena, list->queue_count * sizeof *c->done);
    c->accesses = tu__arena_alloc(&c->arena, list->partition_count * sizeof *c->accesses);
    return c->clocks && c->reduce_clock && c->posts && c->stages && c->is_signalled && c->event_clock &&
                   c->done && c->accesses
               ? TU_OK
               : TU_NO_MEMORY;
}

tu_status tu__command_list_check(const tu__command_list *list, const tu__collectives *collectives,
                                 const tu__partition *partitions) {
    checker c = {.list = &list->list,
                 .collectives = collectives,
                 .partitions = partitions,
                 .arena = {.purpose = "checking a command list"}};
    tu_status status = allocate(&c);
    if (status == TU_OK) status = check_rules(&c);
    tu__arena_free(&c.arena);
    return status;
}
