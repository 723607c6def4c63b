/* What a device does for a program: evaluate a schedule of nodes.
 *
 * The caller resolves everything that is not computation: which nodes, in which order, from which leaves, into
 * which buffers. A device reads and writes dense tensors in their element types and touches no state. */
#ifndef TU__DEVICE_DEVICE_H
#define TU__DEVICE_DEVICE_H

#include <tutti/run.h>

#include "graph/graph.h"

typedef struct tu__execution {
    const tu_graph *graph;
    uint32_t count;
    const uint32_t *schedule; /* node numbers, rising */
    const void *const
        *leaves; /* per place in the schedule: data of an input or a variable, NULL for others */
    size_t fetch_count;
    const tu__edge *fetch;
    void *const *out; /* per fetch; NULL: not wanted */
    uint64_t seed;
} tu__execution;

typedef struct tu__device {
    tu_device_info info;
    tu_status (*execute)(const tu__execution *execution);
} tu__device;

/* NULL, with a message that lists the devices there are, when `name` is none of them. */
const tu__device *tu__device_find(const char *name);

extern const tu__device tu__ref_device;

#endif
