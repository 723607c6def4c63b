/* Convolutions of models with many results, in bf16 and f16, for compute capability 9.0.
 *
 * y [pixels, o] is the product of x, gathered at (pixel, tap, c), and the filter [o, tap, c]. A block computes a tile, for example
 * of 128 pixels by 128 channels, with tensor cores (wgmma.cuh): each warpgroup sums 64 pixels. Bias, residual and relu are
 * applied to the sums in f32, and the result is rounded once; relu keeps NaN.
 *
 * What limits it is the L2 cache: a step of 64 along the depth loads 32 KB for 2 * 128 * 128 * 64 operations. Therefore all taps
 * of 64 channels of x follow each other, so that most rows of x come from the L1 cache, and blocks that run at the same time
 * have the same pixels and different channels of y. Every other kernel goes through its tiles backwards: what the kernel before
 * has written last is still in the L2 cache, if x is larger than that.
 *
 * A ring of slots in shared memory holds the steps on their way, and after them the residual, which arrives while the last
 * steps are multiplied and is replaced by y in place, so that y is stored in words of 16 bytes. The tensor cores work on one
 * step while the step before it is replaced by a later one. Up to 128 pixels, two or more blocks share a multiprocessor, so that
 * one computes while the other stores.
 *
 * With few tiles, the blocks of a cluster share the depth of a tile. Each adds up the sums of all blocks of its cluster for
 * some of the rows, reading them from the shared memory of the others, in the order of the depth.
 *
 * A kernel starts while the one before it still runs, and fetches its first filters (early.cuh). On the emulated GPU the first
 * block of a cluster computes the parts of all.
 */
#include "prelude.cuh"
#include "async.cuh"
#include "cluster.cuh"
#include "early.cuh"
#include "mma.cuh"
#include "wgmma.cuh"
#include "conv_wide_args.h"

enum {
    DEPTH = 64,    /* elements of a step: 128 bytes of a row */
    ROW_WORDS = 8, /* 16-byte words of such a row */
    PAD = 8        /* f32 between rows of sums in shared memory */
};

/* A tile of ROWS_ pixels by COLUMNS_ channels of y. conv_wide.c has the same numbers. */
template <int ROWS_, int COLUMNS_> struct shape {
    enum {
        ROWS = ROWS_,
        COLUMNS = COLUMNS_,
        THREADS = ROWS * 2,                    /* a warpgroup for 64 rows */
        BLOCKS = ROWS == 256 ? 1 : ROWS == 128 ? 2 : 3, /* that share a multiprocessor */
        SLOT = (ROWS + COLUMNS) * WGMMA_ROW,   /* 4-byte words: rows of x, then of the filter */
        SLOTS = ROWS == 256 || COLUMNS == 64 ? 4 : 3,
        PASS_ROWS = THREADS / ROW_WORDS,       /* rows that all threads copy at once, a 16-byte word each */
        PASSES = ROWS / PASS_ROWS,
        FILTER_PASSES = COLUMNS / PASS_ROWS,
        /* The residual and y have rows of 64 channels, ROWS for each panel of 64 columns. */
        PANELS = COLUMNS / 64,
        SLOT_PANELS = SLOT / (ROWS * WGMMA_ROW) < PANELS ? SLOT / (ROWS * WGMMA_ROW) : PANELS,
        RESULT_SLOTS = PANELS / SLOT_PANELS
    };
};

struct word { u32 part[4]; }; /* 16 bytes */

__device__ inline int line_of_thread() { return (int)threadIdx.x / ROW_WORDS; }
__device__ inline int word_of_thread() { return (int)threadIdx.x % ROW_WORDS; }

/* ---- From global to shared memory ---- */

/* A step of 64 along the depth, and what it reads: all taps of 64 channels of x, then of the next 64. Offsets are 16-byte words
 * modulo 2^32. */
struct cursor {
    u32 tap, tap_column;
    u32 x, filter; /* from the first tap and channel */

    __device__ inline void init(const conv_wide_args &a, int step) {
        u32 channels = (u32)step;
        tap = divmod_in_place(channels, a.taps);
        u32 tap_row = tap;
        tap_column = divmod_in_place(tap_row, a.filter_columns);
        x = tap_column * a.column_words + tap_row * (a.column_words * a.filter_columns.value + a.row_words) +
            channels * ROW_WORDS;
        filter = tap * (u32)a.pixel_words + channels * ROW_WORDS;
    }
    __device__ inline void advance(const conv_wide_args &a) {
        tap++, tap_column++;
        x += a.column_words, filter += (u32)a.pixel_words;
        if (tap_column == a.filter_columns.value) tap_column = 0, x += a.row_words;
        if (tap == a.taps.value) tap = 0, x += a.channel_words, filter += ROW_WORDS - (u32)a.filter_words;
    }
};

