/* Functions for devices that compute in host memory: allocate, release, upload, download and copy of their tables. */
#ifndef TU__DEVICE_HOST_MEMORY_H
#define TU__DEVICE_HOST_MEMORY_H

#include <tutti/device.h>

tu_status tu__host_allocate(tu_device_instance *device, size_t bytes, void **address);
void tu__host_release(tu_device_instance *device, void *address);
/* For both upload and download. */
tu_status tu__host_transfer(tu_device_instance *device, void *to, const void *from, size_t bytes);
/* Copies from any device that computes in host memory. */
tu_status tu__host_copy(tu_device_instance *device, void *to, tu_device_instance *other,
                        const tu_device_api *other_api, const void *from, size_t bytes);

#endif
