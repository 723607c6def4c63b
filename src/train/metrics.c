/* Metrics of a run. See metrics.h. */
#include "train/metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/save.h"
#include "data/dataset.h"
#include "io/chart.h"
#include "io/event_file.h"
#include "io/image.h"
#include "train/metrics_log.h"

enum { MAX_IMAGES = 10, MAX_IN_HISTOGRAM = 1 << 20 };

enum output { LOG, EVENTS, CURVES, OUTPUTS };

struct tu__metrics {
    const char *folder;
    tu__metrics_log log;
    tu__event_file *events; /* NULL: the file could not be written */
    tu__notice notice;
    void *context;
    bool reported[OUTPUTS]; /* a failure of this output was reported and it has not succeeded since */
};

/* Reports a failure once, until the output succeeds again. Returns true on success. */
static bool report_failure(tu__metrics *m, enum output output, tu_status status) {
    if (status != TU_OK && !m->reported[output]) {
        char message[1024];
        snprintf(message, sizeof message, "%s; the run continues without it", tu_message());
        m->notice(m->context, message);
    }
    m->reported[output] = status != TU_OK;
    return status == TU_OK;
}

/* ---- Opening and closing ---- */

tu_status tu__metrics_open(const char *folder, const tu__run_config *config, int64_t step, tu__notice notice,
                           void *context, tu__metrics **metrics) {
    tu__metrics *m = tu__alloc(sizeof *m, "the metrics of a run");
    *metrics = m;
    if (!m) return TU_NO_MEMORY;
    m->folder = folder;
    m->notice = notice;
    m->context = context;
    report_failure(m, LOG, tu__metrics_log_open(folder, config, step, &m->log));
    report_failure(m, EVENTS, tu__event_file_new(folder, step >= 0 ? step + 1 : -1, &m->events));
    return TU_OK;
}

/* Closes the event file after the first failure, because TensorBoard does not read beyond a damaged record. */
static void check_event(tu__metrics *m, tu_status status) {
    if (report_failure(m, EVENTS, status)) return;
    tu__event_file_close(m->events);
    m->events = NULL;
}

void tu__metrics_close(tu__metrics *metrics) {
    if (!metrics) return;
    if (metrics->events) report_failure(metrics, EVENTS, tu__event_file_close(metrics->events));
    tu__metrics_log_close(&metrics->log);
    tu__free(metrics);
}

void tu__metrics_flush(tu__metrics *m) {
    report_failure(m, LOG, tu__metrics_log_flush(&m->log));
    if (m->events) check_event(m, tu__event_file_flush(m->events));
}

/* ---- Numbers ---- */

static void add_scalar(tu__metrics *m, int64_t step, const char *tag, double value) {
    if (m->events) check_event(m, tu__event_scalar(m->events, step, tag, value));
}

void tu__metrics_training(tu__metrics *m, const tu_train_report *r) {
    report_failure(m, LOG, tu__metrics_log_add(&m->log, r));
    add_scalar(m, r->step, "train/loss", r->loss);
    if (r->has_accuracy) add_scalar(m, r->step, "train/accuracy", r->accuracy);
    add_scalar(m, r->step, "rate", r->rate);
    add_scalar(m, r->step, "gradient_norm", r->gradient_norm);
    add_scalar(m, r->step, "images_per_second", r->images_per_second);
}

/* Training measurements have no second value if the task counts no correct samples. */
static bool has_points(const tu__series *s) {
    for (size_t i = 0; i < s->count; i++)
        if (isfinite(s->accuracy[i])) return true;
    return s->count == 0;
}

static tu_status draw_curves(const tu__metrics *m) {
    const struct {
        const char *label;
        const tu__series *series;
    } sources[] = {{"training", &m->log.train}, {"validation", &m->log.validation}, {"test", &m->log.test}};
    tu__curve losses[3], accuracies[3];
    size_t count = 0, others = 0;
    for (size_t i = 0; i < 3; i++) {
        const tu__series *s = sources[i].series;
        if (i > 0 && s->count == 0) continue;
        losses[count] = (tu__curve){
            .label = sources[i].label, .count = s->count, .x = s->epoch, .y = s->loss, .dots = i > 0};
        if (has_points(s)) {
            accuracies[others] = losses[count];
            accuracies[others++].y = s->accuracy;
        }
        count++;
    }
    const char *name = m->log.config->metrics[0].name;
    const tu__panel panels[] = {
        {.title = "loss", .x_label = "epoch", .y_label = "loss", .curve_count = count, .curves = losses},
        {.title = name, .x_label = "epoch", .y_label = name, .curve_count = others, .curves = accuracies}};
    tu__text svg = {0};
    const char *slash = strrchr(m->folder, '/');
    tu_status status = tu__chart_svg(&svg, slash && slash[1] ? slash + 1 : m->folder, others ? 2 : 1, panels);
    if (status == TU_OK)
        status = tu__file_save_in(m->folder, "curves.svg", tu__text_string(&svg), svg.length);
    tu__text_free(&svg);
    return status;
}

