/* Trains a GPT on synthetic tokens and prints the loss of every step, then the time of a step. bench/compare/gpt2.py
 * trains the same network in PyTorch, from the weights and tokens that this program has saved.
 *
 *     bench_gpt2 FOLDER [NETWORK DEVICE PRECISION BATCH CONTEXT STEPS TIMED_STEPS WARMUP RATE]
 *     bench_gpt2 /tmp/gpt2 gpt2-124M gpu:0 bf16 32 1024 50 100 700 6e-4
 *
 * The optimizer is that of the usual recipe for gpt2-124M: AdamW with a learning rate of 6e-4 after a linear warm-up of 700 steps;
 * WARMUP 0: none. With a short one, the first updates of AdamW change every weight by nearly the full rate, and
 * the losses of two runs that round differently, even both in PyTorch, move apart by some hundredths for a while.
 *
 * Files in FOLDER: weights.safetensors, tokens.bin (i32 [STEPS, BATCH, CONTEXT + 1]), tutti.json. The token after t is a
 * function of t in nine of ten places, and t depends on a skewed distribution in the others, so that there is something to
 * learn in 50 steps. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "../measure.h"

typedef struct job {
    const char *folder, *network, *device, *precision;
    int64_t batch, context, steps, timed_steps, warmup, vocabulary;
    double rate;
    tu_graph *graph;
    tu_network_graph net;
    tu_program *program;
    tu_state *state;
    int32_t *tokens;
    float *losses;
} job;

static FILE *open_file(const job *j, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", j->folder, name);
    FILE *file = fopen(path, "wb");
    if (!file) {
        perror(path);
        exit(1);
    }
    return file;
}

static uint32_t next_bits(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void draw_tokens(job *j) {
    size_t count = (size_t)(j->steps * j->batch * (j->context + 1));
    uint32_t random = 1, token = 0, vocabulary = (uint32_t)j->vocabulary;
    j->tokens = calloc(count, sizeof *j->tokens);
    j->losses = calloc((size_t)(j->steps > j->timed_steps ? j->steps : j->timed_steps), sizeof *j->losses);
    if (!j->tokens || !j->losses) exit(1);
    for (size_t i = 0; i < count; i++) {
        bool jumps = next_bits(&random) % 10 == 0;
        uint32_t limit = 1 + next_bits(&random) % vocabulary;
        token = jumps ? next_bits(&random) % limit : (token * 31 + 7) % vocabulary;
        j->tokens[i] = (int32_t)token;
    }
    FILE *file = open_file(j, "tokens.bin");
    fwrite(j->tokens, sizeof *j->tokens, count, file);
    fclose(file);
}

static void build(job *j) {
    tu_shape logits;
    must(tu_graph_new(&j->graph));
    tu_set_training(j->graph, true);
    j->net = TU_SIZED(tu_network_graph);
    must(tu_network_build(j->graph, j->network, &j->net, .batch = j->batch, .context = j->context));
    tu_value rate = tu_schedule(j->graph, .rate = j->rate, .warmup = j->warmup);
    must(tu_add_optimizer(j->net.loss, NULL, .name = "adamw", .rate = rate, .beta2 = 0.95,
                          .weight_decay = 0.1, .unguarded = true));
    must(tu_compile(j->graph, &j->program, .devices = j->device, .precision = j->precision,
                    .fetch = &j->net.loss, .fetch_count = 1, .updates = true));
    must(tu_state_new(j->graph, &j->state, .seed = 1));
    logits = tu_value_shape(j->net.logits);
    j->vocabulary = logits.dim[logits.rank - 1];
}

static void save_weights(const job *j) {
    char path[512];
    snprintf(path, sizeof path, "%s/weights.safetensors", j->folder);
    must(tu_state_save(j->state, path, .except = "optimizer/*,step"));
}

static void run_steps(const job *j, int64_t steps, bool same_batch) {
    const tu_feed_many feed = {.input = j->net.images, .data = j->tokens, .same_batch = same_batch};
    must(tu_run_many(j->program, j->state, (size_t)steps, 1, &feed, (void *[]){j->losses}));
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: bench_gpt2 FOLDER [NETWORK DEVICE PRECISION BATCH CONTEXT STEPS TIMED_STEPS "
                        "WARMUP RATE]\n");
        return 2;
    }
    job j = {.folder = argv[1],
             .network = argc > 2 ? argv[2] : "gpt2-124M",
             .device = argc > 3 ? argv[3] : "gpu:0",
             .precision = argc > 4 ? argv[4] : "bf16",
             .batch = argc > 5 ? atoll(argv[5]) : 32,
             .context = argc > 6 ? atoll(argv[6]) : 1024,
             .steps = argc > 7 ? atoll(argv[7]) : 50,
             .timed_steps = argc > 8 ? atoll(argv[8]) : 100,
             .warmup = argc > 9 ? atoll(argv[9]) : 700,
             .rate = argc > 10 ? atof(argv[10]) : 6e-4};
    build(&j);
    draw_tokens(&j);
    save_weights(&j);
    run_steps(&j, j.steps, false);
    FILE *file = open_file(&j, "tutti.json");
    fprintf(file, "{\"losses\":[");
    for (int64_t i = 0; i < j.steps; i++) fprintf(file, "%s%.6f", i ? "," : "", (double)j.losses[i]);
    double ms = 0;
    if (j.timed_steps) {
        run_steps(&j, 5, true);
        double start = seconds_now();
        run_steps(&j, j.timed_steps, true);
        ms = (seconds_now() - start) * 1e3 / (double)j.timed_steps;
    }
    fprintf(file, "],\"ms_per_step\":%.3f,\"warmup\":%" PRId64 ",\"rate\":%g}\n", ms, j.warmup, j.rate);
    fclose(file);
    printf("tutti: %.2f ms per step, loss %.4f\n", ms,
           (double)j.losses[j.timed_steps ? j.timed_steps - 1 : j.steps - 1]);
    tu_program_free(j.program);
    tu_state_free(j.state);
    tu_graph_free(j.graph);
    free(j.tokens);
    free(j.losses);
    return 0;
}
