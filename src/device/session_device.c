/* What a session has on one device: scratch memory and host threads. Host memory that accelerators copy fastest. */
#include "base/alloc.h"
#include "base/thread_pool.h"
#include "base/worker.h"
#include "device/device.h"

/* ---- Pinned memory ---- */

void *tu__device_allocate_pinned(tu__device *device, size_t bytes) {
    void *address = NULL;
    if (bytes < TU__PINNABLE_BYTES || device->api->host_memory) return NULL;
    if (device->api->allocate(device->instance, true, bytes, &address) != TU_OK || !address) return NULL;
    tu__device_retain(device);
    return address;
}

void tu__device_release_pinned(tu__device *device, void *address) {
    device->api->release(device->instance, address);
    tu__devices_close(1, &device);
}

tu_status tu__device_allocate(tu__device *device, size_t bytes, void **address) {
    void *created = NULL;
    TU_TRY(device->api->allocate(device->instance, false, bytes, &created));
    if (!created)
        return tu_fail(
            TU_INTERNAL,
            "device '%s' reported success for %zu bytes but returned no address; please report this to "
            "the device's authors",
            device->name, bytes);
    *address = created;
    return TU_OK;
}

/* ---- Scratch memory and threads ---- */

void tu__session_device_init(tu__session_device *s, tu__device *device) {
    *s = (tu__session_device){.device = device};
    pthread_mutex_init(&s->lock, NULL);
}

static void release_scratch(tu__session_device *s) {
    const tu__device *owner = s->pinned_by ? s->pinned_by : s->device;
    if (s->scratch) owner->api->release(owner->instance, s->scratch);
    s->scratch = NULL;
    s->scratch_bytes = 0;
}

/* `pinned_by` stays open: the caller may hold the lock that closing needs. */
void tu__session_device_free(tu__session_device *s) {
    tu__worker_stop(s->compute_thread);
    tu__worker_stop(s->copy_thread);
    tu__thread_pool_free(s->pool);
    release_scratch(s);
    pthread_mutex_destroy(&s->lock);
}

tu_status tu__session_device_scratch(tu__session_device *s, size_t bytes) {
    if (bytes <= s->scratch_bytes) return TU_OK;
    release_scratch(s);
    if (s->pinned_by) tu__devices_close(1, &s->pinned_by);
    s->pinned_by = NULL;
    s->scratch_generation++;
    TU_TRY(tu__device_allocate(s->device, bytes, &s->scratch));
    s->scratch_bytes = bytes;
    return TU_OK;
}

tu_status tu__session_device_pool(tu__session_device *s) {
    int threads = s->device->threads;
    if (s->pool || threads < 2 || !s->device->api->host_memory) return TU_OK;
    return tu__thread_pool_new(threads < TU__THREAD_POOL_MAX ? threads : TU__THREAD_POOL_MAX, &s->pool);
}

void tu__session_device_pin(tu__session_device *s, tu__device *accelerator) {
    if (s->pinned_by) return;
    void *pinned = tu__device_allocate_pinned(accelerator, s->scratch_bytes);
    if (!pinned) return;
    size_t bytes = s->scratch_bytes;
    release_scratch(s);
    s->scratch = pinned;
    s->scratch_bytes = bytes;
    s->pinned_by = accelerator;
    s->scratch_generation++;
}
