/* A test device "discrete" that supports multi-step calls: the CPU, with memory that the host cannot access directly, and
 * with queues. Launches are done when they return. Copies in a queue are, too, unless `copies_are_late` is set: then a
 * copy is performed as late as possible, when something waits for its event, or at the second query.
 *
 * register_discrete_device() registers the kind "discrete" and resets all counters and settings. */
#ifndef TUTTI_DISCRETE_DEVICE_H
#define TUTTI_DISCRETE_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

#include "device/device.h"

static struct {
    uint64_t memory;     /* reported size of its memory; 0: unknown */
    atomic_int launches; /* calls of launch; atomic, because a program may have several such devices */
    int calls;           /* calls of submit */
    size_t longest_call; /* in steps */
    int fails_in_call;   /* number of the call that fails, from 1; 0: none */
    int fails_in_launch;
    bool allocations_fail;     /* allocations fail */
    uint64_t live_allocations; /* number of allocations that were not released */
    size_t rows_read;
    const char *list_error; /* it supports no list, with this message; NULL: it does */
    bool copies_are_late;
    atomic_int uploads, downloads, completed; /* copies in queues: begun in each direction, and completed */
} discrete;

static tu_device_api discrete_api;

/* ---- Devices and memory ---- */

static tu_status describe_discrete(tu_device_instance *device, int index, tu_device_info *info) {
    if (index > 0) return tu_fail(TU_NOT_FOUND, "there is one discrete device");
    if (device) TU_TRY(tu__cpu_api.describe(device, index, info));
    info->name = "discrete:0";
    info->kind = "discrete";
    info->memory_bytes = discrete.memory;
    return TU_OK;
}

/* It has no pinned memory. */
static tu_status allocate_discrete(tu_device_instance *device, bool on_host, size_t bytes, void **address) {
    if (on_host) return tu_fail(TU_UNSUPPORTED, "the discrete device copies all host memory alike");
    if (discrete.allocations_fail) return tu_fail(TU_NO_MEMORY, "the discrete device is full");
    discrete.live_allocations++;
    return tu__cpu_api.allocate(device, on_host, bytes, address);
}

static void release_discrete(tu_device_instance *device, void *address) {
    discrete.live_allocations--;
    tu__cpu_api.release(device, address);
}

/* ---- Queues ---- */

enum { MAX_LATE_COPIES = 64 };

struct tu_queue {
    pthread_mutex_t lock; /* any thread may wait for an event */
    uint32_t event_count;
    struct {
        bool recorded;
        uint32_t copies; /* number of copies before it */
        int queries;     /* number of queries since it was recorded */
    } * events;
    struct {
        void *to;
        const void *from;
        size_t bytes;
    } copies[MAX_LATE_COPIES]; /* entry i contains copy i, i + MAX_LATE_COPIES, … */
    uint32_t begun, completed; /* number of copies */
    bool has_waited;           /* for another queue, since the last copy */
};

static tu_status new_discrete_queue(tu_device_instance *device, uint32_t event_count, tu_queue **queue) {
    (void)device;
    tu_queue *q = *queue = calloc(1, sizeof *q);
    if (!q) return tu_fail(TU_NO_MEMORY, "out of memory");
    q->event_count = event_count;
    q->events = calloc((size_t)event_count + 1, sizeof *q->events);
    if (!q->events) {
        free(q);
        return tu_fail(TU_NO_MEMORY, "out of memory");
    }
    pthread_mutex_init(&q->lock, NULL);
    return TU_OK;
}

static void free_discrete_queue(tu_device_instance *device, tu_queue *queue) {
    (void)device;
    pthread_mutex_destroy(&queue->lock);
    free(queue->events);
    free(queue);
}

/* Completes the first `count` copies. Call with the lock held. */
static void complete_discrete_copies(tu_queue *queue, uint32_t count) {
    for (; queue->completed < count; queue->completed++) {
        uint32_t i = queue->completed % MAX_LATE_COPIES;
        memcpy(queue->copies[i].to, queue->copies[i].from, queue->copies[i].bytes);
        discrete.completed++;
    }
}

/* Fails if an event does not exist or was never recorded. */
static tu_status check_discrete_event(const tu_queue *queue, uint32_t event) {
    if (event >= queue->event_count)
        return tu_fail(TU_INTERNAL, "event %u of a queue with %u events", event, queue->event_count);
    return queue->events[event].recorded ? TU_OK : tu_fail(TU_INTERNAL, "event %u was never recorded", event);
}

static tu_status record_in_discrete_queue(tu_queue *queue, uint32_t event) {
    if (event >= queue->event_count)
        return tu_fail(TU_INTERNAL, "event %u of a queue with %u events", event, queue->event_count);
    pthread_mutex_lock(&queue->lock);
    queue->events[event].recorded = true;
    queue->events[event].copies = queue->begun;
    queue->events[event].queries = 0;
    pthread_mutex_unlock(&queue->lock);
    return TU_OK;
}

