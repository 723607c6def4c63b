/* Tests of collectives: all-reduces over several devices. replica_graphs.h describes the command line. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/number.h"
#include "discrete_device.h"
#include "unit/replica_graphs.h"

static void expect_message(const char *text) {
    if (!strstr(tu_message(), text)) fail_msg("'%s' is not in: %s", text, tu_message());
}

/* ---- Sums ---- */

/* Adds pairwise, ((0 + 1) + (2 + 3)) + …: in f64 for f64, in f32 for every other type. */
static double add_pairwise(tu_dtype dtype, int ranks, double *x) {
    for (; ranks > 1; ranks = (ranks + 1) / 2)
        for (int k = 0; k < (ranks + 1) / 2; k++) {
            double sum = 2 * k + 1 < ranks ? x[2 * k] + x[2 * k + 1] : x[2 * k];
            x[k] = dtype == TU_F64 ? sum : (float)sum;
        }
    return tu__round_to(dtype, x[0]);
}

/* A program in which every rank negates its rows of the inputs, all-reduces all of them in one collective, and
 * negates the sums. There are `values` inputs of different lengths. */
typedef struct reduction {
    int ranks, values;
    tu_dtype dtype;
    int64_t columns[4]; /* per input */
} reduction;

static int64_t total_columns(const reduction *s) {
    int64_t sum = 0;
    for (int v = 0; v < s->values; v++) sum += s->columns[v];
    return sum;
}

static tu_graph *build_sums(const reduction *s, tu_value *inputs, tu_value *fetch) {
    tu_graph *g = new_graph();
    for (int v = 0; v < s->values; v++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", v);
        inputs[v] = tu_input(g, name, s->dtype, TU_SHAPE(s->ranks, s->columns[v]));
        for (int r = 0; r < s->ranks; r++) tu_with_device(g, device_name(r)) {
                tu_value shard = rows_of(g, name, r, r, s->dtype, TU_SHAPE(1, s->columns[v]));
                fetch[v * s->ranks + r] = tu_neg(all_reduce_of(tu_neg(shard), 0, r, s->ranks));
            }
    }
    return g;
}

static void check_sums(const reduction *s, int value, const void *x, void *const *got) {
    int64_t columns = s->columns[value];
    for (int64_t i = 0; i < columns; i++) {
        double inputs[MAX_RANKS];
        for (int r = 0; r < s->ranks; r++) inputs[r] = tu__load(s->dtype, x, r * columns + i);
        double expected = add_pairwise(s->dtype, s->ranks, inputs);
        for (int r = 0; r < s->ranks; r++) {
            double sum = tu__load(s->dtype, got[value * s->ranks + r], i);
            if (sum != expected)
                fail_msg("%d ranks of %s: element %lld of %lld of value %d is %.9g on rank %d, expected %.9g",
                         s->ranks, tu_dtype_name(s->dtype), (long long)i, (long long)columns, value, sum, r,
                         expected);
        }
    }
}

