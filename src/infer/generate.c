/* Generation: two programs over one state. One reads the prompt CHUNK tokens at a time, one the rest and every new token; both
 * keep keys and values in variables (incremental.c). Without the cache a third program computes the whole context for every
 * token. */
#include <inttypes.h>
#include <string.h>

#include <tutti/generate.h>
#include <tutti/ops.h>

#include "base/alloc.h"
#include "base/text.h"
#include "graph/graph.h"
#include "infer/incremental.h"
#include "infer/model_file.h"
#include "infer/rebatch.h"
#include "infer/sample_token.h"

enum { CHUNK = 64 };

/* A graph for some tokens, and its program. */
typedef struct step {
    int64_t count; /* of tokens; 0: there is no such step */
    tu_graph *graph;
    tu_program *program;
    tu_value tokens, position;
    float *logits; /* [count, vocabulary] */
} step;

struct tu_generator {
    int64_t context, vocabulary;
    step chunk, one, whole, clear; /* whole: without cache; clear: zeros the cache */
    tu_state *state;
    int32_t *sequence; /* [context]: tokens of the prompt and new ones */
    tu__candidate *scratch;
};

/* ---- Making a generator ---- */

static const tu__node *tokens_of(const tu_graph *graph) {
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tu__node *node = graph->nodes[i];
        bool are_tokens = node->op->code == TU__OP_INPUT && node->outputs[0].dtype == TU_I32 &&
                          node->outputs[0].shape.rank == 2;
        if (are_tokens) return node;
    }
    return NULL;
}

static bool has_result(const tu_graph *graph, const char *name) {
    for (uint32_t i = 0; i < graph->result_count; i++)
        if (strcmp(graph->results[i].name, name) == 0) return true;
    return false;
}

/* The graph of a run predicts the token after the whole context: names the logits that it slices "logits". */
static void name_logits(tu_graph *graph, int64_t context) {
    if (has_result(graph, "logits") || !has_result(graph, "prediction")) return;
    tu_value value = tu_find_output(graph, "prediction");
    for (;;) {
        tu_shape shape = tu_value_shape(value);
        if (shape.rank == 3 && shape.dim[1] == context) break;
        const tu__node *node = graph->nodes[value.node];
        if (node->input_count != 1) return;
        value = tu__value(graph, node->inputs[0].node, node->inputs[0].output);
    }
    tu_output(value, "logits");
}

static tu_status fail_network(void) {
    return tu_fail(
        TU_UNSUPPORTED,
        "this network cannot generate: expected an input tokens i32[n,context] and a result 'logits' "
        "[n,context,vocabulary]");
}

/* Sets the context and the vocabulary. `graph` is for one sequence. */
static tu_status read_sizes(tu_generator *g, tu_graph *graph) {
    const tu__node *tokens = tokens_of(graph);
    if (!tokens) return fail_network();
    name_logits(graph, tokens->outputs[0].shape.dim[1]);
    if (!has_result(graph, "logits")) return fail_network();
    tu_value logits = tu_find_output(graph, "logits");
    tu_shape shape = tu_ok(logits) ? tu_value_shape(logits) : TU_SCALAR;
    if (shape.rank != 3 || shape.dim[0] != 1 || shape.dim[1] != tokens->outputs[0].shape.dim[1])
        return fail_network();
    g->context = shape.dim[1];
    g->vocabulary = shape.dim[2];
    return TU_OK;
}

static tu_status compile_step(tu_generator *g, step *s, const tu_generator_options *o) {
    tu_value logits = tu_find_output(s->graph, "logits"), f32 = tu_cast(logits, TU_F32);
    const tu__node *tokens = tokens_of(s->graph);
    s->tokens = tu__value(s->graph, tokens->id, 0);
    if (s != &g->whole) s->position = tu_find(s->graph, TU__POSITION);
    s->logits = tu__alloc_array((size_t)(s->count * g->vocabulary), sizeof *s->logits, "a generator");
    if (!s->logits) return TU_NO_MEMORY;
    return tu_compile(s->graph, &s->program, .devices = o->devices ? o->devices : "cpu:0",
                      .precision = o->precision, .threads = o->threads, .fetch = &f32, .fetch_count = 1,
                      .updates = s != &g->whole);
}

