/* Fills structures of callers that may have been compiled with a shorter or a longer version of them.
 *
 * Every public structure that the library fills begins with struct_size, which the caller sets (TU_SIZED). A function
 * fills a local structure of its own version and then copies the fields that both versions have to the caller. It
 * checks struct_size before it does any work, so that an hour of training is not lost to a result that cannot be
 * returned:
 *
 *     TU_TRY(TU__CHECK_SIZED(tu_train_result, result));
 *     tu_train_result full = {0};
 *     …
 *     TU__COPY_SIZED(result, full);
 */
#ifndef TU__BASE_SIZED_H
#define TU__BASE_SIZED_H

#include <stddef.h>

#include "base/shared.h"

/* The size that a structure had in the first release, in which `last` was its last
 * field. Structures that callers fill and pass by pointer must not be shorter. */
#define TU__FIRST_SIZE(type, last) (offsetof(type, last) + sizeof(((const type *)0)->last))

/* Fails with TU_INVALID if `target`, a structure of the named type, is NULL or its struct_size cannot be right: the
 * caller did not set it. */
#define TU__CHECK_SIZED(type, target) tu__check_sized((const type *){target}, #type)
TU__SHARED tu_status tu__check_sized(const void *target, const char *type);

/* Copies `full` to `target`, except struct_size: at most target's struct_size bytes. Fields that only the caller has
 * become zero. */
#define TU__COPY_SIZED(target, full) tu__copy_sized(target, &(full), sizeof(full))
TU__SHARED void tu__copy_sized(void *target, const void *full, size_t size);

/* Sets all fields of `target` after struct_size to zero. */
TU__SHARED void tu__clear_sized(void *target);

#endif
