/* The digest of a state: equal digests mean that all variables are equal, bit for bit. */
#include <string.h>

#include "base/alloc.h"
#include "base/sha256.h"
#include "run/state.h"

static tu_status add_variable(tu__sha256 *hash, const tu_state *state, size_t index) {
    const tu__variable *v = &state->variables[index];
    size_t bytes = tu_type_bytes(v->type);
    const char *dtype = tu_dtype_name(v->type.dtype);
    void *data = tu__alloc(bytes ? bytes : 1, "the digest of a state");
    if (!data) return TU_NO_MEMORY;
    tu_status status = tu_state_get(state, v->name, data, bytes);
    tu__sha256_update(hash, v->name, strlen(v->name) + 1);
    tu__sha256_update(hash, dtype, strlen(dtype) + 1);
    tu__sha256_update(hash, data, bytes);
    tu__free(data);
    return status;
}

tu_status tu_state_digest(const tu_state *state, char digest[TU_DIGEST_TEXT]) {
    tu__sha256 hash;
    unsigned char bytes[TU__SHA256_BYTES];
    tu_status status = TU_OK;
    tu__sha256_init(&hash);
    tu__state_lock_shared(state);
    for (size_t i = 0; i < state->count && status == TU_OK; i++) status = add_variable(&hash, state, i);
    tu__state_unlock(state);
    tu__sha256_final(&hash, bytes);
    tu__sha256_hex(bytes, digest);
    return status;
}