/* Makes the program that assigns zeros to the variables of the cache. */
static tu_status make_clear(tu_generator *g, const tu_generator_options *o) {
    const tu_graph *graph = g->one.graph;
    TU_TRY(tu_graph_new(&g->clear.graph));
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tu__node *node = graph->nodes[i];
        if (node->op->code != TU__OP_VARIABLE || strncmp(node->name, TU__CACHE, sizeof TU__CACHE - 1) != 0)
            continue;
        tu_type type = node->outputs[0];
        tu_value variable = tu_variable(g->clear.graph, node->name, type.dtype, type.shape, .frozen = true);
        tu_assign(variable, tu_fill(g->clear.graph, type.dtype, type.shape, 0));
    }
    g->clear.count = 1;
    return tu_compile(g->clear.graph, &g->clear.program, .devices = o->devices ? o->devices : "cpu:0",
                      .threads = o->threads, .updates = true);
}

static tu_status copy_variables(tu_generator *g, const tu_state *from) {
    const char *name;
    tu_type type;
    for (size_t i = 0; i < tu_state_variable_count(g->state); i++) {
        TU_TRY(tu_state_variable(g->state, i, &name, &type));
        if (strncmp(name, TU__CACHE, sizeof TU__CACHE - 1) == 0) continue;
        size_t bytes = tu_type_bytes(type);
        void *data = tu__alloc_aligned(bytes, "a generator");
        tu_status status = data ? tu_state_get(from, name, data, bytes) : TU_NO_MEMORY;
        if (status == TU_OK) status = tu_state_set(g->state, name, data, bytes);
        tu__free_aligned(data);
        TU_TRY(status);
    }
    return TU_OK;
}

static tu_status make_step(tu_generator *g, step *s, const tu_graph *graph, int64_t count,
                           const tu_generator_options *o) {
    s->count = count;
    TU_TRY(tu__incremental(graph, count, &s->graph));
    return compile_step(g, s, o);
}

/* `graph` is for one sequence. */
static tu_status make_programs(tu_generator *g, const tu_graph *graph, const tu_generator_options *o) {
    if (o->no_cache) {
        g->whole.count = g->context;
        TU_TRY(tu__rebatch(graph, 1, &g->whole.graph));
        TU_TRY(compile_step(g, &g->whole, o));
        return tu_state_new(g->whole.graph, &g->state);
    }
    TU_TRY(make_step(g, &g->one, graph, 1, o));
    if (g->context > CHUNK) TU_TRY(make_step(g, &g->chunk, graph, CHUNK, o));
    TU_TRY(make_clear(g, o));
    return tu_state_new(g->one.graph, &g->state);
}

static tu_status make_generator(tu_generator *g, const tu_graph *graph, const tu_state *state,
                                const tu_generator_options *o) {
    tu_graph *single;
    TU_TRY(tu__rebatch(graph, 1, &single));
    tu_status status = read_sizes(g, single);
    if (status == TU_OK) status = make_programs(g, single, o);
    tu_graph_free(single);
    TU_TRY(status);
    g->sequence = tu__alloc_array((size_t)g->context, sizeof *g->sequence, "a generator");
    g->scratch = tu__alloc_array((size_t)g->vocabulary, sizeof *g->scratch, "a generator");
    if (!g->sequence || !g->scratch) return TU_NO_MEMORY;
    return copy_variables(g, state);
}

tu_status tu_generator_new_with(const tu_graph *graph, const tu_state *state, tu_generator **generator,
                                const tu_generator_options *options) {
    TU__OPTIONS(tu_generator_options, o, options);
    *generator = NULL;
    TU_TRY(tu_graph_status(graph));
    tu_generator *g = tu__alloc(sizeof *g, "a generator");
    if (!g) return TU_NO_MEMORY;
    tu_status status = make_generator(g, graph, state, &o);
    if (status == TU_OK)
        *generator = g;
    else
        tu_generator_free(g);
    return status;
}

static tu_status new_from_file(const tu__model_file *file, tu_generator **generator,
                               const tu_generator_options *options) {
    tu_state *state;
    TU_TRY(tu_state_new(file->graph, &state));
    tu_status status = TU_OK;
    for (size_t i = 0; i < file->variable_count && status == TU_OK; i++)
        status = tu_state_set(state, file->variables[i].name, file->variables[i].data,
                              tu_type_bytes(file->variables[i].type));
    if (status == TU_OK) status = tu_generator_new_with(file->graph, state, generator, options);
    tu_state_free(state);
    return status;
}

tu_status tu_generator_open_with(const char *path, tu_generator **generator,
                                 const tu_generator_options *options) {
    tu__model_file file;
    *generator = NULL;
    TU_TRY(tu__model_file_open(path, &file));
    tu_status status = new_from_file(&file, generator, options);
    tu__model_file_close(&file);
    return status;
}

static void free_step(step *s) {
    tu_program_free(s->program);
    tu_graph_free(s->graph);
    tu__free(s->logits);
}

