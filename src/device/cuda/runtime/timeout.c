/* Timeouts, and GPUs that are abandoned after one.
 *
 * A kernel that never ends blocks everything that waits for it in the driver. With a timeout the host therefore polls,
 * and abandons the GPU when the timeout expires. A GPU stays abandoned until the process ends, because most functions
 * that free resources block too: the driver frees memory, graphs and streams only when nothing uses them. Calls for an
 * abandoned GPU fail at once. Its resources are not freed; the operating system reclaims them at exit. All logical
 * devices of a GPU share one context and are abandoned together.
 */
#include <stdatomic.h>

#include "base/clock.h"
#include "device/cuda/runtime/connection.h"

static atomic_bool abandoned[CUDA_MAX_GPUS];

void cuda_abandon(const cuda_device *device) {
    atomic_store(&abandoned[device->index], true);
}

bool cuda_is_abandoned(const cuda_device *device) {
    return atomic_load_explicit(&abandoned[device->index], memory_order_relaxed);
}

tu_status cuda_check_not_abandoned(const cuda_device *device) {
    if (!cuda_is_abandoned(device)) return TU_OK;
    return tu_fail(TU_DEVICE, "%s was abandoned after a timeout: restart the process", device->name);
}

/* Spins for short waits, because sleeping is too coarse. */
void cuda_pause(double waited) {
    const double shortest = 50e-6, longest = 10e-3, pause = 1e-6;
    double seconds = waited / 1000 < longest ? waited / 1000 : longest;
    if (seconds >= shortest)
        nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
    else /* polling without a pause would block other threads in the driver */
        for (double until = tu__now() + pause; tu__now() < until;) continue;
}

/* ---- Waiting ---- */

/* What a thread waits for: an event, or everything in the queue (`event` is NULL). */
typedef struct awaited {
    const cuda_queue *queue;
    CUevent event;
} awaited;

static bool has_happened(const awaited *a) {
    CUresult result = a->event ? cuda.cuEventQuery(a->event) : cuda.cuStreamQuery(a->queue->stream);
    return result != CUDA_ERROR_NOT_READY;
}

/* Blocks in the driver. Also after the work has ended: the call returns its errors. */
static tu_status wait_in_driver(const awaited *a) {
    tu_status status =
        a->event ? CUDA_CALL(cuEventSynchronize, a->event) : CUDA_CALL(cuStreamSynchronize, a->queue->stream);
    return status == TU_OK ? TU_OK : tu_fail(status, "%s: %s", a->queue->device->name, tu_message());
}

/* Polls an event for up to 300 us before the thread blocks: the values of a step become ready shortly after each
 * other, and waking a thread takes longer than most of these waits. Pauses between polls, because each poll takes a
 * driver lock that launching threads need. */
static void poll_briefly(const awaited *a) {
    const double duration = 300e-6, pause = 1e-6;
    double time = tu__now(), until = time + duration;
    while (time < until && !has_happened(a))
        for (double next = time + pause; time < next;) time = tu__now();
}

static bool poll_until_timeout(const awaited *a, double timeout) {
    double start = tu__now(), waited = 0;
    while (!has_happened(a)) {
        if (waited > timeout) return false;
        cuda_pause(waited);
        waited = tu__now() - start;
    }
    return true;
}

/* If everything in a queue was to end and does not, the GPU is lost. A single event may only be late: the caller polls
 * for it while it does other work. */
static tu_status fail_timeout(const awaited *a, double timeout) {
    if (a->event || timeout <= 0) return TU_OK;
    cuda_abandon(a->queue->device);
    return tu_fail(TU_DEVICE, "%s: its kernels have not ended after %g s", a->queue->device->name, timeout);
}

tu_status cuda_synchronize(cuda_queue *queue, uint32_t event, double timeout, bool *done) {
    awaited a = {.queue = queue};
    *done = false;
    TU_TRY(cuda_make_current(queue->device));
    if (event != TU_ALL_EVENTS) {
        TU_TRY(cuda_find_event(queue, event, &a.event));
        *done = !a.event; /* never recorded */
        if (*done) return TU_OK;
    }
    if (a.event && timeout < 0) poll_briefly(&a);
    *done = timeout < 0 || (timeout == 0 ? has_happened(&a) : poll_until_timeout(&a, timeout));
    if (!*done && queue->connection) TU_TRY(cuda_connection_watch(queue->connection));
    return *done ? wait_in_driver(&a) : fail_timeout(&a, timeout);
}