static void assert_sums(const reduction *s) {
    enum { MAX_FETCHES = 4 * MAX_RANKS };
    tu_value inputs[4], fetch[MAX_FETCHES];
    tu_feed feeds[4];
    void *data[4], *got[MAX_FETCHES];
    tu_graph *g = build_sums(s, inputs, fetch);
    tu_program *program;
    tu_state *state;
    assert_ok(tu_compile(g, &program, .devices = device_list(s->ranks),
                         .fetch_count = (size_t)(s->values * s->ranks), .fetch = fetch));
    assert_ok(tu_state_new(g, &state));
    for (int v = 0; v < s->values; v++) {
        int64_t count = s->ranks * s->columns[v];
        data[v] = malloc((size_t)count * 8);
        for (int64_t i = 0; i < count; i++)
            tu__store(s->dtype, data[v], i, (double)((i * 7919 + v * 31) % 1009) / 63 - 8);
        feeds[v] = (tu_feed){inputs[v], data[v]};
        for (int r = 0; r < s->ranks; r++) got[v * s->ranks + r] = malloc((size_t)s->columns[v] * 8);
    }
    for (int run = 0; run < 2; run++) {
        assert_ok(tu_run(program, state, (size_t)s->values, feeds, got));
        for (int v = 0; v < s->values; v++) check_sums(s, v, data[v], got);
    }
    for (int v = 0; v < s->values; v++) free(data[v]);
    for (int i = 0; i < s->values * s->ranks; i++) free(got[i]);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

static void every_rank_gets_the_sum(void **unused) {
    (void)unused;
    static const tu_dtype types[] = {TU_F32, TU_F64, TU_BF16, TU_F16};
    for (int t = 0; t < 4; t++)
        for (int ranks = 2; ranks <= 5; ranks++)
            assert_sums(&(reduction){ranks, 4, types[t], {1, 17, 1000, 40}});
}

static void up_to_eleven_ranks_get_the_sum(void **unused) {
    (void)unused;
    assert_sums(&(reduction){11, 2, TU_F32, {5, 3000}});
    assert_sums(&(reduction){9, 1, TU_BF16, {123}});
}

static void values_of_any_size_are_reduced(void **unused) {
    (void)unused;
    uint32_t random = 12345;
    for (int i = 0; i < 40; i++) {
        reduction s = {.ranks = 2 + i % 3, .values = 1 + i % 4, .dtype = i % 5 ? TU_F32 : TU_F16};
        for (int v = 0; v < s.values; v++) {
            random = random * 1664525 + 1013904223;
            s.columns[v] = 1 + (random >> 8) % (i % 7 ? 300 : 30000);
        }
        assert_true(total_columns(&s) > 0);
        assert_sums(&s);
    }
}

/* One collective may reduce values of several element types, and its sum may be the input of another collective. */
static void collectives_mix_types_and_depend_on_each_other(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2, 20)), fetch[6];
    for (int r = 0; r < 2; r++) tu_with_device(g, device_name(r)) {
            tu_value shard = rows_of(g, "x", r, r, TU_F32, TU_SHAPE(1, 20));
            tu_value sum = all_reduce_of(shard, 3, r, 2),
                     wide = all_reduce_of(tu_cast(shard, TU_F64), 3, r, 2);
            fetch[r] = all_reduce_of(sum, 5, r, 2);
            fetch[2 + r] = wide;
            /* Another operation reads the collective's input, too. */
            fetch[4 + r] = tu_add(sum, tu_square(shard));
        }
    tu_program *program;
    tu_state *state;
    assert_ok(tu_compile(g, &program, .devices = device_list(2), .fetch_count = 6, .fetch = fetch));
    assert_ok(tu_state_new(g, &state));
    float data[40], twice[2][20], added[2][20];
    double wide[2][20];
    for (int i = 0; i < 40; i++) data[i] = (float)i;
    assert_ok(tu_run(program, state, 1, &(tu_feed){x, data},
                     (void *[]){twice[0], twice[1], wide[0], wide[1], added[0], added[1]}));
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 20; i++) {
            assert_true(twice[r][i] == (float)(4 * i + 40));
            assert_true(wide[r][i] == 2 * i + 20);
            assert_true(added[r][i] == (float)(2 * i + 20 + (20 * r + i) * (20 * r + i)));
        }
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

