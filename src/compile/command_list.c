/* Writes the command list of a program.
 *
 * A kernel that reads a value from another device, or has a control dependency on it, comes after the WAIT for its
 * copy. The SIGNAL that a value for another partition is computed comes right after the kernel that writes it; if no
 * kernel does, before the first kernel. COMMIT comes before the kernels that change variables; before it, the queue
 * waits until all values have been received, and until other partitions have read its variables. Adjacent kernels
 * become one LAUNCH. collectives.h says where collectives are posted and awaited.
 *
 * At the end of its step, a partition waits until the values that it sent have arrived, because the next step
 * overwrites them. A copy waits until the receiving partition has ended the previous step, for the same reason. */
#include "compile/command_list.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"

typedef struct send { /* a value that another partition receives */
    tu__receive *receive;
    const struct send *next; /* next value written by the same kernel */
} send;

/* A POST or an AWAIT before the kernel at a position of the order. */
typedef struct collective_action {
    uint32_t position, membership;
    bool is_await; /* false: POST */
} collective_action;

/* The compute queue of one partition while it is written. */
typedef struct queue_writer {
    tu__partition *partitions, *partition;
    uint32_t count, index; /* number of partitions, and index of this one */
    tu_command *commands;
    uint32_t command_count;
    uint32_t *receive_of; /* per buffer: index of the receive that fills it, or TU_NO_NODE */
    bool *is_awaited;     /* per receive: a WAIT is written */
    uint32_t *first_wait; /* per position: first control dependency on a receive, or TU_NO_NODE */
    uint32_t *written_by; /* per buffer: index into `sends_of` */
    /* Lists of sends: one per kernel, one for values that no kernel writes, and one per collective. */
    const send **sends_of;
    send *sends;
    uint32_t send_count;
    collective_action *actions; /* sorted by position */
    uint32_t next_action;
    tu__receive **last_sent; /* per partition: the last value sent to it; NULL: none */
} queue_writer;

/* ---- Collecting dependencies ---- */

static void index_receives(queue_writer *w) {
    for (uint32_t b = 0; b < w->partition->plan->buffer_count; b++) w->receive_of[b] = TU_NO_NODE;
    for (uint32_t i = 0; i < w->partition->receive_count; i++)
        w->receive_of[w->partition->receives[i].buffer] = i;
}

static void index_writers(queue_writer *w) {
    const tu_plan *plan = w->partition->plan;
    for (uint32_t b = 0; b < plan->buffer_count; b++) w->written_by[b] = plan->kernel_count;
    for (uint32_t k = 0; k < plan->kernel_count; k++)
        for (uint32_t i = 0; i < plan->kernels[k].write_count; i++)
            w->written_by[plan->kernels[k].writes[i]] = k;
    for (uint32_t i = 0; i < w->partition->collective_count; i++) {
        const tu__collective *c = w->partition->collectives[i].collective;
        uint32_t rank = w->partition->collectives[i].rank;
        for (uint32_t v = 0; v < c->value_count; v++)
            if (tu__collective_writes(c, rank, v))
                w->written_by[c->members[rank].out[v]] = plan->kernel_count + 1 + i;
    }
}

static int compare_actions(const void *left, const void *right) {
    const collective_action *a = left, *b = right;
    if (a->position != b->position) return a->position < b->position ? -1 : 1;
    if (a->membership != b->membership) return a->membership < b->membership ? -1 : 1;
    return a->is_await - b->is_await;
}

static void sort_actions(queue_writer *w) {
    uint32_t count = w->partition->collective_count;
    for (uint32_t i = 0; i < count; i++) {
        const tu__membership *m = &w->partition->collectives[i];
        const tu__member *member = &m->collective->members[m->rank];
        w->actions[2 * i] = (collective_action){.position = member->post_position, .membership = i};
        w->actions[2 * i + 1] =
            (collective_action){.position = member->wait_position, .membership = i, .is_await = true};
    }
    if (count) qsort(w->actions, 2 * (size_t)count, sizeof *w->actions, compare_actions);
}

static void index_sends(queue_writer *w) {
    for (uint32_t p = 0; p < w->count; p++)
        for (uint32_t i = 0; i < w->partitions[p].receive_count; i++) {
            tu__receive *receive = &w->partitions[p].receives[i];
            if (receive->source_partition != w->index) continue;
            const send **list = &w->sends_of[w->written_by[receive->source_buffer]];
            send *next = &w->sends[w->send_count++];
            *next = (send){.receive = receive, .next = *list};
            *list = next;
        }
}

