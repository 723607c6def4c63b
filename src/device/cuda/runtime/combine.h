/* Sums between logical devices of one GPU, and between GPUs with peer access. */
#ifndef TU__DEVICE_CUDA_RUNTIME_COMBINE_H
#define TU__DEVICE_CUDA_RUNTIME_COMBINE_H

#include "device/cuda/runtime/cuda.h"

/* Compiles the kernel of a combination, so that enqueueing it only launches. Call it before a stream is captured. */
tu_status cuda_combine_prepare(cuda_device *device, const tu_combination *combination);
/* Enqueues the sum of the slice of rank combination->rank into a stream of the device's GPU. */
tu_status cuda_combine(cuda_device *device, const tu_combination *combination, CUstream stream);
/* Enqueues the sums of all slices, with fewer and larger launches. All ranks must be on one GPU. */
tu_status cuda_combine_all(cuda_device *device, const tu_combination *combination, CUstream stream);

#endif
