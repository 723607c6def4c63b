/* Tests of communicators between devices of one process: the ranks' results are those that graph/ops/collective.c
 * describes, bit for bit, if the ranks run one after another or in parallel. */
#include "test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/parallel.h"
#include "comm/comm.h"
#include "comm/communicator.h"
#include "comm/lines.h"

enum { MAX_RANKS = 9, VALUES = 5, GUARD = 64 };

static const tu_dtype float_types[] = {TU_F32, TU_F64, TU_BF16, TU_F16};

enum { ROOT = 1 };

/* Several values on several ranks; memory after each `out` must not change. */
typedef struct group {
    tu__communicator c;
    tu_dtype dtype;
    size_t counts
        [VALUES]; /* elements of one rank's rows: of the whole value, or of the shorter of `in` and `out` */
    void *out[VALUES][MAX_RANKS];
    unsigned char *blocks[2 * VALUES * MAX_RANKS];
    size_t block_count;
} group;

/* Types whose elements are only copied hold small integers. */
static double input_element(size_t v, uint32_t r, size_t i, tu_dtype dtype) {
    size_t number = (i * 31 + v * 7 + r * 13) % 101;
    if (dtype == TU_BOOL) return (double)(number % 2);
    return tu_dtype_is_float(dtype) ? tu__round_to(dtype, (double)number / 7 - 6) : (double)number;
}

static void *allocate_guarded(group *g, size_t bytes) {
    unsigned char *block = aligned_alloc(64, (bytes + GUARD + 63) & ~(size_t)63);
    assert_non_null(block);
    memset(block, 0xa5, bytes + GUARD);
    g->blocks[g->block_count++] = block;
    return block;
}

static size_t input_count(const group *g, size_t v) {
    return g->counts[v] * (g->c.kind == TU__REDUCE_SCATTER ? g->c.ranks : 1);
}

static size_t output_count(const group *g, size_t v) {
    return g->counts[v] * (g->c.kind == TU__ALL_GATHER ? g->c.ranks : 1);
}

static void create_group(group *g, tu__collective_kind kind, tu_dtype dtype, uint32_t ranks,
                         const size_t *counts, bool in_place) {
    tu_type types[VALUES];
    *g = (group){.dtype = dtype};
    for (size_t v = 0; v < VALUES; v++) {
        int64_t rows = kind == TU__REDUCE_SCATTER ? ranks : 1;
        types[v] = (tu_type){dtype, TU_SHAPE(rows, (int64_t)counts[v])};
        g->counts[v] = counts[v];
    }
    assert_int_equal(tu__communicator_new(&g->c, kind, ROOT % ranks, ranks, VALUES, types), TU_OK);
    for (uint32_t v = 0; v < VALUES; v++)
        for (uint32_t r = 0; r < ranks; r++) {
            unsigned char *in = allocate_guarded(g, input_count(g, v) * tu_dtype_size(dtype));
            for (size_t i = 0; i < input_count(g, v); i++)
                tu__store(dtype, in, (int64_t)i, input_element(v, r, i, dtype));
            g->out[v][r] = in_place ? in : allocate_guarded(g, output_count(g, v) * tu_dtype_size(dtype));
            tu__communicator_register(&g->c, r, v, in, g->out[v][r]);
        }
    assert_int_equal(tu__communicator_connect(&g->c), TU_OK);
}

static void free_group(group *g) {
    for (size_t i = 0; i < g->block_count; i++) free(g->blocks[i]);
    tu__communicator_free(&g->c);
}

static double add_pairwise(tu_dtype dtype, uint32_t ranks, size_t v, size_t i) {
    double x[MAX_RANKS];
    for (uint32_t r = 0; r < ranks; r++) x[r] = input_element(v, r, i, dtype);
    for (; ranks > 1; ranks = (ranks + 1) / 2)
        for (uint32_t k = 0; k < (ranks + 1) / 2; k++) {
            double sum = 2 * k + 1 < ranks ? x[2 * k] + x[2 * k + 1] : x[2 * k];
            x[k] = dtype == TU_F64 ? sum : (float)sum;
        }
    return tu__round_to(dtype, x[0]);
}

