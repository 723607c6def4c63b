/* Convolutions whose input has few channels, such as the first layer of a network: y with bias and relu, and the
 * gradient of the filter.
 *
 * Libraries pad such images to 4 or 8 channels and compute with the added zeros. Here nothing is reordered: in [h, w,
 * c] the elements of one row of a window, columns times channels, are contiguous (15 for 5 columns of 3 channels). A
 * row of the window is one row of a matrix, padded to 16:
 *
 *     y [pixels, 64] = sum over rows of the window of   x [pixels, 16]  times  filter [16, 64]
 *
 * A block keeps the filter in shared memory, in the order in which lanes read it, and processes one band of image
 * rows after another. While it computes a band, the patch of x for the next band is copied: x is read about once (3.5
 * MB for 1024 images of 24 by 24), and y is written once, in 16-byte words (75 MB in bf16). Writing y should dominate
 * the time.
 *
 * A register holds two neighbouring elements of bf16 or f16, which may start at an odd element. So a patch is
 * unpacked before use: word i holds elements i and i + 1, and a lane needs one load. Elements past the end of the
 * window's row belong to the next pixel. The filter is zero there, but zero times infinity is NaN, so they are
 * masked.
 *
 * The gradient of the filter is the transposed product,
 *
 *     filter [window, 64] = x [pixels, window] transposed  times  y's gradient [pixels, 64]
 *
 * where two pixels share a register: word i holds element i and the same element of the next pixel's window. All
 * elements of the window are rows here, numbered consecutively (75 for 5 by 5 by 3: five tiles of 16). A block loads
 * a band's x and y once, while it computes the previous band. Its eight warps divide the window (five tiles each),
 * the channels (32 each) and, if warps are left, the pixels, and keep their sums in registers throughout. At the end
 * the sums are added in shared memory, warp by warp, and stored; a second kernel adds the blocks in order. A product
 * of 16 pixels costs a warp 20 loads of x, 2 of y and 20 tensor-core instructions: reading y once should dominate the
 * time.
 *
 * Pixels that pad the last word of a row or the last product of a band are zero, both in x and in y.
 */
#include "async.cuh"
#include "mma.cuh"
#include "conv_few_channels_args.h"

enum { CHANNELS = 64, THREADS = 256, WARPS = THREADS / 32 };

/* Storage type of an element in shared memory. */
template <typename T> struct stored_type { typedef u16 type; };
template <> struct stored_type<f32> { typedef u32 type; };
__device__ inline u32 bits_of(bf16 x) { return x.bits; }
__device__ inline u32 bits_of(f16 x) { return x.bits; }
__device__ inline u32 bits_of(f32 x) { return __float_as_uint(x); }

/* ---- Bands ---- */

struct band { int image, first_row, rows; };
__device__ inline band band_of(const conv_few_channels_args &a, u32 index) {
    band b;
    b.first_row = (int)divmod_in_place(index, a.bands) * a.band_rows;
    b.image = (int)index;
    b.rows = a.y_height - b.first_row < a.band_rows ? a.y_height - b.first_row : a.band_rows;
    return b;
}

/* Loads the elements of a word if rows are not a multiple of words. */
template <typename T> __device__ inline u32 gather_word(const T *row, int first, int row_elements, bool inside) {
    u32 word = 0;
    for (int e = 0; e < mma_word<T>::ELEMENTS; e++)
        if (inside && first + e >= 0 && first + e < row_elements) word |= bits_of(row[first + e]) << 16 * e;
    return word;
}

