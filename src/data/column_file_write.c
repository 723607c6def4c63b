/* Writes data files of version 2. See column_file.h. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/parallel.h"
#include "base/text.h"
#include "data/column_file.h"
#include "data/data_file.h"

enum { BLOCK_BYTES = 1 << 20 };

/* ---- Layout ---- */

static bool advance(size_t *offset, int64_t count, size_t size) {
    size_t bytes, rounded;
    if (count < 0 || __builtin_mul_overflow((size_t)count, size, &bytes)) return false;
    if (__builtin_add_overflow(*offset, bytes, &rounded)) return false;
    if (__builtin_add_overflow(rounded, TU__DATA_FILE_ALIGNMENT - 1, &rounded)) return false;
    *offset = rounded / TU__DATA_FILE_ALIGNMENT * TU__DATA_FILE_ALIGNMENT;
    return *offset <= INT64_MAX / 2;
}

bool tu__place_sections(const tu__columns *columns, const int64_t count[2], tu__sections *sections) {
    size_t offset = TU__DATA_FILE_ALIGNMENT;
    for (int split = TU_TRAIN; split <= TU_TEST; split++)
        for (size_t c = 0; c < columns->count; c++) {
            sections->column[split][c] = offset;
            if (!advance(&offset, count[split], columns->column[c].bytes)) return false;
        }
    sections->end = offset;
    return true;
}

/* ---- Digest ---- */

struct hashing {
    const unsigned char *file;
    size_t end;
    unsigned char (*digests)[TU__SHA256_BYTES];
};

static void hash_blocks(void *context, int64_t first, int64_t last, int worker) {
    const struct hashing *h = context;
    (void)worker;
    for (int64_t i = first; i < last; i++) {
        size_t begin = TU__DATA_FILE_ALIGNMENT + (size_t)i * BLOCK_BYTES, left = h->end - begin;
        tu__sha256_of(h->file + begin, left < BLOCK_BYTES ? left : BLOCK_BYTES, h->digests[i]);
    }
}

tu_status tu__hash_sections(const unsigned char *file, size_t end, const tu__columns *columns, int threads,
                            char digest[TU__SHA256_HEX]) {
    size_t blocks = (end - TU__DATA_FILE_ALIGNMENT + BLOCK_BYTES - 1) / BLOCK_BYTES;
    struct hashing h = {.file = file, .end = end};
    tu__text text = {0};
    tu__text_printf(&text, "tutti data 2: ");
    tu_json json = tu__json_to_text(&text);
    tu__columns_write(&json, NULL, columns);
    h.digests = tu__alloc_array(blocks + 1, sizeof *h.digests, "the digest of a data set");
    if (!h.digests || text.failed) {
        tu__text_free(&text);
        tu__free(h.digests);
        return tu_fail(TU_NO_MEMORY, "out of memory for the digest of a data set");
    }
    tu__parallel_setting before = tu__parallel_begin(threads);
    tu__parallel_for_stealing((int64_t)blocks, 1, hash_blocks, &h);
    tu__parallel_end(before);
    unsigned char whole[TU__SHA256_BYTES];
    tu__sha256 hash;
    tu__sha256_init(&hash);
    tu__sha256_update(&hash, text.data, text.length);
    tu__sha256_update(&hash, h.digests, blocks * sizeof *h.digests);
    tu__sha256_final(&hash, whole);
    tu__sha256_hex(whole, digest);
    tu__text_free(&text);
    tu__free(h.digests);
    return TU_OK;
}

/* ---- Head and description ---- */

tu_status tu__write_file_head(tu__save *save) {
    unsigned char head[TU__DATA_FILE_ALIGNMENT] = {0};
    uint32_t version = TU__COLUMN_FILE_VERSION;
    memcpy(head, tu__data_file_head, sizeof tu__data_file_head);
    memcpy(head + 8, &version, sizeof version);
    return tu__save_append(save, head, sizeof head);
}

static void write_sections(tu_json *json, const tu__columns *columns, const tu__sections *sections) {
    tu_json_begin_array(json, "sections");
    for (size_t c = 0; c < columns->count; c++) {
        tu_json_begin_array(json, NULL);
        for (int split = TU_TRAIN; split <= TU_TEST; split++)
            tu_json_i64(json, NULL, (int64_t)sections->column[split][c]);
        tu_json_end_array(json);
    }
    tu_json_end_array(json);
}

static void write_tokens(tu_json *json, const tu__token_layout *t) {
    tu_json_begin_object(json, "tokens");
    tu_json_i64(json, "bytes", t->bytes);
    tu_json_i64(json, "vocabulary", t->vocabulary);
    tu_json_i64(json, "train", t->count[TU_TOKENS_TRAIN]);
    tu_json_i64(json, "validation", t->count[TU_TOKENS_VALIDATION]);
    tu_json_i64(json, "test", t->count[TU_TOKENS_TEST]);
    tu_json_end_object(json);
}

