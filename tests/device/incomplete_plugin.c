/* A device plug-in whose table lacks MISSING_COUNT functions, from the function MISSING on. No function is ever called:
 * the engine refuses the plug-in. */
#include <stddef.h>
#include <string.h>

#include <tutti/device.h>

static void never_called(void) {}

static void set_function(tu_device_api *api, size_t offset, void (*function)(void)) {
    memcpy((char *)api + offset, &function, sizeof function);
}

TU_API const tu_device_api *tu_device_plugin(void);
const tu_device_api *tu_device_plugin(void) {
    static tu_device_api api;
    api = (tu_device_api){.abi = TU_DEVICE_ABI, .struct_size = sizeof api, .kind = "incomplete"};
    for (size_t at = offsetof(tu_device_api, describe); at < sizeof api; at += sizeof(void (*)(void)))
        set_function(&api, at, never_called);
    for (size_t i = 0; i < MISSING_COUNT; i++)
        set_function(&api, offsetof(tu_device_api, MISSING) + i * sizeof(void (*)(void)), NULL);
    return &api;
}
