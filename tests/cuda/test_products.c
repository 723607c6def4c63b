/* Matrix products and linear algebra on the CUDA device, beyond the operation cases: fused epilogues, matrices larger
 * than a block, batches without a common stride, and the tuning cache. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "test.h"

enum { MAX_INPUTS = 8, MAX_RESULTS = 8 };

/* A graph in f64 or f32 with random inputs. */
typedef struct trial {
    tu_graph *graph;
    tu_dtype dtype;
    tu_feed feeds[MAX_INPUTS];
    void *data[MAX_INPUTS]; /* data of the feeds */
    size_t feed_count;
    tu_value results[MAX_RESULTS];
    size_t result_count;
    double *expected[MAX_RESULTS], *got[MAX_RESULTS];
    bool tune;
    char kernels[4096]; /* kernel names, one per line */
} trial;

static trial new_trial(tu_dtype dtype) {
    trial t = {.dtype = dtype};
    assert_int_equal(tu_graph_new(&t.graph), TU_OK);
    srand(7);
    return t;
}

static void store(const trial *t, void *data, size_t index, double value) {
    if (t->dtype == TU_F64)
        ((double *)data)[index] = value;
    else
        ((float *)data)[index] = (float)value;
}

/* Adds an input between -1 and 1, with `diagonal` added to the diagonals of its matrices. */
static tu_value add_input(trial *t, tu_shape shape, double diagonal) {
    char name[16];
    snprintf(name, sizeof name, "input%zu", t->feed_count);
    tu_value value = tu_input(t->graph, name, t->dtype, shape);
    size_t count = (size_t)tu_shape_elements(shape), columns = (size_t)shape.dim[shape.rank - 1];
    void *data = malloc(count * sizeof(double));
    assert_non_null(data);
    for (size_t i = 0; i < count; i++) {
        bool on_diagonal = shape.rank > 1 && i / columns % (size_t)shape.dim[shape.rank - 2] == i % columns;
        store(t, data, i, 2.0 * rand() / RAND_MAX - 1 + (on_diagonal ? diagonal : 0));
    }
    t->data[t->feed_count] = data;
    t->feeds[t->feed_count++] = (tu_feed){value, data};
    return value;
}

static void add_result(trial *t, tu_value value) {
    assert_true(tu_ok(value));
    t->results[t->result_count++] = value;
}

static void list_kernels(trial *t, const tu_program *program) {
    tu_kernel_report report = TU_SIZED(tu_kernel_report);
    size_t length = 0;
    for (size_t i = 0;
         i < tu_program_kernel_count(program) && tu_program_kernel(program, i, &report) == TU_OK; i++)
        length += (size_t)snprintf(t->kernels + length, sizeof t->kernels - length, "%s\n", report.kernel);
}

/* Runs twice, so that the captured graph is tested too. */
static void run_on(trial *t, const char *devices, double **results) {
    tu_program *program;
    tu_state *state;
    void *raw[MAX_RESULTS];
    if (tu_compile(t->graph, &program, .devices = devices, .fetch = t->results,
                   .fetch_count = t->result_count, .tune_kernels = t->tune) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(t->graph, &state), TU_OK);
    for (size_t i = 0; i < t->result_count; i++)
        raw[i] = malloc((size_t)tu_shape_elements(tu_value_shape(t->results[i])) * sizeof(double));
    for (int run = 0; run < 2; run++)
        if (tu_run(program, state, t->feed_count, t->feeds, raw) != TU_OK) fail_msg("%s", tu_message());
    for (size_t i = 0; i < t->result_count; i++) {
        size_t count = (size_t)tu_shape_elements(tu_value_shape(t->results[i]));
        results[i] = malloc(count * sizeof(double));
        for (size_t k = 0; k < count; k++)
            results[i][k] = t->dtype == TU_F64 ? ((double *)raw[i])[k] : (double)((float *)raw[i])[k];
        free(raw[i]);
    }
    t->kernels[0] = '\0';
    list_kernels(t, program);
    tu_program_free(program);
    tu_state_free(state);
}

static void free_trial(trial *t) {
    for (size_t i = 0; i < t->result_count; i++) {
        free(t->expected[i]);
        free(t->got[i]);
    }
    for (size_t i = 0; i < t->feed_count; i++) free(t->data[i]);
    tu_graph_free(t->graph);
}

/* Checks that every result is within `tolerance` of the reference's, relative to its largest element. */
static void assert_matches_reference(trial *t, double tolerance) {
    run_on(t, "ref", t->expected);
    run_on(t, "gpu:0", t->got);
    for (size_t i = 0; i < t->result_count; i++) {
        size_t count = (size_t)tu_shape_elements(tu_value_shape(t->results[i]));
        double largest = 0;
        for (size_t k = 0; k < count; k++) largest = fmax(largest, fabs(t->expected[i][k]));
        for (size_t k = 0; k < count; k++)
            if (!(fabs(t->expected[i][k] - t->got[i][k]) <= tolerance * largest))
                fail_msg("element %zu of result %zu is %g, expected %g", k, i, t->got[i][k],
                         t->expected[i][k]);
    }
}

