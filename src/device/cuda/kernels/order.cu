/* Cumulative sums, and the k largest elements, along an axis: x [outer, n, inner].
 *
 * Cumulative sums: a block processes a lane in steps of 1024 elements and keeps the sum so far in a register. A
 * thread sums four neighbours; warps and then the block are combined by prefix sums. Lanes that are short, or many
 * and adjacent, get one thread each. A long lane is split into segments whose sums are computed first (reduce.cu). x
 * is read once or twice.
 *
 * The k largest: runs of up to 1024 elements are sorted in shared memory, and the first k of each are kept. Runs are
 * then merged pairwise: each element finds by binary search how many of the other run come before it. The order is
 * total (NaN first, then descending, equal values by index), so all devices agree. Candidates are 16 bytes each.
 */
#include "folds.cuh"
#include "order_args.h"

/* ---- Cumulative sums ---- */

/* Returns the offset of lane `lane`. */
__device__ inline i64 lane_start(i64 lane, i64 n, i64 inner) {
    i64 inner_index = divmod_in_place(lane, inner);
    return lane * n * inner + inner_index;
}

template <typename T> __global__ void scan_lanes(scan_args a) {
    typedef compute_type<T> C;
    for (i64 lane = global_thread_index(); lane < a.lanes; lane += grid_thread_count()) {
        i64 start = lane_start(lane, a.n, a.inner);
        const T *x = (const T *)a.x + start;
        T *y = (T *)a.y + start;
        C sum = 0;
#pragma unroll 4
        for (i64 step = 0; step < a.n; step++) {
            i64 index = (a.reverse ? a.n - 1 - step : step) * a.inner;
            C inclusive = sum + widen(x[index]);
            y[index] = narrow<T>(a.exclusive ? sum : inclusive);
            sum = inclusive;
        }
    }
}

/* Returns the sum of x over all earlier threads; `total` is the block's sum. 256 threads. */
template <typename C> __device__ inline C scan_block(C x, C &total, C *shared) {
    int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    for (int distance = 1; distance < 32; distance *= 2) {
        C other = __shfl_up_sync(0xffffffffu, x, distance);
        if (lane >= distance) x = other + x;
    }
    __syncthreads();
    if (lane == 31) shared[warp] = x;
    __syncthreads();
    C earlier = __shfl_up_sync(0xffffffffu, x, 1), before = 0;
    total = 0;
    for (int i = 0; i < 8; i++) {
        if (i < warp) before += shared[i];
        total += shared[i];
    }
    return lane ? before + earlier : before;
}

/* One block per segment of each lane. */
template <typename T> __global__ void scan_blocks(scan_args a) {
    typedef compute_type<T> C;
    __shared__ C shared[8];
    i64 lane = blockIdx.x, first = divmod_in_place(lane, a.splits) * a.segment;
    i64 start = lane_start(lane, a.n, a.inner), left = a.n - first, n = left < a.segment ? left : a.segment;
    const T *x = (const T *)a.x + start + first * a.inner;
    T *y = (T *)a.y + start + first * a.inner;
    C sum = a.before ? ((const C *)a.before)[blockIdx.x] : (C)0;
    for (i64 base = 0; base < n; base += 1024) {
        i64 first_step = base + 4 * (i64)threadIdx.x;
        C e[4], thread_sum = 0, total;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            i64 step = first_step + i, index = (a.reverse ? n - 1 - step : step) * a.inner;
            e[i] = step < n ? widen(x[index]) : (C)0;
            thread_sum += e[i];
        }
        C running = sum + scan_block(thread_sum, total, shared);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            i64 step = first_step + i, index = (a.reverse ? n - 1 - step : step) * a.inner;
            C inclusive = running + e[i];
            if (step < n) y[index] = narrow<T>(a.exclusive ? running : inclusive);
            running = inclusive;
        }
        sum += total;
    }
}

/* ---- The k largest ---- */

