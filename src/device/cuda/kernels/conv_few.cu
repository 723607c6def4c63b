/* Convolutions whose input has few channels, first layers of networks: y with its bias and rectifier, and the gradient of
 * the filter.
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
 * not: they are masked.
 *
 * The gradient of the filter is the same product turned around,
 *
 *     filter [16, 64] of each row of the window = x [pixels, 16] transposed  times  y's gradient [pixels, 64]
 *
 * Here a warp keeps all sums of five rows of the window in registers and the warps share out the pixels, so that x and y are
 * fetched from shared memory once: two neighbouring pixels make a word, of y put together on the way in. Blocks
 * take bands as above, then add up their warps' sums, warp by warp, and leave them for a second kernel to add
 * in the order of blocks. y is read once, and that is the time it takes. */
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

/* put(i, load(i)) for all i, dealt out to the threads: BATCH loads of each are under way at a time, since what is loaded
 * to shared memory must have come before anything else begins. */
template <int BATCH, typename V, typename L, typename P> __device__ inline void for_all(int count, L load, P put) {
    for (int first = threadIdx.x; first < count; first += THREADS * BATCH) {
        V values[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++)
            if (first + b * THREADS < count) values[b] = load(first + b * THREADS);
#pragma unroll
        for (int b = 0; b < BATCH; b++)
            if (first + b * THREADS < count) put(first + b * THREADS, values[b]);
    }
}

/* Words [rows of the window, steps, column tiles, lanes, 2] of the filter. */
template <typename T> __device__ inline void load_filter(const conv_few_args &a, int first_channel, u32 *words) {
    enum { E = mma_word<T>::ELEMENTS, K = mma_word<T>::K, STEP_WORDS = COLUMN_TILES * 64 };
    auto load = [&](int i) {
        int half = i % 2, lane = i / 2 % 32, tile = i / 64 % COLUMN_TILES;
        int row = i / STEP_WORDS / a.row_steps, step = i / STEP_WORDS % a.row_steps;
        int at = step * K + (lane % 4 + 4 * half) * E, channel = first_channel + channel_of(tile, lane / 4);
        const T *from = (const T *)a.filter + ((i64)channel * a.window_rows + row) * a.window_elements;
        u32 word = 0;
        for (int e = 0; e < E; e++)
            if (at + e < a.window_elements) word |= bits_of(from[at + e]) << 16 * e;
        return word;
    };
    for_all<10, u32>(a.window_rows * a.row_steps * STEP_WORDS, load, [&](int i, u32 word) { words[i] = word; });
}

/* What lies under a band, from its first row in the image on, with zeros for the padding. `shifted`: NULL, or a second
 * copy whose element i is element i + 1 of the first. */
