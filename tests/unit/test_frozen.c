/* Tests of the CPU's kernels for frozen graphs: their bits depend neither on the batch nor on threads, an epilogue gives
 * the bits of separate operations, and programs share packed weights. The sweep compares their results with `ref`. */
#include "test.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/alloc.h"
#include "base/number.h"
#include "bf16_tiles.h"
#include "device/cpu/packed_weights.h"
#include "graph/graph.h"

enum { MAX_BATCH = 32 };

/* ---- Graphs with frozen weights ---- */

typedef struct
    layer { /* a convolution (kernel > 0) of an image [size, size, in], or a product of rows of `in` */
    const char *what;
    int64_t kernel, size, stride, in, out;
} layer;

/* Shapes for each kernel; frozen.c says which. */
static const layer layers[] = {
    {"Winograd, 14x14", 3, 14, 1, 32, 48},
    {"Winograd, four tiles", 3, 7, 1, 64, 64},
    {"1x1", 1, 9, 1, 40, 70},
    {"1x1 with a stride", 1, 9, 2, 40, 70},
    {"few pixels", 3, 7, 2, 64, 64},
    {"long sums", 3, 8, 2, 300, 20},
    {"first layer", 7, 21, 2, 3, 64},
    {"direct, skipping padding", 5, 12, 1, 32, 64},
    {"product", 0, 1, 1, 784, 100},
    {"product with long sums", 0, 1, 1, 1700, 10},
};
enum { LAYERS = sizeof layers / sizeof *layers };

enum { TYPES = 2 };
static const tu_dtype types[TYPES] = {TU_F32, TU_BF16};

static tu__shared_data *weights[TYPES][2 * LAYERS]; /* of each layer: weights and bias */

static tu_shape weight_shape(const layer *l) {
    return l->kernel ? TU_SHAPE(l->out, l->kernel, l->kernel, l->in) : TU_SHAPE(l->in, l->out);
}

/* Writes numbers in [-1, 1]. */
static void fill(tu_dtype dtype, int64_t count, int64_t seed, void *data) {
    for (int64_t i = 0; i < count; i++) {
        int64_t k = i + seed;
        double number = (double)((k * 7919 + k / 13 * 104729) % 2003 - 1001) / 1001;
        tu__store_array(dtype, &number, 1, (char *)data + i * (int64_t)tu_dtype_size(dtype));
    }
}

static tu__shared_data *new_weights(tu_dtype dtype, int64_t count) {
    tu__shared_data *shared = tu__shared_data_new((size_t)count * tu_dtype_size(dtype), "weights");
    assert_non_null(shared);
    fill(dtype, count, 5 * count, shared->data);
    return shared;
}

static int make_weights(void **unused) {
    (void)unused;
    for (int t = 0; t < TYPES; t++)
        for (int i = 0; i < LAYERS; i++) {
            weights[t][2 * i] = new_weights(types[t], tu_shape_elements(weight_shape(&layers[i])));
            weights[t][2 * i + 1] = new_weights(types[t], layers[i].out);
        }
    return 0;
}

static int free_weights(void **unused) {
    (void)unused;
    for (int t = 0; t < TYPES; t++)
        for (int i = 0; i < 2 * LAYERS; i++) tu__shared_data_release(weights[t][i]);
    return 0;
}

static tu_value frozen_constant(tu_graph *graph, tu_dtype dtype, tu_shape shape, tu__shared_data *shared) {
    struct tu__constant_attrs attrs = {.dtype = dtype, .shape = shape};
    graph->is_frozen = true;
    return tu__make(graph, &(tu__node_request){.op = TU__OP_CONSTANT, .attrs = &attrs, .shared = shared});
}

typedef struct subject {
    tu_graph *graph;
    tu_state *state;
    tu_program *program;
    tu_value x, residual, sum, result; /* sum: before bias, residual and relu */
} subject;

static tu_value apply(subject *s, const layer *l, int type, int64_t batch) {
    bool is_product = l->kernel == 0;
    s->x = tu_batch_input(s->graph, "x", types[type],
                          is_product ? TU_SHAPE(batch, l->in) : TU_SHAPE(batch, l->size, l->size, l->in));
    tu_value w = frozen_constant(s->graph, types[type], weight_shape(l), weights[type][2 * (l - layers)]);
    if (is_product) return tu_matmul(s->x, w);
    int64_t pad = l->kernel / 2;
    return tu_convolve(s->x, w, .stride = {l->stride, l->stride}, .padding = TU_EXPLICIT,
                       .pad = {pad, pad, pad, pad});
}

