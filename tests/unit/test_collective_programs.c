/* Tests of programs with all kinds of collectives over several devices. test_all_reduce.c has more about all-reduce and
 * what all kinds share; replica_graphs.h describes the command line. */
#include <stdlib.h>

#include "base/number.h"
#include "discrete_device.h"
#include "unit/graph_error.h"
#include "unit/replica_graphs.h"

enum { STEPS = 3 };

/* ---- One collective ---- */

/* A program in which every rank passes a matrix to a collective, and returns the result. */
typedef struct exchange {
    tu__collective_kind kind;
    int ranks, root;
    tu_dtype dtype;
    int64_t rows, columns; /* of a rank's input */
    bool is_computed;      /* a kernel computes the input and another one reads the result; both negate */
} exchange;

static int64_t result_rows(const exchange *x) {
    if (x->kind == TU__REDUCE_SCATTER) return x->rows / x->ranks;
    return x->kind == TU__ALL_GATHER ? x->rows * x->ranks : x->rows;
}

/* Adds pairwise, ((0 + 1) + (2 + 3)) + …: in f64 for f64, in f32 for every other type. */
static double add_pairwise(tu_dtype dtype, int ranks, double *x) {
    for (; ranks > 1; ranks = (ranks + 1) / 2)
        for (int k = 0; k < (ranks + 1) / 2; k++) {
            double sum = 2 * k + 1 < ranks ? x[2 * k] + x[2 * k + 1] : x[2 * k];
            x[k] = dtype == TU_F64 ? sum : (float)sum;
        }
    return tu__round_to(dtype, x[0]);
}

/* Returns an element of a rank's result. `data`: the inputs of all ranks. */
static double expected_element(const exchange *x, const void *data, int rank, int64_t i) {
    int64_t count = x->rows * x->columns;
    double terms[MAX_RANKS];
    if (x->kind == TU__ALL_GATHER) return tu__load(x->dtype, data, i);
    if (x->kind == TU__BROADCAST) return tu__load(x->dtype, data, x->root * count + i);
    if (x->kind == TU__REDUCE_SCATTER) i += rank * (count / x->ranks);
    for (int r = 0; r < x->ranks; r++) terms[r] = tu__load(x->dtype, data, r * count + i);
    return add_pairwise(x->dtype, x->ranks, terms);
}

static tu_value build_exchange(const exchange *x, tu_graph *g, tu_value *fetch) {
    tu_shape whole = TU_SHAPE(x->ranks * x->rows, x->columns), shard = TU_SHAPE(x->rows, x->columns);
    tu_value input = tu_input(g, "x", x->dtype, whole);
    for (int r = 0; r < x->ranks; r++) tu_with_device(g, device_name(r)) {
            tu_value value = rows_of(g, "x", r, r * x->rows, x->dtype, shard);
            if (x->is_computed) value = tu_neg(value);
            fetch[r] = collective_of(x->kind, value, 0, r, x->ranks, x->root);
            if (x->is_computed) fetch[r] = tu_neg(fetch[r]);
        }
    return input;
}

/* What a reduce returns on other ranks than the root is unspecified. */
static bool has_result(tu__collective_kind collective_kind, int root, int rank) {
    return collective_kind != TU__REDUCE || rank == root;
}

static void check_results(const exchange *x, const char *data, char *const *got, size_t step) {
    int64_t count = result_rows(x) * x->columns;
    size_t size = tu_dtype_size(x->dtype);
    data += step * (size_t)(x->ranks * x->rows * x->columns) * size;
    for (int r = 0; r < x->ranks; r++)
        for (int64_t i = 0; i < count && has_result(x->kind, x->root, r); i++) {
            double expected = expected_element(x, data, r, i),
                   element = tu__load(x->dtype, got[r] + step * (size_t)count * size, i);
            if (element != expected)
                fail_msg(
                    "%s of %d ranks, %s, root %d, %lld rows of %lld, step %zu: element %lld on rank %d is "
                    "%.9g, expected %.9g",
                    tu__collective_name(x->kind), x->ranks, tu_dtype_name(x->dtype), x->root,
                    (long long)x->rows, (long long)x->columns, step, (long long)i, r, element, expected);
        }
}

