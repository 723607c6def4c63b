/* Generation with the cache of keys and values next to generation that computes the whole context for every token.
 *
 *     bench_generate NETWORK [CONTEXT [THREADS [COMPARED]]]
 *
 * NETWORK is char-gpt or gpt2-124M, with random weights. Both start from one token and fill the context of 512 tokens, or of
 * CONTEXT, with the most probable ones, or stop after COMPARED tokens; the cost of a token does not depend on its position.
 * Prints the processor time per token of each, since other processes hardly change it, and their quotient. Exit status 1: a
 * token differs. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <tutti/tutti.h>

typedef struct timed {
    int32_t *tokens;
    size_t count;
    double seconds;
} timed;

static double processor_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void check(tu_status status) {
    if (status == TU_OK) return;
    fprintf(stderr, "bench_generate: %s\n", tu_message());
    exit(2);
}

static timed generate(const tu_graph *graph, const tu_state *state, bool no_cache, int threads,
                      size_t count) {
    static const int32_t prompt[] = {10};
    size_t warm;
    tu_generator *g;
    check(tu_generator_new(graph, state, &g, .threads = threads, .no_cache = no_cache));
    timed t = {.tokens = calloc(count, sizeof *t.tokens)};
    if (!t.tokens) exit(2);
    check(tu_generate(g, prompt, 1, 1, t.tokens, &warm, .temperature = TU_ZERO));
    double start = processor_seconds();
    check(tu_generate(g, prompt, 1, count, t.tokens, &t.count, .temperature = TU_ZERO));
    t.seconds = (processor_seconds() - start) / (double)t.count;
    tu_generator_free(g);
    return t;
}

int main(int argc, char **argv) {
    const char *network = argc > 1 ? argv[1] : "char-gpt";
    int64_t context = argc > 2 ? atoll(argv[2]) : 512;
    int threads = argc > 3 ? atoi(argv[3]) : 1;
    size_t compared = argc > 4 ? (size_t)atoll(argv[4]) : (size_t)context - 1;
    tu_graph *graph;
    tu_state *state;
    tu_value logits;
    check(tu_graph_new(&graph));
    tu_value tokens = tu_batch_input(graph, "tokens", TU_I32, TU_SHAPE(1, context));
    check(tu_network_logits(tokens, network, &logits));
    tu_output(logits, "logits");
    check(tu_state_new(graph, &state, .seed = 1));
    timed with = generate(graph, state, false, threads, compared);
    timed without = generate(graph, state, true, threads, compared);
    size_t same = 0;
    while (same < compared && with.tokens[same] == without.tokens[same]) same++;
    printf(
        "%s, context %lld, %d thread%s: %.3f ms per token with the cache, %.3f ms without: %.0f times; %zu of %zu tokens "
        "equal\n",
        network, (long long)context, threads, threads == 1 ? "" : "s", with.seconds * 1e3,
        without.seconds * 1e3, without.seconds / with.seconds, same, compared);
    free(with.tokens);
    free(without.tokens);
    tu_state_free(state);
    tu_graph_free(graph);
    return same < compared;
}
