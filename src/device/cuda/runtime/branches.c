/* Forks and joins the branches of an operation of several networks. See branches.h. */
#include "device/cuda/runtime/branches.h"

#include <stdlib.h>

#include "device/cuda/runtime/plan.h"

enum { DEFAULT_BRANCHES = 4, ALIGNMENT = 256 /* of a branch's workspace */ };
static const size_t max_workspace = (size_t)256 << 20; /* of all branches, unless one needs more */

/* ---- Planning ---- */

/* TUTTI_BRANCHES sets the number of branches, to compare; 1: networks run one after another. */
static int max_branches(void) {
    const char *setting = getenv("TUTTI_BRANCHES");
    int count = setting ? atoi(setting) : DEFAULT_BRANCHES;
    return count < 1 ? 1 : count > CUDA_MAX_BRANCHES ? CUDA_MAX_BRANCHES : count;
}

static int count_branches(int64_t members, size_t workspace_bytes) {
    int count = max_branches();
    if (members < count) count = members < 1 ? 1 : (int)members;
    while (count > 1 && (size_t)count * workspace_bytes > max_workspace) count--;
    return count;
}

tu_status cuda_plan_branches(tu__kernel *k, int64_t members, size_t workspace_bytes,
                             cuda_branches *branches) {
    cuda_runtime *runtime = cuda_runtime_of(k->owner->plan);
    if (!runtime) return TU_NO_MEMORY;
    int count = count_branches(members, workspace_bytes);
    if (count > 1) workspace_bytes = (workspace_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *branches = (cuda_branches){count, workspace_bytes};
    k->workspace_bytes = (size_t)count * workspace_bytes;
    if (runtime->branches < count) runtime->branches = count;
    return TU_OK;
}

/* ---- Streams ---- */

tu_status cuda_create_branches(cuda_queue *queue, int count) {
    for (int b = 0; b < count && count > 1; b++) {
        if (b && !queue->branch_streams[b])
            CUDA_TRY(cuStreamCreate, &queue->branch_streams[b], CU_STREAM_NON_BLOCKING);
        if (!queue->branch_events[b])
            CUDA_TRY(cuEventCreate, &queue->branch_events[b], CU_EVENT_DISABLE_TIMING);
    }
    return TU_OK;
}

void cuda_destroy_branches(cuda_queue *queue) {
    for (int b = 0; b < CUDA_MAX_BRANCHES; b++) {
        if (queue->branch_streams[b]) {
            cuda_libraries_forget(queue->device, queue->branch_streams[b]);
            cuda.cuStreamDestroy(queue->branch_streams[b]);
        }
        if (queue->branch_events[b]) cuda.cuEventDestroy(queue->branch_events[b]);
    }
}

/* ---- Running ---- */

static tu_status fork_branches(cuda_queue *queue, int count) {
    CUDA_TRY(cuEventRecord, queue->branch_events[0], queue->active);
    for (int b = 1; b < count; b++)
        CUDA_TRY(cuStreamWaitEvent, queue->branch_streams[b], queue->branch_events[0], 0);
    return TU_OK;
}

static tu_status join_branches(cuda_queue *queue, int count) {
    for (int b = 1; b < count; b++) {
        CUDA_TRY(cuEventRecord, queue->branch_events[b], queue->branch_streams[b]);
        CUDA_TRY(cuStreamWaitEvent, queue->active, queue->branch_events[b], 0);
    }
    return TU_OK;
}

/* Kernels of `run` enqueue into the active stream, and do not start before the kernel before them has ended: that may be one
 * of another branch. */
static tu_status run_on_branches(const tu__kernel *k, const tu__members *members,
                                 const cuda_branches *branches, tu_status (*run)(const tu__kernel *k)) {
    cuda_queue *queue = k->queue;
    CUstream stream = queue->active;
    bool was_forked = queue->forked;
    tu_status status = fork_branches(queue, branches->count);
    queue->forked = true;
    for (int64_t m = 0; m < members->count && status == TU_OK; m++) {
        int64_t branch = m % branches->count;
        tu__member_kernel one;
        tu__bind_member(k, members, m, &one);
        if (branches->workspace_bytes)
            one.kernel.workspace = (char *)k->workspace + (size_t)branch * branches->workspace_bytes;
        queue->active = branch ? queue->branch_streams[branch] : stream;
        status = run(&one.kernel);
    }
    queue->active = stream;
    queue->forked = was_forked;
    return status == TU_OK ? join_branches(queue, branches->count) : status;
}

tu_status cuda_run_members(const tu__kernel *k, const tu__members *members, const cuda_branches *branches,
                           tu_status (*run)(const tu__kernel *k)) {
    if (branches->count < 2 || !k->queue) return tu__run_members(k, members, run);
    return run_on_branches(k, members, branches, run);
}
