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
    int calls;           /* calls of submit that executed steps */
    size_t longest_call; /* in steps */
    int fails_in_call;   /* number of the call that fails, from 1; 0: none */
    int fails_in_launch;
    bool allocations_fail;     /* allocations fail */
    uint64_t live_allocations; /* number of allocations that were not released */
    size_t rows_read;
    const char *submit_error; /* submit does not support any list, with this message; NULL: it does */
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

static void fill_input(const tu_submission *s, uint32_t index, uint32_t step) {
    const tu_slot *slot = &s->list->feeds[index];
    const tu_submit_feed *f = &s->feeds[index];
    char *to = s->parts[slot->place.partition].buffers[slot->place.buffer];
    size_t batch = f->host ? 0 : slot->bytes / f->row_bytes;
    if (f->host) memcpy(to, (const char *)f->host + (f->same ? 0 : step * f->stride), slot->bytes);
    for (size_t i = 0; i < batch; i++, discrete.rows_read++)
        memcpy(to + i * f->row_bytes,
               (const char *)f->table + (size_t)f->rows[step * f->stride + i] * f->row_bytes, f->row_bytes);
}

static void keep_result(const tu_submission *s, uint32_t index, uint32_t step) {
    const tu_slot *slot = &s->list->fetches[index];
    if (s->fetches[index])
        memcpy((char *)s->fetches[index] + step * slot->bytes,
               s->parts[slot->place.partition].buffers[slot->place.buffer], slot->bytes);
}

/* Executes one command of a submitted list. They run in the list's order, in which none waits for a later one. */
static tu_status run_discrete_command(const tu_submission *s, uint32_t queue, const tu_command *c,
                                      uint32_t step) {
    const tu_submit_part *part = &s->parts[s->list->queues[queue].partition];
    switch (c->kind) {
    case TU_COMMAND_FEED: fill_input(s, c->index, step); break;
    case TU_COMMAND_LAUNCH: return tu__cpu_api.launch(part->device, part->plan, c->first, c->count);
    case TU_COMMAND_COPY:
        memcpy(s->parts[c->to.partition].buffers[c->to.buffer],
               s->parts[c->from.partition].buffers[c->from.buffer], c->bytes);
        break;
    case TU_COMMAND_FETCH: keep_result(s, c->index, step); break;
    case TU_COMMAND_POST: return tu_fail(TU_INTERNAL, "the discrete devices cannot add up");
    case TU_COMMAND_AWAIT:
    case TU_COMMAND_SIGNAL:
    case TU_COMMAND_WAIT:
    case TU_COMMAND_WAIT_PREVIOUS:
    case TU_COMMAND_COMMIT: break;
    }
    return TU_OK;
}

static tu_status submit_to_discrete(const tu_submission *s) {
    uint32_t next[64];
    if (discrete.submit_error) return tu_fail(TU_UNSUPPORTED, "%s", discrete.submit_error);
    if (s->steps && ++discrete.calls == discrete.fails_in_call)
        return tu_fail(TU_INTERNAL, "the discrete device has gone away");
    if (s->steps > discrete.longest_call) discrete.longest_call = s->steps;
    assert_true(s->list->queue_count <= 64);
    for (uint32_t step = 0; step < s->steps; step++) {
        memset(next, 0, sizeof next);
        for (uint32_t i = 0; i < s->list->command_count; i++) {
            uint32_t q = s->list->order[i];
            TU_TRY(run_discrete_command(s, q, &s->list->queues[q].commands[next[q]++], step));
        }
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
    discrete_api.submit = submit_to_discrete;
    assert_int_equal(tu__device_kind_add(&discrete_api), TU_OK);
}

#endif
