/* The simplest plan there is: a kernel a node, a dense buffer a value. For devices that fuse nothing. */
#ifndef TU__DEVICE_NODE_PLAN_H
#define TU__DEVICE_NODE_PLAN_H

#include <tutti/device.h>

#include "base/arena.h"

typedef struct tu__node_plan {
    tu_plan plan; /* first: what the engine holds is a pointer to it */
    const tu_graph *graph;
    const uint64_t *seed;
    const uint32_t *order;
    void *const *buffers;
    tu__arena arena;
} tu__node_plan;

/* The slots select, build and plan_free of such a device's table. */
tu_status tu__node_plan_select(tu_device_instance *device, const tu_partition *part, tu_plan **plan);
tu_status tu__node_plan_build(tu_device_instance *device, tu_plan *plan, const tu_binding *binding);
void tu__node_plan_free(tu_device_instance *device, tu_plan *plan);

#endif
