/* Runs a model: takes a free session, divides the samples into the batch sizes of the programs, and runs these one after
 * another. */
#include <string.h>

#include "base/text.h"
#include "infer/model.h"

/* ---- Sessions ---- */

static tu_session *take_session(tu_model *m) {
    pthread_mutex_lock(&m->lock);
    while (!m->free_count) pthread_cond_wait(&m->freed, &m->lock);
    tu_session *session = m->free_sessions[--m->free_count];
    pthread_mutex_unlock(&m->lock);
    return session;
}

static void give_session_back(tu_model *m, tu_session *session) {
    pthread_mutex_lock(&m->lock);
    m->free_sessions[m->free_count++] = session;
    pthread_cond_signal(&m->freed);
    pthread_mutex_unlock(&m->lock);
}

/* ---- Batches ---- */

/* The arrays of a call, in the order of the model's inputs and outputs; NULL: the output is not wanted. */
typedef struct call {
    const char *inputs[TU__MODEL_MAX_PORTS];
    char *outputs[TU__MODEL_MAX_PORTS];
} call;

/* Runs one program on the samples from `first` on. */
static tu_status run_batch(const tu_model *m, tu_session *session, const tu__model_size *size, const call *c,
                           int64_t first) {
    tu_feed feeds[TU__MODEL_MAX_PORTS];
    void *fetches[TU__MODEL_MAX_PORTS];
    for (size_t i = 0; i < m->input_count; i++)
        feeds[i] = (tu_feed){size->inputs[i], c->inputs[i] + (size_t)first * m->inputs[i].row_bytes};
    for (size_t i = 0; i < m->output_count; i++)
        fetches[i] = c->outputs[i] ? c->outputs[i] + (size_t)first * m->outputs[i].row_bytes : NULL;
    return tu_session_run(session, size->program, m->input_count, feeds, fetches);
}

static tu_status run_batches(const tu_model *m, tu_session *session, const call *c, int64_t count) {
    int64_t first = 0;
    for (size_t i = 0; i < m->size_count; i++)
        for (; count - first >= m->sizes[i].batch; first += m->sizes[i].batch)
            TU_TRY(run_batch(m, session, &m->sizes[i], c, first));
    return TU_OK;
}

static tu_status run_call(tu_model *m, const call *c, int64_t count) {
    tu_session *session = take_session(m);
    tu_status status = run_batches(m, session, c, count);
    give_session_back(m, session);
    return status;
}

static tu_status check_count(int64_t count) {
    if (count >= 0) return TU_OK;
    return tu_fail(TU_INVALID, "cannot run %lld samples: expected at least 0", (long long)count);
}

tu_status tu_model_run(tu_model *model, int64_t count, const void *input, void *output) {
    TU_TRY(check_count(count));
    if (model->input_count != 1)
        return tu_fail(TU_INVALID, "the model has %zu inputs: use tu_model_run_named", model->input_count);
    if (!count) return TU_OK;
    if (!input || !output)
        return tu_fail(TU_INVALID, "the array of the %s is NULL", input ? "output" : "input");
    call c = {.inputs = {input}, .outputs = {output}};
    return run_call(model, &c, count);
}

/* ---- By name ---- */

static tu_status fail_unknown_port(const tu__model_port *ports, size_t count, const char *kind,
                                   const char *name) {
    tu__text names = {0};
    for (size_t i = 0; i < count; i++) tu__text_printf(&names, "%s%s", i ? ", " : "", ports[i].name);
    tu_fail(TU_NOT_FOUND, "the model has no %s '%.80s': expected %s", kind, name ? name : "(null)",
            tu__text_string(&names));
    tu__text_free(&names);
    return TU_NOT_FOUND;
}

static tu_status find_port(const tu__model_port *ports, size_t count, const char *kind, const char *name,
                           size_t *index) {
    for (*index = 0; *index < count; ++*index)
        if (name && strcmp(ports[*index].name, name) == 0) return TU_OK;
    return fail_unknown_port(ports, count, kind, name);
}

static tu_status check_array(const tu__model_port *port, const char *kind, int64_t count, tu_type type,
                             const void *data) {
    tu_type expected = {port->row.dtype, {.rank = port->row.shape.rank + 1, .dim = {count}}};
    for (int64_t i = 0; i < port->row.shape.rank; i++) expected.shape.dim[i + 1] = port->row.shape.dim[i];
    if (type.dtype != expected.dtype || !tu_shape_equal(type.shape, expected.shape))
        return tu_fail(TU_INVALID, "%s '%s' has type %s: expected %s", kind, port->name,
                       tu__type_string(type), tu__type_string(expected));
    return data || !count ? TU_OK : tu_fail(TU_INVALID, "the array of %s '%s' is NULL", kind, port->name);
}

static tu_status set_inputs(const tu_model *m, int64_t count, size_t feed_count, const tu_model_feed *feeds,
                            call *c) {
    size_t index;
    for (size_t i = 0; i < feed_count; i++) {
        TU_TRY(find_port(m->inputs, m->input_count, "input", feeds[i].input, &index));
        TU_TRY(check_array(&m->inputs[index], "input", count, feeds[i].type, feeds[i].data));
        if (c->inputs[index]) return tu_fail(TU_INVALID, "input '%s' is given twice", feeds[i].input);
        c->inputs[index] = feeds[i].data;
    }
    for (size_t i = 0; i < m->input_count && count; i++)
        if (!c->inputs[i]) return tu_fail(TU_INVALID, "input '%s' is missing", m->inputs[i].name);
    return TU_OK;
}

tu_status tu_model_run_named(tu_model *model, int64_t count, size_t feed_count, const tu_model_feed *feeds,
                             size_t fetch_count, const tu_model_fetch *fetches) {
    call c = {{NULL}, {NULL}};
    size_t index;
    TU_TRY(check_count(count));
    TU_TRY(set_inputs(model, count, feed_count, feeds, &c));
    for (size_t i = 0; i < fetch_count; i++) {
        TU_TRY(find_port(model->outputs, model->output_count, "output", fetches[i].output, &index));
        TU_TRY(check_array(&model->outputs[index], "output", count, fetches[i].type, fetches[i].data));
        if (c.outputs[index]) return tu_fail(TU_INVALID, "output '%s' is given twice", fetches[i].output);
        c.outputs[index] = fetches[i].data;
    }
    return count ? run_call(model, &c, count) : TU_OK;
}
