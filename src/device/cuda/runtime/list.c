/* Enqueues steps of a command list (<tutti/device.h>) so that they can be captured as one CUDA graph.
 *
 * A compute queue is the stream of its partition's kernels; a copy queue has a stream of its own. The stream of the first compute queue
 * is the one that is captured. The others are forked from it with an event and joined to it at the end:
 *
 *     partition 0     in | kernels ─┬─ kernels ────────────────┬─  out |   in | …          next step
 *     0 to 1                        └─ copy ─┐                 │
 *     1 to 0                                 │        ┌─ copy ─┘
 *     partition 1     in | kernels ──────────┴ kernels┴───────────────  out |   in | …
 *
 * `in` copies inputs from ring slots, `out` copies results to ring slots (ring.c).
 *
 * Events of the list are CUDA events and become edges of the graph. There is no barrier between the steps of one
 * graph: a partition starts its next step as soon as the list's WAITs allow. Partitions that exchange nothing are
 * therefore independent chains through all steps of a graph. COMMIT is nothing: it lets a failing step leave the
 * variables unchanged, which many steps in one call do not promise. The first step of a graph follows all work before
 * it, so WAITs for its previous step are left out.
 *
 * Collectives run in separate streams, so that kernels that do not need the results continue. If all ranks are on one
 * GPU, one launch does the work of all ranks. GPUs with peer access each do their rank's part, so that all links between
 * them are used in parallel. The bits of the result are the same. A collective over processes runs on the first rank's
 * GPU (process_collective.c). The streams of all of them are one, so they run one after another, and in the order of the
 * list's collectives: processes may post them in different orders, such as the receivers of a broadcast, who have nothing to
 * compute before it.
 *
 * Streams of several GPUs are captured into one graph like those of one GPU: a kernel runs in the context of its
 * function, and edges may connect GPUs. Copies between GPUs with peer access are captured too. If a copy goes through
 * the host (`copies_via_host`), steps are not captured, because CUDA does not document how such copies behave in a
 * graph.
 *
 * Within a partition, kernels may be on several streams as well (capture_streams.c).
 */
#include "device/cuda/runtime/list.h"

#include "base/alloc.h"
#include "device/cuda/runtime/combine.h"

static tu_status create_event(CUevent *event) {
    CUDA_TRY(cuEventCreate, event, CU_EVENT_DISABLE_TIMING);
    return TU_OK;
}

static const tu_command_queue *commands_of(const cuda_list *l, uint32_t queue) {
    return &l->list->queues[queue];
}

/* The device that enqueues a queue's commands: of a copy queue, the receiver's. */
static cuda_member *member_of(const cuda_list *l, uint32_t queue) {
    return &l->members[commands_of(l, queue)->partition];
}

static CUstream compute_stream(const cuda_member *m) {
    return m->kernels->queue->stream;
}

static CUstream stream_of(const cuda_list *l, uint32_t queue) {
    return l->queues[queue].is_compute ? compute_stream(member_of(l, queue)) : l->queues[queue].stream;
}

cuda_queue *cuda_list_first_queue(const cuda_list *l) {
    return l->members[l->first].kernels->queue;
}

/* ---- Creating ---- */

static tu_status create_queue(cuda_list *l, uint32_t queue) {
    const tu_command_queue *q = commands_of(l, queue);
    cuda_member *m = member_of(l, queue);
    l->queues[queue].is_compute = q->source == q->partition;
    TU_TRY(cuda_make_current(m->device));
    for (uint32_t i = 0; i < q->count; i++)
        if (q->commands[i].kind == TU_COMMAND_SIGNAL) TU_TRY(create_event(&l->events[q->commands[i].index]));
    if (l->queues[queue].is_compute) return create_event(&m->posted);
    if (!cuda_have_peer_access(l->members[q->source].device, m->device)) l->copies_via_host = true;
    CUDA_TRY(cuStreamCreate, &l->queues[queue].stream, CU_STREAM_NON_BLOCKING);
    return TU_OK;
}

static cuda_member *member_of_rank(const cuda_list *l, uint32_t collective, uint32_t rank) {
    return &l->members[l->collectives[collective].partitions[rank]];
}