template <typename S> struct loader {
    u32 first[S::PASSES];  /* of the thread's rows: offset of the thread's word at the first tap and channel */
    u32 inside[S::PASSES]; /* bit t: tap t of the row is inside x */
    u32 filter;            /* the same offset in the filter, of the first row */
    int target;            /* where it is in a slot */

    __device__ inline void init(const conv_wide_args &a, int first_row, int first_column) {
        filter = (u32)(first_column + line_of_thread()) * (u32)a.filter_words + (u32)word_of_thread();
        target = wgmma_word(line_of_thread(), word_of_thread());
#pragma unroll
        for (int p = 0; p < S::PASSES; p++) {
            u32 pixel = (u32)(first_row + line_of_thread() + p * S::PASS_ROWS);
            inside[p] = pixel < (u32)a.rows;
            if (!a.is_product) {
                int column = (int)divmod_in_place(pixel, a.width) * a.stride[1] - a.pad[1];
                int row = (int)divmod_in_place(pixel, a.height) * a.stride[0] - a.pad[0];
                if (inside[p]) inside[p] = taps_inside(a, row, column);
                pixel = (pixel * (u32)a.x_size[0] + (u32)row) * (u32)a.x_size[1] + (u32)column;
            }
            first[p] = pixel * (u32)a.pixel_words + (u32)word_of_thread();
        }
    }
    static __device__ inline u32 taps_inside(const conv_wide_args &a, int row, int column) {
        u32 of_row = 0, all = 0;
#pragma unroll 1
        for (u32 i = 0; i < a.filter_columns.value; i++, column += a.dilation[1])
            of_row |= (u32)((u32)column < (u32)a.x_size[1]) << i;
#pragma unroll 1
        for (u32 i = 0; i < a.taps.value; i += a.filter_columns.value, row += a.dilation[0])
            if ((u32)row < (u32)a.x_size[0]) all |= of_row << i;
        return all;
    }
    __device__ inline void load_filter(const conv_wide_args &a, u32 *slot, const cursor &at) const {
#pragma unroll
        for (int p = 0; p < S::FILTER_PASSES; p++)
            copy_async<16>(slot + target + (S::ROWS + p * S::PASS_ROWS) * WGMMA_ROW,
                           (const word *)a.filter + (filter + at.filter + (u32)(p * S::PASS_ROWS * a.filter_words)), true);
    }
    template <bool REUSED> __device__ inline void load_rows(const conv_wide_args &a, u32 *slot, const cursor &at) const {
#pragma unroll
        for (int p = 0; p < S::PASSES; p++)
            copy_async<16, REUSED>(slot + target + p * S::PASS_ROWS * WGMMA_ROW, (const word *)a.x + (first[p] + at.x),
                                   inside[p] >> at.tap & 1);
    }
    __device__ inline void load_x(const conv_wide_args &a, u32 *slot, const cursor &at) const {
        if (a.taps.value > 1)
            load_rows<true>(a, slot, at);
        else
            load_rows<false>(a, slot, at);
    }
};

/* ---- A tile in registers and shared memory ---- */