/* Starts to copy the patch of x for a band, with zeros for the padding. */
template <typename T> __device__ inline void fetch_patch(const conv_few_channels_args &a, const band &b, u32 *raw) {
    enum { E = mma_word<T>::ELEMENTS };
    const T *image = (const T *)a.x + (i64)b.image * a.x_height * a.row_elements;
    bool full_words = a.row_elements % E == 0;
#pragma unroll 1 /* copies are asynchronous, and registers hold sums */
    for (int i = threadIdx.x; i < a.patch_rows * (int)a.patch_words.value; i += THREADS) {
        u32 patch_row = (u32)i;
        int element = (int)divmod_in_place(patch_row, a.patch_words) * E - a.lead;
        int x_row = b.first_row * a.row_stride + (int)patch_row - a.pad_rows;
        bool inside = x_row >= 0 && x_row < a.x_height;
        const T *row = image + (i64)(inside ? x_row : 0) * a.row_elements;
        if (full_words) {
            inside = inside && element >= 0 && element < a.row_elements;
            copy_async<4>(raw + i, inside ? row + element : image, inside);
        } else {
            raw[i] = gather_word(row, element, a.row_elements, inside);
        }
    }
}

/* Converts a loaded patch to the words that products need. f32: rounds each element to tf32, in place. Other types:
 * pairs each element with the one that shares its word. */
__device__ inline const u32 *unpack_patch(const conv_few_channels_args &a, u32 *raw, u32 *, f32) {
    for (int i = threadIdx.x; i < a.patch_rows * a.pitch; i += THREADS) raw[i] = tf32_bits(__uint_as_float(raw[i]));
    return raw;
}
/* Two at a time: elements 2i and 2i + 1 are one word of the patch, their partners halves of one or two other
 * words. */
template <typename T>
__device__ inline const u32 *unpack_patch(const conv_few_channels_args &a, u32 *raw, u32 *words, T) {
    int count = a.patch_rows * (int)a.patch_words.value, distance = a.pair / 2, odd = a.pair % 2;
#pragma unroll 2
    for (int i = threadIdx.x; i < count; i += THREADS) {
        int next = i + distance < count ? i + distance : count - 1; /* words past the end are not used */
        u32 word = raw[i], first = raw[next], second = raw[next + odd < count ? next + odd : next];
        pack<u32, 2> pairs = {{(word & 0xffffu) | (first >> 16 * odd) << 16,
                               word >> 16 | ((second << 16 * odd) & 0xffff0000u)}};
        *(pack<u32, 2> *)(words + 2 * i) = pairs;
    }
    return words;
}

/* ---- Forward: y ---- */

enum {
    COLUMN_TILES = CHANNELS / 8,
    ROW_TILES = 2,
    STEP_WORDS = COLUMN_TILES * 64 /* words of the filter per step */
};

/* Returns the channel of column `column` of tile `tile`. The order makes a lane's results, two columns of each tile,
 * adjacent: eight from the first four tiles and eight from the others. */
__device__ inline int channel_of(int tile, int column) {
    return tile / 4 * 32 + column / 2 * 8 + tile % 4 * 2 + column % 2;
}

/* Loads the filter as words [rows of the window, steps, column tiles, lanes, 2]. Past the end of the window's row
 * another element is loaded and discarded, so that no load depends on a branch. */
template <typename T>
__device__ inline void load_filter(const conv_few_channels_args &a, int first_channel, u32 *words) {
    enum { E = mma_word<T>::ELEMENTS, K = mma_word<T>::K };
#pragma unroll 5
    for (int i = threadIdx.x; i < a.window_rows * a.row_steps * STEP_WORDS; i += THREADS) {
        int half = i % 2, lane = i / 2 % 32, tile = i / 64 % COLUMN_TILES;
        int row = i / STEP_WORDS / a.row_steps, step = i / STEP_WORDS % a.row_steps;
        int element = step * K + (lane % 4 + 4 * half) * E, channel = first_channel + channel_of(tile, lane / 4);
        const T *from = (const T *)a.filter + ((i64)channel * a.window_rows + row) * a.window_elements;
        u32 word = 0;
#pragma unroll
        for (int e = 0; e < E; e++) {
            bool inside = element + e < a.window_elements;
            u32 bits = bits_of(from[inside ? element + e : 0]);
            word |= inside ? bits << 16 * e : 0u;
        }
        words[i] = E == 1 ? tf32_bits(__uint_as_float(word)) : word;
    }
}

