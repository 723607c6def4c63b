/* Host memory as device memory. All such devices and the engine can read these addresses, so a copy is a memcpy. The
 * functions do not use the device instance. */
#include "device/host_memory.h"

#include <string.h>

#include "base/alloc.h"

tu_status tu__host_allocate(tu_device_instance *device, size_t bytes, void **address) {
    (void)device;
    *address = tu__alloc_aligned(bytes, "a device's tensors");
    return *address ? TU_OK : TU_NO_MEMORY;
}

void tu__host_release(tu_device_instance *device, void *address) {
    (void)device;
    tu__free_aligned(address);
}

tu_status tu__host_transfer(tu_device_instance *device, void *to, const void *from, size_t bytes) {
    (void)device;
    memcpy(to, from, bytes);
    return TU_OK;
}

tu_status tu__host_copy(tu_device_instance *device, void *to, tu_device_instance *other,
                        const tu_device_api *other_api, const void *from, size_t bytes) {
    (void)other;
    if (!other_api->host_memory) return TU_UNSUPPORTED;
    return tu__host_transfer(device, to, from, bytes);
}
