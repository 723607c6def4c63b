/* Convolutions of models with many results, in bf16 and f16, for compute capability 9.0.
 *
 * y [pixels, o] is the product of x, gathered at (pixel, tap, c), and the filter [o, tap, c]. A block computes a tile, for example
 * of 128 pixels by 128 channels, with tensor cores (wgmma.cuh): each warpgroup sums 64 pixels. Bias, residual and relu are
 * applied to the sums in f32, and the result is rounded once; relu keeps NaN.
 *
 * What limits it is the L2 cache: a step of 64 along the depth loads 32 KB for 2 * 128 * 128 * 64 operations. Therefore all taps
 * of 64 channels of x follow each other, so that most rows of x come from the L1 cache, and blocks that run at the same time
 * have the same pixels and different channels of y.
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

template <typename S> struct loader {
    u32 first[S::PASSES];   /* 16-byte word of x, modulo 2^32, of the row at tap 0 and channel 0 */
    u32 inside[S::PASSES];  /* bit t: tap t of the row is inside x */
    const word *x, *filter; /* at the thread's word; the filter of its first row */

    __device__ inline void init(const conv_wide_args &a, int first_row, int first_column) {
        x = (const word *)a.x + word_of_thread();
        filter = (const word *)a.filter + word_of_thread() + (i64)(first_column + line_of_thread()) * a.filter_words;
#pragma unroll
        for (int p = 0; p < S::PASSES; p++) {
            u32 pixel = (u32)(first_row + line_of_thread() + p * S::PASS_ROWS);
            bool exists = pixel < (u32)a.rows;
            int column = (int)divmod_in_place(pixel, a.width) * a.stride[1] - a.pad[1];
            int row = (int)divmod_in_place(pixel, a.height) * a.stride[0] - a.pad[0];
            first[p] = ((pixel * (u32)a.x_size[0] + (u32)row) * (u32)a.x_size[1] + (u32)column) * (u32)a.pixel_words;
            inside[p] = exists ? taps_inside(a, row, column) : 0;
        }
    }
    static __device__ inline u32 taps_inside(const conv_wide_args &a, int row, int column) {
        u32 of_row = 0, all = 0;
#pragma unroll 1
        for (int i = 0; i < a.filter_size[1]; i++, column += a.dilation[1])
            of_row |= (u32)((u32)column < (u32)a.x_size[1]) << i;
#pragma unroll 1
        for (int i = 0; i < a.filter_size[0]; i++, row += a.dilation[0])
            if ((u32)row < (u32)a.x_size[0]) all |= of_row << i * a.filter_size[1];
        return all;
    }
    __device__ inline void load_filter(const conv_wide_args &a, u32 *slot, int step) const {
        u32 channels = (u32)step, tap = divmod_in_place(channels, a.taps);
        const word *from = filter + (tap * (u32)a.pixel_words + channels * ROW_WORDS);
#pragma unroll
        for (int p = 0; p < S::FILTER_PASSES; p++, from += (i64)S::PASS_ROWS * a.filter_words)
            copy_async<16>(wgmma_word(slot, S::ROWS + line_of_thread() + p * S::PASS_ROWS, word_of_thread()), from, true);
    }
    template <bool REUSED> __device__ inline void load_rows(u32 *slot, u32 tap, u32 offset) const {
#pragma unroll
        for (int p = 0; p < S::PASSES; p++) {
            bool exists = inside[p] >> tap & 1;
            copy_async<16, REUSED>(wgmma_word(slot, line_of_thread() + p * S::PASS_ROWS, word_of_thread()),
                                   x + (exists ? first[p] + offset : 0), exists);
        }
    }
    __device__ inline void load_x(const conv_wide_args &a, u32 *slot, int step) const {
        u32 channels = (u32)step, tap = divmod_in_place(channels, a.taps);
        u32 tap_row = tap, tap_column = divmod_in_place(tap_row, a.filter_columns);
        u32 pixels = tap_row * (u32)a.tap_row_pixels + tap_column * (u32)a.dilation[1];
        u32 offset = pixels * (u32)a.pixel_words + channels * ROW_WORDS;
        if (a.taps.value > 1)
            load_rows<true>(slot, tap, offset);
        else
            load_rows<false>(slot, tap, offset);
    }
};

