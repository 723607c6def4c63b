/* Writing, checking and reading the metadata of checkpoints. See checkpoint_metadata.h. */
#include "train/checkpoint_metadata.h"

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse_integer.h"
#include "base/status.h"
#include "io/safetensors_digest.h"
#include "train/task.h"

#define FORMAT_PREFIX "tutti checkpoint "
#define FORMAT FORMAT_PREFIX "2"

/* ---- The C locale for numbers ---- */

typedef struct c_locale {
    locale_t c, previous;
} c_locale;

static tu_status switch_to_c_locale(c_locale *p) {
    p->c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (!p->c) return tu__fail_memory("the locale that checkpoints are written in", 0);
    p->previous = uselocale(p->c); /* affects only this thread */
    return TU_OK;
}

static void restore_locale(c_locale *p) {
    uselocale(p->previous);
    freelocale(p->c);
}

/* ---- Writing ---- */

#define ONE_MORE(name) +1
enum { PROGRESS_ENTRIES = 0 TU__PROGRESS_LIST(ONE_MORE, ONE_MORE) TU__PROGRESS_ADDED(ONE_MORE, ONE_MORE) };
#undef ONE_MORE

static void add_entry(tu__checkpoint_metadata *m, const char *key, const char *value) {
    m->entries[m->count++] = (tu__metadata){key, value};
}

static void add_count(tu__checkpoint_metadata *m, const char *key, int64_t value) {
    snprintf(m->texts[m->count], TU__ENTRY_TEXT, "%" PRId64, value);
    add_entry(m, key, m->texts[m->count]);
}

static void add_number(tu__checkpoint_metadata *m, const char *key, double value) {
    snprintf(m->texts[m->count], TU__ENTRY_TEXT, "%.17g", value); /* 17 digits round-trip a double */
    add_entry(m, key, m->texts[m->count]);
}

static void add_progress(tu__checkpoint_metadata *m, const tu__progress *progress) {
#define PUT_COUNT(name) add_count(m, #name, progress->name);
#define PUT_NUMBER(name) add_number(m, #name, progress->name);
    TU__PROGRESS_LIST(PUT_COUNT, PUT_NUMBER)
    TU__PROGRESS_ADDED(PUT_COUNT, PUT_NUMBER)
#undef PUT_COUNT
#undef PUT_NUMBER
}

/* Metrics of other tasks than classification, whose are in the progress. Those of no evaluation are not stored. */
static void add_metrics(tu__checkpoint_metadata *m, const tu__run_config *config, const tu__progress *p) {
    const struct {
        const char *split;
        int64_t step;
        const double *values;
    } sets[] = {{"validation", p->validation_step, p->validation_metrics},
                {"test", p->test_step, p->test_metrics}};
    for (size_t s = 0; s < 2 && !tu__is_classification(config); s++)
        for (size_t i = 0; sets[s].step >= 0 && i < config->metric_count; i++) {
            char *key = m->keys[s * TU_MAX_METRICS + i];
            snprintf(key, TU__ENTRY_TEXT, "%s/%s", sets[s].split, config->metrics[i].name);
            add_number(m, key, sets[s].values[i]);
        }
}

tu_status tu__metadata_build(const tu__run_config *config, const tu__progress *progress, const char *tensors,
                             tu__checkpoint_metadata *m) {
    c_locale locale = {0};
    TU_TRY(switch_to_c_locale(&locale));
    m->count = 0;
    const tu__metadata texts[] = {
        {"format", FORMAT},
        {"tutti", tu_version()},
        {"model", config->model},
        {"graph", config->graph_digest},
        {"set", config->dataset.digest},
        {TU__TENSORS_DIGEST, tensors},
    };
    _Static_assert(sizeof texts / sizeof *texts + PROGRESS_ENTRIES + 2 * TU_MAX_METRICS + 2 <=
                       TU__MAX_ENTRIES,
                   "TU__MAX_ENTRIES must hold all of these, the seed and the metadata digest");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) add_entry(m, texts[i].key, texts[i].value);
    add_count(m, "seed", config->settings.seed);
    add_progress(m, progress);
    add_metrics(m, config, progress);
    restore_locale(&locale);
    TU_TRY(tu__metadata_digest(m->count, m->entries, m->digest));
    add_entry(m, TU__METADATA_DIGEST, m->digest);
    return TU_OK;
}