static uint32_t ranks_of(const cuda_list *l, uint32_t collective) {
    return l->collectives[collective].ranks;
}

static bool is_on_one_gpu(const cuda_list *l, uint32_t collective) {
    for (uint32_t r = 1; r < ranks_of(l, collective); r++)
        if (member_of_rank(l, collective, r)->device->handle !=
            member_of_rank(l, collective, 0)->device->handle)
            return false;
    return true;
}

static tu_status create_collective_stream(cuda_member *m) {
    if (m->collective_stream) return TU_OK;
    TU_TRY(cuda_make_current(m->device));
    CUDA_TRY(cuStreamCreate, &m->collective_stream, CU_STREAM_NON_BLOCKING);
    return create_event(&m->collective_done);
}

/* Prepares a collective over processes, if it is one. */
static tu_status prepare_over_processes(cuda_list *l, uint32_t collective) {
    const tu_list_collective *c = &l->collectives[collective];
    cuda_process_collective *prepared = &l->runs[collective].over_processes;
    const cuda_process_work work = {c->processes, c->combination_count, c->combinations,
                                    l->routes ? l->routes[collective] : NULL};
    if (!c->processes) return TU_OK;
    TU_TRY(cuda_process_collective_prepare(prepared, &work));
    l->connection = prepared->connection;
    if (cuda_connection_device(l->connection) == member_of_rank(l, collective, 0)->device) return TU_OK;
    return tu_fail(TU_UNSUPPORTED, "a collective over processes does not begin on the GPU that is connected");
}

static tu_status create_collective(cuda_list *l, uint32_t collective) {
    bool is_one_kernel = is_on_one_gpu(l, collective) || l->collectives[collective].processes;
    uint32_t running_ranks = is_one_kernel ? 1 : ranks_of(l, collective);
    for (uint32_t r = running_ranks; r-- > 0;)
        TU_TRY(create_collective_stream(member_of_rank(l, collective, r)));
    TU_TRY(cuda_make_current(member_of_rank(l, collective, 0)->device));
    TU_TRY(prepare_over_processes(l, collective));
    return create_event(&l->runs[collective].done);
}

tu_status cuda_list_new(cuda_list *l, const tu_list_binding *b) {
    const char *purpose = "a submitted command list";
    l->list = b->list;
    l->parts = b->parts;
    l->collectives = b->collectives;
    l->routes = b->routes;
    l->first = b->list->queues[0].partition;
    l->members = tu__alloc_array(b->list->partition_count, sizeof *l->members, purpose);
    l->queues = tu__alloc_array(b->list->queue_count, sizeof *l->queues, purpose);
    l->runs = tu__alloc_array(b->list->collective_count, sizeof *l->runs, purpose);
    l->events = tu__alloc_array(b->list->event_count, sizeof *l->events, purpose);
    if (!l->members || !l->queues || !l->runs || !l->events) return TU_NO_MEMORY;
    for (uint32_t p = 0; p < b->list->partition_count; p++) {
        if (!b->parts[p].device) continue;
        l->members[p].device = cuda_device_of(b->parts[p].device);
        l->members[p].kernels = &b->parts[p].executable->kernels;
    }
    for (uint32_t q = 0; q < b->list->queue_count; q++) TU_TRY(create_queue(l, q));
    for (uint32_t c = 0; c < b->list->collective_count; c++) TU_TRY(create_collective(l, c));
    return TU_OK;
}

/* ---- Freeing ---- */

static void destroy_stream(CUstream stream) {
    if (!stream) return;
    cuda.cuStreamSynchronize(stream);
    cuda.cuStreamDestroy(stream);
}

static void destroy_events(CUevent *events, uint32_t count) {
    for (uint32_t i = 0; events && i < count; i++)
        if (events[i]) cuda.cuEventDestroy(events[i]);
}

