/* Tests of the collectives between devices of one process: the ranks' results are those of comm.h, bit for bit, if
 * the ranks run one after another or in parallel. */
#include "test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/parallel.h"
#include "comm/comm.h"
#include "device/kit/rank_slice.h"

enum { MAX_RANKS = 9, SEGMENTS = 5, GUARD = 64 };

static const tu_dtype types[] = {TU_F32, TU_F64, TU_BF16, TU_F16};

/* Several segments on several ranks; memory after each `out` must not change. */
typedef struct group {
    tu_combination combination;
    tu_combine_segment segments[SEGMENTS];
    const void *in[SEGMENTS][MAX_RANKS];
    void *out[SEGMENTS][MAX_RANKS];
    unsigned char *blocks[2 * SEGMENTS * MAX_RANKS];
    size_t block_count;
} group;

static void *allocate_guarded(group *g, size_t bytes) {
    unsigned char *block = aligned_alloc(64, (bytes + GUARD + 63) & ~(size_t)63);
    assert_non_null(block);
    memset(block, 0xa5, bytes + GUARD);
    g->blocks[g->block_count++] = block;
    return block;
}

static void create_group(group *g, tu_dtype dtype, uint32_t ranks, const size_t *counts, bool in_place) {
    *g = (group){.combination = {.struct_size = sizeof g->combination,
                                 .dtype = dtype,
                                 .ranks = ranks,
                                 .segment_count = SEGMENTS,
                                 .segments = g->segments}};
    for (size_t s = 0; s < SEGMENTS; s++) {
        for (uint32_t r = 0; r < ranks; r++) {
            unsigned char *in = allocate_guarded(g, counts[s] * tu_dtype_size(dtype));
            for (size_t i = 0; i < counts[s]; i++)
                tu__store(dtype, in, (int64_t)i, (double)((i * 31 + s * 7 + r * 13) % 101) / 7 - 6);
            g->in[s][r] = in;
            g->out[s][r] = in_place ? in : allocate_guarded(g, counts[s] * tu_dtype_size(dtype));
        }
        g->segments[s] = (tu_combine_segment){g->in[s], g->out[s], counts[s]};
    }
}

static void free_group(group *g) {
    for (size_t i = 0; i < g->block_count; i++) free(g->blocks[i]);
}

static double input_element(size_t s, uint32_t r, size_t i, tu_dtype dtype) {
    return tu__round_to(dtype, (double)((i * 31 + s * 7 + r * 13) % 101) / 7 - 6);
}

static double add_pairwise(tu_dtype dtype, uint32_t ranks, size_t s, size_t i) {
    double x[MAX_RANKS];
    for (uint32_t r = 0; r < ranks; r++) x[r] = input_element(s, r, i, dtype);
    for (; ranks > 1; ranks = (ranks + 1) / 2)
        for (uint32_t k = 0; k < (ranks + 1) / 2; k++) {
            double sum = 2 * k + 1 < ranks ? x[2 * k] + x[2 * k + 1] : x[2 * k];
            x[k] = dtype == TU_F64 ? sum : (float)sum;
        }
    return tu__round_to(dtype, x[0]);
}

/* Returns the rank whose slice contains an element. */
static uint32_t owner_of(const group *g, size_t segment, size_t element) {
    tu_combination combination = g->combination;
    for (combination.rank = 0; combination.rank < combination.ranks; combination.rank++) {
        tu__rank_slice_range range;
        tu__rank_slice_iterator walk =
            tu__rank_slice_begin(&combination, 0, tu__rank_slice_lines(&combination));
        while (tu__rank_slice_next(&walk, SIZE_MAX, &range))
            if (range.segment == segment && element >= range.first && element < range.first + range.count)
                return combination.rank;
    }
    fail_msg("element %zu of segment %zu is in no rank's slice", element, segment);
    return 0;
}

enum { ROOT = 1 };

static double expected_element(const group *g, tu__collective_kind kind, uint32_t rank, size_t s, size_t i,
                               bool *is_written) {
    uint32_t owner = owner_of(g, s, i);
    *is_written = kind != TU__REDUCE_SCATTER || owner == rank;
    if (kind == TU__ALL_GATHER) return input_element(s, owner, i, g->combination.dtype);
    if (kind == TU__BROADCAST) return input_element(s, ROOT, i, g->combination.dtype);
    return add_pairwise(g->combination.dtype, g->combination.ranks, s, i);
}

static void check_outputs(const group *g, tu__collective_kind kind) {
    size_t size = tu_dtype_size(g->combination.dtype);
    for (size_t s = 0; s < SEGMENTS; s++)
        for (uint32_t r = 0; r < g->combination.ranks; r++) {
            const unsigned char *out = g->out[s][r];
            for (size_t i = 0; i < g->segments[s].count; i += i < 40 ? 1 : 97) {
                bool is_written;
                double expected_value = expected_element(g, kind, r, s, i, &is_written),
                       got = tu__load(g->combination.dtype, out, (int64_t)i);
                if (is_written && got != expected_value)
                    fail_msg(
                        "collective %d of %u ranks of %s: element %zu of segment %zu on rank %u is %g, expected %g",
                        (int)kind, g->combination.ranks, tu_dtype_name(g->combination.dtype), i, s, r, got,
                        expected_value);
                if (!is_written) assert_int_equal(out[i * size], 0xa5);
            }
            for (size_t k = 0; k < GUARD; k++) assert_int_equal(out[g->segments[s].count * size + k], 0xa5);
        }
}

