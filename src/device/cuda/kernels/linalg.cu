/* Linear algebra: batches of small systems, blocks of triangular systems, and post-processing of cuSOLVER's results.
 *
 * A small matrix is loaded once into shared memory, with its right-hand sides after each row, and processed there by
 * one block; a batch fills the GPU. Each step ends with a barrier and costs about a microsecond, which is fine
 * for the supported sizes, up to 160 rows.
 *
 * Pivoting: the pivot is the element of largest absolute value, the first of equal ones, and a NaN before any number,
 * as the operation defines it. A matrix with a zero or NaN pivot, or for cholesky a non-positive one, gives NaN
 * everywhere: the host does not check single matrices.
 */
#include "prelude.cuh"
#include "linalg_args.h"

template <typename C> __device__ inline C not_a_number() { return (C)__uint_as_float(0x7fc00000u); }
template <typename C> __device__ inline C magnitude(C x) { return x < 0 ? -x : x; }

__device__ inline float root_of(float x) { return sqrtf(x); }
__device__ inline double root_of(double x) { return sqrt(x); }

/* ---- Elimination ---- */

/* A candidate for the pivot row; `index` < 0: none. */
template <typename C> struct candidate {
    C size;
    int index;
};

template <typename C> __device__ inline candidate<C> better_pivot(candidate<C> a, candidate<C> b) {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    bool a_nan = a.size != a.size, b_nan = b.size != b.size;
    if (a_nan != b_nan) return a_nan ? a : b;
    if (!a_nan && a.size != b.size) return a.size > b.size ? a : b;
    return a.index < b.index ? a : b;
}

/* Called by the first warp: returns the pivot row of column p among rows p … n-1. */
template <typename C> __device__ inline int find_pivot(const C *rows, int n, int ld, int p) {
    candidate<C> best = {(C)0, -1};
    for (int i = p + (int)(threadIdx.x & 31); i < n; i += 32)
        best = better_pivot(best, candidate<C>{magnitude(rows[i * ld + p]), i});
    for (int distance = 16; distance; distance >>= 1) {
        candidate<C> other = {__shfl_xor_sync(0xffffffffu, best.size, distance),
                              __shfl_xor_sync(0xffffffffu, best.index, distance)};
        best = better_pivot(best, other);
    }
    return best.index;
}

/* Loads row i of the matrix, followed by the right-hand sides column, column + 1, … of row i. */
template <typename T>
__device__ inline void load_system(const solve_args &s, i64 matrix, i64 column, compute_type<T> *rows) {
    const T *a = (const T *)s.a + matrix * s.n * s.n, *b = (const T *)s.b;
    for (int index = threadIdx.x; index < s.n * s.n; index += blockDim.x)
        rows[index / s.n * s.shared_ld + index % s.n] = widen(a[index]);
    for (int index = threadIdx.x; index < s.n * s.rhs_per_block; index += blockDim.x) {
        int i = index / s.rhs_per_block;
        i64 j = column + index % s.rhs_per_block;
        compute_type<T> rhs_value = 0;
        if (!b)
            rhs_value = i == j;
        else if (j < s.rhs_count)
            rhs_value = widen(b[(matrix * s.n + i) * s.rhs_count + j]);
        rows[i * s.shared_ld + s.n + index % s.rhs_per_block] = rhs_value;
    }
}

/* Reduces the matrix to its upper triangle and updates the right-hand sides. Returns false, to every thread, if a
 * pivot is zero or NaN. */
template <typename C> __device__ inline bool eliminate(C *rows, int n, int all, int ld) {
    __shared__ int pivot_row;
    for (int p = 0; p < n; p++) {
        if (threadIdx.x < 32) {
            int found = find_pivot(rows, n, ld, p);
            if (threadIdx.x == 0) pivot_row = found;
        }
        __syncthreads();
        int best = pivot_row;
        C pivot = rows[best * ld + p];
        if (!(magnitude(pivot) > 0)) return false;
        __syncthreads();
        for (int j = p + (int)threadIdx.x; j < all && best != p; j += blockDim.x) {
            C swapped = rows[p * ld + j];
            rows[p * ld + j] = rows[best * ld + j];
            rows[best * ld + j] = swapped;
        }
        __syncthreads();
        for (int i = p + 1 + (int)threadIdx.x; i < n; i += blockDim.x) rows[i * ld + p] /= pivot;
        __syncthreads();
        int below = n - p - 1, right = all - p - 1;
        for (int index = threadIdx.x; index < below * right; index += blockDim.x) {
            int i = p + 1 + index / right, j = p + 1 + index % right;
            rows[i * ld + j] -= rows[i * ld + p] * rows[p * ld + j];
        }
        __syncthreads();
    }
    return true;
}

