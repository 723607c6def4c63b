/* Collectives of programs that several processes run together.
 *
 * The last local rank to POST gives the collective to the group's communication thread, which exchanges the values with
 * the other processes (comm/group_reduce.c) while the devices go on computing. The thread gets the collectives of a step in the
 * order of the program, so all processes perform them in the same order, even if devices post them in another one.
 * AWAIT waits until the thread is done. A rank awaits a collective only after it has posted all earlier ones
 * (compile/collectives.h), so this order cannot deadlock.
 *
 * If the processes share memory, no thread is free to communicate while the cores compute, and handing a small sum to
 * another thread takes longer than adding it. Then AWAIT adds: every local rank a part, with the threads of its device,
 * as in collectives of one process. But the source of a broadcast, for which others wait and which itself may not need
 * the result for long, takes part at POST if it has performed all earlier collectives.
 *
 * Values of devices whose memory is not the host's are downloaded and uploaded by the communication thread, unless the
 * devices are connected (connect_processes.h). Then it launches the collective on the first rank's device, in a queue of
 * its own, because compute threads launch in the others, and waits for it. */
#include "run/group_collective.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/parallel.h"
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

/* A portion of a collective's work (comm/communicator.h), which is performed at once. */
typedef struct portion {
    tu__group_collective *of;
    uint32_t index;
} portion;

/* Returns input `index` in a range: in place, or downloaded into its area of the staging buffer. */
static tu_status read_values(const portion *p, const tu_combination *what, const tu__segment_range *range,
                             uint32_t index, const void **values) {
    const tu__group_collective *g = p->of;
    const tu__part *part =
        part_of_rank(g, tu__communicator_rank_of_input(communicator_of(g), p->index, index));
    size_t size = tu_dtype_size(what->dtype);
    const char *from = (const char *)what->segments[range->segment].in[index] + range->first * size;
    *values = from;
    if (part->device->api->host_memory) return TU_OK;
    char *area = g->execution->group.staging + index * (size_t)TU__PIECE_BYTES;
    *values = area;
    tu_status status = tu__download(part->device, area, from, range->count * size);
    return status == TU_OK ? TU_OK : tu__part_fail(part, status);
}

static tu_status load(void *context, const tu_combination *what, const tu__segment_range *range, void *sum) {
    const void *in[TU__MAX_DEVICES];
    for (uint32_t k = 0; k < what->in_count; k++) TU_TRY(read_values(context, what, range, k, &in[k]));
    tu__local_add(what->dtype, what->in_count, in, range->count, sum);
    return TU_OK;
}

/* True if a result is the source of a broadcast itself, such as a variable. */
static bool is_source(const portion *p, const tu_combination *what, const tu_combine_segment *segment,
                      uint32_t out) {
    return p->of->collective->kind == TU__BROADCAST && what->in_count && segment->out[out] == segment->in[0];
}

