/* The ring of one partition: slots on the GPU from which submitted steps read inputs and to which they
 * write results. */
#ifndef TU__DEVICE_CUDA_RUNTIME_RING_H
#define TU__DEVICE_CUDA_RUNTIME_RING_H

#include "device/cuda/runtime/executable.h"

enum { CUDA_HALVES = 2 }; /* one half is filled and emptied while the steps of the other run */

typedef struct cuda_ring cuda_ring;

/* A call of submit: the list, and the data of the steps. */
typedef struct cuda_call {
    const tu_command_list *list;
    const tu_list_part *parts;
    const tu_submit_feed *feeds;
    void *const *fetches;
    uint32_t steps;
    double timeout;       /* maximum seconds between the ends of two steps; 0: none */
    uint32_t *steps_done; /* progress, for the engine; may be NULL */
} cuda_call;

/* True if a partition has inputs or results that the caller wants. */
bool cuda_needs_ring(const cuda_call *call, uint32_t partition);
/* Returns the number of steps per half that a partition's ring can have. */
uint32_t cuda_ring_steps_per_half(const cuda_call *call, uint32_t partition);
/* True if the ring was created for the same feeds and fetches. Host addresses may differ. */
bool cuda_ring_matches(const cuda_ring *ring, const cuda_call *call);
/* Creates the ring of a partition, with `steps_per_half` steps per half. Makes the device's context current, as
 * cuda_ring_free() does. After a failure, free the ring too. */
tu_status cuda_ring_new(const cuda_device *device, uint32_t steps_per_half, const cuda_call *call,
                        uint32_t partition, cuda_ring **ring);
void cuda_ring_free(cuda_ring *ring);
double cuda_ring_mebibytes(const cuda_ring *ring);

/* Enqueue the first and the last kernel of a step into the queue of the partition's kernels. */
tu_status cuda_ring_enqueue_inputs(const cuda_ring *ring, const cuda_kernels *kernels);
tu_status cuda_ring_enqueue_results(const cuda_ring *ring, const cuda_kernels *kernels);

/* Starts a call: resets the step counter and uploads the inputs that all steps share. */
tu_status cuda_ring_begin(cuda_ring *ring, const cuda_call *call);
/* Uploads the inputs of steps first … first + count - 1 into a half and makes the stream `steps` wait for them. */
tu_status cuda_ring_stage(const cuda_ring *ring, const cuda_call *call, uint32_t half, uint32_t first,
                          uint32_t count, CUstream steps);
/* cuda_ring_fetch enqueues the download of a half's results into the stream of its steps. When that is done,
 * cuda_ring_read_results copies them to the caller's memory. */
tu_status cuda_ring_fetch(const cuda_ring *ring, uint32_t half, uint32_t count, CUstream steps);
void cuda_ring_read_results(const cuda_ring *ring, const cuda_call *call, uint32_t half, uint32_t first,
                            uint32_t count);

/* Returns the number of finished steps of the call as of the previous query, and starts a new query. Never waits. */
uint32_t cuda_ring_finished_steps(cuda_ring *ring);

#endif
