/* A test device "odd" that fails or blocks on request, for example in its Nth launch. Otherwise it works like the
 * CPU.
 *
 * plug_in_odd() registers the kind "odd" without faults; mend_odd() removes all faults. */
#ifndef TUTTI_ODD_DEVICE_H
#define TUTTI_ODD_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "test.h"

#include "device/device.h"

/* A blocked launch may continue while the next run starts, so all fields are atomic or protected by the lock. */
static struct {
    atomic_int launches;
    atomic_int fails_in, sticks_in; /* index of the launch that fails or blocks, from 1; 0: none */
    atomic_bool copies_fail, uploads_fail, uploads_stick, downloads_fail, events_stick, ends_badly;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stuck, freed; /* a launch is blocked; blocked launches may continue */
    unsigned
        frees; /* number of free_odd() calls: a freed launch continues even if mend_odd() is called before it wakes up */
} odd = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static tu_device_api odd_api;

static tu_status describe_odd(int index, tu_device_info *info) {
    if (index > 0) return tu_fail(TU_NOT_FOUND, "there is one odd device");
    *info = (tu_device_info){.name = "odd:0", .kind = "odd"};
    return TU_OK;
}

static void stay_until_freed(void) {
    pthread_mutex_lock(&odd.lock);
    odd.stuck = true;
    pthread_cond_broadcast(&odd.changed);
    unsigned before = odd.frees;
    while (!odd.freed && odd.frees == before) pthread_cond_wait(&odd.changed, &odd.lock);
    pthread_mutex_unlock(&odd.lock);
}

static tu_status launch_odd(tu_device_instance *device, tu_plan *plan, uint32_t first, uint32_t count) {
    int number = ++odd.launches;
    if (number == odd.fails_in) return tu_fail(TU_INTERNAL, "its fan has stopped");
    if (number == odd.sticks_in) stay_until_freed();
    return tu__cpu_api.launch(device, plan, first, count);
}

static tu_status synchronize_odd(tu_device_instance *device) {
    (void)device;
    return odd.ends_badly ? tu_fail(TU_IO, "its clock has stopped") : TU_OK;
}

static tu_status copy_odd(tu_device_instance *device, void *to, tu_device_instance *other,
                          const tu_device_api *other_api, const void *from, size_t bytes) {
    (void)device, (void)other, (void)other_api;
    if (odd.copies_fail) return tu_fail(TU_IO, "the cable is loose");
    memcpy(to, from, bytes);
    return TU_OK;
}

static tu_status upload_odd(tu_device_instance *device, void *to, const void *host, size_t bytes) {
    if (odd.uploads_fail) return tu_fail(TU_IO, "the line is dead");
    if (odd.uploads_stick) stay_until_freed();
    return tu__cpu_api.upload(device, to, host, bytes);
}

static tu_status download_odd(tu_device_instance *device, void *host, const void *from, size_t bytes) {
    if (odd.downloads_fail) return tu_fail(TU_IO, "the line is dead");
    return tu__cpu_api.download(device, host, from, bytes);
}

/* Events, as of a device with asynchronous launches. plug_in_odd() does not install them; give_odd_events() does. */
static inline tu_status new_odd_event(tu_device_instance *device, void **event) {
    *event = device;
    return TU_OK;
}

static inline void free_odd_event(tu_device_instance *device, void *event) {
    (void)device, (void)event;
}

static inline tu_status record_odd_event(tu_device_instance *device, void *event) {
    (void)device, (void)event;
    return TU_OK;
}

static inline tu_status synchronize_odd_event(tu_device_instance *device, void *event) {
    (void)device, (void)event;
    if (odd.events_stick) stay_until_freed();
    return TU_OK;
}

static inline void give_odd_events(void) {
    odd_api.event_new = new_odd_event;
    odd_api.event_free = free_odd_event;
    odd_api.event_record = record_odd_event;
    odd_api.event_synchronize = synchronize_odd_event;
}

static inline void mend_odd(void) {
    odd.launches = 0;
    odd.fails_in = odd.sticks_in = 0;
    odd.copies_fail = odd.uploads_fail = odd.uploads_stick = odd.downloads_fail = odd.events_stick =
        odd.ends_badly = false;
    pthread_mutex_lock(&odd.lock);
    odd.stuck = odd.freed = false;
    pthread_mutex_unlock(&odd.lock);
}

static inline void free_odd(void) {
    pthread_mutex_lock(&odd.lock);
    odd.freed = true;
    odd.frees++;
    pthread_cond_broadcast(&odd.changed);
    pthread_mutex_unlock(&odd.lock);
}

static inline void plug_in_odd(void) {
    mend_odd();
    odd_api = tu__cpu_api;
    odd_api.kind = "odd";
    odd_api.describe = describe_odd;
    odd_api.launch = launch_odd;
    odd_api.synchronize = synchronize_odd;
    odd_api.copy = copy_odd;
    odd_api.upload = upload_odd;
    odd_api.download = download_odd;
    assert_int_equal(tu__device_kind_add(&odd_api), TU_OK);
}

#endif
