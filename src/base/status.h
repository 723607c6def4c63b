/* Internal error reporting, in addition to <tutti/status.h>. */
#ifndef TU__BASE_STATUS_H
#define TU__BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

#include <tutti/status.h>

#include "base/shared.h"

/* Like tu_fail, with a va_list. */
tu_status tu__fail_list(tu_status status, const char *format, va_list arguments);

/* Fails with TU_NO_MEMORY and a message that contains `purpose`, the use of the `bytes` that could not be
 * allocated. */
TU__SHARED tu_status tu__fail_memory(const char *purpose, size_t bytes);

#endif
