/* config.json of a run folder: everything that reproduces the run, as readable text.
 *
 *     {"version":1, "model":…, "data":…, "set":{…}, "settings":{…}, "steps":…, …}
 *
 * The version changes only if older or newer programs would misread the file. A file of another version fails to load
 * with a message that names it, and is never modified. Adding a setting or a key does not change the version:
 * unknown settings are rejected one by one (settings.c), unknown keys are ignored. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/json_read.h"
#include "base/open_file.h"
#include "base/save.h"
#include "data/dataset.h"
#include "train/run_folder.h"

enum { MAX_BYTES = 64 << 20, MAX_CLASSES = 1 << 20 };

/* ---- Counting ---- */

/* A data set of one image has no validation split. */
int64_t tu__validation_images(const tu__run_config *config) {
    int64_t images = config->dataset.count[TU_TRAIN];
    double requested = config->settings.validation;
    if (config->dataset.validation && requested > 0) return config->dataset.validation;
    if (requested <= 0 || images < 2) return 0;
    double count = requested < 1 ? round(requested * (double)images) : requested;
    return count < 1 ? 1 : count >= (double)images ? images - 1 : (int64_t)count;
}

int64_t tu__training_images(const tu__run_config *config) {
    return config->dataset.count[TU_TRAIN] - tu__validation_images(config);
}

static tu_status check_validation(const tu__run_config *config) {
    double requested = config->settings.validation;
    int64_t images = config->dataset.count[TU_TRAIN];
    if (requested < 1 || requested < (double)images) return TU_OK;
    return tu_fail(TU_INVALID,
                   "--validation %.10g: expected fewer than the %" PRId64 " training images of the data set",
                   requested, images);
}

tu_status tu__run_config_compute_steps(tu__run_config *config) {
    tu__settings *s = &config->settings;
    TU_TRY(check_validation(config));
    int64_t images = tu__training_images(config);
    if (s->batch > images) s->batch = images;
    if (s->accumulate > 1 && strcmp(s->precision, "f16") == 0)
        return tu_fail(TU_UNSUPPORTED,
                       "--precision f16 cannot be combined with --accumulate %" PRId64
                       ": use bf16, or remove --accumulate",
                       s->accumulate);
    if (s->batch % s->accumulate != 0)
        return tu_fail(TU_INVALID,
                       "--accumulate %" PRId64 ": expected a number that divides the batch of %" PRId64
                       " into equal micro-batches",
                       s->accumulate, s->batch);
    config->steps_per_epoch = (images - 1) / s->batch + 1;
    config->steps = s->steps;
    if (config->steps == 0 && __builtin_mul_overflow(s->epochs, config->steps_per_epoch, &config->steps))
        return tu_fail(TU_INVALID,
                       "--epochs %" PRId64 " is too large: the number of steps, with %" PRId64
                       " per epoch, overflows",
                       s->epochs, config->steps_per_epoch);
    return TU_OK;
}

/* Fails if the stored step counts differ from those computed from the settings: the learning-rate schedule and the
 * order of samples depend on them. */
static tu_status check_counts(const char *name, const tu__run_config *config) {
    tu__run_config counted = *config;
    if (tu__run_config_compute_steps(&counted) != TU_OK)
        return tu_fail(TU_CORRUPT, "%s: %s", name, tu_message());
    const struct {
        const char *key;
        int64_t stored, expected;
    } values[] = {{"batch", config->settings.batch, counted.settings.batch},
                  {"steps_per_epoch", config->steps_per_epoch, counted.steps_per_epoch},
                  {"steps", config->steps, counted.steps}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i].stored != values[i].expected)
            return tu_fail(TU_CORRUPT,
                           "%s: %s is %" PRId64 ", expected %" PRId64
                           " from the other settings and the data set",
                           name, values[i].key, values[i].stored, values[i].expected);
    return TU_OK;
}

/* ---- Writing ---- */

static void write_numbers(tu_json *json, const char *key, int64_t count, const double *numbers) {
    tu_json_begin_array(json, key);
    for (int64_t i = 0; i < count; i++) tu_json_f64(json, NULL, numbers[i]);
    tu_json_end_array(json);
}

static void write_pictures(tu_json *json, const tu_dataset_info *dataset) {
    tu_json_i64(json, "height", dataset->height);
    tu_json_i64(json, "width", dataset->width);
    tu_json_i64(json, "channels", dataset->channels);
    tu_json_string(json, "dtype", tu_dtype_name(dataset->dtype));
    write_numbers(json, "mean", dataset->channels, dataset->mean);
    write_numbers(json, "deviation", dataset->channels, dataset->deviation);
}