void tu__metrics_evaluation(tu__metrics *m, const tu_train_report *r) {
    report_failure(m, LOG, tu__metrics_log_add(&m->log, r));
    bool validated = r->event == TU_TRAIN_VALIDATED;
    add_scalar(m, r->step, validated ? "validation/loss" : "test/loss",
               validated ? r->validation_loss : r->test_loss);
    for (size_t i = 0; i < r->metric_count; i++) {
        char tag[64];
        snprintf(tag, sizeof tag, "%s/%s", validated ? "validation" : "test", r->metrics[i].name);
        add_scalar(m, r->step, tag, r->metrics[i].value);
    }
    tu__metrics_draw(m);
}

void tu__metrics_draw(tu__metrics *m) {
    report_failure(m, CURVES, draw_curves(m));
}

/* ---- Variables, graph, images ---- */

/* Records a histogram of a variable. Samples large variables with a stride, so that at most MAX_IN_HISTOGRAM elements
 * are used. */
static tu_status add_histogram(tu__metrics *m, int64_t step, const tu__named_tensor *tensor) {
    int64_t count = tu_shape_elements(tensor->type.shape);
    int64_t stride = count / MAX_IN_HISTOGRAM + 1, kept = (count + stride - 1) / stride;
    float *numbers = tu__alloc_array((size_t)kept, sizeof *numbers, "a histogram");
    if (!numbers) return TU_NO_MEMORY;
    for (int64_t i = 0; i < kept; i++)
        numbers[i] = (float)tu__load(tensor->type.dtype, tensor->data, i * stride);
    tu_status status = tu__event_histogram(m->events, step, tensor->name, (size_t)kept, numbers);
    tu__free(numbers);
    return status;
}

void tu__metrics_histograms(tu__metrics *m, int64_t step, const tu_state *state, tu__snapshot *snapshot) {
    if (!m->events) return;
    tu_status status = tu__snapshot_take(state, snapshot);
    for (size_t i = 0; status == TU_OK && i < snapshot->count; i++) {
        const tu__named_tensor *tensor = &snapshot->tensors[i];
        if (tu_dtype_is_float(tensor->type.dtype) && tu__is_network_name(tensor->name))
            status = add_histogram(m, step, tensor);
    }
    check_event(m, status);
}

void tu__metrics_graph(tu__metrics *m, const tu_graph *graph) {
    if (m->events) check_event(m, tu__event_graph(m->events, graph));
}

/* Converts pixels to bytes. f32 pixels in [0, 1] map to [0, 255]; NaN becomes 0. */
static void to_bytes(tu_dtype dtype, const void *image, size_t count, uint8_t *bytes) {
    for (size_t i = 0; i < count; i++) {
        double pixel = tu__load(dtype, image, (int64_t)i) * (dtype == TU_U8 ? 1 : 255);
        bytes[i] = (uint8_t)(pixel > 0 ? (pixel < 255 ? pixel : 255) : 0);
    }
}

static tu_status add_image(tu__metrics *m, const tu_dataset *dataset, const tu_dataset_info *info,
                           int64_t index, void *image, uint8_t *bytes) {
    int32_t label;
    void *png;
    size_t size;
    char tag[128];
    TU_TRY(tu_dataset_read(dataset, TU_TRAIN, index, image, &label));
    to_bytes(info->dtype, image, (size_t)(info->height * info->width * info->channels), bytes);
    tu__image encoded = {info->height, info->width, info->channels, bytes};
    TU_TRY(tu__image_encode_png(&encoded, &png, &size));
    snprintf(tag, sizeof tag, "sample/%d: %.80s", (int)index, info->class_names[label]);
    tu_status status =
        tu__event_image(m->events, 0, tag, info->height, info->width, info->channels, png, size);
    tu__free(png);
    return status;
}

void tu__metrics_images(tu__metrics *m, const tu_dataset *dataset) {
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    if (tu_dataset_describe(dataset, &info) != TU_OK) return;
    if (!m->events || !tu__has_pictures(&info) || (info.channels != 1 && info.channels != 3)) return;
    size_t pixels = (size_t)(info.height * info.width * info.channels);
    void *image = tu__alloc_aligned(pixels * tu_dtype_size(info.dtype), "an image");
    uint8_t *bytes = tu__alloc(pixels, "an image");
    tu_status status = image && bytes ? TU_OK : TU_NO_MEMORY;
    for (int64_t i = 0; status == TU_OK && i < MAX_IMAGES && i < info.count[TU_TRAIN]; i++)
        status = add_image(m, dataset, &info, i, image, bytes);
    tu__free_aligned(image);
    tu__free(bytes);
    if (status != TU_UNSUPPORTED) check_event(m, status); /* builds without libpng record no images */
}
