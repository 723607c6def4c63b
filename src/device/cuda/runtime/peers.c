/* Cards that use each other's memory.
 *
 * Two cards on one NVLink or PCIe switch can read and write each other's memory, from kernels and by their copy engines, once
 * the context of each has been let into that of the other. Contexts are shared by everybody in a process who uses the card,
 * so that others may have done it before us. It holds for all memory of cuMemAlloc, old and new, until one of the two contexts
 * ends; memory of a pool would have to be opened by itself.
 *
 * What a machine does not let its cards do is told apart from what fails: the engine then sends values through the host. */
#include "device/cuda/runtime/cuda.h"

static bool is_reached(cuda_device *device, int card) {
    pthread_mutex_lock(&device->lock);
    bool reached = device->reached >> card & 1;
    pthread_mutex_unlock(&device->lock);
    return reached;
}

/* Also that it is not so any more: a card's context may have ended since. */
static void note_reached(cuda_device *device, int card, bool reached) {
    uint64_t bit = UINT64_C(1) << card;
    pthread_mutex_lock(&device->lock);
    device->reached = reached ? device->reached | bit : device->reached & ~bit;
    pthread_mutex_unlock(&device->lock);
}

bool cuda_reach_each_other(cuda_device *device, cuda_device *other) {
    if (device->handle == other->handle) return true;
    return is_reached(device, other->index) && is_reached(other, device->index);
}

/* A card has room for some eight others, which programs beside this one may have taken. */
static bool means_cannot(CUresult result) {
    return result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED || result == CUDA_ERROR_TOO_MANY_PEERS;
}

static tu_status enable(const cuda_device *device, const cuda_device *other) {
    const char *function = "cuCtxEnablePeerAccess";
    TU_TRY(cuda_enter(device));
    CUresult result =
        cuda_call_fails(function) ? CUDA_ERROR_LAUNCH_FAILED : cuda.cuCtxEnablePeerAccess(other->context, 0);
    if (result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return TU_OK;
    tu_status status = cuda_check_driver(result, function);
    return means_cannot(result) ? TU_UNSUPPORTED : status;
}

static tu_status let_in(const cuda_device *device, const cuda_device *other) {
    int can = 0;
    CUDA_TRY(cuDeviceCanAccessPeer, &can, device->handle, other->handle);
    if (!can) return tu_fail(TU_UNSUPPORTED, "the machine does not connect the two cards");
    return enable(device, other);
}

tu_status cuda_enable_peer_access(cuda_device *device, const cuda_device *other) {
    if (device->handle == other->handle) return TU_OK;
    tu_status status = let_in(device, other);
    note_reached(device, other->index, status == TU_OK);
    if (status == TU_OK) return TU_OK;
    return tu_fail(status, "%s cannot use the memory of %s: %s", device->name, other->name, tu_message());
}