/* Runs steps one by one, and then all of them in one call, which executes the command list as a whole on a GPU. */
static void assert_exchange(const exchange *x) {
    tu_value fetch[MAX_RANKS];
    char *got[MAX_RANKS], *data;
    tu_program *program;
    tu_state *state;
    tu_graph *g = new_graph();
    tu_value input = build_exchange(x, g, fetch);
    size_t size = tu_dtype_size(x->dtype), count = (size_t)(x->ranks * x->rows * x->columns),
           bytes = (size_t)(result_rows(x) * x->columns) * size;
    data = malloc(STEPS * count * size);
    for (size_t i = 0; i < STEPS * count; i++)
        tu__store(x->dtype, data, (int64_t)i,
                  tu_dtype_is_float(x->dtype) ? (double)(i * 7919 % 1009) / 63 - 8
                  : x->dtype == TU_BOOL       ? (double)(i * 31 % 7 % 2)
                                              : (double)(i * 31 % 101));
    for (int r = 0; r < x->ranks; r++) got[r] = malloc(STEPS * bytes);
    assert_ok(tu_compile(g, &program, .devices = device_list(x->ranks), .fetch_count = (size_t)x->ranks,
                         .fetch = fetch, .timeout = 60));
    assert_ok(tu_state_new(g, &state));
    for (size_t step = 0; step < STEPS; step++) {
        void *results[MAX_RANKS];
        for (int r = 0; r < x->ranks; r++) results[r] = got[r] + step * bytes;
        assert_ok(tu_run(program, state, 1, &(tu_feed){input, data + step * count * size}, results));
        check_results(x, data, got, step);
    }
    for (int r = 0; r < x->ranks; r++) memset(got[r], 0x55, STEPS * bytes);
    assert_ok(tu_run_many(program, state, STEPS, 1, &(tu_feed_many){.input = input, .data = data},
                          (void *const *)got));
    for (size_t step = 0; step < STEPS; step++) check_results(x, data, got, step);
    for (int r = 0; r < x->ranks; r++) free(got[r]);
    free(data);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

static bool is_summed(tu__collective_kind collective_kind) {
    return collective_kind != TU__ALL_GATHER && collective_kind != TU__BROADCAST;
}

/* Runs a collective with matrices of `rows` rows, or of as many per rank for a reduce_scatter. */
static void assert_kind(tu__collective_kind collective_kind, tu_dtype dtype, int ranks, int64_t rows,
                        int64_t columns) {
    bool is_scattered = collective_kind == TU__REDUCE_SCATTER;
    exchange x = {collective_kind,
                  ranks,
                  ranks - 1,
                  dtype,
                  is_scattered ? rows * ranks : rows,
                  columns,
                  dtype != TU_BOOL && dtype != TU_U8 && dtype != TU_I8};
    assert_exchange(&x);
    x.is_computed = false;
    x.root = 0;
    assert_exchange(&x);
}

static void every_kind_computes_the_documented_result(void **unused) {
    (void)unused;
    for (int k = TU__ALL_REDUCE; k <= TU__REDUCE; k++)
        for (int dtype = 0; dtype < TU_DTYPE_COUNT; dtype++) {
            if (is_summed((tu__collective_kind)k) && !tu_dtype_is_float((tu_dtype)dtype)) continue;
            assert_kind((tu__collective_kind)k, (tu_dtype)dtype, 2 + dtype % 3, 3, 7); /* unaligned rows */
        }
}

static void values_of_any_size_are_exchanged(void **unused) {
    (void)unused;
    for (int k = TU__ALL_REDUCE; k <= TU__REDUCE; k++) {
        assert_kind((tu__collective_kind)k, TU_F32, 2, 1, 1);
        assert_kind((tu__collective_kind)k, TU_F32, 4, 2, 512);
        assert_kind((tu__collective_kind)k, TU_BF16, 3, 5, 3001);
    }
}

static void up_to_eleven_ranks_exchange_values(void **unused) {
    (void)unused;
    for (int k = TU__ALL_REDUCE; k <= TU__REDUCE; k++) {
        assert_kind((tu__collective_kind)k, TU_F32, 11, 1, 37);
        assert_kind((tu__collective_kind)k, TU_F16, 9, 2, 16);
    }
}

/* Devices without peer access exchange values through the host, in several pieces if they are large. */
static void values_go_through_the_host(void **unused) {
    (void)unused;
    const char *before = kind;
    bool were_physical = physical;
    register_discrete_device();
    kind = "discrete", physical = false;
    for (int k = TU__ALL_REDUCE; k <= TU__REDUCE; k++) {
        assert_kind((tu__collective_kind)k, TU_F32, 3, 5, 7);
        assert_kind((tu__collective_kind)k, TU_BF16, 2, 3, 100001);
        if (!is_summed((tu__collective_kind)k)) assert_kind((tu__collective_kind)k, TU_I64, 3, 5, 7);
    }
    kind = before, physical = were_physical;
    assert_int_equal(discrete.live_allocations, 0);
}

/* ---- Several collectives ---- */

typedef struct results {
    tu_program *program;
    tu_state *state;
} results;

static void compile(results *p, tu_graph *g, int ranks, size_t count, const tu_value *fetch) {
    assert_ok(tu_compile(g, &p->program, .devices = device_list(ranks), .fetch_count = count, .fetch = fetch,
                         .timeout = 60));
    assert_ok(tu_state_new(g, &p->state));
}

static void free_results(results *p, tu_graph *g) {
    tu_program_free(p->program);
    tu_state_free(p->state);
    tu_graph_free(g);
}

/* Numbers whose sums are rounded, so that another order of additions would give other bits. */
static void fill_rounded(tu_dtype dtype, void *data, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        tu__store(dtype, data, i, (double)((i * 2654435761u) % 100003) / 997.0 - 50);
}

/* A reduce_scatter followed by an all_gather has the bits of an all_reduce. */
static void assert_composition(tu_dtype dtype, int ranks) {
    enum { ROWS = 3, COLUMNS = 11 };
    tu_graph *g = new_graph();
    int64_t rows = ROWS * ranks, count = rows * COLUMNS;
    tu_value fetch[2 * MAX_RANKS], x = tu_input(g, "x", dtype, TU_SHAPE(ranks * rows, COLUMNS));
    size_t bytes = (size_t)count * tu_dtype_size(dtype);
    char *data = malloc((size_t)ranks * bytes);
    void *got[2 * MAX_RANKS];
    results p;
    for (int r = 0; r < ranks; r++) tu_with_device(g, device_name(r)) {
            tu_value value = rows_of(g, "x", r, r * rows, dtype, TU_SHAPE(rows, COLUMNS));
            fetch[r] = collective_of(TU__ALL_REDUCE, value, 0, r, ranks, 0);
            fetch[ranks + r] = collective_of(
                TU__ALL_GATHER, collective_of(TU__REDUCE_SCATTER, value, 1, r, ranks, 0), 2, r, ranks, 0);
        }
    compile(&p, g, ranks, 2 * (size_t)ranks, fetch);
    for (int i = 0; i < 2 * ranks; i++) got[i] = malloc(bytes);
    fill_rounded(dtype, data, ranks * count);
    assert_ok(tu_run(p.program, p.state, 1, &(tu_feed){x, data}, got));
    for (int i = 1; i < 2 * ranks; i++) assert_memory_equal(got[i], got[0], bytes);
    for (int i = 0; i < 2 * ranks; i++) free(got[i]);
    free(data);
    free_results(&p, g);
}

static void reduce_scatter_and_all_gather_equal_all_reduce(void **unused) {
    (void)unused;
    static const tu_dtype types[] = {TU_F32, TU_F64, TU_BF16, TU_F16};
    for (int t = 0; t < 4; t++)
        for (int ranks = 2; ranks <= 5; ranks++) assert_composition(types[t], ranks);
}

/* A collective may have values of several types and shapes; its results are inputs of another kind of collective. */
static void collectives_mix_types_and_depend_on_each_other(void **unused) {
    (void)unused;
    enum { RANKS = 3 };
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(RANKS * 2)), fetch[3 * RANKS];
    float data[2 * RANKS], sums[RANKS][2], gathered[RANKS][2 * RANKS];
    double wide[RANKS][RANKS];
    void *got[3 * RANKS];
    results p;
    for (int r = 0; r < RANKS; r++) tu_with_device(g, device_name(r)) {
            tu_value shard = rows_of(g, "x", r, 2 * r, TU_F32, TU_SHAPE(2)),
                     one = tu_slice(tu_cast(shard, TU_F64), 0, 0, 1, 1);
            /* [a0 a1] of every rank, and the first as f64 */
            tu_value all = collective_of(TU__ALL_GATHER, shard, 7, r, RANKS, 0),
                     firsts = collective_of(TU__ALL_GATHER, one, 7, r, RANKS, 0);
            tu_value from_one = collective_of(TU__BROADCAST, tu_scale(all, r + 1), 8, r, RANKS, 1);
            fetch[r] = collective_of(TU__REDUCE_SCATTER, tu_add(all, from_one), 9, r, RANKS, 0);
            fetch[RANKS + r] = from_one;
            fetch[2 * RANKS + r] = firsts;
            got[r] = sums[r], got[RANKS + r] = gathered[r], got[2 * RANKS + r] = wide[r];
        }
    compile(&p, g, RANKS, 3 * (size_t)RANKS, fetch);
    for (int run = 0; run < 3; run++) {
        for (int i = 0; i < 2 * RANKS; i++) data[i] = (float)(i + run);
        assert_ok(tu_run(p.program, p.state, 1, &(tu_feed){x, data}, got));
        for (int r = 0; r < RANKS; r++) {
            for (int i = 0; i < 2 * RANKS; i++) assert_true(gathered[r][i] == 2 * data[i]);
            for (int i = 0; i < 2; i++) assert_true(sums[r][i] == RANKS * 3 * data[2 * r + i]);
            for (int i = 0; i < RANKS; i++) assert_true(wide[r][i] == data[2 * i]);
        }
    }
    free_results(&p, g);
}

