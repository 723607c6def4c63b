/* Tests that answers of the built-in networks have the same bits in any batch and on any number of threads, and that they
 * are those of `ref` within the bounds of their precision. Small versions: every kind of layer, few channels and pixels. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

enum { SAMPLES = 7 };

typedef struct network {
    const char *name;
    int64_t size, channels, base; /* of the input; width: 0 is the default */
} network;

static const network networks[] = {
    {"mlp", 28, 1, 64},      {"tutorial-cnn", 24, 3, 32}, {"resnet20", 32, 3, 16},
    {"resnet18", 64, 3, 32}, {"resnet50", 64, 3, 16},
};

static tu_graph *build(const network *n, tu_state **state) {
    tu_graph *graph;
    tu_value logits;
    assert_int_equal(tu_graph_new(&graph), TU_OK);
    tu_set_training(graph, false);
    tu_value x = tu_batch_input(graph, "images", TU_F32, TU_SHAPE(1, n->size, n->size, n->channels));
    if (tu_network_logits(x, n->name, &logits, .base = n->base) != TU_OK) fail_msg("%s", tu_message());
    tu_output(logits, "logits");
    assert_int_equal(tu_state_new(graph, state, .seed = 3), TU_OK);
    return graph;
}

/* Returns the logits of all samples, and their size in bytes. */
static float *run(const tu_graph *graph, const tu_state *state, const float *images,
                  const tu_model_options *options, size_t *bytes) {
    tu_model *model;
    tu_type row;
    if (tu_model_new_with(graph, state, &model, options) != TU_OK) fail_msg("%s", tu_message());
    assert_int_equal(tu_model_output(model, 0, NULL, &row), TU_OK);
    *bytes = SAMPLES * tu_type_bytes(row);
    float *logits = calloc(1, *bytes);
    if (tu_model_run(model, SAMPLES, images, logits) != TU_OK) fail_msg("%s", tu_message());
    tu_model_free(model);
    return logits;
}

static void test_network(const network *n, const char *precision) {
    tu_state *state;
    tu_graph *graph = build(n, &state);
    int64_t pixels = n->size * n->size * n->channels;
    float *images = calloc((size_t)(SAMPLES * pixels), sizeof *images);
    for (int64_t i = 0; i < SAMPLES * pixels; i++) images[i] = (float)((i * 7919 + i / 3) % 1009) / 1009;
    float *expected = NULL;
    size_t bytes;
    for (int threads = 1; threads <= 4; threads++)
        for (int64_t batch = 1; batch <= 8; batch *= 2) {
            float *logits = run(graph, state, images,
                                TU_OPTIONS(tu_model_options, .devices = "cpu:0", .threads = threads,
                                           .max_batch = batch, .precision = precision),
                                &bytes);
            if (expected && memcmp(logits, expected, bytes) != 0)
                fail_msg("%s in %s: other bits with %d threads and a batch of %d", n->name, precision,
                         threads, (int)batch);
            if (expected)
                free(logits);
            else
                expected = logits;
        }
    free(expected);
    free(images);
    tu_state_free(state);
    tu_graph_free(graph);
}

static void answers_have_the_same_bits_in_f32(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) test_network(&networks[i], "f32");
}

static void answers_have_the_same_bits_in_bf16(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) test_network(&networks[i], "bf16");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_have_the_same_bits_in_f32),
        cmocka_unit_test(answers_have_the_same_bits_in_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
