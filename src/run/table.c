/* Tables: the rows of a data set, on the host and on devices.
 *
 * A data set is fed again and again, in another order each time. A device that runs multi-step calls needs all of it
 * in its own memory, so that a step transfers only row indices. The copy is made when the device first reads from the
 * table, in chunks, since the data set is often a memory-mapped file. The copy keeps the device open and is freed
 * with the table. All logical devices of a GPU share one copy. If the table does not fit, this is remembered: calls
 * then gather the rows that they need on the host (inputs.c). */
#include "run/table.h"

#include <string.h>

#include "base/alloc.h"
#include "base/parallel.h"

enum { CHUNK_BYTES = 64 << 20 };

tu_status tu_table_new(const void *data, size_t row_bytes, int64_t rows, tu_table **table) {
    *table = NULL;
    size_t bytes;
    if (!data || row_bytes < 1 || rows < 1)
        return tu_fail(TU_INVALID,
                       "a table of %lld rows of %zu bytes%s: expected data, and at least one row of one byte",
                       (long long)rows, row_bytes, data ? "" : " without data");
    if (__builtin_mul_overflow((size_t)rows, row_bytes, &bytes))
        return tu_fail(TU_INVALID, "a table of %lld rows of %zu bytes is larger than any memory",
                       (long long)rows, row_bytes);
    tu_table *t = tu__alloc(sizeof *t, "a table");
    if (!t) return TU_NO_MEMORY;
    t->data = data;
    t->row_bytes = row_bytes;
    t->rows = rows;
    pthread_mutex_init(&t->lock, NULL);
    *table = t;
    return TU_OK;
}

static size_t table_bytes(const tu_table *table) {
    return (size_t)table->rows * table->row_bytes;
}

static void free_copy(const tu_table *table, tu__table_copy *copy) {
    if (copy->address) {
        copy->device->api->release(copy->device->instance, copy->address);
        atomic_fetch_sub(&copy->device->table_bytes, table_bytes(table));
    }
    tu__devices_close(1, &copy->device);
    tu__free(copy);
}

void tu_table_free(tu_table *table) {
    if (!table) return;
    for (tu__table_copy *p = table->copies, *next; p; p = next) {
        next = p->next;
        free_copy(table, p);
    }
    pthread_mutex_destroy(&table->lock);
    tu__free(table);
}

static tu_status upload_all(const tu_table *table, const tu__table_copy *copy) {
    const tu__device *d = copy->device;
    size_t remaining = table_bytes(table), done = 0;
    while (remaining) {
        size_t chunk = remaining < CHUNK_BYTES ? remaining : CHUNK_BYTES;
        TU_TRY(tu__upload(d, (char *)copy->address + done, table->data + done, chunk));
        done += chunk;
        remaining -= chunk;
    }
    return TU_OK;
}

/* Allocates and uploads the copy. Leaves the address NULL if the device has no room; fails on any other error. */
static tu_status fill_copy(const tu_table *table, tu__table_copy *copy, uint64_t room) {
    tu__device *d = copy->device;
    if (table_bytes(table) > room) return TU_OK;
    tu_status status = tu__device_allocate(d, table_bytes(table), &copy->address);
    if (status == TU_NO_MEMORY) copy->address = NULL;
    if (status != TU_OK) return status == TU_NO_MEMORY ? TU_OK : status;
    atomic_fetch_add(&d->table_bytes, table_bytes(table));
    return upload_all(table, copy);
}

static tu_status add_copy(tu_table *table, tu__device *device, uint64_t room, tu__table_copy **copy) {
    tu__table_copy *p = tu__alloc(sizeof *p, "a table");
    if (!p) return TU_NO_MEMORY;
    p->device = device;
    tu__device_retain(device);
    tu_status status = fill_copy(table, p, room);
    if (status != TU_OK) {
        free_copy(table, p);
        return status;
    }
    p->next = table->copies;
    *copy = table->copies = p;
    return TU_OK;
}

/* True for logical devices of one GPU, which share its memory; they have peer access. */
static bool shares_memory(const tu__device *device, const tu__device *other) {
    return device == other || (device->api == other->api && device->api->peer_access &&
                               device->options.index == other->options.index);
}

bool tu__table_find(tu_table *table, const tu__device *device, const void **address) {
    *address = table->data;
    if (device->api->host_memory) return true;
    pthread_mutex_lock(&table->lock);
    const tu__table_copy *copy = table->copies;
    while (copy && !shares_memory(device, copy->device)) copy = copy->next;
    pthread_mutex_unlock(&table->lock);
    *address = copy ? copy->address : NULL;
    return copy;
}

tu_status tu__table_put(tu_table *table, tu__device *device, uint64_t room, const void **address) {
    tu__table_copy *copy = NULL;
    *address = NULL;
    pthread_mutex_lock(&table->lock);
    tu_status status = add_copy(table, device, room, &copy);
    pthread_mutex_unlock(&table->lock);
    if (status == TU_OK) *address = copy->address;
    return status;
}

/* ---- Gathering ---- */

typedef struct gather_job {
    const tu_table *table;
    const int64_t *rows;
    char *to;
} gather_job;

static const char *row_at(const gather_job *g, int64_t i) {
    return g->table->data + (size_t)g->rows[i] * g->table->row_bytes;
}

/* Prefetches a row. Rows are at random addresses, and short rows end before the hardware prefetcher starts. */
static void prefetch_row(const char *row, size_t bytes) {
    enum { LINE = 64, MAX_BYTES = 4096 };
    if (bytes > MAX_BYTES) bytes = MAX_BYTES;
    for (size_t offset = 0; offset < bytes; offset += LINE) __builtin_prefetch(row + offset);
}

static void gather_range(void *context, int64_t first, int64_t last, int worker) {
    enum { AHEAD = 4 };
    const gather_job *g = context;
    size_t bytes = g->table->row_bytes;
    (void)worker;
    for (int64_t i = first; i < last; i++) {
        if (i + AHEAD < last) prefetch_row(row_at(g, i + AHEAD), bytes);
        memcpy(g->to + (size_t)i * bytes, row_at(g, i), bytes);
    }
}

void tu__table_gather(const tu_table *table, const int64_t *rows, size_t count, void *to) {
    enum { MIN_BYTES_PER_THREAD = 16 << 10 };
    gather_job g = {table, rows, to};
    tu__parallel_for((int64_t)count, (int64_t)(MIN_BYTES_PER_THREAD / table->row_bytes + 1), gather_range,
                     &g);
}