/* A broadcast and a reduce overwrite their input, like an all_reduce; a reduce_scatter and an all_gather need memory for both. */
static void only_results_of_the_same_shape_overwrite_their_inputs(void **unused) {
    (void)unused;
    enum { COLUMNS = 1 << 18 };
    static const struct {
        tu__collective_kind kind;
        size_t most, least; /* scratch memory, in vectors of COLUMNS */
    } cases[] = {{TU__ALL_REDUCE, 4, 2},
                 {TU__BROADCAST, 4, 2},
                 {TU__REDUCE, 4, 2},
                 {TU__REDUCE_SCATTER, 5, 3},
                 {TU__ALL_GATHER, 10, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exchange x = {cases[i].kind, 2, 0, TU_F32, 2, COLUMNS, true};
        tu_value fetch[2];
        tu_program *program;
        tu_graph *g = new_graph();
        build_exchange(&x, g, fetch);
        assert_ok(tu_compile(g, &program, .devices = device_list(2), .fetch_count = 2, .fetch = fetch,
                             .plan_only = true));
        tu_memory_report report = TU_SIZED(tu_memory_report);
        assert_ok(tu_program_memory(program, 0, &report));
        assert_in_range(report.scratch_bytes, cases[i].least * COLUMNS * 4,
                        cases[i].most * COLUMNS * 4 + 4096);
        tu_program_free(program);
        tu_graph_free(g);
    }
}

/* Constants are not folded, and equal collectives are not merged. */
static void constants_are_exchanged(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value fetch[8];
    float got[8][4];
    void *out[8];
    results p;
    for (int r = 0; r < 2; r++) tu_with_device(g, device_name(r)) {
            tu_value known = tu_fill(g, TU_F32, TU_SHAPE(2), r + 1);
            fetch[r] = collective_of(TU__ALL_GATHER, known, 0, r, 2, 0);
            fetch[2 + r] = collective_of(TU__ALL_GATHER, known, 0, r, 2, 0);
            fetch[4 + r] = collective_of(TU__BROADCAST, known, 1, r, 2, 1);
            fetch[6 + r] = collective_of(TU__REDUCE_SCATTER, known, 2, r, 2, 0);
        }
    for (int i = 0; i < 8; i++) out[i] = got[i];
    compile(&p, g, 2, 8, fetch);
    assert_ok(tu_run(p.program, p.state, 0, NULL, out));
    for (int r = 0; r < 2; r++) {
        for (int v = 0; v < 2; v++)
            for (int i = 0; i < 4; i++) assert_int_equal(got[2 * v + r][i], 1 + i / 2);
        assert_true(got[4 + r][0] == 2 && got[4 + r][1] == 2 && got[6 + r][0] == 3);
    }
    free_results(&p, g);
}

/* The ranks may be devices of different kinds, if their memory is host memory. */
static void devices_of_several_kinds_exchange_values(void **unused) {
    (void)unused;
    static const char *const names[] = {"ref:0", "cpu:0"};
    tu_graph *g = new_graph();
    tu_value fetch[2];
    float got[2][6];
    results p;
    for (int r = 0; r < 2; r++) {
        tu_value value = {0};
        tu_with_device(g, names[r]) value = tu_fill(g, TU_F32, TU_SHAPE(3), r + 1);
        fetch[r] = collective_of(TU__ALL_GATHER, value, 0, r, 2, 0);
        g->nodes[fetch[r].node]->device = names[r];
    }
    assert_ok(tu_compile(g, &p.program, .devices = "ref,cpu", .fetch_count = 2, .fetch = fetch));
    assert_ok(tu_state_new(g, &p.state));
    assert_ok(tu_run(p.program, p.state, 0, NULL, (void *[]){got[0], got[1]}));
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 6; i++) assert_int_equal(got[r][i], 1 + i / 3);
    free_results(&p, g);
}

