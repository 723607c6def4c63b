/* Enqueues a step of several partitions so that it can be captured as one CUDA graph.
 *
 * Each partition uses its device's stream. Copies from one partition to another use a separate stream. The first
 * partition's stream is the one that is captured. The others are forked from it with an event and joined to it at the
 * end:
 *
 *     partition 0   fill | kernels ─┬─ kernels ────────────────┬─ keep | fill | …          next step
 *     0 to 1                        └─ copy ─┐                 │
 *     1 to 0                                 │        ┌─ copy ─┘
 *     partition 1   fill | kernels ──────────┴ kernels┴─────────────── keep | fill | …
 *
 * Events become edges of the graph. There is no barrier between the steps of one graph. A partition starts its next
 * step when its own step is done and the copies it sent have arrived, since only then may the copied memory be
 * overwritten. A copy waits until the receiver has read the values of the previous step. Partitions that exchange
 * nothing are therefore independent chains through all steps of a graph. There is also no barrier before the kernels
 * that update variables: that barrier lets a failing run leave the state unchanged, which multi-step calls do not
 * promise.
 *
 * Collectives are summed in separate streams, so that kernels that do not need the sums continue. If all ranks are on
 * one GPU, one launch computes the whole sum. GPUs with peer access each sum their rank's share, so that all links
 * between them are used in parallel. The bits of the result are the same.
 *
 * Streams of several GPUs are captured into one graph like those of one GPU: a kernel runs in the context of its
 * function, and edges may connect GPUs. Copies between GPUs with peer access are captured too. If a copy goes through
 * the host (`copies_via_host`), steps are not captured, because CUDA does not document how such copies behave in a
 * graph.
 *
 * Within a partition, kernels may be on several streams as well (capture_streams.c).
 */
#include "device/cuda/runtime/joint.h"

#include "base/alloc.h"
#include "device/cuda/runtime/combine.h"

/* ---- Creating and destroying ---- */

static tu_status make_event(CUevent *event) {
    CUDA_TRY(cuEventCreate, event, CU_EVENT_DISABLE_TIMING);
    return TU_OK;
}

static tu_status make_member(cuda_member *m) {
    TU_TRY(cuda_enter(m->device));
    TU_TRY(make_event(&m->so_far));
    return make_event(&m->free);
}

static uint32_t find_route(const cuda_joint *j, uint32_t from, uint32_t to) {
    uint32_t i = 0;
    while (i < j->route_count && (j->routes[i].from != from || j->routes[i].to != to)) i++;
    return i;
}

static tu_status make_route(cuda_joint *j, uint32_t from, uint32_t to) {
    cuda_route *route = &j->routes[j->route_count++];
    *route = (cuda_route){.from = from, .to = to};
    j->members[to].receives = true;
    if (!cuda_reach_each_other(j->members[from].device, j->members[to].device)) j->staged = true;
    CUDA_TRY(cuStreamCreate, &route->stream, CU_STREAM_NON_BLOCKING);
    return TU_OK;
}

static cuda_member *rank_of(const cuda_joint *j, const cuda_move *m, uint32_t rank) {
    return &j->members[m->what.ranks[rank]];
}

static tu_status prepare_sums(cuda_member *m) {
    if (m->sums) return TU_OK;
    TU_TRY(cuda_enter(m->device));
    CUDA_TRY(cuStreamCreate, &m->sums, CU_STREAM_NON_BLOCKING);
    return make_event(&m->added);
}

static bool is_on_one_card(const cuda_joint *j, const cuda_move *m) {
    for (uint32_t r = 1; r < m->what.combinations[0].ranks; r++)
        if (rank_of(j, m, r)->device->handle != rank_of(j, m, 0)->device->handle) return false;
    return true;
}

static tu_status make_collective(cuda_joint *j, cuda_move *m) {
    uint32_t adding = is_on_one_card(j, m) ? 1 : m->what.combinations[0].ranks;
    for (uint32_t r = adding; r-- > 0;) TU_TRY(prepare_sums(rank_of(j, m, r)));
    TU_TRY(cuda_enter(rank_of(j, m, 0)->device));
    return make_event(&m->done);
}

static tu_status make_move(cuda_joint *j, uint32_t number) {
    cuda_move *m = &j->moves[number];
    m->route = CUDA_NO_ROUTE;
    TU_TRY(cuda_enter(j->members[m->what.part].device));
    if (m->what.kind == TU_JOINT_COLLECTIVE) return make_collective(j, m);
    if (m->what.kind != TU_JOINT_COPY || m->what.other == m->what.part) return TU_OK;
    m->route = find_route(j, m->what.other, m->what.part);
    if (m->route == j->route_count) TU_TRY(make_route(j, m->what.other, m->what.part));
    j->routes[m->route].last = number;
    return make_event(&m->done);
}

