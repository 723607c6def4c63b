/* Finishes sums that several blocks computed: adds the partial sums in a fixed order, divides and rounds. One warp
 * per result: each lane adds every 32nd partial sum, then the lanes are added. There are some hundred partial sums,
 * in the L2 cache. */
#include "prelude.cuh"
#include "sums_args.h"

template <typename C, typename T> __global__ void finish_sums(finish_sums_args a) {
    i64 result = global_thread_index() >> 5;
    u32 lane = threadIdx.x & 31;
    if (result >= a.results) return;
    const C *part = (const C *)a.partial + result * a.result_stride;
    C total = 0;
    for (i64 j = lane; j < a.parts; j += 32) total += part[j * a.part_stride];
    total = warp_reduce(total, adding());
    if (lane == 0) ((T *)a.out)[result] = narrow<T>(total / (C)a.divisor);
}
