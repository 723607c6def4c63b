/* A test device "faulty" that fails or blocks on request, for example in its Nth launch. Otherwise it works like the
 * CPU.
 *
 * register_faulty_device() registers the kind "faulty" without faults; clear_faults() removes all faults. */
#ifndef TUTTI_FAULTY_DEVICE_H
#define TUTTI_FAULTY_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

#include "device/device.h"

/* A blocked launch may continue while the next run starts, so all fields are atomic or protected by the lock. */
static struct {
    atomic_int launches;
    atomic_int failing_launch,
        blocking_launch; /* number of the launch that fails or blocks, from 1; 0: none */
    atomic_bool copies_fail, uploads_fail, uploads_block, downloads_fail, events_block, synchronize_fails;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool blocked, unblocked; /* a launch is blocked; blocked launches may continue */
    /* Number of unblock_faulty_device() calls: an unblocked launch continues even if clear_faults() is called before
     * it wakes up. */
    unsigned unblock_count;
} faulty = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static tu_device_api faulty_api;

static tu_status describe_faulty(tu_device_instance *device, int index, tu_device_info *info) {
    if (index > 0) return tu_fail(TU_NOT_FOUND, "there is one faulty device");
    if (device) TU_TRY(tu__cpu_api.describe(device, index, info));
    info->name = "faulty:0";
    info->kind = "faulty";
    return TU_OK;
}

static void block_until_unblocked(void) {
    pthread_mutex_lock(&faulty.lock);
    faulty.blocked = true;
    pthread_cond_broadcast(&faulty.changed);
    unsigned before = faulty.unblock_count;
    while (!faulty.unblocked && faulty.unblock_count == before)
        pthread_cond_wait(&faulty.changed, &faulty.lock);
    pthread_mutex_unlock(&faulty.lock);
}

static tu_status launch_faulty(tu_device_instance *device, tu_executable *executable, uint32_t first,
                               uint32_t count) {
    int number = ++faulty.launches;
    if (number == faulty.failing_launch) return tu_fail(TU_INTERNAL, "its fan has stopped");
    if (number == faulty.blocking_launch) block_until_unblocked();
    return tu__cpu_api.launch(device, executable, first, count);
}

/* Uploads and downloads are copies from and to the host, of a device with its own memory (faulty_api.host_memory is
 * false). */
static tu_status copy_faulty(tu_device_instance *device, tu_queue *queue, tu_memory to, tu_memory from,
                             size_t bytes) {
    bool is_upload = to.device && !from.device, is_download = from.device && !to.device;
    if (faulty.copies_fail) return tu_fail(TU_IO, "the cable is loose");
    if ((is_upload && faulty.uploads_fail) || (is_download && faulty.downloads_fail))
        return tu_fail(TU_IO, "the line is dead");
    if (is_upload && faulty.uploads_block) block_until_unblocked();
    return tu__cpu_api.copy(device, queue, to, from, bytes);
}

/* Queues, as of a device with asynchronous launches; everything is done when it is enqueued. register_faulty_device()
 * does not install them; add_faulty_queues() does. */
struct tu_queue {
    tu_device_instance *device;
};

static inline tu_status new_faulty_queue(tu_device_instance *device, uint32_t event_count, tu_queue **queue) {
    (void)event_count;
    *queue = malloc(sizeof **queue);
    if (!*queue) return tu_fail(TU_NO_MEMORY, "out of memory");
    (*queue)->device = device;
    return TU_OK;
}

static inline void free_faulty_queue(tu_device_instance *device, tu_queue *queue) {
    (void)device;
    free(queue);
}

static inline tu_status record_in_faulty_queue(tu_queue *queue, uint32_t event) {
    (void)queue, (void)event;
    return TU_OK;
}

static inline tu_status wait_in_faulty_queue(tu_queue *queue, tu_queue *other, uint32_t event) {
    (void)queue, (void)other, (void)event;
    return TU_OK;
}

static inline tu_status synchronize_faulty_queue(tu_queue *queue, uint32_t event, double timeout,
                                                 bool *done) {
    (void)queue, (void)timeout;
    *done = true;
    if (event != TU_ALL_EVENTS && faulty.events_block) block_until_unblocked();
    return faulty.synchronize_fails ? tu_fail(TU_IO, "its clock has stopped") : TU_OK;
}

static inline void add_faulty_queues(void) {
    faulty_api.queue_new = new_faulty_queue;
    faulty_api.queue_free = free_faulty_queue;
    faulty_api.record = record_in_faulty_queue;
    faulty_api.wait = wait_in_faulty_queue;
    faulty_api.synchronize = synchronize_faulty_queue;
}

static inline void clear_faults(void) {
    faulty.launches = 0;
    faulty.failing_launch = faulty.blocking_launch = 0;
    faulty.copies_fail = faulty.uploads_fail = faulty.uploads_block = faulty.downloads_fail =
        faulty.events_block = faulty.synchronize_fails = false;
    pthread_mutex_lock(&faulty.lock);
    faulty.blocked = faulty.unblocked = false;
    pthread_mutex_unlock(&faulty.lock);
}

static inline void unblock_faulty_device(void) {
    pthread_mutex_lock(&faulty.lock);
    faulty.unblocked = true;
    faulty.unblock_count++;
    pthread_cond_broadcast(&faulty.changed);
    pthread_mutex_unlock(&faulty.lock);
}

static inline void register_faulty_device(void) {
    clear_faults();
    faulty_api = tu__cpu_api;
    faulty_api.kind = "faulty";
    faulty_api.describe = describe_faulty;
    faulty_api.launch = launch_faulty;
    faulty_api.copy = copy_faulty;
    assert_int_equal(tu__device_kind_add(&faulty_api), TU_OK);
}

#endif
