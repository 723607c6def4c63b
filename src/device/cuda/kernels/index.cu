/* Indexing: gather, scatter_add, take_along, put_along, one_hot.
 *
 * An index below 0 or past the end reads zeros and writes nothing. Reading is a copy whose source is looked up: each
 * word of y is written by its own thread, whatever the length of rows; the threads of a row read the same index from
 * the cache. Four words are in flight per thread, since each load waits for its index first.
 *
 * Writing sums all updates of one element in the order of the indices, so that results are bitwise reproducible. Each
 * element of y therefore belongs to one thread (or warp), which must find the updates for it. There are two methods:
 *
 *     scatter_scan   compares all indices that could match. For few indices, or small results.
 *     scatter_sort   lists for every row of y the indices that refer to it; scatter_sum then adds along the lists.
 *                    Every update is read once, every element of y written once. The sort is one launch, and its
 *                    order does not depend on atomics: a block owns a range of rows and reads all indices, twice. It
 *                    counts those of lower rows (which gives the start of its lists) and of each row in its range,
 *                    then stores them one by one. A few hundred blocks read the indices from the L2 cache: little
 *                    compared with the updates.
 */
#include "extent.cuh"
#include "index_args.h"

enum { IN_FLIGHT = 4 };

/* Returns indices[j], or -1 if it is out of range. X: i32 or i64. */
template <typename X> __device__ inline i64 checked_index(const void *indices, i64 j, i64 size) {
    i64 index = (i64)((const X *)indices)[j];
    return index >= 0 && index < size ? index : -1;
}

/* ---- Reading ---- */

template <typename T, typename X, typename I> __device__ inline T load_gathered(const gather_args &a, I row) {
    I column = divmod_in_place(row, a.row), j = divmod_in_place(row, a.indices_per_outer);
    i64 index = checked_index<X>(a.indices, (i64)j, a.size);
    if (index < 0) return repeating<T>::of(0);
    return ((const T *)a.table)[((i64)row * a.size + index) * a.row.size + (i64)column];
}

template <typename T, typename X, typename I> __global__ void gather(gather_args a) {
    i64 stride = grid_thread_count();
    for (i64 first = global_thread_index(); first < a.count; first += IN_FLIGHT * stride) {
        T loaded[IN_FLIGHT];
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++)
            if (first + u * stride < a.count) loaded[u] = load_gathered<T, X, I>(a, (I)(first + u * stride));
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++)
            if (first + u * stride < a.count) ((T *)a.y)[first + u * stride] = loaded[u];
    }
}

template <typename T, typename X, typename I> __global__ void take_along(take_args a) {
    for (i64 i = global_thread_index(); i < a.count; i += grid_thread_count()) {
        I outer = (I)i, k = divmod_in_place(outer, a.inner);
        divmod_in_place(outer, a.along);
        i64 index = checked_index<X>(a.indices, i, a.size);
        ((T *)a.y)[i] =
            index < 0 ? (T)0 : ((const T *)a.x)[((i64)outer * a.size + index) * a.inner.size + (i64)k];
    }
}

template <typename T, typename X, typename I> __global__ void one_hot(one_hot_args a) {
    for (i64 i = global_thread_index(); i < a.count; i += grid_thread_count()) {
        I j = (I)i, c = divmod_in_place(j, a.classes);
        ((T *)a.y)[i] = (i64)((const X *)a.indices)[(i64)j] == (i64)c ? (T)a.one : (T)0;
    }
}

/* ---- Writing: compare all indices ---- */

template <typename T, typename X, typename I> __global__ void scatter_scan(scan_args a) {
    typedef compute_type<T> C;
    for (i64 i = global_thread_index(); i < a.count; i += grid_thread_count()) {
        I outer = (I)i, column = divmod_in_place(outer, a.inner), row = divmod_in_place(outer, a.size);
        const X *index = (const X *)a.indices + (i64)outer * a.outer_step + (i64)column * a.inner_step;
        const T *update = (const T *)a.updates + (i64)outer * a.along * a.inner.size + (i64)column;
        C sum = a.base ? (C)widen(((const T *)a.base)[i]) : (C)0;
        for (i64 j = 0; j < a.along; j++)
            if ((i64)index[j * a.step] == (i64)row) sum += (C)widen(update[j * a.inner.size]);
        ((T *)a.y)[i] = narrow<T>(sum);
    }
}

