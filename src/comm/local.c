/* The work of one rank in host memory: see comm.h.
 *
 * Sums are computed tile by tile, such that a tile stays in the L1 cache: inputs are read in place, partial sums are
 * kept in one tile per level of the tree, and the result is written to every output from the last one. The loops are
 * those of the CPU device, compiled for each instruction set. */
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/parallel.h"
#include "comm/comm.h"
#include "comm/lines.h"
#include "device/cpu/isa/loops.h"

enum {
    TILE_BYTES =
        /* Measured: with larger tiles, the inputs of two ranks have left the L1 cache when they are overwritten. */
    2048,
    MAX_LEVELS = 8, /* levels of a tree of up to 128 inputs */
    /* Total bytes from which on outputs have left the caches before they are read. */
    STREAMED_BYTES = 16 << 20,
};

typedef struct tiles {
    _Alignas(64) char level[MAX_LEVELS][TILE_BYTES];
} tiles;

/* Returns the number of elements in a tile. f64 is added in f64, every other type in f32. */
static size_t tile_elements(tu_dtype dtype) {
    return TILE_BYTES / (dtype == TU_F64 ? sizeof(double) : sizeof(float));
}

static const char *element_at(const void *base, tu_dtype dtype, size_t element) {
    return (const char *)base + element * tu_dtype_size(dtype);
}

/* True if elements are added in their own type. */
static bool is_added_in_place(tu_dtype dtype) {
    return dtype == TU_F32 || dtype == TU_F64;
}

/* Returns one input's elements in the type they are added in: in place, or converted into `tile`. */
static const void *load_operand(const cpu_loops *loops, tu_dtype dtype, const void *from, size_t count,
                                void *tile) {
    if (is_added_in_place(dtype)) return from;
    loops->convert->load[dtype]((int64_t)count, from, tile);
    return tile;
}

/* Adds two arrays. The loops read a third operand, which is ignored. */
static void add_arrays(const cpu_loops *loops, tu_dtype dtype, size_t count, const void *x, const void *y,
                       void *sum) {
    if (dtype == TU_F64)
        loops->pointwise_f64[TU__OP_ADD]((int64_t)count, x, y, y, 0, 0, sum);
    else
        loops->pointwise[TU__OP_ADD]((int64_t)count, x, y, y, 0, 0, sum);
}

/* Adds a tile of elements from `first` on, pairwise in the order of inputs, and returns the sums: in `out` if the elements
 * are added in their own type, otherwise in a tile. `out` may be NULL. Partial sums are combined like the digits of a
 * binary counter; those left at the end are added from the right. */
static const void *add_tile(tu_dtype dtype, uint32_t in_count, const void *const *in, size_t first,
                            size_t count, tiles *t, void *out) {
    const cpu_loops *loops = cpu_loops_for_this_machine();
    const void *partial[MAX_LEVELS] = {0};
    uint32_t depth = 0;
    for (uint32_t k = 0; k < in_count; k++) {
        partial[depth] = load_operand(loops, dtype, element_at(in[k], dtype, first), count, t->level[depth]);
        depth++;
        for (uint32_t carry = k + 1; depth > 1 && (carry % 2 == 0 || k + 1 == in_count); carry /= 2) {
            depth--;
            bool is_last = depth == 1 && k + 1 == in_count && is_added_in_place(dtype) && out;
            void *sum = is_last ? out : t->level[depth - 1];
            add_arrays(loops, dtype, count, partial[depth - 1], partial[depth], sum);
            partial[depth - 1] = sum;
        }
    }
    return partial[0];
}

/* Converts a sum to the stored type, if needed. */
static const void *to_stored_type(tu_dtype dtype, const void *sum, size_t count, void *tile) {
    if (is_added_in_place(dtype)) return sum;
    cpu_loops_for_this_machine()->convert->store[dtype]((int64_t)count, sum, tile);
    return tile;
}

static void copy_unless_in_place(void *to, const void *from, size_t bytes) {
    if (to != from) memcpy(to, from, bytes);
}

enum { NON_TEMPORAL_ALIGNMENT = 16 }; /* of `to` in copy_non_temporal */

