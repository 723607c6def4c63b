/* Reductions, softmax, cumulative sums, top-k and normalisations on the CUDA device, with larger sizes than the cases
 * of tests/ops: split work, unaligned rows, one block per lane. Results are compared with the reference. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/number.h"
#include "graph/graph.h"
#include "optim/gradients.h"

enum { MAX_VALUES = 4 };

typedef struct test_case {
    tu_graph *graph;
    tu_value inputs[MAX_VALUES], outputs[MAX_VALUES];
    double *data[MAX_VALUES];
    int input_count, output_count;
} test_case;

static test_case new_case(void) {
    test_case s = {0};
    assert_int_equal(tu_graph_new(&s.graph), TU_OK);
    return s;
}

static uint32_t state = 1;
static double uniform(double low, double high) {
    state = state * 1664525u + 1013904223u;
    return low + (high - low) * ((state >> 8) / 16777216.0);
}

/* Adds an input of random numbers, rounded to its type. */
static tu_value add_input(test_case *s, tu_dtype dtype, tu_shape shape, double low, double high) {
    int index = s->input_count++;
    int64_t count = tu_shape_elements(shape);
    char name[8];
    snprintf(name, sizeof name, "x%d", index);
    s->data[index] = malloc((size_t)count * sizeof(double));
    assert_non_null(s->data[index]);
    for (int64_t i = 0; i < count; i++) s->data[index][i] = tu__round_to(dtype, uniform(low, high));
    return s->inputs[index] = tu_input(s->graph, name, dtype, shape);
}

static void add_output(test_case *s, tu_value value) {
    s->outputs[s->output_count++] = value;
}

static void run_on(const test_case *s, tu_program *program, double **results) {
    tu_feed feeds[MAX_VALUES];
    void *typed[MAX_VALUES], *fetched[MAX_VALUES];
    tu_state *variables;
    assert_int_equal(tu_state_new(s->graph, &variables), TU_OK);
    for (int i = 0; i < s->input_count; i++) {
        tu_type type = tu_value_type(s->inputs[i]);
        typed[i] = malloc(tu_type_bytes(type));
        tu__store_array(type.dtype, s->data[i], tu_shape_elements(type.shape), typed[i]);
        feeds[i] = (tu_feed){s->inputs[i], typed[i]};
    }
    for (int i = 0; i < s->output_count; i++)
        fetched[i] = malloc(tu_type_bytes(tu_value_type(s->outputs[i])));
    if (tu_run(program, variables, (size_t)s->input_count, feeds, fetched) != TU_OK)
        fail_msg("%s", tu_message());
    for (int i = 0; i < s->output_count; i++) {
        tu_type type = tu_value_type(s->outputs[i]);
        int64_t count = tu_shape_elements(type.shape);
        results[i] = malloc((size_t)count * sizeof(double));
        tu__load_array(type.dtype, fetched[i], count, results[i]);
        free(fetched[i]);
    }
    for (int i = 0; i < s->input_count; i++) free(typed[i]);
    tu_state_free(variables);
}

static tu_program *compile(const test_case *s, const char *device) {
    tu_program *program;
    if (tu_compile(s->graph, &program, .devices = device, .fetch = s->outputs,
                   .fetch_count = (size_t)s->output_count) != TU_OK)
        fail_msg("%s", tu_message());
    return program;
}

/* `relative`: tolerance relative to the largest number of a result. Integers must be equal. */
static void check_result(tu_type type, const double *expected, const double *got, double relative) {
    int64_t count = tu_shape_elements(type.shape);
    double largest = 1;
    for (int64_t i = 0; i < count; i++)
        if (isfinite(expected[i])) largest = fmax(largest, fabs(expected[i]));
    for (int64_t i = 0; i < count; i++) {
        bool is_equal = expected[i] == got[i] || (isnan(expected[i]) && isnan(got[i]));
        double bound = tu_dtype_is_float(type.dtype) ? relative * largest : 0;
        if (!is_equal && !(fabs(expected[i] - got[i]) <= bound))
            fail_msg("element %lld of %s is %.9g, expected %.9g", (long long)i, tu_dtype_name(type.dtype),
                     got[i], expected[i]);
    }
}

