/* Digests in the metadata of safetensors files that Tutti writes, to detect damage: "digest" covers the tensors,
 * "metadata_digest" all other entries. The digest of the tensors is separate because `tutti train` also prints it. */
#ifndef TU__IO_SAFETENSORS_DIGEST_H
#define TU__IO_SAFETENSORS_DIGEST_H

#include "base/sha256.h"
#include "base/shared.h"
#include "io/safetensors.h"

#define TU__TENSORS_DIGEST "digest"
#define TU__METADATA_DIGEST "metadata_digest"

/* Computes the SHA-256 of names, dtypes and values of tensors that are sorted by name. */
void tu__tensors_digest(size_t count, const tu__named_tensor *tensors, char hex[TU__SHA256_HEX]);
/* Computes the SHA-256 of all entries but itself, independent of their order. */
TU__SHARED tu_status tu__metadata_digest(size_t count, const tu__metadata *entries, char hex[TU__SHA256_HEX]);

/* Returns TU_CORRUPT if the metadata or the tensors do not match their digests. `kind` (for example "checkpoint") and
 * `path` are for the message. */
TU__SHARED tu_status tu__safetensors_check(const tu__safetensors *file, const char *kind, const char *path);

#endif