/* A sum is copied to a device that is not a rank of the collective. */
static void a_sum_is_copied_to_another_device(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2, 8)), fetch[3];
    for (int r = 0; r < 2; r++)
        tu_with_device(g, device_name(r)) fetch[r] =
            all_reduce_of(tu_neg(rows_of(g, "x", r, r, TU_F32, TU_SHAPE(1, 8))), 0, r, 2);
    tu_with_device(g, device_name(2)) fetch[2] = tu_neg(fetch[1]);
    tu_program *program;
    tu_state *state;
    float data[16], got[3][8];
    assert_ok(tu_compile(g, &program, .devices = device_list(3), .fetch_count = 3, .fetch = fetch));
    assert_ok(tu_state_new(g, &state));
    for (int i = 0; i < 16; i++) data[i] = (float)i;
    for (int run = 0; run < 3; run++) {
        assert_ok(tu_run(program, state, 1, &(tu_feed){x, data}, (void *[]){got[0], got[1], got[2]}));
        for (int i = 0; i < 8; i++) assert_true(got[0][i] == (float)(-2 * i - 8) && got[2][i] == -got[0][i]);
    }
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

/* Constant folding must not fold the sum of constants. A value that is passed twice is reduced twice. */
static void constants_and_repeated_values_are_reduced(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value fetch[6];
    for (int r = 0; r < 2; r++) tu_with_device(g, device_name(r)) {
            tu_value known = tu_fill(g, TU_F32, TU_SHAPE(3), r + 1);
            float numbers[3] = {1, 2, (float)r};
            tu_value list = tu_constant(g, TU_F32, TU_SHAPE(3), numbers);
            fetch[r] = all_reduce_of(known, 0, r, 2);
            fetch[2 + r] = all_reduce_of(r ? list : known, 0, r, 2);
            fetch[4 + r] = all_reduce_of(list, 1, r, 2);
        }
    tu_program *program;
    tu_state *state;
    float got[6][3];
    assert_ok(tu_compile(g, &program, .devices = device_list(2), .fetch_count = 6, .fetch = fetch));
    assert_ok(tu_state_new(g, &state));
    assert_ok(tu_run(program, state, 0, NULL, (void *[]){got[0], got[1], got[2], got[3], got[4], got[5]}));
    for (int r = 0; r < 2; r++) {
        assert_true(got[r][0] == 3 && got[r][2] == 3);
        assert_true(got[2 + r][0] == 2 && got[2 + r][1] == 3 && got[2 + r][2] == 2);
        assert_true(got[4 + r][0] == 2 && got[4 + r][1] == 4 && got[4 + r][2] == 1);
    }
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

/* Devices without peer access reduce through the host. */
static void devices_without_peer_access_reduce_through_the_host(void **unused) {
    (void)unused;
    const char *before = kind;
    bool were_physical = physical;
    register_discrete_device();
    kind = "discrete", physical = false;
    assert_sums(&(reduction){3, 3, TU_F32, {7, 100000, 30}});
    assert_sums(&(reduction){2, 1, TU_BF16, {300000}});
    kind = before, physical = were_physical;
    assert_int_equal(discrete.live_allocations, 0);
}

/* ---- Random programs ---- */

enum { WIDTH = 5, MAX_VALUES = 200 };

/* A random program on several devices, and the expected values. */
typedef struct random_program {
    uint64_t random;
    int ranks;
    tu_graph *g;
    int count;
    tu_value values[MAX_VALUES];
    int rank[MAX_VALUES]; /* the rank of each */
    float numbers[MAX_VALUES][WIDTH];
    int64_t collectives;
} random_program;

static int random_below(random_program *s, int below) {
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return below > 0 ? (int)((s->random >> 33) % (uint64_t)below) : 0;
}

static float *add_value(random_program *s, int rank, tu_value value) {
    s->values[s->count] = value;
    s->rank[s->count] = rank;
    return s->numbers[s->count++];
}

static int find_value_on(random_program *s, int rank) {
    for (;;) {
        int v = random_below(s, s->count);
        if (s->rank[v] == rank) return v;
    }
}

/* Adds the mean of two values, one of which may be on another device, or the negative of one. */
static void add_operation(random_program *s) {
    int rank = random_below(s, s->ranks), a = find_value_on(s, rank),
        b = random_below(s, 3) ? find_value_on(s, rank) : random_below(s, s->count);
    tu_value result = {0};
    bool unary = random_below(s, 3) == 0;
    tu_with_device(s->g, device_name(rank)) {
        tu_value half = tu_fill(s->g, TU_F32, TU_SCALAR, 0.5);
        result = unary ? tu_neg(s->values[a]) : tu_mul(tu_add(s->values[a], s->values[b]), half);
    }
    float *numbers = add_value(s, rank, result);
    for (int i = 0; i < WIDTH; i++)
        numbers[i] = unary ? -s->numbers[a][i] : (s->numbers[a][i] + s->numbers[b][i]) * 0.5f;
}

/* Adds a collective of one to three values per rank. The nodes are created rank by rank, so that they are far apart
 * in the graph. */
static void add_collective(random_program *s) {
    int count = 1 + random_below(s, 3), first = random_below(s, s->ranks), first_sum = s->count;
    int inputs[3][MAX_RANKS];
    for (int v = 0; v < count; v++)
        for (int r = 0; r < s->ranks; r++) inputs[v][r] = find_value_on(s, r);
    for (int k = 0; k < s->ranks; k++)
        for (int v = 0, r = (first + k) % s->ranks; v < count; v++)
            add_value(s, r, all_reduce_of(s->values[inputs[v][r]], s->collectives, r, s->ranks));
    s->collectives++;
    for (int k = 0; k < s->ranks; k++)
        for (int v = 0; v < count; v++)
            for (int i = 0; i < WIDTH; i++) {
                double terms[MAX_RANKS];
                for (int r = 0; r < s->ranks; r++) terms[r] = s->numbers[inputs[v][r]][i];
                s->numbers[first_sum + k * count + v][i] = (float)add_pairwise(TU_F32, s->ranks, terms);
            }
}

static void build_random_program(random_program *s, uint64_t seed) {
    *s = (random_program){.random = seed, .ranks = 2 + (int)(seed % 3), .g = new_graph()};
    for (int r = 0; r < s->ranks; r++) tu_with_device(s->g, device_name(r)) {
            float data[WIDTH];
            for (int i = 0; i < WIDTH; i++) data[i] = (float)(1 + r * WIDTH + i) / 4;
            char name[16];
            snprintf(name, sizeof name, "in%d", r);
            memcpy(add_value(s, r, tu_input(s->g, name, TU_F32, TU_SHAPE(WIDTH))), data, sizeof data);
        }
    int steps = 10 + random_below(s, 40);
    for (int i = 0; i < steps && s->count < MAX_VALUES - 3 * MAX_RANKS; i++)
        if (random_below(s, 4))
            add_operation(s);
        else
            add_collective(s);
}

/* Fetches some of the values. The others may be computed in place, or not at all. */
static void run_random_program(random_program *s, uint64_t seed) {
    tu_program *program;
    tu_state *state;
    tu_feed feeds[MAX_RANKS];
    tu_value fetch[MAX_VALUES];
    float got[MAX_VALUES][WIDTH];
    int fetched[MAX_VALUES];
    void *out[MAX_VALUES];
    size_t count = 0;
    for (int r = 0; r < s->ranks; r++) feeds[r] = (tu_feed){s->values[r], s->numbers[r]};
    for (int v = 0; v < s->count; v++) {
        if (random_below(s, 3)) continue;
        fetch[count] = s->values[v], fetched[count] = v, out[count] = got[count];
        count++;
    }
    assert_ok(tu_compile(s->g, &program, .devices = device_list(s->ranks), .fetch = fetch,
                         .fetch_count = count, .timeout = 60));
    assert_ok(tu_state_new(s->g, &state));
    for (int run = 0; run < 3; run++) {
        memset(got, 0, sizeof got);
        assert_ok(tu_run(program, state, (size_t)s->ranks, feeds, out));
        for (size_t k = 0; k < count; k++)
            for (int i = 0; i < WIDTH; i++)
                if (got[k][i] != s->numbers[fetched[k]][i])
                    fail_msg("program %llu: value %d of %d is %g, expected %g", (unsigned long long)seed,
                             fetched[k], s->count, got[k][i], s->numbers[fetched[k]][i]);
    }
    tu_program_free(program);
    tu_state_free(state);
}

/* Random copies and collectives neither deadlock nor compute wrong values. */
static void random_programs_compute_the_expected_values(void **unused) {
    (void)unused;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        random_program s;
        build_random_program(&s, seed);
        run_random_program(&s, seed);
        tu_graph_free(s.g);
    }
}

