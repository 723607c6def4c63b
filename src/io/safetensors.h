/* safetensors: named dense tensors in one file, the format of checkpoints and of weights from other programs.
 *
 *     u64 little-endian N | N bytes of JSON | data
 *
 * Reading makes all checks of the reference parser and rejects duplicate names; the file is mapped, not copied.
 * Tensors that Tutti does not support (dtypes such as i8 and f8, empty tensors, too many dimensions) are skipped;
 * tu__safetensors_find reports the reason if one of them is requested. */
#ifndef TU__IO_SAFETENSORS_H
#define TU__IO_SAFETENSORS_H

#include <stddef.h>

#include <tutti/types.h>

#include "base/shared.h"

typedef struct tu__named_tensor {
    const char *name;
    tu_type type;
    const void *data; /* contiguous; not aligned in a mapped file: copy it out */
} tu__named_tensor;

typedef struct tu__metadata {
    const char *key, *value;
} tu__metadata;

/* Writes a file atomically (base/save.h). Tensors are ordered like those of the reference writer: by dtype, largest
 * elements first, then by name. */
TU__SHARED tu_status tu__safetensors_save(const char *path, size_t tensor_count,
                                          const tu__named_tensor *tensors, size_t metadata_count,
                                          const tu__metadata *metadata);
/* Writes it beneath a folder, in which no link is followed (base/open_file.h). */
TU__SHARED tu_status tu__safetensors_save_in(const char *folder, const char *name, size_t tensor_count,
                                             const tu__named_tensor *tensors, size_t metadata_count,
                                             const tu__metadata *metadata);

/* Does the same and adds a last tensor `seal` (u8[32]): the SHA-256 of all bytes of the file before it. */
TU__SHARED tu_status tu__safetensors_save_sealed(const char *path, size_t tensor_count,
                                                 const tu__named_tensor *tensors, size_t metadata_count,
                                                 const tu__metadata *metadata, const char *seal);

/* A tensor of a file that Tutti does not support, and the reason. */
typedef struct tu__unsupported_tensor {
    const char *name, *reason;
} tu__unsupported_tensor;

typedef struct tu__safetensors {
    size_t tensor_count, metadata_count, unsupported_count;
    const tu__named_tensor *tensors; /* in the order of the file's data */
    const tu__metadata *metadata;
    const tu__unsupported_tensor *unsupported;
    void *contents; /* the mapping and the arena: private to safetensors_read.c */
} tu__safetensors;

TU__SHARED tu_status tu__safetensors_open(const char *path, tu__safetensors *file);
/* Opens a file beneath a folder, in which no link is followed. */
TU__SHARED tu_status tu__safetensors_open_in(const char *folder, const char *name, tu__safetensors *file);
/* Parses bytes that outlive the result; `name` is for messages. */
tu_status tu__safetensors_parse(const char *name, const void *bytes, size_t size, tu__safetensors *file);
/* Fails if the file was truncated while tensors were read (base/map_file.h). */
TU__SHARED tu_status tu__safetensors_intact(const tu__safetensors *file);
TU__SHARED void tu__safetensors_close(tu__safetensors *file);
/* Returns NULL and sets this thread's error message if the tensor does not exist or is not supported. */
TU__SHARED const tu__named_tensor *tu__safetensors_find(const tu__safetensors *file, const char *name);
/* Returns the reason why the tensor of that name is not supported; NULL if it is, or does not exist. */
TU__SHARED const char *tu__safetensors_unsupported_reason(const tu__safetensors *file, const char *name);
/* Returns NULL if there is no such entry. */
TU__SHARED const char *tu__safetensors_metadata(const tu__safetensors *file, const char *key);

#endif
