/* Writes data files: each image is written to the disk and added to the statistics in one pass. See data_file.h. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/path.h"
#include "base/save.h"
#include "data/data_file.h"
#include "data/statistics.h"

enum { BUFFER_BYTES = 1 << 20 };

const char tu__data_file_head[8] = {'T', 'U', 'T', 'T', 'I', 'D', 'A', 'T'};
const char tu__data_file_tail[8] = {'T', 'U', 'T', 'T', 'I', 'E', 'N', 'D'};

struct tu__data_writer {
    tu__save save;
    tu_dataset_info info;
    size_t image_bytes;
    int64_t added;   /* images added, in both splits */
    int32_t *labels; /* labels of both splits */
    tu__statistics statistics;
    size_t offset;   /* bytes written, including those in the buffer */
    size_t buffered; /* bytes in the buffer, which combines small images into larger writes */
    unsigned char *buffer;
    char digest[TU__SHA256_HEX]; /* set when all images are added */
};

/* ---- Layout ---- */

static bool advance(size_t *offset, size_t count, size_t size) {
    size_t bytes, rounded;
    if (__builtin_mul_overflow(count, size, &bytes)) return false;
    if (__builtin_add_overflow(*offset, bytes, &rounded)) return false;
    if (__builtin_add_overflow(rounded, TU__DATA_FILE_ALIGNMENT - 1, &rounded)) return false;
    *offset = rounded / TU__DATA_FILE_ALIGNMENT * TU__DATA_FILE_ALIGNMENT;
    return true;
}

bool tu__data_file_layout(const tu_dataset_info *info, size_t image_bytes, tu__data_layout *layout) {
    size_t offset = TU__DATA_FILE_ALIGNMENT;
    for (int split = TU_TRAIN; split <= TU_TEST; split++) {
        layout->images[split] = offset;
        if (!advance(&offset, (size_t)info->count[split], image_bytes)) return false;
    }
    for (int split = TU_TRAIN; split <= TU_TEST; split++) {
        layout->labels[split] = offset;
        if (!advance(&offset, (size_t)info->count[split], sizeof(int32_t))) return false;
    }
    layout->description = offset;
    return true;
}

/* ---- Bytes ---- */

static tu_status flush(tu__data_writer *writer) {
    size_t buffered = writer->buffered;
    writer->buffered = 0;
    return tu__save_append(&writer->save, writer->buffer, buffered);
}

static tu_status write_bytes(tu__data_writer *writer, const void *bytes, size_t size) {
    writer->offset += size;
    if (size > BUFFER_BYTES - writer->buffered) TU_TRY(flush(writer));
    if (size > BUFFER_BYTES) return tu__save_append(&writer->save, bytes, size);
    if (size) memcpy(writer->buffer + writer->buffered, bytes, size);
    writer->buffered += size;
    return TU_OK;
}

/* Writes zeros up to the start of the next section. */
static tu_status write_padding(tu__data_writer *writer) {
    static const unsigned char zeros[TU__DATA_FILE_ALIGNMENT];
    size_t excess = writer->offset % TU__DATA_FILE_ALIGNMENT;
    return excess ? write_bytes(writer, zeros, TU__DATA_FILE_ALIGNMENT - excess) : TU_OK;
}

static tu_status write_head(tu__data_writer *writer) {
    unsigned char head[TU__DATA_FILE_ALIGNMENT] = {0};
    uint32_t version = TU__DATA_FILE_VERSION;
    memcpy(head, tu__data_file_head, sizeof tu__data_file_head);
    memcpy(head + 8, &version, sizeof version);
    return write_bytes(writer, head, sizeof head);
}

/* ---- The description ---- */

static void write_numbers(tu_json *json, const char *key, const double *numbers, int64_t count) {
    tu_json_begin_array(json, key);
    for (int64_t i = 0; i < count; i++) tu_json_f64(json, NULL, numbers[i]);
    tu_json_end_array(json);
}

static void write_json(tu_json *json, const tu_dataset_info *info) {
    tu_json_begin_object(json, NULL);
    tu_json_string(json, "name", info->name);
    tu_json_string(json, "origin", info->origin);
    tu_json_i64(json, "train", info->count[TU_TRAIN]);
    tu_json_i64(json, "test", info->count[TU_TEST]);
    tu_json_i64(json, "height", info->height);
    tu_json_i64(json, "width", info->width);
    tu_json_i64(json, "channels", info->channels);
    tu_json_string(json, "type", tu_dtype_name(info->dtype));
    tu_json_begin_array(json, "classes");
    for (int64_t i = 0; i < info->classes; i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)i);
        tu_json_string(json, NULL, info->class_names ? info->class_names[i] : number);
    }
    tu_json_end_array(json);
    write_numbers(json, "mean", info->mean, info->channels);
    write_numbers(json, "deviation", info->deviation, info->channels);
    tu_json_string(json, "digest", info->digest);
    if (info->validation) tu_json_i64(json, "validation", info->validation);
    if (info->skipped) tu_json_i64(json, "skipped", info->skipped);
    if (info->ignored) tu_json_i64(json, "ignored", info->ignored);
    tu_json_end_object(json);
}