template <typename S> struct tile {
    int first_row, first_column;
    u32 *slots;
    float sums[S::COLUMNS / 2]; /* of the thread: wgmma.cuh */

    /* The slot of step i of the block, counted from 0. */
    __device__ inline u32 *slot(int i) const { return slots + i % S::SLOTS * S::SLOT; }
    /* The rows of a panel of the residual, or of y; they follow the steps. */
    __device__ inline u32 *panel(int steps, int p) const {
        return slot(steps + p / S::SLOT_PANELS) + p % S::SLOT_PANELS * S::ROWS * WGMMA_ROW;
    }
    /* The bias is behind the slots that a block with so many steps uses. */
    __device__ inline u32 *bias(int steps) const {
        int used = steps + S::RESULT_SLOTS;
        return slots + (used < S::SLOTS ? used : (int)S::SLOTS) * S::SLOT;
    }
    /* Fetches the panels of the residual that are in slot `i` of S::RESULT_SLOTS. */
    __device__ inline void load_residual(const conv_wide_args &a, int steps, int i) const {
        u32 row_words = (u32)a.columns / 8;
        u32 from = (u32)(first_row + line_of_thread()) * row_words + (u32)(first_column / 8 + word_of_thread());
        u32 *to = panel(steps, i * S::SLOT_PANELS) + wgmma_word(line_of_thread(), word_of_thread());
#pragma unroll
        for (int p = 0; p < S::PASSES; p++)
#pragma unroll
            for (int q = 0; q < S::SLOT_PANELS; q++)
                copy_async<16>(to + (q * S::ROWS + p * S::PASS_ROWS) * WGMMA_ROW,
                               (const word *)a.residual + (from + (u32)p * (S::PASS_ROWS * row_words)) +
                                   (i * S::SLOT_PANELS + q) * ROW_WORDS,
                               first_row + line_of_thread() + p * S::PASS_ROWS < a.rows);
    }
    __device__ inline void load_bias(const conv_wide_args &a, int steps) const {
        int i = (int)threadIdx.x;
        if (a.bias && i < S::COLUMNS / 8)
            copy_async<16>(bias(steps) + 4 * i, (const word *)a.bias + first_column / 8 + i, true);
    }
};

/* ---- Products ---- */

/* Starts the copies of the first steps; then `at` is the next one. Filters that are constant are fetched while the kernels before
 * still run. */
template <typename S, bool RESIDUAL>
__device__ inline void load_first_steps(const conv_wide_args &a, const loader<S> &load, const tile<S> &t, int steps,
                                        cursor &at) {
    cursor filter_at = at;
    if (!a.filter_is_constant) wait_for_kernels_before();
#pragma unroll 1
    for (int i = 0; i < S::SLOTS && i < steps; i++, filter_at.advance(a)) load.load_filter(a, t.slot(i), filter_at);
    wait_for_kernels_before();
    if (RESIDUAL) t.load_bias(a, steps);
#pragma unroll 1
    for (int i = 0; i < S::SLOTS; i++, at.advance(a)) {
        if (i < steps)
            load.load_x(a, t.slot(i), at);
        else if (RESIDUAL && a.residual && i < steps + S::RESULT_SLOTS)
            t.load_residual(a, steps, i - steps);
        commit_copies(); /* the first group has all filters too */
    }
}

/* Sums up `steps` steps from step `first` on. RESIDUAL: fetches the residual and the bias too. Then all copies have arrived, for
 * all threads. */
template <typename T, typename S, bool RESIDUAL>
__device__ inline void sum_steps(const conv_wide_args &a, const loader<S> &load, tile<S> &t, int first, int steps) {
    int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0); /* the compiler sees that a warp has one */
    int now = 0, before = (S::SLOTS - 1) * S::SLOT;                  /* the slots of a step and of the step before it */
    cursor at;
    at.init(a, first);
#pragma unroll
    for (int i = 0; i < S::COLUMNS / 2; i++) t.sums[i] = 0;
    load_first_steps<S, RESIDUAL>(a, load, t, steps, at);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        wait_for_copies_but<S::SLOTS - 2>();
        wgmma_release();
        __syncthreads(); /* the step has arrived */
        wgmma_begin();
        wgmma_multiply<T, S::COLUMNS>(t.sums, t.slots + now + group * 64 * WGMMA_ROW,
                                      t.slots + now + S::ROWS * WGMMA_ROW);
        wgmma_commit();
        if (step > 0) {
            wgmma_wait<1>();
            __syncthreads(); /* the slot of the step before is no longer read */
            int next = step - 1 + S::SLOTS;
            if (next < steps)
                load.load_filter(a, t.slots + before, at), load.load_x(a, t.slots + before, at);
            else if (RESIDUAL && a.residual && next < steps + S::RESULT_SLOTS)
                t.load_residual(a, steps, next - steps);
            commit_copies();
            at.advance(a);
        }
        before = now;
        now = now == (S::SLOTS - 1) * S::SLOT ? 0 : now + S::SLOT;
    }
    wgmma_wait<0>();
    wgmma_keep(t.sums);
    wait_for_copies();
    __syncthreads();
}

/* ---- Results of a block that sums the whole depth ---- */