template <typename T>
__device__ inline void load_bias(const conv_few_channels_args &a, int first_channel, float *bias) {
    if (threadIdx.x < CHANNELS)
        bias[threadIdx.x] = a.bias ? widen(((const T *)a.bias)[first_channel + threadIdx.x]) : 0.0f;
}

/* Stores eight results of a pixel and lane, with bias and relu. */
template <typename T>
__device__ inline void store_eight(const conv_few_channels_args &a, T *to, const float *bias,
                                   const float (&sums)[COLUMN_TILES][4], int first_tile, int first) {
    enum { N = 16 / sizeof(T) };
#pragma unroll
    for (int i = 0; i < 8; i += N) {
        pack<T, N> result;
#pragma unroll
        for (int e = 0; e < N; e++) {
            float value = sums[first_tile + (i + e) / 2][first + (i + e) % 2] + bias[i + e];
            result.element[e] = narrow<T>(a.relu && value < 0.0f ? 0.0f : value);
        }
        *(pack<T, N> *)(to + i) = result;
    }
}

/* Computes 32 pixels of a band, from pixel `first` on, for all channels of the block. */
template <typename T>
__device__ inline void multiply(const conv_few_channels_args &a, const u32 *words, const u32 *filter,
                                int first, int pixels, float (&sums)[ROW_TILES][COLUMN_TILES][4]) {
    enum { E = mma_word<T>::ELEMENTS, K = mma_word<T>::K };
    int lane = threadIdx.x % 32, group = lane / 4, lane_word = lane % 4;
    const u32 *pixel_words[ROW_TILES][2]; /* first word of each of the lane's pixels */
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; tile++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 pixel = (u32)(first + 16 * tile + 8 * half + group);
            if (pixel >= (u32)pixels) pixel = 0; /* computed, not stored */
            int column = (int)divmod_in_place(pixel, a.row_pixels);
            pixel_words[tile][half] =
                words + (int)pixel * a.row_stride * a.pitch + column * a.pixel_stride + a.shift + lane_word * E;
        }
    u32 mask[2]; /* mask for the lane's two words in the last step of a window's row */
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int last = (a.row_steps - 1) * K + (lane_word + 4 * half) * E;
        mask[half] = last + E <= a.window_elements ? 0xffffffffu : last < a.window_elements ? 0x0000ffffu : 0u;
    }
    const u32 *b_words = filter + 2 * lane;
    for (int row = 0; row < a.window_rows; row++)
        for (int step = 0; step < a.row_steps; step++, b_words += STEP_WORDS) {
            int offset = row * a.pitch + step * K;
            bool last = step == a.row_steps - 1;
            u32 a_words[ROW_TILES][4];
#pragma unroll
            for (int tile = 0; tile < ROW_TILES; tile++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    a_words[tile][i] =
                        pixel_words[tile][i % 2][offset + i / 2 * 4 * E] & (last ? mask[i / 2] : 0xffffffffu);
#pragma unroll
            for (int column = 0; column < COLUMN_TILES; column++) {
                pack<u32, 2> b = *(const pack<u32, 2> *)(b_words + column * 64);
#pragma unroll
                for (int tile = 0; tile < ROW_TILES; tile++) mma<T>(sums[tile][column], a_words[tile], b.element);
            }
        }
}

template <typename T>
__device__ inline void store_pixels(const conv_few_channels_args &a, T *y, const float *shared_bias,
                                    int first, int pixels, const float (&sums)[ROW_TILES][COLUMN_TILES][4]) {
    int lane = threadIdx.x % 32, group = lane / 4, lane_word = lane % 4;
#pragma unroll
    for (int channel_half = 0; channel_half < 2; channel_half++) {
        int channel = 32 * channel_half + 8 * lane_word;
        float bias[8];
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            pack<float, 4> four = *(const pack<float, 4> *)(shared_bias + channel + i);
#pragma unroll
            for (int e = 0; e < 4; e++) bias[i + e] = four.element[e];
        }
#pragma unroll
        for (int tile = 0; tile < ROW_TILES; tile++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int pixel = first + 16 * tile + 8 * half + group;
                if (pixel < pixels)
                    store_eight<T>(a, y + (i64)pixel * a.out + channel, bias, sums[tile], 4 * channel_half, 2 * half);
            }
    }
}