/* ---- Errors ---- */

static void expect_compile_error(tu_graph *g, size_t count, const tu_value *fetch, const char *message) {
    tu_program *program;
    assert_int_equal(tu_compile(g, &program, .devices = device_list(3), .fetch_count = count, .fetch = fetch),
                     TU_INVALID);
    expect_message(message);
    tu_graph_free(g);
}

static tu_value new_input_on(tu_graph *g, int rank, int64_t columns) {
    char name[16];
    snprintf(name, sizeof name, "y%d", rank);
    tu_value y = {0};
    tu_with_device(g, device_name(rank)) y = tu_input(g, name, TU_F32, TU_SHAPE(columns));
    return y;
}

static void ranks_must_pass_values_of_the_same_types(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value one = all_reduce_of(new_input_on(g, 0, 3), 4, 0, 2);
    expect_compile_error(
        g, 1, &one,
        "rank 1 of 2 passes no value to collective 4 (all_reduce): all ranks must pass the same number of values");

    g = new_graph();
    one = all_reduce_of(new_input_on(g, 1, 3), 4, 1, 2);
    expect_compile_error(g, 1, &one, "rank 0 of 2 passes no value to collective 4");

    g = new_graph();
    one = all_reduce_of(new_input_on(g, 0, 3), 4, 0, 1000);
    expect_compile_error(g, 1, &one, "collective 4 has 1000 ranks: a program has at most 64 devices");

    g = new_graph();
    tu_value two[3] = {all_reduce_of(new_input_on(g, 0, 3), 0, 0, 2),
                       all_reduce_of(new_input_on(g, 1, 4), 0, 1, 2)};
    expect_compile_error(g, 2, two, "value 0 of collective 0 is f32[3]");

    g = new_graph();
    tu_value more = new_input_on(g, 0, 3);
    two[0] = all_reduce_of(more, 0, 0, 2), two[1] = all_reduce_of(new_input_on(g, 1, 3), 0, 1, 2),
    two[2] = all_reduce_of(tu_neg(more), 0, 0, 2);
    expect_compile_error(g, 3, two, "rank 1 passes 1 values to collective 0, rank 0 passes 2");

    g = new_graph();
    two[0] = all_reduce_of(new_input_on(g, 0, 3), 0, 0, 2),
    two[1] = all_reduce_of(new_input_on(g, 1, 3), 0, 1, 3);
    expect_compile_error(g, 2, two, "declares 3 ranks for collective 0, but another all_reduce declares 2");

    g = new_graph();
    two[0] = all_reduce_of(new_input_on(g, 0, 3), 0, 0, 2),
    two[1] = all_reduce_of(new_input_on(g, 1, 3), 0, 1, 2),
    two[2] = all_reduce_of(new_input_on(g, 2, 3), 0, 2, 3);
    expect_compile_error(g, 3, two, "declares 3 ranks for collective 0, but another all_reduce declares 2");
}

