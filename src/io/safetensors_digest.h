/* Digests in the metadata of the safetensors files that Tutti writes, by which damage is noticed: "digest" is of the
 * tensors, "metadata_digest" of all other entries. The two are kept apart because the first is also the digest of a state
 * that `tutti train` prints. */
#ifndef TU__IO_SAFETENSORS_DIGEST_H
#define TU__IO_SAFETENSORS_DIGEST_H

#include "base/sha256.h"
#include "base/shared.h"
#include "io/safetensors.h"

#define TU__TENSORS_DIGEST "digest"
#define TU__METADATA_DIGEST "metadata_digest"

/* SHA-256 over names, types and values of tensors that are in the order of their names. */
void tu__tensors_digest(size_t count, const tu__named_tensor *tensors, char hex[TU__SHA256_HEX]);
/* SHA-256 over all entries but its own, in whatever order they are. */
TU__SHARED tu_status tu__metadata_digest(size_t count, const tu__metadata *entries, char hex[TU__SHA256_HEX]);

/* TU_CORRUPT where the metadata or the tensors are not those that both digests are of. `kind`, as in "checkpoint", and
 * `path` are for the message. */
TU__SHARED tu_status tu__safetensors_check(const tu__safetensors *file, const char *kind, const char *path);

#endif
