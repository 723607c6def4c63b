/* Writing and reading metrics.jsonl. See metrics_log.h. */
#include "train/metrics_log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/disk.h"
#include "base/json.h"
#include "base/json_read.h"
#include "base/save.h"

/* ---- Series ---- */

static tu_status grow(tu__series *series) {
    size_t capacity = series->capacity ? 2 * series->capacity : 128;
    double *block = tu__alloc_array(3 * capacity, sizeof *block, "the curves of a run");
    if (!block) return TU_NO_MEMORY;
    double *columns[] = {series->epoch, series->loss, series->accuracy};
    for (size_t i = 0; i < 3 && series->count; i++)
        memcpy(block + i * capacity, columns[i], series->count * sizeof *block);
    tu__free(series->epoch);
    series->epoch = block;
    series->loss = block + capacity;
    series->accuracy = block + 2 * capacity;
    series->capacity = capacity;
    return TU_OK;
}

static tu_status add_point(tu__series *series, double epoch, double loss, double accuracy) {
    if (series->count == series->capacity) TU_TRY(grow(series));
    series->epoch[series->count] = epoch;
    series->loss[series->count] = loss;
    series->accuracy[series->count++] = accuracy;
    return TU_OK;
}

/* ---- Kinds of lines ---- */

static const struct line_kind {
    tu_train_event event;
    const char *loss, *accuracy, *top5; /* JSON keys; no top5 for training */
    size_t series;                      /* offset of the series in tu__metrics_log */
    size_t losses; /* offset in tu_train_report of the loss, which accuracy and top5 follow */
} kinds[] = {
    {TU_TRAIN_MEASURED, "loss", "accuracy", NULL, offsetof(tu__metrics_log, train),
     offsetof(tu_train_report, loss)},
    {TU_TRAIN_VALIDATED, "validation_loss", "validation_accuracy", "validation_top5",
     offsetof(tu__metrics_log, validation), offsetof(tu_train_report, validation_loss)},
    {TU_TRAIN_EVALUATED, "test_loss", "test_accuracy", "test_top5", offsetof(tu__metrics_log, test),
     offsetof(tu_train_report, test_loss)},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static tu__series *series_of(tu__metrics_log *log, const struct line_kind *kind) {
    return (tu__series *)((char *)log + kind->series);
}

static const struct line_kind *kind_of(tu_train_event event) {
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i].event == event) return &kinds[i];
    return &kinds[0];
}

/* Returns the loss, accuracy and top-5 fields of the report, which are consecutive. */
static const double *numbers_of(const tu_train_report *r, const struct line_kind *kind) {
    return (const double *)((const char *)r + kind->losses);
}

/* ---- Reading an existing log ---- */

static double number_in(const tu__json_value *line, const char *key) {
    const tu__json_value *value = tu__json_member(line, key);
    return value && value->kind == TU__JSON_NUMBER ? value->number : NAN;
}

/* Adds the point of a line to its series. Returns false if the line cannot be parsed or belongs to a later step. */
static bool read_line(tu__metrics_log *log, const char *text, size_t length, int64_t step) {
    tu__arena arena = {.purpose = "a line of metrics.jsonl"};
    const tu__json_value *line;
    bool valid = tu__json_parse(&arena, "metrics.jsonl", text, length, &line) == TU_OK;
    const tu__json_value *at = valid ? tu__json_member(line, "step") : NULL;
    valid = at && at->is_integer && at->integer <= step;
    for (size_t i = 0; valid && i < KINDS; i++)
        if (tu__json_member(line, kinds[i].loss)) {
            valid = add_point(series_of(log, &kinds[i]), number_in(line, "epoch"),
                              number_in(line, kinds[i].loss), number_in(line, kinds[i].accuracy)) == TU_OK;
            break;
        }
    tu__arena_free(&arena);
    return valid;
}

/* Reads the lines up to `step`. Stores their size in bytes in `*kept`. */
static void read_lines(tu__metrics_log *log, const char *text, size_t length, int64_t step, size_t *kept) {
    *kept = 0;
    while (*kept < length) {
        const char *end = memchr(text + *kept, '\n', length - *kept);
        if (!end || !read_line(log, text + *kept, (size_t)(end - text) - *kept, step)) return;
        *kept = (size_t)(end - text) + 1;
    }
}

/* Reads the whole file; the caller frees `*text` with tu__free. A missing file has length 0. */
static tu_status read_file(const char *path, char **text, size_t *length) {
    *text = NULL;
    *length = 0;
    FILE *file = fopen(path, "rb");
    if (!file && errno == ENOENT) return TU_OK;
    long size = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    tu_status status = TU_OK;
    if (size < 0 || fseek(file, 0, SEEK_SET) != 0)
        status = tu_fail(TU_IO, "cannot read '%s': %s", path, strerror(errno));
    if (status == TU_OK) {
        *text = tu__alloc((size_t)size + 1, "metrics.jsonl");
        status = *text ? TU_OK : TU_NO_MEMORY;
    }
    if (status == TU_OK) {
        *length = fread(*text, 1, (size_t)size, file);
        if (ferror(file)) status = tu_fail(TU_IO, "cannot read '%s': %s", path, strerror(errno));
    }
    if (status != TU_OK) tu__free(*text), *text = NULL;
    if (file) fclose(file);
    return status;
}

