/* A plug-in that uses the kit: the device "checked" works like "tally" (examples/device) and validates its own plans. */
#define TALLY_SIZE sizeof(tu_device_api)
#define TALLY_KIND "checked"
#define tu_device_plugin tally_plugin
#include "device/tally.c" // NOLINT(bugprone-suspicious-include): a variant of it
#undef tu_device_plugin

#include "device/kit/kit.h"

static tu_status lower_checked(tu_device_instance *device, const tu_partition *partition, tu_plan **plan) {
    TU_TRY(lower(device, partition, plan));
    tu_status status = tu__plan_check(TALLY_KIND, partition, *plan);
    if (status != TU_OK) plan_free(device, *plan);
    return status;
}

TU_API const tu_device_api *tu_device_plugin(void);
const tu_device_api *tu_device_plugin(void) {
    static tu_device_api api;
    api = *tally_plugin();
    api.lower = lower_checked;
    return tu_kit_plugin(&api);
}
