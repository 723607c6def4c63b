/* Structures of callers that may be of another version: see sized.h. */
#include "base/sized.h"

#include <string.h>

/* The smallest structure has struct_size and one field. No structure is near the largest size: a greater number is
 * memory that the caller did not initialise. */
enum { SMALLEST = 2 * sizeof(size_t), LARGEST = 1 << 20 };

static size_t size_of(const void *target) {
    size_t size;
    memcpy(&size, target, sizeof size);
    return size;
}

tu_status tu__check_sized(const void *target, const char *type) {
    if (!target)
        return tu_fail(TU_INVALID, "a NULL pointer was given where a %s is filled: expected one", type);
    size_t size = size_of(target);
    if (size >= SMALLEST && size <= LARGEST) return TU_OK;
    return tu_fail(TU_INVALID,
                   "a %s was given with struct_size %zu: expected sizeof(%s); declare it as '%s x = "
                   "TU_SIZED(%s);'",
                   type, size, type, type, type);
}

void tu__copy_sized(void *target, const void *full, size_t size) {
    size_t given = size_of(target), common = given < size ? given : size;
    memcpy((char *)target + sizeof given, (const char *)full + sizeof given, common - sizeof given);
    memset((char *)target + common, 0, given - common);
}

void tu__clear_sized(void *target) {
    size_t given = size_of(target);
    memset((char *)target + sizeof given, 0, given - sizeof given);
}