void cuda_list_free(cuda_list *l) {
    if (!l->list) return;
    for (uint32_t q = 0; l->queues && q < l->list->queue_count; q++) destroy_stream(l->queues[q].stream);
    destroy_events(l->events, l->list->event_count);
    for (uint32_t c = 0; l->runs && c < l->list->collective_count; c++) {
        destroy_events(&l->runs[c].done, 1);
        cuda_process_collective_free(&l->runs[c].over_processes);
    }
    for (uint32_t p = 0; l->members && p < l->list->partition_count; p++) {
        cuda_member *m = &l->members[p];
        destroy_stream(m->collective_stream);
        destroy_events(&m->collective_done, 1);
        destroy_events(&m->posted, 1);
        cuda_ring_free(m->ring);
    }
    if (l->members && l->members[l->first].device) /* restore the context that was current before */
        cuda.cuCtxSetCurrent(l->members[l->first].device->context);
    tu__free(l->members);
    tu__free(l->queues);
    tu__free(l->runs);
    tu__free(l->events);
    *l = (cuda_list){0};
}

/* ---- Copies ---- */

static CUdeviceptr address_of(const cuda_list *l, tu_place place) {
    return cuda_address(l->parts[place.partition].buffers[place.buffer]);
}

/* The driver copies directly between two GPUs if peer access is enabled. */
static tu_status enqueue_copy(const cuda_list *l, uint32_t queue, const tu_command *c) {
    const cuda_device *from = l->members[c->from.partition].device, *to = l->members[c->to.partition].device;
    CUstream stream = stream_of(l, queue);
    if (!c->bytes) return TU_OK;
    if (to->handle == from->handle)
        CUDA_TRY(cuMemcpyDtoDAsync, address_of(l, c->to), address_of(l, c->from), c->bytes, stream);
    else
        CUDA_TRY(cuMemcpyPeerAsync, address_of(l, c->to), to->context, address_of(l, c->from), from->context,
                 c->bytes, stream);
    return TU_OK;
}

/* ---- Collectives ---- */

/* Makes `stream` wait until all ranks have posted their values. */
static tu_status wait_for_all_ranks(const cuda_list *l, uint32_t collective, CUstream stream) {
    for (uint32_t r = 0; r < ranks_of(l, collective); r++)
        CUDA_TRY(cuStreamWaitEvent, stream, member_of_rank(l, collective, r)->posted, 0);
    return TU_OK;
}

static tu_status run_all_ranks(const cuda_list *l, uint32_t collective) {
    const cuda_member *first = member_of_rank(l, collective, 0);
    const tu_list_collective *c = &l->collectives[collective];
    TU_TRY(cuda_make_current(first->device));
    TU_TRY(wait_for_all_ranks(l, collective, first->collective_stream));
    for (uint32_t i = 0; i < c->combination_count; i++)
        TU_TRY(cuda_combine(first->device, &c->combinations[i], c->ranks, c->combination_count,
                            first->collective_stream));
    return TU_OK;
}

static tu_status run_rank(const cuda_list *l, uint32_t collective, uint32_t rank) {
    const cuda_member *member = member_of_rank(l, collective, rank);
    const tu_list_collective *c = &l->collectives[collective];
    TU_TRY(cuda_make_current(member->device));
    TU_TRY(wait_for_all_ranks(l, collective, member->collective_stream));
    for (uint32_t i = 0; i < c->combination_count; i++)
        TU_TRY(cuda_combine(member->device, &c->combinations[rank * c->combination_count + i], 1, 1,
                            member->collective_stream));
    CUDA_TRY(cuEventRecord, member->collective_done, member->collective_stream);
    return TU_OK;
}

/* Runs the part of each rank on its GPU. At the end the first rank's stream waits for all of them. */
static tu_status run_each_rank(const cuda_list *l, uint32_t collective) {
    const cuda_member *first = member_of_rank(l, collective, 0);
    for (uint32_t r = 0; r < ranks_of(l, collective); r++) TU_TRY(run_rank(l, collective, r));
    TU_TRY(cuda_make_current(first->device));
    for (uint32_t r = 1; r < ranks_of(l, collective); r++)
        CUDA_TRY(cuStreamWaitEvent, first->collective_stream,
                 member_of_rank(l, collective, r)->collective_done, 0);
    return TU_OK;
}