static int count_kernels(tu_program *program, const char *name) {
    tu_kernel_report report = TU_SIZED(tu_kernel_report);
    int count = 0;
    for (size_t i = 0;
         i < tu_program_kernel_count(program) && tu_program_kernel(program, i, &report) == TU_OK; i++)
        count += strcmp(report.kernel, name) == 0;
    return count;
}

/* Runs twice on the GPU: both runs must give the same bits. */
static void check_and_free(test_case *s, double relative) {
    double *expected[MAX_VALUES], *got[MAX_VALUES], *again[MAX_VALUES];
    tu_program *reference = compile(s, "ref"), *program = compile(s, "gpu");
    run_on(s, reference, expected);
    run_on(s, program, got);
    run_on(s, program, again);
    for (int i = 0; i < s->output_count; i++) {
        tu_type type = tu_value_type(s->outputs[i]);
        check_result(type, expected[i], got[i], relative);
        check_result(type, got[i], again[i], 0);
        free(expected[i]), free(got[i]), free(again[i]);
    }
    for (int i = 0; i < s->input_count; i++) free(s->data[i]);
    tu_program_free(reference);
    tu_program_free(program);
    tu_graph_free(s->graph);
}

static double machine_epsilon(tu_dtype dtype) {
    return dtype == TU_BF16 ? 0x1p-7 : dtype == TU_F16 ? 0x1p-10 : dtype == TU_F32 ? 0x1p-23 : 0x1p-52;
}

static const tu_dtype float_types[] = {TU_F32, TU_BF16, TU_F16, TU_F64};

/* ---- Reductions ---- */

static void check_reductions(tu_dtype dtype, tu_shape shape, tu_axes axes) {
    tu_reduce_options o = {.struct_size = sizeof o, .axes = axes};
    test_case s = new_case();
    tu_value x = add_input(&s, dtype, shape, -1, 1);
    add_output(&s, tu_mean_with(x, &o));
    add_output(&s, tu_max_with(x, &o));
    add_output(&s, tu_min_with(x, &o));
    add_output(&s, tu_logsumexp_with(x, &o));
    check_and_free(&s, 64 * machine_epsilon(dtype));
}

static void reductions_of_all_shapes_match_the_reference(void **unused) {
    (void)unused;
    for (int t = 0; t < 4; t++) {
        check_reductions(float_types[t], TU_SHAPE(50001), (tu_axes)TU_AXES(0));      /* one split row */
        check_reductions(float_types[t], TU_SHAPE(7, 5001), (tu_axes)TU_AXES(1));    /* unaligned rows */
        check_reductions(float_types[t], TU_SHAPE(301, 37), (tu_axes)TU_AXES(1));    /* one warp per row */
        check_reductions(float_types[t], TU_SHAPE(6000, 64), (tu_axes)TU_AXES(0));   /* split columns */
        check_reductions(float_types[t], TU_SHAPE(700, 33), (tu_axes)TU_AXES(0));    /* single elements */
        check_reductions(float_types[t], TU_SHAPE(5, 90, 600), (tu_axes)TU_AXES(1)); /* many columns */
        check_reductions(float_types[t], TU_SHAPE(40, 16, 1100), (tu_axes)TU_AXES(0, 2));     /* two runs */
        check_reductions(float_types[t], TU_SHAPE(9, 8, 7, 6, 5), (tu_axes)TU_AXES(0, 2, 4)); /* three */
        check_reductions(float_types[t], TU_SHAPE(1, 1, 3, 1),
                         (tu_axes)TU_AXES(0, 3)); /* nothing to reduce */
    }
}