/* ---- A tile in registers and shared memory ---- */

template <typename S> struct tile {
    int first_row, first_column;
    u32 *slots;
    float sums[S::COLUMNS / 2]; /* of the thread: wgmma.cuh */

    /* The slot of step i of the block, counted from 0. */
    __device__ inline u32 *slot(int i) const { return slots + i % S::SLOTS * S::SLOT; }
    /* The bias is behind the slots that a block with so many steps uses. */
    __device__ inline u32 *bias(int steps) const {
        int used = steps + S::RESULT_SLOTS;
        return slots + (used < S::SLOTS ? used : (int)S::SLOTS) * S::SLOT;
    }
    /* Word `word` of a row of the residual or of y, which follow the steps. */
    __device__ inline u32 *result_word(int steps, int row, int word) const {
        int panel = word / ROW_WORDS;
        return wgmma_word(slot(steps + panel / S::SLOT_PANELS) + panel % S::SLOT_PANELS * S::ROWS * WGMMA_ROW, row,
                          word % ROW_WORDS);
    }
    /* Fetches the panels of the residual that are in slot `i` of S::RESULT_SLOTS. */
    __device__ inline void load_residual(const conv_wide_args &a, int steps, int i) const {
#pragma unroll
        for (int panel = 0; panel < S::SLOT_PANELS; panel++)
#pragma unroll
            for (int p = 0; p < S::PASSES; p++) {
                int row = line_of_thread() + p * S::PASS_ROWS;
                int word = (i * S::SLOT_PANELS + panel) * ROW_WORDS + word_of_thread();
                bool exists = first_row + row < a.rows;
                i64 index = exists ? (i64)(first_row + row) * (a.columns / 8) + first_column / 8 + word : 0;
                copy_async<16>(result_word(steps, row, word), (const struct word *)a.residual + index, exists);
            }
    }
    __device__ inline void load_bias(const conv_wide_args &a, int steps) const {
        int i = (int)threadIdx.x;
        if (a.bias && i < S::COLUMNS / 8)
            copy_async<16>(bias(steps) + 4 * i, (const word *)a.bias + first_column / 8 + i, true);
    }
};

/* ---- Products ---- */

/* Starts the copies of x of step `step` of the block's steps `first` to `last` - 1, and after them those of the residual. */
template <typename S, bool RESIDUAL>
__device__ inline void load_step(const conv_wide_args &a, const loader<S> &load, const tile<S> &t, int first, int step,
                                 int last) {
    if (step < last)
        load.load_x(a, t.slot(step - first), step);
    else if (RESIDUAL && step < last + S::RESULT_SLOTS && a.residual)
        t.load_residual(a, last - first, step - last);
}

/* Starts the copies of the first steps. Filters that are constant are fetched while the kernels before still run. */
template <typename S, bool RESIDUAL>
__device__ inline void load_first_steps(const conv_wide_args &a, const loader<S> &load, const tile<S> &t, int first,
                                        int last) {
    int end = first + S::SLOTS < last ? first + S::SLOTS : last;
    if (!a.filter_is_constant) wait_for_kernels_before();
#pragma unroll 1
    for (int step = first; step < end; step++) load.load_filter(a, t.slot(step - first), step);
    wait_for_kernels_before();
    if (RESIDUAL) t.load_bias(a, last - first);
#pragma unroll 1
    for (int step = first; step < first + S::SLOTS; step++) {
        load_step<S, RESIDUAL>(a, load, t, first, step, last);
        commit_copies(); /* the first group has all filters too */
    }
}

/* Sums up steps `first` to `last` - 1. RESIDUAL: fetches the residual and the bias too. Then all copies have arrived, for all
 * threads. */