/* Applies bias, residual and relu. A thread reads the words of its sums only, and replaces them by y. */
template <typename T, typename S> __device__ inline void apply_epilogue(const conv_wide_args &a, tile<S> &t) {
    typedef pack<T, 2> two;
    int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 + lane / 4;
    const two *bias = (const two *)t.bias(a.steps) + lane % 4;
    u32 *words[ROW_WORDS]; /* in which the thread's sums are, of the first panel */
#pragma unroll
    for (int i = 0; i < ROW_WORDS; i++) words[i] = t.panel(a.steps, 0) + wgmma_word(row, i) + lane % 4;
    int panels = (int)(t.panel(a.steps, S::PANELS - 1) - t.panel(a.steps, 0)); /* from the first to the last */
    if (a.bias)
#pragma unroll
        for (int i = 0; i < S::COLUMNS / 2; i++) t.sums[i] += widen(bias[i / 4 * 4].element[i % 2]);
    if (a.residual)
#pragma unroll
        for (int i = 0; i < S::COLUMNS / 2; i++) {
            const u32 *word = words[i / 4 % ROW_WORDS] + i / 32 * panels + i / 2 % 2 * 8 * WGMMA_ROW;
            t.sums[i] += widen(((const two *)word)->element[i % 2]);
        }
#pragma unroll
    for (int i = 0; i < S::COLUMNS / 2; i += 2) {
        u32 *word = words[i / 4 % ROW_WORDS] + i / 32 * panels + i / 2 % 2 * 8 * WGMMA_ROW;
        *word = a.relu ? mma_pack_relu<T>(t.sums[i], t.sums[i + 1]) : mma_pack<T>(t.sums[i], t.sums[i + 1]);
    }
}

/* Each warp stores the 16 rows that it has computed, four at a time. */
template <typename S> __device__ inline void store_rows(const conv_wide_args &a, const tile<S> &t) {
    enum { AT_ONCE = 32 / ROW_WORDS };
    int lane = (int)threadIdx.x % 32, word = lane % ROW_WORDS, first = (int)threadIdx.x / 32 * 16 + lane / ROW_WORDS;
    u32 row_words = (u32)a.columns / 8;
    struct word *y = (struct word *)a.y + ((u32)(t.first_row + first) * row_words + (u32)(t.first_column / 8 + word));
#pragma unroll
    for (int i = 0; i < 16; i += AT_ONCE)
        if (t.first_row + first + i < a.rows)
#pragma unroll
            for (int p = 0; p < S::PANELS; p++)
                y[i * row_words + p * ROW_WORDS] =
                    *(const struct word *)(t.panel(a.steps, p) + wgmma_word(first + i, word));
}

template <typename T, typename S>
__device__ inline void compute_tile(const conv_wide_args &a, const loader<S> &load, tile<S> &t) {
    sum_steps<T, S, true>(a, load, t, 0, a.steps);
    apply_epilogue<T>(a, t);
    __syncwarp(0xffffffffu);
    store_rows(a, t);
}

/* ---- Results of blocks that share the depth ---- */

/* Stores the sums as a tile [ROWS][COLUMNS + PAD], for all threads. */
template <typename S> __device__ inline float *stage_sums(const tile<S> &t) {
    float *staged = (float *)t.slots;
    int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < S::COLUMNS / 2; i++)
        staged[(row + i / 2 % 2 * 8) * (S::COLUMNS + PAD) + i / 4 * 8 + lane % 4 * 2 + i % 2] = t.sums[i];
    __syncthreads();
    return staged;
}

/* Bias and residual of eight results, and the results. */
template <typename T> struct eight_results {
    pack<T, 8> bias, residual;

    __device__ inline void load(const conv_wide_args &a, int row, int column) {
        if (a.bias) bias = *(const pack<T, 8> *)((const T *)a.bias + column);
        if (a.residual && row < a.rows)
            residual = *(const pack<T, 8> *)((const T *)a.residual + (i64)row * a.columns + column);
    }
    __device__ inline void store(const conv_wide_args &a, int row, int column, const float (&sums)[8]) const {
        pack<T, 8> result;
        if (row >= a.rows) return;
#pragma unroll
        for (int e = 0; e < 8; e++) {
            float value = sums[e];
            if (a.bias) value += widen(bias.element[e]);
            if (a.residual) value += widen(residual.element[e]);
            result.element[e] = narrow<T>(a.relu && value < 0.0f ? 0.0f : value);
        }
        *(pack<T, 8> *)((T *)a.y + (i64)row * a.columns + column) = result;
    }
};

__device__ inline int split_begin(const conv_wide_args &a, int split, int splits) { return a.steps * split / splits; }
template <int SPLITS> __device__ inline int count_split(const conv_wide_args &a, int split) {
    return split_begin(a, split + 1, SPLITS) - split_begin(a, split, SPLITS);
}

