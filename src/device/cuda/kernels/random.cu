/* Random numbers on the GPU: the functions of src/base/draw.h.
 *
 * A thread computes a Philox block, four words, and stores the four elements generated from it: only the ordinals are
 * read, y is written once. Uniform and Bernoulli numbers are bitwise those of the CPU: products and sums are rounded
 * separately, never fused. Normal numbers use log, sqrt and sincospi in f64, as the reference kernel does; they may
 * differ from it in the last bits, because CUDA's functions differ from those of the C library. They are used to
 * initialise variables; dropout and augmentation, which run in every step, use only integers.
 */
#include "extent.cuh"
#include "random_args.h"

struct random_words { u32 word[4]; };

/* Philox4x32-10, as in src/base/philox.c. */
__device__ inline random_words philox(const draw_args &a, u32 block, u32 attempt, u64 ordinal) {
    u32 c0 = block, c1 = attempt, c2 = (u32)ordinal, c3 = (u32)(ordinal >> 32), k0 = a.key[0], k1 = a.key[1];
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u64 product_0 = (u64)0xD2511F53u * c0, product_1 = (u64)0xCD9E8D57u * c2;
        c0 = (u32)(product_1 >> 32) ^ c1 ^ k0;
        c1 = (u32)product_1;
        c2 = (u32)(product_0 >> 32) ^ c3 ^ k1;
        c3 = (u32)product_0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return random_words{{c0, c1, c2, c3}};
}

/* Words 0 and 1 give two independent normals, and so do 2 and 3. */
__device__ inline void standard_normals(const random_words &words, double z[4]) {
#pragma unroll
    for (int pair = 0; pair < 4; pair += 2) {
        double radius = sqrt(-2 * log(((double)words.word[pair] + 1) * 0x1p-32)), sine, cosine;
        sincospi((double)words.word[pair + 1] * 0x1p-31, &sine, &cosine); /* the angle in units of pi is exact */
        z[pair] = radius * cosine;
        z[pair + 1] = radius * sine;
    }
}

/* Numbers beyond two standard deviations, one in twenty, are generated again; the bound keeps the loop finite. */
__device__ inline void truncated_normals(const draw_args &a, u32 block, u64 ordinal, double z[4]) {
    u32 accepted = 0;
    for (u32 attempt = 0; attempt < 64 && accepted != 15; attempt++) {
        double candidate[4];
        standard_normals(philox(a, block, attempt, ordinal), candidate);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            bool accepts = !(accepted >> n & 1) && fabs(candidate[n]) < 2;
            if (accepts) z[n] = candidate[n], accepted |= 1u << n;
        }
    }
}

template <typename T, int DISTRIBUTION> struct random_elements {
    static __device__ inline pack<T, 4> of(const draw_args &a, u32 block, u64 ordinal) {
        double z[4] = {0, 0, 0, 0};
        if (DISTRIBUTION == DRAW_NORMAL)
            standard_normals(philox(a, block, 0, ordinal), z);
        else
            truncated_normals(a, block, ordinal, z);
        pack<T, 4> y;
#pragma unroll
        for (int n = 0; n < 4; n++) y.element[n] = narrow<T>(__dadd_rn(a.a, __dmul_rn(a.b, z[n])));
        return y;
    }
};
template <typename T> struct random_elements<T, DRAW_UNIFORM> {
    static __device__ inline pack<T, 4> of(const draw_args &a, u32 block, u64 ordinal) {
        random_words words = philox(a, block, 0, ordinal);
        pack<T, 4> y;
#pragma unroll
        for (int n = 0; n < 4; n++) {
            double unit = (double)(words.word[n] >> 8) * 0x1p-24;
            y.element[n] = narrow<T>(__dadd_rn(a.a, __dmul_rn(a.b, unit)));
        }
        return y;
    }
};
template <typename T> struct random_elements<T, DRAW_BERNOULLI> {
    static __device__ inline pack<T, 4> of(const draw_args &a, u32 block, u64 ordinal) {
        random_words words = philox(a, block, 0, ordinal);
        pack<T, 4> y;
#pragma unroll
        for (int n = 0; n < 4; n++) y.element[n] = narrow<T>(words.word[n] >> 8 < a.threshold ? 1.0f : 0.0f);
        return y;
    }
};

/* Generates and stores the four elements of a block of one sample. */
template <typename T, int DISTRIBUTION> __device__ inline void fill_block(const draw_args &a, i64 sample, i64 block) {
    pack<T, 4> generated = random_elements<T, DISTRIBUTION>::of(a, (u32)block, (u64)a.ordinals[sample]);
    i64 element = block * 4;
    T *y = (T *)a.y + sample * a.elements_per_sample + element;
    if (a.elements_per_sample % 4 == 0) {
        *(pack<T, 4> *)y = generated;
    } else {
#pragma unroll
        for (int n = 0; n < 4; n++)
            if (element + n < a.elements_per_sample) y[n] = generated.element[n];
    }
}

template <typename T, int DISTRIBUTION, typename I> __global__ void fill_random(draw_args a) {
    for (i64 i = global_thread_index(); i < a.blocks; i += grid_thread_count()) {
        I sample = (I)i, block = divmod_in_place(sample, a.blocks_per_sample);
        fill_block<T, DISTRIBUTION>(a, (i64)sample, (i64)block);
    }
}

/* As tu__draw_key_of in src/base/draw.c. */
__device__ inline u64 mix_bits(u64 x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* The key and the parameters of a block are those of its network. */
template <typename T, int DISTRIBUTION, typename I> __global__ void fill_random_members(draw_members_args m) {
    for (i64 i = global_thread_index(); i < m.draw.blocks; i += grid_thread_count()) {
        I sample = (I)i, block = divmod_in_place(sample, m.draw.blocks_per_sample), member = sample;
        divmod_in_place(member, m.samples_per_member);
        draw_args a = m.draw;
        u64 key = mix_bits(m.operation + mix_bits(m.seeds[member] + 0x9e3779b97f4a7c15ull));
        a.key[0] = (u32)key, a.key[1] = (u32)(key >> 32);
        double first = m.a[member], second = m.b[member];
        a.a = first;
        a.b = DISTRIBUTION == DRAW_UNIFORM ? __dadd_rn(second, -first) : second;
        if (DISTRIBUTION == DRAW_BERNOULLI) a.threshold = (u32)ceil(fmin(fmax(first, 0.0), 1.0) * 0x1p24);
        fill_block<T, DISTRIBUTION>(a, (i64)sample, (i64)block);
    }
}