/* Compiles relu(residual + (layer(x) + bias)). `fetch_sum`: also fetches layer(x), so that nothing can be fused. */
static void open_subject(subject *s, const layer *l, int type, int64_t batch, int threads, bool fetch_sum) {
    assert_int_equal(tu_graph_new(&s->graph), TU_OK);
    s->sum = apply(s, l, type, batch);
    tu_value y = tu_add(s->sum, frozen_constant(s->graph, types[type], TU_SHAPE(l->out),
                                                weights[type][2 * (l - layers) + 1]));
    s->residual = tu_batch_input(s->graph, "residual", types[type], tu_value_shape(y));
    s->result = tu_relu(tu_add(s->residual, y));
    if (tu_graph_status(s->graph) != TU_OK) fail_msg("%s: %s", l->what, tu_message());
    const tu_value fetched[] = {s->result, s->sum};
    if (tu_compile(s->graph, &s->program, .devices = "cpu:0", .threads = threads, .fetch = fetched,
                   .fetch_count = fetch_sum ? 2 : 1) != TU_OK)
        fail_msg("%s: %s", l->what, tu_message());
    assert_int_equal(tu_state_new(s->graph, &s->state, .seed = 1), TU_OK);
}

static void close_subject(subject *s) {
    tu_program_free(s->program);
    tu_state_free(s->state);
    tu_graph_free(s->graph);
}

static void *new_array(tu_value value, int64_t seed) {
    tu_type type = tu_value_type(value);
    void *data = test_malloc(tu_type_bytes(type));
    fill(type.dtype, tu_shape_elements(type.shape), seed, data);
    return data;
}

/* Returns the result, which the caller frees. */
static void *run_subject(const subject *s, const layer *l, const void *x) {
    void *residual = new_array(s->residual, 77), *result = new_array(s->result, 0),
         *sum = new_array(s->sum, 0);
    const tu_feed feeds[] = {{s->x, x}, {s->residual, residual}};
    if (tu_run(s->program, s->state, 2, feeds, (void *[]){result, sum}) != TU_OK)
        fail_msg("%s: %s", l->what, tu_message());
    test_free(residual);
    test_free(sum);
    return result;
}

static void *compute(const layer *l, int type, int64_t batch, int threads, bool fetch_sum) {
    subject s;
    open_subject(&s, l, type, batch, threads, fetch_sum);
    void *x = new_array(s.x, 3), *result = run_subject(&s, l, x);
    test_free(x);
    close_subject(&s);
    return result;
}

/* ---- Bits ---- */

static size_t result_bytes(const layer *l, int type, int64_t batch) {
    int64_t side = l->kernel ? (l->size + l->kernel / 2 * 2 - l->kernel) / l->stride + 1 : 1;
    return (size_t)(batch * side * side * l->out) * tu_dtype_size(types[type]);
}

static void compare_batches_and_threads(const layer *l, int type) {
    static const int64_t batches[] = {1, 3, 8, MAX_BATCH};
    static const int threads_of[] = {1, 2, 3, 16};
    void *expected = compute(l, type, MAX_BATCH, 1, false);
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
        for (size_t i = 0; i < sizeof threads_of / sizeof *threads_of; i++) {
            const int threads = threads_of[i];
            void *actual = compute(l, type, batches[b], threads, false);
            if (memcmp(actual, expected, result_bytes(l, type, batches[b])) != 0)
                fail_msg("%s, %s: other bits with batch %d, %d threads", l->what, tu_dtype_name(types[type]),
                         (int)batches[b], threads);
            test_free(actual);
        }
    test_free(expected);
}

/* A small number of samples: emulated tiles are slow. */
static void bits_of_tiles_depend_neither_on_the_batch_nor_on_threads(void **unused) {
    (void)unused;
    static const int64_t batches[] = {1, 2, 5};
    cpu_tiles_emulate(&emulated_bf16_tiles);
    for (const layer *l = layers; l < layers + LAYERS; l++) {
        void *expected = compute(l, 1, 5, 1, false);
        for (int i = 0; i < 3; i++) {
            void *actual = compute(l, 1, batches[i], 3 - i, false);
            if (memcmp(actual, expected, result_bytes(l, 1, batches[i])) != 0)
                fail_msg("%s: other bits with batch %d", l->what, (int)batches[i]);
            test_free(actual);
        }
        void *separate = compute(l, 1, 5, 2, true);
        if (memcmp(separate, expected, result_bytes(l, 1, 5)) != 0)
            fail_msg("%s: fusion changes bits", l->what);
        test_free(separate);
        test_free(expected);
    }
    cpu_tiles_emulate(NULL);
}