static int count_kernels(const trial *t, const char *name) {
    char line[128];
    int count = 0;
    snprintf(line, sizeof line, "%s\n", name);
    for (const char *match = t->kernels; (match = strstr(match, line)); match += strlen(line))
        count += match == t->kernels || match[-1] == '\n';
    return count;
}

/* ---- Matrix products ---- */

static tu_value layer(trial *t, tu_value x, int64_t units, tu_value *weights, tu_value *bias) {
    *weights = add_input(t, TU_SHAPE(units, tu_value_shape(x).dim[1]), 0);
    *bias = add_input(t, TU_SHAPE(units), 0);
    return tu_relu(tu_add(tu_matmul(x, *weights, .transpose_b = true), *bias));
}

static void relu_layers_use_one_kernel_forward_and_three_backward(void **state) {
    (void)state;
    trial t = new_trial(TU_F32);
    tu_value wrt[5], gradients[5];
    tu_value x = layer(&t, add_input(&t, TU_SHAPE(9, 12), 0), 24, &wrt[0], &wrt[1]);
    x = layer(&t, x, 40, &wrt[2], &wrt[3]);
    wrt[4] = add_input(&t, TU_SHAPE(10, 40), 0);
    tu_value loss = tu_sum(tu_square(tu_matmul(x, wrt[4], .transpose_b = true)));
    assert_int_equal(tu_gradients(loss, 5, wrt, gradients), TU_OK);
    add_result(&t, loss);
    for (int i = 0; i < 5; i++) add_result(&t, gradients[i]);
    assert_matches_reference(&t, 1e-5);
    assert_int_equal(count_kernels(&t, "matmul+bias+relu (cuBLASLt)"), 2);
    assert_int_equal(count_kernels(&t, "matmul (cuBLASLt)"), 1 + 5);
    assert_int_equal(count_kernels(&t, "relu_grad+sum"), 2);
    free_trial(&t);
}

/* The input of the relu's gradient may be a sum instead of a single matrix product. */
static void relu_gradients_of_sums_match_the_reference(void **state) {
    (void)state;
    trial t = new_trial(TU_F32);
    tu_value w, b, gradients[2];
    tu_value y = layer(&t, add_input(&t, TU_SHAPE(9, 12), 0), 24, &w, &b);
    tu_value twice = tu_add(tu_square(tu_matmul(y, add_input(&t, TU_SHAPE(24, 24), 0))), tu_square(y));
    assert_int_equal(tu_gradients(tu_sum(twice), 2, (tu_value[]){w, b}, gradients), TU_OK);
    add_result(&t, gradients[0]);
    add_result(&t, gradients[1]);
    assert_matches_reference(&t, 1e-5);
    free_trial(&t);
}

