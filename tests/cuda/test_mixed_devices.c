/* A GPU and a CPU in one program: operations that the GPU does not support run on the CPU, the others stay on the
 * GPU, and the results are those of the CPU only. */
#include "test.h"

#include <math.h>
#include <string.h>

#include <tutti/tutti.h>

#include "cuda/emulated.h"

enum { ROWS = 8, COLUMNS = 6, RUNS = 4 };

static tu_status cube_shape(const tu_custom_call *call, tu_type *outputs) {
    outputs[0] = call->inputs[0];
    return TU_OK;
}

static tu_status cube_run(const tu_custom_call *call, const void *const *in, void *const *out) {
    const float *from = in[0];
    float *to = out[0];
    for (int64_t i = 0; i < tu_shape_elements(call->inputs[0].shape); i++)
        to[i] = from[i] * from[i] * from[i];
    return TU_OK;
}

static tu_status cube_gradient(const tu_custom_call *call, const tu_value *in, const tu_value *out,
                               const tu_value *out_gradients, tu_value *in_gradients) {
    (void)call;
    (void)out;
    in_gradients[0] = tu_mul(out_gradients[0], tu_scale(tu_square(in[0]), 3));
    return TU_OK;
}

static const tu_custom_op cube = {.struct_size = sizeof cube,
                                  .name = "cube",
                                  .outputs = 1,
                                  .shape = cube_shape,
                                  .run = cube_run,
                                  .gradient = cube_gradient};

/* A layer, a custom operation, another layer; trained by gradient descent. */
typedef struct network {
    tu_graph *graph;
    tu_value x, loss;
    tu_program *program;
    float losses[RUNS];
} network;

static void build(network *n) {
    tu_value w[2], dw[2];
    assert_int_equal(tu_graph_new(&n->graph), TU_OK);
    n->x = tu_input(n->graph, "x", TU_F32, TU_SHAPE(ROWS, COLUMNS));
    for (int i = 0; i < 2; i++)
        w[i] = tu_variable(n->graph, i ? "w1" : "w0", TU_F32, TU_SHAPE(COLUMNS, COLUMNS),
                           .init = {.kind = TU_INIT_UNIFORM, .a = -0.5, .b = 0.5});
    tu_value h = tu_tanh(tu_matmul(n->x, w[0]));
    h = tu_matmul(tu_custom("cube", 1, &h), w[1]);
    n->loss = tu_mean(tu_square(h));
    assert_int_equal(tu_gradients(n->loss, 2, w, dw), TU_OK);
    for (int i = 0; i < 2; i++) tu_assign(w[i], tu_sub(w[i], tu_scale(dw[i], 0.1)));
}

static void train(network *n, const char *devices) {
    float data[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) data[i] = (float)(i % 7) / 4 - 0.75f;
    build(n);
    tu_state *state;
    if (tu_compile(n->graph, &n->program, .devices = devices, .threads = 1, .fetch = &n->loss,
                   .fetch_count = 1, .updates = true, .timeout = 60) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(n->graph, &state, .seed = 3), TU_OK);
    for (int i = 0; i < RUNS;
         i++) /* the first run launches kernels, the second captures them, later ones replay */
        if (tu_run(n->program, state, 1, &(tu_feed){n->x, data}, (void *[]){&n->losses[i]}) != TU_OK)
            fail_msg("%s", tu_message());
    tu_state_free(state);
}

static void free_network(network *n) {
    tu_program_free(n->program);
    tu_graph_free(n->graph);
}

static void assert_placement(const network *n) {
    tu_placement p = TU_SIZED(tu_placement);
    for (size_t i = 0;
         i < tu_program_placement_count(n->program) && tu_program_placement(n->program, i, &p) == TU_OK;
         i++) {
        if (strcmp(p.operation, "custom") == 0) {
            assert_string_equal(p.device, "cpu:0");
            assert_string_equal(p.unsupported_on, "gpu:0: custom operations run on the CPU only");
            assert_true(p.bytes_in == ROWS * COLUMNS * sizeof(float));
        } else if (!p.from) {
            assert_string_equal(p.device, "gpu:0");
        }
    }
    tu_placement_totals totals = TU_SIZED(tu_placement_totals);
    assert_int_equal(tu_program_placement_totals(n->program, &totals), TU_OK);
    assert_int_equal(totals.copies, 2);
    assert_true(totals.copied_bytes == 2 * ROWS * COLUMNS * sizeof(float));
}

static void assert_matches_cpu(const char *devices) {
    network gpu = {0}, cpu = {0};
    train(&gpu, devices);
    train(&cpu, "cpu:0");
    for (int i = 0; i < RUNS; i++) assert_true(fabsf(gpu.losses[i] - cpu.losses[i]) < 1e-5f);
    assert_placement(&gpu);
    free_network(&gpu);
    free_network(&cpu);
}

static void a_custom_operation_between_layers_is_computed_on_the_cpu(void **state) {
    (void)state;
    assert_matches_cpu("gpu:0,cpu:0");
}

static void all_adds_a_cpu_if_needed(void **state) {
    (void)state;
    assert_matches_cpu("all");
}

static void a_gpu_only_program_fails_with_a_hint(void **state) {
    (void)state;
    network n = {0};
    build(&n);
    assert_int_equal(tu_compile(n.graph, &n.program, .devices = "gpu:0", .fetch = &n.loss, .fetch_count = 1,
                                .updates = true),
                     TU_UNSUPPORTED);
    assert_string_equal(
        tu_message(),
        "no device of the program supports custom 'cube' (gpu:0: custom operations run on the CPU "
        "only): its devices are gpu:0; add one that does, as in \"gpu:0,cpu:0\"");
    free_network(&n);
}

int main(int argc, char **argv) {
    use_real_gpu(argc, argv);
    tu_custom_register(&cube);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_custom_operation_between_layers_is_computed_on_the_cpu),
        cmocka_unit_test(all_adds_a_cpu_if_needed),
        cmocka_unit_test(a_gpu_only_program_fails_with_a_hint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
