/* State files from inside: what loading them shares with others that take variables from tensors of a file. */
#ifndef TU__RUN_STATE_FILE_H
#define TU__RUN_STATE_FILE_H

#include <tutti/run.h>

#include "base/shared.h"
#include "io/safetensors.h"

/* Whether a variable of this type can take the tensor: the same shape and element type, or, with `convert`, two
 * floating-point types. */
TU__SHARED bool tu__tensor_fits(const tu__named_tensor *tensor, tu_type type, bool convert);
/* Sets a variable to a tensor that fits, converted where its type is another. */
TU__SHARED tu_status tu__state_take(tu_state *state, const char *name, tu_type type,
                                    const tu__named_tensor *tensor);

/* load_report.c: an empty report on the file at `path`, and what becomes of one name. `in_state` and `in_file` are NULL
 * where it has no such type; `why` is NULL, or why Tutti cannot hold the file's tensor. */
tu_load_report *tu__load_report_new(const char *path);
tu_status tu__load_report_add(tu_load_report *report, tu_load_outcome outcome, const char *name,
                              const tu_type *in_state, const tu_type *in_file, const char *why);

#endif
