/* Internal declarations of tables: rows in host memory, and copies of them in device memory. */
#ifndef TU__RUN_TABLE_H
#define TU__RUN_TABLE_H

#include <pthread.h>

#include <tutti/run.h>

#include "device/device.h"

typedef struct tu__table_copy { /* a table's copy on one device */
    tu__device *device;
    void *address; /* NULL: the table did not fit; no other attempt is made */
    struct tu__table_copy *next;
} tu__table_copy;

struct tu_table {
    const char *data;
    size_t row_bytes;
    int64_t rows;
    pthread_mutex_t lock; /* protects `copies`: several devices may use the table in parallel */
    tu__table_copy *copies;
};

/* True if a copy for the device exists, or the attempt to make one has failed; then `*address` is NULL. */
bool tu__table_find(tu_table *table, const tu__device *device, const void **address);
/* Copies the table to the device, if it needs at most `room` bytes and the device has them. tu__table_find finds it
 * afterwards. Call with the device locked. */
tu_status tu__table_put(tu_table *table, tu__device *device, uint64_t room, const void **address);

/* Copies the rows with the given indices to consecutive memory, with as many threads as the caller's parallel loops
 * use. */
void tu__table_gather(const tu_table *table, const int64_t *rows, size_t count, void *to);

#endif