/* ---- Writing a compute queue ---- */

/* Adjacent kernels become one LAUNCH. */
static void add(queue_writer *w, tu_command command) {
    bool continues_launch = command.kind == TU_COMMAND_LAUNCH && w->command_count &&
                            w->commands[w->command_count - 1].kind == TU_COMMAND_LAUNCH;
    if (continues_launch)
        w->commands[w->command_count - 1].count += command.count;
    else
        w->commands[w->command_count++] = command;
}

/* Signals the values of list `source` of `sends_of`. */
static void signal_sends(queue_writer *w, uint32_t source) {
    for (const send *s = w->sends_of[source]; s; s = s->next) {
        add(w, (tu_command){.kind = TU_COMMAND_SIGNAL, .index = s->receive->produced});
        w->last_sent[s->receive->partition] = s->receive;
    }
}

static void wait_for_receive(queue_writer *w, uint32_t index) {
    if (w->is_awaited[index]) return;
    w->is_awaited[index] = true;
    add(w, (tu_command){.kind = TU_COMMAND_WAIT, .index = w->partition->receives[index].received});
}

static void wait_for_inputs(queue_writer *w, const tu_kernel *k) {
    for (uint32_t i = 0; i < k->read_count; i++)
        if (w->receive_of[k->reads[i]] != TU_NO_NODE) wait_for_receive(w, w->receive_of[k->reads[i]]);
}

static void index_waits(queue_writer *w) {
    for (uint32_t i = 0; i < w->partition->plan->kernel_count + 1; i++) w->first_wait[i] = TU_NO_NODE;
    for (uint32_t i = 0; i < w->partition->wait_count; i++) {
        tu__wait *wait = &w->partition->waits[i];
        wait->next = w->first_wait[wait->position];
        w->first_wait[wait->position] = i;
    }
}

/* Waits for the control dependencies of the kernel at `position`. */
static void wait_for_control_dependencies(queue_writer *w, uint32_t position) {
    for (uint32_t i = w->first_wait[position]; i != TU_NO_NODE; i = w->partition->waits[i].next)
        wait_for_receive(w, w->receive_of[w->partition->waits[i].buffer]);
}

static void write_post(queue_writer *w, uint32_t membership) {
    const tu__membership *m = &w->partition->collectives[membership];
    const tu__member *member = &m->collective->members[m->rank];
    for (uint32_t v = 0; v < m->collective->value_count; v++)
        if (w->receive_of[member->in[v]] != TU_NO_NODE) wait_for_receive(w, w->receive_of[member->in[v]]);
    add(w, (tu_command){.kind = TU_COMMAND_POST, .index = m->collective->index});
}

/* Writes the POSTs and AWAITs of collectives that come before the kernel at `position`. */
static void write_collectives(queue_writer *w, uint32_t position) {
    for (; w->next_action < 2 * w->partition->collective_count &&
           w->actions[w->next_action].position == position;
         w->next_action++) {
        const collective_action *a = &w->actions[w->next_action];
        if (!a->is_await) {
            write_post(w, a->membership);
            continue;
        }
        add(w, (tu_command){.kind = TU_COMMAND_AWAIT,
                            .index = w->partition->collectives[a->membership].collective->index});
        signal_sends(w, w->partition->plan->kernel_count + 1 + a->membership);
    }
}

/* Before variables change: waits for all values that no kernel waited for, which are only fetched or assigned, and
 * until other partitions have read the old values of this one's variables. */
static void write_commit(queue_writer *w) {
    for (uint32_t i = 0; i < w->partition->receive_count; i++) wait_for_receive(w, i);
    for (uint32_t i = 0; i < w->send_count; i++)
        if (w->sends[i].receive->is_persistent)
            add(w, (tu_command){.kind = TU_COMMAND_WAIT, .index = w->sends[i].receive->received});
    add(w, (tu_command){.kind = TU_COMMAND_COMMIT});
}