/* The gradient of a relu and of a bias after it, in one kernel: few rows in one launch, more in two. */
static void fused_relu_gradients_and_bias_sums_match_the_reference(void **unused) {
    (void)unused;
    static const int64_t rows[] = {1, 3, 64, 65, 128, 255, 256, 257, 1000}, columns[] = {1, 3, 10, 64, 516};
    for (int t = 0; t < 4; t++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            tu_shape shape = TU_SHAPE(rows[r], columns[(r + (size_t)t) % 5]);
            test_case s = new_case();
            tu_value y = add_input(&s, float_types[t], shape, -1, 1),
                     dy = add_input(&s, float_types[t], shape, -1, 1);
            tu_value dx = tu__apply(RELU_GRAD, NULL, y, dy);
            add_output(&s, dx);
            add_output(&s, tu_sum(dx, .axes = TU_AXES(0)));
            add_output(&s, tu_sum(tu_mul(dx, y), .axes = TU_AXES(0)));
            check_and_free(&s, 64 * machine_epsilon(float_types[t]));
        }
}

/* ---- The global norm of many tensors ---- */

static tu_value squared_norm(size_t count, tu_value *tensors) {
    return tu__squared_norm(&(tu__gradients){.count = count, .variables = tensors, .gradients = tensors});
}

/* More tensors than fit into a launch, of three types, with and without rows to sum first. */
static void the_norm_of_many_tensors_is_one_kernel(void **unused) {
    (void)unused;
    enum { ROWS = 300, COLUMNS = 37 };
    test_case s = new_case();
    tu_value tensors[ROWS + 3], table = add_input(&s, TU_F32, TU_SHAPE(ROWS, COLUMNS), -2, 2);
    for (int64_t i = 0; i < ROWS; i++) tensors[i] = tu_slice(table, 0, i, i + 1, 1);
    tensors[ROWS] = add_input(&s, TU_F32, TU_SHAPE(3, 2500, 7), -1, 1);
    tensors[ROWS + 1] = add_input(&s, TU_BF16, TU_SHAPE(9001), -1, 1);
    tensors[ROWS + 2] = add_input(&s, TU_F16, TU_SHAPE(1), 0, 1);
    tu_value squared = squared_norm(ROWS + 3, tensors);
    add_output(&s, squared);
    add_output(&s, tu_is_finite(squared));
    tu_program *program = compile(&s, "gpu");
    assert_int_equal(count_kernels(program, "squared norm"), 1);
    assert_int_equal(count_kernels(program, "is_finite"), 0);
    tu_program_free(program);
    check_and_free(&s, 1e-6);
}

static void a_non_finite_norm_is_reported(void **unused) {
    (void)unused;
    const double non_finite_norms[] = {INFINITY, -INFINITY, NAN, 1e30 /* its square is infinite in f32 */};
    for (int i = 0; i < 4; i++) {
        test_case s = new_case();
        tu_value tensors[] = {add_input(&s, TU_F32, TU_SHAPE(5000), -1, 1),
                              add_input(&s, TU_F32, TU_SHAPE(2, 3), -1, 1)};
        s.data[i % 2][i] = non_finite_norms[i];
        tu_value squared = squared_norm(2, tensors);
        add_output(&s, tu_is_finite(squared));
        add_output(&s, squared);
        check_and_free(&s, 1e-6);
    }
}

static void check_norm(test_case *s, tu_value norm, int kernels) {
    add_output(s, norm);
    tu_program *program = compile(s, "gpu");
    assert_int_equal(count_kernels(program, "squared norm"), kernels);
    tu_program_free(program);
    check_and_free(s, 1e-6);
}

/* The total may have several readers. */
static void a_norm_with_several_readers_is_one_kernel(void **unused) {
    (void)unused;
    test_case s = new_case();
    tu_value tensors[] = {add_input(&s, TU_F32, TU_SHAPE(40, 50), -1, 1),
                          add_input(&s, TU_F32, TU_SHAPE(60), -1, 1)};
    tu_value norm = squared_norm(2, tensors);
    add_output(&s, tu_sum(norm));
    add_output(&s, tu_mul(norm, norm));
    check_norm(&s, norm, 1);
}

/* A tensor that is not stored in memory, a sum of something else, a sum with another reader: the global-norm kernel
 * must not be used. */
