/* Sums and copies between logical devices of one GPU, and between GPUs with peer access. */
#ifndef TU__DEVICE_CUDA_RUNTIME_COMBINE_H
#define TU__DEVICE_CUDA_RUNTIME_COMBINE_H

#include "device/cuda/runtime/cuda.h"

/* Compiles the kernels of a combination, so that enqueueing it only launches. Call it before a stream is captured. */
tu_status cuda_combine_prepare(cuda_device *device, const tu_combination *combination);
/* Enqueues combinations[0], combinations[stride], …, in all `count`, into a stream of the device's GPU. They have the
 * same element type and the same numbers of inputs and outputs: those of one rank (`count` is 1), or of all ranks on
 * one GPU, which need fewer and larger launches together. */
tu_status cuda_combine(cuda_device *device, const tu_combination *combinations, uint32_t count,
                       uint32_t stride, CUstream stream);

#endif