template <typename C> __device__ inline bool comes_before(indexed<C> a, indexed<C> b) {
    bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan != b_nan) return a_nan;
    if (!a_nan && a.value != b.value) return a.value > b.value;
    return a.index < b.index;
}
/* Padding of a run: sorts after every element. */
template <typename C> __device__ inline indexed<C> padding() {
    return indexed<C>{-number_limits<C>::infinity(), 0x7fffffffffffffffll};
}

template <typename T>
__device__ inline void store_ranked(const top_to &to, i64 lane, i64 run, i64 rank, indexed<compute_type<T>> e) {
    if (rank >= to.kept) return;
    if (to.candidates) {
        ((indexed<compute_type<T>> *)to.candidates)[(lane * to.runs + run) * to.kept + rank] = e;
        return;
    }
    i64 index = lane_start(lane, to.k, to.inner) + rank * to.inner;
    ((T *)to.values)[index] = narrow<T>(e.value);
    ((i64 *)to.indices)[index] = e.index;
}

/* A block sorts a run of a lane in shared memory, by bitonic sort (Batcher 1968). */
template <typename T> __global__ void top_sort(top_sort_args a) {
    typedef indexed<compute_type<T>> candidate;
    __shared__ candidate run[1024];
    i64 lane = blockIdx.x, run_index = divmod_in_place(lane, a.to.runs), first = run_index * a.segment;
    const T *x = (const T *)a.x + lane_start(lane, a.n, a.to.inner);
    int thread = (int)threadIdx.x, threads = (int)blockDim.x;
    for (int i = thread; i < a.segment; i += threads)
        run[i] = first + i < a.n ? candidate{widen(x[(first + i) * a.to.inner]), first + i}
                                 : padding<compute_type<T>>();
    for (int size = 2; size <= a.segment; size *= 2)
        for (int stride = size / 2; stride; stride /= 2) {
            __syncthreads();
            for (int i = thread; i < a.segment / 2; i += threads) {
                int low = 2 * i - (i & (stride - 1)), high = low + stride;
                candidate l = run[low], h = run[high];
                if (comes_before(h, l) == ((low & size) == 0)) {
                    run[low] = h;
                    run[high] = l;
                }
            }
        }
    __syncthreads();
    for (int i = thread; i < a.segment; i += threads) store_ranked<T>(a.to, lane, run_index, i, run[i]);
}

/* Counts the elements of a sorted run that come before e; `or_equal`: or equal it. */
template <typename C> __device__ inline i64 count_before(const indexed<C> *run, i64 n, indexed<C> e, bool or_equal) {
    i64 low = 0, high = n;
    while (low < high) {
        i64 middle = (low + high) / 2;
        bool before = or_equal ? !comes_before(e, run[middle]) : comes_before(run[middle], e);
        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Merges runs 2 i and 2 i + 1 into run i; a last run without a partner is padded. */
template <typename T> __global__ void top_merge(top_merge_args a) {
    typedef indexed<compute_type<T>> candidate;
    i64 pairs = (a.runs + 1) / 2, total = a.lanes * pairs * 2 * a.kept;
    for (i64 thread = global_thread_index(); thread < total; thread += grid_thread_count()) {
        i64 lane = thread, i = divmod_in_place(lane, 2 * a.kept), pair = divmod_in_place(lane, pairs);
        const candidate *left = (const candidate *)a.from + (lane * a.runs + 2 * pair) * a.kept,
                        *right = left + a.kept;
        bool has_no_partner = 2 * pair + 1 == a.runs, is_left = i < a.kept;
        candidate e = is_left || !has_no_partner ? left[i] : padding<compute_type<T>>();
        i64 rank = i;
        if (!has_no_partner)
            rank = is_left ? i + count_before(right, a.kept, e, false)
                           : i - a.kept + count_before(left, a.kept, e, true);
        store_ranked<T>(a.to, lane, pair, rank, e);
    }
}