/* Computes two samples of which the second has only NaN: the first has the bits it has alone. */
static void assert_other_samples_do_not_matter(const layer *l, int type) {
    subject s;
    open_subject(&s, l, type, 2, 1, false);
    char *x = new_array(s.x, 3);
    const size_t sample = tu_type_bytes(tu_value_type(s.x)) / 2;
    memset(x + sample, 0xff, sample);
    void *pair = run_subject(&s, l, x), *alone = compute(l, type, 1, 1, false);
    if (memcmp(pair, alone, result_bytes(l, type, 1)) != 0)
        fail_msg("%s, %s: NaN in another sample changes bits", l->what, tu_dtype_name(types[type]));
    test_free(alone);
    test_free(pair);
    test_free(x);
    close_subject(&s);
}

static void nan_stays_in_its_sample(void **unused) {
    (void)unused;
    for (int type = 0; type < TYPES; type++)
        for (const layer *l = layers; l < layers + LAYERS; l++) assert_other_samples_do_not_matter(l, type);
    cpu_tiles_emulate(&emulated_bf16_tiles);
    for (const layer *l = layers; l < layers + LAYERS; l++) assert_other_samples_do_not_matter(l, 1);
    cpu_tiles_emulate(NULL);
}

static void bits_depend_neither_on_the_batch_nor_on_threads(void **unused) {
    (void)unused;
    for (int type = 0; type < TYPES; type++)
        for (const layer *l = layers; l < layers + LAYERS; l++) compare_batches_and_threads(l, type);
}

static void an_epilogue_has_the_bits_of_separate_operations(void **unused) {
    (void)unused;
    for (int type = 0; type < TYPES; type++)
        for (const layer *l = layers; l < layers + LAYERS; l++) {
            void *fused = compute(l, type, 2, 2, false), *separate = compute(l, type, 2, 2, true);
            if (memcmp(fused, separate, result_bytes(l, type, 2)) != 0)
                fail_msg("%s, %s: fusion changes bits", l->what, tu_dtype_name(types[type]));
            test_free(fused);
            test_free(separate);
        }
}

/* Counts the kernels of a layer with its epilogue: all operations in one, which also reads bias and residual. */
static void bias_residual_and_relu_are_in_one_kernel(void **unused) {
    (void)unused;
    for (const layer *l = layers; l < layers + LAYERS; l++) {
        subject s;
        tu_kernel_report report = TU_SIZED(tu_kernel_report);
        open_subject(&s, l, 0, 1, 1, false);
        assert_int_equal(tu_program_kernel_count(s.program), 1);
        assert_int_equal(tu_program_kernel(s.program, 0, &report), TU_OK);
        assert_non_null(strstr(report.kernel, "+bias+add+relu"));
        assert_int_equal(report.node_count, 4);
        const int64_t y = (int64_t)tu_type_bytes(tu_value_type(s.result));
        const int64_t x = (int64_t)tu_type_bytes(tu_value_type(s.x));
        const int64_t parameters = tu_shape_elements(weight_shape(l)) + l->out;
        assert_int_equal(report.bytes, x + 2 * y + parameters * (int64_t)sizeof(float));
        close_subject(&s);
    }
}

static void nan_and_infinity_reach_the_result(void **unused) {
    (void)unused;
    for (const layer *l = layers; l < layers + LAYERS; l++) {
        subject s;
        open_subject(&s, l, 0, 1, 1, false);
        float *x = new_array(s.x, 3);
        x[0] = NAN;
        float *result = run_subject(&s, l, x);
        assert_true(isnan(result[0]));
        test_free(result);
        test_free(x);
        close_subject(&s);
    }
}

/* ---- Packed weights ---- */

