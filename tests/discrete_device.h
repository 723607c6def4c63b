/* A test device "discrete" that supports multi-step calls: the CPU, with memory that the host cannot access directly.
 *
 * register_discrete_device() registers the kind "discrete" and resets all counters and settings. */
#ifndef TUTTI_DISCRETE_DEVICE_H
#define TUTTI_DISCRETE_DEVICE_H

#include <stdatomic.h>
#include <string.h>

#include "test.h"

#include "device/device.h"

static struct {
    uint64_t memory;     /* reported size of its memory; 0: unknown */
    atomic_int launches; /* calls of launch; atomic, because a program may have several such devices */
    int calls;           /* calls of repeat and repeat_joint */
    size_t longest_call; /* in steps */
    int fails_in_call;   /* number of the call that fails, from 1; 0: none */
    int fails_in_launch;
    bool allocations_fail;     /* allocations fail */
    uint64_t live_allocations; /* number of allocations that were not released */
    size_t rows_read;
    const char *joint_error; /* the error message of repeat_joint; NULL: it succeeds */
} discrete;

static tu_device_api discrete_api;

static tu_status describe_discrete(int index, tu_device_info *info) {
    if (index > 0) return tu_fail(TU_NOT_FOUND, "there is one discrete device");
    *info = (tu_device_info){.name = "discrete:0", .kind = "discrete", .memory_bytes = discrete.memory};
    return TU_OK;
}

static tu_status allocate_discrete(tu_device_instance *device, size_t bytes, void **address) {
    if (discrete.allocations_fail) return tu_fail(TU_NO_MEMORY, "the discrete device is full");
    discrete.live_allocations++;
    return tu__cpu_api.allocate(device, bytes, address);
}

static void release_discrete(tu_device_instance *device, void *address) {
    discrete.live_allocations--;
    tu__cpu_api.release(device, address);
}

static tu_status launch_discrete(tu_device_instance *device, tu_plan *plan, uint32_t first, uint32_t count) {
    if (++discrete.launches == discrete.fails_in_launch)
        return tu_fail(TU_INTERNAL, "the discrete device has gone away");
    return tu__cpu_api.launch(device, plan, first, count);
}

static void fill_input(const tu_repeat_feed *f, uint32_t step) {
    char *to = f->to;
    size_t batch = f->host ? 0 : f->bytes / f->row_bytes;
    if (f->host) memcpy(to, (const char *)f->host + (f->same ? 0 : step * f->stride), f->bytes);
    for (size_t i = 0; i < batch; i++, discrete.rows_read++)
        memcpy(to + i * f->row_bytes,
               (const char *)f->table + (size_t)f->rows[step * f->stride + i] * f->row_bytes, f->row_bytes);
}

static void keep_results(const tu_repetition *what, uint32_t step) {
    for (uint32_t i = 0; i < what->fetch_count; i++)
        memcpy((char *)what->fetches[i].host + step * what->fetches[i].bytes, what->fetches[i].from,
               what->fetches[i].bytes);
}

static tu_status repeat_discrete(tu_device_instance *device, tu_plan *plan, uint32_t steps,
                                 const tu_repetition *what) {
    if (++discrete.calls == discrete.fails_in_call)
        return tu_fail(TU_INTERNAL, "the discrete device has gone away");
    if (steps > discrete.longest_call) discrete.longest_call = steps;
    for (uint32_t s = 0; s < steps; s++) {
        for (uint32_t i = 0; i < what->feed_count; i++) fill_input(&what->feeds[i], s);
        TU_TRY(tu__cpu_api.launch(device, plan, 0, plan->kernel_count));
        keep_results(what, s);
    }
    return TU_OK;
}

/* Executes one action of a joint multi-step call. The actions run in list order, so none may wait for a later one. */
static tu_status run_discrete_move(const tu_joint_part *parts, const tu_joint_move *m, uint32_t step) {
    const tu_joint_part *part = &parts[m->part];
    switch (m->kind) {
    case TU_JOINT_LAUNCH: return tu__cpu_api.launch(part->device, part->plan, m->first, m->count);
    case TU_JOINT_COPY: memcpy(m->to, m->from, m->bytes); break;
    case TU_JOINT_KEEP: keep_results(&part->what, step); break;
    case TU_JOINT_WAIT: break;
    case TU_JOINT_COLLECTIVE: return tu_fail(TU_INTERNAL, "the discrete devices cannot add up");
    }
    return TU_OK;
}

static tu_status repeat_discrete_joint(uint32_t part_count, const tu_joint_part *parts, uint32_t move_count,
                                       const tu_joint_move *moves, uint32_t steps) {
    if (discrete.joint_error) return tu_fail(TU_UNSUPPORTED, "%s", discrete.joint_error);
    if (steps && ++discrete.calls == discrete.fails_in_call)
        return tu_fail(TU_INTERNAL, "the discrete devices have gone away");
    for (uint32_t s = 0; s < steps; s++) {
        for (uint32_t p = 0; p < part_count; p++)
            for (uint32_t i = 0; i < parts[p].what.feed_count; i++) fill_input(&parts[p].what.feeds[i], s);
        for (uint32_t i = 0; i < move_count; i++) TU_TRY(run_discrete_move(parts, &moves[i], s));
    }
    return TU_OK;
}

static inline void register_discrete_device(void) {
    memset(&discrete, 0, sizeof discrete);
    if (!discrete_api.kind) discrete_api = tu__cpu_api;
    discrete_api.kind = "discrete";
    discrete_api.host_memory = false;
    discrete_api.copy = NULL;
    discrete_api.describe = describe_discrete;
    discrete_api.allocate = allocate_discrete;
    discrete_api.release = release_discrete;
    discrete_api.launch = launch_discrete;
    discrete_api.repeat = repeat_discrete;
    discrete_api.repeat_joint = repeat_discrete_joint;
    assert_int_equal(tu__device_kind_add(&discrete_api), TU_OK);
}

#endif
