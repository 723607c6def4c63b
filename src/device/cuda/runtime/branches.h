/* Runs the kernels of several networks on parallel branches.
 *
 * An operation with the attribute `members` (device/kit/members.h) runs the kernel of one network for each. One after
 * another, each of them leaves multiprocessors idle: at its end, when fewer blocks are left than fit, and until the next has
 * started. On a few branches the blocks of one fill what another leaves. A branch is a stream that is forked from the
 * kernel's stream with an event and joined to it with another; a captured graph contains only the dependencies. Each branch
 * has its own part of the workspace. A network's kernels run one after another on one branch, so bits do not depend on
 * the branches.
 *
 *     TU_TRY(cuda_plan_branches(k, d->members.count, workspace_bytes, &d->branches));    // in the lowering rule
 *     return cuda_run_members(k, &d->members, &d->branches, run_one);                    // in `run`
 */
#ifndef TU__DEVICE_CUDA_RUNTIME_BRANCHES_H
#define TU__DEVICE_CUDA_RUNTIME_BRANCHES_H

#include "device/cuda/runtime/cuda.h"
#include "device/kit/members.h"

typedef struct cuda_branches {
    int count;              /* networks that run at once */
    size_t workspace_bytes; /* of each */
} cuda_branches;

/* Chooses the number of branches and sets k->workspace_bytes for all of them. `members`: 0 for one network.
 * `workspace_bytes`: that the kernel of one network needs. */
tu_status cuda_plan_branches(tu__kernel *k, int64_t members, size_t workspace_bytes, cuda_branches *branches);
/* Calls `run` for every network, like tu__run_members. */
tu_status cuda_run_members(const tu__kernel *k, const tu__members *members, const cuda_branches *branches,
                           tu_status (*run)(const tu__kernel *k));

/* Creates the streams of the branches that kernels of a plan use, if the queue does not have them yet. */
tu_status cuda_create_branches(cuda_queue *queue, int count);
void cuda_destroy_branches(cuda_queue *queue);

#endif