/* ---- Writing: sort the indices. Blocks of scatter_sort have SORT_THREADS threads ---- */

enum { SORT_THREADS = 1024, WARPS = SORT_THREADS / 32 };

/* Returns the target of indices[j]; ~0 if it is out of range. */
template <typename X> __device__ inline u32 target_of(const sort_args &a, u32 j) {
    i64 index = checked_index<X>(a.indices, j, a.size);
    if (index < 0) return ~0u;
    u32 outer = j, k = divmod_in_place(outer, a.inner);
    outer = divide(outer, a.along);
    return (u32)(((i64)outer * a.size + index) * a.inner.value + k);
}

/* Returns the sum of x over the lanes up to this one, inclusive. */
__device__ inline u32 inclusive_scan_warp(u32 x) {
    int lane = threadIdx.x & 31;
    for (int distance = 1; distance < 32; distance *= 2) {
        u32 other = __shfl_up_sync(0xffffffffu, x, distance);
        if (lane >= distance) x += other;
    }
    return x;
}

/* Returns the sum of x over the threads of the block before this one. `shared`: WARPS values. */
__device__ inline u32 exclusive_scan_block(u32 x, u32 *shared) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u32 inclusive = inclusive_scan_warp(x), before = inclusive - x;
    __syncthreads();
    if (lane == 31) shared[warp] = inclusive;
    __syncthreads();
    for (int w = 0; w < warp; w++) before += shared[w];
    return before;
}

/* Counts the indices for each target in [first, last). Returns how many indices have lower targets. */
template <typename X>
__device__ inline u32 count_targets(const sort_args &a, u32 first, u32 last, u32 *counts, u32 *shared) {
    u32 before = 0;
    for (u32 r = threadIdx.x; r < a.range; r += SORT_THREADS) counts[r] = 0;
    __syncthreads();
#pragma unroll 4
    for (u32 j = threadIdx.x; j < a.count; j += SORT_THREADS) {
        u32 target = target_of<X>(a, j);
        if (target < first) before++;
        if (target >= first && target < last) atomicAdd(&counts[target - first], 1u);
    }
    return block_reduce(before, adding(), shared); /* also a barrier: all threads have counted */
}

/* Converts the counts to the start positions of the lists. */
__device__ inline void start_lists(const sort_args &a, u32 first, u32 last, u32 before, u32 *counts,
                                   u32 *shared) {
    u32 rows_per_thread = (a.range + SORT_THREADS - 1) / SORT_THREADS;
    u32 first_row = threadIdx.x * rows_per_thread, sum = 0;
    for (u32 r = first_row; r < first_row + rows_per_thread && r < last - first; r++) sum += counts[r];
    u32 start = before + exclusive_scan_block(sum, shared);
    for (u32 r = first_row; r < first_row + rows_per_thread && r < last - first; r++) {
        u32 count = counts[r];
        counts[r] = a.starts[first + r] = start;
        start += count;
        if (first + r + 1 == a.targets) a.starts[a.targets] = start;
    }
    __syncthreads();
}

/* One warp appends the positions of hits to their lists, 32 at a time, in order. `next`: the end of each list. */
__device__ inline void append_hits(const u32 *positions, const u32 *rows, u32 count, u32 *next, u32 *sorted) {
    u32 lane = threadIdx.x & 31;
    for (u32 first = 0; first < count; first += 32) {
        bool is_active = first + lane < count;
        u32 row = is_active ? rows[first + lane] : ~0u, same = 0;
        for (int other = 0; other < 32; other++)
            same |= (u32)(__shfl_sync(0xffffffffu, row, other) == row) << other;
        u32 earlier = (u32)__popc(same & ((1u << lane) - 1));
        if (is_active) sorted[next[row] + earlier] = positions[first + lane];
        __syncwarp(0xffffffffu);
        if (is_active && same >> lane == 1) next[row] += earlier + 1; /* the last lane with this row */
        __syncwarp(0xffffffffu);
    }
}