static void other_sums_of_squares_do_not_use_the_norm_kernel(void **unused) {
    (void)unused;
    for (int form = 0; form < 3; form++) {
        test_case s = new_case();
        tu_value x = add_input(&s, TU_F32, TU_SHAPE(40), -1, 1),
                 y = add_input(&s, TU_F32, TU_SHAPE(60), -1, 1);
        tu_value in_x = tu_sum(form == 1 ? x : tu_square(x));
        tu_value in_y = tu_sum(tu_square(form == 0 ? tu_mul(y, y) : y));
        if (form == 2) add_output(&s, in_y);
        check_norm(&s, tu_add(tu_cast(in_x, TU_F64), tu_cast(in_y, TU_F64)), 0);
    }
}

static void sums_of_integers_are_exact(void **unused) {
    (void)unused;
    static const tu_dtype types[] = {TU_I32, TU_I64, TU_U8};
    for (int t = 0; t < 3; t++) {
        test_case s = new_case();
        tu_value x = add_input(&s, types[t], TU_SHAPE(900, 48), types[t] == TU_U8 ? 0 : -9, 9);
        add_output(&s, tu_sum(x, .axes = TU_AXES(0)));
        add_output(&s, tu_sum(x, .axes = TU_AXES(1)));
        add_output(&s, tu_argmax(x, 0));
        add_output(&s, tu_argmin(x, 1));
        check_and_free(&s, 0);
    }
}

/* The first of equal values, and the first NaN, wherever the work is split. */
static void argmax_returns_the_first_index(void **unused) {
    (void)unused;
    for (int nan = 0; nan < 2; nan++) {
        test_case s = new_case();
        tu_value row = add_input(&s, TU_BF16, TU_SHAPE(40000), 0, 3);
        tu_value columns = add_input(&s, TU_F32, TU_SHAPE(5000, 12), 0, 1);
        for (int i = 0; i < 40000; i++) s.data[0][i] = floor(s.data[0][i]);
        for (int i = 0; i < 60000; i++) s.data[1][i] = floor(4 * s.data[1][i]);
        if (nan)
            s.data[0][31111] = s.data[0][17777] = s.data[1][12 * 4000 + 5] = s.data[1][12 * 311 + 5] = NAN;
        add_output(&s, tu_argmax(row, 0));
        add_output(&s, tu_argmin(row, 0));
        add_output(&s, tu_argmax(columns, 0));
        add_output(&s, tu_max(columns, .axes = TU_AXES(0)));
        check_and_free(&s, 0);
    }
}

static void logsumexp_and_softmax_propagate_infinities_and_nan(void **unused) {
    (void)unused;
    static const double special[] = {INFINITY, -INFINITY, NAN};
    for (int kind = 0; kind < 3; kind++) {
        test_case s = new_case();
        tu_value x = add_input(&s, TU_F32, TU_SHAPE(6, 1500), -3, 3);
        for (int i = 0; i < 1500; i++) s.data[0][1500 + i] = special[kind]; /* a row of only these */
        s.data[0][3 * 1500 + 700] = special[kind];
        s.data[0][4 * 1500 + 3] = INFINITY;
        s.data[0][4 * 1500 + 1400] = special[kind];
        add_output(&s, tu_logsumexp(x, .axes = TU_AXES(1)));
        add_output(&s, tu_softmax(x, 1));
        add_output(&s, tu_log_softmax(x, 1));
        add_output(&s, tu_logsumexp(x, .axes = TU_AXES(0)));
        check_and_free(&s, 64 * machine_epsilon(TU_F32));
    }
}

/* ---- Softmax ---- */

static void softmax_and_losses_of_long_rows_match(void **unused) {
    (void)unused;
    for (int t = 0; t < 4; t++) {
        test_case s = new_case();
        tu_value x = add_input(&s, float_types[t], TU_SHAPE(9, 9001), -8, 8);
        tu_value labels = add_input(&s, TU_I32, TU_SHAPE(9), -1, 9002);
        add_output(&s, tu_log_softmax(x, 1));
        add_output(&s, tu_cross_entropy(x, labels));
        add_output(&s, tu_cross_entropy(x, labels, .smoothing = 0.1));
        add_output(&s, tu_softmax(x, 0));
        check_and_free(&s, 64 * machine_epsilon(float_types[t]));
    }
}

