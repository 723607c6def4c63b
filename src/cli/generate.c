/* `tutti generate RUN|FILE`: continues a text with a trained network. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/command.h>
#include <tutti/generate.h>
#include <tutti/text.h>
#include <tutti/train.h>

#include "cli/clock.h"
#include "cli/command.h"
#include "cli/common_options.h"

struct generate_values {
    const char *prompt, *prompt_file, *tokenizer, *checkpoint, *devices;
    int64_t tokens, seed, top_k, threads;
    double temperature, top_p;
    bool json, offline;
};

static const struct generate_values defaults = {
    .prompt = "\n", .checkpoint = "last", .temperature = 1, .top_p = 1};

static const struct cli_option options[] = {
    CLI_STRING(struct generate_values, prompt, "prompt", 0, "TEXT", "text to continue"),
    CLI_STRING(struct generate_values, prompt_file, "prompt-file", 0, "FILE",
               "file with the text to continue"),
    CLI_INT(
        struct generate_values, tokens, "tokens", 0, "N", 1, 1 << 24,
        "number of tokens to generate (default: 200, or as many as the context of the network has room for)"),
    CLI_DOUBLE(struct generate_values, temperature, "temperature", 0, "T", 0, 1e6,
               "divide logits by T; 0: always the most probable token"),
    CLI_INT(struct generate_values, top_k, "top-k", 0, "K", 0, 1 << 24,
            "draw from the K most probable tokens; 0: from all"),
    CLI_DOUBLE(struct generate_values, top_p, "top-p", 0, "P", 0.000001, 1,
               "draw from the fewest tokens with together the probability P"),
    CLI_INT(struct generate_values, seed, "seed", 0, "N", 0, INT64_MAX, CLI_HELP_SEED),
    CLI_STRING(struct generate_values, tokenizer, "tokenizer", 0, "NAME",
               CLI_HELP_TOKENIZER " (default: that of the run)"),
    CLI_STRING(struct generate_values, checkpoint, "checkpoint", 'c', "NAME", CLI_HELP_CHECKPOINT),
    CLI_STRING(struct generate_values, devices, "devices", 0, "LIST", CLI_HELP_DEVICES " (default: cpu:0)"),
    CLI_INT(struct generate_values, threads, "threads", 't', "N", 0, 1024, CLI_HELP_THREADS),
    CLI_FLAG(struct generate_values, offline, "offline", 0, CLI_HELP_OFFLINE),
    CLI_FLAG(struct generate_values, json, "json", 0, CLI_HELP_JSON),
    {0},
};

struct generation {
    const struct generate_values *v;
    tu_generator *generator;
    tu_tokenizer *tokenizer;
    const char *prompt; /* text: of the option, or of the file */
    void *prompt_file;
    size_t prompt_length, prompt_count;
    int32_t *tokens; /* of the prompt, then new ones */
    size_t count;    /* of new tokens */
};

/* ---- The prompt ---- */

enum { LONGEST_PROMPT = 64 << 20, MOST_BY_DEFAULT = 200 };

static int read_prompt(struct generation *g) {
    const char *name = g->v->prompt_file ? g->v->prompt_file : "--prompt";
    g->prompt = g->v->prompt;
    g->prompt_length = strlen(g->v->prompt);
    if (g->v->prompt_file) {
        if (tu_file_read(name, LONGEST_PROMPT, &g->prompt_file, &g->prompt_length) != TU_OK)
            return cli_input_error("generate: --prompt-file: %s", tu_message());
        g->prompt = g->prompt_file;
    }
    if (g->prompt_length == 0)
        return cli_input_error("generate: %s is empty: expected at least one character", name);
    tu_status status = tu_text_check(name, g->prompt, g->prompt_length);
    return status == TU_OK ? CLI_DONE : cli_report(status);
}

/* ---- Generating ---- */

/* Writes a token as it is generated. */
static tu_status write_token(void *context, int32_t token) {
    const struct generation *g = context;
    const char *bytes;
    size_t length;
    TU_TRY(tu_tokenizer_piece(g->tokenizer, token, &bytes, &length));
    fwrite(bytes, 1, length, stdout);
    fflush(stdout);
    return TU_OK;
}

/* Writes an object with the text; bytes that are not UTF-8 become U+FFFD, as the JSON writer does. */
static int write_json(const struct generation *g, size_t count, double seconds) {
    size_t size = 0, length;
    const char *bytes;
    for (size_t i = 0; i < count; i++)
        if (tu_tokenizer_piece(g->tokenizer, g->tokens[g->prompt_count + i], &bytes, &length) == TU_OK)
            size += length;
    char *text = calloc(size + 1, 1), *end = text;
    if (!text) return cli_fail("generate: out of memory");
    for (size_t i = 0; i < count; i++)
        if (tu_tokenizer_piece(g->tokenizer, g->tokens[g->prompt_count + i], &bytes, &length) == TU_OK) {
            memcpy(end, bytes, length);
            end += length;
        }
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "text", text);
    tu_json_begin_array(&json, "tokens");
    for (size_t i = 0; i < count; i++) tu_json_i64(&json, NULL, g->tokens[g->prompt_count + i]);
    tu_json_end_array(&json);
    tu_json_i64(&json, "prompt_tokens", (int64_t)g->prompt_count);
    tu_json_f64(&json, "tokens_per_second", seconds > 0 ? (double)count / seconds : 0);
    tu_json_end_object(&json);
    putchar('\n');
    free(text);
    return CLI_DONE;
}

