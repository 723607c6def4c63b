/* State files: the variables of a state as one safetensors file, which other programs read too.
 *
 * The metadata holds the seed and the ordinal of the next sample, and digests by which damage is noticed. Files without
 * such digests, from other programs, are taken as they are; checkpoints of training runs have the same ones. Loading
 * compares all names and types before it changes anything. */
#include "run/state_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/pattern.h"
#include "base/text.h"
#include "graph/graph.h"
#include "run/snapshot.h"
#include "run/state.h"

#define FAMILY "tutti state "
#define FORMAT FAMILY "1"

/* Whether the options choose the variable. */
static bool chosen(const char *only, const char *except, const char *name) {
    return (!only || tu__pattern_fits(only, name)) && !tu__pattern_fits(except, name);
}

static tu_status refuse_choice(const tu_state *state, const char *only, const char *except) {
    return tu_fail(
        TU_INVALID,
        "no variable is chosen by .only '%s' and .except '%s': expected patterns of names such as '%s'",
        only ? only : "", except ? except : "", state->variables[0].name);
}

/* ---- Saving ---- */

static tu_status save(const char *path, const tu_state *state, size_t count,
                      const tu__named_tensor *tensors) {
    enum { ENTRIES = 6 };
    char seed[24], sample[24], tensors_digest[TU__SHA256_HEX], metadata_digest[TU__SHA256_HEX];
    snprintf(seed, sizeof seed, "%" PRIu64, state->seed);
    snprintf(sample, sizeof sample, "%" PRId64, state->sample);
    tu__tensors_digest(count, tensors, tensors_digest);
    const tu__metadata metadata[ENTRIES] = {{"format", FORMAT},
                                            {"tutti", tu_version()},
                                            {"seed", seed},
                                            {"sample", sample},
                                            {TU__TENSORS_DIGEST, tensors_digest},
                                            {TU__METADATA_DIGEST, metadata_digest}};
    TU_TRY(tu__metadata_digest(ENTRIES - 1, metadata, metadata_digest));
    return tu__safetensors_save(path, count, tensors, ENTRIES, metadata);
}

tu_status tu_state_save_with(const tu_state *state, const char *path, const tu_state_save_options *options) {
    TU__OPTIONS(tu_state_save_options, o, options);
    if (!path || !*path) return tu_fail(TU_INVALID, "a state cannot be saved: no path is given");
    tu__snapshot snapshot = {0};
    TU_TRY(tu__snapshot_take(state, &snapshot));
    tu__named_tensor *tensors = tu__alloc_array(snapshot.count, sizeof *tensors, "a state file");
    tu_status status = tensors ? TU_OK : TU_NO_MEMORY;
    size_t count = 0;
    for (size_t i = 0; status == TU_OK && i < snapshot.count; i++)
        if (chosen(o.only, o.except, snapshot.tensors[i].name)) tensors[count++] = snapshot.tensors[i];
    if (status == TU_OK && count == 0 && snapshot.count > 0) status = refuse_choice(state, o.only, o.except);
    if (status == TU_OK) status = save(path, state, count, tensors);
    tu__free(tensors);
    tu__snapshot_free(&snapshot);
    return status;
}

/* ---- Taking tensors ---- */

bool tu__tensor_fits(const tu__named_tensor *tensor, tu_type type, bool convert) {
    return tu_shape_equal(tensor->type.shape, type.shape) &&
           (tensor->type.dtype == type.dtype ||
            (convert && tu_dtype_is_float(tensor->type.dtype) && tu_dtype_is_float(type.dtype)));
}

/* The tensor's numbers as the type; NULL, in `*converted`, where they are of it already. */
static tu_status convert(const tu__named_tensor *tensor, tu_type type, void **converted) {
    *converted = NULL;
    if (tensor->type.dtype == type.dtype) return TU_OK;
    int64_t count = tu_shape_elements(type.shape);
    *converted = tu__alloc_aligned(tu_type_bytes(type), tensor->name);
    if (!*converted) return TU_NO_MEMORY;
    for (int64_t i = 0; i < count; i++)
        tu__store(type.dtype, *converted, i, tu__load(tensor->type.dtype, tensor->data, i));
    return TU_OK;
}

