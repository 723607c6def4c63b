/* Shared data of constants in the memory of devices: each exists once per device, whatever the number of programs. */
#include "base/alloc.h"
#include "device/device.h"

struct tu__device_constant {
    uint64_t id; /* of the data */
    void *address;
    int users; /* programs */
    struct tu__device_constant *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the lists of all devices */

/* Returns where the entry is linked, or the end of the list. */
static struct tu__device_constant **find(tu__device *device, uint64_t id) {
    struct tu__device_constant **at = &device->constants;
    while (*at && (*at)->id != id) at = &(*at)->next;
    return at;
}

static tu_status create(tu__device *device, const tu__shared_data *data,
                        struct tu__device_constant **created) {
    struct tu__device_constant *c = tu__alloc(sizeof *c, "a constant in device memory");
    void *address;
    if (!c) return TU_NO_MEMORY;
    tu_status status = tu__device_allocate(device, data->bytes, &address);
    if (status == TU_OK) {
        status = tu__upload(device, address, data->data, data->bytes);
        if (status != TU_OK) device->api->release(device->instance, address);
    }
    if (status != TU_OK) {
        tu__free(c);
        return status;
    }
    *c = (struct tu__device_constant){.id = data->id, .address = address};
    *created = c;
    return TU_OK;
}

tu_status tu__device_constant_keep(tu__device *device, const tu__shared_data *data, void **address) {
    if (device->api->host_memory) {
        *address = data->data;
        return TU_OK;
    }
    pthread_mutex_lock(&lock);
    struct tu__device_constant **at = find(device, data->id);
    tu_status status = *at ? TU_OK : create(device, data, at);
    if (status == TU_OK) {
        (*at)->users++;
        *address = (*at)->address;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void tu__device_constant_release(tu__device *device, const tu__shared_data *data) {
    if (device->api->host_memory) return;
    pthread_mutex_lock(&lock);
    struct tu__device_constant **at = find(device, data->id), *c = *at;
    if (c && --c->users == 0) {
        *at = c->next;
        device->api->release(device->instance, c->address);
        tu__free(c);
    }
    pthread_mutex_unlock(&lock);
}
