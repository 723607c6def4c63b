/* The ring of one plan: slots on the card, from which steps take their inputs and in which they leave results. */
#ifndef TU__DEVICE_CUDA_RUNTIME_RING_H
#define TU__DEVICE_CUDA_RUNTIME_RING_H

#include "device/cuda/runtime/plan.h"

enum { CUDA_HALVES = 2 }; /* one is filled and emptied while the steps of the other run */

typedef struct cuda_ring cuda_ring;

/* How many steps a half should hold, for a call of so many. */
uint32_t cuda_ring_half(const tu_repetition *what, uint32_t steps);
/* Whether a ring was made for such feeds and fetches. Addresses of the host do not matter. */
bool cuda_ring_fits(const cuda_ring *ring, const tu_repetition *what);
/* A ring on the device with room for `half` steps in either half; the device's context is the thread's afterwards, as it is
 * when the ring has been freed. What a failure left is freed as the whole would be. */
tu_status cuda_ring_new(const cuda_device *device, uint32_t half, const tu_repetition *what,
                        cuda_ring **ring);
void cuda_ring_free(cuda_ring *ring);
double cuda_ring_mebibytes(const cuda_ring *ring);

/* The first and the last kernel of a step, into the device's stream. */
tu_status cuda_ring_fill(const cuda_ring *ring, const cuda_device *device, const cuda_runtime *runtime);
tu_status cuda_ring_keep(const cuda_ring *ring, const cuda_device *device, const cuda_runtime *runtime);

/* A repetition begins: steps are counted from 0, and what all of them share is brought. */
tu_status cuda_ring_begin(cuda_ring *ring, const tu_repetition *what);
/* Brings what steps first … first + count - 1 are fed into a half; what `steps` is given from then on waits for it. */
tu_status cuda_ring_stage(const cuda_ring *ring, const tu_repetition *what, uint32_t half, uint32_t first,
                          uint32_t count, CUstream steps);
/* Fetches what the steps of a half left, behind them in their stream; and hands it over, once that is done. */
tu_status cuda_ring_fetch(const cuda_ring *ring, uint32_t half, uint32_t count, CUstream steps);
void cuda_ring_hand_over(const cuda_ring *ring, const tu_repetition *what, uint32_t half, uint32_t first,
                         uint32_t count);

/* Steps of the repetition that are done, as the card answered when this was called before: it never waits, and asks anew. */
uint32_t cuda_ring_done(cuda_ring *ring);

#endif
