/* Functions for devices that compute in host memory: allocate, release and copy of their tables. */
#ifndef TU__DEVICE_HOST_MEMORY_H
#define TU__DEVICE_HOST_MEMORY_H

#include <tutti/device.h>

tu_status tu__host_allocate(tu_device_instance *device, bool on_host, size_t bytes, void **address);
void tu__host_release(tu_device_instance *device, void *address);
tu_status tu__host_copy(tu_device_instance *device, tu_queue *queue, tu_memory to, tu_memory from,
                        size_t bytes);

#endif
