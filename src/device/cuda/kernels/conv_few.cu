/* y of a convolution whose input has few channels: the first layer of a network, with its bias and rectifier.
 *
 * Libraries lay such images out anew, with 4 or 8 channels, and compute with the added zeros. Here nothing is laid
 * out: in [h, w, c] the elements under one row of a window, its columns times channels, lie side by side (15 of them
 * for 5 columns of 3 channels), so a row of the window is one row of a matrix to multiply with, filled up to 16.
 *
 *     y [pixels, 64] = sum over rows of the window of   x [pixels, 16]  times  filter [16, 64]
 *
 * A block keeps the filter in shared memory, each lane's words side by side, and takes one band of rows of an image
 * after another: the part of x under it, and the products of 32 pixels and 64 channels a warp. x is read about once
 * (3.5 MB for 1024 images of 24 by 24), y is written once, in words of 16 bytes (75 MB in bf16): what it takes is the
 * time to write y. Of bf16 and f16, a word of an operand holds two neighbours and must not straddle: x is
 * kept twice, the second time shifted by one element.
 *
 * Elements beyond the window's row belong to a pixel next to it. The filter is zero there, but zero times infinity is
 * not: they are masked. */
#include "mma.cuh"
#include "conv_few_args.h"

enum { CHANNELS = 64, COLUMN_TILES = CHANNELS / 8, THREADS = 128, WARPS = THREADS / 32, ROW_TILES = 2 };

/* How an element lies in shared memory. */
template <typename T> struct few_stored { typedef u16 type; };
template <> struct few_stored<f32> { typedef u32 type; };
template <typename T> __device__ inline u32 bits_of(T x);
template <> __device__ inline u32 bits_of<bf16>(bf16 x) { return x.bits; }
template <> __device__ inline u32 bits_of<f16>(f16 x) { return x.bits; }
template <> __device__ inline u32 bits_of<f32>(f32 x) { return tf32_bits(x); }

/* Which channel column `column` of tile `tile` stands for: the results of a lane, two columns of each tile, come to lie
 * side by side, eight from the first four tiles and eight from the others. */
__device__ inline int channel_of(int tile, int column) {
    return tile / 4 * 32 + column / 2 * 8 + tile % 4 * 2 + column % 2;
}

/* Words [rows of the window, steps, column tiles, lanes, 2] of the filter. */
template <typename T> __device__ inline void load_filter(const conv_few_args &a, int first_channel, u32 *words) {
    enum { E = mma_word<T>::ELEMENTS, K = mma_word<T>::K };
    int count = a.window_rows * a.row_steps * COLUMN_TILES * 64, row_words = a.row_steps * COLUMN_TILES * 64;
    for (int i = threadIdx.x; i < count; i += THREADS) {
        int half = i % 2, lane = i / 2 % 32, tile = i / 64 % COLUMN_TILES, step = i % row_words / (COLUMN_TILES * 64);
        int row = i / row_words, at = step * K + (lane % 4 + 4 * half) * E;
        int channel = first_channel + channel_of(tile, lane / 4);
        const T *from = (const T *)a.filter + ((i64)channel * a.window_rows + row) * a.window_elements;
        u32 word = 0;
        for (int e = 0; e < E; e++)
            if (at + e < a.window_elements) word |= bits_of(from[at + e]) << 16 * e;
        words[i] = word;
    }
}

/* What lies under a band, from its first row in the image on, with zeros for the padding. `shifted`: NULL, or a second
 * copy whose element i is element i + 1 of the first. */
template <typename T, typename S>
__device__ inline void load_patch(const conv_few_args &a, const T *image, int first_row, S *patch, S *shifted) {
    for (int row = 0; row < a.patch_rows; row++) {
        int x_row = first_row * a.row_stride + row - a.pad_rows;
        const T *from = image + (i64)x_row * a.row_elements;
        for (int i = threadIdx.x; i < a.patch_elements; i += THREADS) {
            int at = i - a.pad_elements;
            bool inside = x_row >= 0 && x_row < a.x_height && at >= 0 && at < a.row_elements;
            S value = inside ? (S)bits_of(from[at]) : S(0);
            patch[row * a.pitch + i] = value;
            if (shifted && i > 0) shifted[row * a.pitch + i - 1] = value;
        }
    }
}

