/* The message of the latest failure, one per thread.
 *
 * The buffer has a fixed size because reporting an out-of-memory error must not allocate. Longer messages are
 * truncated; the engine's messages are far shorter. */
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
    /* Format into a second buffer: the arguments may point into `message`. */
    char formatted[sizeof message];
    vsnprintf(formatted, sizeof formatted, format, arguments);
    memcpy(message, formatted, sizeof formatted);
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
        "out of memory: cannot allocate %zu bytes for %s; close other programs or use a smaller batch", bytes,
        purpose);
}

const char *tu_version(void) {
    return TU_VERSION;
}

int tu_abi(void) {
    return TU_ABI;
}
