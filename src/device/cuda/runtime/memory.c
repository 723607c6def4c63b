/* Allocates device memory from the driver and from an optional reserve.
 *
 * By default every block comes from the driver when it is needed. On a GPU that other processes use too, a later
 * allocation may fail: the evaluation after an hour of training may find the memory full. A reserve is memory
 * allocated up front and kept until the last device on the GPU is closed. Blocks are allocated from it, first fit.
 * Only blocks that do not fit come from the driver. All logical devices of a GPU share one reserve, as they share one
 * context.
 *
 * cuMemFree waits until a block is no longer in use. For blocks of a reserve this file does that: a freed block is reused
 * only after all work in flight on the GPU has finished.
 *
 * Locks are taken in this order: that of the list, that of a GPU's memory, that of captures (capture_lock.h).
 */
#include "device/cuda/runtime/memory.h"

#include <pthread.h>
#include <stdio.h>

#include "base/alloc.h"
#include "device/cuda/runtime/capture_lock.h"

enum { ALIGNMENT = 512 }; /* that of cuMemAlloc */

typedef struct block {
    CUdeviceptr address;
    size_t bytes;
    struct block *next;
} block;

struct cuda_memory {
    int index, users;
    pthread_mutex_t lock;  /* guards the fields below */
    block *reserves;       /* blocks from the driver, one for each time the reserve grew */
    block *allocated;      /* sorted by address; from the reserves and from the driver */
    bool has_freed_blocks; /* a freed block of a reserve may still be in use */
    struct cuda_memory *next;
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static cuda_memory *list;

static size_t aligned(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* ---- Lists ---- */

static uint64_t total_bytes(const block *b) {
    uint64_t bytes = 0;
    for (; b; b = b->next) bytes += b->bytes;
    return bytes;
}

static bool is_within(CUdeviceptr address, const block *b) {
    return address >= b->address && address - b->address < b->bytes;
}

static bool is_reserved(const cuda_memory *m, CUdeviceptr address) {
    for (const block *r = m->reserves; r; r = r->next)
        if (is_within(address, r)) return true;
    return false;
}

/* Sums the bytes of allocated blocks that are in the reserves (`reserved`), or that are not. */
static uint64_t allocated_bytes(const cuda_memory *m, bool reserved) {
    uint64_t bytes = 0;
    for (const block *b = m->allocated; b; b = b->next)
        if (is_reserved(m, b->address) == reserved) bytes += b->bytes;
    return bytes;
}

static void insert_sorted(block **link, block *b) {
    while (*link && (*link)->address < b->address) link = &(*link)->next;
    b->next = *link;
    *link = b;
}

/* ---- Error messages ---- */

static double mebibytes(uint64_t bytes) {
    return (double)bytes / 1048576;
}

/* Extends the message of a failed allocation by the free memory of the GPU. */
static tu_status fail_allocation(const cuda_memory *m, tu_status status, bool for_reserve, uint64_t bytes) {
    size_t unused = 0, total = 0;
    char reason[256], reserve[96] = "";
    uint64_t reserved = total_bytes(m->reserves);
    snprintf(reason, sizeof reason, "%s", tu_message());
    cuda.cuMemGetInfo(&unused, &total);
    if (reserved)
        snprintf(reserve, sizeof reserve, ", and %.1f of the %.1f MiB of its reserve",
                 mebibytes(reserved - allocated_bytes(m, true)), mebibytes(reserved));
    return tu_fail(status, "cannot allocate %s%.1f MiB%s: %.1f of its %.1f MiB are free%s (%s)",
                   for_reserve ? "a reserve of " : "", mebibytes(bytes), for_reserve ? "" : " of memory",
                   mebibytes(unused), mebibytes(total), reserve, reason);
}

/* ---- The driver's memory ---- */

static tu_status allocate_in_driver(CUdeviceptr *address, size_t bytes) {
    cuda_sync_lock();
    tu_status status = CUDA_CALL(cuMemAlloc, address, bytes);
    cuda_sync_unlock();
    return status;
}

static void free_in_driver(CUdeviceptr address) {
    cuda_sync_lock();
    cuda.cuMemFree(address);
    cuda_sync_unlock();
}

/* ---- Reserves ---- */

static tu_status add_reserve(cuda_memory *m, size_t bytes) {
    block *b = tu__alloc(sizeof *b, "a reserve");
    if (!b) return TU_NO_MEMORY;
    b->bytes = aligned(bytes);
    tu_status status = allocate_in_driver(&b->address, b->bytes);
    if (status == TU_OK)
        insert_sorted(&m->reserves, b);
    else
        tu__free(b);
    return status;
}

static void free_reserves(cuda_memory *m) {
    while (m->reserves) {
        block *b = m->reserves;
        m->reserves = b->next;
        free_in_driver(b->address);
        tu__free(b);
    }
}

/* Replaces an unused reserve by one that is large enough for a block, if the GPU has no room for both. Restores the
 * old size on failure. */
static tu_status replace_reserve(cuda_memory *m, size_t bytes) {
    uint64_t before = total_bytes(m->reserves);
    char message[512];
    free_reserves(m);
    tu_status status = add_reserve(m, bytes > before ? bytes : before);
    if (status == TU_OK) return TU_OK;
    snprintf(message, sizeof message, "%s", tu_message());
    add_reserve(m, before);
    return tu_fail(status, "%s", message);
}

static bool find_gap(const cuda_memory *m, const block *reserve, size_t bytes, CUdeviceptr *address) {
    CUdeviceptr from = reserve->address, end = reserve->address + reserve->bytes;
    for (const block *b = m->allocated; b; b = b->next) {
        if (!is_within(b->address, reserve)) continue;
        if (b->address - from >= bytes) break;
        from = b->address + b->bytes;
    }
    *address = from;
    return end - from >= bytes;
}

/* Waits until freed blocks of the reserve are no longer in use. */
static tu_status wait_for_freed(cuda_memory *m) {
    if (!m->has_freed_blocks) return TU_OK;
    cuda_sync_lock();
    tu_status status = CUDA_CALL(cuCtxSynchronize);
    cuda_sync_unlock();
    m->has_freed_blocks = status != TU_OK;
    return status;
}

tu_status cuda_memory_reserve(cuda_memory *m, uint64_t bytes) {
    tu_status status = TU_OK;
    pthread_mutex_lock(&m->lock);
    uint64_t before = total_bytes(m->reserves);
    if (bytes > before) status = add_reserve(m, bytes - before);
    if (status != TU_OK) status = fail_allocation(m, status, true, bytes);
    pthread_mutex_unlock(&m->lock);
    return status;
}

/* ---- Blocks ---- */

/* Allocates from a reserve, rounded up to ALIGNMENT. Returns TU_NOT_FOUND if no reserve has room. */
static tu_status allocate_reserved(cuda_memory *m, block *b) {
    size_t bytes = aligned(b->bytes);
    for (const block *r = m->reserves; r; r = r->next)
        if (find_gap(m, r, bytes, &b->address)) {
            b->bytes = bytes;
            return wait_for_freed(m);
        }
    return TU_NOT_FOUND;
}

static tu_status allocate_block(cuda_memory *m, block *b) {
    tu_status status = allocate_reserved(m, b);
    if (status != TU_NOT_FOUND) return status;
    status = allocate_in_driver(&b->address, b->bytes);
    if (status != TU_NO_MEMORY || !m->reserves || allocated_bytes(m, true)) return status;
    TU_TRY(replace_reserve(m, b->bytes));
    return allocate_reserved(m, b);
}

static tu_status allocate_locked(cuda_memory *m, block *b) {
    pthread_mutex_lock(&m->lock);
    tu_status status = allocate_block(m, b);
    if (status == TU_OK)
        insert_sorted(&m->allocated, b);
    else if (status == TU_NO_MEMORY) /* for other errors, such as a lost GPU, free memory is irrelevant */
        status = fail_allocation(m, status, false, b->bytes);
    pthread_mutex_unlock(&m->lock);
    return status;
}

tu_status cuda_memory_allocate(cuda_memory *m, size_t bytes, CUdeviceptr *address) {
    block *b = tu__alloc(sizeof *b, "a block of GPU memory");
    if (!b) return TU_NO_MEMORY;
    b->bytes = bytes ? bytes : 1;
    tu_status status = allocate_locked(m, b);
    if (status == TU_OK)
        *address = b->address;
    else
        tu__free(b);
    return status;
}

/* Removes a block from the list and returns it; NULL if it is not in the list. */
static block *remove_block(cuda_memory *m, CUdeviceptr address) {
    block **link = &m->allocated;
    while (*link && (*link)->address != address) link = &(*link)->next;
    block *b = *link;
    if (b) *link = b->next;
    return b;
}

void cuda_memory_free(cuda_memory *m, CUdeviceptr address) {
    if (!address) return;
    pthread_mutex_lock(&m->lock);
    block *b = remove_block(m, address);
    if (is_reserved(m, address))
        m->has_freed_blocks = true;
    else
        free_in_driver(address);
    pthread_mutex_unlock(&m->lock);
    tu__free(b);
}

tu_status cuda_memory_used_elsewhere(cuda_memory *m, uint64_t *bytes) {
    size_t unused = 0, total = 0;
    CUDA_TRY(cuMemGetInfo, &unused, &total);
    pthread_mutex_lock(&m->lock);
    uint64_t used = total - unused, allocated = total_bytes(m->reserves) + allocated_bytes(m, false);
    pthread_mutex_unlock(&m->lock);
    *bytes = used > allocated ? used - allocated : 0;
    return TU_OK;
}

/* ---- One memory per GPU ---- */

static cuda_memory *find_or_add(int index) {
    for (cuda_memory *m = list; m; m = m->next)
        if (m->index == index) return m;
    cuda_memory *m = tu__alloc(sizeof *m, "the memory of a GPU");
    if (!m) return NULL;
    m->index = index;
    pthread_mutex_init(&m->lock, NULL);
    m->next = list;
    return list = m;
}

cuda_memory *cuda_memory_open(int index) {
    pthread_mutex_lock(&list_lock);
    cuda_memory *m = find_or_add(index);
    if (m) m->users++;
    pthread_mutex_unlock(&list_lock);
    return m;
}

static void destroy_memory(cuda_memory *m) {
    cuda_memory **link = &list;
    while (*link != m) link = &(*link)->next;
    *link = m->next;
    free_reserves(m);
    pthread_mutex_destroy(&m->lock);
    tu__free(m);
}

void cuda_memory_close(cuda_memory *m) {
    if (!m) return;
    pthread_mutex_lock(&list_lock);
    if (--m->users == 0) destroy_memory(m);
    pthread_mutex_unlock(&list_lock);
}
