/* Internal declarations of state files. Weight initialization from files uses them too. */
#ifndef TU__RUN_STATE_FILE_H
#define TU__RUN_STATE_FILE_H

#include <tutti/run.h>

#include "base/shared.h"
#include "io/safetensors.h"

/* True if a variable of this type can be set to the tensor: same shape and dtype, or, with `convert`, both dtypes are
 * floating-point. */
TU__SHARED bool tu__tensor_is_compatible(const tu__named_tensor *tensor, tu_type type, bool convert);
/* Sets a variable to a compatible tensor, and converts its dtype if needed. */
TU__SHARED tu_status tu__state_set_from_tensor(tu_state *state, const char *name, tu_type type,
                                               const tu__named_tensor *tensor);

/* load_report.c: the first function returns an empty report on the file at `path`, the second adds the outcome for
 * one name. `in_state` and `in_file`: type of the variable and of the tensor; NULL if there is none. `reason`: NULL, or
 * why Tutti does not support the file's tensor. */
tu_load_report *tu__load_report_new(const char *path);
tu_status tu__load_report_add(tu_load_report *report, tu_load_outcome outcome, const char *name,
                              const tu_type *in_state, const tu_type *in_file, const char *reason);

#endif
