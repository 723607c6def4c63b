/* Enqueues a step of several partitions so that it can be captured as one CUDA graph.
 *
 * Each partition uses its device's stream. Copies from one partition to another use a separate stream. The first
 * partition's stream is the one that is captured. The others are forked from it with an event and joined to it at the
 * end:
 *
 *     partition 0     in | kernels ─┬─ kernels ────────────────┬─  out |   in | …          next step
 *     0 to 1                        └─ copy ─┐                 │
 *     1 to 0                                 │        ┌─ copy ─┘
 *     partition 1     in | kernels ──────────┴ kernels┴───────────────  out |   in | …
 *
 * `in` copies inputs from ring slots, `out` copies results to ring slots (ring.c).
 *
 * Events become edges of the graph. There is no barrier between the steps of one graph. A partition starts its next
 * step when its current step is done and the copies it sent have arrived, since only then may the copied memory be
 * overwritten. A copy waits until the receiver has read the values of the previous step. Partitions that exchange
 * nothing are therefore independent chains through all steps of a graph. There is also no barrier before the kernels
 * that update variables: that barrier lets a failing run leave the state unchanged, which multi-step calls do not
 * promise.
 *
 * Collectives are summed in separate streams, so that kernels that do not need the sums continue. If all ranks are on
 * one GPU, one launch computes the whole sum. GPUs with peer access each sum their rank's slice, so that all links
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

static tu_status create_event(CUevent *event) {
    CUDA_TRY(cuEventCreate, event, CU_EVENT_DISABLE_TIMING);
    return TU_OK;
}

static tu_status create_member_events(cuda_member *m) {
    TU_TRY(cuda_make_current(m->device));
    TU_TRY(create_event(&m->posted));
    return create_event(&m->reusable);
}

static uint32_t find_route(const cuda_joint *j, uint32_t from, uint32_t to) {
    uint32_t i = 0;
    while (i < j->route_count && (j->routes[i].from != from || j->routes[i].to != to)) i++;
    return i;
}

static tu_status create_route(cuda_joint *j, uint32_t from, uint32_t to) {
    cuda_route *route = &j->routes[j->route_count++];
    *route = (cuda_route){.from = from, .to = to};
    j->members[to].receives = true;
    if (!cuda_have_peer_access(j->members[from].device, j->members[to].device)) j->copies_via_host = true;
    CUDA_TRY(cuStreamCreate, &route->stream, CU_STREAM_NON_BLOCKING);
    return TU_OK;
}

static cuda_member *member_of_rank(const cuda_joint *j, const cuda_joint_op *op, uint32_t rank) {
    return &j->members[op->spec.ranks[rank]];
}

static tu_status create_sum_stream(cuda_member *m) {
    if (m->sum_stream) return TU_OK;
    TU_TRY(cuda_make_current(m->device));
    CUDA_TRY(cuStreamCreate, &m->sum_stream, CU_STREAM_NON_BLOCKING);
    return create_event(&m->sum_done);
}

static bool is_on_one_gpu(const cuda_joint *j, const cuda_joint_op *op) {
    for (uint32_t r = 1; r < op->spec.combinations[0].ranks; r++)
        if (member_of_rank(j, op, r)->device->handle != member_of_rank(j, op, 0)->device->handle)
            return false;
    return true;
}

static tu_status prepare_collective(cuda_joint *j, cuda_joint_op *op) {
    uint32_t summing_ranks = is_on_one_gpu(j, op) ? 1 : op->spec.combinations[0].ranks;
    for (uint32_t r = summing_ranks; r-- > 0;) TU_TRY(create_sum_stream(member_of_rank(j, op, r)));
    TU_TRY(cuda_make_current(member_of_rank(j, op, 0)->device));
    return create_event(&op->done);
}

static tu_status prepare_op(cuda_joint *j, uint32_t index) {
    cuda_joint_op *op = &j->ops[index];
    op->route = CUDA_NO_ROUTE;
    TU_TRY(cuda_make_current(j->members[op->spec.part].device));
    if (op->spec.kind == TU_JOINT_COLLECTIVE) return prepare_collective(j, op);
    if (op->spec.kind != TU_JOINT_COPY || op->spec.other == op->spec.part) return TU_OK;
    op->route = find_route(j, op->spec.other, op->spec.part);
    if (op->route == j->route_count) TU_TRY(create_route(j, op->spec.other, op->spec.part));
    j->routes[op->route].last = index;
    return create_event(&op->done);
}

tu_status cuda_joint_new(cuda_joint *j, uint32_t part_count, const tu_joint_part *parts, uint32_t op_count,
                         const tu_joint_move *ops) {
    j->members = tu__alloc_array(part_count, sizeof *j->members, "a multi-step call");
    j->ops = tu__alloc_array(op_count, sizeof *j->ops, "a multi-step call");
    j->routes = tu__alloc_array((size_t)part_count * part_count, sizeof *j->routes, "a multi-step call");
    if (!j->members || !j->ops || !j->routes) return TU_NO_MEMORY;
    j->member_count = part_count;
    j->op_count = op_count;
    for (uint32_t i = 0; i < part_count; i++) {
        j->members[i].device = cuda_device_of(parts[i].device);
        j->members[i].plan = (tu__kernel_plan *)parts[i].plan;
        TU_TRY(create_member_events(&j->members[i]));
    }
    for (uint32_t i = 0; i < op_count; i++) {
        j->ops[i].spec = ops[i];
        TU_TRY(prepare_op(j, i));
    }
    return TU_OK;
}

static void destroy_stream(CUstream stream) {
    if (!stream) return;
    cuda.cuStreamSynchronize(stream);
    cuda.cuStreamDestroy(stream);
}

void cuda_joint_free(cuda_joint *j) {
    for (uint32_t i = 0; i < j->route_count; i++) destroy_stream(j->routes[i].stream);
    for (uint32_t i = 0; i < j->op_count; i++)
        if (j->ops[i].done) cuda.cuEventDestroy(j->ops[i].done);
    for (uint32_t i = 0; i < j->member_count; i++) {
        const cuda_member *m = &j->members[i];
        destroy_stream(m->sum_stream);
        if (m->sum_done) cuda.cuEventDestroy(m->sum_done);
        if (m->posted) cuda.cuEventDestroy(m->posted);
        if (m->reusable) cuda.cuEventDestroy(m->reusable);
        cuda_ring_free(m->ring);
    }
    if (j->member_count)
        cuda.cuCtxSetCurrent(j->members[0].device->context); /* restore the context that was current before */
    tu__free(j->members);
    tu__free(j->ops);
    tu__free(j->routes);
    *j = (cuda_joint){0};
}

