/* Structures of callers that may be of another version: see sized.h. */
#include "base/sized.h"

#include <string.h>

/* The smallest structure has struct_size and one field. All structures are far smaller than MAX_SIZE: a larger
 * struct_size was not initialised by the caller. */
enum { MIN_SIZE = 2 * sizeof(size_t), MAX_SIZE = 1 << 20 };

static size_t struct_size_of(const void *target) {
    size_t size;
    memcpy(&size, target, sizeof size);
    return size;
}

tu_status tu__check_sized(const void *target, const char *type) {
    if (!target) return tu_fail(TU_INVALID, "the pointer to the %s to fill is NULL", type);
    size_t size = struct_size_of(target);
    if (size >= MIN_SIZE && size <= MAX_SIZE) return TU_OK;
    return tu_fail(TU_INVALID,
                   "a %s has struct_size %zu: expected sizeof(%s); declare it as '%s x = "
                   "TU_SIZED(%s);'",
                   type, size, type, type, type);
}

void tu__copy_sized(void *target, const void *full, size_t size) {
    size_t target_size = struct_size_of(target), common = target_size < size ? target_size : size;
    memcpy((char *)target + sizeof target_size, (const char *)full + sizeof target_size,
           common - sizeof target_size);
    memset((char *)target + common, 0, target_size - common);
}

void tu__clear_sized(void *target) {
    size_t target_size = struct_size_of(target);
    memset((char *)target + sizeof target_size, 0, target_size - sizeof target_size);
}