static tu_status drop_later_lines(tu__metrics_log *log, int64_t step) {
    char *text;
    size_t length, kept;
    TU_TRY(read_file(log->path.text, &text, &length));
    read_lines(log, text, length, step, &kept);
    /* A new file is saved as well: unlike opening it, this also flushes its directory entry to the disk. */
    tu_status status = !text || kept < length ? tu_file_save(log->path.text, text ? text : "", kept) : TU_OK;
    log->size = (off_t)kept;
    tu__free(text);
    return status;
}

/* ---- Writing ---- */

tu_status tu__metrics_log_open(const char *folder, int64_t step, tu__metrics_log *log) {
    *log = (tu__metrics_log){.path = tu__path_in(folder, "metrics.jsonl"), .fd = -1};
    TU_TRY(drop_later_lines(log, step));
    log->fd = tu__disk_in_use()->open(log->path.text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log->fd >= 0) return TU_OK;
    return tu_fail(TU_IO, "cannot write '%s': %s", log->path.text, strerror(errno));
}

void tu__metrics_log_close(tu__metrics_log *log) {
    if (log->fd >= 0) tu__disk_in_use()->close(log->fd);
    tu__free(log->train.epoch);
    tu__free(log->validation.epoch);
    tu__free(log->test.epoch);
    *log = (tu__metrics_log){.fd = -1};
}

static double round_to(double value, double unit) {
    return round(value / unit) * unit;
}

/* On several processes: the milliseconds of a step that each rank waits for others, and the rank for which they wait. */
static void write_waits(const tu_train_report *r, tu_json *json) {
    if (!r->processes) return;
    tu_json_begin_array(json, "wait_ms");
    for (uint32_t i = 0; i < r->processes; i++) tu_json_f64(json, NULL, round_to(r->wait_ms[i], 1e-3));
    tu_json_end_array(json);
    tu_json_begin_array(json, "worst_wait_ms");
    for (uint32_t i = 0; i < r->processes; i++) tu_json_f64(json, NULL, round_to(r->worst_wait_ms[i], 1e-3));
    tu_json_end_array(json);
    tu_json_i64(json, "slow_rank", r->slow_rank);
}

static void write_line(tu__text *text, const tu_train_report *r) {
    tu_json json = tu__json_to_text(text);
    tu_json_begin_object(&json, NULL);
    tu_json_i64(&json, "step", r->step);
    tu_json_f64(&json, "epoch", round_to(r->epoch, 1e-6));
    tu_json_f64(&json, "seconds", round_to(r->seconds, 1e-3));
    const struct line_kind *kind = kind_of(r->event);
    const double *numbers = numbers_of(r, kind);
    tu_json_f64(&json, kind->loss, numbers[0]);
    tu_json_f64(&json, kind->accuracy, numbers[1]);
    if (kind->top5) {
        tu_json_f64(&json, kind->top5, numbers[2]);
    } else {
        tu_json_f64(&json, "rate", r->rate);
        tu_json_f64(&json, "gradient_norm", r->gradient_norm);
        tu_json_f64(&json, "images_per_second", round_to(r->images_per_second, 0.1));
        write_waits(r, &json);
    }
    tu_json_end_object(&json);
    tu__text_append(text, "\n", 1);
}

static tu_status append(tu__metrics_log *log, const char *bytes, size_t size) {
    if (log->fd < 0) return TU_OK; /* opening it failed, which was reported */
    for (size_t done = 0; done < size;) {
        ssize_t written = tu__disk_in_use()->write(log->fd, bytes + done, size - done);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            int reason = errno;
            if (done) tu__disk_in_use()->truncate(log->path.text, log->size);
            return tu_fail(TU_IO, "cannot write '%s': %s", log->path.text, strerror(reason));
        }
        done += (size_t)written;
    }
    log->size += (off_t)size;
    return TU_OK;
}

tu_status tu__metrics_log_add(tu__metrics_log *log, const tu_train_report *r) {
    const struct line_kind *kind = kind_of(r->event);
    const double *numbers = numbers_of(r, kind);
    TU_TRY(add_point(series_of(log, kind), r->epoch, numbers[0], numbers[1]));
    tu__text text = {0};
    write_line(&text, r);
    tu_status status = text.failed ? TU_NO_MEMORY : append(log, text.data, text.length);
    tu__text_free(&text);
    return status;
}

tu_status tu__metrics_log_flush(tu__metrics_log *log) {
    if (log->fd < 0 || tu__disk_in_use()->fsync(log->fd) == 0) return TU_OK;
    return tu_fail(TU_IO, "cannot write '%s': %s", log->path.text, strerror(errno));
}