/* ---- Random programs ---- */

enum { WIDTH = 3, MAX_VALUES = 200 };

/* A random program on several devices, and the expected values. A value is short (WIDTH elements) or long (as many per
 * rank). */
typedef struct random_program {
    uint64_t random;
    int ranks;
    tu_graph *g;
    int count;
    tu_value values[MAX_VALUES];
    int rank[MAX_VALUES];
    bool is_long[MAX_VALUES];
    float numbers[MAX_VALUES][WIDTH * MAX_RANKS];
    int64_t collectives;
} random_program;

static int random_below(random_program *s, int below) {
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return (int)((s->random >> 33) % (uint64_t)below);
}

static int width_of(const random_program *s, bool is_long) {
    return is_long ? WIDTH * s->ranks : WIDTH;
}

static float *add_value(random_program *s, int rank, bool is_long, tu_value value) {
    s->values[s->count] = value;
    s->rank[s->count] = rank;
    s->is_long[s->count] = is_long;
    return s->numbers[s->count++];
}

static int find_value(random_program *s, int rank, bool is_long) {
    for (;;) {
        int v = random_below(s, s->count);
        if (s->rank[v] == rank && s->is_long[v] == is_long) return v;
    }
}

/* Adds the mean of two values, one of which may be on another device, or the negative of one. */
static void add_operation(random_program *s) {
    bool is_long = random_below(s, 2), unary = random_below(s, 3) == 0;
    int rank = random_below(s, s->ranks), a = find_value(s, rank, is_long),
        b = find_value(s, random_below(s, 3) ? rank : random_below(s, s->ranks), is_long);
    tu_value result = {0};
    tu_with_device(s->g, device_name(rank)) result =
        unary ? tu_neg(s->values[a])
              : tu_mul(tu_add(s->values[a], s->values[b]), tu_fill(s->g, TU_F32, TU_SCALAR, 0.5));
    float *numbers = add_value(s, rank, is_long, result);
    for (int i = 0; i < width_of(s, is_long); i++)
        numbers[i] = unary ? -s->numbers[a][i] : (s->numbers[a][i] + s->numbers[b][i]) * 0.5f;
}

