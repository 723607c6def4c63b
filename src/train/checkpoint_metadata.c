/* Writing, checking and reading the metadata of checkpoints. See checkpoint_metadata.h. */
#include "train/checkpoint_metadata.h"

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/whole_number.h"
#include "io/safetensors_digest.h"

#define FAMILY "tutti checkpoint "
#define FORMAT FAMILY "2"

/* ---- Numbers with a decimal point ---- */

typedef struct decimal_point {
    locale_t plain, before;
} decimal_point;

static tu_status use_point(decimal_point *p) {
    p->plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (!p->plain) return tu__fail_memory("the locale that checkpoints are written in", 0);
    p->before = uselocale(p->plain); /* of this thread alone */
    return TU_OK;
}

static void leave_point(decimal_point *p) {
    uselocale(p->before);
    freelocale(p->plain);
}

/* ---- Writing ---- */

#define ONE_MORE(name) +1
enum { PROGRESS_ENTRIES = 0 TU__PROGRESS_LIST(ONE_MORE, ONE_MORE) TU__PROGRESS_ADDED(ONE_MORE, ONE_MORE) };
#undef ONE_MORE

static void put(tu__checkpoint_metadata *m, const char *key, const char *value) {
    m->entries[m->count++] = (tu__metadata){key, value};
}

static void put_count(tu__checkpoint_metadata *m, const char *key, int64_t value) {
    snprintf(m->texts[m->count], TU__ENTRY_TEXT, "%" PRId64, value);
    put(m, key, m->texts[m->count]);
}

static void put_number(tu__checkpoint_metadata *m, const char *key, double value) {
    snprintf(m->texts[m->count], TU__ENTRY_TEXT, "%.17g", value); /* enough digits to come back the same */
    put(m, key, m->texts[m->count]);
}

static void put_progress(tu__checkpoint_metadata *m, const tu__progress *progress) {
#define PUT_COUNT(name) put_count(m, #name, progress->name);
#define PUT_NUMBER(name) put_number(m, #name, progress->name);
    TU__PROGRESS_LIST(PUT_COUNT, PUT_NUMBER)
    TU__PROGRESS_ADDED(PUT_COUNT, PUT_NUMBER)
#undef PUT_COUNT
#undef PUT_NUMBER
}

tu_status tu__metadata_make(const tu__run_config *config, const tu__progress *progress, const char *tensors,
                            tu__checkpoint_metadata *m) {
    decimal_point point = {0};
    TU_TRY(use_point(&point));
    m->count = 0;
    const tu__metadata texts[] = {
        {"format", FORMAT},          {"tutti", tu_version()},
        {"model", config->model},    {"graph", config->graph_digest},
        {"set", config->set.digest}, {TU__TENSORS_DIGEST, tensors},
    };
    _Static_assert(sizeof texts / sizeof *texts + PROGRESS_ENTRIES + 2 <= TU__MAX_ENTRIES,
                   "TU__MAX_ENTRIES: room for all of these, the seed and the metadata's own digest");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) put(m, texts[i].key, texts[i].value);
    put_count(m, "seed", config->settings.seed);
    put_progress(m, progress);
    leave_point(&point);
    TU_TRY(tu__metadata_digest(m->count, m->entries, m->digest));
    put(m, TU__METADATA_DIGEST, m->digest);
    return TU_OK;
}

/* ---- Checking ---- */

bool tu__metadata_is_checkpoint(const tu__safetensors *file) {
    const char *format = tu__safetensors_metadata(file, "format");
    return format && strncmp(format, FAMILY, strlen(FAMILY)) == 0;
}

static tu_status check_format(const tu__safetensors *file, const char *path) {
    const char *format = tu__safetensors_metadata(file, "format");
    if (format && strcmp(format, FORMAT) == 0) return TU_OK;
    return tu_fail(TU_CORRUPT, "'%s' is no checkpoint of this version: its format is '%.40s', expected '%s'",
                   path, format ? format : "", FORMAT);
}

tu_status tu__metadata_check(const tu__safetensors *file, const char *path) {
    TU_TRY(check_format(file, path));
    return tu__safetensors_check(file, "checkpoint", path);
}

/* ---- Reading ---- */

static tu_status take_count(const tu__safetensors *file, const char *path, const char *key, int64_t *value) {
    const char *text = tu__safetensors_metadata(file, key);
    if (text && tu__read_whole_number(text, value)) return TU_OK;
    return tu_fail(TU_CORRUPT, "checkpoint '%s': '%s' in its metadata: expected a whole number", path, key);
}

static tu_status take_number(const tu__safetensors *file, const char *path, const char *key, double *value) {
    const char *text = tu__safetensors_metadata(file, key);
    char *end = NULL;
    if (text) *value = strtod(text, &end);
    if (text && end != text && *end == '\0') return TU_OK;
    return tu_fail(TU_CORRUPT, "checkpoint '%s': '%s' in its metadata: expected a number", path, key);
}

static tu_status take_progress(const tu__safetensors *file, const char *path, tu__progress *progress) {
#define TAKE_COUNT(name) TU_TRY(take_count(file, path, #name, &progress->name));
#define TAKE_NUMBER(name) TU_TRY(take_number(file, path, #name, &progress->name));
    TU__PROGRESS_LIST(TAKE_COUNT, TAKE_NUMBER)
#undef TAKE_COUNT
#undef TAKE_NUMBER
#define TAKE_COUNT(name)                                                                                     \
    if (tu__safetensors_metadata(file, #name)) TU_TRY(take_count(file, path, #name, &progress->name));
#define TAKE_NUMBER(name)                                                                                    \
    if (tu__safetensors_metadata(file, #name)) TU_TRY(take_number(file, path, #name, &progress->name));
    TU__PROGRESS_ADDED(TAKE_COUNT, TAKE_NUMBER)
#undef TAKE_COUNT
#undef TAKE_NUMBER
    if (progress->step < 0 || progress->sample < 0 || progress->samples < 0)
        return tu_fail(TU_CORRUPT, "checkpoint '%s': it counts steps or samples below zero", path);
    return TU_OK;
}

tu_status tu__metadata_progress(const tu__safetensors *file, const char *path, tu__progress *progress) {
    decimal_point point = {0};
    TU_TRY(use_point(&point));
    tu_status status = take_progress(file, path, progress);
    leave_point(&point);
    return status;
}