static void run_all_ranks(group *g, tu__collective_kind kind) {
    for (uint32_t r = g->combination.ranks; r-- > 0;) { /* in reverse order: it must not matter */
        tu_combination combination = g->combination;
        combination.rank = r;
        tu__local_collective(kind, ROOT, &combination);
    }
}

static void collectives_compute_the_documented_result(void **unused) {
    (void)unused;
    static const size_t counts[][SEGMENTS] = {{1, 0, 17, 300, 5}, {0, 0, 3, 0, 0}, {20000, 1, 7777, 64, 12}};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++)
            for (uint32_t ranks = 2; ranks <= MAX_RANKS; ranks += ranks < 5 ? 1 : 2)
                for (int kind = TU__ALL_REDUCE; kind <= TU__BROADCAST; kind++) {
                    group g;
                    create_group(&g, types[t], ranks, counts[c], false);
                    run_all_ranks(&g, (tu__collective_kind)kind);
                    check_outputs(&g, (tu__collective_kind)kind);
                    free_group(&g);
                }
}

static void all_reduce_may_be_in_place(void **unused) {
    (void)unused;
    static const size_t counts[SEGMENTS] = {100, 3, 5000, 16, 33};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (uint32_t ranks = 1; ranks <= 5; ranks++) {
            group g;
            create_group(&g, types[t], ranks, counts, true);
            run_all_ranks(&g, TU__ALL_REDUCE);
            check_outputs(&g, TU__ALL_REDUCE);
            free_group(&g);
        }
}

typedef struct rank_job {
    group *group;
    uint32_t rank;
    int threads;
} rank_job;

static void *run_rank(void *argument) {
    const rank_job *p = argument;
    tu_combination combination = p->group->combination;
    combination.rank = p->rank;
    tu__parallel_set_threads(p->threads);
    tu__local_collective(TU__ALL_REDUCE, 0, &combination);
    return NULL;
}

/* Large enough for non-temporal stores; the ranks run in parallel, and each uses several threads. */
static void ranks_may_run_in_parallel(void **unused) {
    (void)unused;
    static const size_t counts[SEGMENTS] = {1 << 20, 3, 300000, 16, 1000001};
    for (int in_place = 0; in_place < 2; in_place++) {
        group g;
        pthread_t threads[4];
        rank_job jobs[4];
        create_group(&g, TU_F32, 4, counts, in_place);
        for (uint32_t r = 0; r < 4; r++) {
            jobs[r] = (rank_job){&g, r, 1 + (int)r % 2};
            assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &jobs[r]), 0);
        }
        for (uint32_t r = 0; r < 4; r++) pthread_join(threads[r], NULL);
        check_outputs(&g, TU__ALL_REDUCE);
        free_group(&g);
    }
}

/* Every element is in one slice, and slices differ by at most one cache line. */
static void slices_cover_every_element_once(void **unused) {
    (void)unused;
    uint32_t random = 1;
    for (int trial = 0; trial < 300; trial++) {
        tu_combine_segment segments[SEGMENTS] = {0};
        tu_combination combination = {
            .dtype = types[trial % 4], .segment_count = SEGMENTS, .segments = segments};
        size_t element_count = 0, covered_count = 0, min_lines = SIZE_MAX, max_lines = 0;
        for (int s = 0; s < SEGMENTS; s++) {
            random = random * 1664525 + 1013904223;
            element_count += segments[s].count = (random >> 10) % (trial % 3 ? 50 : 5000);
        }
        combination.ranks = 1 + (uint32_t)trial % MAX_RANKS;
        uint32_t segment = 0;
        size_t next = 0;
        for (combination.rank = 0; combination.rank < combination.ranks; combination.rank++) {
            size_t lines = tu__rank_slice_lines(&combination);
            min_lines = lines < min_lines ? lines : min_lines;
            max_lines = lines > max_lines ? lines : max_lines;
            tu__rank_slice_range range;
            tu__rank_slice_iterator walk = tu__rank_slice_begin(&combination, 0, lines);
            while (tu__rank_slice_next(&walk, 100, &range)) {
                while (next == segments[segment].count) segment++, next = 0;
                assert_int_equal(range.segment, segment);
                assert_int_equal(range.first, next);
                assert_true(range.count > 0 && range.count <= 100);
                next += range.count;
                covered_count += range.count;
            }
        }
        assert_int_equal(covered_count, element_count);
        assert_true(max_lines - min_lines <= 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_compute_the_documented_result),
        cmocka_unit_test(all_reduce_may_be_in_place),
        cmocka_unit_test(ranks_may_run_in_parallel),
        cmocka_unit_test(slices_cover_every_element_once),
    };
    return cmocka_run_group_tests_name("collectives", tests, NULL, NULL);
}