tu_status cuda_joint_begin(cuda_joint *j, uint32_t part_count, const tu_joint_part *parts,
                           uint32_t move_count, const tu_joint_move *moves) {
    j->members = tu__alloc_array(part_count, sizeof *j->members, "steps of several parts");
    j->moves = tu__alloc_array(move_count, sizeof *j->moves, "steps of several parts");
    j->routes = tu__alloc_array((size_t)part_count * part_count, sizeof *j->routes, "steps of several parts");
    if (!j->members || !j->moves || !j->routes) return TU_NO_MEMORY;
    j->member_count = part_count;
    j->move_count = move_count;
    for (uint32_t i = 0; i < part_count; i++) {
        j->members[i].device = cuda_inside(parts[i].device);
        j->members[i].plan = (tu__kernel_plan *)parts[i].plan;
        TU_TRY(make_member(&j->members[i]));
    }
    for (uint32_t i = 0; i < move_count; i++) {
        j->moves[i].what = moves[i];
        TU_TRY(make_move(j, i));
    }
    return TU_OK;
}

static void end_stream(CUstream stream) {
    if (!stream) return;
    cuda.cuStreamSynchronize(stream);
    cuda.cuStreamDestroy(stream);
}

void cuda_joint_end(cuda_joint *j) {
    for (uint32_t i = 0; i < j->route_count; i++) end_stream(j->routes[i].stream);
    for (uint32_t i = 0; i < j->move_count; i++)
        if (j->moves[i].done) cuda.cuEventDestroy(j->moves[i].done);
    for (uint32_t i = 0; i < j->member_count; i++) {
        const cuda_member *m = &j->members[i];
        end_stream(m->sums);
        if (m->added) cuda.cuEventDestroy(m->added);
        if (m->so_far) cuda.cuEventDestroy(m->so_far);
        if (m->free) cuda.cuEventDestroy(m->free);
        cuda_ring_free(m->ring);
    }
    if (j->member_count) cuda.cuCtxSetCurrent(j->members[0].device->context); /* restore the context that was current before */
    tu__free(j->members);
    tu__free(j->moves);
    tu__free(j->routes);
    *j = (cuda_joint){0};
}

/* ---- Operations ---- */

static tu_status take_launch(cuda_joint *j, const cuda_move *m) {
    const cuda_member *part = &j->members[m->what.part];
    return cuda_enqueue(part->device, part->plan, m->what.first, m->what.count);
}

static tu_status copy_within(const cuda_joint *j, const cuda_move *m) {
    CUDA_TRY(cuMemcpyDtoDAsync, cuda_address(m->what.to), cuda_address(m->what.from), m->what.bytes,
             j->members[m->what.part].device->stream);
    return TU_OK;
}

/* The driver copies directly between two GPUs if peer access is enabled. */
static tu_status copy_along(const cuda_move *m, const cuda_device *to, const cuda_device *from,
                            CUstream stream) {
    CUdeviceptr target = cuda_address(m->what.to), source = cuda_address(m->what.from);
    if (to->handle == from->handle)
        CUDA_TRY(cuMemcpyDtoDAsync, target, source, m->what.bytes, stream);
    else
        CUDA_TRY(cuMemcpyPeerAsync, target, to->context, source, from->context, m->what.bytes, stream);
    return TU_OK;
}

static tu_status take_copy(cuda_joint *j, const cuda_move *m) {
    if (!m->what.bytes) return TU_OK;
    if (m->route == CUDA_NO_ROUTE) return copy_within(j, m);
    cuda_route *route = &j->routes[m->route];
    const cuda_member *from = &j->members[route->from], *to = &j->members[route->to];
    CUDA_TRY(cuEventRecord, from->so_far, from->device->stream);
    CUDA_TRY(cuStreamWaitEvent, route->stream, from->so_far, 0);
    if (!route->begun) CUDA_TRY(cuStreamWaitEvent, route->stream, to->free, 0);
    route->begun = true;
    TU_TRY(copy_along(m, to->device, from->device, route->stream));
    CUDA_TRY(cuEventRecord, m->done, route->stream);
    return TU_OK;
}

/* Makes `stream` wait until all ranks have posted their values. */
static tu_status come_behind_all(const cuda_joint *j, const cuda_move *m, CUstream stream) {
    for (uint32_t r = 0; r < m->what.combinations[0].ranks; r++)
        CUDA_TRY(cuStreamWaitEvent, stream, rank_of(j, m, r)->so_far, 0);
    return TU_OK;
}

static tu_status add_everything(const cuda_joint *j, const cuda_move *m) {
    const cuda_member *first = rank_of(j, m, 0);
    TU_TRY(come_behind_all(j, m, first->sums));
    for (uint32_t i = 0; i < m->what.combination_count; i++)
        TU_TRY(cuda_combine_all(first->device, &m->what.combinations[i], first->sums));
    return TU_OK;
}

static tu_status add_share(const cuda_joint *j, const cuda_move *m, uint32_t rank) {
    const cuda_member *member = rank_of(j, m, rank);
    TU_TRY(cuda_enter(member->device));
    TU_TRY(come_behind_all(j, m, member->sums));
    for (uint32_t i = 0; i < m->what.combination_count; i++) {
        tu_combination what = m->what.combinations[i];
        what.rank = rank;
        TU_TRY(cuda_combine(member->device, &what, member->sums));
    }
    CUDA_TRY(cuEventRecord, member->added, member->sums);
    return TU_OK;
}

