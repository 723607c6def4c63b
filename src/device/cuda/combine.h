/* Sums between the parts of one card. */
#ifndef TU__DEVICE_CUDA_COMBINE_H
#define TU__DEVICE_CUDA_COMBINE_H

#include "device/cuda/cuda.h"

/* Compiles what a combination needs, so that enqueueing it does nothing but launch: before a stream is captured. */
tu_status cuda_combine_prepare(cuda_device *device, const tu_combination *what);
/* Enqueues what->rank's part of a combination into the device's stream. */
tu_status cuda_combine(cuda_device *device, const tu_combination *what);
/* Enqueues all ranks' parts of it into a stream of the same card: fewer and larger launches. */
tu_status cuda_combine_all(cuda_device *device, const tu_combination *what, CUstream stream);

#endif
