/* Sums between the parts of one card, and between cards that reach each other's memory. */
#ifndef TU__DEVICE_CUDA_RUNTIME_COMBINE_H
#define TU__DEVICE_CUDA_RUNTIME_COMBINE_H

#include "device/cuda/runtime/cuda.h"

/* Compiles what a combination needs, so that enqueueing it does nothing but launch: before a stream is captured. */
tu_status cuda_combine_prepare(cuda_device *device, const tu_combination *what);
/* Enqueues what->rank's part of a combination into a stream of the device's card. */
tu_status cuda_combine(cuda_device *device, const tu_combination *what, CUstream stream);
/* Enqueues all ranks' parts of it: fewer and larger launches, where all are on one card. */
tu_status cuda_combine_all(cuda_device *device, const tu_combination *what, CUstream stream);

#endif
