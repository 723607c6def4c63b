/* Submitted command lists: many steps of one or several partitions, without the engine in between.
 *
 * Every step is the same CUDA graph, since inputs are read from ring slots and results are written to ring slots
 * (ring.c). The first step is enqueued kernel by kernel, because libraries load modules at first use. The second is
 * captured, and replayed from then on. Several short steps are captured into one graph.
 *
 * A ring has two halves. While the steps of one half run, the other half is filled: the host copies inputs into
 * pinned memory, and the copy engine uploads them on a separate stream. The results of a half are downloaded after
 * its steps.
 *
 *     host     stage 0 | stage 1 |  … wait for 0, read results 0, stage 2 | …
 *     copies           upload 0  | upload 1 |                   upload 2
 *     compute                      steps of 0  | steps of 1  | steps of 2
 *
 * Once steps are captured, this file never blocks in the driver, because the steps of a broken GPU might never end.
 * It polls events until the timeout of the submission, after which the GPU is abandoned. The driver also
 * blocks when too many launches are pending, so the number of launches in flight is limited. A step that is enqueued
 * kernel by kernel may exceed that limit.
 *
 * A list with collectives over processes is captured and replayed in all of them alike, as NCCL requires: its graphs have
 * one step, its rings get their final size at once, and before a call the processes agree on what is captured.
 *
 * Streams, rings and graphs are made at the first call and kept for the next ones. After a failure they are freed, and
 * the next call makes them again.
 */
#include "device/cuda/runtime/submit.h"

#include "base/alloc.h"

enum {
    MAX_GRAPH_NODES = 512, /* per partition, if a graph contains several steps */
    MAX_GRAPH_STEPS = 16,
    LAUNCHES_PER_GROUP = 32, /* at most two groups are in flight */
};

/* ---- Creating and freeing ---- */

static void destroy_graphs(cuda_submit *r) {
    if (r->one_step_graph) cuda.cuGraphExecDestroy(r->one_step_graph);
    if (r->multi_step_graph) cuda.cuGraphExecDestroy(r->multi_step_graph);
    r->one_step_graph = r->multi_step_graph = NULL;
}

static bool is_abandoned(const cuda_submit *r) {
    for (uint32_t i = 0; i < cuda_submit_partitions(r); i++)
        if (r->binding.parts[i].device && cuda_is_abandoned(cuda_device_of(r->binding.parts[i].device)))
            return true;
    return false;
}

/* Frees all but the binding. */
static void close_submit(cuda_submit *r) {
    destroy_graphs(r);
    for (int i = 0; i < CUDA_HALVES; i++)
        if (r->done[i]) cuda.cuEventDestroy(r->done[i]);
    if (r->group_done) cuda.cuEventDestroy(r->group_done);
    cuda_list_free(&r->list);
    *r = (cuda_submit){.binding = r->binding};
}

void cuda_submit_free(cuda_submit *r) {
    if (!r || is_abandoned(r)) return;
    close_submit(r);
    tu__free(r);
}

/* Chooses how many steps one graph contains, so that graphs stay small. All partitions wait for each other between
 * two graphs, so the limit grows with the number of partitions. Commands that order others are edges, not nodes. */
static uint32_t choose_steps_per_graph(const cuda_list *l) {
    uint32_t members = 0, nodes = 0;
    if (l->connection) return 1;
    for (uint32_t q = 0; q < l->list->queue_count; q++)
        for (uint32_t i = 0; i < l->list->queues[q].count; i++)
            nodes += l->list->queues[q].commands[i].kind == TU_COMMAND_COPY;
    for (uint32_t i = 0; i < l->list->partition_count; i++) {
        if (!l->members[i].device) continue;
        members++;
        nodes += l->members[i].kernels->bound.count + 2; /* inputs and results */
    }
    uint32_t steps = MAX_GRAPH_NODES * members / (nodes + l->list->collective_count);
    return steps > MAX_GRAPH_STEPS ? MAX_GRAPH_STEPS : steps;
}

static tu_status open_submit(cuda_submit *r) {
    r->is_open = true;
    TU_TRY(cuda_list_new(&r->list, &r->binding));
    r->steps_per_graph = choose_steps_per_graph(&r->list);
    TU_TRY(cuda_make_current(cuda_submit_device(r)));
    for (int i = 0; i < CUDA_HALVES; i++) CUDA_TRY(cuEventCreate, &r->done[i], CU_EVENT_DISABLE_TIMING);
    CUDA_TRY(cuEventCreate, &r->group_done, CU_EVENT_DISABLE_TIMING);
    return TU_OK;
}