/* Out-of-range class indices mask their rows: no loss, no gradient. */
static void cross_entropy_fuses_its_gradient(void **unused) {
    (void)unused;
    static const int64_t classes[] = {10, 1, 5000};
    for (int c = 0; c < 3; c++)
        for (int t = 0; t < 4; t++) {
            test_case s = new_case();
            tu_value x = add_input(&s, float_types[t], TU_SHAPE(37, classes[c]), -8, 8), dx = {0};
            tu_value labels =
                add_input(&s, t % 2 ? TU_I64 : TU_I32, TU_SHAPE(37), -2, (double)classes[c] + 1);
            tu_value loss = tu_cross_entropy(x, labels);
            tu_gradients(tu_sum(tu_square(loss)), 1, &x, &dx);
            add_output(&s, loss);
            add_output(&s, dx);
            tu_program *program = compile(&s, "gpu");
            assert_int_equal(count_kernels(program, "cross_entropy+gradient"), 1);
            assert_int_equal(count_kernels(program, "softmax"), 0);
            tu_program_free(program);
            check_and_free(&s, 64 * machine_epsilon(float_types[t]));
        }
}

/* With mixed precision the casts around the loss are part of its kernel. Small losses are computed in one block. */
static void cross_entropy_of_half_logits_needs_no_f32_copies(void **unused) {
    (void)unused;
    static const struct {
        tu_dtype half, labels;
        int64_t rows, classes;
        int fused;
    } list[] = {{TU_BF16, TU_I32, 40, 5003, 1},
                {TU_F16, TU_I64, 3, 9000, 1},
                {TU_BF16, TU_I64, 700, 33, 1},
                {TU_BF16, TU_I32, 8, 10, 0}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        test_case s = new_case();
        tu_value x = add_input(&s, list[i].half, TU_SHAPE(list[i].rows, list[i].classes), -8, 8), dx = {0};
        tu_value labels =
            add_input(&s, list[i].labels, TU_SHAPE(list[i].rows), -1, (double)list[i].classes + 1);
        tu_value loss = tu_mean(tu_cross_entropy(tu_cast(tu_neg(x), TU_F32), labels));
        tu_gradients(loss, 1, &x, &dx);
        add_output(&s, loss);
        add_output(&s, tu_scale(dx, 256));
        tu_program *program = compile(&s, "gpu");
        assert_int_equal(count_kernels(program, "cast+cross_entropy+gradient+cast"), list[i].fused);
        assert_int_equal(count_kernels(program, "cross_entropy+gradient"), 0);
        tu_program_free(program);
        check_and_free(&s, 64 * machine_epsilon(list[i].half));
    }
}

/* The mean loss of x [rows, classes] + bias, and its gradients times 256, because they are small. */
static test_case training_loss(tu_dtype stored, tu_dtype computed, int64_t rows, int64_t classes) {
    test_case s = new_case();
    tu_value wrt[2], gradients[2];
    wrt[0] = add_input(&s, stored, TU_SHAPE(rows, classes), -8, 8);
    wrt[1] = add_input(&s, computed, TU_SHAPE(classes), -1, 1);
    tu_value labels = add_input(&s, rows % 2 ? TU_I64 : TU_I32, TU_SHAPE(rows), -1, (double)classes + 1);
    tu_value logits = tu_add(stored == computed ? wrt[0] : tu_cast(wrt[0], computed), wrt[1]);
    tu_value loss = tu_mean(tu_cross_entropy(logits, labels));
    tu_gradients(loss, 2, wrt, gradients);
    add_output(&s, loss);
    for (int i = 0; i < 2; i++) add_output(&s, tu_scale(gradients[i], 256));
    return s;
}