static double expected_element(const group *g, uint32_t rank, size_t v, size_t i) {
    switch (g->c.kind) {
    case TU__ALL_REDUCE:
    case TU__REDUCE: return add_pairwise(g->dtype, g->c.ranks, v, i);
    case TU__REDUCE_SCATTER: return add_pairwise(g->dtype, g->c.ranks, v, rank * g->counts[v] + i);
    case TU__ALL_GATHER: return input_element(v, (uint32_t)(i / g->counts[v]), i % g->counts[v], g->dtype);
    case TU__BROADCAST: break;
    }
    return input_element(v, g->c.root, i, g->dtype);
}

static void check_outputs(const group *g) {
    size_t size = tu_dtype_size(g->dtype);
    for (size_t v = 0; v < VALUES; v++)
        for (uint32_t r = 0; r < g->c.ranks; r++) {
            const unsigned char *out = g->out[v][r];
            size_t count = output_count(g, v);
            bool has_result = g->c.kind != TU__REDUCE || r == g->c.root;
            for (size_t i = 0; has_result && i < count; i += i < 40 ? 1 : 97) {
                double expected_value = expected_element(g, r, v, i),
                       got = tu__load(g->dtype, out, (int64_t)i);
                if (got != expected_value)
                    fail_msg("%s of %u ranks of %s: element %zu of value %zu on rank %u is %g, expected %g",
                             tu__collective_name(g->c.kind), g->c.ranks, tu_dtype_name(g->dtype), i, v, r,
                             got, expected_value);
            }
            for (size_t k = 0; k < GUARD; k++) assert_int_equal(out[count * size + k], 0xa5);
        }
}

static void run_rank(const group *g, uint32_t rank) {
    for (uint32_t i = 0; i < g->c.combination_count; i++)
        tu__local_combine(&tu__communicator_of_rank(&g->c, rank)[i]);
}

static void run_all_ranks(const group *g) {
    for (uint32_t r = g->c.ranks; r-- > 0;) run_rank(g, r); /* in reverse order: it must not matter */
}

static bool is_summed(tu__collective_kind kind) {
    return kind != TU__ALL_GATHER && kind != TU__BROADCAST;
}

/* Runs all kinds of collectives with all element types that they support. */
static void check_all_kinds(uint32_t ranks, const size_t *counts) {
    for (int dtype = 0; dtype < TU_DTYPE_COUNT; dtype++)
        for (int kind = TU__ALL_REDUCE; kind <= TU__REDUCE; kind++) {
            if (is_summed((tu__collective_kind)kind) && !tu_dtype_is_float((tu_dtype)dtype)) continue;
            group g;
            create_group(&g, (tu__collective_kind)kind, (tu_dtype)dtype, ranks, counts, false);
            run_all_ranks(&g);
            check_outputs(&g);
            free_group(&g);
        }
}

static void collectives_compute_the_documented_result(void **unused) {
    (void)unused;
    static const size_t counts[][VALUES] = {{1, 2, 17, 300, 5}, {1, 1, 3, 1, 1}, {20000, 1, 7777, 64, 12}};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (uint32_t ranks = 1; ranks <= MAX_RANKS; ranks += ranks < 5 ? 1 : 2)
            check_all_kinds(ranks, counts[c]);
}

static void all_reduce_broadcast_and_reduce_may_be_in_place(void **unused) {
    (void)unused;
    static const size_t counts[VALUES] = {100, 3, 5000, 16, 33};
    static const tu__collective_kind kinds[] = {TU__ALL_REDUCE, TU__BROADCAST, TU__REDUCE};
    for (size_t t = 0; t < sizeof float_types / sizeof *float_types; t++)
        for (uint32_t ranks = 1; ranks <= 5; ranks++)
            for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
                group g;
                create_group(&g, kinds[k], float_types[t], ranks, counts, true);
                run_all_ranks(&g);
                check_outputs(&g);
                free_group(&g);
            }
}

