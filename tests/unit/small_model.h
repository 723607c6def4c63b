/* A model of 20 parameters, whose file has some three kilobytes: two grey rows of three pixels, three classes. */
#ifndef TESTS_UNIT_SMALL_MODEL_H
#define TESTS_UNIT_SMALL_MODEL_H

#include "test.h"

#include <string.h>

#include <tutti/layers.h>
#include <tutti/ops.h>

#include "infer/golden.h"

enum { SMALL_GOLDEN = 2, SMALL_PIXELS = 6, SMALL_LABELS = 3 };

typedef struct small_model {
    tu_graph *graph;
    tu__model_file parts; /* for tu__model_file_save */
    tu__named_tensor variables[2], golden_inputs[1], golden_outputs[2];
    float weights[SMALL_LABELS * SMALL_PIXELS], bias[SMALL_LABELS];
    uint8_t images[SMALL_GOLDEN * SMALL_PIXELS];
    float probability[SMALL_GOLDEN * SMALL_LABELS], logits[SMALL_GOLDEN * SMALL_LABELS];
} small_model;

static inline tu_graph *small_graph(void) {
    tu_graph *graph;
    assert_int_equal(tu_graph_new(&graph), TU_OK);
    tu_set_training(graph, false);
    tu_value x = tu_batch_input(graph, "images", TU_U8, TU_SHAPE(1, 2, 3, 1));
    tu_value logits =
        tu_dense(tu_flatten(tu_scale(tu_cast(x, TU_F32), 1.0 / 255)), .units = SMALL_LABELS, .name = "out");
    tu_output(tu_softmax(logits, -1), "probability");
    tu_output(logits, "logits");
    assert_int_equal(tu_graph_status(graph), TU_OK);
    return graph;
}

static inline void small_golden(small_model *m) {
    tu_state *state;
    assert_int_equal(tu_state_new(m->graph, &state), TU_OK);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(tu_state_set(state, m->variables[i].name, m->variables[i].data,
                                      tu_type_bytes(m->variables[i].type)),
                         TU_OK);
    assert_int_equal(tu__golden_compute(m->graph, state, NULL, SMALL_GOLDEN, m->golden_inputs,
                                        (void *[]){m->probability, m->logits}, NULL),
                     TU_OK);
    tu_state_free(state);
}

/* `m` must not move afterwards; free it with small_model_free. */
static inline void small_model_new(small_model *m) {
    static const char *const labels[SMALL_LABELS] = {"above", "below", "left"};
    static const tu__metadata texts[] = {{"name", "small"}, {"licence", "none"}};
    static const tu__model_bound bounds[] = {{"probability", "f32", 1e-5, false},
                                             {"logits", "f32", 1e-5, true}};
    memset(m, 0, sizeof *m);
    m->graph = small_graph();
    for (int i = 0; i < SMALL_LABELS * SMALL_PIXELS; i++) m->weights[i] = (float)(i % 7) - 3;
    for (int i = 0; i < SMALL_LABELS; i++) m->bias[i] = 0.25F * (float)i;
    for (int i = 0; i < SMALL_GOLDEN * SMALL_PIXELS; i++) m->images[i] = (uint8_t)(i * 37);
    m->variables[0] =
        (tu__named_tensor){"out/weights", {TU_F32, TU_SHAPE(SMALL_LABELS, SMALL_PIXELS)}, m->weights};
    m->variables[1] = (tu__named_tensor){"out/bias", {TU_F32, TU_SHAPE(SMALL_LABELS)}, m->bias};
    m->golden_inputs[0] = (tu__named_tensor){"images", {TU_U8, TU_SHAPE(SMALL_GOLDEN, 2, 3, 1)}, m->images};
    tu_type output = {TU_F32, TU_SHAPE(SMALL_GOLDEN, SMALL_LABELS)};
    m->golden_outputs[0] = (tu__named_tensor){"probability", output, m->probability};
    m->golden_outputs[1] = (tu__named_tensor){"logits", output, m->logits};
    small_golden(m);
    m->parts = (tu__model_file){.graph = m->graph,
                                .variable_count = 2,
                                .input_count = 1,
                                .output_count = 2,
                                .label_count = SMALL_LABELS,
                                .metadata_count = 2,
                                .bound_count = 2,
                                .variables = m->variables,
                                .golden_inputs = m->golden_inputs,
                                .golden_outputs = m->golden_outputs,
                                .golden_count = SMALL_GOLDEN,
                                .labels = labels,
                                .metadata = texts,
                                .bounds = bounds};
}

static inline void small_model_free(small_model *m) {
    tu_graph_free(m->graph);
}

#endif