/* One kernel computes losses, their mean, the scaled gradient, a cast of it and its sums. */
static void a_small_loss_is_one_kernel(void **unused) {
    (void)unused;
    static const int64_t rows[] = {128, 1, 1023, 37, 3, 256}, classes[] = {10, 1, 11, 100, 5000, 64};
    for (int c = 0; c < 6; c++)
        for (int t = 0; t < 5; t++) {
            tu_dtype stored = t < 4 ? float_types[t] : TU_BF16, computed = t < 4 ? stored : TU_F32;
            test_case s = training_loss(stored, computed, rows[c], classes[c]);
            tu_program *program = compile(&s, "gpu");
            assert_int_equal(count_kernels(program, "cross_entropy+mean+gradient"), 1);
            assert_int_equal(count_kernels(program, "mean"), 0);
            tu_program_free(program);
            check_and_free(&s, 64 * machine_epsilon(stored));
        }
}

static void a_fused_small_loss_propagates_infinities_and_nan(void **unused) {
    (void)unused;
    test_case s = training_loss(TU_F32, TU_F32, 8, 4);
    static const double special[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++) s.data[0][5 * i + 1] = special[i];
    for (int i = 0; i < 4; i++) s.data[0][20 + i] = -INFINITY;
    for (int i = 0; i < 8; i++) s.data[2][i] = i % 4;
    check_and_free(&s, 64 * machine_epsilon(TU_F32));
}

/* A loss that does not fit into one block, and losses with other readers. */
static void large_losses_and_losses_with_other_readers_match_the_reference(void **unused) {
    (void)unused;
    test_case large = training_loss(TU_BF16, TU_F32, 2000, 10);
    check_and_free(&large, 64 * machine_epsilon(TU_BF16));
    for (int t = 0; t < 4; t++) {
        test_case s = new_case();
        tu_value x = add_input(&s, float_types[t], TU_SHAPE(5, 6, 7), -8, 8), dx = {0};
        tu_value losses = tu_cross_entropy(x, add_input(&s, TU_I32, TU_SHAPE(5, 6), -1, 8));
        tu_gradients(tu_sum(losses), 1, &x, &dx);
        add_output(&s, losses);
        add_output(&s, tu_mean(losses));
        add_output(&s, dx);
        add_output(&s, tu_sum(dx, .axes = TU_AXES(0, 1)));
        check_and_free(&s, 64 * machine_epsilon(float_types[t]));
    }
}

/* ---- Order ---- */

static void cumulative_sums_of_long_lanes_match(void **unused) {
    (void)unused;
    for (int kind = 0; kind < 4; kind++) {
        test_case s = new_case();
        tu_cumsum_options o = {.struct_size = sizeof o, .exclusive = kind & 1, .reverse = kind >> 1};
        tu_value x = add_input(&s, TU_F32, TU_SHAPE(2, 40001), -1, 1);
        tu_value y = add_input(&s, TU_F64, TU_SHAPE(3, 1500, 2), -1, 1);
        tu_value z = add_input(&s, TU_I64, TU_SHAPE(300, 60), -9, 9);
        add_output(&s, tu_cumsum_with(x, 1, &o));
        add_output(&s, tu_cumsum_with(y, 1, &o));
        add_output(&s, tu_cumsum_with(z, 1, &o));
        check_and_free(&s, 1024 * machine_epsilon(TU_F32));
    }
}

static void top_k_of_long_lanes_matches(void **unused) {
    (void)unused;
    static const int64_t counts[] = {1, 7, 1024, 3333};
    for (int i = 0; i < 4; i++) {
        test_case s = new_case();
        tu_value x = add_input(&s, TU_BF16, TU_SHAPE(2, 3333), -4, 4); /* many equal values */
        tu_value y = add_input(&s, TU_I32, TU_SHAPE(3333, 2), -400, 400);
        s.data[0][3000] = s.data[0][5000] = s.data[0][3001] = NAN;
        tu_value a = tu_top_k(x, counts[i], 1), b = tu_top_k(y, counts[i], 0);
        add_output(&s, a);
        add_output(&s, tu_output_of(a, 1));
        add_output(&s, b);
        add_output(&s, tu_output_of(b, 1));
        check_and_free(&s, 0);
    }
}

/* ---- Normalisation ---- */