static void write_dataset(tu_json *json, const tu__run_config *config) {
    const tu_dataset_info *dataset = &config->dataset;
    tu_json_begin_object(json, "set");
    tu_json_string(json, "name", dataset->name);
    tu_json_string(json, "origin", dataset->origin);
    tu_json_string(json, "digest", dataset->digest);
    tu_json_i64(json, "train", dataset->count[TU_TRAIN]);
    tu_json_i64(json, "test", dataset->count[TU_TEST]);
    if (dataset->validation) tu_json_i64(json, "validation", dataset->validation);
    if (tu__has_pictures(dataset)) {
        write_pictures(json, dataset);
    } else {
        tu__columns_write(json, "columns", &config->columns);
        if (config->columns.tokenizer) tu_json_string(json, "tokenizer", config->columns.tokenizer);
    }
    tu_json_begin_array(json, "classes");
    for (int64_t i = 0; i < dataset->classes; i++) tu_json_string(json, NULL, dataset->class_names[i]);
    tu_json_end_array(json);
    tu_json_end_object(json);
}

static void write_task(tu_json *json, const tu__run_config *config) {
    tu_json_string(json, "task", config->task);
    tu_json_begin_array(json, "metrics");
    for (size_t i = 0; i < config->metric_count; i++) {
        tu_json_begin_object(json, NULL);
        tu_json_string(json, "name", config->metrics[i].name);
        tu_json_bool(json, "lower_is_better", config->metrics[i].lower_is_better);
        tu_json_end_object(json);
    }
    tu_json_end_array(json);
}

const char *tu__samples_name(const tu__run_config *config) {
    const tu__columns *c = &config->columns;
    if (tu__has_pictures(&config->dataset)) return "images";
    if (tu__columns_of_kind(c, TU_COLUMN_TOKENS)) return "windows";
    bool table = tu__columns_of_kind(c, TU_COLUMN_NUMBERS) || tu__columns_of_kind(c, TU_COLUMN_CATEGORIES);
    return table ? "rows" : "samples";
}

size_t tu__find_metric(const tu__run_config *config, const char *name) {
    size_t i = 0;
    while (i < config->metric_count && strcmp(config->metrics[i].name, name) != 0) i++;
    return i;
}

tu_status tu__run_config_save(const tu__run_folder *folder, const tu__run_config *config) {
    tu__text text = {0};
    tu_json json = tu__json_to_text(&text);
    tu_json_begin_object(&json, NULL);
    tu_json_i64(&json, "version", TU__RUN_VERSION);
    tu_json_string(&json, "tutti", tu_version());
    tu_json_string(&json, "model", config->model);
    tu_json_string(&json, "data", config->data);
    tu_json_string(&json, "init", config->init);
    if (config->members) {
        tu_json_i64(&json, "members", config->members);
    } else {
        tu_json_i64(&json, "processes", config->processes);
        tu_json_bool(&json, "automatic_threads", config->automatic_threads);
    }
    tu_json_i64(&json, "steps", config->steps);
    tu_json_i64(&json, "steps_per_epoch", config->steps_per_epoch);
    tu_json_i64(&json, "parameters", config->parameters);
    tu_json_string(&json, "graph", config->graph_digest);
    if (config->selects_on_test)
        tu_json_bool(&json, "looks_at_test", true); /* name of the key in existing folders */
    tu_json_begin_object(&json, "settings");
    tu__settings_write(&config->settings, &json);
    tu_json_end_object(&json);
    write_task(&json, config);
    write_dataset(&json, config);
    tu_json_end_object(&json);
    tu__text_append(&text, "\n", 1);
    tu_status status = !tu_json_finish(&json) || text.failed
                           ? TU_NO_MEMORY
                           : tu__file_save_in(folder->path, "config.json", text.data, text.length);
    tu__text_free(&text);
    return status;
}

/* ---- Reading ---- */

typedef struct reader {
    const char *name; /* of the file */
    const tu__json_value *object;
    tu__arena *arena;
    tu_status status; /* the first failure */
} reader;

static void fail_key(reader *r, const char *key, const char *expected) {
    if (r->status == TU_OK) r->status = tu_fail(TU_CORRUPT, "%s: '%s': expected %s", r->name, key, expected);
}

static const char *read_string(reader *r, const char *key) {
    const tu__json_value *value = tu__json_member(r->object, key);
    if (value && value->kind == TU__JSON_STRING) return value->string;
    fail_key(r, key, "a string");
    return "";
}