static tu_status write_description(tu__data_writer *writer) {
    tu__text text = {0};
    tu_json json = tu__json_to_text(&text);
    write_json(&json, &writer->info);
    if (!tu_json_finish(&json)) {
        tu__text_free(&text);
        return tu_fail(TU_NO_MEMORY, "out of memory for the description of data set '%s'", writer->info.name);
    }
    unsigned char tail[TU__DATA_FILE_ALIGNMENT] = {0};
    uint64_t offset = writer->offset, size = text.length;
    memcpy(tail, &offset, sizeof offset);
    memcpy(tail + 8, &size, sizeof size);
    tu__sha256_of(text.data, text.length, tail + 16);
    memcpy(tail + 56, tu__data_file_tail, sizeof tu__data_file_tail);
    tu_status status = write_bytes(writer, text.data, text.length);
    tu__text_free(&text);
    TU_TRY(status);
    TU_TRY(write_padding(writer));
    return write_bytes(writer, tail, sizeof tail);
}

/* ---- The writer ---- */

static tu_status open_writer(tu__data_writer *writer, const char *path) {
    tu__data_layout layout;
    int64_t count;
    if (!tu__data_file_layout(&writer->info, writer->image_bytes, &layout) ||
        __builtin_add_overflow(writer->info.count[TU_TRAIN], writer->info.count[TU_TEST], &count))
        return tu_fail(TU_INVALID, "data set '%s' is too large for a data file", writer->info.name);
    writer->labels = tu__alloc_array((size_t)count, sizeof *writer->labels, "the labels of a data set");
    writer->buffer = tu__alloc(BUFFER_BYTES, "writing a data file");
    if (!writer->labels || !writer->buffer) return TU_NO_MEMORY;
    tu__statistics_begin(&writer->statistics, &writer->info);
    tu__path folder;
    const char *slash = strrchr(path, '/');
    snprintf(folder.text, sizeof folder.text, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    TU_TRY(tu__save_begin_in(&writer->save, *folder.text ? folder.text : "/", slash ? slash + 1 : path));
    return write_head(writer);
}

tu_status tu__data_writer_new(const char *path, const tu_dataset_info *info, tu__data_writer **writer) {
    size_t image_bytes;
    TU_TRY(tu__dataset_check(info, &image_bytes));
    tu__data_writer *created = tu__alloc(sizeof *created, "writing a data file");
    if (!created) return TU_NO_MEMORY;
    created->save.fd = -1;
    created->info = *info;
    created->image_bytes = image_bytes;
    tu_status status = open_writer(created, path);
    if (status != TU_OK) {
        tu__data_writer_free(created);
        return status;
    }
    *writer = created;
    return TU_OK;
}

tu_status tu__data_writer_add(tu__data_writer *writer, const void *image, int32_t label) {
    const tu_dataset_info *info = &writer->info;
    int64_t train = info->count[TU_TRAIN], all = train + info->count[TU_TEST];
    if (writer->added == all)
        return tu_fail(TU_CORRUPT, "data set '%s' has more images than the %lld expected", info->name,
                       (long long)all);
    if (label < 0 || label >= info->classes)
        return tu_fail(TU_CORRUPT, "data set '%s': image %lld has label %d: expected 0 to %lld", info->name,
                       (long long)writer->added, label, (long long)info->classes - 1);
    if (writer->added == train) TU_TRY(write_padding(writer));
    tu__statistics_image(&writer->statistics, writer->added < train ? TU_TRAIN : TU_TEST, image);
    writer->labels[writer->added++] = label;
    return write_bytes(writer, image, writer->image_bytes);
}

tu_status tu__data_writer_finish(tu__data_writer *writer, const char *digest) {
    tu_dataset_info *info = &writer->info;
    int64_t train = info->count[TU_TRAIN], test = info->count[TU_TEST];
    char *computed = writer->digest;
    if (writer->added != train + test)
        return tu_fail(TU_CORRUPT, "data set '%s' has %lld images: expected %lld", info->name,
                       (long long)writer->added, (long long)train + (long long)test);
    tu__statistics_labels(&writer->statistics, writer->labels, train + test);
    tu__statistics_end(&writer->statistics, info, computed);
    if (digest && strcmp(computed, digest) != 0)
        return tu_fail(
            TU_CORRUPT,
            "data set '%s': its images and labels have SHA-256 %s, expected %s: the contents differ",
            info->name, computed, digest);
    info->digest = computed;
    TU_TRY(write_padding(writer));
    TU_TRY(write_bytes(writer, writer->labels, (size_t)train * sizeof *writer->labels));
    TU_TRY(write_padding(writer));
    TU_TRY(write_bytes(writer, writer->labels + train, (size_t)test * sizeof *writer->labels));
    TU_TRY(write_padding(writer));
    TU_TRY(write_description(writer));
    TU_TRY(flush(writer));
    return tu__save_commit(&writer->save);
}

void tu__data_writer_free(tu__data_writer *writer) {
    if (!writer) return;
    if (writer->save.fd >= 0) tu__save_abandon(&writer->save);
    tu__free(writer->labels);
    tu__free(writer->buffer);
    tu__free(writer);
}