static void write_kernels(queue_writer *w) {
    const tu__partition *partition = w->partition;
    uint32_t kernels = partition->plan->kernel_count,
             compute_kernel_count = kernels - partition->update_kernel_count;
    signal_sends(w, kernels);
    for (uint32_t i = 0; i < kernels; i++) {
        write_collectives(w, i);
        wait_for_control_dependencies(w, i);
        wait_for_inputs(w, &partition->plan->kernels[partition->order[i]]);
        if (i == compute_kernel_count) write_commit(w);
        add(w, (tu_command){.kind = TU_COMMAND_LAUNCH, .first = i, .count = 1});
        signal_sends(w, partition->order[i]);
    }
    write_collectives(w, kernels);
    if (!partition->update_kernel_count) write_commit(w);
}

static void write_slots(queue_writer *w, tu_command_kind kind, uint32_t count, const tu_slot *slots) {
    for (uint32_t i = 0; i < count; i++)
        if (slots[i].place.partition == w->index) add(w, (tu_command){.kind = kind, .index = i});
}

static void write_update(queue_writer *w, uint32_t update, uint32_t from, uint32_t to) {
    add(w, (tu_command){.kind = TU_COMMAND_COPY,
                        .index = update,
                        .from = {w->index, from},
                        .to = {w->index, to},
                        .bytes = w->partition->plan->buffers[w->partition->updates[update].buffer].bytes});
}

/* Copies next values that are not computed in place to their variables: those that are variables themselves to staging
 * buffers first, so that two variables can be swapped. */
static void write_updates(queue_writer *w) {
    tu__partition *partition = w->partition;
    for (uint32_t i = 0; i < partition->update_count; i++) {
        const tu__update *u = &partition->updates[i];
        if (u->staging_buffer != TU_NO_NODE) write_update(w, i, u->buffer, u->staging_buffer);
    }
    for (uint32_t i = 0; i < partition->update_count; i++) {
        const tu__update *u = &partition->updates[i];
        if (!u->in_place)
            write_update(w, i, u->staging_buffer == TU_NO_NODE ? u->buffer : u->staging_buffer,
                         u->target_buffer);
    }
}

static void write_end(queue_writer *w, uint32_t ended) {
    for (uint32_t p = 0; p < w->count; p++)
        if (w->last_sent[p])
            add(w, (tu_command){.kind = TU_COMMAND_WAIT, .index = w->last_sent[p]->received});
    if (w->partition->receive_count) add(w, (tu_command){.kind = TU_COMMAND_SIGNAL, .index = ended});
}

static bool allocate_writer(queue_writer *w, tu__arena *temporary, tu__arena *arena, size_t slots) {
    const tu__partition *partition = w->partition;
    size_t buffers = partition->plan->buffer_count, kernels = partition->plan->kernel_count, sends = 0,
           collectives = partition->collective_count;
    for (uint32_t p = 0; p < w->count; p++)
        for (uint32_t i = 0; i < w->partitions[p].receive_count; i++)
            sends += w->partitions[p].receives[i].source_partition == w->index;
    w->receive_of = tu__arena_alloc(temporary, buffers * sizeof *w->receive_of);
    w->first_wait = tu__arena_alloc(temporary, (kernels + 1) * sizeof *w->first_wait);
    w->is_awaited = tu__arena_alloc(temporary, partition->receive_count);
    w->written_by = tu__arena_alloc(temporary, buffers * sizeof *w->written_by);
    w->sends_of = tu__arena_alloc(temporary, (kernels + 1 + collectives) * sizeof(send *));
    w->sends = tu__arena_alloc(temporary, sends * sizeof *w->sends);
    w->last_sent = tu__arena_alloc(temporary, w->count * sizeof(tu__receive *));
    w->actions = tu__arena_alloc(temporary, 2 * collectives * sizeof *w->actions);
    w->commands = tu__arena_alloc(arena, (kernels + partition->receive_count + 2 * sends + 2 * collectives +
                                          slots + 2 * (size_t)partition->update_count + w->count + 2) *
                                             sizeof *w->commands);
    return w->receive_of && w->is_awaited && w->first_wait && w->written_by && w->sends_of && w->sends &&
           w->last_sent && w->actions && w->commands;
}

/* Writes the compute queue of a partition. Sets the index of its first command after the last LAUNCH and COMMIT. */
static void write_compute_queue(queue_writer *w, const tu_command_list *list, uint32_t ended) {
    index_receives(w);
    index_waits(w);
    index_writers(w);
    index_sends(w);
    sort_actions(w);
    write_slots(w, TU_COMMAND_FEED, list->feed_count, list->feeds);
    write_kernels(w);
    w->partition->tail = w->command_count;
    write_slots(w, TU_COMMAND_FETCH, list->fetch_count, list->fetches);
    write_updates(w);
    write_end(w, ended);
    w->partition->commands = w->commands;
    w->partition->command_count = w->command_count;
}

