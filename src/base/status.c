/* The message of the latest failure, kept per thread.
 *
 * The buffer is fixed: reporting that memory ran out must not need memory. A message longer than the buffer is
 * cut, which no message of the engine comes near. */
#include "base/status.h"

#include <stdio.h>
#include <string.h>

static _Thread_local char message[1024];

const char *tu_status_text(tu_status status) {
    static const char *const texts[] = {
#define STATUS_TEXT(name, text) [TU_##name] = text,
        TU_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    };
    size_t count = sizeof texts / sizeof *texts;
    return (size_t)status < count ? texts[status] : "unknown status";
}

const char *tu_message(void) {
    return message;
}

tu_status tu__fail_list(tu_status status, const char *format, va_list arguments) {
    /* Formatted aside first: the arguments may point into the previous message. */
    char fresh[sizeof message];
    vsnprintf(fresh, sizeof fresh, format, arguments);
    memcpy(message, fresh, sizeof fresh);
    return status;
}

tu_status tu_fail(tu_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    tu__fail_list(status, format, arguments);
    va_end(arguments);
    return status;
}

tu_status tu__fail_memory(const char *purpose, size_t bytes) {
    return tu_fail(
        TU_NO_MEMORY,
        "out of memory: %zu bytes for %s could not be had; close other programs, or use a smaller batch",
        bytes, purpose);
}

const char *tu_version(void) {
    return TU_VERSION;
}

int tu_abi(void) {
    return TU_ABI;
}