/* Eight results of a pixel and lane, with what follows them. */
template <typename T>
__device__ inline void store_eight(const conv_few_args &a, T *to, int channel, const float (&sums)[COLUMN_TILES][4],
                                   int first_tile, int first) {
    enum { N = 16 / sizeof(T) };
    const T *bias = (const T *)a.bias;
#pragma unroll
    for (int i = 0; i < 8; i += N) {
        pack<T, N> result;
#pragma unroll
        for (int e = 0; e < N; e++) {
            float value = sums[first_tile + (i + e) / 2][first + (i + e) % 2];
            if (bias) value += widen(bias[channel + i + e]);
            result.element[e] = narrow<T>(a.relu && value < 0.0f ? 0.0f : value);
        }
        *(pack<T, N> *)(to + i) = result;
    }
}

template <typename T> __global__ void __launch_bounds__(THREADS, 3) conv_few(conv_few_args a) {
    enum { E = mma_word<T>::ELEMENTS, K = mma_word<T>::K };
    typedef typename few_stored<T>::type S;
    extern __shared__ u32 room[];
    int steps = a.window_rows * a.row_steps, patch_words = (a.patch_rows * a.pitch + K) / E;
    u32 *filter = room, *patch = room + steps * COLUMN_TILES * 64, *shifted = patch + patch_words;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, own = lane % 4;
    int first_channel = blockIdx.y * CHANNELS;
    load_filter<T>(a, first_channel, filter);

    /* what a lane keeps of its two words in the last step of a window's row */
    u32 kept[2];
    for (int half = 0; half < 2; half++) {
        int at = (a.row_steps - 1) * K + (own + 4 * half) * E;
        kept[half] = at + E <= a.window_elements ? 0xffffffffu : at < a.window_elements ? 0x0000ffffu : 0u;
    }
    for (i64 number = blockIdx.x; number < a.band_count; number += gridDim.x) {
        i64 image = number / a.bands;
        int first_row = (int)(number - image * a.bands) * a.band_rows;
        int rows = a.y_height - first_row < a.band_rows ? a.y_height - first_row : a.band_rows;
        int pixels = rows * a.y_width;
        const T *x = (const T *)a.x + image * a.x_height * a.row_elements;
        T *y = (T *)a.y + ((image * a.y_height + first_row) * a.y_width) * a.out + first_channel;
        __syncthreads(); /* nobody reads the patch before */
        load_patch<T, S>(a, x, first_row, (S *)patch, E == 2 ? (S *)shifted : (S *)0);
        __syncthreads();
        for (int first = warp * 16 * ROW_TILES; first < pixels; first += WARPS * 16 * ROW_TILES) {
            float sums[ROW_TILES][COLUMN_TILES][4] = {};
            const u32 *at[ROW_TILES][2]; /* the first word of each of the lane's pixels */
#pragma unroll
            for (int tile = 0; tile < ROW_TILES; tile++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    u32 pixel = (u32)(first + 16 * tile + 8 * half + group);
                    if (pixel >= (u32)pixels) pixel = 0; /* computed, not stored */
                    int column = (int)divide_off(pixel, a.width), row = (int)pixel;
                    int element = row * a.row_stride * a.pitch + column * a.pixel_stride;
                    at[tile][half] = (E == 2 && element % 2 ? shifted : patch) + element / E + own;
                }
            const u32 *b_words = filter + 2 * lane;
            for (int row = 0; row < a.window_rows; row++)
                for (int step = 0; step < a.row_steps; step++, b_words += COLUMN_TILES * 64) {
                    int offset = (row * a.pitch + step * K) / E;
                    bool last = step == a.row_steps - 1;
                    u32 words[ROW_TILES][4];
#pragma unroll
                    for (int tile = 0; tile < ROW_TILES; tile++)
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            words[tile][i] = at[tile][i % 2][offset + i / 2 * 4] & (last ? kept[i / 2] : 0xffffffffu);
#pragma unroll
                    for (int column = 0; column < COLUMN_TILES; column++) {
                        pack<u32, 2> b = *(const pack<u32, 2> *)(b_words + column * 64);
#pragma unroll
                        for (int tile = 0; tile < ROW_TILES; tile++)
                            mma<T>(sums[tile][column], words[tile], b.element);
                    }
                }
#pragma unroll
            for (int tile = 0; tile < ROW_TILES; tile++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    int pixel = first + 16 * tile + 8 * half + group;
                    if (pixel >= pixels) continue;
#pragma unroll
                    for (int side = 0; side < 2; side++) {
                        int channel = 32 * side + 8 * own;
                        store_eight<T>(a, y + (i64)pixel * a.out + channel, first_channel + channel, sums[tile],
                                       4 * side, 2 * half);
                    }
                }
        }
    }
}
