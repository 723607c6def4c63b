/* Opens the devices of a program and describes them to the pass `place`. */
#ifndef TU__COMPILE_PLACEMENT_H
#define TU__COMPILE_PLACEMENT_H

#include <tutti/run.h>

#include "base/shared.h"
#include "device/device.h"
#include "pass/pass.h"

/* Opened devices. The pass `place` may add one. */
typedef struct tu__device_list {
    tu__device **devices; /* room for TU__MAX_DEVICES; owned by the caller, like `names` */
    const char **names;
    size_t *count;
    tu_open_options options; /* options that the devices were opened with */
} tu__device_list;

/* True if the device list contains "all"; NULL means "all". */
TU__SHARED bool tu__device_list_has_all(const char *devices);

/* Opens the devices of a device list into `list` and sets up `unit` for the pass `place`. Placement follows the
 * graph, the fields place, place_by, place_context and strict_placement of `compile_options`, and what the devices
 * support; tu__replication_init uses further fields. If the list contains "all", the pass opens a CPU for
 * operations that no GPU supports. The caller closes the devices with tu__devices_close; `placement` and `list`
 * must not move while passes run. */
tu_status tu__placement_init(tu__device_list *list, tu__placement_options *placement, tu__unit *unit,
                             const char *devices, const tu_open_options *options,
                             const tu_compile_options *compile_options);
/* Opens one more device, and adds it to the unit. */
tu_status tu__device_list_add(tu__device_list *list, tu__unit *unit, const char *name);

/* strategy.c: sets up how the unit's devices share a batch, from the fields strategy, central, invariant and
 * bf16_gradients of `compile_options`. Opens the central device if it is not in the list. */
/* group_replicas.c: sets the replicas of all processes, by exchanging with the group. */
tu_status tu__number_replicas(const tu__device_list *list, tu__unit *unit, const tu_compile_options *options);
tu_status tu__replication_init(tu__device_list *list, tu__unit *unit,
                               const tu_compile_options *compile_options);

#endif
