/* The simplest plan: one kernel per node, one dense buffer per value. For devices that fuse nothing. */
#ifndef TU__DEVICE_NODE_PLAN_H
#define TU__DEVICE_NODE_PLAN_H

#include <tutti/device.h>

#include "base/arena.h"

typedef struct tu__node_plan {
    tu_plan plan; /* must be first: the engine has a pointer to it */
    const tu_graph *graph;
    tu__arena arena;
} tu__node_plan;

struct tu_executable { /* of such a device */
    const tu__node_plan *plan;
    tu_binding binding;
};

/* The functions lower, plan_free, build and executable_free of such a device. */
tu_status tu__node_plan_lower(tu_device_instance *device, const tu_partition *partition, tu_plan **plan);
void tu__node_plan_free(tu_device_instance *device, tu_plan *plan);
tu_status tu__node_plan_build(tu_device_instance *device, tu_queue *queue, tu_plan *plan,
                              const tu_binding *binding, tu_executable **executable);
void tu__node_executable_free(tu_device_instance *device, tu_executable *executable);

#endif