/* Blocks: x: bands, y: groups of 64 channels. */
template <typename T> __global__ void __launch_bounds__(THREADS, 2) conv_few_channels(conv_few_channels_args a) {
    extern __shared__ u32 shared[];
    float *bias = (float *)shared;
    u32 *filter = shared + CHANNELS, *patches = filter + a.window_rows * a.row_steps * STEP_WORDS;
    int warp = threadIdx.x / 32, first_channel = blockIdx.y * CHANNELS;
    fetch_patch<T>(a, band_of(a, blockIdx.x), patches);
    load_bias<T>(a, first_channel, bias);
    load_filter<T>(a, first_channel, filter);
    int buffer = 0;
    for (u32 index = blockIdx.x; index < (u32)a.band_count; index += gridDim.x, buffer ^= 1) {
        band b = band_of(a, index);
        wait_for_copies();
        __syncthreads(); /* the patch has arrived, and the previous one is no longer used */
        if (index + gridDim.x < (u32)a.band_count)
            fetch_patch<T>(a, band_of(a, index + gridDim.x), patches + (buffer ^ 1) * a.raw_words);
        const u32 *words = unpack_patch(a, patches + buffer * a.raw_words, patches + 2 * a.raw_words, T());
        __syncthreads();
        int pixels = b.rows * a.y_width;
        T *y = (T *)a.y + (((i64)b.image * a.y_height + b.first_row) * a.y_width) * a.out + first_channel;
        for (int first = warp * 16 * ROW_TILES; first < pixels; first += WARPS * 16 * ROW_TILES) {
            float sums[ROW_TILES][COLUMN_TILES][4] = {};
            multiply<T>(a, words, filter, first, pixels, sums);
            store_pixels<T>(a, y, bias, first, pixels, sums);
        }
    }
}

/* ---- The gradient of the filter ---- */

enum {
    TILES = 5,         /* maximum tiles, of 16 elements of the window, per warp */
    CHANNEL_HALVES = 2,         /* halves of the channels, 32 per warp */
    HALF_TILES = COLUMN_TILES / CHANNEL_HALVES,
    Y_PITCH = 72,      /* elements from one pixel of y to the next: avoids bank conflicts */
    SUM_PITCH = 72     /* row length of sums [16 * tiles, 64] */
};

/* Starts to copy y for a band [pixels rounded up to a multiple of K, 64 channels]. */
template <typename T>
__device__ inline void fetch_y(const conv_few_channels_args &a, const band &b, int first_channel, u32 *to) {
    enum { E = mma_word<T>::ELEMENTS, K = mma_word<T>::K, N = 16 / sizeof(T), PIXEL_PACKS = CHANNELS / N };
    const T *y = (const T *)a.y + (((i64)b.image * a.y_height + b.first_row) * a.y_width) * a.out + first_channel;
    int steps = (b.rows * (int)a.row_pixels.value * E + K - 1) / K;
#pragma unroll 1
    for (int i = threadIdx.x; i < steps * K * PIXEL_PACKS; i += THREADS) {
        int pixel = i / PIXEL_PACKS, channel = i % PIXEL_PACKS * N;
        u32 row = (u32)(pixel / E);
        int column = (int)divmod_in_place(row, a.row_pixels) * E + pixel % E;
        bool inside = (int)row < b.rows && column < a.y_width;
        const T *from = y + (i64)(inside ? (int)row * a.y_width + column : 0) * a.out + channel;
        copy_async<16>(to + (pixel * Y_PITCH + channel) / E, from, inside);
    }
}

