/* Pinned host memory: the GPU's copy engines read and write it directly, and asynchronously.
 *
 * The device's own staging memory comes from the driver. Blocks for values come from the engine's allocator and are
 * registered with the driver, for all GPUs of the process ("portable"). Blocks that are smaller than TU__PINNABLE_BYTES
 * share pages with others and cannot be registered; the driver stages copies of that size itself, so other memory is as
 * good. */
#include "base/alloc.h"
#include "device/cuda/runtime/capture_lock.h"
#include "device/cuda/runtime/cuda.h"

/* ---- Staging memory ---- */

tu_status cuda_staging_allocate(size_t bytes, void **address) {
    cuda_sync_lock();
    tu_status status = CUDA_CALL(cuMemHostAlloc, address, bytes, 0);
    cuda_sync_unlock();
    return status;
}

void cuda_staging_free(void *address) {
    if (!address) return;
    cuda_sync_lock();
    cuda.cuMemFreeHost(address);
    cuda_sync_unlock();
}

/* ---- Memory for values ---- */

typedef struct pinned_range {
    void *address;
    size_t bytes;
    struct pinned_range *next;
} pinned_range;

static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;
static pinned_range *ranges; /* of all GPUs; only a few entries */

static void add_range(pinned_range *range) {
    pthread_mutex_lock(&ranges_lock);
    range->next = ranges;
    ranges = range;
    pthread_mutex_unlock(&ranges_lock);
}

/* Removes a range from the list and returns it; NULL if none begins at the address. */
static pinned_range *remove_range(const void *address) {
    pthread_mutex_lock(&ranges_lock);
    pinned_range **link = &ranges;
    while (*link && (*link)->address != address) link = &(*link)->next;
    pinned_range *removed = *link;
    if (removed) *link = removed->next;
    pthread_mutex_unlock(&ranges_lock);
    return removed;
}

static bool contains(const pinned_range *range, const void *host, size_t bytes) {
    uintptr_t begin = (uintptr_t)range->address, from = (uintptr_t)host;
    return from >= begin && from + bytes <= begin + range->bytes;
}

bool cuda_is_pinned(const void *host, size_t bytes) {
    pthread_mutex_lock(&ranges_lock);
    const pinned_range *range = ranges;
    while (range && !contains(range, host, bytes)) range = range->next;
    pthread_mutex_unlock(&ranges_lock);
    return range != NULL;
}

static tu_status pin(const cuda_device *d, void *address, size_t bytes) {
    cuda_sync_lock();
    tu_status status = CUDA_CALL(cuMemHostRegister, address, bytes, CU_MEMHOSTREGISTER_PORTABLE);
    cuda_sync_unlock();
    if (status == TU_OK) return TU_OK;
    return tu_fail(TU_UNSUPPORTED, "%s: cannot pin %zu bytes of host memory: %s", d->name, bytes,
                   tu_message());
}

static void unpin(const cuda_device *d, void *address) {
    if (cuda.cuCtxSetCurrent(d->context) != CUDA_SUCCESS) return;
    cuda_sync_lock();
    cuda.cuMemHostUnregister(address);
    cuda_sync_unlock();
}

tu_status cuda_pinned_allocate(const cuda_device *d, size_t bytes, void **address) {
    TU_TRY(cuda_make_current(d));
    if (bytes < TU__PINNABLE_BYTES)
        return tu_fail(TU_UNSUPPORTED, "%s: %zu bytes of host memory are not pinned: expected at least %d",
                       d->name, bytes, TU__PINNABLE_BYTES);
    pinned_range *range = tu__alloc(sizeof *range, "pinned memory");
    void *block = range ? tu__alloc_aligned(bytes, "pinned memory") : NULL;
    tu_status status = block ? pin(d, block, bytes) : TU_NO_MEMORY;
    if (status != TU_OK) {
        tu__free_aligned(block);
        tu__free(range);
        return status;
    }
    *range = (pinned_range){.address = block, .bytes = bytes};
    add_range(range);
    *address = block;
    return TU_OK;
}

bool cuda_pinned_free(const cuda_device *d, void *address) {
    pinned_range *range = remove_range(address);
    if (!range) return false;
    unpin(d, address);
    tu__free(range);
    tu__free_aligned(address);
    return true;
}
