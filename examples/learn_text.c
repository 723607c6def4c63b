/* Learns a poem, character by character, and recites it: a decoder trained with the C interface in a few seconds.
 *
 *     learn_text [STEPS]
 *
 * A batch has windows of the text at random places; every position is to predict the next byte. The generator then
 * continues a prompt, with the keys and values of earlier positions in memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

enum { BATCH = 8, CONTEXT = 64, VOCABULARY = 256, WIDTH = 64, STEPS = 400 };

static const char poem[] = "'Twas brillig, and the slithy toves\n"
                           "Did gyre and gimble in the wabe:\n"
                           "All mimsy were the borogoves,\n"
                           "And the mome raths outgrabe.\n\n"
                           "\"Beware the Jabberwock, my son!\n"
                           "The jaws that bite, the claws that catch!\n"
                           "Beware the Jubjub bird, and shun\n"
                           "The frumious Bandersnatch!\"\n\n"
                           "He took his vorpal sword in hand;\n"
                           "Long time the manxome foe he sought--\n"
                           "So rested he by the Tumtum tree\n"
                           "And stood awhile in thought.\n";

static void must(tu_status status) {
    if (status == TU_OK) return;
    fprintf(stderr, "learn_text: %s\n", tu_message());
    exit(1);
}

/* The training step: tokens i32 [BATCH, CONTEXT + 1] -> loss. */
typedef struct training {
    tu_graph *graph;
    tu_network_graph net;
    tu_program *step;
    tu_state *state;
} training;

static training start(void) {
    training t = {.net = TU_SIZED(tu_network_graph)};
    must(tu_graph_new(&t.graph));
    tu_set_training(t.graph, true);
    must(tu_network_build(t.graph, "char-gpt", &t.net, .batch = BATCH, .context = CONTEXT, .base = WIDTH,
                          .classes = VOCABULARY));
    must(tu_add_optimizer(t.net.loss, NULL, .name = "adamw", .constant_rate = 3e-3, .clip_norm = 1));
    must(tu_compile(t.graph, &t.step, .devices = "cpu:0", .fetch = &t.net.loss, .fetch_count = 1,
                    .updates = true));
    must(tu_state_new(t.graph, &t.state, .seed = 1));
    return t;
}

/* Fills a batch with windows of the text; returns the new state of the random numbers. */
static unsigned draw_windows(const int32_t *text, size_t length, unsigned random, int32_t *tokens) {
    for (int row = 0; row < BATCH; row++) {
        random = random * 1664525u + 1013904223u;
        size_t first = (random >> 8) % (length - CONTEXT);
        memcpy(tokens + (ptrdiff_t)row * (CONTEXT + 1), text + first, (CONTEXT + 1) * sizeof *tokens);
    }
    return random;
}

static void train(const training *t, const int32_t *text, size_t length, int steps) {
    static int32_t tokens[BATCH * (CONTEXT + 1)];
    unsigned random = 1;
    for (int i = 1; i <= steps; i++) {
        float loss;
        random = draw_windows(text, length, random, tokens);
        must(tu_run(t->step, t->state, 1, (tu_feed[]){{t->net.images, tokens}}, (void *[]){&loss}));
        if (i == 1 || i % 50 == 0) printf("step %3d: loss %.3f\n", i, (double)loss);
    }
}

/* The network for generation: one sequence, in inference mode, with the variables of the training. */
static tu_generator *make_generator(const training *t) {
    tu_graph *graph;
    tu_generator *generator;
    tu_value logits;
    must(tu_graph_new(&graph));
    tu_value tokens = tu_batch_input(graph, "tokens", TU_I32, TU_SHAPE(1, CONTEXT));
    must(tu_network_logits(tokens, "char-gpt", &logits, .base = WIDTH, .classes = VOCABULARY));
    tu_output(logits, "logits");
    must(tu_generator_new(graph, t->state, &generator));
    tu_graph_free(graph);
    return generator;
}

int main(int argc, char **argv) {
    static int32_t text[sizeof poem];
    int32_t prompt[CONTEXT], recited[CONTEXT];
    size_t length, prompt_count, count;
    tu_tokenizer *tokenizer;
    must(tu_tokenizer_open("bytes", &tokenizer));
    must(tu_tokenizer_encode(tokenizer, poem, sizeof poem - 1, text, &length));
    training t = start();
    train(&t, text, length, argc > 1 ? atoi(argv[1]) : STEPS);

    static const char opening[] = "Beware the Jab";
    tu_generator *generator = make_generator(&t);
    must(tu_tokenizer_encode(tokenizer, opening, sizeof opening - 1, prompt, &prompt_count));
    must(tu_generate(generator, prompt, prompt_count, CONTEXT - prompt_count, recited, &count,
                     .temperature = TU_ZERO));
    printf("%s", opening);
    for (size_t i = 0; i < count; i++) {
        const char *bytes;
        size_t size;
        must(tu_tokenizer_piece(tokenizer, recited[i], &bytes, &size));
        fwrite(bytes, 1, size, stdout);
    }
    putchar('\n');
    tu_generator_free(generator);
    tu_tokenizer_free(tokenizer);
    tu_program_free(t.step);
    tu_state_free(t.state);
    tu_graph_free(t.graph);
    return 0;
}
