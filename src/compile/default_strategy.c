/* The default strategy depends only on the text of the device list. Opening the devices only to count them would
 * create each GPU's context twice. */
#include <tutti/command.h>

#include <stdlib.h>
#include <string.h>

#include <tutti/device.h>

#include "pass/choices.h"

static int count_gpus(void) {
    tu_device_info info = TU_SIZED(tu_device_info);
    int gpus = 0;
    for (size_t i = 0, count = tu_device_count(); i < count && tu_device(i, &info) == TU_OK; i++)
        gpus += !info.unusable && info.accelerator;
    return gpus;
}

/* Returns the number of devices that a device spec stands for; 2 stands for any larger number. */
static int count_devices(const char *spec, size_t length) {
    if (length == 3 && strncmp(spec, "all", 3) == 0) return count_gpus();
    const char *colon = memchr(spec, ':', length), *dash = memchr(spec, '-', length);
    const char *slash = memchr(spec, '/', length);
    bool is_range = colon && dash && strtol(colon + 1, NULL, 10) != strtol(dash + 1, NULL, 10);
    bool is_divided = slash && !memchr(spec, '.', length) && strtol(slash + 1, NULL, 10) > 1;
    return is_range || is_divided ? 2 : 1;
}

static bool names_several_of_one_kind(const char *list) {
    int count = 0;
    size_t kind_length = strcspn(list, ":,");
    for (const char *spec = list; *spec;) {
        size_t length = strcspn(spec, ",");
        if (strcspn(spec, ":,") != kind_length || strncmp(spec, list, kind_length) != 0) return false;
        count += count_devices(spec, length);
        spec += length + (spec[length] == ',');
    }
    return count > 1;
}

const char *tu_default_strategy(const char *devices, bool placed, bool invariant) {
    bool is_mirrored = invariant || (!placed && names_several_of_one_kind(devices ? devices : "all"));
    return tu__strategy_names[is_mirrored ? TU__MIRRORED : TU__SINGLE];
}