tu_status tu__state_take(tu_state *state, const char *name, tu_type type, const tu__named_tensor *tensor) {
    void *converted;
    TU_TRY(convert(tensor, type, &converted));
    tu_status status = tu_state_set(state, name, converted ? converted : tensor->data, tu_type_bytes(type));
    tu__free_aligned(converted);
    return status;
}

/* ---- Loading ---- */

/* A state file of another version, or a file that is not as it was written. */
static tu_status check_file(const tu__safetensors *file, const char *path) {
    const char *format = tu__safetensors_metadata(file, "format");
    bool own = format && strncmp(format, FAMILY, strlen(FAMILY)) == 0;
    if (own && strcmp(format, FORMAT) != 0)
        return tu_fail(TU_UNSUPPORTED, "state file '%s' is of version '%.40s', expected '%s'", path, format,
                       FORMAT);
    if (!own && !tu__safetensors_metadata(file, TU__METADATA_DIGEST)) return TU_OK;
    return tu__safetensors_check(file, own ? "state file" : "checkpoint", path);
}

/* The name under which files hold a variable; it may be one that the variable had in an earlier version. */
static const char *name_in_file(const tu__safetensors *file, const char *name) {
    static const char *const renamed[][2] = {{"optimizer/healthy", "optimizer/sound"}}; /* now, before */
    if (tu__safetensors_find(file, name)) return name;
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (strcmp(name, renamed[i][0]) == 0 && tu__safetensors_find(file, renamed[i][1]))
            return renamed[i][1];
    return name;
}

static tu_status compare_variable(const tu__safetensors *file, const tu__variable *v, bool convert,
                                  tu_load_report *report) {
    const tu__named_tensor *tensor = tu__safetensors_find(file, name_in_file(file, v->name));
    const char *why = tensor ? NULL : tu__safetensors_why_refused(file, v->name);
    if (!tensor && !why) return tu__load_report_add(report, TU_LOAD_MISSING, v->name, &v->type, NULL, NULL);
    bool fits = tensor && tu__tensor_fits(tensor, v->type, convert);
    return tu__load_report_add(report, fits ? TU_LOAD_MATCHED : TU_LOAD_MISMATCHED, v->name, &v->type,
                               tensor ? &tensor->type : NULL, why);
}

static tu_status compare(const tu__safetensors *file, const tu_state *state, const tu_state_load_options *o,
                         tu_load_report *report) {
    uint32_t index;
    for (size_t i = 0; i < state->count; i++)
        if (chosen(o->only, o->except, state->variables[i].name))
            TU_TRY(compare_variable(file, &state->variables[i], o->convert, report));
    for (size_t i = 0; i < file->tensor_count; i++) {
        const tu__named_tensor *t = &file->tensors[i];
        if (chosen(o->only, o->except, t->name) && !tu__names_find(state->names, t->name, &index))
            TU_TRY(tu__load_report_add(report, TU_LOAD_EXTRA, t->name, NULL, &t->type, NULL));
    }
    for (size_t i = 0; i < file->refused_count; i++) {
        const tu__refused_tensor *t = &file->refused[i];
        if (chosen(o->only, o->except, t->name) && !tu__names_find(state->names, t->name, &index))
            TU_TRY(tu__load_report_add(report, TU_LOAD_EXTRA, t->name, NULL, NULL, t->why));
    }
    return TU_OK;
}