/* ---- Copy queues ---- */

/* Returns the number of values that one partition receives from another. */
static uint32_t count_received(const tu__partition *partition, uint32_t source) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < partition->receive_count; i++)
        count += partition->receives[i].source_partition == source;
    return count;
}

/* Writes the copies from one partition to another, in the order in which the sender computes the values. */
static tu_status write_copy_queue(tu__command_list *l, const tu__partition *partitions, uint32_t from,
                                  uint32_t to, uint32_t ended, tu_command_queue *queue) {
    const tu__partition *source = &partitions[from];
    tu_command *commands = tu__arena_alloc(
        &l->arena, (3 * (size_t)count_received(&partitions[to], from) + 1) * sizeof *commands);
    if (!commands) return TU_NO_MEMORY;
    *queue = (tu_command_queue){.partition = to, .source = from, .commands = commands};
    commands[queue->count++] = (tu_command){.kind = TU_COMMAND_WAIT_PREVIOUS, .index = ended};
    for (uint32_t i = 0; i < source->command_count; i++) {
        if (source->commands[i].kind != TU_COMMAND_SIGNAL) continue;
        const tu__event *event = &l->events[source->commands[i].index];
        const tu__receive *receive = event->receive;
        if (!receive || receive->partition != to) continue;
        commands[queue->count++] = (tu_command){.kind = TU_COMMAND_WAIT, .index = receive->produced};
        commands[queue->count++] = (tu_command){.kind = TU_COMMAND_COPY,
                                                .index = (uint32_t)(receive - partitions[to].receives),
                                                .from = {from, receive->source_buffer},
                                                .to = {to, receive->buffer},
                                                .bytes = partitions[to].plan->buffers[receive->buffer].bytes};
        commands[queue->count++] = (tu_command){.kind = TU_COMMAND_SIGNAL, .index = receive->received};
    }
    return TU_OK;
}

/* ---- The list ---- */

/* True if a partition has no kernels, copies and collectives. It may still have inputs, results and assignments. */
static bool is_idle(const tu__partition *partitions, uint32_t count, uint32_t index) {
    const tu__partition *partition = &partitions[index];
    if (partition->plan->kernel_count || partition->receive_count || partition->collective_count)
        return false;
    for (uint32_t p = 0; p < count; p++)
        if (count_received(&partitions[p], index)) return false;
    return true;
}

/* Numbers the events: two per copy, and one per partition that receives. */
static tu_status number_events(tu__command_list *l, tu__partition *partitions, uint32_t count) {
    size_t receives = 0;
    for (uint32_t p = 0; p < count; p++) receives += partitions[p].receive_count;
    l->events = tu__arena_alloc(&l->arena, (2 * receives + count) * sizeof *l->events);
    if (!l->events) return TU_NO_MEMORY;
    uint32_t next = 0;
    for (uint32_t p = 0; p < count; p++) l->events[next++] = (tu__event){.partition = p};
    for (uint32_t p = 0; p < count; p++)
        for (uint32_t i = 0; i < partitions[p].receive_count; i++) {
            tu__receive *receive = &partitions[p].receives[i];
            receive->produced = next;
            l->events[next++] = (tu__event){.receive = receive, .partition = receive->source_partition};
            receive->received = next;
            l->events[next++] = (tu__event){.receive = receive, .is_received = true, .partition = p};
        }
    l->list.event_count = next;
    return TU_OK;
}

/* Gives buffers after those of the plan to assigned variables that no kernel reads, and to staging copies. */
static void number_update_buffers(tu__partition *partition) {
    uint32_t next = partition->plan->buffer_count;
    for (uint32_t i = 0; i < partition->update_count; i++) {
        tu__update *u = &partition->updates[i];
        u->staging_buffer = tu__update_needs_staging(partition, u) ? next++ : TU_NO_NODE;
        u->target_buffer = tu__partition_buffer(partition, (tu__edge){u->variable, 0});
        if (u->target_buffer == TU_NO_NODE) u->target_buffer = next++;
    }
    partition->buffer_count = next;
}