/* The work of a warp: tiles of the window, half of the channels, and every `groups`th product of a band. */
struct warp_work {
    int first_tile, tiles; /* tiles 0: the warp is idle */
    int channel_half, group, groups;
};
__device__ inline warp_work work_of_warp(const conv_few_channels_args &a) {
    int warp = threadIdx.x / 32, split = warp / CHANNEL_HALVES % a.splits;
    int all_tiles = (a.window_rows * a.window_elements + 15) / 16;
    warp_work r;
    r.groups = WARPS / CHANNEL_HALVES / a.splits;
    r.group = warp / CHANNEL_HALVES / a.splits;
    r.channel_half = warp % CHANNEL_HALVES;
    r.first_tile = ((int)blockIdx.y * a.splits + split) * a.split_tiles;
    r.tiles = all_tiles - r.first_tile < a.split_tiles ? all_tiles - r.first_tile : a.split_tiles;
    if (r.group >= r.groups || r.tiles < 0) r.tiles = 0;
    return r;
}

typedef float warp_sums[TILES][HALF_TILES][4];

/* Adds the products of a band. `offsets`: in a patch, from a window's first element to the elements of the lane's
 * rows. */
template <typename T>
__device__ inline void add_band(const conv_few_channels_args &a, const warp_work &r, int rows,
                                const u32 *words, const u32 *y, const int (&offsets)[TILES][2],
                                warp_sums &sums) {
    enum { E = mma_word<T>::ELEMENTS, K = mma_word<T>::K };
    typedef typename stored_type<T>::type S;
    int lane_word = threadIdx.x % 4, steps = (rows * (int)a.row_pixels.value * E + K - 1) / K;
    for (int step = r.group; step < steps; step += r.groups) {
        const u32 *window_words[2]; /* first word of the window at each of the lane's pixels, and its mask */
        u32 mask[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 row = (u32)(8 * step + lane_word + 4 * half);
            int column = (int)divmod_in_place(row, a.row_pixels) * E;
            bool inside = (int)row < rows;
            mask[half] = !inside ? 0u : column + E <= a.y_width ? 0xffffffffu : 0x0000ffffu;
            window_words[half] = words + (inside ? (int)row * a.row_stride * a.pitch + column * a.pixel_stride : 0);
        }
        u32 y_words[HALF_TILES / 2][2][2];
#pragma unroll
        for (int i = 0; i < HALF_TILES / 2; i++)
            mma_load_columns(y_words[i], (const S *)y + step * K * Y_PITCH + 32 * r.channel_half + 16 * i, Y_PITCH);
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            if (tile >= r.tiles) break;
            u32 x_words[4];
#pragma unroll
            for (int i = 0; i < 4; i++) x_words[i] = window_words[i / 2][offsets[tile][i % 2]] & mask[i / 2];
#pragma unroll
            for (int column = 0; column < HALF_TILES; column++)
                mma<T>(sums[tile][column], x_words, y_words[column / 2][column % 2]);
        }
    }
}

/* Adds the sums of all warps into [window of the block, SUM_PITCH], one group of pixels after the other. */
__device__ inline void add_groups(const conv_few_channels_args &a, const warp_work &r, const warp_sums &sums,
                                  float *all) {
    int group = threadIdx.x % 32 / 4, lane_word = threadIdx.x % 4;
    int first = 16 * (r.first_tile - (int)blockIdx.y * a.splits * a.split_tiles);
    for (int buffer = 0; buffer < r.groups; buffer++) {
        __syncthreads();
        if (r.group != buffer) continue;
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            if (tile >= r.tiles) break;
#pragma unroll
            for (int column = 0; column < HALF_TILES; column++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    int row = first + 16 * tile + group + 8 * half;
                    float *target = all + row * SUM_PITCH + 32 * r.channel_half + 8 * column + 2 * lane_word;
                    pack<float, 2> two = {{sums[tile][column][2 * half], sums[tile][column][2 * half + 1]}};
                    if (buffer) {
                        pack<float, 2> before = *(const pack<float, 2> *)target;
                        for (int e = 0; e < 2; e++) two.element[e] += before.element[e];
                    }
                    *(pack<float, 2> *)target = two;
                }
        }
    }
    __syncthreads();
}

