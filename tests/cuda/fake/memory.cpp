/* The fake driver: memory and copies.
 *
 * Device memory is host memory with guard bytes on both sides, which are checked at every synchronisation. New memory
 * is filled with 0xff (NaN as a float), so that reads of unwritten memory are noticed. Copies must lie within
 * allocations, both when they are enqueued and when they run. The GPU has FAKE_CUDA_MEMORY bytes.
 *
 * With several GPUs (FAKE_CUDA_COUNT) each allocation has its own pages, which are protected from kernels of GPUs
 * without peer access.
 */
#include "driver.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

enum { GUARD = 256, PATTERN = 0xa5, PAGE = 4096 };

struct allocation {
    size_t bytes;
    int device;    /* -1: pinned host memory */
    size_t mapped; /* bytes of its own pages, from GUARD before it on; 0: none */
};

static std::map<uintptr_t, allocation> allocations;

static const char *kind_of(const allocation &a) {
    return a.device < 0 ? "pinned memory" : "device memory";
}

static size_t used_by(int device) {
    size_t total = 0;
    for (const auto &entry : allocations)
        if (entry.second.device == device) total += entry.second.bytes;
    return total;
}

size_t fake_cuda_used(int device) {
    fake_guard guard(fake_lock());
    return used_by(device);
}

/* Maps new pages; nullptr on failure. */
static unsigned char *map_pages(size_t bytes) {
    void *pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? nullptr : (unsigned char *)pages;
}

static void *allocate(size_t bytes, int device) {
    size_t room = (bytes + GUARD - 1) / GUARD * GUARD + 2 * GUARD;
    bool has_own_pages = device >= 0 && fake_setting("FAKE_CUDA_COUNT", 1) > 1;
    size_t mapped = has_own_pages ? (room + PAGE - 1) / PAGE * PAGE : 0;
    unsigned char *base = has_own_pages ? map_pages(mapped) : (unsigned char *)aligned_alloc(GUARD, room);
    if (!base) return nullptr;
    memset(base, PATTERN, room);
    memset(base + GUARD, 0xff, bytes);
    allocation a = {bytes, device, mapped};
    allocations[(uintptr_t)base + GUARD] = a;
    fake_add_object(kind_of(a), base + GUARD);
    return base + GUARD;
}

static void check_guard(uintptr_t address, const allocation &a) {
    const unsigned char *data = (const unsigned char *)address;
    for (size_t i = 1; i <= GUARD; i++)
        if (data[-(ptrdiff_t)i] != PATTERN)
            fake_fail("a write %zu bytes before an allocation of %zu bytes", i, a.bytes);
    size_t tail = (a.bytes + GUARD - 1) / GUARD * GUARD + GUARD - a.bytes;
    for (size_t i = 0; i < tail; i++)
        if (data[a.bytes + i] != PATTERN)
            fake_fail("a write %zu bytes past the end of an allocation of %zu bytes", i, a.bytes);
}

void check_guards() {
    fake_guard guard(fake_lock());
    for (const auto &entry : allocations) check_guard(entry.first, entry.second);
}

static bool release(uintptr_t address, bool host) {
    auto found = allocations.find(address);
    if (found == allocations.end() || (found->second.device < 0) != host) return false;
    finish_everything();
    check_guard(address, found->second);
    fake_remove_object(kind_of(found->second), (void *)address);
    memset((void *)address, 0xfe, found->second.bytes); /* NaN, for reads after the free */
    if (found->second.mapped)
        munmap((void *)(address - GUARD), found->second.mapped);
    else
        free((void *)(address - GUARD));
    allocations.erase(found);
    return true;
}

/* Returns the allocation that contains all of these bytes; nullptr if there is none. */
static const allocation *find(const void *address, size_t bytes) {
    auto after = allocations.upper_bound((uintptr_t)address);
    if (after == allocations.begin()) return nullptr;
    const auto &entry = *--after;
    return (uintptr_t)address + bytes <= entry.first + entry.second.bytes ? &entry.second : nullptr;
}