static tu_status write_compute(tu__command_list *l, tu__partition *partitions, uint32_t count, uint32_t index,
                               tu_command_queue *queue) {
    tu__arena temporary = {.purpose = "a command list"};
    queue_writer w = {
        .partitions = partitions, .partition = &partitions[index], .count = count, .index = index};
    bool allocated = allocate_writer(&w, &temporary, &l->arena, l->list.feed_count + l->list.fetch_count);
    if (allocated) write_compute_queue(&w, &l->list, index);
    tu__arena_free(&temporary);
    *queue = (tu_command_queue){
        .partition = index, .source = index, .count = w.command_count, .commands = w.commands};
    return allocated ? TU_OK : TU_NO_MEMORY;
}

/* Lists the copies that the threads of a partition perform, those of each queue in order. */
static tu_status list_copies(const tu__command_list *l, tu__partition *partitions, uint32_t index) {
    tu__partition *partition = &partitions[index];
    size_t count = 0;
    for (uint32_t e = 0; e < l->list.event_count; e++)
        count += l->events[e].is_received && l->events[e].receive->copied_by == index;
    partition->copies = tu__alloc_array(count, sizeof *partition->copies, "a partition");
    if (!partition->copies) return TU_NO_MEMORY;
    for (uint32_t q = 0; q < l->list.queue_count; q++) {
        const tu_command_queue *queue = &l->list.queues[q];
        for (uint32_t i = 0; i < queue->count && queue->source != queue->partition; i++) {
            if (queue->commands[i].kind != TU_COMMAND_COPY) continue;
            tu__receive *receive = &partitions[queue->partition].receives[queue->commands[i].index];
            if (receive->copied_by == index) partition->copies[partition->copy_count++] = receive;
        }
    }
    return TU_OK;
}

/* True if a partition signals a value before it waits for anything. */
static bool signals_before_waiting(const tu__partition *partition, const tu__receive *receive) {
    for (uint32_t i = 0; i < partition->command_count; i++) {
        const tu_command *c = &partition->commands[i];
        if (c->kind == TU_COMMAND_SIGNAL && c->index == receive->produced) return true;
        if (c->kind != TU_COMMAND_LAUNCH && c->kind != TU_COMMAND_SIGNAL && c->kind != TU_COMMAND_FEED)
            return false;
    }
    return false;
}

static void find_early_receives(tu__partition *partitions, uint32_t count) {
    for (uint32_t p = 0; p < count; p++)
        for (uint32_t i = 0; i < partitions[p].receive_count; i++) {
            tu__receive *receive = &partitions[p].receives[i];
            receive->is_early = receive->is_persistent ||
                                signals_before_waiting(&partitions[receive->source_partition], receive);
        }
}

/* True if a queue has nothing but COMMIT. */
static bool is_empty(const tu_command_queue *queue) {
    return queue->count == 1;
}

static tu_status write_queues(tu__command_list *l, tu__partition *partitions, uint32_t count) {
    tu_command_queue *queues = tu__arena_alloc(&l->arena, (size_t)count * count * sizeof *queues);
    if (!queues) return TU_NO_MEMORY;
    l->list.queues = queues;
    for (uint32_t p = 0; p < count; p++) {
        tu_command_queue *queue = &queues[l->list.queue_count];
        TU_TRY(write_compute(l, partitions, count, p, queue));
        if (is_empty(queue))
            partitions[p].command_count = partitions[p].tail = 0;
        else
            l->list.queue_count++;
    }
    for (uint32_t to = 0; to < count; to++)
        for (uint32_t from = 0; from < count; from++)
            if (count_received(&partitions[to], from))
                TU_TRY(write_copy_queue(l, partitions, from, to, to, &queues[l->list.queue_count++]));
    return TU_OK;
}

/* ---- A total order ---- */

typedef struct merger {
    const tu_command_list *list;
    uint32_t *next;     /* per queue: its next command */
    bool *is_signalled; /* per event */
    uint32_t *posted;   /* per collective: number of ranks that have posted */
    const tu__collectives *collectives;
} merger;

/* Executes the next command of a queue, if there is one and it need not wait. */
static bool advance(merger *m, uint32_t queue) {
    const tu_command_queue *q = &m->list->queues[queue];
    if (m->next[queue] == q->count) return false;
    const tu_command *c = &q->commands[m->next[queue]];
    if (c->kind == TU_COMMAND_WAIT && !m->is_signalled[c->index]) return false;
    if (c->kind == TU_COMMAND_AWAIT && m->posted[c->index] < m->collectives->list[c->index].ranks)
        return false;
    if (c->kind == TU_COMMAND_SIGNAL) m->is_signalled[c->index] = true;
    if (c->kind == TU_COMMAND_POST) m->posted[c->index]++;
    m->next[queue]++;
    return true;
}

