/* Tuning results: the fastest algorithm of a library for a problem, stored on disk and reused by later programs and
 * processes.
 *
 * Timing all candidates takes too long to repeat at every start. With tuning on, a result is looked up by a key that
 * contains everything it depends on: the problem, the GPU model and the library's version. Without tuning nothing is
 * looked up, so that results do not depend on earlier runs.
 *
 *     tu__text key = {0};
 *     tu__text_printf(&key, "gemm %lld %lld …", …);
 *     TU_TRY(cuda_tuning_key(device, CUDA_blas, &key));
 *     if (cuda_tuning_find(tu__text_string(&key), value, sizeof value)) …
 *     else cuda_tuning_store(tu__text_string(&key), found);
 *
 * Keys and values are text without tabs and line feeds. The table is the file "choices" in the folder of compiled
 * kernels. If it cannot be read or written, the candidates are timed again. All functions may be called from any
 * thread.
 */
#ifndef TU__DEVICE_CUDA_RUNTIME_TUNING_CACHE_H
#define TU__DEVICE_CUDA_RUNTIME_TUNING_CACHE_H

#include "base/text.h"
#include "device/cuda/runtime/cuda.h"

/* Appends the GPU model and the library's version to a key. */
tu_status cuda_tuning_key(const cuda_device *device, cuda_library library, tu__text *key);
/* Copies the value of a key. Returns false if there is none, or if it is longer than `capacity` - 1. */
bool cuda_tuning_find(const char *key, char *value, size_t capacity);
void cuda_tuning_store(const char *key, const char *value);

/* Measures the seconds of GPU time per call of `enqueue`, which enqueues work into the device's own queue: the best of
 * several rounds. The caller owns the buffers that the work uses. */
tu_status cuda_tuning_measure(cuda_device *device, tu_status (*enqueue)(void *context), void *context,
                              double *seconds);

#endif
