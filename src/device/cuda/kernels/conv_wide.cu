/* Convolutions of models with many results, in bf16 and f16, for compute capability 9.0.
 *
 * y [pixels, o] is the product of x, gathered at (pixel, tap, c), and the filter [o, tap, c]. A block computes a tile of 128
 * pixels by 128 or 64 channels with the tensor cores of two warpgroups (wgmma.cuh), which sum 64 pixels each. Bias, residual and
 * relu are applied to the sums in f32, and the result is rounded once; relu keeps NaN.
 *
 * What limits it is the L2 cache: a step of 64 along the depth loads 32 KB for 2 * 128 * 128 * 64 operations. Therefore all taps
 * of 64 channels of x follow each other, so that most rows of x come from the L1 cache, and blocks that run at the same time
 * have the same pixels and different channels of y.
 *
 * A ring of slots in shared memory holds the steps on their way, and after them the residual, which arrives while the last
 * steps are multiplied and is replaced by y in place, so that y is stored in words of 16 bytes. The tensor cores work on one
 * step while the step before it is replaced by a later one. Two blocks share a multiprocessor, so that one computes while the
 * other stores.
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
#include "wgmma.cuh"
#include "conv_wide_args.h"

enum {
    ROWS = 128, /* pixels of a tile */
    GROUP_ROWS = 64, /* of a warpgroup */
    DEPTH = 64, /* elements of a step: 128 bytes of a row */
    THREADS = 256,
    PAD = 8     /* f32 between rows of sums in shared memory */
};

/* A slot has ROWS rows of x, then COLUMNS of the filter. y and the residual need no more: COLUMNS / 64 times ROWS rows of 64
 * channels. */
template <int COLUMNS> struct ring { enum { SLOT = (ROWS + COLUMNS) * WGMMA_ROW, SLOTS = COLUMNS == 64 ? 4 : 3 }; };

/* ---- From global to shared memory ---- */

/* A thread copies one 16-byte word of every 32nd row. */
enum { ROW_WORDS = 8, PASS_ROWS = THREADS / ROW_WORDS, PASSES = ROWS / PASS_ROWS };

__device__ inline int line_of_thread() { return (int)threadIdx.x / ROW_WORDS; }
__device__ inline int word_of_thread() { return (int)threadIdx.x % ROW_WORDS; }

struct word { u32 part[4]; }; /* 16 bytes */

struct loader {
    u32 first[PASSES];  /* 16-byte word of x, modulo 2^32, of the row at tap 0 and channel 0 */
    u32 inside[PASSES]; /* bit t: tap t of the row is inside x */
    const word *x, *filter; /* at the thread's word; the filter of its first row */