template <typename T, typename S, bool RESIDUAL>
__device__ inline void sum_steps(const conv_wide_args &a, const loader<S> &load, tile<S> &t, int first, int last) {
    int group_row = (int)threadIdx.x / 128 * 64;
#pragma unroll
    for (int i = 0; i < S::COLUMNS / 2; i++) t.sums[i] = 0;
    load_first_steps<S, RESIDUAL>(a, load, t, first, last);
    for (int step = first; step < last; step++) {
        wait_for_copies_but<S::SLOTS - 2>();
        wgmma_release();
        __syncthreads(); /* the step has arrived */
        u32 *slot = t.slot(step - first);
        wgmma_begin();
        wgmma_multiply<T, S::COLUMNS>(t.sums, slot + group_row * WGMMA_ROW, slot + S::ROWS * WGMMA_ROW);
        wgmma_commit();
        if (step == first) continue;
        wgmma_wait<1>();
        __syncthreads(); /* the slot of the step before is no longer read */
        int next = step - 1 + S::SLOTS;
        if (next < last) load.load_filter(a, t.slot(next - first), next);
        load_step<S, RESIDUAL>(a, load, t, first, next, last);
        commit_copies();
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
    if (a.bias)
#pragma unroll
        for (int i = 0; i < S::COLUMNS / 2; i++) t.sums[i] += widen(bias[i / 4 * 4].element[i % 2]);
    if (a.residual)
#pragma unroll
        for (int i = 0; i < S::COLUMNS / 2; i++) {
            const two *words = (const two *)t.result_word(a.steps, row + i / 2 % 2 * 8, i / 4);
            t.sums[i] += widen(words[lane % 4].element[i % 2]);
        }
    if (a.relu)
#pragma unroll
        for (int i = 0; i < S::COLUMNS / 2; i++) t.sums[i] = t.sums[i] < 0.0f ? 0.0f : t.sums[i];
#pragma unroll
    for (int i = 0; i < S::COLUMNS / 2; i += 2)
        t.result_word(a.steps, row + i / 2 % 2 * 8, i / 4)[lane % 4] = mma_pack<T>(t.sums[i], t.sums[i + 1]);
}

/* Each warp stores the 16 rows that it has computed. */
template <typename S> __device__ inline void store_rows(const conv_wide_args &a, const tile<S> &t) {
    enum { WORDS = S::COLUMNS / 8, ROWS_AT_ONCE = 32 / WORDS };
    int lane = (int)threadIdx.x % 32, word = lane % WORDS, warp_row = (int)threadIdx.x / 32 * 16;
    struct word *y = (struct word *)a.y + t.first_column / 8 + word;
#pragma unroll
    for (int i = 0; i < 16; i += ROWS_AT_ONCE) {
        int row = warp_row + i + lane / WORDS;
        if (t.first_row + row < a.rows)
            y[(i64)(t.first_row + row) * (a.columns / 8)] = *(const struct word *)t.result_word(a.steps, row, word);
    }
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
    sum_steps<T, S, false>(a, load, t, split_begin(a, split, SPLITS), split_begin(a, split + 1, SPLITS));
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
        sum_steps<T, S, false>(a, load, t, split_begin(a, split, SPLITS), split_begin(a, split + 1, SPLITS));
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

/* Blocks: x: tiles, along the channels first; y: SPLITS. */
template <typename T, int ROWS, int COLUMNS, int SPLITS>
__global__ void __cluster_dims__(1, SPLITS, 1)
    __launch_bounds__(shape<ROWS, COLUMNS>::THREADS, shape<ROWS, COLUMNS>::BLOCKS) conv_wide(conv_wide_args a) {
    typedef shape<ROWS, COLUMNS> S;
    extern __shared__ __align__(1024) u32 shared[];
    int column_tiles = a.columns / COLUMNS;
    tile<S> t;
    loader<S> load;
    start_next_kernel();
    t.first_row = (int)blockIdx.x / column_tiles * ROWS, t.first_column = (int)blockIdx.x % column_tiles * COLUMNS;
    t.slots = shared;
    load.init(a, t.first_row, t.first_column);
    if constexpr (SPLITS == 1)
        compute_tile<T>(a, load, t);
    else
        compute_split_tile<T, SPLITS>(a, load, t);
}
