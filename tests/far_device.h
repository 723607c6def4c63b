/* A test device "far" that supports multi-step calls: the CPU, with memory that the host cannot access directly.
 *
 * plug_in_far() registers the kind "far" and resets all counters and settings. */
#ifndef TUTTI_FAR_DEVICE_H
#define TUTTI_FAR_DEVICE_H

#include <stdatomic.h>
#include <string.h>

#include "test.h"

#include "device/device.h"

static struct {
    uint64_t memory;     /* reported size of its memory; 0: unknown */
    atomic_int launches; /* calls of launch; atomic, because a program may have several such devices */
    int calls;           /* calls of repeat and repeat_joint */
    size_t longest_call; /* in steps */
    int fails_in_call;   /* index of the call that fails, from 1; 0: none */
    int fails_in_launch;
    bool has_no_room; /* allocations fail */
    uint64_t held;    /* number of allocations that were not released */
    size_t rows_read;
    const char *refuses_to_join; /* the error message of repeat_joint; NULL: it succeeds */
} far;

static tu_device_api far_api;

static tu_status describe_far(int index, tu_device_info *info) {
    if (index > 0) return tu_fail(TU_NOT_FOUND, "there is one far device");
    *info = (tu_device_info){.name = "far:0", .kind = "far", .memory_bytes = far.memory};
    return TU_OK;
}

static tu_status allocate_far(tu_device_instance *device, size_t bytes, void **address) {
    if (far.has_no_room) return tu_fail(TU_NO_MEMORY, "the far device is full");
    far.held++;
    return tu__cpu_api.allocate(device, bytes, address);
}

static void release_far(tu_device_instance *device, void *address) {
    far.held--;
    tu__cpu_api.release(device, address);
}

static tu_status launch_far(tu_device_instance *device, tu_plan *plan, uint32_t first, uint32_t count) {
    if (++far.launches == far.fails_in_launch) return tu_fail(TU_INTERNAL, "the far device has gone away");
    return tu__cpu_api.launch(device, plan, first, count);
}

static void fill_input(const tu_repeat_feed *f, uint32_t step) {
    char *to = f->to;
    size_t batch = f->host ? 0 : f->bytes / f->row_bytes;
    if (f->host) memcpy(to, (const char *)f->host + (f->same ? 0 : step * f->stride), f->bytes);
    for (size_t i = 0; i < batch; i++, far.rows_read++)
        memcpy(to + i * f->row_bytes,
               (const char *)f->table + (size_t)f->rows[step * f->stride + i] * f->row_bytes, f->row_bytes);
}

static void keep_results(const tu_repetition *what, uint32_t step) {
    for (uint32_t i = 0; i < what->fetch_count; i++)
        memcpy((char *)what->fetches[i].host + step * what->fetches[i].bytes, what->fetches[i].from,
               what->fetches[i].bytes);
}

static tu_status repeat_far(tu_device_instance *device, tu_plan *plan, uint32_t steps,
                            const tu_repetition *what) {
    if (++far.calls == far.fails_in_call) return tu_fail(TU_INTERNAL, "the far device has gone away");
    if (steps > far.longest_call) far.longest_call = steps;
    for (uint32_t s = 0; s < steps; s++) {
        for (uint32_t i = 0; i < what->feed_count; i++) fill_input(&what->feeds[i], s);
        TU_TRY(tu__cpu_api.launch(device, plan, 0, plan->kernel_count));
        keep_results(what, s);
    }
    return TU_OK;
}

/* Executes one action of a joint multi-step call. The actions run in list order, so none may wait for a later one. */
static tu_status take_far_move(const tu_joint_part *parts, const tu_joint_move *m, uint32_t step) {
    const tu_joint_part *part = &parts[m->part];
    switch (m->kind) {
    case TU_JOINT_LAUNCH: return tu__cpu_api.launch(part->device, part->plan, m->first, m->count);
    case TU_JOINT_COPY: memcpy(m->to, m->from, m->bytes); break;
    case TU_JOINT_KEEP: keep_results(&part->what, step); break;
    case TU_JOINT_WAIT: break;
    case TU_JOINT_COLLECTIVE: return tu_fail(TU_INTERNAL, "the far devices cannot add up");
    }
    return TU_OK;
}

static tu_status repeat_far_together(uint32_t part_count, const tu_joint_part *parts, uint32_t move_count,
                                     const tu_joint_move *moves, uint32_t steps) {
    if (far.refuses_to_join) return tu_fail(TU_UNSUPPORTED, "%s", far.refuses_to_join);
    if (steps && ++far.calls == far.fails_in_call)
        return tu_fail(TU_INTERNAL, "the far devices have gone away");
    for (uint32_t s = 0; s < steps; s++) {
        for (uint32_t p = 0; p < part_count; p++)
            for (uint32_t i = 0; i < parts[p].what.feed_count; i++) fill_input(&parts[p].what.feeds[i], s);
        for (uint32_t i = 0; i < move_count; i++) TU_TRY(take_far_move(parts, &moves[i], s));
    }
    return TU_OK;
}

static inline void plug_in_far(void) {
    memset(&far, 0, sizeof far);
    if (!far_api.kind) far_api = tu__cpu_api;
    far_api.kind = "far";
    far_api.host_memory = false;
    far_api.copy = NULL;
    far_api.describe = describe_far;
    far_api.allocate = allocate_far;
    far_api.release = release_far;
    far_api.launch = launch_far;
    far_api.repeat = repeat_far;
    far_api.repeat_joint = repeat_far_together;
    assert_int_equal(tu__device_kind_add(&far_api), TU_OK);
}

#endif