/* ---- Operations ---- */

static tu_status enqueue_launch(cuda_joint *j, const cuda_joint_op *op) {
    const cuda_member *member = &j->members[op->spec.part];
    return cuda_enqueue(member->device, member->plan, op->spec.first, op->spec.count);
}

static tu_status copy_within_partition(const cuda_joint *j, const cuda_joint_op *op) {
    CUDA_TRY(cuMemcpyDtoDAsync, cuda_address(op->spec.to), cuda_address(op->spec.from), op->spec.bytes,
             j->members[op->spec.part].device->stream);
    return TU_OK;
}

/* The driver copies directly between two GPUs if peer access is enabled. */
static tu_status copy_between_devices(const cuda_joint_op *op, const cuda_device *to, const cuda_device *from,
                                      CUstream stream) {
    CUdeviceptr target = cuda_address(op->spec.to), source = cuda_address(op->spec.from);
    if (to->handle == from->handle)
        CUDA_TRY(cuMemcpyDtoDAsync, target, source, op->spec.bytes, stream);
    else
        CUDA_TRY(cuMemcpyPeerAsync, target, to->context, source, from->context, op->spec.bytes, stream);
    return TU_OK;
}

static tu_status enqueue_copy(cuda_joint *j, const cuda_joint_op *op) {
    if (!op->spec.bytes) return TU_OK;
    if (op->route == CUDA_NO_ROUTE) return copy_within_partition(j, op);
    cuda_route *route = &j->routes[op->route];
    const cuda_member *from = &j->members[route->from], *to = &j->members[route->to];
    CUDA_TRY(cuEventRecord, from->posted, from->device->stream);
    CUDA_TRY(cuStreamWaitEvent, route->stream, from->posted, 0);
    if (!route->started) CUDA_TRY(cuStreamWaitEvent, route->stream, to->reusable, 0);
    route->started = true;
    TU_TRY(copy_between_devices(op, to->device, from->device, route->stream));
    CUDA_TRY(cuEventRecord, op->done, route->stream);
    return TU_OK;
}