/* Turns the right-hand sides into the solution, from the last row up. */
template <typename C> __device__ inline void substitute_back(C *rows, int n, int columns, int ld) {
    C *rhs = rows + n;
    for (int p = n - 1; p >= 0; p--) {
        for (int c = threadIdx.x; c < columns; c += blockDim.x) rhs[p * ld + c] /= rows[p * ld + p];
        __syncthreads();
        for (int index = threadIdx.x; index < p * columns; index += blockDim.x) {
            int i = index / columns, c = index % columns;
            rhs[i * ld + c] -= rows[i * ld + p] * rhs[p * ld + c];
        }
        __syncthreads();
    }
}

template <typename T> __device__ inline void solve_columns(const solve_args &s, i64 matrix, i64 column) {
    typedef compute_type<T> C;
    extern __shared__ double shared[];
    C *rows = (C *)shared;
    __syncthreads();
    load_system<T>(s, matrix, column, rows);
    __syncthreads();
    bool is_usable = eliminate(rows, s.n, s.n + s.rhs_per_block, s.shared_ld);
    if (is_usable) substitute_back(rows, s.n, s.rhs_per_block, s.shared_ld);
    T *x = (T *)s.x;
    for (int index = threadIdx.x; index < s.n * s.rhs_per_block; index += blockDim.x) {
        int i = index / s.rhs_per_block;
        i64 j = column + index % s.rhs_per_block;
        C result = is_usable ? rows[i * s.shared_ld + s.n + index % s.rhs_per_block] : not_a_number<C>();
        if (j < s.rhs_count) x[(matrix * s.n + i) * s.rhs_count + j] = narrow<T>(result);
    }
}

/* Every block factors the matrix itself, for some of the right-hand sides. */
template <typename T> __global__ void solve(solve_args s) {
    i64 first = (i64)blockIdx.y * s.rhs_per_block, step = (i64)gridDim.y * s.rhs_per_block;
    for (i64 column = first; column < s.rhs_count; column += step)
        solve_columns<T>(s, blockIdx.x, column);
}

/* ---- Cholesky ---- */

/* Computes l l^T = a in place, column by column, from the lower triangle. Returns false, to every thread, if a pivot
 * is not positive. */
template <typename C> __device__ inline bool factor(C *rows, int n, int ld) {
    for (int p = 0; p < n; p++) {
        C pivot = rows[p * ld + p];
        if (!(pivot > 0)) return false;
        __syncthreads();
        C root = root_of(pivot);
        for (int i = p + (int)threadIdx.x; i < n; i += blockDim.x)
            rows[i * ld + p] = i == p ? root : rows[i * ld + p] / root;
        __syncthreads();
        int remaining = n - p - 1;
        for (int index = threadIdx.x; index < remaining * remaining; index += blockDim.x) {
            int i = p + 1 + index / remaining, j = p + 1 + index % remaining;
            if (j <= i) rows[i * ld + j] -= rows[i * ld + p] * rows[j * ld + p];
        }
        __syncthreads();
    }
    return true;
}

template <typename T> __global__ void cholesky(cholesky_args s) {
    typedef compute_type<T> C;
    extern __shared__ double shared[];
    C *rows = (C *)shared;
    const T *a = (const T *)s.a + (i64)blockIdx.x * s.n * s.n;
    T *l = (T *)s.l + (i64)blockIdx.x * s.n * s.n;
    for (int index = threadIdx.x; index < s.n * s.n; index += blockDim.x)
        rows[index / s.n * s.shared_ld + index % s.n] = widen(a[index]);
    __syncthreads();
    bool is_usable = factor(rows, s.n, s.shared_ld);
    for (int index = threadIdx.x; index < s.n * s.n; index += blockDim.x) {
        int i = index / s.n, j = index % s.n;
        C result = j <= i ? rows[i * s.shared_ld + j] : (C)0;
        l[index] = narrow<T>(is_usable ? result : not_a_number<C>());
    }
}

/* ---- A block of a triangular system ---- */

enum { BLOCK_ROWS = 64, BLOCK_COLUMNS = 32 };

/* Every system is solved by forward substitution: for an upper triangle, rows and columns are numbered backwards. */
__device__ inline int solve_order(const substitute_args &s, int i) { return s.is_lower ? i : s.rows - 1 - i; }

