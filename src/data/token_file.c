/* tu_token_file: writes token files. See column_file.h.
 *
 * Tokens are stored in the smallest of 1, 2 or 4 bytes that holds the vocabulary, little-endian. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "data/column_file.h"
#include "data/converted.h"
#include "data/data_file.h"
#include "graph/graph.h"

enum { BUFFER_BYTES = 1 << 16 };

struct tu_token_file {
    tu__save save;
    tu__arena arena;
    tu_dataset_info info;
    tu__columns columns;
    tu__token_layout layout;
    tu_token_part part; /* of the latest tokens */
    size_t buffered;
    unsigned char buffer[BUFFER_BYTES];
};

static tu_status fill(tu_token_file *f, const char *path, const tu_token_file_options *o) {
    char name[64];
    tu__last_component(path, name);
    f->info = (tu_dataset_info){.name = tu__arena_string(&f->arena, o->name ? o->name : name),
                                .origin = tu__arena_string(&f->arena, o->origin ? o->origin : name)};
    f->columns =
        (tu__columns){.count = 1, .tokenizer = tu__arena_string(&f->arena, o->tokenizer ? o->tokenizer : "")};
    if (!f->info.name || !f->info.origin || !f->columns.tokenizer) return TU_NO_MEMORY;
    f->columns.column[0] = (tu__column){.name = "tokens",
                                        .kind = TU_COLUMN_TOKENS,
                                        .type = {TU_I32, TU_SHAPE(2)}, /* replaced when the file is opened */
                                        .classes = o->vocabulary};
    f->layout.vocabulary = o->vocabulary;
    f->layout.bytes = o->vocabulary <= 256 ? 1 : o->vocabulary <= 65536 ? 2 : 4;
    TU_TRY(tu__columns_check(f->info.name, &f->columns));
    TU_TRY(tu__save_begin(&f->save, path));
    return tu__write_file_head(&f->save);
}

tu_status tu_token_file_new_with(const char *path, tu_token_file **file,
                                 const tu_token_file_options *options) {
    TU__OPTIONS(tu_token_file_options, o, options);
    *file = NULL;
    tu_token_file *f = tu__alloc(sizeof *f, "a token file");
    if (!f) return TU_NO_MEMORY;
    f->save.fd = -1;
    f->arena.purpose = "a token file";
    tu_status status = fill(f, path, &o);
    if (status != TU_OK) {
        tu_token_file_abandon(f);
        return status;
    }
    *file = f;
    return TU_OK;
}

static tu_status flush(tu_token_file *f) {
    size_t buffered = f->buffered;
    f->buffered = 0;
    return tu__save_append(&f->save, f->buffer, buffered);
}

tu_status tu_token_file_add(tu_token_file *f, tu_token_part part, const int32_t *tokens, int64_t count) {
    if ((unsigned)part > TU_TOKENS_TEST || part < f->part || count < 0)
        return tu_fail(
            TU_INVALID,
            "token file '%s': %lld tokens of part %d after part %d: expected training, validation and test "
            "tokens in this order",
            f->save.path, (long long)count, (int)part, (int)f->part);
    f->part = part;
    for (int64_t i = 0; i < count; i++) {
        uint32_t token = (uint32_t)tokens[i];
        if (token >= (uint64_t)f->layout.vocabulary)
            return tu_fail(TU_INVALID, "token file '%s': token %lld is %d: expected 0 to %lld", f->save.path,
                           (long long)f->layout.count[part] + i, tokens[i],
                           (long long)f->layout.vocabulary - 1);
        if (f->buffered + 4 > BUFFER_BYTES) TU_TRY(flush(f));
        for (int64_t b = 0; b < f->layout.bytes; b++)
            f->buffer[f->buffered++] = (unsigned char)(token >> (8 * b));
    }
    f->layout.count[part] += count;
    return TU_OK;
}

static tu_status hash_file(tu_token_file *f, size_t end, char digest[TU__SHA256_HEX]) {
    void *bytes = tu__save_map(&f->save, end);
    if (!bytes) return tu_fail(TU_IO, "cannot map '%s' into memory: %s", f->save.path, strerror(errno));
    tu_status status = tu__hash_sections(bytes, end, &f->columns, 1, digest);
    munmap(bytes, end);
    return status;
}

static tu_status finish(tu_token_file *f) {
    static const unsigned char zeros[TU__DATA_FILE_ALIGNMENT];
    char digest[TU__SHA256_HEX];
    int64_t all = f->layout.count[0] + f->layout.count[1] + f->layout.count[2];
    if (f->layout.count[TU_TOKENS_TRAIN] < 2)
        return tu_fail(TU_INVALID, "token file '%s' has %lld training tokens: expected at least two",
                       f->save.path, (long long)f->layout.count[TU_TOKENS_TRAIN]);
    TU_TRY(flush(f));
    size_t bytes = (size_t)(all * f->layout.bytes), excess = bytes % TU__DATA_FILE_ALIGNMENT;
    size_t padding = excess ? TU__DATA_FILE_ALIGNMENT - excess : 0,
           end = TU__DATA_FILE_ALIGNMENT + bytes + padding;
    TU_TRY(tu__save_append(&f->save, zeros, padding));
    TU_TRY(hash_file(f, end, digest));
    f->info.digest = digest;
    f->info.count[TU_TRAIN] = f->layout.count[TU_TOKENS_TRAIN];
    f->info.count[TU_TEST] = f->layout.count[TU_TOKENS_TEST];
    tu_status status = tu__write_description(&f->save, end, &f->info, &f->columns, NULL, &f->layout);
    f->info.digest = NULL;
    TU_TRY(status);
    return tu__save_commit(&f->save);
}

tu_status tu_token_file_finish(tu_token_file *file) {
    tu_status status = finish(file);
    tu_token_file_abandon(file);
    return status;
}

void tu_token_file_abandon(tu_token_file *f) {
    if (!f) return;
    if (f->save.fd >= 0) tu__save_abandon(&f->save);
    tu__arena_free(&f->arena);
    tu__free(f);
}