static void two_ranks_on_one_device_are_rejected(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value y = new_input_on(g, 0, 3),
             two[2] = {all_reduce_of(y, 0, 0, 2), all_reduce_of(tu_neg(y), 0, 1, 2)};
    g->nodes[two[1].node]->device = g->nodes[two[0].node]->device;
    expect_compile_error(g, 2, two, "ranks 0 and 1 of collective 0 are both on device");
}

static void cyclic_collectives_are_rejected(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value a = new_input_on(g, 0, 3), b = new_input_on(g, 1, 3);
    tu_value first = all_reduce_of(a, 0, 0, 2),
             second = all_reduce_of(b, 1, 1,
                                    2); /* rank 0 runs collective 0, then 1; rank 1 in the reverse order */
    tu_value two[2] = {all_reduce_of(first, 1, 0, 2), all_reduce_of(second, 0, 1, 2)};
    expect_compile_error(g, 2, two, "the program's collectives wait for each other");
}
/* A sum overwrites its input, so a device needs memory for only one of them. */
static void sums_overwrite_their_inputs(void **unused) {
    (void)unused;
    enum { COLUMNS = 1 << 20 };
    tu_value x[4], fetch[2];
    tu_program *program;
    tu_graph *g = build_sums(&(reduction){2, 1, TU_F32, {COLUMNS}}, x, fetch);
    assert_ok(tu_compile(g, &program, .devices = device_list(2), .fetch_count = 2, .fetch = fetch,
                         .plan_only = true));
    for (size_t i = 0; i < 2; i++) {
        tu_memory_report report = TU_SIZED(tu_memory_report);
        assert_ok(tu_program_memory(program, i, &report));
        assert_true(report.scratch_bytes <=
                    2 * COLUMNS * sizeof(float)); /* the input or the result, and the sum */
    }
    tu_program_free(program);
    tu_graph_free(g);
}
/* ---- Reports and traces ---- */