void tu_generator_free(tu_generator *g) {
    if (!g) return;
    free_step(&g->chunk);
    free_step(&g->one);
    free_step(&g->whole);
    free_step(&g->clear);
    tu_state_free(g->state);
    tu__free(g->sequence);
    tu__free(g->scratch);
    tu__free(g);
}

int64_t tu_generator_context(const tu_generator *g) {
    return g->context;
}

int64_t tu_generator_vocabulary(const tu_generator *g) {
    return g->vocabulary;
}

/* ---- Running ---- */

/* Computes the tokens first … first + s->count - 1 of the sequence. */
static tu_status run_step(tu_generator *g, const step *s, int64_t first) {
    int32_t position = (int32_t)first;
    const tu_feed feeds[] = {{s->tokens, g->sequence + first}, {s->position, &position}};
    return tu_run(s->program, g->state, s == &g->whole ? 1 : 2, feeds, (void *[]){s->logits});
}

/* Computes the positions from `*done` up to `count` and sets `*logits` to those of the last one. */
static tu_status compute_logits(tu_generator *g, int64_t *done, int64_t count, const float **logits) {
    if (g->whole.count) {
        memset(g->sequence + count, 0, (size_t)(g->context - count) * sizeof *g->sequence);
        *logits = g->whole.logits + (count - 1) * g->vocabulary;
        return run_step(g, &g->whole, 0);
    }
    while (*done < count) {
        const step *s = g->chunk.count && count - *done >= CHUNK ? &g->chunk : &g->one;
        TU_TRY(run_step(g, s, *done));
        *done += s->count;
        *logits = s->logits + (s->count - 1) * g->vocabulary;
    }
    return TU_OK;
}

static tu_status check_prompt(const tu_generator *g, const int32_t *prompt, size_t prompt_count,
                              size_t count) {
    if (prompt_count == 0) return tu_fail(TU_INVALID, "the prompt is empty: expected at least one token");
    if (prompt_count > (size_t)g->context || count > (size_t)g->context - prompt_count)
        return tu_fail(TU_INVALID,
                       "a prompt of %zu tokens and %zu new ones: expected at most %" PRId64
                       " tokens together, the context of the network",
                       prompt_count, count, g->context);
    for (size_t i = 0; i < prompt_count; i++)
        if (prompt[i] < 0 || prompt[i] >= g->vocabulary)
            return tu_fail(TU_INVALID, "token %zu of the prompt is %" PRId32 ": expected 0 to %" PRId64, i,
                           prompt[i], g->vocabulary - 1);
    return TU_OK;
}

static tu_status check_options(const tu_generator *g, const tu_generate_options *o, double temperature) {
    if (!(temperature >= 0 && temperature <= 1e6))
        return tu_fail(TU_INVALID, "temperature is %g: expected 0 to 1e6", temperature);
    if (o->top_k < 0)
        return tu_fail(TU_INVALID, "top_k is %" PRId64 ": expected 1 or more, or 0 for all", o->top_k);
    if (!(o->top_p >= 0 && o->top_p <= 1))
        return tu_fail(TU_INVALID, "top_p is %g: expected a number above 0 and up to 1, or 0 for all",
                       o->top_p);
    if (o->tokens < 0 || o->tokens > g->vocabulary)
        return tu_fail(TU_INVALID, "tokens is %" PRId64 ": expected 1 to %" PRId64 ", or 0 for all",
                       o->tokens, g->vocabulary);
    return TU_OK;
}

tu_status tu_generate_with(tu_generator *g, const int32_t *prompt, size_t prompt_count, size_t count,
                           int32_t *tokens, size_t *generated, const tu_generate_options *options) {
    TU__OPTIONS(tu_generate_options, o, options);
    double temperature = tu__given_or(o.temperature, 1), top_p = o.top_p == 0 ? 1 : o.top_p;
    int64_t drawable = o.tokens ? o.tokens : g->vocabulary, done = 0;
    *generated = 0;
    TU_TRY(check_prompt(g, prompt, prompt_count, count));
    TU_TRY(check_options(g, &o, temperature));
    memcpy(g->sequence, prompt, prompt_count * sizeof *prompt);
    if (g->clear.count) TU_TRY(tu_run(g->clear.program, g->state, 0, NULL, NULL));
    for (size_t i = 0; i < count; i++) {
        const float *logits = NULL;
        int64_t length = (int64_t)(prompt_count + i);
        TU_TRY(compute_logits(g, &done, length, &logits));
        int32_t token =
            tu__sample_token(logits, drawable, temperature, o.top_k, top_p, o.seed, length, g->scratch);
        g->sequence[length] = tokens[(*generated)++] = token;
        if (o.token) TU_TRY(o.token(o.context, token));
        if (o.stops && token == o.stop) break;
    }
    return TU_OK;
}