/* Every list of GPUs can be executed. */
tu_status cuda_build_list(const tu_list_binding *binding, tu_executable **executable) {
    if (!executable) return TU_OK;
    tu_executable *created = cuda_executable_new(CUDA_LIST);
    cuda_submit *r = created ? tu__alloc(sizeof *r, "a submitted command list") : NULL;
    if (!r) {
        tu__free(created);
        return TU_NO_MEMORY;
    }
    r->binding = *binding;
    created->list = r;
    *executable = created;
    return TU_OK;
}

/* ---- Rings ---- */

/* All partitions advance together, so the smallest value is used. */
static uint32_t choose_steps_per_half(const cuda_submit *r, const cuda_call *s) {
    uint32_t min_steps = UINT32_MAX;
    cuda_call call = *s;
    if (r->list.connection) call.steps = UINT32_MAX; /* see above */
    for (uint32_t i = 0; i < cuda_submit_partitions(r); i++) {
        if (!r->list.members[i].device) continue;
        uint32_t half = cuda_ring_steps_per_half(&call, i);
        if (half < min_steps) min_steps = half;
    }
    return min_steps;
}

static bool can_reuse_rings(const cuda_submit *r, const cuda_call *s, uint32_t steps_per_half) {
    bool too_small = r->steps_per_half < steps_per_half &&
                     r->steps_per_half < s->steps / CUDA_HALVES; /* a larger half would be faster */
    if (!r->steps_per_half || too_small) return false;
    for (uint32_t i = 0; i < cuda_submit_partitions(r); i++) {
        const cuda_ring *ring = r->list.members[i].ring;
        if (!r->list.members[i].device) continue;
        if (cuda_needs_ring(s, i) != (ring != NULL)) return false;
        if (ring && !cuda_ring_matches(ring, s)) return false;
    }
    return true;
}

static tu_status create_ring(cuda_member *m, uint32_t steps_per_half, const cuda_call *s,
                             uint32_t partition) {
    cuda_ring_free(m->ring);
    m->ring = NULL;
    if (!m->device || !cuda_needs_ring(s, partition)) return TU_OK;
    tu_status status = cuda_ring_new(m->device, steps_per_half, s, partition, &m->ring);
    if (status == TU_OK) return TU_OK;
    return tu_fail(status, "cannot allocate %.1f MiB for the inputs and results of steps: %s",
                   m->ring ? cuda_ring_mebibytes(m->ring) : 0, tu_message());
}

static tu_status create_rings(cuda_submit *r, const cuda_call *s) {
    uint32_t steps_per_half = choose_steps_per_half(r, s);
    if (can_reuse_rings(r, s, steps_per_half)) return TU_OK;
    destroy_graphs(r);
    r->steps_per_half = steps_per_half;
    for (uint32_t i = 0; i < cuda_submit_partitions(r); i++)
        TU_TRY(create_ring(&r->list.members[i], steps_per_half, s, i));
    return TU_OK;
}

/* ---- Steps ---- */

typedef struct captured_steps {
    cuda_list *list;
    uint32_t count;
} captured_steps;

static tu_status enqueue_steps(void *context) {
    const captured_steps *s = context;
    return cuda_list_enqueue(s->list, s->count);
}

static tu_status launch_graph(cuda_submit *r, uint32_t count, CUgraphExec *exec) {
    captured_steps s = {&r->list, count};
    if (!*exec) TU_TRY(cuda_capture(cuda_list_first_queue(&r->list), enqueue_steps, &s, exec));
    CUDA_TRY(cuGraphLaunch, *exec, cuda_submit_stream(r));
    return TU_OK;
}

static bool forbids_capture(const cuda_submit *r) {
    for (uint32_t i = 0; i < cuda_submit_partitions(r); i++) {
        const cuda_kernels *kernels = r->list.members[i].kernels;
        if (kernels && kernels->runtime->capture_forbidden) return true;
    }
    return r->list.copies_via_host;
}

/* Both processes of a transfer must capture it, or none, and replay the graphs of the same captures. But each has kernels,
 * inputs and addresses of its own: one may have a new list while the others have a graph. Then all begin again. */