template <typename T, typename S>
__device__ inline void load_patch(const conv_few_args &a, const T *image, int first_row, S *patch, S *shifted) {
    auto load = [&](int i) {
        u32 row = (u32)i;
        int at = (int)divide_off(row, a.patch_elements) - a.pad_elements;
        int x_row = first_row * a.row_stride + (int)row - a.pad_rows;
        bool inside = x_row >= 0 && x_row < a.x_height && at >= 0 && at < a.row_elements;
        return inside ? (S)bits_of(image[(i64)x_row * a.row_elements + at]) : S(0);
    };
    auto put = [&](int i, S value) {
        u32 row = (u32)i;
        int column = (int)divide_off(row, a.patch_elements), at = (int)row * a.pitch + column;
        patch[at] = value;
        if (shifted && column) shifted[at - 1] = value;
    };
    for_all<8, S>(a.patch_rows * (int)a.patch_elements.divisor, load, put);
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

template <typename T> __global__ void __launch_bounds__(THREADS, 4) conv_few(conv_few_args a) {
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

/* ---- The gradient of the filter ---- */

enum {
    TILES = 5,     /* of 16 elements of the window that a block sums */
    Y_PITCH = 72,  /* words from one pixel, or pair of pixels, of y to the next: no two lanes' words share a bank */
    SUM_PITCH = 65 /* of sums [16 * TILES, 64] */
};

/* y under a band as words [pixels / elements of a word, 64]: a word holds a channel of one pixel, or of two neighbours.
 * Zeros fill the last word row, and those up to a multiple of K. */
template <typename T> struct few_y {
    struct both { pack<T, 8> pixel[2]; };
    static __device__ inline void load(const T *y, int out, int pixels, int end, u32 *words) {
        auto load = [&](int i) {
            int pair = i / (CHANNELS / 8), channel = i % (CHANNELS / 8) * 8;
            both b = {};
            for (int p = 0; p < 2; p++)
                if (2 * pair + p < pixels) b.pixel[p] = *(const pack<T, 8> *)(y + (2 * pair + p) * out + channel);
            return b;
        };
        auto put = [&](int i, const both &b) {
            u32 *to = words + i / (CHANNELS / 8) * Y_PITCH + i % (CHANNELS / 8) * 8;
            for (int half = 0; half < 2; half++) {
                pack<u32, 4> four;
                for (int e = 0; e < 4; e++)
                    four.element[e] = bits_of(b.pixel[0].element[4 * half + e]) |
                                      bits_of(b.pixel[1].element[4 * half + e]) << 16;
                *(pack<u32, 4> *)(to + 4 * half) = four;
            }
        };
        for_all<4, both>(end / 2 * (CHANNELS / 8), load, put);
    }
};
template <> struct few_y<f32> {
    static __device__ inline void load(const f32 *y, int out, int pixels, int end, u32 *words) {
        auto load = [&](int i) {
            int pixel = i / (CHANNELS / 4), channel = i % (CHANNELS / 4) * 4;
            pack<f32, 4> four = {};
            if (pixel < pixels) four = *(const pack<f32, 4> *)(y + pixel * out + channel);
            return four;
        };
        auto put = [&](int i, const pack<f32, 4> &four) {
            pack<u32, 4> bits;
            for (int e = 0; e < 4; e++) bits.element[e] = tf32_bits(four.element[e]);
            *(pack<u32, 4> *)(words + i / (CHANNELS / 4) * Y_PITCH + i % (CHANNELS / 4) * 4) = bits;
        };
        for_all<8, pack<f32, 4>>(end * (CHANNELS / 4), load, put);
    }
};

/* The sums of one warp after the other, into [16 * TILES, SUM_PITCH]. */
__device__ inline void add_warps(const float (&sums)[TILES][COLUMN_TILES][4], float *all) {
    int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, own = threadIdx.x % 4;
    for (int turn = 0; turn < WARPS; turn++) {
        __syncthreads();
        if (warp != turn) continue;
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
#pragma unroll
            for (int column = 0; column < COLUMN_TILES; column++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float *at = all + (16 * tile + group + i / 2 * 8) * SUM_PITCH + 8 * column + 2 * own + i % 2;
                    *at = turn ? *at + sums[tile][column][i] : sums[tile][column][i];
                }
    }
    __syncthreads();
}

/* Blocks: x takes bands, y five tiles of the window's elements each, z 64 channels. */
template <typename T> __global__ void __launch_bounds__(THREADS, 2) conv_few_filter(conv_few_args a) {
    enum { E = mma_word<T>::ELEMENTS, K = mma_word<T>::K };
    typedef typename few_stored<T>::type S;
    extern __shared__ u32 room[];
    S *patch = (S *)(room + (a.band_rows * a.y_width + K) / E * Y_PITCH);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, own = lane % 4;
    int first_channel = blockIdx.z * CHANNELS, first_tile = blockIdx.y * TILES;
    int tiles = a.window_rows * a.row_steps - first_tile;
    float sums[TILES][COLUMN_TILES][4] = {};
    for (i64 number = blockIdx.x; number < a.band_count; number += gridDim.x) {
        i64 image = number / a.bands;
        int first_row = (int)(number - image * a.bands) * a.band_rows;
        int rows = a.y_height - first_row < a.band_rows ? a.y_height - first_row : a.band_rows;
        int pixels = rows * a.y_width, end = (pixels + K - 1) / K * K;
        const T *x = (const T *)a.x + image * a.x_height * a.row_elements;
        const T *y = (const T *)a.y + ((image * a.y_height + first_row) * a.y_width) * a.out + first_channel;
        __syncthreads(); /* nobody reads the band before */
        load_patch<T, S>(a, x, first_row, patch, (S *)0);
        few_y<T>::load(y, a.out, pixels, end, room);
        __syncthreads();
        for (int first = warp * K; first < end; first += WARPS * K) {
            int at[2][E]; /* elements under the window's first row, of each pixel in each of the lane's words */
            bool inside[2][E];
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int e = 0; e < E; e++) {
                    u32 pixel = (u32)(first + (own + 4 * half) * E + e);
                    inside[half][e] = pixel < (u32)pixels;
                    if (!inside[half][e]) pixel = 0;
                    int column = (int)divide_off(pixel, a.width);
                    at[half][e] = (int)pixel * a.row_stride * a.pitch + column * a.pixel_stride + group;
                }
            u32 y_words[COLUMN_TILES][2];
#pragma unroll
            for (int column = 0; column < COLUMN_TILES; column++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    y_words[column][half] = room[(first / E + own + 4 * half) * Y_PITCH + 8 * column + group];
            int row = first_tile / a.row_steps, part = first_tile % a.row_steps;
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                if (tile >= tiles) break;
                u32 words[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int offset = row * a.pitch + part * 16 + i % 2 * 8;
                    words[i] = 0;
#pragma unroll
                    for (int e = 0; e < E; e++)
                        if (inside[i / 2][e]) words[i] |= (u32)patch[at[i / 2][e] + offset] << 16 * e;
                }
#pragma unroll
                for (int column = 0; column < COLUMN_TILES; column++)
                    mma<T>(sums[tile][column], words, y_words[column]);
                if (++part == a.row_steps) part = 0, row++;
            }
        }
    }
    float *all = (float *)room;
    add_warps(sums, all);
    float *partial = a.partial + (i64)blockIdx.x * a.out * a.window_rows * a.window_elements;
    for (int i = threadIdx.x; i < CHANNELS * TILES * 16; i += THREADS) {
        int element = i % 16, tile = i / 16 % TILES, channel = i / (16 * TILES);
        int row = (first_tile + tile) / a.row_steps, at = (first_tile + tile) % a.row_steps * 16 + element;
        if (tile < tiles && at < a.window_elements)
            partial[((i64)(first_channel + channel) * a.window_rows + row) * a.window_elements + at] =
                all[(16 * tile + element) * SUM_PITCH + channel];
    }
}

/* A block adds 32 results: its warps every eighth part each, then together. */
template <typename T> __global__ void conv_few_sum(conv_few_sum_args a) {
    enum { PHASES = 8 };
    __shared__ float sums[PHASES][32];
    int phase = threadIdx.x / 32, lane = threadIdx.x % 32;
    i64 i = (i64)blockIdx.x * 32 + lane;
    float sum = 0;
    if (i < a.count) {
#pragma unroll 8
        for (int part = phase; part < a.parts; part += PHASES) sum += a.partial[part * a.count + i];
    }
    sums[phase][lane] = sum;
    __syncthreads();
    if (phase || i >= a.count) return;
    for (int p = 1; p < PHASES; p++) sum += sums[p][lane];
    ((T *)a.out)[i] = narrow<T>(sum);
}
