/* Host memory as device memory. All such devices and the engine can read these addresses, so a copy is a memcpy. The
 * functions do not use the device instance. */
#include "device/host_memory.h"

#include <string.h>

#include "base/alloc.h"

tu_status tu__host_allocate(tu_device_instance *device, bool on_host, size_t bytes, void **address) {
    (void)device, (void)on_host;
    *address = tu__alloc_aligned(bytes, "a device's tensors");
    return *address ? TU_OK : TU_NO_MEMORY;
}

void tu__host_release(tu_device_instance *device, void *address) {
    (void)device;
    tu__free_aligned(address);
}

tu_status tu__host_copy(tu_device_instance *device, tu_queue *queue, tu_memory to, tu_memory from,
                        size_t bytes) {
    (void)device, (void)queue;
    memcpy(to.address, from.address, bytes);
    return TU_OK;
}
