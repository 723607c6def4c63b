/* Orders the kernels of a plan. */
#ifndef TU__COMPILE_SCHEDULE_H
#define TU__COMPILE_SCHEDULE_H

#include <tutti/device.h>

typedef struct tu__schedule_request {
    const tu_plan *plan;
    const uint32_t *level; /* per kernel */
    const bool *sends;     /* per kernel: other devices wait for its output */
    const bool *runs_last; /* per kernel: it runs at the end, because no other kernel reads its output */
    /* Per buffer received from another device: 1 + the id of the node that produces it; 0: not received. Devices
     * compute in the order of ids as far as possible, so lower numbers are produced earlier. */
    const uint32_t *producer_order;
} tu__schedule_request;

/* Writes the kernel order and sets `*last_count`, the number of kernels at its end for which `runs_last` is set. A
 * kernel comes after those that write what it reads. Otherwise kernels are sorted by
 * - level;
 * - kernels whose output other devices wait for, before the rest;
 * - the latest-produced value from another device that they depend on;
 * - the order in which the graph was built, so that recomputed values are computed late.
 *
 * The level of a kernel is the maximum number of device changes on any path to it. A kernel that waits for another
 * device waits only for kernels of lower levels. Every device runs its kernels by level, so no two devices wait for
 * each other. */
tu_status tu__schedule(const tu__schedule_request *request, uint32_t *order, uint32_t *last_count);

#endif