static tu_status agree_on_capture(cuda_submit *r) {
    enum { NEEDS_WARM_UP = 1, NEEDS_GRAPH = 2, FORBIDS_CAPTURE = 4 };
    unsigned flags = (r->warm ? 0 : NEEDS_WARM_UP) | (r->one_step_graph ? 0 : NEEDS_GRAPH) |
                     (forbids_capture(r) ? FORBIDS_CAPTURE : 0);
    if (r->list.connection) {
        CUevent sent;
        TU_TRY(cuda_connection_send_flags(r->list.connection, (unsigned char)flags, &sent));
        TU_TRY(cuda_make_current(cuda_submit_device(r)));
        TU_TRY(cuda_submit_wait(r, sent));
        flags = cuda_connection_flags(r->list.connection);
        if (flags & (NEEDS_WARM_UP | NEEDS_GRAPH)) destroy_graphs(r);
        if (flags & NEEDS_WARM_UP) r->warm = false;
    }
    r->forbids_capture = flags & FORBIDS_CAPTURE;
    return TU_OK;
}

/* Counts launches. When a group is complete, waits until the previous group is done. */
static tu_status limit_launches(cuda_submit *r, uint32_t launches) {
    r->group_launches += launches;
    if (r->group_launches < LAUNCHES_PER_GROUP) return TU_OK;
    r->group_launches = 0;
    TU_TRY(cuda_submit_wait(r, r->group_done));
    CUDA_TRY(cuEventRecord, r->group_done, cuda_submit_stream(r));
    return TU_OK;
}

static tu_status launch_steps(cuda_submit *r, uint32_t count) {
    for (uint32_t done = 0; done < count;) {
        bool captured = r->warm && !r->forbids_capture;
        if (!captured) {
            TU_TRY(cuda_list_enqueue(&r->list, 1));
            r->warm = true;
            done++;
        } else if (r->steps_per_graph > 1 && count - done >= r->steps_per_graph) {
            TU_TRY(launch_graph(r, r->steps_per_graph, &r->multi_step_graph));
            done += r->steps_per_graph;
        } else {
            TU_TRY(launch_graph(r, 1, &r->one_step_graph));
            done++;
        }
        TU_TRY(limit_launches(
            r, captured ? 1 : LAUNCHES_PER_GROUP)); /* a step that is not captured counts as a full group */
    }
    return TU_OK;
}

/* ---- Ring halves ---- */

static tu_status begin_rings(const cuda_submit *r, const cuda_call *s) {
    for (uint32_t i = 0; i < cuda_submit_partitions(r); i++) {
        const cuda_member *m = &r->list.members[i];
        if (!m->ring) continue;
        TU_TRY(cuda_make_current(m->device));
        TU_TRY(cuda_ring_begin(m->ring, s));
    }
    return TU_OK;
}

static tu_status stage_inputs(const cuda_submit *r, const cuda_call *s, uint32_t half, uint32_t first,
                              uint32_t count) {
    for (uint32_t i = 0; i < cuda_submit_partitions(r); i++) {
        const cuda_member *m = &r->list.members[i];
        if (!m->ring) continue;
        TU_TRY(cuda_make_current(m->device));
        TU_TRY(cuda_ring_stage(m->ring, s, half, first, count, cuda_submit_stream(r)));
    }
    return cuda_make_current(cuda_submit_device(r));
}

static tu_status enqueue_fetches(const cuda_submit *r, uint32_t half, uint32_t count) {
    CUstream steps = cuda_submit_stream(r);
    for (uint32_t i = 0; i < cuda_submit_partitions(r); i++)
        if (r->list.members[i].ring) TU_TRY(cuda_ring_fetch(r->list.members[i].ring, half, count, steps));
    CUDA_TRY(cuEventRecord, r->done[half], steps);
    return TU_OK;
}

/* Waits for the steps of a half and copies their results to the caller. */
static tu_status read_results(const cuda_submit *r, const cuda_call *s, uint32_t half, uint32_t first,
                              uint32_t count) {
    TU_TRY(cuda_submit_wait(r, r->done[half]));
    for (uint32_t i = 0; i < cuda_submit_partitions(r); i++)
        if (r->list.members[i].ring) cuda_ring_read_results(r->list.members[i].ring, s, half, first, count);
    cuda_submit_report(r, first + count);
    return TU_OK;
}