    __device__ inline void init(const conv_wide_args &a, int first_row, int first_column) {
        x = (const word *)a.x + word_of_thread();
        filter = (const word *)a.filter + word_of_thread() +
                 (i64)(first_column + line_of_thread()) * (i64)a.taps.value * a.pixel_words;
#pragma unroll
        for (int p = 0; p < PASSES; p++) {
            u32 pixel = (u32)(first_row + line_of_thread() + p * PASS_ROWS);
            bool exists = pixel < (u32)a.rows;
            int column = (int)divmod_in_place(pixel, a.width) * a.stride[1] - a.pad[1];
            int row = (int)divmod_in_place(pixel, a.height) * a.stride[0] - a.pad[0];
            first[p] = ((pixel * (u32)a.x_size[0] + (u32)row) * (u32)a.x_size[1] + (u32)column) * (u32)a.pixel_words;
            inside[p] = exists ? taps_inside(a, row, column) : 0;
        }
    }
    static __device__ inline u32 taps_inside(const conv_wide_args &a, int row, int column) {
        u32 of_row = 0, all = 0;
        for (int i = 0; i < a.filter_size[1]; i++, column += a.dilation[1])
            of_row |= (u32)((u32)column < (u32)a.x_size[1]) << i;
        for (int i = 0; i < a.filter_size[0]; i++, row += a.dilation[0])
            if ((u32)row < (u32)a.x_size[0]) all |= of_row << i * a.filter_size[1];
        return all;
    }
    template <int COLUMNS> __device__ inline void load_filter(const conv_wide_args &a, u32 *slot, int step) const {
        u32 channels = (u32)step, tap = divmod_in_place(channels, a.taps);
        const word *from = filter + (i64)tap * a.pixel_words + channels * ROW_WORDS;
        i64 pass = (i64)PASS_ROWS * (i64)a.taps.value * a.pixel_words;
#pragma unroll
        for (int p = 0; p < COLUMNS / PASS_ROWS; p++)
            copy_async<16>(wgmma_word(slot + ROWS * WGMMA_ROW, line_of_thread() + p * PASS_ROWS, word_of_thread()),
                           from + p * pass, true);
    }
    template <bool REUSED> __device__ inline void load_rows(u32 *slot, u32 tap, u32 offset) const {
#pragma unroll
        for (int p = 0; p < PASSES; p++) {
            bool exists = inside[p] >> tap & 1;
            copy_async<16, REUSED>(wgmma_word(slot, line_of_thread() + p * PASS_ROWS, word_of_thread()),
                                   x + (exists ? first[p] + offset : 0), exists);
        }
    }
    __device__ inline void load_x(const conv_wide_args &a, u32 *slot, int step) const {
        u32 channels = (u32)step, tap = divmod_in_place(channels, a.taps);
        u32 tap_row = tap, tap_column = divmod_in_place(tap_row, a.filter_columns);
        u32 pixels = tap_row * (u32)(a.dilation[0] * a.x_size[1]) + tap_column * (u32)a.dilation[1];
        u32 offset = pixels * (u32)a.pixel_words + channels * ROW_WORDS;
        if (a.taps.value > 1)
            load_rows<true>(slot, tap, offset);
        else
            load_rows<false>(slot, tap, offset);
    }
};

/* Returns the address of 16-byte word `word` of a row of y or the residual in a slot. */
__device__ inline u32 *word_of_y(u32 *slot, int row, int word) {
    return wgmma_word(slot + word / ROW_WORDS * ROWS * WGMMA_ROW, row, word % ROW_WORDS);
}

template <int COLUMNS>
__device__ inline void load_residual(const conv_wide_args &a, u32 *slot, int first_row, int first_column) {
    enum { WORDS = COLUMNS / 8 };
    for (int i = (int)threadIdx.x; i < ROWS * WORDS; i += THREADS) {
        int row = i / WORDS, word = i % WORDS;
        bool exists = first_row + row < a.rows;
        i64 index = exists ? ((i64)(first_row + row) * a.columns + first_column) / 8 + word : 0;
        copy_async<16>(word_of_y(slot, row, word), (const struct word *)a.residual + index, exists);
    }
}

template <int COLUMNS> __device__ inline void load_bias(const conv_wide_args &a, u32 *to, int first_column) {
    int i = (int)threadIdx.x;
    if (a.bias && i < COLUMNS / 8) copy_async<16>(to + 4 * i, (const word *)a.bias + first_column / 8 + i, true);
}

/* ---- Products ---- */

template <int COLUMNS> struct tile {
    int first_row, first_column;
    u32 *slots;
    float sums[COLUMNS / 2]; /* of the thread: wgmma.cuh */

    /* The slot of step i of the block, counted from 0. */
    __device__ inline u32 *slot(int i) const { return slots + i % ring<COLUMNS>::SLOTS * ring<COLUMNS>::SLOT; }
    __device__ inline u32 *bias(int steps) const {
        return slots + (steps + 1 < ring<COLUMNS>::SLOTS ? steps + 1 : (int)ring<COLUMNS>::SLOTS) * ring<COLUMNS>::SLOT;
    }
};

/* Starts the copies of step `step` of the block's steps `first` to `last` - 1, of which the residual is step `last`. */
template <int COLUMNS, bool RESIDUAL>
__device__ inline void load_step(const conv_wide_args &a, const loader &load, const tile<COLUMNS> &t, int first, int step,
                                 int last) {
    if (step < last)
        load.load_x(a, t.slot(step - first), step);
    else if (RESIDUAL && step == last && a.residual)
        load_residual<COLUMNS>(a, t.slot(step - first), t.first_row, t.first_column);
}