static int64_t read_count(reader *r, const char *key, int64_t min, int64_t max) {
    const tu__json_value *value = tu__json_member(r->object, key);
    if (value && value->is_integer && value->integer >= min && value->integer <= max) return value->integer;
    char expected[80];
    snprintf(expected, sizeof expected, "an integer from %" PRId64 " to %" PRId64, min, max);
    fail_key(r, key, expected);
    return min;
}

static void read_numbers(reader *r, const char *key, int64_t count, double *numbers) {
    const tu__json_value *value = tu__json_member(r->object, key);
    bool valid = value && value->kind == TU__JSON_ARRAY && value->count == (size_t)count;
    for (int64_t i = 0; valid && i < count; i++) {
        valid = value->values[i].kind == TU__JSON_NUMBER;
        numbers[i] = value->values[i].number;
    }
    if (!valid) fail_key(r, key, "a number for each channel");
}

static void read_classes(reader *r, size_t least, tu_dataset_info *dataset) {
    const tu__json_value *value = tu__json_member(r->object, "classes");
    bool valid =
        value && value->kind == TU__JSON_ARRAY && value->count >= least && value->count <= MAX_CLASSES;
    const char **names = valid ? tu__arena_alloc(r->arena, (value->count + 1) * sizeof *names) : NULL;
    if (valid && !names) r->status = TU_NO_MEMORY;
    for (size_t i = 0; names && i < value->count; i++) {
        valid = valid && value->values[i].kind == TU__JSON_STRING;
        names[i] = valid ? value->values[i].string : "";
    }
    if (!valid) fail_key(r, "classes", "the names of the classes");
    dataset->classes = names ? (int64_t)value->count : 0;
    dataset->class_names = names;
}

static void read_pictures(reader *inner, tu_dataset_info *dataset, tu__columns *columns) {
    dataset->height = read_count(inner, "height", 1, 1 << 20);
    dataset->width = read_count(inner, "width", 1, 1 << 20);
    dataset->channels = read_count(inner, "channels", 1, TU_MAX_CHANNELS);
    if (tu_dtype_parse(read_string(inner, "dtype"), &dataset->dtype) != TU_OK ||
        (dataset->dtype != TU_U8 && dataset->dtype != TU_F32))
        fail_key(inner, "dtype", "u8 or f32");
    read_numbers(inner, "mean", dataset->channels, dataset->mean);
    read_numbers(inner, "deviation", dataset->channels, dataset->deviation);
    read_classes(inner, 1, dataset);
    tu__columns_of_pictures(dataset, columns);
}

static void read_columns(reader *inner, tu_dataset_info *dataset, tu__columns *columns) {
    const tu__json_value *tokenizer = tu__json_member(inner->object, "tokenizer");
    tu_status status =
        tu__columns_read(inner->name, tu__json_member(inner->object, "columns"), inner->arena, columns);
    if (inner->status == TU_OK) inner->status = status;
    if (status != TU_OK) return;
    if (tokenizer && tokenizer->kind == TU__JSON_STRING) columns->tokenizer = tokenizer->string;
    dataset->dtype = columns->column[0].type.dtype;
    read_classes(inner, 0, dataset);
    const tu__column *target = tu__columns_target(columns);
    bool has_classes = target && target->kind == TU_COLUMN_CLASS;
    if (dataset->classes != (has_classes ? target->classes : 0))
        fail_key(inner, "classes", "those of the target");
}

static void read_dataset(reader *r, tu_dataset_info *dataset, tu__columns *columns) {
    reader inner = *r;
    inner.object = tu__json_member(r->object, "set");
    dataset->name = read_string(&inner, "name");
    dataset->origin = read_string(&inner, "origin");
    dataset->digest = read_string(&inner, "digest");
    dataset->count[TU_TRAIN] = read_count(&inner, "train", 1, INT64_MAX);
    dataset->count[TU_TEST] = read_count(&inner, "test", 0, INT64_MAX);
    if (inner.object && tu__json_member(inner.object, "validation"))
        dataset->validation = read_count(&inner, "validation", 1, dataset->count[TU_TRAIN] - 1);
    if (inner.object && tu__json_member(inner.object, "columns"))
        read_columns(&inner, dataset, columns);
    else
        read_pictures(&inner, dataset, columns);
    r->status = inner.status;
}

static void read_version(reader *r) {
    int64_t version = read_count(r, "version", 1, INT64_MAX);
    if (r->status == TU_OK && version != TU__RUN_VERSION)
        r->status = tu_fail(TU_UNSUPPORTED,
                            "%s has version %" PRId64
                            ", but Tutti %s reads version %d: use the version of Tutti that created it",
                            r->name, version, tu_version(), TU__RUN_VERSION);
}