static tu_status run_over_processes(const cuda_list *l, uint32_t collective) {
    const cuda_member *first = member_of_rank(l, collective, 0);
    TU_TRY(cuda_make_current(first->device));
    TU_TRY(wait_for_all_ranks(l, collective, first->collective_stream));
    return cuda_process_collective_enqueue(&l->runs[collective].over_processes, first->collective_stream);
}

static tu_status run_collective(const cuda_list *l, uint32_t collective) {
    if (l->collectives[collective].processes) return run_over_processes(l, collective);
    return is_on_one_gpu(l, collective) ? run_all_ranks(l, collective) : run_each_rank(l, collective);
}

static bool is_posted(const cuda_list *l, uint32_t collective) {
    return l->runs[collective].posted == ranks_of(l, collective);
}

/* Enqueues a collective that all ranks have posted. It follows everything that was enqueued for the ranks so far,
 * but since queues take turns, this delays nothing that an early rank could compute meanwhile. */
static tu_status enqueue_collective(cuda_list *l, uint32_t collective) {
    for (uint32_t r = 0; r < ranks_of(l, collective); r++) {
        const cuda_member *rank = member_of_rank(l, collective, r);
        CUDA_TRY(cuEventRecord, rank->posted, compute_stream(rank));
    }
    TU_TRY(run_collective(l, collective));
    CUDA_TRY(cuEventRecord, l->runs[collective].done, member_of_rank(l, collective, 0)->collective_stream);
    return TU_OK;
}

/* A rank awaits collectives in their order, so each one is enqueued before its first AWAIT. */
static tu_status enqueue_post(cuda_list *l, uint32_t collective) {
    l->runs[collective].posted++;
    if (!l->collectives[collective].processes)
        return is_posted(l, collective) ? enqueue_collective(l, collective) : TU_OK;
    while (l->next_collective < l->list->collective_count && is_posted(l, l->next_collective))
        TU_TRY(enqueue_collective(l, l->next_collective++));
    return TU_OK;
}

/* ---- Commands ---- */

/* One kernel copies all inputs of a partition. */
static tu_status enqueue_inputs(cuda_list *l, uint32_t queue) {
    const cuda_member *m = member_of(l, queue);
    if (!m->ring || l->queues[queue].has_inputs) return TU_OK;
    l->queues[queue].has_inputs = true;
    return cuda_ring_enqueue_inputs(m->ring, m->kernels);
}

/* One kernel copies all results of a partition, and advances the ring's counter; also if it has no results. */
static tu_status enqueue_results(cuda_list *l, uint32_t queue) {
    const cuda_member *m = member_of(l, queue);
    if (!m->ring || l->queues[queue].has_results) return TU_OK;
    l->queues[queue].has_results = true;
    return cuda_ring_enqueue_results(m->ring, m->kernels);
}

/* COMMIT has no effect, so the kernels on both sides of it are launched together. */
static tu_status enqueue_launch(const cuda_list *l, uint32_t queue, uint32_t position) {
    const tu_command_queue *q = commands_of(l, queue);
    const cuda_member *m = member_of(l, queue);
    uint32_t count = q->commands[position].count;
    bool follows_commit = position >= 2 && q->commands[position - 1].kind == TU_COMMAND_COMMIT &&
                          q->commands[position - 2].kind == TU_COMMAND_LAUNCH;
    if (follows_commit) return TU_OK; /* launched with those before COMMIT */
    if (position + 2 < q->count && q->commands[position + 1].kind == TU_COMMAND_COMMIT &&
        q->commands[position + 2].kind == TU_COMMAND_LAUNCH)
        count += q->commands[position + 2].count;
    return cuda_enqueue(m->kernels, q->commands[position].first, count);
}

static tu_status enqueue_signal(const cuda_list *l, uint32_t queue, uint32_t event) {
    CUDA_TRY(cuEventRecord, l->events[event], stream_of(l, queue));
    return TU_OK;
}

static tu_status enqueue_wait(cuda_list *l, uint32_t queue, CUevent event) {
    CUDA_TRY(cuStreamWaitEvent, stream_of(l, queue), event, 0);
    return TU_OK;
}

