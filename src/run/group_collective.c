/* Collectives of programs that several processes run together.
 *
 * The last local rank to POST gives the collective to the group's communication thread, which exchanges the values with
 * the other processes (comm/group_reduce.c) while the devices go on computing. The thread gets the collectives of a step in the
 * order of the program, so all processes perform them in the same order, even if devices post them in another one.
 * AWAIT waits until the thread is done. A rank awaits a collective only after it has posted all earlier ones
 * (compile/collectives.h), so this order cannot deadlock.
 *
 * Values of devices whose memory is not the host's are downloaded and uploaded by the communication thread. */
#include "run/group_collective.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "comm/comm.h"
#include "comm/group_reduce.h"
#include "run/execution.h"
#include "run/trace.h"

/* ---- Values of the local ranks ---- */

static const tu__part *part_of_rank(const tu__group_collective *g, uint32_t rank) {
    return &g->execution->parts[g->collective->members[rank].partition];
}

static const tu__communicator *communicator_of(const tu__group_collective *g) {
    return &g->execution->communicators[g->collective->index];
}

/* Returns input `index` in a range: in place, or downloaded into its area of the staging buffer. */
static tu_status read_values(const tu__group_collective *g, uint32_t part_index, const tu_combination *what,
                             const tu__segment_range *range, uint32_t index, const void **values) {
    const tu__part *part =
        part_of_rank(g, tu__communicator_rank_of_input(communicator_of(g), part_index, index));
    size_t size = tu_dtype_size(what->dtype);
    const char *from = (const char *)what->segments[range->segment].in[index] + range->first * size;
    *values = from;
    if (part->device->api->host_memory) return TU_OK;
    char *area = g->execution->group.staging + index * (size_t)TU__PIECE_BYTES;
    *values = area;
    tu_status status = tu__download(part->device, area, from, range->count * size);
    return status == TU_OK ? TU_OK : tu__part_fail(part, status);
}

static tu_status load(void *context, uint32_t part, const tu_combination *what,
                      const tu__segment_range *range, void *sum) {
    const tu__group_collective *g = context;
    const void *in[TU__MAX_DEVICES];
    for (uint32_t k = 0; k < what->in_count; k++) TU_TRY(read_values(g, part, what, range, k, &in[k]));
    tu__local_add(what->dtype, what->in_count, in, range->count, sum);
    return TU_OK;
}

/* True if a result is the source of a broadcast itself, such as a variable. */
static bool is_source(const tu_combine_segment *segment, uint32_t in_count, uint32_t out) {
    return in_count == 1 && segment->out[out] == segment->in[0];
}

static tu_status store(void *context, uint32_t part_index, const tu_combination *what,
                       const tu__segment_range *range, const void *sum) {
    const tu__group_collective *g = context;
    const tu_combine_segment *segment = &what->segments[range->segment];
    size_t size = tu_dtype_size(what->dtype);
    for (uint32_t k = 0; k < what->out_count; k++) {
        const tu__part *part =
            part_of_rank(g, tu__communicator_rank_of_output(communicator_of(g), part_index, k));
        if (g->collective->kind == TU__BROADCAST && is_source(segment, what->in_count, k)) continue;
        char *to = (char *)segment->out[k] + range->first * size;
        tu_status status = tu__upload(part->device, to, sum, range->count * size);
        if (status != TU_OK) return tu__part_fail(part, status);
    }
    return TU_OK;
}

/* ---- On the communication thread ---- */

static tu_status wait_for_devices(const tu__group_collective *g) {
    for (uint32_t r = 0; r < g->collective->ranks; r++) {
        const tu__part *part = part_of_rank(g, r);
        atomic_uint awaited = 0;
        if (part->queue)
            TU_TRY(tu__part_wait_event(part, part->queue, g->collective->members[r].posted, &awaited));
    }
    return TU_OK;
}

static uint32_t process_of(void *context, uint32_t rank) {
    const tu__group_collective *g = context;
    return tu__process_of_rank(&g->execution->program->unit.replication, rank);
}

static tu_status run(tu_process_group *group, void *context) {
    tu__group_collective *g = context;
    TU_TRY(wait_for_devices(g));
    double began = tu__trace_now(g->execution);
    TU_TRY(tu__group_perform(group, &(tu__group_work){.communicator = communicator_of(g),
                                                      .process_of = process_of,
                                                      .load = load,
                                                      .store = store,
                                                      .context = g}));
    for (uint32_t r = 0; r < g->collective->ranks; r++) {
        const tu__member *member = &g->collective->members[r];
        tu__trace_add(g->execution, TU__SPAN_COLLECTIVE, member->partition, member->membership, began);
    }
    return TU_OK;
}