/* Sums up steps `first` to `last` - 1. RESIDUAL: fetches the residual and the bias too. Then all copies have arrived, for all
 * threads. */
template <typename T, int COLUMNS, bool RESIDUAL>
__device__ inline void sum_steps(const conv_wide_args &a, const loader &load, tile<COLUMNS> &t, int first, int last) {
    enum { SLOTS = ring<COLUMNS>::SLOTS };
    int group = (int)threadIdx.x / 128;
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++) t.sums[i] = 0;
    if (!a.filter_is_constant) wait_for_kernels_before();
#pragma unroll
    for (int i = 0; i < SLOTS; i++)
        if (first + i < last) load.template load_filter<COLUMNS>(a, t.slot(i), first + i);
    wait_for_kernels_before();
    if (RESIDUAL) load_bias<COLUMNS>(a, t.bias(last - first), t.first_column);
#pragma unroll
    for (int i = 0; i < SLOTS; i++) {
        load_step<COLUMNS, RESIDUAL>(a, load, t, first, first + i, last);
        commit_copies(); /* the first group has all filters too */
    }
    for (int step = first; step < last; step++) {
        wait_for_copies_but<SLOTS - 2>();
        wgmma_release();
        __syncthreads(); /* the step has arrived */
        u32 *slot = t.slot(step - first);
        wgmma_begin();
        wgmma_multiply<T, COLUMNS>(t.sums, slot + group * GROUP_ROWS * WGMMA_ROW, slot + ROWS * WGMMA_ROW);
        wgmma_commit();
        if (step == first) continue;
        wgmma_wait<1>();
        __syncthreads(); /* the slot of the step before is no longer read */
        int next = step - 1 + SLOTS;
        if (next < last) load.template load_filter<COLUMNS>(a, t.slot(next - first), next);
        load_step<COLUMNS, RESIDUAL>(a, load, t, first, next, last);
        commit_copies();
    }
    wgmma_wait<0>();
    wgmma_keep(t.sums);
    wait_for_copies();
    __syncthreads();
}

/* ---- Results of a block that sums the whole depth ---- */

template <typename T> struct pair { T element[2]; };

/* Replaces the residual in a slot by y. A thread reads and writes the words of its sums only. */
template <typename T, int COLUMNS>
__device__ inline void apply_epilogue(const conv_wide_args &a, const tile<COLUMNS> &t, u32 *slot, const u32 *bias) {
    typedef pack<T, 2> two;
    int lane = (int)threadIdx.x % 32, first_row = (int)threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j++) {
        two added;
        if (a.bias) added = *(const two *)(bias + j * 4 + lane % 4);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            two *word = (two *)(word_of_y(slot, first_row + 8 * half, j) + lane % 4), residual, result;
            if (a.residual) residual = *word;
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float value = t.sums[4 * j + 2 * half + e];
                if (a.bias) value += widen(added.element[e]);
                if (a.residual) value += widen(residual.element[e]);
                result.element[e] = narrow<T>(a.relu && value < 0.0f ? 0.0f : value);
            }
            *word = result;
        }
    }
}

/* Each warp stores the 16 rows that it has computed. */
template <int COLUMNS> __device__ inline void store_rows(const conv_wide_args &a, const tile<COLUMNS> &t, u32 *slot) {
    enum { WORDS = COLUMNS / 8, ROWS_AT_ONCE = 32 / WORDS };
    int lane = (int)threadIdx.x % 32, word = lane % WORDS, warp_row = (int)threadIdx.x / 32 * 16;
    struct word *y = (struct word *)a.y + t.first_column / 8 + word;
#pragma unroll
    for (int i = 0; i < 16; i += ROWS_AT_ONCE) {
        int row = warp_row + i + lane / WORDS;
        if (t.first_row + row < a.rows)
            y[(i64)(t.first_row + row) * (a.columns / 8)] = *(const struct word *)word_of_y(slot, row, word);
    }
}

