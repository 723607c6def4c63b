/* Random numbers depend on the sample, not on the batch, the order or the device. */
#include "test.h"

#include <math.h>
#include <string.h>

#include <tutti/tutti.h>

enum { SAMPLES = 8, WIDTH = 37 };

/* Applies an augmentation and dropout to `count` samples from index `first` on. */
static void generate_samples(int64_t first, int64_t count, double *rows) {
    tu_graph *g;
    tu_program *program;
    tu_state *state;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_fill(g, TU_F64, TU_SHAPE(count, WIDTH), 1), y = {0};
    tu_scope(g, "net") {
        tu_value noise = tu_random_normal(g, TU_F64, TU_SHAPE(count, WIDTH), 0, 1, .per_sample = true);
        tu_value jitter = tu_random_uniform(g, TU_F64, TU_SHAPE(count, 1), -1, 1, .per_sample = true);
        y = tu_dropout(tu_add(tu_add(x, noise), jitter), 0.3);
    }
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &y, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_state_new(g, &state, .seed = 42), TU_OK);
    int64_t ordinals[SAMPLES];
    for (int64_t i = 0; i < count; i++) ordinals[i] = first + i;
    tu_value fed = tu_find(g, "sample_ordinal");
    assert_int_equal(tu_run(program, state, 1, (tu_feed[]){{fed, ordinals}}, (void *[]){rows}), TU_OK);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

static void a_split_batch_gets_the_same_numbers(void **unused) {
    (void)unused;
    double full_batch[SAMPLES * WIDTH], parts[SAMPLES * WIDTH];
    generate_samples(100, SAMPLES, full_batch);
    for (int64_t part_count = 2; part_count <= SAMPLES; part_count *= 2) {
        int64_t part_size = SAMPLES / part_count;
        for (int64_t k = 0; k < part_count; k++)
            generate_samples(100 + k * part_size, part_size, parts + k * part_size * WIDTH);
        assert_memory_equal(full_batch, parts, sizeof full_batch);
    }
    generate_samples(101, SAMPLES, parts);
    assert_memory_equal(full_batch + WIDTH, parts, sizeof full_batch - WIDTH * sizeof(double));
    assert_memory_not_equal(full_batch, parts, WIDTH * sizeof(double));
}