static void finished(void *context, tu_status status) {
    const tu__group_collective *g = context;
    tu__execution *e = g->execution;
    if (status == TU_OK)
        for (uint32_t r = 0; r < g->collective->ranks; r++)
            tu__run_sync_signal(&e->sync, g->collective->members[r].done);
    else
        tu__run_sync_abort(&e->sync, status);
    pthread_mutex_lock(&e->group.lock);
    e->group.running--;
    pthread_cond_signal(&e->group.idle);
    pthread_mutex_unlock(&e->group.lock);
}

/* ---- Creating and freeing ---- */

static bool needs_staging(const tu_program *p) {
    for (size_t i = 0; i < p->device_count; i++)
        if (!p->devices[i]->api->host_memory) return true;
    return false;
}

tu_status tu__group_run_new(tu__execution *e) {
    tu__group_run *run_state = &e->group;
    const tu_program *p = e->program;
    if (!p->group) return TU_OK;
    pthread_mutex_init(&run_state->lock, NULL);
    pthread_cond_init(&run_state->idle, NULL);
    run_state->list =
        tu__alloc_array(p->collectives.count, sizeof *run_state->list, "a program's collectives");
    if (!run_state->list) return TU_NO_MEMORY;
    if (needs_staging(p)) {
        run_state->staging =
            tu__alloc_aligned(p->device_count * (size_t)TU__PIECE_BYTES, "collectives through the host");
        if (!run_state->staging) return TU_NO_MEMORY;
    }
    for (uint32_t i = 0; i < p->collectives.count; i++) {
        const tu__collective *c = &p->collectives.list[i];
        tu__group_collective *g = &run_state->list[i];
        *g = (tu__group_collective){
            .execution = e, .collective = c, .job = {.run = run, .finished = finished, .context = g}};
        snprintf(g->job.name, sizeof g->job.name, "%s of '%.100s'%s", tu__collective_name(c->kind),
                 p->unit.graph->nodes[c->members[0].nodes[0]]->name, c->value_count > 1 ? " and more" : "");
    }
    return TU_OK;
}

void tu__group_run_free(tu__execution *e) {
    if (!e->program->group) return;
    tu__free(e->group.list);
    tu__free_aligned(e->group.staging);
    pthread_cond_destroy(&e->group.idle);
    pthread_mutex_destroy(&e->group.lock);
}

/* ---- Steps ---- */

void tu__group_begin_step(tu__execution *e) {
    if (!e->program->group) return;
    e->group.next = 0;
    for (uint32_t i = 0; i < e->program->collectives.count; i++) e->group.list[i].posted = 0;
}

void tu__group_end_step(tu__execution *e, tu_status status) {
    if (!e->program->group) return;
    if (status != TU_OK && status != TU_LOST) tu__group_fail(e->program->group, tu_message());
    pthread_mutex_lock(&e->group.lock);
    while (e->group.running) pthread_cond_wait(&e->group.idle, &e->group.lock);
    pthread_mutex_unlock(&e->group.lock);
}

void tu__group_collective_post(tu__execution *e, const tu__collective *c) {
    tu__group_run *run_state = &e->group;
    pthread_mutex_lock(&run_state->lock);
    run_state->list[c->index].posted++;
    for (; run_state->next < e->program->collectives.count; run_state->next++) {
        tu__group_collective *next = &run_state->list[run_state->next];
        if (next->posted < next->collective->ranks) break;
        run_state->running++;
        tu__group_post(e->program->group, &next->job);
    }
    pthread_mutex_unlock(&run_state->lock);
}

tu_status tu__group_collective_await(tu__execution *e, tu__part *part, const tu__collective *c) {
    const tu__member *member = c->members;
    while (member->partition != part->index) member++;
    double began = tu__trace_now(e);
    atomic_fetch_add(&e->program->group->awaiting, 1);
    bool in_time = tu__run_sync_wait(&e->sync, part->index, member->done);
    atomic_fetch_sub(&e->program->group->awaiting, 1);
    if (!in_time)
        return tu_fail(TU_LOST, "device '%s' waited %g s for %s over all processes", part->device->name,
                       e->sync.timeout, e->group.list[c->index].job.name);
    tu__trace_add(e, TU__SPAN_COLLECTIVE_WAIT, part->index, member->membership, began);
    return TU_OK;
}