static tu_value batch_norm_with_variables(tu_graph *g, tu_value x, const char *gamma, const char *beta) {
    tu_shape s = tu_value_shape(x), parameter = TU_SHAPE(s.dim[s.rank - 1]);
    tu_dtype dtype = tu_value_dtype(x) == TU_F64 ? TU_F64 : TU_F32;
    return tu_batch_normalize(x,
                              tu_variable(g, gamma, dtype, parameter, .init = {TU_INIT_CONSTANT, .a = 1.25}),
                              tu_variable(g, beta, dtype, parameter, .init = {TU_INIT_CONSTANT, .a = 0.5}));
}

/* A mean far from zero must not lose precision. */
static void batch_normalisation_of_many_rows_matches(void **unused) {
    (void)unused;
    static const int64_t channels[] = {64, 5};
    for (int c = 0; c < 2; c++)
        for (int t = 0; t < 4; t++) {
            test_case s = new_case();
            double offset = t == 0 ? 1000 : 2;
            tu_value x = add_input(&s, float_types[t], TU_SHAPE(3000, channels[c]), offset - 1, offset + 1);
            tu_value y = batch_norm_with_variables(s.graph, x, "gamma", "beta"), dx = {0};
            tu_gradients(tu_sum(tu_square(y)), 1, &x, &dx);
            add_output(&s, y);
            add_output(&s, tu_output_of(y, 1));
            add_output(&s, tu_output_of(y, 2));
            add_output(&s, dx);
            check_and_free(
                &s, (t % 3 == 0 ? 2000 : 64) *
                        machine_epsilon(float_types[t])); /* dx is a small difference of large numbers */
        }
}

static void layer_normalisation_of_any_width_matches(void **unused) {
    (void)unused;
    static const int64_t widths[] = {3, 100, 6000};
    for (int w = 0; w < 3; w++)
        for (int t = 0; t < 4; t++) {
            test_case s = new_case();
            tu_value x = add_input(&s, float_types[t], TU_SHAPE(70, widths[w]), -1, 3);
            tu_value gamma = add_input(&s, float_types[t], TU_SHAPE(widths[w]), 0.5, 1.5);
            tu_value beta = add_input(&s, float_types[t], TU_SHAPE(widths[w]), -1, 1);
            tu_value y = tu_layer_normalize(x, gamma, beta), wrt[] = {x, gamma}, d[2] = {{0}};
            tu_gradients(tu_sum(tu_square(y)), 2, wrt, d);
            add_output(&s, y);
            add_output(&s, tu_output_of(y, 2));
            add_output(&s, d[0]);
            add_output(&s, d[1]);
            check_and_free(&s, 256 * machine_epsilon(float_types[t]));
        }
}

/* An f32 x, with y cast to half precision and dy cast from it, as in mixed precision. A cumulative sum stands for the
 * product that reads y. */
static void check_mixed_layer_norm(tu_dtype half, int64_t width, bool has_other_readers) {
    test_case s = new_case();
    tu_value x = add_input(&s, TU_F32, TU_SHAPE(70, width), -1, 3);
    tu_value wrt[] = {x, add_input(&s, TU_F32, TU_SHAPE(width), 0.5, 1.5)}, d[2] = {{0}};
    tu_value wide = tu_layer_normalize(x, wrt[1], add_input(&s, TU_F32, TU_SHAPE(width), -1, 1));
    tu_value y = tu_cumsum(tu_cast(wide, half), 0), loss = tu_sum(tu_square(tu_cast(y, TU_F32)));
    if (has_other_readers) loss = tu_add(loss, tu_sum(wide));
    tu_gradients(tu_scale(loss, 1e-3), 2, wrt, d);
    add_output(&s, y);
    add_output(&s, has_other_readers ? tu_neg(wide) : tu_output_of(wide, 2));
    for (int i = 0; i < 2; i++) add_output(&s, d[i]);
    tu_program *program = compile(&s, "gpu");
    int fused = has_other_readers ? 0 : 1;
    assert_int_equal(count_kernels(program, "layer_norm+cast"), fused);
    assert_int_equal(count_kernels(program, "layer_norm"), 1 - fused);
    assert_int_equal(count_kernels(program, "cast+layer_norm_grad"), fused);
    assert_int_equal(count_kernels(program, "layer_norm_grad"), 1 - fused);
    tu_program_free(program);
    check_and_free(&s, 16 * machine_epsilon(half));
}