bool fake_in_memory(const void *address, size_t bytes) {
    fake_guard guard(fake_lock());
    const allocation *a = find(address, bytes);
    return a && a->device >= 0;
}
static void need_memory(const void *address, size_t bytes, const char *what) {
    if (bytes && !fake_in_memory(address, bytes))
        fake_fail("%s: %zu bytes at %p are not within device memory", what, bytes, address);
}
void fake_need_memory(const void *address, size_t bytes, const char *what) {
    need_memory(address, bytes, what);
    int other = bytes ? inaccessible_memory(address) : -1;
    if (other >= 0)
        fake_fail("%s: GPU %d accesses memory of GPU %d without peer access", what, working_gpu(),
                  other);
}

/* ---- Memory of other GPUs ---- */

static void protect_foreign(int gpu, int protection) {
    for (const auto &entry : allocations)
        if (entry.second.mapped && !has_peer_access(gpu, entry.second.device))
            mprotect((void *)(entry.first - GUARD), entry.second.mapped, protection);
}
without_foreign_memory::without_foreign_memory(int gpu) : gpu(gpu) {
    protect_foreign(gpu, PROT_NONE);
}
without_foreign_memory::~without_foreign_memory() {
    protect_foreign(gpu, PROT_READ | PROT_WRITE);
}

int inaccessible_memory(const void *address) {
    const allocation *a = find(address, 1);
    bool foreign = a && a->device >= 0 && working_gpu() >= 0 && !has_peer_access(working_gpu(), a->device);
    return foreign ? a->device : -1;
}

/* Registered (pinned) host memory: size by start address. */
static std::map<uintptr_t, size_t> &registered() {
    static std::map<uintptr_t, size_t> *all = new std::map<uintptr_t, size_t>;
    return *all;
}

static bool is_registered(const void *address, size_t bytes) {
    auto after = registered().upper_bound((uintptr_t)address);
    if (after == registered().begin()) return false;
    const auto &entry = *--after;
    return (uintptr_t)address + bytes <= entry.first + entry.second;
}

/* True if a range shares a page with a registered one, which the driver rejects. */
static bool shares_page(uintptr_t address, size_t bytes) {
    uintptr_t first = address / PAGE, last = (address + bytes - 1) / PAGE;
    for (const auto &entry : registered())
        if (first <= (entry.first + entry.second - 1) / PAGE && entry.first / PAGE <= last) return true;
    return false;
}

static bool is_pinned(const void *address, size_t bytes) {
    const allocation *a = find(address, bytes);
    return a ? a->device < 0 : is_registered(address, bytes);
}

/* ---- Allocating ---- */

CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED_SYNCHRONISED;
    NEED(bytes > 0 && address, CUDA_ERROR_INVALID_VALUE);
    int device = current_context()->device;
    size_t total, used = used_by(device);
    cuDeviceTotalMem(&total, device);
    NEED(bytes <= total && used <= total - bytes, CUDA_ERROR_OUT_OF_MEMORY);
    *address = (CUdeviceptr)allocate(bytes, device);
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemFree(CUdeviceptr address) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED_SYNCHRONISED;
    const allocation *a = find((void *)address, 1);
    NEED(!a || a->device < 0 || a->device == current_context()->device, CUDA_ERROR_INVALID_CONTEXT);
    return !address || release((uintptr_t)address, false) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED_SYNCHRONISED;
    NEED(bytes > 0 && address, CUDA_ERROR_INVALID_VALUE);
    *address = allocate(bytes, -1);
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
/* Registering twice, and unregistering memory that is not registered, are errors. */
CUresult cuMemHostRegister(void *address, size_t bytes, unsigned) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED_SYNCHRONISED;
    NEED(bytes > 0 && address, CUDA_ERROR_INVALID_VALUE);
    NEED(!shares_page((uintptr_t)address, bytes), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    registered()[(uintptr_t)address] = bytes;
    fake_add_object("registered memory", address);
    return CUDA_SUCCESS;
}
CUresult cuMemHostUnregister(void *address) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED_SYNCHRONISED;
    finish_everything();
    NEED(registered().erase((uintptr_t)address), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    fake_remove_object("registered memory", address);
    return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void *address) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED_SYNCHRONISED;
    return release((uintptr_t)address, true) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemGetInfo(size_t *free_bytes, size_t *total) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    cuDeviceTotalMem(total, current_context()->device);
    size_t used = used_by(current_context()->device) + fake_setting("FAKE_CUDA_ELSEWHERE", 0);
    *free_bytes = *total > used ? *total - used : 0;
    return CUDA_SUCCESS;
}