/* When addresses change, a communicator is connected again. */
static void a_communicator_can_be_connected_again(void **unused) {
    (void)unused;
    static const size_t counts[VALUES] = {100, 3, 5000, 16, 33};
    group g;
    create_group(&g, TU__ALL_GATHER, TU_F32, 3, counts, false);
    for (uint32_t v = 0; v < VALUES; v++)
        for (uint32_t r = 0; r < 3; r++) {
            const void *in = g.c.in[(size_t)v * 3 + r];
            g.out[v][r] = aligned_alloc(64, (output_count(&g, v) * 4 + GUARD + 63) & ~(size_t)63);
            assert_non_null(g.out[v][r]);
            memset(g.out[v][r], 0xa5, output_count(&g, v) * 4 + GUARD);
            tu__communicator_register(&g.c, r, v, in, g.out[v][r]);
        }
    assert_int_equal(tu__communicator_connect(&g.c), TU_OK);
    run_all_ranks(&g);
    check_outputs(&g);
    for (uint32_t v = 0; v < VALUES; v++)
        for (uint32_t r = 0; r < 3; r++) free(g.out[v][r]);
    free_group(&g);
}

/* The values of a communicator may have several element types: a rank has a combination per type. */
static void every_element_type_is_one_combination(void **unused) {
    (void)unused;
    enum { ELEMENTS = 10, RANKS = 2 };
    const tu_type value_types[] = {
        {TU_F64, TU_SHAPE(ELEMENTS)}, {TU_F32, TU_SHAPE(ELEMENTS)}, {TU_F64, TU_SHAPE(ELEMENTS)}};
    double in[3][RANKS][ELEMENTS], out[3][RANKS][ELEMENTS];
    tu__communicator c;
    assert_int_equal(tu__communicator_new(&c, TU__ALL_REDUCE, 0, RANKS, 3, value_types), TU_OK);
    for (uint32_t v = 0; v < 3; v++)
        for (uint32_t r = 0; r < RANKS; r++) {
            for (int i = 0; i < ELEMENTS; i++)
                tu__store(value_types[v].dtype, in[v][r], i, i + r * 100.0 + v);
            tu__communicator_register(&c, r, v, in[v][r], out[v][r]);
        }
    assert_int_equal(tu__communicator_connect(&c), TU_OK);
    assert_int_equal(c.combination_count, 2);
    for (uint32_t r = 0; r < RANKS; r++)
        for (uint32_t i = 0; i < 2; i++) tu__local_combine(&tu__communicator_of_rank(&c, r)[i]);
    for (uint32_t v = 0; v < 3; v++)
        for (uint32_t r = 0; r < RANKS; r++)
            for (int i = 0; i < ELEMENTS; i++)
                assert_true(tu__load(value_types[v].dtype, out[v][r], i) == 2.0 * i + 100 + 2.0 * v);
    tu__communicator_free(&c);
}

/* The path through the host copies inputs and outputs by rank. */
static void communicators_know_whose_buffers_they_use(void **unused) {
    (void)unused;
    const tu_type type = {TU_F32, TU_SHAPE(3)};
    float in[3][9], out[3][9];
    for (int kind = TU__ALL_REDUCE; kind <= TU__REDUCE; kind++) {
        tu__communicator c;
        assert_int_equal(tu__communicator_new(&c, (tu__collective_kind)kind, 2, 3, 1, &type), TU_OK);
        for (uint32_t r = 0; r < 3; r++) tu__communicator_register(&c, r, 0, in[r], out[r]);
        assert_int_equal(tu__communicator_connect(&c), TU_OK);
        for (uint32_t r = 0; r < 3; r++) {
            const tu_combination *combination = tu__communicator_of_rank(&c, r);
            for (uint32_t s = 0; s < combination->segment_count; s++) {
                for (uint32_t k = 0; k < combination->in_count; k++) {
                    const float *address = combination->segments[s].in[k],
                                *owner = in[tu__communicator_rank_of_input(&c, r, k)];
                    assert_true(address >= owner && address < owner + 9);
                }
                for (uint32_t k = 0; k < combination->out_count; k++) {
                    const float *address = combination->segments[s].out[k],
                                *owner = out[tu__communicator_rank_of_output(&c, r, k)];
                    assert_true(address >= owner && address < owner + 9);
                }
            }
        }
        tu__communicator_free(&c);
    }
}

