/* Tables from inside: rows on the host, and their copies in the memory of devices. */
#ifndef TU__RUN_TABLE_H
#define TU__RUN_TABLE_H

#include <pthread.h>

#include <tutti/run.h>

#include "device/device.h"

typedef struct tu__table_place { /* what a device keeps of a table */
    tu__device *device;
    void *address; /* NULL: it did not fit, and is not tried again */
    struct tu__table_place *next;
} tu__table_place;

struct tu_table {
    const char *data;
    size_t row_bytes;
    int64_t rows;
    pthread_mutex_t lock; /* of `places`: several devices may serve at once */
    tu__table_place *places;
};

/* Whether it is known where the table lies in the device's memory; `*address` is NULL where it does not fit. */
bool tu__table_find(tu_table *table, const tu__device *device, const void **address);
/* Puts it there, if it takes no more than `room` bytes and the device has them; from then on it is found. Call with the
 * device's turn held. */
tu_status tu__table_put(tu_table *table, tu__device *device, uint64_t room, const void **address);

/* Copies rows, by their numbers, one after another; shared out among as many threads as the caller's loops have. */
void tu__table_gather(const tu_table *table, const int64_t *rows, size_t count, void *to);

#endif
