/* Tests of groups of kernels that compute a few samples at a time: a network gives the same bits as sample by sample, and
 * needs less memory than kernel by kernel. */
#include "test.h"

#include <stdio.h>
#include <string.h>

#include <tutti/tutti.h>

#include "graph/graph.h"

enum { SIZE = 64, CHANNELS = 8, BATCH = 16, RESULTS = 3 };

static void fill(float *data, int64_t count, int64_t seed) {
    for (int64_t i = 0; i < count; i++)
        data[i] = (float)(((i + seed) * 7919 + (i + seed) / 13 * 104729) % 2003 - 1001) / 1001;
}

/* ---- A network whose values have up to 1 MiB per sample ---- */

typedef struct network {
    tu_graph *graph;
    tu_value x, results[RESULTS];
    tu_program *program;
    tu_state *state;
    tu_session *session;
} network;

static tu_value constant(tu_graph *graph, tu_shape shape) {
    struct tu__constant_attrs attrs = {.dtype = TU_F32, .shape = shape};
    int64_t count = tu_shape_elements(shape);
    tu__shared_data *shared = tu__shared_data_new((size_t)count * sizeof(float), "weights");
    assert_non_null(shared);
    fill(shared->data, count, 5 * count);
    tu_value value =
        tu__make(graph, &(tu__node_request){.op = TU__OP_CONSTANT, .attrs = &attrs, .shared = shared});
    tu__shared_data_release(shared);
    return value;
}

static tu_value convolve(tu_value x, int64_t channels, int64_t kernel, int64_t stride) {
    tu_value w = constant(x.graph, TU_SHAPE(channels, kernel, kernel, tu_value_shape(x).dim[3]));
    int64_t pad = kernel / 2;
    tu_value y =
        tu_convolve(x, w, .stride = {stride, stride}, .padding = TU_EXPLICIT, .pad = {pad, pad, pad, pad});
    return tu_add(y, constant(x.graph, TU_SHAPE(channels)));
}

/* A residual block with each kind of convolution. The first result is the residual, which the group also reads; the second
 * one is read by its kernels and by others. */
static void build(network *n, int64_t batch) {
    assert_int_equal(tu_graph_new(&n->graph), TU_OK);
    n->graph->is_frozen = true;
    n->x = tu_batch_input(n->graph, "x", TU_F32, TU_SHAPE(batch, SIZE, SIZE, CHANNELS));
    tu_value a = tu_relu(convolve(n->x, 64, 1, 1));
    tu_value b = tu_relu(convolve(tu_relu(convolve(a, 64, 3, 1)), 32, 1, 1));
    tu_value c = tu_relu(tu_add(a, convolve(b, 64, 1, 1)));
    tu_value d =
        tu_max_pool(c, .window = {3, 3}, .stride = {2, 2}, .padding = TU_EXPLICIT, .pad = {0, 1, 0, 1});
    tu_value e = tu_relu(convolve(d, 32, 3, 2));
    const tu_value results[RESULTS] = {b, d, tu_exp(tu_mul(e, constant(n->graph, TU_SHAPE(32))))};
    memcpy(n->results, results, sizeof results);
    assert_int_equal(tu_graph_status(n->graph), TU_OK);
}

static void open_network(network *n, int64_t batch, int threads) {
    build(n, batch);
    if (tu_compile(n->graph, &n->program, .devices = "cpu:0", .threads = threads, .fetch = n->results,
                   .fetch_count = RESULTS) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(n->graph, &n->state, .seed = 1), TU_OK);
    assert_int_equal(tu_session_new(n->state, &n->session), TU_OK);
}

static void close_network(network *n) {
    tu_session_free(n->session);
    tu_program_free(n->program);
    tu_state_free(n->state);
    tu_graph_free(n->graph);
}

static size_t bytes_of(tu_value value) {
    return tu_type_bytes(tu_value_type(value));
}

static void run(const network *n, const float *x, void *const *results) {
    if (tu_session_run(n->session, n->program, 1, &(tu_feed){n->x, x}, results) != TU_OK)
        fail_msg("%s", tu_message());
}

/* Returns the number of kernels in groups. */
static int kernels_in_groups(const network *n) {
    int count = 0, kernels;
    for (size_t i = 0; i < tu_program_kernel_count(n->program); i++) {
        tu_kernel_report report = TU_SIZED(tu_kernel_report);
        assert_int_equal(tu_program_kernel(n->program, i, &report), TU_OK);
        if (sscanf(report.kernel, "group of %d kernels", &kernels) == 1) count += kernels;
    }
    return count;
}

/* ---- Tests ---- */

/* Computes one sample after the other, which no group does. */
static void compute_samples(const float *x, void *const *results) {
    network one;
    open_network(&one, 1, 1);
    assert_int_equal(kernels_in_groups(&one), 0);
    for (int64_t i = 0; i < BATCH; i++) {
        void *at[RESULTS];
        for (int r = 0; r < RESULTS; r++) at[r] = (char *)results[r] + (size_t)i * bytes_of(one.results[r]);
        run(&one, x + i * SIZE * SIZE * CHANNELS, at);
    }
    close_network(&one);
}

static void a_group_has_the_bits_of_single_samples(void **unused) {
    (void)unused;
    float *x = test_malloc(sizeof *x * BATCH * SIZE * SIZE * CHANNELS);
    void *expected[RESULTS], *actual[RESULTS];
    fill(x, (int64_t)BATCH * SIZE * SIZE * CHANNELS, 1);
    for (int threads = 1; threads <= 16; threads += threads < 3 ? 1 : 13) {
        network n;
        open_network(&n, BATCH, threads);
        assert_int_equal(kernels_in_groups(&n), 6);
        for (int r = 0; r < RESULTS; r++) {
            expected[r] = test_malloc(bytes_of(n.results[r]));
            actual[r] = test_malloc(bytes_of(n.results[r]));
        }
        compute_samples(x, expected);
        run(&n, x, actual);
        run(&n, x, actual); /* memory that has other numbers */
        for (int r = 0; r < RESULTS; r++) {
            assert_memory_equal(expected[r], actual[r], bytes_of(n.results[r]));
            test_free(expected[r]);
            test_free(actual[r]);
        }
        close_network(&n);
    }
    test_free(x);
}

/* Five samples on four threads would leave three threads without work in the second round. */
static void parts_that_threads_cannot_share_make_no_group(void **unused) {
    (void)unused;
    network n;
    open_network(&n, 5, 4);
    assert_int_equal(kernels_in_groups(&n), 0);
    close_network(&n);
}

/* Of the values that only the group reads, 3 MiB per sample, there is one part. */
static void a_group_needs_memory_for_one_part_per_thread(void **unused) {
    (void)unused;
    const uint64_t sample = 1 << 20;
    for (int threads = 1; threads <= 2; threads++) {
        network n;
        tu_memory_report memory = TU_SIZED(tu_memory_report);
        open_network(&n, BATCH, threads);
        uint64_t outside =
            bytes_of(n.x) + bytes_of(n.results[0]) + bytes_of(n.results[1]) + 2 * bytes_of(n.results[2]);
        assert_int_equal(tu_program_memory(n.program, 0, &memory), TU_OK);
        assert_true(memory.scratch_bytes < outside + (uint64_t)threads * 5 * sample);
        close_network(&n);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_has_the_bits_of_single_samples),
        cmocka_unit_test(parts_that_threads_cannot_share_make_no_group),
        cmocka_unit_test(a_group_needs_memory_for_one_part_per_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