/* Sums one share per rank. At the end the first rank's sum stream waits for all shares. */
static tu_status add_shares(const cuda_joint *j, const cuda_move *m) {
    const cuda_member *first = rank_of(j, m, 0);
    uint32_t ranks = m->what.combinations[0].ranks;
    for (uint32_t r = 0; r < ranks; r++) TU_TRY(add_share(j, m, r));
    TU_TRY(cuda_enter(first->device));
    for (uint32_t r = 1; r < ranks; r++) CUDA_TRY(cuStreamWaitEvent, first->sums, rank_of(j, m, r)->added, 0);
    return TU_OK;
}

static tu_status take_meet(cuda_joint *j, const cuda_move *m) {
    for (uint32_t r = 0; r < m->what.combinations[0].ranks; r++) {
        const cuda_member *rank = rank_of(j, m, r);
        CUDA_TRY(cuEventRecord, rank->so_far, rank->device->stream);
    }
    TU_TRY(is_on_one_card(j, m) ? add_everything(j, m) : add_shares(j, m));
    CUDA_TRY(cuEventRecord, m->done, rank_of(j, m, 0)->sums);
    return TU_OK;
}

static tu_status take_wait(cuda_joint *j, const cuda_move *m) {
    const cuda_move *before = &j->moves[m->what.after];
    if (before->what.kind == TU_JOINT_COLLECTIVE || before->what.bytes)
        CUDA_TRY(cuStreamWaitEvent, j->members[m->what.part].device->stream, before->done, 0);
    return TU_OK;
}

static tu_status take_keep(cuda_joint *j, const cuda_move *m) {
    const cuda_member *part = &j->members[m->what.part];
    return part->ring ? cuda_ring_keep(part->ring, part->device, part->plan->runtime) : TU_OK;
}

static tu_status take_move(cuda_joint *j, const cuda_move *m) {
    static tu_status (*const take[])(cuda_joint * j, const cuda_move *m) = {[TU_JOINT_LAUNCH] = take_launch,
                                                                            [TU_JOINT_COPY] = take_copy,
                                                                            [TU_JOINT_COLLECTIVE] = take_meet,
                                                                            [TU_JOINT_WAIT] = take_wait,
                                                                            [TU_JOINT_KEEP] = take_keep};
    TU_TRY(cuda_enter(j->members[m->what.part].device));
    return take[m->what.kind](j, m);
}

/* ---- Steps ---- */

static tu_status begin_step(const cuda_joint *j) {
    for (uint32_t i = 0; i < j->route_count; i++) j->routes[i].begun = false;
    for (uint32_t i = 0; i < j->member_count; i++) {
        const cuda_member *m = &j->members[i];
        TU_TRY(cuda_enter(m->device));
        if (m->receives) CUDA_TRY(cuEventRecord, m->free, m->device->stream);
        if (m->ring) TU_TRY(cuda_ring_fill(m->ring, m->device, m->plan->runtime));
    }
    return TU_OK;
}

/* Makes each sender wait until the last copy it sent has arrived, before it computes the next step. */
static tu_status end_step(const cuda_joint *j) {
    for (uint32_t i = 0; i < j->route_count; i++)
        if (j->routes[i].begun)
            CUDA_TRY(cuStreamWaitEvent, j->members[j->routes[i].from].device->stream,
                     j->moves[j->routes[i].last].done, 0);
    return TU_OK;
}

static tu_status enqueue_step(cuda_joint *j) {
    TU_TRY(begin_step(j));
    for (uint32_t i = 0; i < j->move_count; i++) TU_TRY(take_move(j, &j->moves[i]));
    return end_step(j);
}

static tu_status fork_parts(const cuda_joint *j) {
    const cuda_member *first = &j->members[0];
    if (j->member_count > 1) CUDA_TRY(cuEventRecord, first->so_far, first->device->stream);
    for (uint32_t i = 1; i < j->member_count; i++)
        CUDA_TRY(cuStreamWaitEvent, j->members[i].device->stream, first->so_far, 0);
    return TU_OK;
}

static tu_status join_parts(const cuda_joint *j) {
    const cuda_member *first = &j->members[0];
    for (uint32_t i = 1; i < j->member_count; i++) {
        const cuda_member *m = &j->members[i];
        TU_TRY(cuda_enter(m->device));
        CUDA_TRY(cuEventRecord, m->so_far, m->device->stream);
        CUDA_TRY(cuStreamWaitEvent, first->device->stream, m->so_far, 0);
    }
    return cuda_enter(first->device);
}

static tu_status enqueue_all(cuda_joint *j, uint32_t steps) {
    TU_TRY(fork_parts(j));
    for (uint32_t i = 0; i < steps; i++) TU_TRY(enqueue_step(j));
    return join_parts(j);
}

tu_status cuda_joint_enqueue(cuda_joint *j, uint32_t steps) {
    bool capturing = j->members[0].device->capturing;
    for (uint32_t i = 1; i < j->member_count; i++) j->members[i].device->capturing = capturing;
    tu_status status = enqueue_all(j, steps);
    for (uint32_t i = 1; i < j->member_count; i++) j->members[i].device->capturing = false;
    return status;
}