template <typename T>
__device__ inline void load_triangle(const substitute_args &s, const T *a, compute_type<T> (*triangle)[BLOCK_ROWS]) {
    for (int index = threadIdx.x; index < s.rows * s.rows; index += blockDim.x) {
        int i = index / s.rows, j = index % s.rows;
        int row = solve_order(s, s.transpose ? j : i), column = solve_order(s, s.transpose ? i : j);
        triangle[row][column] = widen(a[i * s.n + j]);
    }
}

/* A warp has 32 right-hand sides, one per lane; the warps divide the rows. A row's result is stored as soon as it is
 * known, and every warp computes it itself, so that a step needs one barrier. */
template <typename T>
__device__ inline void substitute_columns(const substitute_args &s, i64 column, T *x,
                                          const compute_type<T> (*triangle)[BLOCK_ROWS],
                                          compute_type<T> (*rhs)[BLOCK_COLUMNS]) {
    typedef compute_type<T> C;
    int warp = threadIdx.x >> 5, warps = blockDim.x >> 5, lane = threadIdx.x & 31;
    bool inside = column < s.rhs_count;
    for (int i = warp; i < s.rows; i += warps)
        rhs[solve_order(s, i)][lane] = inside ? widen(x[i * s.rhs_count + column]) : (C)0;
    __syncthreads();
    for (int p = 0; p < s.rows; p++) {
        C pivot = triangle[p][p];
        C solved = rhs[p][lane] / (magnitude(pivot) > 0 ? pivot : not_a_number<C>());
        if (p % warps == warp && inside) x[solve_order(s, p) * s.rhs_count + column] = narrow<T>(solved);
        for (int i = p + 1 + warp; i < s.rows; i += warps) rhs[i][lane] -= triangle[i][p] * solved;
        __syncthreads();
    }
}

template <typename T> __global__ void substitute(substitute_args s) {
    __shared__ compute_type<T> triangle[BLOCK_ROWS][BLOCK_ROWS], rhs[BLOCK_ROWS][BLOCK_COLUMNS];
    load_triangle(s, (const T *)s.a + (i64)blockIdx.x * s.n * s.n + s.first * (s.n + 1), triangle);
    T *x = (T *)s.x + ((i64)blockIdx.x * s.n + s.first) * s.rhs_count;
    for (i64 from = (i64)blockIdx.y * BLOCK_COLUMNS; from < s.rhs_count; from += (i64)gridDim.y * BLOCK_COLUMNS)
        substitute_columns(s, from + (threadIdx.x & 31), x, triangle, rhs);
}

/* ---- Post-processing of cuSOLVER's results ---- */

template <typename T> __global__ void transpose(transpose_args t) {
    __shared__ T square[32][33];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    i64 column = (i64)blockIdx.x * 32;
    for (i64 row = (i64)blockIdx.y * 32; row < t.rows; row += (i64)gridDim.y * 32) {
        __syncthreads();
        for (int i = warp; i < 32; i += warps)
            if (row + i < t.rows && column + lane < t.columns)
                square[i][lane] = ((const T *)t.from)[(row + i) * t.columns + column + lane];
        __syncthreads();
        for (int i = warp; i < 32; i += warps)
            if (column + i < t.columns && row + lane < t.rows)
                ((T *)t.to)[(column + i) * t.rows + row + lane] = square[lane][i];
    }
}

template <typename T> __global__ void identity(matrix_fill_args s) {
    T *x = (T *)s.x;
    for (i64 index = global_thread_index(); index < s.count; index += grid_thread_count())
        x[index] = narrow<T>((compute_type<T>)(index / s.n == index % s.n));
}

/* Writes NaN if the factorisation failed. */
template <typename T> __global__ void fill_nan(matrix_fill_args s) {
    if (*s.info == 0) return;
    T *x = (T *)s.x;
    for (i64 index = global_thread_index(); index < s.count; index += grid_thread_count())
        x[index] = narrow<T>(not_a_number<compute_type<T>>());
}

/* The same for cholesky; otherwise clears the upper triangle. */
template <typename T> __global__ void finish_cholesky(matrix_fill_args s) {
    T *x = (T *)s.x;
    bool is_usable = *s.info == 0;
    for (i64 index = global_thread_index(); index < s.count; index += grid_thread_count())
        if (!is_usable)
            x[index] = narrow<T>(not_a_number<compute_type<T>>());
        else if (index % s.n > index / s.n)
            x[index] = narrow<T>((compute_type<T>)0);
}
