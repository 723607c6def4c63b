/* Progress of submitted steps, and waiting for them with a timeout.
 *
 * The ring of each partition counts the steps that the GPU has finished (ring.c). While the host waits it reads these
 * counters a few times within the timeout, which starts again whenever any partition has advanced. */
#include "base/clock.h"
#include "device/cuda/runtime/submit.h"

/* Another thread may read the number at any time. */
void cuda_submit_report(const cuda_submit *r, uint32_t done) {
    uint32_t *reported = r->call.steps_done;
    if (reported && done > *reported) __atomic_store_n(reported, done, __ATOMIC_RELAXED);
}

/* Finished steps, as counted by the rings of the partitions. */
typedef struct progress {
    const cuda_member *slowest;    /* NULL: no partition has a ring, so steps are not counted */
    uint32_t min_steps, max_steps; /* steps done by the slowest and by the fastest partition */
    uint64_t total_steps;          /* sum over all partitions: independent partitions may advance in turns */
} progress;

static progress read_progress(const cuda_submit *r) {
    progress p = {0};
    for (uint32_t i = 0; i < cuda_submit_partitions(r); i++) {
        const cuda_member *m = &r->list.members[i];
        if (!m->ring) continue;
        cuda.cuCtxSetCurrent(m->device->context);
        uint32_t done = cuda_ring_finished_steps(m->ring);
        if (!p.slowest || done < p.min_steps) p.slowest = m, p.min_steps = done;
        if (done > p.max_steps) p.max_steps = done;
        p.total_steps += done;
    }
    cuda.cuCtxSetCurrent(cuda_submit_device(r)->context);
    return p;
}

typedef struct progress_timeout {
    double limit;         /* maximum seconds between the ends of two steps; 0: no limit */
    double next_check;    /* time of the next check */
    double last_progress; /* time when progress was last seen */
    progress last_seen;
} progress_timeout;

static double check_interval(const progress_timeout *p) {
    enum { CHECKS = 16 }; /* within the limit */
    return p->limit < CHECKS ? p->limit / CHECKS : 1;
}

/* If steps are not counted, the limit applies to all steps of the call together. */
static progress_timeout start_timeout(const cuda_submit *r, double now) {
    progress_timeout p = {.limit = r->call.timeout, .last_progress = now};
    bool counted = false;
    for (uint32_t i = 0; i < cuda_submit_partitions(r); i++) counted |= r->list.members[i].ring != NULL;
    if (!counted) p.limit *= r->call.steps;
    p.next_check = now + check_interval(&p);
    return p;
}

static bool has_timed_out(const cuda_submit *r, progress_timeout *p, double now) {
    if (p->limit <= 0 || now < p->next_check) return false;
    uint64_t before = p->last_seen.total_steps;
    p->last_seen = read_progress(r);
    cuda_submit_report(r, p->last_seen.min_steps);
    if (p->last_seen.total_steps != before) p->last_progress = now;
    p->next_check = now + check_interval(p);
    return now - p->last_progress > p->limit;
}

static void abandon_all(const cuda_submit *r) {
    for (uint32_t i = 0; i < cuda_submit_partitions(r); i++)
        if (r->list.members[i].device) cuda_abandon(r->list.members[i].device);
}

static tu_status fail_timeout(const cuda_submit *r, const progress_timeout *p) {
    const progress *last_seen = &p->last_seen;
    abandon_all(r);
    if (r->call.steps == 1) return tu_fail(TU_DEVICE, "its step has not ended after %g s", p->limit);
    if (!last_seen->slowest)
        return tu_fail(TU_DEVICE, "%u steps have not ended after %g s", r->call.steps, p->limit);
    bool is_behind = last_seen->min_steps < last_seen->max_steps;
    return tu_fail(TU_DEVICE, "no step%s%s has ended for %g s: %u of these %u are done",
                   is_behind ? " of " : "", is_behind ? last_seen->slowest->device->name : "", p->limit,
                   last_seen->min_steps, r->call.steps);
}

/* Checks about once per millisecond whether the processes that the steps wait for are there. If not, the steps may
 * never end. */
static tu_status check_connection(const cuda_submit *r, double now, double *next) {
    const double interval = 1e-3;
    if (!r->list.connection || now < *next) return TU_OK;
    *next = now + interval;
    tu_status status = cuda_connection_watch(r->list.connection);
    if (status != TU_OK) abandon_all(r);
    return status == TU_OK ? cuda_make_current(cuda_submit_device(r)) : status;
}

/* cuEventSynchronize at the end reports errors of the steps. */
tu_status cuda_submit_wait(const cuda_submit *r, CUevent event) {
    double start = tu__now(), next_check = start;
    progress_timeout p = start_timeout(r, start);
    while (cuda.cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
        double now = tu__now();
        if (has_timed_out(r, &p, now)) return fail_timeout(r, &p);
        TU_TRY(check_connection(r, now, &next_check));
        cuda_pause(now - start);
    }
    CUDA_TRY(cuEventSynchronize, event);
    return TU_OK;
}