template <typename X> __global__ void __launch_bounds__(SORT_THREADS) scatter_sort(sort_args a) {
    extern __shared__ u32 next[]; /* a.range */
    __shared__ u32 shared[WARPS], hits[WARPS], positions[SORT_THREADS], rows[SORT_THREADS];
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u32 first = blockIdx.x * a.range, last = a.targets - first < a.range ? a.targets : first + a.range;
    u32 before = count_targets<X>(a, first, last, next, shared);
    start_lists(a, first, last, before, next, shared);
    for (u32 base = 0; base < a.count; base += SORT_THREADS) {
        u32 j = base + threadIdx.x, target = j < a.count ? target_of<X>(a, j) : ~0u;
        bool hit = target >= first && target < last;
        u32 votes = __ballot_sync(0xffffffffu, hit);
        if (lane == 0) hits[warp] = (u32)__popc(votes);
        __syncthreads(); /* the first warp has processed the previous batch */
        u32 inclusive = 0;
        if (votes || warp == 0) inclusive = inclusive_scan_warp(hits[lane]);
        u32 found = 0, position = 0;
        if (warp == 0) found = __shfl_sync(0xffffffffu, inclusive, 31);
        if (votes && warp) position = __shfl_sync(0xffffffffu, inclusive, warp - 1);
        position += (u32)__popc(votes & ((1u << lane) - 1));
        if (hit) positions[position] = j, rows[position] = target - first;
        __syncthreads();
        if (warp == 0) append_hits(positions, rows, found, next, a.sorted);
    }
}

/* N elements of y belong to one thread or, with G = 32, to one warp, if y has too few elements to fill the GPU. The
 * lanes of a warp then process every 32nd entry of a list, and their sums are added in a tree. */
template <typename T, int N, typename I, int G> __global__ void scatter_sum(sum_args a) {
    typedef compute_type<T> C;
    typedef pack<T, N> P;
    int lane = G == 1 ? 0 : (int)(threadIdx.x & 31);
    for (i64 i = global_thread_index() / G; i < a.count; i += grid_thread_count() / G) {
        I outer = (I)i, column = divmod_in_place(outer, a.row), row = divmod_in_place(outer, a.targets);
        u32 begin = a.starts[row], end = a.starts[row + 1];
        if (begin == end && a.y == a.base) continue; /* in place, nothing to add */
        const P *update = (const P *)a.updates + (i64)outer * a.along * a.row.size + (i64)column;
        C sum[N];
        P base;
        if (a.base) base = ((const P *)a.base)[i];
#pragma unroll
        for (int n = 0; n < N; n++) sum[n] = a.base && lane == 0 ? (C)widen(base.element[n]) : (C)0;
        for (u32 entry = begin + lane; entry < end; entry += IN_FLIGHT * G) {
            P loaded[IN_FLIGHT];
#pragma unroll
            for (int u = 0; u < IN_FLIGHT; u++)
                if (entry + u * G < end) loaded[u] = update[(i64)a.sorted[entry + u * G] * a.row.size];
#pragma unroll
            for (int u = 0; u < IN_FLIGHT; u++)
                if (entry + u * G < end)
#pragma unroll
                    for (int n = 0; n < N; n++) sum[n] += (C)widen(loaded[u].element[n]);
        }
        P y;
#pragma unroll
        for (int n = 0; n < N; n++) y.element[n] = narrow<T>(G == 1 ? sum[n] : warp_reduce(sum[n], adding()));
        if (lane == 0) ((P *)a.y)[i] = y;
    }
}