__device__ inline void store_partial(const conv_few_channels_args &a, int first_channel, const float *all) {
    int window = a.window_rows * a.window_elements, first = 16 * (int)blockIdx.y * a.splits * a.split_tiles;
    int rows = 16 * a.splits * a.split_tiles < window - first ? 16 * a.splits * a.split_tiles : window - first;
    float *partial = a.partial + ((i64)blockIdx.x * window + first) * a.out + first_channel;
    for (int i = threadIdx.x; i < rows * CHANNELS; i += THREADS)
        partial[(i64)(i / CHANNELS) * a.out + i % CHANNELS] = all[i / CHANNELS * SUM_PITCH + i % CHANNELS];
}

/* Blocks: x: bands, y: parts of the window if it is too large for one block's warps, z: groups of 64 channels. */
template <typename T>
__global__ void __launch_bounds__(THREADS, 2) conv_few_channels_filter(conv_few_channels_args a) {
    extern __shared__ u32 shared[];
    int stage = a.y_words + a.raw_words, first_channel = blockIdx.z * CHANNELS;
    auto fetch = [&](u32 index, u32 *to) {
        band b = band_of(a, index);
        fetch_y<T>(a, b, first_channel, to);
        fetch_patch<T>(a, b, to + a.y_words);
    };
    fetch(blockIdx.x, shared);
    warp_work r = work_of_warp(a);
    int offsets[TILES][2];
#pragma unroll
    for (int i = 0; i < 2 * TILES; i++) {
        int element = 16 * (r.first_tile + i / 2) + threadIdx.x % 32 / 4 + 8 * (i % 2);
        bool inside = element < a.window_rows * a.window_elements; /* others are summed, not stored */
        int row = inside ? element / a.window_elements : 0;
        offsets[i / 2][i % 2] = a.shift + row * a.pitch + (inside ? element - row * a.window_elements : 0);
    }
    warp_sums sums = {};
    int buffer = 0;
    for (u32 index = blockIdx.x; index < (u32)a.band_count; index += gridDim.x, buffer ^= 1) {
        u32 *current = shared + buffer * stage;
        wait_for_copies();
        __syncthreads(); /* the band has arrived, and the previous one is no longer used */
        if (index + gridDim.x < (u32)a.band_count) fetch(index + gridDim.x, shared + (buffer ^ 1) * stage);
        const u32 *words = unpack_patch(a, current + a.y_words, shared + 2 * stage, T());
        __syncthreads();
        add_band<T>(a, r, band_of(a, index).rows, words, current, offsets, sums);
    }
    add_groups(a, r, sums, (float *)shared);
    store_partial(a, first_channel, (const float *)shared);
}

/* A block sums 32 results: each warp adds every eighth partial sum, then the warps' sums are added. */
template <typename T> __global__ void conv_few_channels_sum(conv_few_channels_sum_args a) {
    enum { PHASES = 8 };
    __shared__ float sums[PHASES][32];
    int phase = threadIdx.x / 32, lane = threadIdx.x % 32;
    i64 i = (i64)blockIdx.x * 32 + lane, count = (i64)a.window * a.out;
    float sum = 0;
    if (i < count) {
#pragma unroll 8
        for (int part = phase; part < a.blocks; part += PHASES) sum += a.partial[part * count + i];
    }
    sums[phase][lane] = sum;
    __syncthreads();
    if (phase || i >= count) return;
    for (int p = 1; p < PHASES; p++) sum += sums[p][lane];
    i64 element = i / a.out, channel = i - element * a.out;
    ((T *)a.filter)[channel * a.window + element] = narrow<T>(sum);
}
