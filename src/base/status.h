/* What the engine's own files need of error reporting beyond <tutti/status.h>. */
#ifndef TU__BASE_STATUS_H
#define TU__BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

#include <tutti/status.h>

#include "base/shared.h"

/* As tu_fail, with the arguments as a list. */
tu_status tu__fail_list(tu_status status, const char *format, va_list arguments);

/* Fails with TU_NO_MEMORY and a message that names what `bytes` were wanted for. */
TU__SHARED tu_status tu__fail_memory(const char *purpose, size_t bytes);

#endif