/* Returns an element of a rank's result, if the ranks pass the values with these indices. */
static float result_element(const random_program *s, tu__collective_kind k, const int *inputs, int root,
                            int rank, int i) {
    double terms[MAX_RANKS];
    if (k == TU__ALL_GATHER) return s->numbers[inputs[i / WIDTH]][i % WIDTH];
    if (k == TU__BROADCAST) return s->numbers[inputs[root]][i];
    if (k == TU__REDUCE_SCATTER) i += rank * WIDTH;
    for (int r = 0; r < s->ranks; r++) terms[r] = s->numbers[inputs[r]][i];
    return (float)add_pairwise(TU_F32, s->ranks, terms);
}

/* Adds a collective of one to three values per rank. The nodes are created rank by rank, so that they are far apart
 * in the graph. */
static void add_collective(random_program *s) {
    tu__collective_kind k = (tu__collective_kind)random_below(s, 5);
    int count = 1 + random_below(s, 3), first = random_below(s, s->ranks), root = random_below(s, s->ranks),
        inputs[3][MAX_RANKS];
    bool is_long[3];
    for (int v = 0; v < count; v++) {
        is_long[v] = k == TU__REDUCE_SCATTER || (k != TU__ALL_GATHER && random_below(s, 2));
        for (int r = 0; r < s->ranks; r++) inputs[v][r] = find_value(s, r, is_long[v]);
    }
    for (int n = 0; n < s->ranks; n++)
        for (int v = 0, r = (first + n) % s->ranks; v < count; v++) {
            bool result_is_long = k == TU__ALL_GATHER || (k != TU__REDUCE_SCATTER && is_long[v]);
            tu_value result = collective_of(k, s->values[inputs[v][r]], s->collectives, r, s->ranks, root);
            if (!has_result(k, root, r)) continue;
            float *numbers = add_value(s, r, result_is_long, result);
            for (int i = 0; i < width_of(s, result_is_long); i++)
                numbers[i] = result_element(s, k, inputs[v], root, r, i);
        }
    s->collectives++;
}

