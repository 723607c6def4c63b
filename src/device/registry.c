/* The devices there are. */
#include <string.h>

#include "base/text.h"
#include "device/device.h"

static const tu__device *const devices[] = {&tu__ref_device};
enum { DEVICE_COUNT = sizeof devices / sizeof *devices };

tu_status tu_device(size_t index, tu_device_info *info) {
    if (index >= DEVICE_COUNT)
        return tu_fail(TU_NOT_FOUND, "there is no device number %zu: there are %d", index, DEVICE_COUNT);
    *info = devices[index]->info;
    return TU_OK;
}

const tu__device *tu__device_find(const char *name) {
    for (size_t i = 0; i < DEVICE_COUNT; i++)
        if (strcmp(devices[i]->info.name, name) == 0) return devices[i];
    tu__text known = {0};
    for (size_t i = 0; i < DEVICE_COUNT; i++)
        tu__text_printf(&known, "%s%s", i ? ", " : "", devices[i]->info.name);
    tu_fail(TU_NOT_FOUND, "there is no device '%s': the devices are %s", name, tu__text_string(&known));
    tu__text_free(&known);
    return NULL;
}
