/* config.json of a run folder: everything that reproduces the run, as text that a person can read.
 *
 *     {"version":1, "model":…, "data":…, "set":{…}, "settings":{…}, "steps":…, …}
 *
 * The version counts changes that older or newer programs would misread; a file of another version is refused by name
 * and never touched. A setting or a member added later does not change it: unknown settings are refused one by one
 * (settings.c), unknown members are left alone. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/json_read.h"
#include "base/save.h"
#include "train/run_folder.h"

enum { MAX_BYTES = 64 << 20, MAX_CLASSES = 1 << 20 };

/* ---- Counting ---- */

/* A set of one image has none to spare. */
int64_t tu__validation_images(const tu__run_config *config) {
    int64_t images = config->set.count[TU_TRAIN];
    double wanted = config->settings.validation;
    if (config->set.validation && wanted > 0) return config->set.validation;
    if (wanted <= 0 || images < 2) return 0;
    double count = wanted < 1 ? round(wanted * (double)images) : wanted;
    return count < 1 ? 1 : count >= (double)images ? images - 1 : (int64_t)count;
}

int64_t tu__training_images(const tu__run_config *config) {
    return config->set.count[TU_TRAIN] - tu__validation_images(config);
}

static tu_status check_validation(const tu__run_config *config) {
    double wanted = config->settings.validation;
    int64_t images = config->set.count[TU_TRAIN];
    if (wanted < 1 || wanted < (double)images) return TU_OK;
    return tu_fail(TU_INVALID, "--validation %.10g: expected fewer images than the %" PRId64 " of the set",
                   wanted, images);
}

tu_status tu__run_config_count(tu__run_config *config) {
    tu__settings *s = &config->settings;
    TU_TRY(check_validation(config));
    int64_t images = tu__training_images(config);
    if (s->batch > images) s->batch = images;
    if (s->accumulate > 1 && strcmp(s->precision, "f16") == 0)
        return tu_fail(TU_UNSUPPORTED,
                       "--precision f16 with --accumulate %" PRId64
                       ": expected bf16, or batches in one piece",
                       s->accumulate);
    if (s->batch % s->accumulate != 0)
        return tu_fail(TU_INVALID,
                       "--accumulate %" PRId64 ": expected a number that divides the batch of %" PRId64
                       " into equal pieces",
                       s->accumulate, s->batch);
    config->steps_per_epoch = (images - 1) / s->batch + 1;
    config->steps = s->steps;
    if (config->steps == 0 && __builtin_mul_overflow(s->epochs, config->steps_per_epoch, &config->steps))
        return tu_fail(TU_INVALID,
                       "--epochs %" PRId64 ": that many epochs of %" PRId64 " steps cannot be counted",
                       s->epochs, config->steps_per_epoch);
    return TU_OK;
}

/* What the file says of steps must be what its settings come to: the schedule and the order of samples hang on it. */
static tu_status check_counts(const char *name, const tu__run_config *config) {
    tu__run_config counted = *config;
    if (tu__run_config_count(&counted) != TU_OK) return tu_fail(TU_CORRUPT, "%s: %s", name, tu_message());
    if (counted.settings.batch == config->settings.batch && counted.steps == config->steps &&
        counted.steps_per_epoch == config->steps_per_epoch)
        return TU_OK;
    return tu_fail(TU_CORRUPT,
                   "%s: batch %" PRId64 ", steps_per_epoch %" PRId64 ", steps %" PRId64 ": expected %" PRId64
                   ", %" PRId64 " and %" PRId64 " by its settings and its set",
                   name, config->settings.batch, config->steps_per_epoch, config->steps,
                   counted.settings.batch, counted.steps_per_epoch, counted.steps);
}

/* ---- Writing ---- */

static void write_numbers(tu_json *json, const char *key, int64_t count, const double *numbers) {
    tu_json_begin_array(json, key);
    for (int64_t i = 0; i < count; i++) tu_json_f64(json, NULL, numbers[i]);
    tu_json_end_array(json);
}