static void layer_normalisation_computes_its_casts(void **unused) {
    (void)unused;
    static const int64_t widths[] = {3, 100, 768, 6001};
    for (int w = 0; w < 4; w++)
        for (int has_other_readers = 0; has_other_readers < 2; has_other_readers++)
            check_mixed_layer_norm(w % 2 ? TU_F16 : TU_BF16, widths[w], has_other_readers);
}

/* Two residual blocks with a cumulative sum between them, which like a convolution is not pointwise. */
static void residual_blocks_match_and_are_fused(void **unused) {
    (void)unused;
    static const int64_t channels[] = {16, 5};
    for (int c = 0; c < 2; c++)
        for (int t = 0; t < 4; t++) {
            test_case s = new_case();
            tu_shape shape = TU_SHAPE(3, 40, channels[c]);
            tu_value x = add_input(&s, float_types[t], shape, -1, 1);
            tu_value weight = add_input(&s, float_types[t], shape, -0.1, 0.1);
            tu_value inner = tu_cumsum(tu_relu(batch_norm_with_variables(s.graph, x, "gamma0", "beta0")), 0);
            tu_value first = tu_relu(tu_add(batch_norm_with_variables(s.graph, inner, "gamma1", "beta1"), x));
            tu_value last = batch_norm_with_variables(s.graph, tu_cumsum(first, 0), "gamma2", "beta2");
            tu_value second = tu_relu(tu_add(first, last)), dx = {0};
            tu_gradients(tu_sum(tu_mul(tu_cumsum(second, 0), weight)), 1, &x, &dx);
            add_output(&s, second);
            add_output(&s, dx);
            tu_program *program = compile(&s, "gpu");
            assert_int_equal(count_kernels(program, "batch_norm+relu"), 1);
            assert_int_equal(count_kernels(program, "batch_norm+add+relu"), 2);
            assert_int_equal(count_kernels(program, "relu_grad+batch_norm_grad"), 1);
            assert_int_equal(count_kernels(program, "relu_grad+batch_norm_grad (mask)"), 1);
            assert_int_equal(count_kernels(program, "add+relu_grad+batch_norm_grad"), 1);
            tu_program_free(program);
            check_and_free(&s, 256 * machine_epsilon(float_types[t]));
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_of_all_shapes_match_the_reference),
        cmocka_unit_test(fused_relu_gradients_and_bias_sums_match_the_reference),
        cmocka_unit_test(the_norm_of_many_tensors_is_one_kernel),
        cmocka_unit_test(a_non_finite_norm_is_reported),
        cmocka_unit_test(a_norm_with_several_readers_is_one_kernel),
        cmocka_unit_test(other_sums_of_squares_do_not_use_the_norm_kernel),
        cmocka_unit_test(sums_of_integers_are_exact),
        cmocka_unit_test(argmax_returns_the_first_index),
        cmocka_unit_test(logsumexp_and_softmax_propagate_infinities_and_nan),
        cmocka_unit_test(softmax_and_losses_of_long_rows_match),
        cmocka_unit_test(cross_entropy_fuses_its_gradient),
        cmocka_unit_test(cross_entropy_of_half_logits_needs_no_f32_copies),
        cmocka_unit_test(a_small_loss_is_one_kernel),
        cmocka_unit_test(a_fused_small_loss_propagates_infinities_and_nan),
        cmocka_unit_test(large_losses_and_losses_with_other_readers_match_the_reference),
        cmocka_unit_test(cumulative_sums_of_long_lanes_match),
        cmocka_unit_test(top_k_of_long_lanes_matches),
        cmocka_unit_test(batch_normalisation_of_many_rows_matches),
        cmocka_unit_test(layer_normalisation_of_any_width_matches),
        cmocka_unit_test(layer_normalisation_computes_its_casts),
        cmocka_unit_test(residual_blocks_match_and_are_fused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
