/* Validation of plans. */
#ifndef TU__DEVICE_KIT_PLAN_CHECK_H
#define TU__DEVICE_KIT_PLAN_CHECK_H

#include <tutti/device.h>

/* Validates a plan that a device returned (the rules are in plan_check.c). The message names the device, the kernel
 * and the error. The engine does this with every plan; a device's own tests may do it too. */
tu_status tu__plan_check(const char *device, const tu_partition *partition, const tu_plan *plan);

#endif