/* Makes `stream` wait until all ranks have posted their values. */
static tu_status wait_for_all_ranks(const cuda_joint *j, const cuda_joint_op *op, CUstream stream) {
    for (uint32_t r = 0; r < op->spec.combinations[0].ranks; r++)
        CUDA_TRY(cuStreamWaitEvent, stream, member_of_rank(j, op, r)->posted, 0);
    return TU_OK;
}

static tu_status sum_all_slices(const cuda_joint *j, const cuda_joint_op *op) {
    const cuda_member *first = member_of_rank(j, op, 0);
    TU_TRY(wait_for_all_ranks(j, op, first->sum_stream));
    for (uint32_t i = 0; i < op->spec.combination_count; i++)
        TU_TRY(cuda_combine_all(first->device, &op->spec.combinations[i], first->sum_stream));
    return TU_OK;
}

static tu_status sum_slice(const cuda_joint *j, const cuda_joint_op *op, uint32_t rank) {
    const cuda_member *member = member_of_rank(j, op, rank);
    TU_TRY(cuda_make_current(member->device));
    TU_TRY(wait_for_all_ranks(j, op, member->sum_stream));
    for (uint32_t i = 0; i < op->spec.combination_count; i++) {
        tu_combination combination = op->spec.combinations[i];
        combination.rank = rank;
        TU_TRY(cuda_combine(member->device, &combination, member->sum_stream));
    }
    CUDA_TRY(cuEventRecord, member->sum_done, member->sum_stream);
    return TU_OK;
}

/* Sums one slice per rank. At the end the first rank's sum stream waits for all slices. */
static tu_status sum_each_slice(const cuda_joint *j, const cuda_joint_op *op) {
    const cuda_member *first = member_of_rank(j, op, 0);
    uint32_t ranks = op->spec.combinations[0].ranks;
    for (uint32_t r = 0; r < ranks; r++) TU_TRY(sum_slice(j, op, r));
    TU_TRY(cuda_make_current(first->device));
    for (uint32_t r = 1; r < ranks; r++)
        CUDA_TRY(cuStreamWaitEvent, first->sum_stream, member_of_rank(j, op, r)->sum_done, 0);
    return TU_OK;
}

static tu_status enqueue_collective(cuda_joint *j, const cuda_joint_op *op) {
    for (uint32_t r = 0; r < op->spec.combinations[0].ranks; r++) {
        const cuda_member *rank = member_of_rank(j, op, r);
        CUDA_TRY(cuEventRecord, rank->posted, rank->device->stream);
    }
    TU_TRY(is_on_one_gpu(j, op) ? sum_all_slices(j, op) : sum_each_slice(j, op));
    CUDA_TRY(cuEventRecord, op->done, member_of_rank(j, op, 0)->sum_stream);
    return TU_OK;
}

static tu_status enqueue_wait(cuda_joint *j, const cuda_joint_op *op) {
    const cuda_joint_op *before = &j->ops[op->spec.after];
    if (before->spec.kind == TU_JOINT_COLLECTIVE || before->spec.bytes)
        CUDA_TRY(cuStreamWaitEvent, j->members[op->spec.part].device->stream, before->done, 0);
    return TU_OK;
}

