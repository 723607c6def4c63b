/* `tutti data tokens FILE...`: reads texts, checks that they are UTF-8, and writes a token file with a part for training, one
 * for validation and one for the test, in the order of the texts. Tokenizers with a token that separates texts get it after
 * each file. */
#include "cli/data_tokens.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/command.h>
#include <tutti/text.h>

#include "cli/command.h"

struct texts {
    const struct data_tokens_settings *settings;
    tu_tokenizer *tokenizer;
    int32_t *tokens;
    size_t count, bytes;
};

/* ---- Reading ---- */

/* The longest text, which is read as a whole; its tokens must be in memory too. Several files may have more. */
#define LONGEST_TEXT ((size_t)4 << 30)

static int add_tokens(struct texts *t, const char *text, size_t length) {
    int32_t *larger = realloc(t->tokens, (t->count + length + 1) * sizeof *larger);
    if (!larger) return cli_fail("data tokens: out of memory for the tokens");
    t->tokens = larger;
    size_t added;
    tu_status status = tu_tokenizer_encode(t->tokenizer, text, length, t->tokens + t->count, &added);
    if (status != TU_OK) return cli_report(status);
    t->count += added;
    t->bytes += length;
    if (tu_tokenizer_end(t->tokenizer) >= 0) t->tokens[t->count++] = tu_tokenizer_end(t->tokenizer);
    return CLI_DONE;
}

static int add_file(struct texts *t, const char *path) {
    void *text;
    size_t length;
    if (tu_file_read(path, LONGEST_TEXT, &text, &length) != TU_OK)
        return cli_input_error("data tokens: %s", tu_message());
    tu_status status = tu_text_check(path, text, length);
    int result = status == TU_OK ? add_tokens(t, text, length) : cli_report(status);
    tu_bytes_free(text);
    return result;
}

/* ---- Writing ---- */

static tu_status write_file(const struct texts *t) {
    tu_token_file *file;
    TU_TRY(tu_token_file_new(t->settings->out, &file, .vocabulary = tu_tokenizer_vocabulary(t->tokenizer),
                             .tokenizer = tu_tokenizer_description(t->tokenizer)));
    int64_t held_out = (int64_t)((double)t->count * t->settings->test_share), all = (int64_t)t->count;
    const int64_t counts[] = {all - 2 * held_out, held_out, held_out};
    const int32_t *next = t->tokens;
    tu_status status = TU_OK;
    for (int part = 0; part < 3 && status == TU_OK; next += counts[part++])
        status = tu_token_file_add(file, (tu_token_part)part, next, counts[part]);
    if (status == TU_OK) return tu_token_file_finish(file);
    tu_token_file_abandon(file);
    return status;
}

static void report(const struct texts *t) {
    const char *name = tu_tokenizer_name(t->tokenizer);
    if (!t->settings->json) {
        printf("%s: %zu bytes of text, %zu tokens (%s)\n", t->settings->out, t->bytes, t->count, name);
        return;
    }
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "path", t->settings->out);
    tu_json_string(&json, "tokenizer", name);
    tu_json_i64(&json, "bytes", (int64_t)t->bytes);
    tu_json_i64(&json, "tokens", (int64_t)t->count);
    tu_json_end_object(&json);
    putchar('\n');
}

int data_tokens(const struct data_tokens_settings *settings, int file_count, char **files) {
    struct texts t = {.settings = settings};
    if (settings->test_share >= 0.5)
        return cli_input_error(
            "data tokens: --test-share %g: expected less than 0.5, since as many tokens are for "
            "validation",
            settings->test_share);
    tu_status status = tu_tokenizer_open_with(settings->tokenizer, &t.tokenizer, settings->options);
    int result = status == TU_OK ? CLI_DONE : cli_report(status);
    for (int i = 0; i < file_count && result == CLI_DONE; i++) result = add_file(&t, files[i]);
    if (result == CLI_DONE) {
        status = write_file(&t);
        result = status == TU_OK ? CLI_DONE : cli_report(status);
    }
    if (result == CLI_DONE) report(&t);
    tu_tokenizer_free(t.tokenizer);
    free(t.tokens);
    return result;
}
