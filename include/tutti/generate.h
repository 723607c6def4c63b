/* Generation: continues a sequence of tokens with a trained network.
 *
 *     tu_generator *generator;
 *     tu_generator_new(graph, state, &generator);       // graph: tokens i32[n,context] -> result "logits"
 *     int32_t tokens[100];
 *     size_t count;
 *     tu_generate(generator, prompt, prompt_count, 100, tokens, &count, .seed = 1, .temperature = 0.8, .top_k = 40);
 *     tu_generator_free(generator);
 *
 * A network can generate if every position depends on earlier ones only, through tu_attention with .causal. The generator
 * keeps their keys and values, so that a new token costs one position and not a whole context.
 */
#ifndef TUTTI_GENERATE_H
#define TUTTI_GENERATE_H

#include <tutti/run.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tu_generator tu_generator;

typedef struct tu_generator_options {
    size_t struct_size;
    const char *devices;   /* one device; NULL: "cpu:0" */
    const char *precision; /* as of tu_compile; NULL: f32 */
    int threads;           /* 0: one per core */
    bool no_cache;         /* compute the whole context for every token: slow, for comparison */
} tu_generator_options;

/* Makes a generator. `graph` is a network in inference mode: its only input is tokens i32[n,context], its result "logits" is
 * [n,context,vocabulary]. Copies the variables of `state` that the graph reads; keeps neither. */
TU_API tu_status tu_generator_new_with(const tu_graph *graph, const tu_state *state, tu_generator **generator,
                                       const tu_generator_options *options);
#define tu_generator_new(graph, state, generator, ...)                                                       \
    tu_generator_new_with(graph, state, generator, TU_OPTIONS(tu_generator_options, __VA_ARGS__))
/* Makes a generator of a model file (model.h). */
TU_API tu_status tu_generator_open_with(const char *path, tu_generator **generator,
                                        const tu_generator_options *options);
#define tu_generator_open(path, generator, ...)                                                              \
    tu_generator_open_with(path, generator, TU_OPTIONS(tu_generator_options, __VA_ARGS__))
TU_API void tu_generator_free(tu_generator *generator); /* NULL is ignored */

/* Return the largest number of tokens, prompt included, and the number of different tokens. */
TU_API int64_t tu_generator_context(const tu_generator *generator);
TU_API int64_t tu_generator_vocabulary(const tu_generator *generator);

typedef struct tu_generate_options {
    size_t struct_size;
    uint64_t seed;
    double temperature; /* logits are divided by it; 0: 1; TU_ZERO: always the most probable token */
    int64_t top_k;      /* draw from the k most probable tokens; 0: from all */
    double top_p;       /* draw from the fewest tokens whose probabilities add up to top_p; 0: from all */
    int64_t
        tokens; /* draw tokens below this number only, if the network has more than the tokenizer; 0: all */
    bool stops; /* end after the token `stop` */
    int32_t stop;
    /* Called with every new token; another status than TU_OK ends the generation and is returned. NULL: not called. */
    tu_status (*token)(void *context, int32_t token);
    void *context;
} tu_generate_options;

/* Generates up to `count` tokens after a prompt of at least one token. `tokens` has room for `count`; `*generated` is set to
 * their number. A token depends on the seed, its position and the tokens before it. Fails with TU_INVALID, and does nothing,
 * if prompt and new tokens are more than the context. One thread at a time may use a generator. */
TU_API tu_status tu_generate_with(tu_generator *generator, const int32_t *prompt, size_t prompt_count,
                                  size_t count, int32_t *tokens, size_t *generated,
                                  const tu_generate_options *options);
#define tu_generate(generator, prompt, prompt_count, count, tokens, generated, ...)                          \
    tu_generate_with(generator, prompt, prompt_count, count, tokens, generated,                              \
                     TU_OPTIONS(tu_generate_options, __VA_ARGS__))

#ifdef __cplusplus
}
#endif
#endif