static void write_json(tu_json *json, const tu_dataset_info *info, const tu__columns *columns,
                       const tu__sections *sections, const tu__token_layout *tokens) {
    tu_json_begin_object(json, NULL);
    tu_json_string(json, "name", info->name);
    tu_json_string(json, "origin", info->origin);
    tu_json_i64(json, "train", info->count[TU_TRAIN]);
    tu_json_i64(json, "test", info->count[TU_TEST]);
    if (info->validation) tu_json_i64(json, "validation", info->validation);
    if (info->notice) tu_json_string(json, "notice", info->notice);
    tu__columns_write(json, "columns", columns);
    if (columns->tokenizer) tu_json_string(json, "tokenizer", columns->tokenizer);
    if (tokens)
        write_tokens(json, tokens);
    else
        write_sections(json, columns, sections);
    tu_json_string(json, "digest", info->digest);
    tu_json_end_object(json);
}

/* The description ends at a multiple of 64 bytes; the tail follows. */
static tu_status write_text(tu__save *save, size_t offset, tu__text *text) {
    static const unsigned char zeros[TU__DATA_FILE_ALIGNMENT];
    unsigned char tail[TU__DATA_FILE_ALIGNMENT] = {0};
    uint64_t position = offset, size = text->length;
    size_t excess = text->length % TU__DATA_FILE_ALIGNMENT;
    memcpy(tail, &position, sizeof position);
    memcpy(tail + 8, &size, sizeof size);
    tu__sha256_of(text->data, text->length, tail + 16);
    memcpy(tail + 56, tu__data_file_tail, sizeof tu__data_file_tail);
    if (excess) tu__text_append(text, (const char *)zeros, TU__DATA_FILE_ALIGNMENT - excess);
    tu__text_append(text, (const char *)tail, sizeof tail);
    if (text->failed) return tu_fail(TU_NO_MEMORY, "out of memory for the description of a data set");
    int reason = 0;
    if (tu__save_write_at(save, text->data, text->length, (off_t)offset, &reason)) return TU_OK;
    save->reason = reason;
    return tu__save_append(save, NULL, 0);
}

tu_status tu__write_description(tu__save *save, size_t offset, const tu_dataset_info *info,
                                const tu__columns *columns, const tu__sections *sections,
                                const tu__token_layout *tokens) {
    tu__text text = {0};
    tu_json json = tu__json_to_text(&text);
    write_json(&json, info, columns, sections, tokens);
    tu_status status =
        tu_json_finish(&json) && !text.failed
            ? write_text(save, offset, &text)
            : tu_fail(TU_NO_MEMORY, "out of memory for the description of data set '%s'", info->name);
    tu__text_free(&text);
    return status;
}

/* ---- Tables ---- */

tu_status tu__column_writer_begin(const char *path, const tu_dataset_info *info, const tu__columns *columns,
                                  tu__column_writer *w) {
    *w = (tu__column_writer){.info = *info, .columns = *columns, .threads = 1};
    w->save.fd = -1;
    TU_TRY(tu__columns_check(info->name, &w->columns));
    if (!tu__place_sections(&w->columns, info->count, &w->sections))
        return tu_fail(TU_INVALID, "data set '%s' is too large for a data file", info->name);
    TU_TRY(tu__save_begin(&w->save, path));
    return tu__write_file_head(&w->save);
}

bool tu__column_writer_put(const tu__column_writer *w, tu_split split, size_t column, int64_t first,
                           int64_t rows, const void *elements, int *reason) {
    size_t bytes = w->columns.column[column].bytes;
    off_t offset = (off_t)(w->sections.column[split][column] + (size_t)first * bytes);
    return tu__save_write_at(&w->save, elements, (size_t)rows * bytes, offset, reason);
}

tu_status tu__column_writer_fail(tu__column_writer *w, int reason) {
    w->save.reason = reason;
    return tu__save_append(&w->save, NULL, 0);
}

/* Maps the unfinished file to compute its digest. */
static tu_status hash_file(tu__column_writer *w, char digest[TU__SHA256_HEX]) {
    void *bytes = tu__save_map(&w->save, w->sections.end);
    if (!bytes) return tu_fail(TU_IO, "cannot map '%s' into memory: %s", w->save.path, strerror(errno));
    tu_status status = tu__hash_sections(bytes, w->sections.end, &w->columns, w->threads, digest);
    munmap(bytes, w->sections.end);
    return status;
}

tu_status tu__column_writer_finish(tu__column_writer *w) {
    char digest[TU__SHA256_HEX];
    int reason = 0;
    /* The last section may end before the description; so that the mapped file has all bytes: */
    if (!tu__save_write_at(&w->save, "", 1, (off_t)w->sections.end, &reason))
        return tu__column_writer_fail(w, reason);
    TU_TRY(hash_file(w, digest));
    w->info.digest = digest;
    tu_status status =
        tu__write_description(&w->save, w->sections.end, &w->info, &w->columns, &w->sections, NULL);
    w->info.digest = NULL;
    TU_TRY(status);
    return tu__save_commit(&w->save);
}

void tu__column_writer_end(tu__column_writer *w) {
    if (w->save.fd >= 0) tu__save_abandon(&w->save);
}
