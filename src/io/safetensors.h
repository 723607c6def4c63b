/* safetensors: named dense tensors in one file, the format of checkpoints and of weights from elsewhere.
 *
 *     u64 little-endian N | N bytes of JSON | data
 *
 * Reading checks all that the reference parser checks, and refuses duplicate names; the file is mapped, not copied.
 * Tensors of types that Tutti does not have (i8, f8, …), empty ones and those of too many dimensions do not make a file
 * unreadable: they are left out, and tu__safetensors_find says so by name when one of them is wanted. */
#ifndef TU__IO_SAFETENSORS_H
#define TU__IO_SAFETENSORS_H

#include <stddef.h>

#include <tutti/types.h>

#include "base/shared.h"

typedef struct tu__named_tensor {
    const char *name;
    tu_type type;
    const void *data; /* dense; in a file that was read aligned to nothing: copy it out */
} tu__named_tensor;

typedef struct tu__metadata {
    const char *key, *value;
} tu__metadata;

/* Writes atomically (base/save.h): the old file or the new one, never a torn one. Tensors are laid out as the reference
 * writer does: by type, that of the largest elements first, then by name. */
TU__SHARED tu_status tu__safetensors_save(const char *path, size_t tensor_count,
                                          const tu__named_tensor *tensors, size_t metadata_count,
                                          const tu__metadata *metadata);

/* A tensor that a file holds and Tutti cannot, and why. */
typedef struct tu__refused_tensor {
    const char *name, *why;
} tu__refused_tensor;

typedef struct tu__safetensors {
    size_t tensor_count, metadata_count, refused_count;
    const tu__named_tensor *tensors; /* in the order of the file's data */
    const tu__metadata *metadata;
    const tu__refused_tensor *refused;
    void *own; /* the mapping and the arena behind it all */
} tu__safetensors;

TU__SHARED tu_status tu__safetensors_open(const char *path, tu__safetensors *file);
/* The same from bytes that outlive the result; `name` is for messages. */
tu_status tu__safetensors_parse(const char *name, const void *bytes, size_t size, tu__safetensors *file);
TU__SHARED void tu__safetensors_close(tu__safetensors *file);
/* NULL, with this thread's message set, where there is none or Tutti cannot hold it. */
TU__SHARED const tu__named_tensor *tu__safetensors_find(const tu__safetensors *file, const char *name);
/* Why Tutti cannot hold the file's tensor of that name; NULL where it can, or there is none. */
TU__SHARED const char *tu__safetensors_why_refused(const tu__safetensors *file, const char *name);
/* NULL where there is none. */
TU__SHARED const char *tu__safetensors_metadata(const tu__safetensors *file, const char *key);

#endif
