/* Timeouts, and GPUs that are abandoned after one.
 *
 * A kernel that never ends blocks everything that waits for it in the driver. With a timeout
 * (cuda_device.timeout_seconds) the host therefore polls, and abandons the GPU when the timeout expires. A GPU stays
 * abandoned until the process ends, because most functions that free resources block too: the driver frees memory,
 * graphs and streams only when nothing uses them. Calls for an abandoned GPU fail at once. Its resources are not
 * freed; the operating system reclaims them at exit. All logical devices of a GPU share one context and are abandoned
 * together.
 */
#include <stdatomic.h>

#include "base/clock.h"
#include "device/cuda/runtime/cuda.h"

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

static tu_status wait_with_timeout(const cuda_device *device) {
    double start = tu__now(), waited = 0;
    while (cuda.cuStreamQuery(device->stream) == CUDA_ERROR_NOT_READY) {
        if (waited > device->timeout_seconds) {
            cuda_abandon(device);
            return tu_fail(TU_DEVICE, "its kernels have not ended after %g s", device->timeout_seconds);
        }
        cuda_pause(waited);
        waited = tu__now() - start;
    }
    return TU_OK;
}

/* cuStreamSynchronize at the end returns errors of the work. */
tu_status cuda_synchronize(const cuda_device *device) {
    tu_status status = device->timeout_seconds > 0 ? wait_with_timeout(device) : TU_OK;
    if (status == TU_OK) status = CUDA_CALL(cuStreamSynchronize, device->stream);
    return status == TU_OK ? TU_OK : tu_fail(status, "%s: %s", device->name, tu_message());
}