/* True if the run selects its best state on the test split. Runs of earlier versions, which had no validation
 * setting, do; when such a run is resumed and saved, the file says so explicitly. */
static bool selects_on_test(const tu__json_value *object) {
    const tu__json_value *settings = tu__json_member(object, "settings");
    const tu__json_value *stored = tu__json_member(object, "looks_at_test");
    if (stored) return stored->kind == TU__JSON_BOOL && stored->truth;
    return settings && settings->kind == TU__JSON_OBJECT && !tu__json_member(settings, "validation");
}

/* Runs of earlier versions were trained by one process, and did not say who chose the number of threads. */
static void read_processes(reader *r, tu__run_config *config) {
    const tu__json_value *automatic = tu__json_member(r->object, "automatic_threads");
    config->processes =
        tu__json_member(r->object, "processes") ? read_count(r, "processes", 1, INT64_MAX) : 1;
    config->automatic_threads = !automatic || (automatic->kind == TU__JSON_BOOL && automatic->truth);
}

static void set_metric(tu__run_config *config, const char *name, bool lower_is_better) {
    tu__run_metric *m = &config->metrics[config->metric_count++];
    snprintf(m->name, sizeof m->name, "%s", name);
    m->lower_is_better = lower_is_better;
}

/* Runs of earlier versions were classification. */
static void read_task(reader *r, tu__run_config *config) {
    const tu__json_value *task = tu__json_member(r->object, "task"),
                         *list = tu__json_member(r->object, "metrics");
    config->task = "classification";
    if (!task) {
        set_metric(config, "accuracy", false);
        set_metric(config, "top5", false);
        return;
    }
    config->task = read_string(r, "task");
    bool valid = list && list->kind == TU__JSON_ARRAY && list->count >= 1 && list->count <= TU_MAX_METRICS;
    for (size_t i = 0; valid && i < list->count; i++) {
        const tu__json_value *name = tu__json_member(&list->values[i], "name"),
                             *lower = tu__json_member(&list->values[i], "lower_is_better");
        valid = name && name->kind == TU__JSON_STRING && *name->string && strlen(name->string) < 32 &&
                lower && lower->kind == TU__JSON_BOOL;
        if (valid) set_metric(config, name->string, lower->truth);
    }
    if (!valid) fail_key(r, "metrics", "a list of at most 16 metrics");
}

static tu_status read_config(reader *r, tu__run_config *config) {
    if (r->object->kind != TU__JSON_OBJECT) return tu_fail(TU_CORRUPT, "%s: expected an object", r->name);
    read_version(r);
    if (r->status != TU_OK) return r->status; /* the contents of other versions are unknown */
    config->model = read_string(r, "model");
    config->data = read_string(r, "data");
    config->init = read_string(r, "init");
    if (tu__json_member(r->object, "members")) config->members = read_count(r, "members", 1, TU_MAX_ENSEMBLE);
    read_processes(r, config);
    config->steps = read_count(r, "steps", 1, INT64_MAX / 2);
    config->steps_per_epoch = read_count(r, "steps_per_epoch", 1, INT64_MAX / 2);
    config->parameters = read_count(r, "parameters", 0, INT64_MAX);
    config->graph_digest = read_string(r, "graph");
    config->selects_on_test = selects_on_test(r->object);
    read_task(r, config);
    read_dataset(r, &config->dataset, &config->columns);
    if (r->status != TU_OK) return r->status;
    TU_TRY(tu__settings_read(r->name, tu__json_member(r->object, "settings"), r->arena, &config->settings));
    return check_counts(r->name, config);
}

tu_status tu__run_config_load(const char *folder, tu__arena *arena, tu__run_config *config) {
    *config = (tu__run_config){0};
    if (strlen(folder) > TU__MAX_FOLDER_LENGTH)
        return tu_fail(TU_INVALID, "run folder '%.60s…': the path is too long", folder);
    if (!tu__run_folder_has_run(folder))
        return tu_fail(
            TU_NOT_FOUND,
            "'%s' is not a run folder (it has no config.json): expected a folder created by 'tutti train'",
            folder);
    tu__path path = tu__path_in(folder, "config.json");
    tu__text text;
    const tu__json_value *object = NULL;
    tu_status status = tu__read_file(folder, "config.json", MAX_BYTES, &text);
    if (status == TU_OK)
        status = tu__json_parse(arena, path.text, tu__text_string(&text), text.length, &object);
    tu__text_free(&text);
    TU_TRY(status);
    return read_config(&(reader){.name = path.text, .object = object, .arena = arena}, config);
}