/* ---- Checking ---- */

bool tu__metadata_is_checkpoint(const tu__safetensors *file) {
    const char *format = tu__safetensors_metadata(file, "format");
    return format && strncmp(format, FORMAT_PREFIX, strlen(FORMAT_PREFIX)) == 0;
}

static tu_status check_format(const tu__safetensors *file, const char *path) {
    const char *format = tu__safetensors_metadata(file, "format");
    if (format && strcmp(format, FORMAT) == 0) return TU_OK;
    return tu_fail(TU_CORRUPT,
                   "'%s' is not a checkpoint of this version: its format is '%.40s', expected '%s'", path,
                   format ? format : "", FORMAT);
}

tu_status tu__metadata_check(const tu__safetensors *file, const char *path) {
    TU_TRY(check_format(file, path));
    return tu__safetensors_check(file, "checkpoint", path);
}

/* ---- Reading ---- */

static tu_status read_count(const tu__safetensors *file, const char *path, const char *key, int64_t *value) {
    const char *text = tu__safetensors_metadata(file, key);
    if (text && tu__parse_integer(text, value)) return TU_OK;
    return tu_fail(TU_CORRUPT, "checkpoint '%s': metadata entry '%s': expected an integer", path, key);
}

static tu_status read_number(const tu__safetensors *file, const char *path, const char *key, double *value) {
    const char *text = tu__safetensors_metadata(file, key);
    char *end = NULL;
    if (text) *value = strtod(text, &end);
    if (text && end != text && *end == '\0') return TU_OK;
    return tu_fail(TU_CORRUPT, "checkpoint '%s': metadata entry '%s': expected a number", path, key);
}

static tu_status read_progress(const tu__safetensors *file, const char *path, tu__progress *progress) {
#define READ_COUNT(name) TU_TRY(read_count(file, path, #name, &progress->name));
#define READ_NUMBER(name) TU_TRY(read_number(file, path, #name, &progress->name));
    TU__PROGRESS_LIST(READ_COUNT, READ_NUMBER)
#undef READ_COUNT
#undef READ_NUMBER
#define READ_COUNT(name)                                                                                     \
    if (tu__safetensors_metadata(file, #name)) TU_TRY(read_count(file, path, #name, &progress->name));
#define READ_NUMBER(name)                                                                                    \
    if (tu__safetensors_metadata(file, #name)) TU_TRY(read_number(file, path, #name, &progress->name));
    TU__PROGRESS_ADDED(READ_COUNT, READ_NUMBER)
#undef READ_COUNT
#undef READ_NUMBER
    const int64_t counts[] = {progress->step, progress->sample, progress->samples};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i] < 0 || counts[i] > INT64_MAX / 2)
            return tu_fail(TU_CORRUPT,
                           "checkpoint '%s': its step or sample counts are out of range: one is %lld", path,
                           (long long)counts[i]);
    return TU_OK;
}

static tu_status read_metrics(const tu__safetensors *file, const char *path, const tu__run_config *config,
                              tu__progress *p) {
    const struct {
        const char *split;
        double *values;
    } sets[] = {{"validation", p->validation_metrics}, {"test", p->test_metrics}};
    for (size_t s = 0; s < 2; s++)
        for (size_t i = 0; i < config->metric_count; i++) {
            char key[TU__ENTRY_TEXT];
            snprintf(key, sizeof key, "%s/%s", sets[s].split, config->metrics[i].name);
            if (tu__safetensors_metadata(file, key)) TU_TRY(read_number(file, path, key, &sets[s].values[i]));
        }
    return TU_OK;
}

tu_status tu__metadata_progress(const tu__safetensors *file, const char *path, const tu__run_config *config,
                                tu__progress *progress) {
    c_locale locale = {0};
    TU_TRY(switch_to_c_locale(&locale));
    tu_status status = read_progress(file, path, progress);
    if (status == TU_OK) status = read_metrics(file, path, config, progress);
    restore_locale(&locale);
    return status;
}
