/* Waiting for a card, which may never come back.
 *
 * A kernel that never ends holds up everything that waits for it in the driver. Who has a deadline (cuda_device.allowed)
 * therefore asks instead of waiting, and gives the card up when its time is over. That is for as long as the process lives,
 * since most of what gives something back waits too: the driver frees memory, graphs and streams when nothing uses them any
 * more. What is asked of such a card fails at once, what is freed on it stays there, and the system takes it back when the
 * process ends. The parts of a card share one context, so they are given up together. */
#include <stdatomic.h>

#include "base/clock.h"
#include "device/cuda/runtime/cuda.h"

static atomic_bool given_up[CUDA_MAX_CARDS];

void cuda_give_up(const cuda_device *device) {
    atomic_store(&given_up[device->index], true);
}

bool cuda_is_given_up(const cuda_device *device) {
    return atomic_load_explicit(&given_up[device->index], memory_order_relaxed);
}

tu_status cuda_refuse_given_up(const cuda_device *device) {
    if (!cuda_is_given_up(device)) return TU_OK;
    return tu_fail(TU_DEVICE, "%s was given up, since it had not come back in time: end the program",
                   device->name);
}

/* Sleep is too coarse for short waits. */
void cuda_pause(double waited) {
    const double shortest = 50e-6, longest = 10e-3, breath = 1e-6;
    double seconds = waited / 1000 < longest ? waited / 1000 : longest;
    if (seconds >= shortest)
        nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
    else /* a question keeps the driver from who else needs it */
        for (double until = tu__now() + breath; tu__now() < until;) continue;
}

static tu_status await_stream(const cuda_device *device) {
    double began = tu__now(), waited = 0;
    while (cuda.cuStreamQuery(device->stream) == CUDA_ERROR_NOT_READY) {
        if (waited > device->allowed) {
            cuda_give_up(device);
            return tu_fail(TU_DEVICE, "its kernels have not ended after %g s", device->allowed);
        }
        cuda_pause(waited);
        waited = tu__now() - began;
    }
    return TU_OK;
}

/* How it went the driver tells at the end. */
tu_status cuda_synchronize(const cuda_device *device) {
    tu_status status = device->allowed > 0 ? await_stream(device) : TU_OK;
    if (status == TU_OK) status = CUDA_CALL(cuStreamSynchronize, device->stream);
    return status == TU_OK ? TU_OK : tu_fail(status, "%s: %s", device->name, tu_message());
}
