/* A test device "faulty" that fails or blocks on request, for example in its Nth launch. Otherwise it works like the
 * CPU.
 *
 * register_faulty_device() registers the kind "faulty" without faults; clear_faults() removes all faults. */
#ifndef TUTTI_FAULTY_DEVICE_H
#define TUTTI_FAULTY_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
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

static tu_status describe_faulty(int index, tu_device_info *info) {
    if (index > 0) return tu_fail(TU_NOT_FOUND, "there is one faulty device");
    *info = (tu_device_info){.name = "faulty:0", .kind = "faulty"};
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

static tu_status launch_faulty(tu_device_instance *device, tu_plan *plan, uint32_t first, uint32_t count) {
    int number = ++faulty.launches;
    if (number == faulty.failing_launch) return tu_fail(TU_INTERNAL, "its fan has stopped");
    if (number == faulty.blocking_launch) block_until_unblocked();
    return tu__cpu_api.launch(device, plan, first, count);
}

static tu_status synchronize_faulty(tu_device_instance *device) {
    (void)device;
    return faulty.synchronize_fails ? tu_fail(TU_IO, "its clock has stopped") : TU_OK;
}

static tu_status copy_faulty(tu_device_instance *device, void *to, tu_device_instance *other,
                             const tu_device_api *other_api, const void *from, size_t bytes) {
    (void)device, (void)other, (void)other_api;
    if (faulty.copies_fail) return tu_fail(TU_IO, "the cable is loose");
    memcpy(to, from, bytes);
    return TU_OK;
}

static tu_status upload_faulty(tu_device_instance *device, void *to, const void *host, size_t bytes) {
    if (faulty.uploads_fail) return tu_fail(TU_IO, "the line is dead");
    if (faulty.uploads_block) block_until_unblocked();
    return tu__cpu_api.upload(device, to, host, bytes);
}

static tu_status download_faulty(tu_device_instance *device, void *host, const void *from, size_t bytes) {
    if (faulty.downloads_fail) return tu_fail(TU_IO, "the line is dead");
    return tu__cpu_api.download(device, host, from, bytes);
}

/* Events, as of a device with asynchronous launches. register_faulty_device() does not install them;
 * add_faulty_events() does. */
static inline tu_status new_faulty_event(tu_device_instance *device, void **event) {
    *event = device;
    return TU_OK;
}

static inline void free_faulty_event(tu_device_instance *device, void *event) {
    (void)device, (void)event;
}

static inline tu_status record_faulty_event(tu_device_instance *device, void *event) {
    (void)device, (void)event;
    return TU_OK;
}

static inline tu_status synchronize_faulty_event(tu_device_instance *device, void *event) {
    (void)device, (void)event;
    if (faulty.events_block) block_until_unblocked();
    return TU_OK;
}

static inline void add_faulty_events(void) {
    faulty_api.event_new = new_faulty_event;
    faulty_api.event_free = free_faulty_event;
    faulty_api.event_record = record_faulty_event;
    faulty_api.event_synchronize = synchronize_faulty_event;
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
    faulty_api.synchronize = synchronize_faulty;
    faulty_api.copy = copy_faulty;
    faulty_api.upload = upload_faulty;
    faulty_api.download = download_faulty;
    assert_int_equal(tu__device_kind_add(&faulty_api), TU_OK);
}

#endif