/* ---- Copies ---- */

static work copy_work(void *to, const void *from, size_t bytes, const void *device_address, const char *what) {
    return [=] {
        need_memory(device_address, bytes, what);
        memmove(to, from, bytes);
    };
}

/* Pageable memory is read before the call returns, as the real driver does. */
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED(fake_in_memory((void *)to, bytes), CUDA_ERROR_INVALID_VALUE);
    if (is_pinned(from, bytes))
        return fake_enqueue(stream, "cuMemcpyHtoDAsync",
                            copy_work((void *)to, from, bytes, (void *)to, "cuMemcpyHtoDAsync"));
    auto copied = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
    return fake_enqueue(stream, "cuMemcpyHtoDAsync", [=] {
        need_memory((void *)to, bytes, "cuMemcpyHtoDAsync");
        memcpy((void *)to, copied->data(), bytes);
    });
}
CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED(fake_in_memory((void *)from, bytes), CUDA_ERROR_INVALID_VALUE);
    CUresult result = fake_enqueue(stream, "cuMemcpyDtoHAsync",
                                   copy_work(to, (void *)from, bytes, (void *)from, "cuMemcpyDtoHAsync"));
    if (result != CUDA_SUCCESS || is_pinned(to, bytes)) return result;
    CUstreamCaptureStatus status;
    result = cuStreamIsCapturing(stream, &status);
    return status == CU_STREAM_CAPTURE_STATUS_NONE ? cuStreamSynchronize(stream) : result;
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED(fake_in_memory((void *)to, bytes) && fake_in_memory((void *)from, bytes), CUDA_ERROR_INVALID_VALUE);
    return fake_enqueue(stream, "cuMemcpyDtoDAsync", [=] {
        need_memory((void *)from, bytes, "cuMemcpyDtoDAsync");
        need_memory((void *)to, bytes, "cuMemcpyDtoDAsync");
        if (from < to + bytes && to < from + bytes && from != to)
            fake_fail("cuMemcpyDtoDAsync: source and target overlap");
        memmove((void *)to, (void *)from, bytes);
    });
}
/* Without peer access the driver copies through the host; such a copy cannot be captured. */
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                           size_t bytes, CUstream stream) {
    fake_guard guard(fake_lock());
    const allocation *target = find((void *)to, bytes), *source = find((void *)from, bytes);
    NEED(target && source && to_context && from_context, CUDA_ERROR_INVALID_VALUE);
    NEED(target->device == to_context->device && source->device == from_context->device,
         CUDA_ERROR_INVALID_VALUE);
    bool has_access =
        has_peer_access(target->device, source->device) && has_peer_access(source->device, target->device);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuStreamIsCapturing(stream, &status);
    NEED(has_access || status == CU_STREAM_CAPTURE_STATUS_NONE, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return cuMemcpyDtoDAsync(to, from, bytes, stream);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED(fake_in_memory((void *)to, bytes), CUDA_ERROR_INVALID_VALUE);
    return fake_enqueue(stream, "cuMemsetD8Async", [=] {
        need_memory((void *)to, bytes, "cuMemsetD8Async");
        memset((void *)to, value, bytes);
    });
}

/* Copies on the default stream are done when the call returns. */
CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
    fake_guard guard(fake_lock());
    NEED_NO_CAPTURE;
    CUresult result = cuMemcpyHtoDAsync(to, from, bytes, nullptr);
    return result != CUDA_SUCCESS ? result : cuStreamSynchronize(nullptr);
}
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
    fake_guard guard(fake_lock());
    NEED_NO_CAPTURE;
    CUresult result = cuMemcpyDtoHAsync(to, from, bytes, nullptr);
    return result != CUDA_SUCCESS ? result : cuStreamSynchronize(nullptr);
}
