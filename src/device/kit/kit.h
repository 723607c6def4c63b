/* The kit: what devices that fuse operations have in common. The CPU device and the CUDA plug-in use it, and plug-ins
 * of others may.
 *
 *   select.h        turns a partition into kernels and buffers, by the device's lowering rules
 *   fusion.h        pointwise nodes that become one kernel
 *   epilogue.h      a bias and a relu that belong to the kernel of a matmul or convolution
 *   members.h       the kernel of one network, run for each of several
 *   norm_fusion.h   operations that belong to the kernel of a batch normalisation
 *   reordering.h    transposes, slices and similar operations as an offset and strides
 *   plan_check.h    the checks that the engine does with every plan
 *
 * It is a static archive: every plug-in contains a copy. The kit reads the engine's internal structures and calls its
 * internal functions, so a plug-in that uses it works only with the version of Tutti that it was built with. A plug-in
 * that uses only <tutti/device.h> has no such limit. */
#ifndef TU__DEVICE_KIT_KIT_H
#define TU__DEVICE_KIT_KIT_H

#include <string.h>

#include <tutti/device.h>

#include "device/kit/epilogue.h"
#include "device/kit/fusion.h"
#include "device/kit/members.h"
#include "device/kit/norm_fusion.h"
#include "device/kit/plan_check.h"
#include "device/kit/reordering.h"
#include "device/kit/select.h"
#include "device/kit/version.h"

/* Returns what tu_device_plugin of a plug-in that uses the kit must return: `api`; or, if the library has another
 * version than the kit, a table for which the engine refuses the plug-in, with a message that names both versions. */
static inline const tu_device_api *tu_kit_plugin(const tu_device_api *api) {
    static const tu_device_api refused = {
        .abi = TU_DEVICE_OTHER_KIT, .struct_size = sizeof(tu_device_api), .kind = TU_KIT_VERSION};
    return strcmp(tu_version(), TU_KIT_VERSION) == 0 ? api : &refused;
}

#endif