static void programs_report_their_collectives(void **unused) {
    (void)unused;
    tu_value x[4], fetch[8];
    tu_program *program;
    tu_collective_report report = TU_SIZED(tu_collective_report);
    tu_graph *g = build_sums(&(reduction){2, 2, TU_F32, {100, 20}}, x, fetch);
    assert_ok(tu_compile(g, &program, .devices = device_list(2), .fetch_count = 4, .fetch = fetch,
                         .plan_only = true));
    assert_ok(tu_program_collective(program, 0, &report));
    assert_int_equal(report.number, 0);
    assert_int_equal(report.ranks, 2);
    assert_int_equal(report.values, 2);
    assert_string_equal(report.operation, "all_reduce");
    assert_int_equal(report.bytes, 120 * sizeof(float));
    const char *peers = getenv("FAKE_CUDA_PEERS");
    bool has_peer_access = !peers || strcmp(peers, "1") == 0;
    assert_int_equal(report.through_host, physical && !has_peer_access);
    assert_int_equal(report.peer_to_peer, physical && has_peer_access);
    assert_int_equal(tu_program_collective(program, 1, &report), TU_NOT_FOUND);
    assert_string_equal(tu_message(),
                        "collective index 1 is out of range: the program has 1 collectives, counted from 0");
    tu_program_free(program);
    tu_graph_free(g);
}

int main(int argc, char **argv) {
    choose_devices(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_gets_the_sum),
        cmocka_unit_test(up_to_eleven_ranks_get_the_sum),
        cmocka_unit_test(values_of_any_size_are_reduced),
        cmocka_unit_test(collectives_mix_types_and_depend_on_each_other),
        cmocka_unit_test(a_sum_is_copied_to_another_device),
        cmocka_unit_test(constants_and_repeated_values_are_reduced),
        cmocka_unit_test(devices_without_peer_access_reduce_through_the_host),
        cmocka_unit_test(random_programs_compute_the_expected_values),
        cmocka_unit_test(ranks_must_pass_values_of_the_same_types),
        cmocka_unit_test(two_ranks_on_one_device_are_rejected),
        cmocka_unit_test(cyclic_collectives_are_rejected),
        cmocka_unit_test(sums_overwrite_their_inputs),
        cmocka_unit_test(programs_report_their_collectives),
    };
    return cmocka_run_group_tests_name("collectives", tests, NULL, NULL);
}