static uint32_t steps_of_round(const cuda_submit *r, uint32_t steps, uint32_t round) {
    uint32_t first = round * r->steps_per_half;
    return steps - first < r->steps_per_half ? steps - first : r->steps_per_half;
}

static tu_status run_rounds(cuda_submit *r, const cuda_call *s) {
    uint32_t steps = s->steps, rounds = steps / r->steps_per_half + (steps % r->steps_per_half > 0);
    TU_TRY(begin_rings(r, s));
    for (uint32_t round = 0; round < rounds + CUDA_HALVES; round++) {
        uint32_t half = round % CUDA_HALVES, before = round - CUDA_HALVES;
        if (round >= CUDA_HALVES)
            TU_TRY(read_results(r, s, half, before * r->steps_per_half, steps_of_round(r, steps, before)));
        if (round >= rounds) continue;
        uint32_t count = steps_of_round(r, steps, round);
        TU_TRY(stage_inputs(r, s, half, round * r->steps_per_half, count));
        TU_TRY(launch_steps(r, count));
        TU_TRY(enqueue_fetches(r, half, count));
    }
    return TU_OK;
}

/* ---- The entry point ---- */

static uint64_t seed_of(const cuda_submit *r) {
    for (uint32_t i = 0; i < cuda_submit_partitions(r); i++) {
        const cuda_kernels *kernels = r->list.members[i].kernels;
        if (kernels && kernels->bound.count) return *kernels->bound.seed;
    }
    return 0;
}

/* Turns off kernel timing: its events are valid only for single launches. */
static void suspend_timing(const cuda_submit *r) {
    for (uint32_t i = 0; i < cuda_submit_partitions(r); i++) {
        cuda_member *m = &r->list.members[i];
        if (!m->kernels) continue;
        m->was_timed = m->kernels->timed;
        m->kernels->timed = false;
    }
}

static void resume_timing(const cuda_submit *r) {
    for (uint32_t i = 0; i < cuda_submit_partitions(r); i++)
        if (r->list.members[i].kernels) r->list.members[i].kernels->timed = r->list.members[i].was_timed;
}

static tu_status run(cuda_submit *r) {
    TU_TRY(cuda_make_current(cuda_device_of(r->binding.parts[r->binding.list->queues[0].partition].device)));
    if (!r->is_open) TU_TRY(open_submit(r));
    TU_TRY(create_rings(r, &r->call));
    if (r->seed != seed_of(r)) destroy_graphs(r);
    r->seed = seed_of(r);
    TU_TRY(agree_on_capture(r));
    suspend_timing(r);
    tu_status status = run_rounds(r, &r->call);
    resume_timing(r);
    return status;
}

/* Adds the names of the devices to the message: "gpu:0.0", or "gpu:0.0 to gpu:0.3". */
static tu_status add_device_names(tu_status status, const tu_list_binding *b) {
    const char *first = NULL, *last = NULL;
    for (uint32_t i = 0; i < b->list->partition_count; i++) {
        if (!b->parts[i].device) continue;
        last = cuda_device_of(b->parts[i].device)->name;
        if (!first) first = last;
    }
    if (first == last) return tu_fail(status, "%s: %s", first, tu_message());
    return tu_fail(status, "%s to %s: %s", first, last, tu_message());
}

/* Waits for all streams before the memory they use is freed. */
static void synchronize_all(const tu_list_binding *b) {
    for (uint32_t i = 0; i < b->list->partition_count; i++) {
        if (!b->parts[i].device) continue;
        cuda.cuCtxSetCurrent(cuda_device_of(b->parts[i].device)->context);
        cuda.cuStreamSynchronize(b->parts[i].executable->kernels.queue->stream);
    }
}

tu_status cuda_submit_list(tu_executable *executable, const tu_submission *s) {
    cuda_submit *r = executable->list;
    r->call = (cuda_call){.list = r->binding.list,
                          .parts = r->binding.parts,
                          .feeds = s->feeds,
                          .fetches = s->fetches,
                          .steps = s->steps,
                          .timeout = s->timeout,
                          .steps_done = s->steps_done};
    if (s->steps_done) *s->steps_done = 0;
    if (s->steps == 0) return TU_OK;
    tu_status status = run(r);
    if (status == TU_OK) return TU_OK;
    add_device_names(status, &r->binding);
    if (is_abandoned(r)) return status;
    synchronize_all(&r->binding);
    close_submit(r);
    return status;
}