/* A block adds up SHARE rows of the tile, eight results of a row per thread, MINE times. */
template <typename S, int SPLITS> struct share {
    enum { SHARE = S::ROWS / SPLITS, PACKS = S::COLUMNS / 8, MINE = (SHARE * PACKS + S::THREADS - 1) / S::THREADS };

    static __device__ inline bool exists(int m) { return (int)threadIdx.x + m * S::THREADS < SHARE * PACKS; }
    static __device__ inline int row(int m) { return ((int)threadIdx.x + m * S::THREADS) / PACKS; }
    static __device__ inline int column(int m) { return ((int)threadIdx.x + m * S::THREADS) % PACKS * 8; }
};

#ifndef TU_EMULATED
template <typename T, int SPLITS, typename S>
__device__ inline void compute_split_tile(const conv_wide_args &a, const loader<S> &load, tile<S> &t) {
    typedef share<S, SPLITS> mine;
    int split = (int)blockIdx.y, share_row = split * mine::SHARE;
    sum_steps<T, S, false>(a, load, t, split_begin(a, split, SPLITS), count_split<SPLITS>(a, split));
    const float *staged = stage_sums(t);
    eight_results<T> results[mine::MINE];
#pragma unroll
    for (int m = 0; m < mine::MINE; m++) /* while the others still sum */
        if (mine::exists(m)) results[m].load(a, t.first_row + share_row + mine::row(m), t.first_column + mine::column(m));
    synchronize_cluster();
#pragma unroll
    for (int m = 0; m < mine::MINE; m++) {
        if (!mine::exists(m)) continue;
        int row = share_row + mine::row(m), column = mine::column(m);
        const float *here = staged + row * (S::COLUMNS + PAD) + column;
        float sums[8] = {};
#pragma unroll
        for (int rank = 0; rank < SPLITS; rank++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                pack<float, 4> part = load_from_block(here + 4 * half, rank);
#pragma unroll
                for (int e = 0; e < 4; e++) sums[4 * half + e] += part.element[e];
            }
        results[m].store(a, t.first_row + row, t.first_column + column, sums);
    }
    synchronize_cluster(); /* the others still read this block's shared memory */
}
#else
template <typename T, int SPLITS, typename S>
__device__ inline void compute_split_tile(const conv_wide_args &a, const loader<S> &load, tile<S> &t) {
    typedef share<S, 1> mine;
    float sums[mine::MINE][8] = {};
    if (blockIdx.y) return;
    for (int split = 0; split < SPLITS; split++) {
        sum_steps<T, S, false>(a, load, t, split_begin(a, split, SPLITS), count_split<SPLITS>(a, split));
        const float *staged = stage_sums(t);
        for (int m = 0; m < mine::MINE; m++)
            for (int e = 0; e < 8; e++) sums[m][e] += staged[mine::row(m) * (S::COLUMNS + PAD) + mine::column(m) + e];
        __syncthreads();
    }
    for (int m = 0; m < mine::MINE; m++) {
        int row = t.first_row + mine::row(m), column = t.first_column + mine::column(m);
        eight_results<T> results;
        results.load(a, row, column);
        results.store(a, row, column, sums[m]);
    }
}
#endif

/* Blocks: x: tiles, along the channels first, forwards or backwards; y: SPLITS. */
template <typename T, int ROWS, int COLUMNS, int SPLITS>
__global__ void __cluster_dims__(1, SPLITS, 1)
    __launch_bounds__(shape<ROWS, COLUMNS>::THREADS, shape<ROWS, COLUMNS>::BLOCKS) conv_wide(conv_wide_args a) {
    typedef shape<ROWS, COLUMNS> S;
    extern __shared__ __align__(1024) u32 shared[];
    int column_tiles = a.columns / COLUMNS;
    int index = a.is_backwards ? (int)(gridDim.x - 1 - blockIdx.x) : (int)blockIdx.x;
    tile<S> t;
    loader<S> load;
    start_next_kernel();
    t.first_row = index / column_tiles * ROWS, t.first_column = index % column_tiles * COLUMNS;
    t.slots = shared;
    load.init(a, t.first_row, t.first_column);
    if constexpr (SPLITS == 1)
        compute_tile<T>(a, load, t);
    else
        compute_split_tile<T, SPLITS>(a, load, t);
}