static tu_status enqueue_command(cuda_list *l, uint32_t queue, uint32_t position, bool is_first_step) {
    const tu_command *c = &commands_of(l, queue)->commands[position];
    TU_TRY(cuda_make_current(member_of(l, queue)->device));
    if (l->queues[queue].is_compute) TU_TRY(enqueue_inputs(l, queue));
    switch (c->kind) {
    case TU_COMMAND_FEED: return TU_OK; /* enqueue_inputs */
    case TU_COMMAND_LAUNCH: return enqueue_launch(l, queue, position);
    case TU_COMMAND_COPY: return enqueue_copy(l, queue, c);
    case TU_COMMAND_POST: return enqueue_post(l, c->index);
    case TU_COMMAND_AWAIT: return enqueue_wait(l, queue, l->runs[c->index].done);
    case TU_COMMAND_SIGNAL: return enqueue_signal(l, queue, c->index);
    case TU_COMMAND_WAIT: return enqueue_wait(l, queue, l->events[c->index]);
    case TU_COMMAND_WAIT_PREVIOUS: return is_first_step ? TU_OK : enqueue_wait(l, queue, l->events[c->index]);
    case TU_COMMAND_COMMIT: return TU_OK;
    case TU_COMMAND_FETCH: return enqueue_results(l, queue);
    }
    return TU_OK;
}

/* ---- Steps ---- */

static tu_status enqueue_step(cuda_list *l, bool is_first) {
    for (uint32_t q = 0; q < l->list->queue_count; q++)
        l->queues[q].next = l->queues[q].has_inputs = l->queues[q].has_results = 0;
    for (uint32_t c = 0; c < l->list->collective_count; c++) l->runs[c].posted = 0;
    l->next_collective = 0;
    for (uint32_t i = 0; i < l->list->command_count; i++) {
        uint32_t queue = l->list->order[i];
        TU_TRY(enqueue_command(l, queue, l->queues[queue].next++, is_first));
    }
    for (uint32_t q = 0; q < l->list->queue_count; q++) {
        if (!l->queues[q].is_compute) continue;
        TU_TRY(cuda_make_current(member_of(l, q)->device));
        TU_TRY(enqueue_results(l, q));
    }
    return TU_OK;
}

/* Makes all streams of compute queues wait for the first one. Copy queues wait for a compute queue before they copy. */
static tu_status fork_streams(const cuda_list *l) {
    const cuda_member *first = &l->members[l->first];
    bool recorded = false;
    for (uint32_t q = 1; q < l->list->queue_count; q++) {
        if (!l->queues[q].is_compute) continue;
        if (!recorded) CUDA_TRY(cuEventRecord, first->posted, compute_stream(first));
        recorded = true;
        CUDA_TRY(cuStreamWaitEvent, stream_of(l, q), first->posted, 0);
    }
    return TU_OK;
}

/* Makes the first stream wait for all others. A compute queue has waited for the copies that it sent. */
static tu_status join_streams(const cuda_list *l) {
    const cuda_member *first = &l->members[l->first];
    for (uint32_t q = 1; q < l->list->queue_count; q++) {
        const cuda_member *m = member_of(l, q);
        if (!l->queues[q].is_compute) continue;
        TU_TRY(cuda_make_current(m->device));
        CUDA_TRY(cuEventRecord, m->posted, compute_stream(m));
        CUDA_TRY(cuStreamWaitEvent, compute_stream(first), m->posted, 0);
    }
    return cuda_make_current(first->device);
}

static tu_status enqueue_all(cuda_list *l, uint32_t steps) {
    TU_TRY(fork_streams(l));
    for (uint32_t i = 0; i < steps; i++) TU_TRY(enqueue_step(l, i == 0));
    return join_streams(l);
}

static void set_capturing(const cuda_list *l, bool capturing) {
    for (uint32_t p = 0; p < l->list->partition_count; p++)
        if (l->members[p].device && p != l->first) l->members[p].kernels->queue->capturing = capturing;
}

tu_status cuda_list_enqueue(cuda_list *l, uint32_t steps) {
    set_capturing(l, cuda_list_first_queue(l)->capturing);
    tu_status status = enqueue_all(l, steps);
    set_capturing(l, false);
    return status;
}