/* Copies with non-temporal stores, which do not read the cache line first. */
static void copy_non_temporal(void *to, const void *from, size_t bytes) {
#ifdef __SSE2__
    size_t words = bytes / sizeof(__m128i);
    for (size_t i = 0; i < words; i++)
        _mm_stream_si128((__m128i *)to + i, _mm_loadu_si128((const __m128i *)from + i));
    size_t done = words * sizeof(__m128i);
    memcpy((char *)to + done, (const char *)from + done, bytes - done);
#else
    memcpy(to, from, bytes);
#endif
}

void tu__local_add(tu_dtype dtype, uint32_t in_count, const void *const *in, size_t count, void *out) {
    size_t max = tile_elements(dtype), size = tu_dtype_size(dtype);
    tiles t;
    if (in_count == 1) {
        copy_unless_in_place(out, in[0], count * size);
        return;
    }
    for (size_t first = 0, chunk; first < count; first += chunk) {
        char *to = (char *)out + first * size;
        chunk = count - first < max ? count - first : max;
        const void *sum = add_tile(dtype, in_count, in, first, chunk, &t, to);
        copy_unless_in_place(to, to_stored_type(dtype, sum, chunk, t.level[MAX_LEVELS - 1]), chunk * size);
    }
}

/* ---- The work of one rank ---- */

typedef struct rank_work {
    const tu_combination *combination;
    bool non_temporal; /* sums that do not fit the caches */
} rank_work;

static bool is_sum(const tu_combination *c) {
    return c->in_count > 1;
}

/* Returns the elements of a chunk: a tile for sums, otherwise a good size for memcpy. */
static size_t chunk_elements(const tu_combination *c) {
    enum { COPIED_BYTES = 1 << 18 };
    return is_sum(c) ? tile_elements(c->dtype) : COPIED_BYTES / tu_dtype_size(c->dtype);
}

/* Returns the result for a chunk. */
static const void *compute_chunk(const tu_combination *c, const tu_combine_segment *s,
                                 const tu__segment_range *range, tiles *t) {
    if (!is_sum(c)) return element_at(s->in[0], c->dtype, range->first);
    const void *sum = add_tile(c->dtype, c->in_count, s->in, range->first, range->count, t, NULL);
    return to_stored_type(c->dtype, sum, range->count, t->level[MAX_LEVELS - 1]);
}

static void write_chunk(const rank_work *w, const tu__segment_range *range, tiles *t) {
    const tu_combination *c = w->combination;
    const tu_combine_segment *s = &c->segments[range->segment];
    const void *from = compute_chunk(c, s, range, t);
    size_t bytes = range->count * tu_dtype_size(c->dtype);
    for (uint32_t k = 0; k < c->out_count; k++) {
        char *to = (char *)s->out[k] + range->first * tu_dtype_size(c->dtype);
        bool in_cache = k < c->in_count && s->out[k] == s->in[k]; /* in place: just read */
        if (w->non_temporal && !in_cache && (uintptr_t)to % NON_TEMPORAL_ALIGNMENT == 0)
            copy_non_temporal(to, from, bytes);
        else
            copy_unless_in_place(to, from, bytes);
    }
}

/* Makes non-temporal stores visible to other threads before later stores. */
static void fence_non_temporal(void) {
#ifdef __SSE2__
    _mm_sfence();
#endif
}

static void process_lines(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const rank_work *w = context;
    tiles t;
    tu__segment_range chunk;
    tu__line_iterator iterator = tu__lines_begin(w->combination, (size_t)first, (size_t)(last - first));
    while (tu__lines_next(&iterator, chunk_elements(w->combination), &chunk)) write_chunk(w, &chunk, &t);
    fence_non_temporal();
}

/* Returns the bytes that all ranks of a sum write together: there are as many ranks as inputs, with equal shares. */
static size_t total_bytes(const tu_combination *c) {
    size_t count = 0;
    for (uint32_t i = 0; i < c->segment_count; i++) count += c->segments[i].count;
    return count * c->in_count * c->out_count * tu_dtype_size(c->dtype);
}

void tu__local_combine(const tu_combination *combination) {
    enum { GRAIN = 1024 }; /* in cache lines: 64 KB, below which waking a thread costs more than it saves */
    rank_work w = {.combination = combination,
                   .non_temporal = is_sum(combination) && total_bytes(combination) > STREAMED_BYTES};
    tu__parallel_for((int64_t)tu__line_count(combination), GRAIN, process_lines, &w);
}
