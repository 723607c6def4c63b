/* Assigns the kernels of a plan to a few streams so that independent kernels run in parallel, and determines what
 * each must wait for.
 *
 * Independent of CUDA: a kernel is described by the memory it accesses and its run time, so it can be tested without
 * a GPU.
 */
#ifndef TU__DEVICE_CUDA_RUNTIME_STREAMS_H
#define TU__DEVICE_CUDA_RUNTIME_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

enum { CUDA_STREAMS = 4, CUDA_NO_KERNEL = -1 };

typedef struct cuda_extent { /* addresses [from, to) */
    uintptr_t from, to;
    bool written;
} cuda_extent;

typedef struct cuda_work { /* one kernel */
    const cuda_extent *extents;
    uint32_t extent_count;
    double seconds; /* estimated run time */
} cuda_work;

typedef struct cuda_stream_assignment {
    int stream;
    int waits[CUDA_STREAMS]; /* per stream: the kernel that must finish first, or CUDA_NO_KERNEL */
    bool waited_for;         /* a kernel of another stream waits for this one */
} cuda_stream_assignment;

/* Assigns `count` kernels, in launch order, to streams. A kernel that accesses memory that an earlier kernel writes,
 * or writes memory that an earlier kernel accesses, runs after it: on the same stream, or by a wait. Returns false if
 * several streams are not estimated to be faster; all kernels are then on stream 0. */
bool cuda_assign_streams(uint32_t count, const cuda_work *work, cuda_stream_assignment *assignments);

#endif
