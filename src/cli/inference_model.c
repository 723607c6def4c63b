/* Opens the model that `tutti bench --inference` measures. A word that is not the name of a network is the path of a model
 * file if it contains a slash or the file exists. */
#include "cli/inference_model.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti/network.h>
#include <tutti/ops.h>

#include "cli/network.h"

static tu_status fail_memory(void) {
    return tu_fail(TU_NO_MEMORY, "out of memory");
}

/* ---- Built-in networks ---- */

static tu_status build_network(tu_graph *graph, const char *name) {
    tu_network_options defaults = TU_SIZED(tu_network_options);
    tu_value logits;
    tu_set_training(graph, false);
    TU_TRY(tu_network_defaults(name, &defaults));
    tu_shape shape = TU_SHAPE(1, defaults.height, defaults.width, defaults.channels);
    TU_TRY(tu_network_logits(tu_batch_input(graph, "images", TU_F32, shape), name, &logits));
    tu_output(tu_softmax(logits, -1), "probability");
    return tu_graph_status(graph);
}

static tu_status model_of_network(const char *name, const tu_model_options *options, tu_model **model) {
    tu_graph *graph;
    tu_state *state = NULL;
    TU_TRY(tu_graph_new(&graph));
    tu_status status = build_network(graph, name);
    if (status == TU_OK) status = tu_state_new(graph, &state, .seed = 1);
    if (status == TU_OK) status = tu_model_new_with(graph, state, model, options);
    tu_state_free(state);
    tu_graph_free(graph);
    return status;
}

static tu_status open_model(const struct inference_settings *s, tu_model **model) {
    const tu_model_options options = {.struct_size = sizeof options,
                                      .devices = s->devices,
                                      .precision = s->precision,
                                      .threads = s->threads,
                                      .max_batch = s->max_batch,
                                      .sessions = s->sessions,
                                      .memory_limit = s->memory_limit};
    static const char *const others[] = {"a C file", "the path of a model file", NULL};
    const char *name = s->model;
    if (tu_network_is_file(name)) TU_TRY(tu_network_load(name, &name));
    if (network_is_known(name)) return model_of_network(name, &options, model);
    if (!strchr(name, '/') && access(name, F_OK) != 0) return network_fail_unknown(NULL, name, others);
    return tu_model_load_with(name, model, &options);
}

/* ---- Samples ---- */

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t next_bits(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Draws floats with mean 0 and deviation 1, like normalised images, and bytes. Other types stay 0: any value may be an index
 * out of range. */
static void draw(tu_type type, void *data) {
    const double span = 3.4641016151377544; /* sqrt(12): a uniform draw of this width has deviation 1 */
    uint64_t random = 1;
    size_t elements = (size_t)tu_shape_elements(type.shape);
    for (size_t i = 0; i < elements; i++) {
        uint64_t bits = next_bits(&random);
        if (type.dtype == TU_U8) ((uint8_t *)data)[i] = (uint8_t)(bits >> 56);
        if (type.dtype == TU_F32) ((float *)data)[i] = (float)(((double)(bits >> 11) * 0x1p-53 - 0.5) * span);
    }
}

static tu_type with_samples(tu_type row, int64_t count) {
    tu_type type = {row.dtype, {.rank = row.shape.rank + 1, .dim = {count}}};
    for (int64_t i = 0; i < row.shape.rank; i++) type.shape.dim[i + 1] = row.shape.dim[i];
    return type;
}

static tu_status draw_samples(struct inference_model *m, int64_t count) {
    m->input_count = tu_model_input_count(m->model);
    m->output_count = tu_model_output_count(m->model);
    if (m->input_count > INFERENCE_MAX_PORTS || m->output_count > INFERENCE_MAX_PORTS)
        return tu_fail(TU_UNSUPPORTED, "the model has more than %d inputs or outputs", INFERENCE_MAX_PORTS);
    for (size_t i = 0; i < m->input_count; i++) {
        tu_model_feed *feed = &m->feeds[i];
        tu_type row;
        TU_TRY(tu_model_input(m->model, i, &feed->input, &row));
        feed->type = with_samples(row, count);
        void *data = calloc(tu_type_bytes(feed->type) + 1, 1);
        if (!data) return fail_memory();
        draw(feed->type, data);
        feed->data = data;
    }
    return TU_OK;
}

tu_status inference_model_open(struct inference_model *m, const struct inference_settings *s) {
    *m = (struct inference_model){.input_count = 0};
    tu_status status = open_model(s, &m->model);
    return status == TU_OK ? draw_samples(m, s->max_batch) : status;
}

void inference_model_free(struct inference_model *m) {
    for (size_t i = 0; i < m->input_count; i++) {
        union { /* a feed is read only, but its array is ours */
            const void *constant;
            void *data;
        } cast = {m->feeds[i].data};
        free(cast.data);
    }
    tu_model_free(m->model);
}

/* ---- Outputs ---- */

tu_status inference_outputs_new(const struct inference_model *m, int64_t max_batch,
                                struct inference_outputs *o) {
    *o = (struct inference_outputs){.count = m->output_count};
    for (size_t i = 0; i < o->count; i++) {
        tu_model_fetch *fetch = &o->fetches[i];
        tu_type row;
        TU_TRY(tu_model_output(m->model, i, &fetch->output, &row));
        fetch->type = with_samples(row, max_batch);
        fetch->data = calloc(tu_type_bytes(fetch->type) + 1, 1);
        if (!fetch->data) return fail_memory();
    }
    return TU_OK;
}

void inference_outputs_free(struct inference_outputs *o) {
    for (size_t i = 0; i < o->count; i++) free(o->fetches[i].data);
}

tu_status inference_model_run(const struct inference_model *m, int64_t batch, struct inference_outputs *o) {
    tu_model_feed feeds[INFERENCE_MAX_PORTS];
    for (size_t i = 0; i < m->input_count; i++) {
        feeds[i] = m->feeds[i];
        feeds[i].type.shape.dim[0] = batch;
    }
    for (size_t i = 0; i < o->count; i++) o->fetches[i].type.shape.dim[0] = batch;
    return tu_model_run_named(m->model, batch, m->input_count, feeds, o->count, o->fetches);
}