static void build_random_program(random_program *s, uint64_t seed) {
    *s = (random_program){.random = seed, .ranks = 2 + (int)(seed % 3), .g = new_graph()};
    for (int r = 0; r < 2 * s->ranks; r++) tu_with_device(s->g, device_name(r / 2)) {
            char name[16];
            bool is_long = r % 2;
            snprintf(name, sizeof name, "in%d", r);
            float *numbers =
                add_value(s, r / 2, is_long, tu_input(s->g, name, TU_F32, TU_SHAPE(width_of(s, is_long))));
            for (int i = 0; i < width_of(s, is_long); i++) numbers[i] = (float)(1 + r * WIDTH + i) / 4;
        }
    int steps = 10 + random_below(s, 40);
    for (int i = 0; i < steps && s->count < MAX_VALUES - 3 * MAX_RANKS; i++)
        if (random_below(s, 3))
            add_operation(s);
        else
            add_collective(s);
}

/* Fetches some of the values. The others may be computed in place, or not at all. */
static void run_random_program(random_program *s, uint64_t seed) {
    results p;
    tu_feed feeds[2 * MAX_RANKS];
    tu_value fetch[MAX_VALUES];
    static float got[MAX_VALUES][WIDTH * MAX_RANKS];
    int fetched[MAX_VALUES];
    void *out[MAX_VALUES];
    size_t count = 0;
    for (int r = 0; r < 2 * s->ranks; r++) feeds[r] = (tu_feed){s->values[r], s->numbers[r]};
    for (int v = 0; v < s->count; v++) {
        if (random_below(s, 3)) continue;
        fetch[count] = s->values[v], fetched[count] = v, out[count] = got[count];
        count++;
    }
    compile(&p, s->g, s->ranks, count, fetch);
    for (int run = 0; run < 3; run++) {
        memset(got, 0, sizeof got);
        assert_ok(tu_run(p.program, p.state, 2 * (size_t)s->ranks, feeds, out));
        for (size_t k = 0; k < count; k++)
            for (int i = 0; i < width_of(s, s->is_long[fetched[k]]); i++)
                if (got[k][i] != s->numbers[fetched[k]][i])
                    fail_msg("program %llu: element %d of value %d of %d is %g, expected %g",
                             (unsigned long long)seed, i, fetched[k], s->count, got[k][i],
                             s->numbers[fetched[k]][i]);
    }
    free_results(&p, s->g);
}

