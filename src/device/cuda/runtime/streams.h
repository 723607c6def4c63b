/* Which kernels of a plan may run beside each other, on which of a few streams, and what each has to wait for.
 *
 * Knows nothing of CUDA: kernels are the memory they touch and the time they take, so that it can be tested anywhere. */
#ifndef TU__DEVICE_CUDA_RUNTIME_STREAMS_H
#define TU__DEVICE_CUDA_RUNTIME_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

enum { CUDA_STREAMS = 4, CUDA_NO_KERNEL = -1 };

typedef struct cuda_extent { /* addresses from … to - 1 */
    uintptr_t from, to;
    bool written;
} cuda_extent;

typedef struct cuda_work { /* one kernel */
    const cuda_extent *extents;
    uint32_t extent_count;
    double seconds; /* as far as can be guessed */
} cuda_work;

typedef struct cuda_place {
    int stream;
    int waits[CUDA_STREAMS]; /* per stream: the kernel there that must be done before, or CUDA_NO_KERNEL */
    bool waited_for;         /* by a kernel of another stream */
} cuda_place;

/* Deals `count` kernels, in the order they run, out to streams. A kernel that touches what an earlier one writes, or writes
 * what an earlier one touches, stands behind it: on its stream, or by a wait. Returns whether it pays: if not, all of
 * them are on stream 0. */
bool cuda_deal(uint32_t count, const cuda_work *work, cuda_place *places);

#endif