template <typename T, int COLUMNS>
__device__ inline void compute_tile(const conv_wide_args &a, const loader &load, tile<COLUMNS> &t) {
    sum_steps<T, COLUMNS, true>(a, load, t, 0, a.steps);
    u32 *slot = t.slot(a.steps);
    apply_epilogue<T, COLUMNS>(a, t, slot, t.bias(a.steps));
    __syncwarp(0xffffffffu);
    store_rows<COLUMNS>(a, t, slot);
}

/* ---- Results of blocks that share the depth ---- */

/* Stores the sums as a tile [ROWS][COLUMNS + PAD], for all threads. */
template <int COLUMNS> __device__ inline float *stage_sums(const tile<COLUMNS> &t) {
    float *staged = (float *)t.slots;
    int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float *to = staged + (row + 8 * half) * (COLUMNS + PAD) + j * 8 + lane % 4 * 2;
            to[0] = t.sums[4 * j + 2 * half], to[1] = t.sums[4 * j + 2 * half + 1];
        }
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

/* A block adds up SHARE rows of the tile. */
template <int COLUMNS, int SPLITS> struct division {
    enum { SHARE = ROWS / SPLITS, PACKS = COLUMNS / 8, MINE = (SHARE * PACKS + THREADS - 1) / THREADS };

    static __device__ inline bool exists(int m) { return (int)threadIdx.x + m * THREADS < SHARE * PACKS; }
    static __device__ inline int row(int m) { return ((int)threadIdx.x + m * THREADS) / PACKS; }
    static __device__ inline int column(int m) { return ((int)threadIdx.x + m * THREADS) % PACKS * 8; }
};

#ifndef TU_EMULATED
template <typename T, int COLUMNS, int SPLITS>
__device__ inline void compute_split_tile(const conv_wide_args &a, const loader &load, tile<COLUMNS> &t) {
    typedef division<COLUMNS, SPLITS> mine;
    int split = (int)blockIdx.y, share = split * mine::SHARE;
    sum_steps<T, COLUMNS, false>(a, load, t, split_begin(a, split, SPLITS), split_begin(a, split + 1, SPLITS));
    float *staged = stage_sums<COLUMNS>(t);
    eight_results<T> results[mine::MINE];
#pragma unroll
    for (int m = 0; m < mine::MINE; m++) /* while the others still sum */
        if (mine::exists(m)) results[m].load(a, t.first_row + share + mine::row(m), t.first_column + mine::column(m));
    synchronize_cluster();
#pragma unroll
    for (int m = 0; m < mine::MINE; m++) {
        if (!mine::exists(m)) continue;
        int row = share + mine::row(m), column = mine::column(m);
        const float *here = staged + row * (COLUMNS + PAD) + column;
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
template <typename T, int COLUMNS, int SPLITS>
__device__ inline void compute_split_tile(const conv_wide_args &a, const loader &load, tile<COLUMNS> &t) {
    typedef division<COLUMNS, 1> mine;
    float sums[mine::MINE][8] = {};
    if (blockIdx.y) return;
    for (int split = 0; split < SPLITS; split++) {
        sum_steps<T, COLUMNS, false>(a, load, t, split_begin(a, split, SPLITS), split_begin(a, split + 1, SPLITS));
        float *staged = stage_sums<COLUMNS>(t);
        for (int m = 0; m < mine::MINE; m++)
            for (int e = 0; e < 8; e++)
                sums[m][e] += staged[mine::row(m) * (COLUMNS + PAD) + mine::column(m) + e];
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
template <typename T, int COLUMNS, int SPLITS>
__global__ void __cluster_dims__(1, SPLITS, 1) __launch_bounds__(THREADS, 2) conv_wide(conv_wide_args a) {
    extern __shared__ __align__(1024) u32 shared[];
    int column_tiles = a.columns / COLUMNS;
    tile<COLUMNS> t;
    loader load;
    start_next_kernel();
    t.first_row = (int)blockIdx.x / column_tiles * ROWS, t.first_column = (int)blockIdx.x % column_tiles * COLUMNS;
    t.slots = shared;
    load.init(a, t.first_row, t.first_column);
    if constexpr (SPLITS == 1)
        compute_tile<T, COLUMNS>(a, load, t);
    else
        compute_split_tile<T, COLUMNS, SPLITS>(a, load, t);
}
