/* Reductions along one run of axes: x [outer, reduced, inner] -> [outer, inner].
 *
 * x is read once, in 16-byte words that adjacent threads read contiguously; there are few results. Two kernels, by
 * the position of the reduced axis:
 *
 *     reduce_rows       inner = 1: a few lanes, a warp or a block per row
 *     reduce_columns    a thread holds the columns of a word and goes down the rows; a block is [slices of rows,
 *                     columns], and its slices are merged in shared memory. If a row is shorter than a block, the
 *                     next rows follow directly in memory and the block still reads a contiguous range: c = 64 in
 *                     bf16 is 8 threads per row, 32 rows per step, 4 KB
 *
 * Few results of many elements (a bias's gradient, a loss) are split along the reduced axis: a first kernel writes
 * states [outer, splits, inner], a second merges them. FIRST: x contains elements, not states. LAST: y receives
 * results, not states.
 */
#include "folds.cuh"
#include "reduce_args.h"

/* Input of a kernel: elements that are added, or states that are merged. */
template <typename F, typename T, bool FIRST> struct input {
    typedef T type;
    static __device__ inline void accumulate(typename F::state &s, T x, i64 index) { F::add(s, widen(x), index); }
};
template <typename F, typename T> struct input<F, T, false> {
    typedef typename F::state type;
    static __device__ inline void accumulate(typename F::state &s, type x, i64) { F::merge(s, x); }
};

/* Output of a kernel: results or states. */
template <typename F, typename T, bool LAST> struct output {
    static __device__ inline void store(void *y, i64 index, typename F::state s, double divisor) {
        typedef decltype(F::template finish<T>(s, divisor)) result;
        ((result *)y)[index] = F::template finish<T>(s, divisor);
    }
};
template <typename F, typename T> struct output<F, T, false> {
    static __device__ inline void store(void *y, i64 index, typename F::state s, double) {
        ((typename F::state *)y)[index] = s;
    }
};

template <template <typename> class REDUCER, typename T, bool FIRST, bool LAST>
__global__ void reduce_rows(reduce_rows_args a) {
    typedef REDUCER<compute_type<T>> F;
    typedef input<F, T, FIRST> from;
    __shared__ typename F::state shared[32];
    typename F::state s = F::init();
    i64 row = global_thread_index() / a.lanes;
    int lane = (int)threadIdx.x & (a.lanes - 1);
    if (row < a.rows) {
        i64 outer = row, first = divmod_in_place(outer, a.splits) * a.segment;
        i64 left = a.reduced - first, n = left < a.segment ? left : a.segment;
        const typename from::type *x = (const typename from::type *)a.x + outer * a.reduced + first;
        for_each_in_row(x, n, lane, a.lanes,
                        [&](typename from::type e, i64 i) { from::accumulate(s, e, first + i); });
    }
    merge_row<F>(s, a.lanes, shared);
    if (row < a.rows && lane == 0) output<F, T, LAST>::store(a.y, row, s, a.divisor);
}

/* Blocks: x: groups, y: splits. */
template <template <typename> class REDUCER, typename T, bool FIRST, bool LAST, int W>
__global__ void reduce_columns(reduce_columns_args a) {
    typedef REDUCER<compute_type<T>> F;
    typedef input<F, T, FIRST> from;
    typedef pack<typename from::type, W> words;
    int slice = (int)threadIdx.x / a.columns, column = (int)threadIdx.x - slice * a.columns;
    i64 outer = (i64)blockIdx.x * a.columns + column;
    bool is_active = slice < a.slices && outer < a.groups;
    i64 column_offset = divmod_in_place(outer, a.row_groups) * W;
    typename F::state s[W];
#pragma unroll
    for (int i = 0; i < W; i++) s[i] = F::init();
    if (is_active) {
        i64 row = (i64)blockIdx.y * a.segment, last = row + a.segment < a.reduced ? row + a.segment : a.reduced;
        i64 stride = a.slices * a.inner;
        const typename from::type *x =
            (const typename from::type *)a.x + (outer * a.reduced + row + slice) * a.inner + column_offset;
        for (row += slice; row + 3 * a.slices < last; row += 4 * a.slices, x += 4 * stride) {
            words w[4];
#pragma unroll
            for (int u = 0; u < 4; u++) w[u] = *(const words *)(x + u * stride);
#pragma unroll
            for (int u = 0; u < 4; u++)
#pragma unroll
                for (int i = 0; i < W; i++) from::accumulate(s[i], w[u].element[i], row + u * a.slices);
        }
        for (; row < last; row += a.slices, x += stride) {
            words w = *(const words *)x;
#pragma unroll
            for (int i = 0; i < W; i++) from::accumulate(s[i], w.element[i], row);
        }
    }
    merge_slices<F, W>(s, column, slice, a.columns, a.slices);
    if (!is_active || slice) return;
    i64 to = (outer * gridDim.y + blockIdx.y) * a.inner + column_offset;
#pragma unroll
    for (int i = 0; i < W; i++) output<F, T, LAST>::store(a.y, to + i, s[i], a.divisor);
}