static tu_status complete_discrete_event(tu_queue *queue, uint32_t event, bool is_query, bool *done) {
    pthread_mutex_lock(&queue->lock);
    tu_status status = event == TU_ALL_EVENTS ? TU_OK : check_discrete_event(queue, event);
    uint32_t count = status != TU_OK          ? 0
                     : event == TU_ALL_EVENTS ? queue->begun
                                              : queue->events[event].copies;
    *done = queue->completed >= count || !is_query ||
            (event != TU_ALL_EVENTS && queue->events[event].queries++ > 0);
    if (*done) complete_discrete_copies(queue, count);
    pthread_mutex_unlock(&queue->lock);
    return status;
}

/* What is enqueued later may be a launch, which is executed at once, so the event must have happened. */
static tu_status wait_in_discrete_queue(tu_queue *queue, tu_queue *other, uint32_t event) {
    bool done;
    pthread_mutex_lock(&queue->lock);
    queue->has_waited = true;
    pthread_mutex_unlock(&queue->lock);
    return complete_discrete_event(other, event, false, &done);
}

static tu_status synchronize_discrete_queue(tu_queue *queue, uint32_t event, double timeout, bool *done) {
    return complete_discrete_event(queue, event, timeout == 0, done);
}

/* A download must come after the kernels that compute the value. */
static tu_status enqueue_discrete_copy(tu_queue *queue, bool is_download, void *to, const void *from,
                                       size_t bytes) {
    pthread_mutex_lock(&queue->lock);
    bool in_order = !is_download || queue->has_waited,
         has_room = queue->begun - queue->completed < MAX_LATE_COPIES;
    if (in_order && has_room) {
        uint32_t i = queue->begun++ % MAX_LATE_COPIES;
        queue->copies[i].to = to;
        queue->copies[i].from = from;
        queue->copies[i].bytes = bytes;
        queue->has_waited = false;
        if (!discrete.copies_are_late) complete_discrete_copies(queue, queue->begun);
    }
    pthread_mutex_unlock(&queue->lock);
    if (!in_order) return tu_fail(TU_INTERNAL, "a download does not wait for its value");
    return has_room ? TU_OK : tu_fail(TU_INTERNAL, "more than %d copies are in progress", MAX_LATE_COPIES);
}

/* Without the group of peers, other devices never appear here. */
static tu_status copy_discrete(tu_device_instance *device, tu_queue *queue, tu_memory to, tu_memory from,
                               size_t bytes) {
    bool is_upload = to.device == device && !from.device, is_download = from.device == device && !to.device;
    if (!is_upload && !is_download && (to.device != device || from.device != device))
        return tu_fail(TU_INTERNAL, "the discrete device cannot copy memory of other devices");
    if (!queue) return tu__cpu_api.copy(device, NULL, to, from, bytes);
    discrete.uploads += is_upload;
    discrete.downloads += is_download;
    return enqueue_discrete_copy(queue, is_download, to.address, from.address, bytes);
}

/* ---- Executables ---- */

typedef struct discrete_executable {
    tu_executable *kernels; /* of the CPU; NULL: this is a list */
    tu_list_binding binding;
} discrete_executable;

static discrete_executable *discrete_executable_of(tu_executable *executable) {
    return (discrete_executable *)executable;
}

static tu_status new_discrete_executable(tu_executable **executable) {
    *executable = calloc(1, sizeof(discrete_executable));
    return *executable ? TU_OK : tu_fail(TU_NO_MEMORY, "out of memory");
}

static void free_discrete_executable(tu_device_instance *device, tu_executable *executable) {
    discrete_executable *e = discrete_executable_of(executable);
    if (e->kernels) tu__cpu_api.executable_free(device, e->kernels);
    free(e);
}

static tu_status build_discrete(tu_device_instance *device, tu_queue *queue, tu_plan *plan,
                                const tu_binding *binding, tu_executable **executable) {
    if (!queue != !discrete_api.queue_new) return tu_fail(TU_INTERNAL, "a queue is missing, or useless");
    TU_TRY(new_discrete_executable(executable));
    tu_status status =
        tu__cpu_api.build(device, NULL, plan, binding, &discrete_executable_of(*executable)->kernels);
    if (status != TU_OK) free_discrete_executable(device, *executable);
    return status;
}

static tu_status launch_discrete(tu_device_instance *device, tu_executable *executable, uint32_t first,
                                 uint32_t count) {
    if (++discrete.launches == discrete.fails_in_launch)
        return tu_fail(TU_INTERNAL, "the discrete device has gone away");
    return tu__cpu_api.launch(device, discrete_executable_of(executable)->kernels, first, count);
}

static tu_status times_of_discrete(tu_device_instance *device, tu_executable *executable, uint32_t position,
                                   double *start, double *seconds) {
    return tu__cpu_api.times(device, discrete_executable_of(executable)->kernels, position, start, seconds);
}

/* ---- Lists ---- */

static tu_status build_discrete_list(tu_device_instance *device, const tu_list_binding *binding,
                                     tu_executable **executable) {
    (void)device;
    if (discrete.list_error) return tu_fail(TU_UNSUPPORTED, "%s", discrete.list_error);
    if (!executable) return TU_OK;
    TU_TRY(new_discrete_executable(executable));
    discrete_executable_of(*executable)->binding = *binding;
    return TU_OK;
}