/* Random copies and collectives neither deadlock nor compute wrong values. */
static void random_programs_compute_the_expected_values(void **unused) {
    (void)unused;
    static random_program s;
    for (uint64_t seed = 1; seed <= 80; seed++) {
        build_random_program(&s, seed);
        run_random_program(&s, seed);
    }
}

/* ---- Errors ---- */

static tu_value collective_on(tu__collective_kind k, tu_value value, int rank, int ranks, int root) {
    return collective_of(k, value, 0, rank, ranks, root);
}

static void wrong_types_and_attributes_are_rejected(void **unused) {
    (void)unused;
    assert_graph_error(collective_on(TU__REDUCE_SCATTER, first_input(TU_F32, TU_SHAPE(7, 2)), 0, 3, 0),
                       "reduce_scatter", "f32[7,2]", "7 rows cannot be divided among 3 ranks",
                       "multiple of the number of ranks");
    assert_graph_error(collective_on(TU__REDUCE_SCATTER, first_input(TU_F32, TU_SCALAR), 0, 2, 0),
                       "reduce_scatter", "the input is a scalar");
    assert_graph_error(collective_on(TU__REDUCE_SCATTER, first_input(TU_I32, TU_SHAPE(2)), 0, 2, 0),
                       "reduce_scatter", "i32[2]", "expected an input of floating-point type");
    assert_graph_error(collective_on(TU__ALL_REDUCE, first_input(TU_BOOL, TU_SHAPE(2)), 0, 2, 0),
                       "all_reduce", "expected an input of floating-point type");
    assert_graph_error(collective_on(TU__ALL_GATHER, first_input(TU_F32, TU_SCALAR), 0, 2, 0), "all_gather",
                       "the input is a scalar");
    assert_graph_error(collective_on(TU__ALL_GATHER, first_input(TU_U8, TU_SHAPE(1 << 30, 1 << 17)), 0, 4, 0),
                       "all_gather", "the rows of 4 ranks are too many", "at most 2^48 elements");
    assert_graph_error(
        collective_on(TU__ALL_GATHER, first_input(TU_U8, TU_SHAPE(1 << 30, 1 << 17)), 0, INT32_MAX, 0),
        "all_gather", "too many");
    assert_graph_error(collective_on(TU__BROADCAST, first_input(TU_F32, TU_SHAPE(2)), 0, 2, 2),
                       "collective_broadcast", "root 2 is not a rank: expected 0 to 1");
    assert_graph_error(collective_on(TU__BROADCAST, first_input(TU_F32, TU_SHAPE(2)), 0, 2, -1),
                       "collective_broadcast", "root -1");
    assert_graph_error(collective_on(TU__REDUCE, first_input(TU_F32, TU_SHAPE(2)), 0, 2, 2),
                       "collective_reduce", "root 2 is not a rank: expected 0 to 1");
    assert_graph_error(collective_on(TU__REDUCE, first_input(TU_I64, TU_SHAPE(2)), 0, 2, 0),
                       "collective_reduce", "expected an input of floating-point type");
    for (int k = TU__ALL_REDUCE; k <= TU__REDUCE; k++)
        assert_graph_error(collective_on((tu__collective_kind)k, first_input(TU_F32, TU_SHAPE(2)), 2, 2, 0),
                           tu__collective_name((tu__collective_kind)k), "rank 2 of 2 in collective 0");
}

static void expect_compile_error(tu_graph *g, const tu_value *fetch, const char *message) {
    tu_program *program;
    assert_int_equal(tu_compile(g, &program, .devices = device_list(3), .fetch_count = 2, .fetch = fetch),
                     TU_INVALID);
    if (!strstr(tu_message(), message)) fail_msg("'%s' is not in: %s", message, tu_message());
    tu_graph_free(g);
}

