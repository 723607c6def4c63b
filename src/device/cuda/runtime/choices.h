/* Choices: which of a library's algorithms a problem takes, remembered between programs and processes.
 *
 * Timing candidates costs more than one network's cold start may. With tuning on, what was found once is looked up by a
 * text that says all it depends on: the problem, the card, the library's version. Without tuning nothing is looked up
 * either, so that results do not depend on what ran before.
 *
 *     tu__text key = {0};
 *     tu__text_printf(&key, "gemm %lld %lld …", …);
 *     TU_TRY(cuda_choice_key(device, CUDA_blas, &key));
 *     if (cuda_choice_find(tu__text_string(&key), value, sizeof value)) …
 *     else cuda_choice_keep(tu__text_string(&key), found);
 *
 * Keys and values are text without tabs and line feeds. The table is one file, "choices", in the folder of compiled
 * kernels; a file that cannot be read or written only means timing again. From any thread. */
#ifndef TU__DEVICE_CUDA_RUNTIME_CHOICES_H
#define TU__DEVICE_CUDA_RUNTIME_CHOICES_H

#include "base/text.h"
#include "device/cuda/runtime/cuda.h"

/* Appends the card and the library to a key. */
tu_status cuda_choice_key(const cuda_device *device, cuda_library library, tu__text *key);
/* Copies the value; false when there is none, or it is longer than `capacity` - 1. */
bool cuda_choice_find(const char *key, char *value, size_t capacity);
void cuda_choice_keep(const char *key, const char *value);

/* Seconds that a call enqueues on the device's stream for: the best of several rounds. What it works on is the caller's. */
tu_status cuda_choice_time(cuda_device *device, tu_status (*enqueue)(void *context), void *context,
                           double *seconds);

#endif
