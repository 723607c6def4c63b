/* Writing and reading metrics.jsonl. See metrics_log.h. */
#include "train/metrics_log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/disk.h"
#include "base/json.h"
#include "base/json_read.h"
#include "base/open_file.h"
#include "base/save.h"

#define FILE_NAME "metrics.jsonl"

/* Far more than a run writes: a million lines of 200 bytes. A longer file would only use up the memory. */
enum { MAX_BYTES = 1 << 28 };

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
    const char *loss, *accuracy; /* JSON keys; metrics of evaluations have the names of the task */
    size_t series;               /* offset of the series in tu__metrics_log */
    size_t losses;               /* offset in tu_train_report of the loss */
} kinds[] = {
    {TU_TRAIN_MEASURED, "loss", "accuracy", offsetof(tu__metrics_log, train),
     offsetof(tu_train_report, loss)},
    {TU_TRAIN_VALIDATED, "validation_loss", NULL, offsetof(tu__metrics_log, validation),
     offsetof(tu_train_report, validation_loss)},
    {TU_TRAIN_EVALUATED, "test_loss", NULL, offsetof(tu__metrics_log, test),
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

/* Returns the loss in the report. */
static const double *numbers_of(const tu_train_report *r, const struct line_kind *kind) {
    return (const double *)((const char *)r + kind->losses);
}

/* Sets the key of a metric: "accuracy" of training, "validation_rmse". */
static void metric_key(const tu__metrics_log *log, const struct line_kind *kind, size_t index, char key[80]) {
    const char *prefix = kind->event == TU_TRAIN_VALIDATED   ? "validation_"
                         : kind->event == TU_TRAIN_EVALUATED ? "test_"
                                                             : "";
    snprintf(key, 80, "%s%s", prefix, log->config->metrics[index].name);
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
            char key[80];
            metric_key(log, &kinds[i], 0, key);
            valid = add_point(series_of(log, &kinds[i]), number_in(line, "epoch"),
                              number_in(line, kinds[i].loss), number_in(line, key)) == TU_OK;
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

/* Reads step and time of the line that ends at `end`. */
static tu__log_summary summary_of(const char *text, size_t end) {
    tu__log_summary last = {0};
    tu__arena arena = {.purpose = "a line of metrics.jsonl"};
    const tu__json_value *line;
    size_t begin = end ? end - 1 : 0;
    while (begin > 0 && text[begin - 1] != '\n') begin--;
    if (end > begin &&
        tu__json_parse(&arena, "metrics.jsonl", text + begin, end - 1 - begin, &line) == TU_OK) {
        const tu__json_value *step = tu__json_member(line, "step");
        double seconds = number_in(line, "seconds");
        last = (tu__log_summary){step ? step->integer : 0, isfinite(seconds) ? seconds : 0};
    }
    tu__arena_free(&arena);
    return last;
}

tu_status tu__metrics_log_read(const char *folder, const tu__run_config *config, tu__metrics_log *log,
                               tu__log_summary *last) {
    tu__text text;
    size_t kept;
    *log = (tu__metrics_log){.config = config, .path = tu__path_in(folder, FILE_NAME), .fd = -1};
    *last = (tu__log_summary){0};
    tu_status status = tu__read_file(folder, FILE_NAME, MAX_BYTES, &text);
    if (status == TU_OK) {
        read_lines(log, tu__text_string(&text), text.length, INT64_MAX, &kept);
        *last = summary_of(tu__text_string(&text), kept);
    }
    tu__text_free(&text);
    return status == TU_NOT_FOUND ? TU_OK : status;
}

static tu_status drop_later_lines(tu__metrics_log *log, const char *folder, int64_t step) {
    tu__text text;
    size_t kept;
    tu_status status = tu__read_file(folder, FILE_NAME, MAX_BYTES, &text);
    bool exists = status != TU_NOT_FOUND;
    if (!exists) status = TU_OK;
    if (status == TU_OK) read_lines(log, tu__text_string(&text), text.length, step, &kept);
    /* A new file is saved as well: unlike opening it, this also flushes its directory entry to the disk. */
    if (status == TU_OK && (!exists || kept < text.length))
        status = tu__file_save_in(folder, FILE_NAME, tu__text_string(&text), kept);
    if (status == TU_OK) log->size = (off_t)kept;
    tu__text_free(&text);
    return status;
}

/* ---- Writing ---- */

tu_status tu__metrics_log_open(const char *folder, const tu__run_config *config, int64_t step,
                               tu__metrics_log *log) {
    *log = (tu__metrics_log){.config = config, .path = tu__path_in(folder, FILE_NAME), .fd = -1};
    TU_TRY(drop_later_lines(log, folder, step));
    log->fd = tu__open_to_write(folder, FILE_NAME, O_WRONLY | O_CREAT | O_APPEND);
    if (log->fd >= 0) return TU_OK;
    return tu_fail(TU_IO, "cannot write '%s': %s", log->path.text, tu__file_reason(errno));
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

/* Writes the metrics of an evaluation; of a training measurement only the accuracy, if the task has one. */
static void write_metrics(const tu__metrics_log *log, const struct line_kind *kind, const tu_train_report *r,
                          tu_json *json) {
    char key[80];
    if (kind->event == TU_TRAIN_MEASURED) {
        if (r->has_accuracy) tu_json_f64(json, kind->accuracy, r->accuracy);
        return;
    }
    for (size_t i = 0; i < r->metric_count; i++) {
        metric_key(log, kind, i, key);
        tu_json_f64(json, key, r->metrics[i].value);
    }
}

/* Returns the value of the second curve: the accuracy, or the first metric of the task. */
static double curve_value(const struct line_kind *kind, const tu_train_report *r) {
    if (kind->event == TU_TRAIN_MEASURED) return r->has_accuracy ? r->accuracy : NAN;
    return r->metric_count ? r->metrics[0].value : NAN;
}

static void write_line(const tu__metrics_log *log, tu__text *text, const tu_train_report *r) {
    tu_json json = tu__json_to_text(text);
    tu_json_begin_object(&json, NULL);
    tu_json_i64(&json, "step", r->step);
    tu_json_f64(&json, "epoch", round_to(r->epoch, 1e-6));
    tu_json_f64(&json, "seconds", round_to(r->seconds, 1e-3));
    const struct line_kind *kind = kind_of(r->event);
    const double *numbers = numbers_of(r, kind);
    tu_json_f64(&json, kind->loss, numbers[0]);
    write_metrics(log, kind, r, &json);
    if (kind->event == TU_TRAIN_MEASURED) {
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
            if (done) tu__disk_in_use()->truncate(log->fd, log->size);
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
    TU_TRY(add_point(series_of(log, kind), r->epoch, numbers[0], curve_value(kind, r)));
    tu__text text = {0};
    write_line(log, &text, r);
    tu_status status = text.failed ? TU_NO_MEMORY : append(log, text.data, text.length);
    tu__text_free(&text);
    return status;
}

tu_status tu__metrics_log_flush(tu__metrics_log *log) {
    if (log->fd < 0 || tu__disk_in_use()->fsync(log->fd) == 0) return TU_OK;
    return tu_fail(TU_IO, "cannot write '%s': %s", log->path.text, strerror(errno));
}