/* Queues take turns. Stops early if commands wait for each other, which check_list.c reports. */
static tu_status merge_queues(tu__command_list *l, const tu__collectives *collectives) {
    tu__arena temporary = {.purpose = "a command list"};
    tu_command_list *list = &l->list;
    size_t total = 0;
    for (uint32_t q = 0; q < list->queue_count; q++) total += list->queues[q].count;
    merger m = {.list = list,
                .collectives = collectives,
                .next = tu__arena_alloc(&temporary, list->queue_count * sizeof *m.next),
                .is_signalled = tu__arena_alloc(&temporary, list->event_count),
                .posted = tu__arena_alloc(&temporary, list->collective_count * sizeof *m.posted)};
    uint32_t *order = tu__arena_alloc(&l->arena, total * sizeof *order);
    bool allocated = m.next && m.is_signalled && m.posted && order;
    for (bool progressed = allocated; progressed;) {
        progressed = false;
        for (uint32_t q = 0; q < list->queue_count; q++)
            if (advance(&m, q)) {
                order[list->command_count++] = q;
                progressed = true;
            }
    }
    list->order = order;
    tu__arena_free(&temporary);
    return allocated ? TU_OK : TU_NO_MEMORY;
}

tu_status tu__command_list_write(tu__command_list *l, const tu__collectives *collectives,
                                 tu__partition *partitions, uint32_t count, uint32_t feed_count,
                                 const tu_slot *feeds, uint32_t fetch_count, const tu_slot *fetches) {
    *l = (tu__command_list){.arena = {.purpose = "a command list"},
                            .list = {.struct_size = sizeof l->list,
                                     .partition_count = count,
                                     .collective_count = collectives->count,
                                     .feed_count = feed_count,
                                     .feeds = feeds,
                                     .fetch_count = fetch_count,
                                     .fetches = fetches}};
    TU_TRY(number_events(l, partitions, count));
    for (uint32_t p = 0; p < count; p++) partitions[p].is_idle = is_idle(partitions, count, p);
    for (uint32_t p = 0; p < count; p++) number_update_buffers(&partitions[p]);
    TU_TRY(write_queues(l, partitions, count));
    for (uint32_t p = 0; p < count; p++) TU_TRY(list_copies(l, partitions, p));
    find_early_receives(partitions, count);
    TU_TRY(merge_queues(l, collectives));
    return tu__command_list_check(l, collectives, partitions);
}

void tu__command_list_free(tu__command_list *l) {
    tu__arena_free(&l->arena);
    *l = (tu__command_list){0};
}

/* ---- Messages ---- */

tu__command_text tu__command_describe(const tu_command *c) {
    static const char *const names[] = {
        [TU_COMMAND_FEED] = "FEED",     [TU_COMMAND_LAUNCH] = "LAUNCH",
        [TU_COMMAND_COPY] = "COPY",     [TU_COMMAND_POST] = "POST",
        [TU_COMMAND_AWAIT] = "AWAIT",   [TU_COMMAND_SIGNAL] = "SIGNAL",
        [TU_COMMAND_WAIT] = "WAIT",     [TU_COMMAND_WAIT_PREVIOUS] = "WAIT_PREVIOUS",
        [TU_COMMAND_COMMIT] = "COMMIT", [TU_COMMAND_FETCH] = "FETCH"};
    tu__command_text t;
    if (c->kind == TU_COMMAND_LAUNCH)
        snprintf(t.text, sizeof t.text, "LAUNCH of kernels %u to %u", c->first, c->first + c->count - 1);
    else if (c->kind == TU_COMMAND_COPY)
        snprintf(t.text, sizeof t.text, "COPY from buffer %u of partition %u to buffer %u of partition %u",
                 c->from.buffer, c->from.partition, c->to.buffer, c->to.partition);
    else if (c->kind == TU_COMMAND_COMMIT)
        snprintf(t.text, sizeof t.text, "COMMIT");
    else if (c->kind >= sizeof names / sizeof *names) /* in a list that is wrong */
        snprintf(t.text, sizeof t.text, "unknown command %u", (unsigned)c->kind);
    else
        snprintf(t.text, sizeof t.text, "%s %u", names[c->kind], c->index);
    return t;
}