static tu_value input_on(tu_graph *g, int rank, int64_t rows) {
    char name[16];
    snprintf(name, sizeof name, "y%d", rank);
    tu_value y = {0};
    tu_with_device(g, device_name(rank)) y = tu_input(g, name, TU_F32, TU_SHAPE(rows));
    return y;
}

static void ranks_must_agree(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value two[2] = {collective_of(TU__ALL_REDUCE, input_on(g, 0, 4), 5, 0, 2, 0),
                       collective_of(TU__ALL_GATHER, input_on(g, 1, 4), 5, 1, 2, 0)};
    expect_compile_error(g, two,
                         "all_gather 'all_gather' is in collective 5, which also has a node of operation "
                         "all_reduce: a collective has one operation");
    g = new_graph();
    two[0] = collective_of(TU__BROADCAST, input_on(g, 0, 4), 5, 0, 2, 0);
    two[1] = collective_of(TU__BROADCAST, input_on(g, 1, 4), 5, 1, 2, 1);
    expect_compile_error(
        g, two, "declares root 1 for collective 5, but another collective_broadcast declares root 0");
    g = new_graph();
    two[0] = collective_of(TU__ALL_GATHER, input_on(g, 0, 4), 5, 0, 2, 0);
    two[1] = collective_of(TU__ALL_GATHER, input_on(g, 1, 6), 5, 1, 2, 0);
    expect_compile_error(g, two,
                         "value 0 of collective 5 is f32[4] (all_gather 'all_gather') on rank 0, but f32[6]");
    g = new_graph();
    two[0] = collective_of(TU__REDUCE_SCATTER, input_on(g, 0, 6), 5, 0, 2, 0);
    two[1] = collective_of(TU__REDUCE_SCATTER, input_on(g, 1, 6), 5, 1, 3, 0);
    expect_compile_error(g, two, "declares 3 ranks for collective 5, but another reduce_scatter declares 2");
    g = new_graph();
    two[0] = two[1] = collective_of(TU__ALL_GATHER, input_on(g, 0, 4), 5, 0, 2, 0);
    expect_compile_error(g, two, "rank 1 of 2 passes no value to collective 5 (all_gather)");
}

static void collectives_have_no_gradient(void **unused) {
    (void)unused;
    for (int k = TU__ALL_REDUCE; k <= TU__REDUCE; k++) {
        tu_graph *g = new_graph();
        tu_value w = tu_variable(g, "w", TU_F32, TU_SHAPE(2)), gradient;
        tu_value loss = tu_sum(collective_of((tu__collective_kind)k, w, 0, 0, 1, 0));
        tu_gradients(loss, 1, &w, &gradient);
        assert_int_not_equal(tu_graph_status(g), TU_OK);
        if (!strstr(tu_message(), tu__collective_name((tu__collective_kind)k)))
            fail_msg("'%s' does not name the operation", tu_message());
        tu_graph_free(g);
    }
}

int main(int argc, char **argv) {
    choose_devices(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_computes_the_documented_result),
        cmocka_unit_test(values_of_any_size_are_exchanged),
        cmocka_unit_test(up_to_eleven_ranks_exchange_values),
        cmocka_unit_test(values_go_through_the_host),
        cmocka_unit_test(reduce_scatter_and_all_gather_equal_all_reduce),
        cmocka_unit_test(collectives_mix_types_and_depend_on_each_other),
        cmocka_unit_test(only_results_of_the_same_shape_overwrite_their_inputs),
        cmocka_unit_test(constants_are_exchanged),
        cmocka_unit_test(devices_of_several_kinds_exchange_values),
        cmocka_unit_test(random_programs_compute_the_expected_values),
        cmocka_unit_test(wrong_types_and_attributes_are_rejected),
        cmocka_unit_test(ranks_must_agree),
        cmocka_unit_test(collectives_have_no_gradient),
    };
    return cmocka_run_group_tests_name("collective_programs", tests, NULL, NULL);
}