static void matmul_broadcasts_batches_in_any_pattern(void **state) {
    (void)state;
    static const tu_shape shapes[][2] = {
        {{5, {3, 1, 5, 7, 9}}, {4, {4, 5, 9, 8}}},    {{3, {1, 7, 9}}, {4, {2, 3, 9, 8}}},
        {{4, {2, 3, 7, 9}}, {3, {1, 9, 8}}},          {{4, {2, 1, 7, 9}}, {4, {1, 3, 9, 8}}},
        {{5, {2, 3, 2, 7, 9}}, {5, {2, 1, 2, 9, 8}}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        trial t = new_trial(i % 2 ? TU_F32 : TU_F64);
        add_result(&t, tu_matmul(add_input(&t, shapes[i][0], 0), add_input(&t, shapes[i][1], 0)));
        assert_matches_reference(&t, i % 2 ? 1e-5 : 1e-13);
        free_trial(&t);
    }
}

/* ---- Linear algebra ---- */

enum { SMALL = 20, SEVERAL_BLOCKS = 150 };

/* f32 and f64, one matrix and a batch, in one block and in several. */
static const struct setting {
    tu_dtype dtype;
    double tolerance;
    int64_t batch, n;
} settings[] = {
    {TU_F32, 2e-4, 1, SMALL},           {TU_F64, 1e-11, 3, SMALL},         {TU_F32, 2e-4, 1, SEVERAL_BLOCKS},
    {TU_F64, 1e-11, 3, SEVERAL_BLOCKS}, {TU_F32, 2e-4, 5, SEVERAL_BLOCKS},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

static tu_shape matrices(const struct setting *s, int64_t columns) {
    return TU_SHAPE(s->batch, s->n, columns);
}

static void systems_of_any_size_are_solved(void **state) {
    (void)state;
    for (int i = 0; i < SETTINGS; i++) {
        trial t = new_trial(settings[i].dtype);
        tu_value a = add_input(&t, matrices(&settings[i], settings[i].n), 0.2 * (double)settings[i].n);
        add_result(&t, tu_inverse(a));
        add_result(&t, tu_solve(a, add_input(&t, matrices(&settings[i], 1), 0)));
        add_result(&t, tu_solve(a, add_input(&t, matrices(&settings[i], 70), 0)));
        assert_matches_reference(&t, settings[i].tolerance);
        free_trial(&t);
    }
}

static void matrices_of_any_size_are_factored(void **state) {
    (void)state;
    for (int i = 0; i < SETTINGS; i++) {
        trial t = new_trial(settings[i].dtype);
        add_result(&t,
                   tu_cholesky(add_input(&t, matrices(&settings[i], settings[i].n), (double)settings[i].n)));
        assert_matches_reference(&t, settings[i].tolerance);
        free_trial(&t);
    }
}

static void triangular_systems_of_any_size_are_solved(void **state) {
    (void)state;
    for (int i = 0; i < SETTINGS; i++) {
        trial t = new_trial(settings[i].dtype);
        tu_value a = add_input(&t, matrices(&settings[i], settings[i].n), (double)settings[i].n);
        tu_value b = add_input(&t, matrices(&settings[i], 40), 0);
        for (int kind = 0; kind < 4; kind++)
            add_result(&t, tu_triangular_solve(a, b, .upper = kind & 1, .transpose = kind >> 1));
        assert_matches_reference(&t, settings[i].tolerance);
        free_trial(&t);
    }
}

/* The batch's first matrix is all zeros and gives NaN; the second must not be affected. */
static void a_singular_matrix_gives_nan(void **state) {
    (void)state;
    static const int64_t sizes[] = {3, SEVERAL_BLOCKS};
    for (int i = 0; i < 2; i++) {
        int64_t n = sizes[i], count = n * n;
        trial t = new_trial(TU_F64);
        tu_value a = add_input(&t, TU_SHAPE(2, n, n), 2.0 * (double)n);
        memset(t.data[0], 0, (size_t)count * sizeof(double));
        add_result(&t, tu_inverse(a));
        add_result(&t, tu_cholesky(a));
        run_on(&t, "gpu:0", t.got);
        for (size_t r = 0; r < 2; r++) {
            t.expected[r] = NULL;
            for (int64_t k = 0; k < count; k++) {
                assert_true(isnan(t.got[r][k]));
                assert_true(isfinite(t.got[r][count + k]));
            }
        }
        free_trial(&t);
    }
}

/* ---- Tuning ---- */

static int count_tuning_entries(const char *folder, const char *what) {
    char path[512], line[1024];
    int count = 0;
    snprintf(path, sizeof path, "%s/choices", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) count += strncmp(line, what, strlen(what)) == 0;
    fclose(file);
    return count;
}

static void tuning_results_are_stored(void **state) {
    (void)state;
    char folder[] = "/tmp/tutti-choices-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    const char *before = getenv("TUTTI_KERNELS");
    char *saved = before ? strdup(before) : NULL;
    setenv("TUTTI_KERNELS", folder, 1);
    trial t = new_trial(TU_F32);
    t.tune = true;
    add_result(&t, tu_matmul(add_input(&t, TU_SHAPE(11, 13), 0), add_input(&t, TU_SHAPE(13, 17), 0)));
    assert_matches_reference(&t, 1e-5);
    assert_int_equal(count_tuning_entries(folder, "gemm f32 [11,17,13]"), 1);
    free(t.got[0]);
    run_on(&t, "gpu:0", t.got);
    assert_int_equal(count_tuning_entries(folder, "gemm f32 [11,17,13]"), 1);
    free_trial(&t);
    if (saved)
        setenv("TUTTI_KERNELS", saved, 1);
    else
        unsetenv("TUTTI_KERNELS");
    snprintf(path, sizeof path, "%s/choices", folder);
    remove(path);
    remove(folder);
    free(saved);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relu_layers_use_one_kernel_forward_and_three_backward),
        cmocka_unit_test(relu_gradients_of_sums_match_the_reference),
        cmocka_unit_test(matmul_broadcasts_batches_in_any_pattern),
        cmocka_unit_test(systems_of_any_size_are_solved),
        cmocka_unit_test(matrices_of_any_size_are_factored),
        cmocka_unit_test(triangular_systems_of_any_size_are_solved),
        cmocka_unit_test(a_singular_matrix_gives_nan),
        cmocka_unit_test(tuning_results_are_stored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