static void programs_of_all_batch_sizes_share_packed_weights(void **unused) {
    (void)unused;
    for (const layer *l = layers; l < layers + LAYERS; l++) {
        subject s[3];
        assert_int_equal(cpu_packed_weights_count(), 0);
        for (int i = 0; i < 3; i++) open_subject(&s[i], l, 0, 1 + 5 * i, 1 + i, false);
        assert_int_equal(cpu_packed_weights_count(), 1);
        close_subject(&s[0]);
        close_subject(&s[1]);
        assert_int_equal(cpu_packed_weights_count(), 1);
        close_subject(&s[2]);
        assert_int_equal(cpu_packed_weights_count(), 0);
    }
}

static void packed_weights_count_as_constants_of_the_program(void **unused) {
    (void)unused;
    for (const layer *l = layers; l < layers + LAYERS; l++) {
        subject s;
        tu_memory_report memory = TU_SIZED(tu_memory_report);
        open_subject(&s, l, 0, 1, 1, false);
        assert_int_equal(tu_program_memory(s.program, 0, &memory), TU_OK);
        size_t weight_bytes = (size_t)tu_shape_elements(weight_shape(l)) * sizeof(float);
        assert_true(memory.constant_bytes >= weight_bytes + (size_t)l->out * sizeof(float));
        close_subject(&s);
    }
}

static void fill_with_depth(const cpu_packed_layout *layout, const void *source, void *packed) {
    (void)source;
    memset(packed, (int)layout->depth, layout->bytes);
}

static void other_data_and_other_layouts_have_other_copies(void **unused) {
    (void)unused;
    cpu_packed_layout layout = {.pack = fill_with_depth, .depth = 1, .bytes = 100}, other = layout;
    other.depth = 2;
    cpu_packed_weights *w[4];
    assert_int_equal(cpu_packed_weights_open(weights[0][0], &layout, &w[0]), TU_OK);
    assert_int_equal(cpu_packed_weights_open(weights[0][0], &layout, &w[1]), TU_OK);
    assert_int_equal(cpu_packed_weights_open(weights[0][0], &other, &w[2]), TU_OK);
    assert_int_equal(cpu_packed_weights_open(weights[0][1], &layout, &w[3]), TU_OK);
    assert_ptr_equal(w[0], w[1]);
    assert_ptr_not_equal(w[0], w[2]);
    assert_ptr_not_equal(w[0], w[3]);
    assert_int_equal(cpu_packed_weights_bytes(w[2]), 100);
    assert_int_equal(((const char *)cpu_packed_weights_data(w[2]))[99], 2);
    assert_int_equal((uintptr_t)cpu_packed_weights_data(w[2]) % 64, 0);
    for (int i = 0; i < 4; i++) cpu_packed_weights_close(w[i]);
    cpu_packed_weights_close(NULL);
    assert_int_equal(cpu_packed_weights_count(), 0);
}

static void *open_and_close(void *unused) {
    const cpu_packed_layout layout = {.pack = fill_with_depth, .depth = 1, .bytes = 1000};
    (void)unused;
    for (int i = 0; i < 300; i++) {
        cpu_packed_weights *w;
        if (cpu_packed_weights_open(weights[0][i % 3], &layout, &w) != TU_OK) return "out of memory";
        if (((const char *)cpu_packed_weights_data(w))[999] != 1) return "not packed";
        cpu_packed_weights_close(w);
    }
    return NULL;
}

static void threads_open_packed_weights_at_once(void **unused) {
    (void)unused;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, NULL), 0);
    for (int i = 0; i < 4; i++) {
        void *problem;
        pthread_join(threads[i], &problem);
        assert_null(problem);
    }
    assert_int_equal(cpu_packed_weights_count(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_depend_neither_on_the_batch_nor_on_threads),
        cmocka_unit_test(bits_of_tiles_depend_neither_on_the_batch_nor_on_threads),
        cmocka_unit_test(nan_stays_in_its_sample),
        cmocka_unit_test(an_epilogue_has_the_bits_of_separate_operations),
        cmocka_unit_test(bias_residual_and_relu_are_in_one_kernel),
        cmocka_unit_test(nan_and_infinity_reach_the_result),
        cmocka_unit_test(programs_of_all_batch_sizes_share_packed_weights),
        cmocka_unit_test(packed_weights_count_as_constants_of_the_program),
        cmocka_unit_test(other_data_and_other_layouts_have_other_copies),
        cmocka_unit_test(threads_open_packed_weights_at_once),
    };
    return cmocka_run_group_tests(tests, make_weights, free_weights);
}