static int generate(struct generation *g) {
    const struct generate_values *v = g->v;
    int64_t drawable = tu_tokenizer_vocabulary(g->tokenizer),
            vocabulary = tu_generator_vocabulary(g->generator);
    size_t count = g->count;
    tu_generate_options o = {.struct_size = sizeof o,
                             .seed = (uint64_t)v->seed,
                             .temperature = v->temperature == 0 ? TU_ZERO : v->temperature,
                             .top_k = v->top_k,
                             .top_p = v->top_p,
                             .tokens = drawable < vocabulary ? drawable : 0,
                             .stops = tu_tokenizer_end(g->tokenizer) >= 0,
                             .stop = tu_tokenizer_end(g->tokenizer),
                             .token = v->json ? NULL : write_token,
                             .context = g};
    if (!v->json) fwrite(g->prompt, 1, g->prompt_length, stdout);
    double start = cli_now();
    tu_status status = tu_generate_with(g->generator, g->tokens, g->prompt_count, count,
                                        g->tokens + g->prompt_count, &count, &o);
    if (status != TU_OK) return cli_report(status);
    if (v->json) return write_json(g, count, cli_now() - start);
    putchar('\n');
    return CLI_DONE;
}

/* Sets the number of new tokens, for which the context must have room. */
static int choose_count(struct generation *g, size_t context) {
    size_t given = (size_t)g->v->tokens, room = g->prompt_count < context ? context - g->prompt_count : 0;
    g->count = given ? given : room < MOST_BY_DEFAULT ? room : MOST_BY_DEFAULT;
    if (g->count && g->count <= room) return CLI_DONE;
    if (!given)
        return cli_input_error(
            "generate: the prompt has %zu tokens: expected fewer than %zu, the context of the network",
            g->prompt_count, context);
    return cli_input_error("generate: a prompt of %zu tokens and --tokens %zu"
                           ": expected at most %zu tokens together, the context of the network",
                           g->prompt_count, given, context);
}

static int encode_prompt(struct generation *g) {
    size_t context = (size_t)tu_generator_context(g->generator), length = g->prompt_length;
    g->tokens = calloc(length > context ? length : context, sizeof *g->tokens);
    if (!g->tokens) return cli_fail("generate: out of memory");
    tu_status status = tu_tokenizer_encode(g->tokenizer, g->prompt, length, g->tokens, &g->prompt_count);
    return status == TU_OK ? choose_count(g, context) : cli_report(status);
}

/* Reports a tokenizer that the user chose, and that has other merges than that of the training. */
static void compare_tokenizers(const struct generation *g, const char *trained_with) {
    const char *mark = " sha256:", *trained = strstr(trained_with, mark),
               *chosen = strstr(tu_tokenizer_description(g->tokenizer), mark);
    if (!trained || (chosen && strcmp(trained, chosen) == 0)) return;
    fprintf(stderr,
            "tutti: notice: --tokenizer %s: the network was trained with other merges, of SHA-256 %.12s\n",
            cli_quote(g->v->tokenizer).text, trained + strlen(mark));
}

static int open_tokenizer(struct generation *g, const char *trained_with) {
    int64_t vocabulary = tu_generator_vocabulary(g->generator);
    const char *name = g->v->tokenizer ? g->v->tokenizer : trained_with;
    if (!*name)
        return cli_input_error(
            "generate: it is not known how the texts of this network became tokens (%" PRId64
            " different ones): choose with --tokenizer",
            vocabulary);
    tu_status status = tu_tokenizer_open(name, &g->tokenizer, .offline = g->v->offline);
    if (status != TU_OK) return cli_report(status);
    if (g->v->tokenizer) compare_tokenizers(g, trained_with);
    return CLI_DONE;
}

static int run(const void *given, int operand_count, char **operands) {
    struct generation g = {.v = given};
    char trained_with[TU_TOKENIZER_NAME];
    (void)operand_count;
    int result = read_prompt(&g);
    if (result == CLI_DONE) {
        tu_status status =
            tu_trained_generator(operands[0], &g.generator, trained_with, .checkpoint = g.v->checkpoint,
                                 .devices = g.v->devices, .threads = (int)g.v->threads);
        if (status != TU_OK) result = cli_report(status);
    }
    if (result == CLI_DONE) result = open_tokenizer(&g, trained_with);
    if (result == CLI_DONE) result = encode_prompt(&g);
    if (result == CLI_DONE) result = generate(&g);
    tu_generator_free(g.generator);
    tu_tokenizer_free(g.tokenizer);
    tu_bytes_free(g.prompt_file);
    free(g.tokens);
    return result;
}

const struct cli_command cli_command_generate = {
    .name = "generate",
    .summary = "continues a text with a trained network",
    .usage = "RUN|FILE [OPTIONS]",
    .description = "Continues the text of --prompt with the network of a run folder or a model\n"
                   "file that takes tokens, and prints both. The same seed gives the same text.",
    .options = options,
    .values_size = sizeof(struct generate_values),
    .defaults = &defaults,
    .min_operands = 1,
    .max_operands = 1,
    .run = run,
};