static void *discrete_address(const tu_list_binding *b, tu_place place) {
    return b->parts[place.partition].buffers[place.buffer];
}

static void fill_input(const tu_list_binding *b, const tu_submission *s, uint32_t index, uint32_t step) {
    const tu_slot *slot = &b->list->feeds[index];
    const tu_submit_feed *f = &s->feeds[index];
    char *to = discrete_address(b, slot->place);
    size_t batch = f->host ? 0 : slot->bytes / f->row_bytes;
    if (f->host) memcpy(to, (const char *)f->host + (f->same ? 0 : step * f->stride), slot->bytes);
    for (size_t i = 0; i < batch; i++, discrete.rows_read++)
        memcpy(to + i * f->row_bytes,
               (const char *)f->table + (size_t)f->rows[step * f->stride + i] * f->row_bytes, f->row_bytes);
}

static void keep_result(const tu_list_binding *b, const tu_submission *s, uint32_t index, uint32_t step) {
    const tu_slot *slot = &b->list->fetches[index];
    if (s->fetches[index])
        memcpy((char *)s->fetches[index] + step * slot->bytes, discrete_address(b, slot->place), slot->bytes);
}

/* Executes one command of a submitted list. They run in the list's order, in which none waits for a later one. */
static tu_status run_discrete_command(const tu_list_binding *b, const tu_submission *s, uint32_t queue,
                                      const tu_command *c, uint32_t step) {
    const tu_list_part *part = &b->parts[b->list->queues[queue].partition];
    switch (c->kind) {
    case TU_COMMAND_FEED: fill_input(b, s, c->index, step); break;
    case TU_COMMAND_LAUNCH:
        return tu__cpu_api.launch(part->device, discrete_executable_of(part->executable)->kernels, c->first,
                                  c->count);
    case TU_COMMAND_COPY: memcpy(discrete_address(b, c->to), discrete_address(b, c->from), c->bytes); break;
    case TU_COMMAND_FETCH: keep_result(b, s, c->index, step); break;
    case TU_COMMAND_POST: return tu_fail(TU_INTERNAL, "the discrete devices cannot add up");
    case TU_COMMAND_AWAIT:
    case TU_COMMAND_SIGNAL:
    case TU_COMMAND_WAIT:
    case TU_COMMAND_WAIT_PREVIOUS:
    case TU_COMMAND_COMMIT: break;
    }
    return TU_OK;
}

static tu_status run_discrete_step(const tu_list_binding *b, const tu_submission *s, uint32_t step) {
    uint32_t next[64] = {0};
    if (b->list->queue_count > 64) return tu_fail(TU_INTERNAL, "a list of more than 64 queues");
    for (uint32_t i = 0; i < b->list->command_count; i++) {
        uint32_t q = b->list->order[i];
        TU_TRY(run_discrete_command(b, s, q, &b->list->queues[q].commands[next[q]++], step));
    }
    return TU_OK;
}

static tu_status submit_to_discrete(tu_device_instance *device, tu_executable *executable,
                                    const tu_submission *s) {
    (void)device;
    if (++discrete.calls == discrete.fails_in_call)
        return tu_fail(TU_INTERNAL, "the discrete device has gone away");
    if (s->steps > discrete.longest_call) discrete.longest_call = s->steps;
    for (uint32_t step = 0; step < s->steps; step++) {
        TU_TRY(run_discrete_step(&discrete_executable_of(executable)->binding, s, step));
        *s->steps_done = step + 1;
    }
    return TU_OK;
}

/* ---- Registration ---- */

static inline void register_discrete_device(void) {
    memset(&discrete, 0, sizeof discrete);
    discrete_api = tu__cpu_api;
    discrete_api.kind = "discrete";
    discrete_api.host_memory = false;
    discrete_api.describe = describe_discrete;
    discrete_api.allocate = allocate_discrete;
    discrete_api.release = release_discrete;
    discrete_api.copy = copy_discrete;
    discrete_api.build = build_discrete;
    discrete_api.executable_free = free_discrete_executable;
    discrete_api.launch = launch_discrete;
    discrete_api.times = times_of_discrete;
    discrete_api.queue_new = new_discrete_queue;
    discrete_api.queue_free = free_discrete_queue;
    discrete_api.record = record_in_discrete_queue;
    discrete_api.wait = wait_in_discrete_queue;
    discrete_api.synchronize = synchronize_discrete_queue;
    discrete_api.build_list = build_discrete_list;
    discrete_api.submit = submit_to_discrete;
    assert_int_equal(tu__device_kind_add(&discrete_api), TU_OK);
}

static inline void remove_discrete_lists(void) {
    discrete_api.build_list = NULL;
    discrete_api.submit = NULL;
}

/* Removes the queues, and the lists, which need them: all copies are synchronous. */
static inline void remove_discrete_queues(void) {
    remove_discrete_lists();
    discrete_api.queue_new = NULL;
    discrete_api.queue_free = NULL;
    discrete_api.record = NULL;
    discrete_api.wait = NULL;
    discrete_api.synchronize = NULL;
}

#endif