static void the_state_advances_the_sample_index(void **unused) {
    (void)unused;
    tu_graph *g;
    tu_program *program;
    tu_state *state;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value u = tu_random_uniform(g, TU_F32, TU_SHAPE(2), 0, 1, .per_sample = true);
    tu_value w = tu_variable(g, "w", TU_F32, TU_SCALAR);
    tu_assign(w, tu_sum(u));
    assert_int_equal(
        tu_compile(g, &program, .devices = "ref", .fetch = &u, .fetch_count = 1, .updates = true), TU_OK);
    assert_int_equal(tu_state_new(g, &state, .seed = 1), TU_OK);
    float a[2], b[2], c[2];
    assert_int_equal(tu_run(program, state, 0, NULL, (void *[]){a}), TU_OK);
    assert_int_equal(tu_state_sample(state), 2);
    assert_int_equal(tu_run(program, state, 0, NULL, (void *[]){b}), TU_OK);
    assert_memory_not_equal(a, b, sizeof a);
    tu_state_set_sample(state, 0);
    assert_int_equal(tu_run(program, state, 0, NULL, (void *[]){c}), TU_OK);
    assert_memory_equal(a, c, sizeof a);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

/* Generates `count` numbers of one kind into `out`. kind: 0 uniform, 1 normal, 2 bernoulli */
static void generate_numbers(int kind, const char *scope, uint64_t seed, int64_t count, double *out) {
    tu_graph *g;
    tu_program *program;
    tu_state *state;
    tu_value v = {0};
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_scope(g, scope) {
        if (kind == 0) v = tu_random_uniform(g, TU_F64, TU_SHAPE(count), -1, 3);
        if (kind == 1) v = tu_random_normal(g, TU_F64, TU_SHAPE(count), 2, 0.5);
        if (kind == 2) v = tu_random_bernoulli(g, TU_F64, TU_SHAPE(count), 0.3);
    }
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &v, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_state_new(g, &state, .seed = seed), TU_OK);
    assert_int_equal(tu_run(program, state, 0, NULL, (void *[]){out}), TU_OK);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

static void distributions_have_their_moments(void **unused) {
    (void)unused;
    enum { COUNT = 40000 };
    static double x[COUNT];
    static const double mean[] = {1, 2, 0.3}, deviation[] = {1.1547, 0.5, 0.45826}, low[] = {-1, -1, 0},
                        high[] = {3, 5, 1};
    for (int kind = 0; kind < 3; kind++) {
        generate_numbers(kind, "a", 11, COUNT, x);
        double sum = 0, squares = 0;
        for (int i = 0; i < COUNT; i++) {
            assert_true(x[i] >= low[kind] && x[i] <= high[kind]);
            sum += x[i];
            squares += x[i] * x[i];
        }
        double m = sum / COUNT, d = sqrt(squares / COUNT - m * m);
        assert_true(fabs(m - mean[kind]) < 0.02 && fabs(d - deviation[kind]) < 0.02);
    }
}

static void the_key_depends_on_seed_and_scoped_name(void **unused) {
    (void)unused;
    double a[16], b[16];
    generate_numbers(1, "a", 11, 16, a);
    generate_numbers(1, "a", 11, 16, b);
    assert_memory_equal(a, b, sizeof a);
    generate_numbers(1, "a", 12, 16, b);
    assert_memory_not_equal(a, b, sizeof a);
    generate_numbers(1, "b", 11, 16, b);
    assert_memory_not_equal(a, b, sizeof a);
}

/* The numbers must never change between versions; otherwise runs could not be resumed. */
static void known_seeds_give_known_numbers(void **unused) {
    (void)unused;
    double u[8], n[4];
    generate_numbers(0, "fixed", 1, 8, u);
    generate_numbers(1, "fixed", 1, 4, n);
    static const double uniform[8] = {0.2161099910736084,  0.67930841445922852, 2.5776348114013672,
                                      1.2125709056854248,  2.3932898044586182,  2.8837549686431885,
                                      0.77947664260864258, 2.5907483100891113},
                        normal[4] = {1.8404170831100339, 2.472354083013879, 2.1507177846853409,
                                     1.7327067319510894};
    for (int i = 0; i < 8; i++) assert_true(u[i] == uniform[i]);
    for (int i = 0; i < 4; i++) assert_true(fabs(n[i] - normal[i]) < 1e-14);
}

static void invalid_arguments_are_rejected(void **unused) {
    (void)unused;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    assert_false(tu_ok(tu_random_bernoulli(g, TU_BOOL, TU_SHAPE(2), 1.5)));
    assert_int_equal(tu_graph_status(g), TU_INVALID);
    assert_non_null(strstr(tu_message(), "1.5"));
    tu_graph_free(g);
    assert_int_equal(tu_graph_new(&g), TU_OK);
    assert_false(tu_ok(tu_random_normal(g, TU_I32, TU_SHAPE(2), 0, 1)));
    assert_int_equal(tu_graph_status(g), TU_INVALID);
    assert_non_null(strstr(tu_message(), "random_normal"));
    tu_graph_free(g);
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_sample_ordinals(g, 4);
    assert_false(tu_ok(tu_random_normal(g, TU_F32, TU_SHAPE(5, 2), 0, 1, .per_sample = true)));
    assert_int_equal(tu_graph_status(g), TU_INVALID);
    assert_non_null(strstr(tu_message(), "sample_ordinal"));
    tu_graph_free(g);
    assert_int_equal(tu_graph_new(&g), TU_OK);
    assert_false(tu_ok(tu_dropout(tu_fill(g, TU_F32, TU_SHAPE(2, 2), 1), 1)));
    assert_int_equal(tu_graph_status(g), TU_INVALID);
    assert_non_null(strstr(tu_message(), "dropout"));
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_split_batch_gets_the_same_numbers),
        cmocka_unit_test(the_state_advances_the_sample_index),
        cmocka_unit_test(distributions_have_their_moments),
        cmocka_unit_test(the_key_depends_on_seed_and_scoped_name),
        cmocka_unit_test(known_seeds_give_known_numbers),
        cmocka_unit_test(invalid_arguments_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