static tu_status store(void *context, const tu_combination *what, const tu__segment_range *range,
                       const void *sum) {
    const portion *p = context;
    const tu_combine_segment *segment = &what->segments[range->segment];
    size_t size = tu_dtype_size(what->dtype);
    for (uint32_t k = 0; k < what->out_count; k++) {
        const tu__part *part =
            part_of_rank(p->of, tu__communicator_rank_of_output(communicator_of(p->of), p->index, k));
        if (is_source(p, what, segment, k)) continue;
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

static tu__collective_kind kind_of_portion(tu__collective_kind kind) {
    return kind == TU__REDUCE_SCATTER ? TU__REDUCE : kind == TU__ALL_GATHER ? TU__BROADCAST : kind;
}

/* Returns the process that alone has the values of a portion, or gets its result. */
static uint32_t root_of_portion(const tu__group_collective *g, uint32_t index) {
    uint32_t rank = tu__communicator_rank_of_portion(communicator_of(g), index);
    return tu__process_of_rank(&g->execution->program->unit.replication, rank);
}

/* The values of one element type in a portion. */
static tu__group_work work_of(portion *p, uint32_t index) {
    const tu__communicator *c = communicator_of(p->of);
    return (tu__group_work){.kind = kind_of_portion(c->kind),
                            .root = root_of_portion(p->of, p->index),
                            .what = &tu__communicator_of_rank(c, p->index)[index],
                            .load = load,
                            .store = store,
                            .context = p};
}

/* Performs part `part` of `parts` of all portions. */
static tu_status perform(tu_process_group *group, tu__group_collective *g, uint32_t part, uint32_t parts,
                         double *waited) {
    const tu__communicator *c = communicator_of(g);
    for (portion p = {.of = g}; p.index < tu__communicator_portion_count(c); p.index++)
        for (uint32_t i = 0; i < c->combination_count; i++) {
            const tu__group_work work = work_of(&p, i);
            TU_TRY(tu__group_perform_part(group, &work, part, parts, waited));
        }
    return TU_OK;
}

static tu_status perform_on_host(tu_process_group *group, tu__group_collective *g) {
    double waited = 0;
    return perform(group, g, 0, 1, &waited);
}

typedef struct launched {
    const tu__part *part;
    tu_queue *queue;
    tu_status status;
} launched;

static tu_status is_done(void *context, bool *done) {
    launched *l = context;
    *done = false;
    l->status = l->part->device->api->synchronize(l->queue, TU_ALL_EVENTS, 0, done);
    *done = *done || l->status != TU_OK;
    return TU_OK;
}

/* After a failure the device may never finish. */
static tu_status perform_on_devices(tu_process_group *group, const tu__group_collective *g) {
    launched l = {.part = part_of_rank(g, 0), .queue = g->execution->group.queue};
    const tu_device_api *api = l.part->device->api;
    tu_status status = api->launch(l.part->device->instance, g->executable, 0, 1);
    if (status == TU_OK) status = tu__group_wait(group, is_done, &l);
    if (status == TU_OK) status = l.status;
    if (status == TU_OK) return TU_OK;
    if (api->abandon) api->abandon(l.part->device->instance);
    status = tu__group_explain(group, status);
    return status == TU_LOST ? status : tu__part_fail(l.part, status);
}

static tu_status run(tu_process_group *group, void *context) {
    tu__group_collective *g = context;
    TU_TRY(wait_for_devices(g));
    tu__group_progress(group); /* only now the process waits for others */
    double began = tu__trace_now(g->execution);
    TU_TRY(g->collective->path == TU__COLLECTIVE_BY_DEVICES ? perform_on_devices(group, g)
                                                            : perform_on_host(group, g));
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
    if (p->connection) return false;
    for (size_t i = 0; i < p->device_count; i++)
        if (!p->devices[i]->api->host_memory) return true;
    return false;
}

/* Returns the number of combinations of all portions. */
static uint32_t combination_count(const tu__communicator *c) {
    return tu__communicator_portion_count(c) * c->combination_count;
}

/* Finds the routes of a collective, if they are not known yet. */
static tu_status find_routes(tu__group_collective *g) {
    const tu__communicator *c = communicator_of(g);
    uint32_t count = combination_count(c);
    if (c->kind == TU__ALL_REDUCE || g->routes) return TU_OK;
    g->routes = tu__alloc_array(count, sizeof *g->routes, "the routes of a collective");
    if (!g->routes) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t root = root_of_portion(g, i / c->combination_count);
        bool adds = kind_of_portion(c->kind) == TU__REDUCE;
        g->routes[i] = (tu_route){adds ? TU_ALL_PROCESSES : root, adds ? root : TU_ALL_PROCESSES};
    }
    return TU_OK;
}

tu_status tu__group_describe(const tu__execution *e, uint32_t index, tu_collective *what) {
    tu__group_collective *g = &e->group.list[index];
    const tu__communicator *c = communicator_of(g);
    TU_TRY(find_routes(g));
    *what = (tu_collective){.struct_size = sizeof *what,
                            .count = combination_count(c),
                            .combinations = tu__communicator_of_rank(c, 0),
                            .processes = &e->program->processes,
                            .routes = g->routes};
    return TU_OK;
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

static tu_status build(tu__execution *e, tu__group_collective *g) {
    const tu__device *d = part_of_rank(g, 0)->device;
    tu_collective what;
    tu_executable *built;
    if (g->executable) return TU_OK;
    TU_TRY(tu__group_describe(e, g->collective->index, &what));
    if (!e->group.queue) {
        tu_queue *queue;
        TU_TRY(d->api->queue_new(d->instance, 0, &queue));
        e->group.queue = queue;
    }
    TU_TRY(d->api->build_collective(d->instance, e->group.queue, &what, &built));
    g->executable = built;
    return TU_OK;
}

tu_status tu__group_run_build(tu__execution *e) {
    if (!e->program->connection) return TU_OK;
    for (uint32_t i = 0; i < e->program->collectives.count; i++) TU_TRY(build(e, &e->group.list[i]));
    return TU_OK;
}

void tu__group_run_unbuild(tu__execution *e) {
    if (!e->group.queue) return;
    const tu__device *d = part_of_rank(&e->group.list[0], 0)->device;
    for (uint32_t i = 0; i < e->program->collectives.count; i++) {
        if (e->group.list[i].executable) d->api->executable_free(d->instance, e->group.list[i].executable);
        e->group.list[i].executable = NULL;
    }
    d->api->queue_free(d->instance, e->group.queue);
    e->group.queue = NULL;
}

void tu__group_run_free(tu__execution *e) {
    if (!e->program->group) return;
    for (uint32_t i = 0; e->group.list && i < e->program->collectives.count; i++)
        tu__free(e->group.list[i].routes);
    tu__free(e->group.list);
    tu__free_aligned(e->group.staging);
    pthread_cond_destroy(&e->group.idle);
    pthread_mutex_destroy(&e->group.lock);
}

/* ---- Steps ---- */

void tu__group_begin_step(tu__execution *e) {
    if (!e->program->group) return;
    tu__group_set_begun(e->program->group);
    e->group.next = 0;
    e->group.first_number = tu__group_number(e->program->group, e->program->collectives.count);
    atomic_store(&e->group.entered, 0);
    atomic_store(&e->group.left, 0);
    for (uint32_t i = 0; i < e->program->collectives.count; i++) {
        e->group.list[i].posted = 0;
        e->group.list[i].is_performed = false;
    }
}

void tu__group_end_step(tu__execution *e, tu_status status) {
    if (!e->program->group) return;
    if (status != TU_OK && status != TU_LOST) tu__group_fail(e->program->group, status, tu_message());
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
        next->job.number = run_state->first_number + run_state->next;
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
    if (!in_time) return tu__group_fail_late(e->program->group, e->sync.timeout);
    tu__trace_add(e, TU__SPAN_COLLECTIVE_WAIT, part->index, member->membership, began);
    return TU_OK;
}

/* ---- In shared memory ---- */

/* The first local rank that begins a collective tells the monitor, and so does the last one that ends it. */
static void enter(tu__execution *e, const tu__collective *c) {
    if (atomic_fetch_add(&e->group.entered, 1) % c->ranks == 0)
        tu__group_enter(e->program->group, e->group.first_number + c->index,
                        e->group.list[c->index].job.name);
}

static void leave(tu__execution *e, const tu__collective *c) {
    if (atomic_fetch_add(&e->group.left, 1) % c->ranks == c->ranks - 1) tu__group_leave(e->program->group);
}

/* Adds the spans of a collective to the trace: first that of waiting for other processes. */
static void trace(tu__execution *e, const tu__part *part, uint32_t membership, double began, double waited) {
    tu__trace_add_span(e, TU__SPAN_COLLECTIVE_WAIT, part->index, membership, began, began + waited);
    tu__trace_add_span(e, TU__SPAN_COLLECTIVE, part->index, membership, began + waited, tu__now());
}

tu_status tu__group_collective_run(tu__execution *e, const tu__part *part, const tu__collective *c) {
    const tu__member *member = c->members;
    while (member->partition != part->index) member++;
    tu_process_group *group = e->program->group;
    double began = tu__trace_now(e), waited = 0;
    if (e->group.list[c->index].is_performed) return TU_OK;
    enter(e, c);
    atomic_fetch_add(&group->awaiting, 1);
    tu__parallel_setting saved = tu__parallel_begin(part->device->threads);
    tu_status status =
        perform(group, &e->group.list[c->index], (uint32_t)(member - c->members), c->ranks, &waited);
    tu__parallel_end(saved);
    atomic_fetch_sub(&group->awaiting, 1);
    leave(e, c);
    if (status != TU_OK) return status;
    if (tu__is_traced(e)) trace(e, part, member->membership, began, waited);
    if (member == c->members) tu__group_add_waited(group, waited);
    return TU_OK;
}

tu_status tu__group_collective_send(tu__execution *e, const tu__part *part, const tu__collective *c) {
    bool is_root = c->root >= c->first_rank && c->root < c->first_rank + c->ranks;
    /* With one local rank, as many ranks as collectives have left. */
    bool is_next = c->ranks == 1 && atomic_load(&e->group.left) == c->index;
    if (c->kind != TU__BROADCAST || !is_root || !is_next) return TU_OK;
    TU_TRY(tu__group_collective_run(e, part, c));
    e->group.list[c->index].is_performed = true;
    return TU_OK;
}