static void write_set(tu_json *json, const tu_dataset_info *set) {
    tu_json_begin_object(json, "set");
    tu_json_string(json, "name", set->name);
    tu_json_string(json, "origin", set->origin);
    tu_json_string(json, "digest", set->digest);
    tu_json_i64(json, "train", set->count[TU_TRAIN]);
    tu_json_i64(json, "test", set->count[TU_TEST]);
    if (set->validation) tu_json_i64(json, "validation", set->validation);
    tu_json_i64(json, "height", set->height);
    tu_json_i64(json, "width", set->width);
    tu_json_i64(json, "channels", set->channels);
    tu_json_string(json, "dtype", tu_dtype_name(set->dtype));
    write_numbers(json, "mean", set->channels, set->mean);
    write_numbers(json, "deviation", set->channels, set->deviation);
    tu_json_begin_array(json, "classes");
    for (int64_t i = 0; i < set->classes; i++) tu_json_string(json, NULL, set->class_names[i]);
    tu_json_end_array(json);
    tu_json_end_object(json);
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
    if (config->members) tu_json_i64(&json, "members", config->members);
    tu_json_i64(&json, "steps", config->steps);
    tu_json_i64(&json, "steps_per_epoch", config->steps_per_epoch);
    tu_json_i64(&json, "parameters", config->parameters);
    tu_json_string(&json, "graph", config->graph_digest);
    if (config->looks_at_test) tu_json_bool(&json, "looks_at_test", true);
    tu_json_begin_object(&json, "settings");
    tu__settings_write(&config->settings, &json);
    tu_json_end_object(&json);
    write_set(&json, &config->set);
    tu_json_end_object(&json);
    tu__text_append(&text, "\n", 1);
    tu_status status =
        !tu_json_finish(&json) || text.failed
            ? TU_NO_MEMORY
            : tu_file_save(tu__path_in(folder->path, "config.json").text, text.data, text.length);
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

static void refuse(reader *r, const char *key, const char *expected) {
    if (r->status == TU_OK) r->status = tu_fail(TU_CORRUPT, "%s: '%s': expected %s", r->name, key, expected);
}

static const char *string_of(reader *r, const char *key) {
    const tu__json_value *value = tu__json_member(r->object, key);
    if (value && value->kind == TU__JSON_STRING) return value->string;
    refuse(r, key, "a string");
    return "";
}

static int64_t count_of(reader *r, const char *key, int64_t least, int64_t most) {
    const tu__json_value *value = tu__json_member(r->object, key);
    if (value && value->is_integer && value->integer >= least && value->integer <= most)
        return value->integer;
    char expected[80];
    snprintf(expected, sizeof expected, "a whole number from %" PRId64 " to %" PRId64, least, most);
    refuse(r, key, expected);
    return least;
}

static void read_numbers(reader *r, const char *key, int64_t count, double *numbers) {
    const tu__json_value *value = tu__json_member(r->object, key);
    bool good = value && value->kind == TU__JSON_ARRAY && value->count == (size_t)count;
    for (int64_t i = 0; good && i < count; i++) {
        good = value->values[i].kind == TU__JSON_NUMBER;
        numbers[i] = value->values[i].number;
    }
    if (!good) refuse(r, key, "a number for each channel");
}

static void read_classes(reader *r, tu_dataset_info *set) {
    const tu__json_value *value = tu__json_member(r->object, "classes");
    bool good = value && value->kind == TU__JSON_ARRAY && value->count >= 1 && value->count <= MAX_CLASSES;
    const char **names = good ? tu__arena_alloc(r->arena, value->count * sizeof *names) : NULL;
    if (good && !names) r->status = TU_NO_MEMORY;
    for (size_t i = 0; names && i < value->count; i++) {
        good = good && value->values[i].kind == TU__JSON_STRING;
        names[i] = good ? value->values[i].string : "";
    }
    if (!good) refuse(r, "classes", "the names of the classes");
    set->classes = names ? (int64_t)value->count : 0;
    set->class_names = names;
}

static void read_set(reader *r, tu_dataset_info *set) {
    reader inner = *r;
    inner.object = tu__json_member(r->object, "set");
    set->name = string_of(&inner, "name");
    set->origin = string_of(&inner, "origin");
    set->digest = string_of(&inner, "digest");
    set->count[TU_TRAIN] = count_of(&inner, "train", 1, INT64_MAX);
    set->count[TU_TEST] = count_of(&inner, "test", 0, INT64_MAX);
    if (inner.object && tu__json_member(inner.object, "validation"))
        set->validation = count_of(&inner, "validation", 1, set->count[TU_TRAIN] - 1);
    set->height = count_of(&inner, "height", 1, 1 << 20);
    set->width = count_of(&inner, "width", 1, 1 << 20);
    set->channels = count_of(&inner, "channels", 1, TU_MAX_CHANNELS);
    if (tu_dtype_parse(string_of(&inner, "dtype"), &set->dtype) != TU_OK ||
        (set->dtype != TU_U8 && set->dtype != TU_F32))
        refuse(&inner, "dtype", "u8 or f32");
    read_numbers(&inner, "mean", set->channels, set->mean);
    read_numbers(&inner, "deviation", set->channels, set->deviation);
    read_classes(&inner, set);
    r->status = inner.status;
}

static void read_version(reader *r) {
    int64_t version = count_of(r, "version", 1, INT64_MAX);
    if (r->status == TU_OK && version != TU__RUN_VERSION)
        r->status = tu_fail(TU_UNSUPPORTED,
                            "%s is of version %" PRId64
                            ", this program (tutti %s) reads version %d: use the program that made it",
                            r->name, version, tu_version(), TU__RUN_VERSION);
}

/* Runs of earlier versions had no setting for it; what a resume writes down of one says so. */
static bool looks_at_test(const tu__json_value *object) {
    const tu__json_value *settings = tu__json_member(object, "settings");
    const tu__json_value *said = tu__json_member(object, "looks_at_test");
    if (said) return said->kind == TU__JSON_BOOL && said->truth;
    return settings && settings->kind == TU__JSON_OBJECT && !tu__json_member(settings, "validation");
}

static tu_status read_config(reader *r, tu__run_config *config) {
    if (r->object->kind != TU__JSON_OBJECT) return tu_fail(TU_CORRUPT, "%s: expected an object", r->name);
    read_version(r);
    if (r->status != TU_OK) return r->status; /* of another version nothing else is known */
    config->model = string_of(r, "model");
    config->data = string_of(r, "data");
    config->init = string_of(r, "init");
    if (tu__json_member(r->object, "members")) config->members = count_of(r, "members", 1, TU_MAX_ENSEMBLE);
    config->steps = count_of(r, "steps", 1, INT64_MAX / 2);
    config->steps_per_epoch = count_of(r, "steps_per_epoch", 1, INT64_MAX / 2);
    config->parameters = count_of(r, "parameters", 0, INT64_MAX);
    config->graph_digest = string_of(r, "graph");
    config->looks_at_test = looks_at_test(r->object);
    read_set(r, &config->set);
    if (r->status != TU_OK) return r->status;
    TU_TRY(tu__settings_read(r->name, tu__json_member(r->object, "settings"), r->arena, &config->settings));
    return check_counts(r->name, config);
}

/* The whole file, in the arena. */
static tu_status read_file(const char *path, tu__arena *arena, char **text, size_t *length) {
    FILE *file = fopen(path, "rb");
    if (!file)
        return tu_fail(errno == ENOENT ? TU_NOT_FOUND : TU_IO, "cannot read '%s': %s", path, strerror(errno));
    tu_status status = TU_OK;
    long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (size < 0 || size > MAX_BYTES || fseek(file, 0, SEEK_SET) != 0)
        status = tu_fail(TU_CORRUPT, "'%s' is no configuration of a run: its size cannot be", path);
    *text = status == TU_OK ? tu__arena_alloc(arena, (size_t)size + 1) : NULL;
    if (status == TU_OK && !*text) status = TU_NO_MEMORY;
    *length = status == TU_OK ? (size_t)size : 0;
    if (status == TU_OK && fread(*text, 1, *length, file) != *length)
        status = tu_fail(TU_IO, "cannot read '%s': %s", path, ferror(file) ? strerror(errno) : "it shrank");
    fclose(file);
    return status;
}

tu_status tu__run_config_load(const char *folder, tu__arena *arena, tu__run_config *config) {
    *config = (tu__run_config){0};
    if (strlen(folder) > TU__LONGEST_FOLDER)
        return tu_fail(TU_INVALID, "run folder '%.60s…': its path is too long", folder);
    if (!tu__run_folder_holds_run(folder))
        return tu_fail(TU_NOT_FOUND,
                       "'%s' is no run folder: it has no config.json; expected one that 'tutti train' made",
                       folder);
    tu__path path = tu__path_in(folder, "config.json");
    char *text = NULL;
    size_t length = 0;
    const tu__json_value *object;
    TU_TRY(read_file(path.text, arena, &text, &length));
    TU_TRY(tu__json_parse(arena, path.text, text, length, &object));
    return read_config(&(reader){.name = path.text, .object = object, .arena = arena}, config);
}
