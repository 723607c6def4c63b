/* Peer access between GPUs.
 *
 * Two GPUs connected by NVLink or PCIe can read and write each other's memory, from kernels and with their copy
 * engines, once peer access is enabled between their contexts. All users of a GPU in a process share one context, so
 * another library may have enabled it already. Peer access covers all memory of cuMemAlloc, allocated before or
 * later, until one of the two contexts is destroyed. Memory pools would need their own access settings.
 *
 * TU_UNSUPPORTED means that the machine does not support it: the engine then sends values through the host. Other
 * errors are real failures.
 */
#include "device/cuda/runtime/capture_lock.h"
#include "device/cuda/runtime/cuda.h"

static bool has_access(cuda_device *device, int gpu) {
    pthread_mutex_lock(&device->lock);
    bool has_peer_access = device->peer_access_mask >> gpu & 1;
    pthread_mutex_unlock(&device->lock);
    return has_peer_access;
}

/* Also clears the bit: a GPU's context may have been destroyed since. */
static void set_access(cuda_device *device, int gpu, bool has_peer_access) {
    uint64_t bit = UINT64_C(1) << gpu;
    pthread_mutex_lock(&device->lock);
    device->peer_access_mask =
        has_peer_access ? device->peer_access_mask | bit : device->peer_access_mask & ~bit;
    pthread_mutex_unlock(&device->lock);
}

bool cuda_have_peer_access(cuda_device *device, cuda_device *other) {
    if (device->handle == other->handle) return true;
    return has_access(device, other->index) && has_access(other, device->index);
}

/* True if the result means that peer access is unavailable. A GPU supports about eight peers; other libraries of the
 * process may have used them up. */
static bool is_unavailable(CUresult result) {
    return result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED || result == CUDA_ERROR_TOO_MANY_PEERS;
}

static CUresult enable_in_driver(const cuda_device *other) {
    cuda_sync_lock();
    CUresult result = cuda.cuCtxEnablePeerAccess(other->context, 0);
    cuda_sync_unlock();
    return result;
}

static tu_status enable(const cuda_device *device, const cuda_device *other) {
    const char *function = "cuCtxEnablePeerAccess";
    TU_TRY(cuda_make_current(device));
    CUresult result = cuda_call_fails(function) ? CUDA_ERROR_LAUNCH_FAILED : enable_in_driver(other);
    if (result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return TU_OK;
    tu_status status = cuda_check_driver(result, function);
    return is_unavailable(result) ? TU_UNSUPPORTED : status;
}

static tu_status try_enable(const cuda_device *device, const cuda_device *other) {
    int can_access = 0;
    CUDA_TRY(cuDeviceCanAccessPeer, &can_access, device->handle, other->handle);
    if (!can_access)
        return tu_fail(TU_UNSUPPORTED, "the two GPUs have no peer access (cuDeviceCanAccessPeer)");
    return enable(device, other);
}

tu_status cuda_enable_peer_access(cuda_device *device, const cuda_device *other) {
    if (device->handle == other->handle) return TU_OK;
    tu_status status = try_enable(device, other);
    set_access(device, other->index, status == TU_OK);
    if (status == TU_OK) return TU_OK;
    return tu_fail(status, "%s cannot access the memory of %s: %s", device->name, other->name, tu_message());
}