static tu_status enqueue_results(cuda_joint *j, const cuda_joint_op *op) {
    const cuda_member *member = &j->members[op->spec.part];
    return member->ring ? cuda_ring_enqueue_results(member->ring, member->device, member->plan->runtime)
                        : TU_OK;
}

static tu_status enqueue_op(cuda_joint *j, const cuda_joint_op *op) {
    static tu_status (*const enqueue_functions[])(cuda_joint * j, const cuda_joint_op *op) = {
        [TU_JOINT_LAUNCH] = enqueue_launch,
        [TU_JOINT_COPY] = enqueue_copy,
        [TU_JOINT_COLLECTIVE] = enqueue_collective,
        [TU_JOINT_WAIT] = enqueue_wait,
        [TU_JOINT_KEEP] = enqueue_results};
    TU_TRY(cuda_make_current(j->members[op->spec.part].device));
    return enqueue_functions[op->spec.kind](j, op);
}

/* ---- Steps ---- */

static tu_status begin_step(const cuda_joint *j) {
    for (uint32_t i = 0; i < j->route_count; i++) j->routes[i].started = false;
    for (uint32_t i = 0; i < j->member_count; i++) {
        const cuda_member *m = &j->members[i];
        TU_TRY(cuda_make_current(m->device));
        if (m->receives) CUDA_TRY(cuEventRecord, m->reusable, m->device->stream);
        if (m->ring) TU_TRY(cuda_ring_enqueue_inputs(m->ring, m->device, m->plan->runtime));
    }
    return TU_OK;
}

/* Makes each sender wait until the last copy it sent has arrived, before it computes the next step. */
static tu_status end_step(const cuda_joint *j) {
    for (uint32_t i = 0; i < j->route_count; i++)
        if (j->routes[i].started)
            CUDA_TRY(cuStreamWaitEvent, j->members[j->routes[i].from].device->stream,
                     j->ops[j->routes[i].last].done, 0);
    return TU_OK;
}

static tu_status enqueue_step(cuda_joint *j) {
    TU_TRY(begin_step(j));
    for (uint32_t i = 0; i < j->op_count; i++) TU_TRY(enqueue_op(j, &j->ops[i]));
    return end_step(j);
}

static tu_status fork_streams(const cuda_joint *j) {
    const cuda_member *first = &j->members[0];
    if (j->member_count > 1) CUDA_TRY(cuEventRecord, first->posted, first->device->stream);
    for (uint32_t i = 1; i < j->member_count; i++)
        CUDA_TRY(cuStreamWaitEvent, j->members[i].device->stream, first->posted, 0);
    return TU_OK;
}

static tu_status join_streams(const cuda_joint *j) {
    const cuda_member *first = &j->members[0];
    for (uint32_t i = 1; i < j->member_count; i++) {
        const cuda_member *m = &j->members[i];
        TU_TRY(cuda_make_current(m->device));
        CUDA_TRY(cuEventRecord, m->posted, m->device->stream);
        CUDA_TRY(cuStreamWaitEvent, first->device->stream, m->posted, 0);
    }
    return cuda_make_current(first->device);
}

static tu_status enqueue_all(cuda_joint *j, uint32_t steps) {
    TU_TRY(fork_streams(j));
    for (uint32_t i = 0; i < steps; i++) TU_TRY(enqueue_step(j));
    return join_streams(j);
}

tu_status cuda_joint_enqueue(cuda_joint *j, uint32_t steps) {
    bool capturing = j->members[0].device->capturing;
    for (uint32_t i = 1; i < j->member_count; i++) j->members[i].device->capturing = capturing;
    tu_status status = enqueue_all(j, steps);
    for (uint32_t i = 1; i < j->member_count; i++) j->members[i].device->capturing = false;
    return status;
}