/* Whether what matches may be loaded. */
static tu_status judge(const tu_state *state, const char *path, const tu_state_load_options *o,
                       tu_load_report *report) {
    size_t matched = tu_load_report_entry_count(report, TU_LOAD_MATCHED);
    size_t others = tu_load_report_entry_count(report, TU_LOAD_MISSING) +
                    tu_load_report_entry_count(report, TU_LOAD_MISMATCHED);
    if (matched + others == 0) return state->count ? refuse_choice(state, o->only, o->except) : TU_OK;
    if (matched == 0)
        return tu_fail(TU_INVALID, "nothing in '%s' fits the state: %s", path, tu_load_report_text(report));
    if (others == 0 || o->partial) return TU_OK;
    return tu_fail(TU_INVALID, "'%s' does not fit the state: %s (.partial loads what matches)", path,
                   tu_load_report_text(report));
}

/* A whole number in the metadata; left as it is where there is none. */
static tu_status read_count(const tu__safetensors *file, const char *path, const char *key, uint64_t most,
                            uint64_t *value) {
    const char *text = tu__safetensors_metadata(file, key);
    if (!text) return TU_OK;
    char *end;
    errno = 0;
    uintmax_t read = strtoumax(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || read > most)
        return tu_fail(TU_CORRUPT,
                       "state file '%s': '%s' in its metadata is '%.40s', expected a whole number", path, key,
                       text);
    *value = read;
    return TU_OK;
}

/* Sets what matches, once all that needs memory is done: `converted` has room for a pointer each, all NULL. */
static tu_status take_matches(const tu__safetensors *file, tu_state *state, const tu_load_report *report,
                              void **converted) {
    size_t count = tu_load_report_entry_count(report, TU_LOAD_MATCHED);
    const char *name;
    tu_type type;
    for (size_t i = 0; i < count; i++) {
        TU_TRY(tu_load_report_entry(report, TU_LOAD_MATCHED, i, &name, &type, NULL));
        TU_TRY(convert(tu__safetensors_find(file, name_in_file(file, name)), type, &converted[i]));
    }
    for (size_t i = 0; i < count; i++) {
        TU_TRY(tu_load_report_entry(report, TU_LOAD_MATCHED, i, &name, &type, NULL));
        const void *data =
            converted[i] ? converted[i] : tu__safetensors_find(file, name_in_file(file, name))->data;
        TU_TRY(tu_state_set(state, name, data, tu_type_bytes(type)));
    }
    return TU_OK;
}

static tu_status load(const tu__safetensors *file, const char *path, tu_state *state,
                      const tu_state_load_options *o, tu_load_report *report) {
    uint64_t seed = state->seed, sample = (uint64_t)state->sample;
    TU_TRY(compare(file, state, o, report));
    TU_TRY(judge(state, path, o, report));
    bool whole = !o->partial && !o->only && !o->except && tu__safetensors_metadata(file, TU__METADATA_DIGEST);
    if (whole) {
        TU_TRY(read_count(file, path, "seed", UINT64_MAX, &seed));
        TU_TRY(read_count(file, path, "sample", INT64_MAX, &sample));
    }
    size_t count = tu_load_report_entry_count(report, TU_LOAD_MATCHED);
    void **converted = tu__alloc_array(count, sizeof *converted, "the variables of a state file");
    if (!converted) return TU_NO_MEMORY;
    tu_status status = take_matches(file, state, report, converted);
    for (size_t i = 0; i < count; i++) tu__free_aligned(converted[i]);
    tu__free(converted);
    if (status != TU_OK) return status;
    state->seed = seed;
    state->sample = (int64_t)sample;
    return TU_OK;
}

tu_status tu_state_load_with(tu_state *state, const char *path, const tu_state_load_options *options) {
    TU__OPTIONS(tu_state_load_options, o, options);
    if (o.report) *o.report = NULL;
    if (!path || !*path) return tu_fail(TU_INVALID, "a state cannot be loaded: no path is given");
    tu__safetensors file;
    TU_TRY(tu__safetensors_open(path, &file));
    tu_load_report *report = NULL;
    tu_status status = check_file(&file, path);
    if (status == TU_OK) {
        report = tu__load_report_new(path);
        status = report ? load(&file, path, state, &o, report) : TU_NO_MEMORY;
    }
    tu__safetensors_close(&file);
    if (o.report)
        *o.report = report;
    else
        tu_load_report_free(report);
    return status;
}