typedef struct rank_job {
    group *group;
    uint32_t rank;
    int threads;
} rank_job;

static void *run_job(void *argument) {
    const rank_job *job = argument;
    tu__parallel_set_threads(job->threads);
    run_rank(job->group, job->rank);
    return NULL;
}

static void run_in_parallel(tu__collective_kind kind, const size_t *counts, bool in_place) {
    group g;
    pthread_t threads[4];
    rank_job jobs[4];
    create_group(&g, kind, TU_F32, 4, counts, in_place);
    for (uint32_t r = 0; r < 4; r++) {
        jobs[r] = (rank_job){&g, r, 1 + (int)r % 2};
        assert_int_equal(pthread_create(&threads[r], NULL, run_job, &jobs[r]), 0);
    }
    for (uint32_t r = 0; r < 4; r++) pthread_join(threads[r], NULL);
    check_outputs(&g);
    free_group(&g);
}

/* Large enough for non-temporal stores; the ranks run in parallel, and each uses several threads. The rows of a
 * reduce_scatter and an all_gather begin at odd addresses. */
static void ranks_may_run_in_parallel(void **unused) {
    (void)unused;
    static const size_t counts[VALUES] = {1 << 20, 3, 300000, 16, 1000001};
    run_in_parallel(TU__ALL_REDUCE, counts, false);
    run_in_parallel(TU__ALL_REDUCE, counts, true);
    run_in_parallel(TU__REDUCE_SCATTER, counts, false);
    run_in_parallel(TU__ALL_GATHER, counts, false);
    run_in_parallel(TU__BROADCAST, counts, false);
}

/* Every element is in one rank's lines, and ranks differ by at most one line. */
static void lines_cover_every_element_once(void **unused) {
    (void)unused;
    uint32_t random = 1;
    for (int trial = 0; trial < 300; trial++) {
        tu_combine_segment segments[VALUES] = {0};
        tu_combination combination = {
            .dtype = float_types[trial % 4], .segment_count = VALUES, .segments = segments};
        size_t element_count = 0, covered_count = 0, min_lines = SIZE_MAX, max_lines = 0, next_line = 0;
        for (int s = 0; s < VALUES; s++) {
            random = random * 1664525 + 1013904223;
            element_count += segments[s].count = (random >> 10) % (trial % 3 ? 50 : 5000);
        }
        uint32_t ranks = 1 + (uint32_t)trial % MAX_RANKS, segment = 0;
        size_t next = 0;
        for (uint32_t rank = 0; rank < ranks; rank++) {
            size_t first, lines = tu__lines_of_rank(&combination, rank, ranks, &first);
            assert_int_equal(first, next_line);
            next_line += lines;
            min_lines = lines < min_lines ? lines : min_lines;
            max_lines = lines > max_lines ? lines : max_lines;
            tu__segment_range range;
            tu__line_iterator walk = tu__lines_begin(&combination, first, lines);
            while (tu__lines_next(&walk, 100, &range)) {
                while (next == segments[segment].count) segment++, next = 0;
                assert_int_equal(range.segment, segment);
                assert_int_equal(range.first, next);
                assert_true(range.count > 0 && range.count <= 100);
                next += range.count;
                covered_count += range.count;
            }
        }
        assert_int_equal(next_line, tu__line_count(&combination));
        assert_int_equal(covered_count, element_count);
        assert_true(max_lines - min_lines <= 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_compute_the_documented_result),
        cmocka_unit_test(all_reduce_broadcast_and_reduce_may_be_in_place),
        cmocka_unit_test(a_communicator_can_be_connected_again),
        cmocka_unit_test(every_element_type_is_one_combination),
        cmocka_unit_test(communicators_know_whose_buffers_they_use),
        cmocka_unit_test(ranks_may_run_in_parallel),
        cmocka_unit_test(lines_cover_every_element_once),
    };
    return cmocka_run_group_tests_name("collectives", tests, NULL, NULL);
}
