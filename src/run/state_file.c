/* State files: the variables of a state in a safetensors file, which other programs can read.
 *
 * The metadata contains the seed, the index of the next sample, and SHA-256 digests to detect corruption. Files from
 * other programs have no digests and are not verified. Training checkpoints have the same digests. Loading compares
 * all names and types before it changes anything. */
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

#define FORMAT_PREFIX "tutti state "
#define FORMAT FORMAT_PREFIX "1"

/* True if `name` matches `only` and does not match `except`. */
static bool is_selected(const char *only, const char *except, const char *name) {
    return (!only || tu__pattern_matches(only, name)) && !tu__pattern_matches(except, name);
}

static tu_status fail_nothing_selected(const tu_state *state, const char *only, const char *except) {
    return tu_fail(TU_INVALID,
                   "no variable is selected (.only '%s', .except '%s'): variable names are like '%s'",
                   only ? only : "", except ? except : "", state->variables[0].name);
}

/* ---- Saving ---- */

static tu_status write_state_file(const char *path, const tu_state *state, size_t count,
                                  const tu__named_tensor *tensors) {
    enum { ENTRIES = 6 };
    char seed[24], sample[24], tensors_digest[TU__SHA256_HEX], metadata_digest[TU__SHA256_HEX];
    snprintf(seed, sizeof seed, "%" PRIu64, state->seed);
    snprintf(sample, sizeof sample, "%" PRId64, state->next_sample);
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

static tu_status save_state(const tu_state *state, const char *path, const tu_state_save_options *options) {
    TU__OPTIONS(tu_state_save_options, o, options);
    if (!path || !*path) return tu_fail(TU_INVALID, "cannot save the state: the path is NULL or empty");
    tu__snapshot snapshot = {0};
    TU_TRY(tu__snapshot_take(state, &snapshot));
    tu__named_tensor *tensors = tu__alloc_array(snapshot.count, sizeof *tensors, "a state file");
    tu_status status = tensors ? TU_OK : TU_NO_MEMORY;
    size_t count = 0;
    for (size_t i = 0; status == TU_OK && i < snapshot.count; i++)
        if (is_selected(o.only, o.except, snapshot.tensors[i].name)) tensors[count++] = snapshot.tensors[i];
    if (status == TU_OK && count == 0 && snapshot.count > 0)
        status = fail_nothing_selected(state, o.only, o.except);
    if (status == TU_OK) status = write_state_file(path, state, count, tensors);
    tu__free(tensors);
    tu__snapshot_free(&snapshot);
    return status;
}

tu_status tu_state_save_with(const tu_state *state, const char *path, const tu_state_save_options *options) {
    tu__state_lock_shared(state);
    tu_status status = save_state(state, path, options);
    tu__state_unlock(state);
    return status;
}

/* ---- Setting variables from tensors ---- */

bool tu__tensor_is_compatible(const tu__named_tensor *tensor, tu_type type, bool allow_conversion) {
    return tu_shape_equal(tensor->type.shape, type.shape) &&
           (tensor->type.dtype == type.dtype ||
            (allow_conversion && tu_dtype_is_float(tensor->type.dtype) && tu_dtype_is_float(type.dtype)));
}

/* Converts the elements to `type` into a new buffer. Sets `*converted` to NULL if the dtype already matches. */
static tu_status convert_elements(const tu__named_tensor *tensor, tu_type type, void **converted) {
    *converted = NULL;
    if (tensor->type.dtype == type.dtype) return TU_OK;
    int64_t count = tu_shape_elements(type.shape);
    *converted = tu__alloc_aligned(tu_type_bytes(type), tensor->name);
    if (!*converted) return TU_NO_MEMORY;
    for (int64_t i = 0; i < count; i++)
        tu__store(type.dtype, *converted, i, tu__load(tensor->type.dtype, tensor->data, i));
    return TU_OK;
}

tu_status tu__state_set_from_tensor(tu_state *state, const char *name, tu_type type,
                                    const tu__named_tensor *tensor) {
    void *converted;
    TU_TRY(convert_elements(tensor, type, &converted));
    tu_status status = tu_state_set(state, name, converted ? converted : tensor->data, tu_type_bytes(type));
    tu__free_aligned(converted);
    return status;
}

/* ---- Loading ---- */

/* Fails for an unsupported format version or a digest mismatch. */
static tu_status check_file(const tu__safetensors *file, const char *path) {
    const char *format = tu__safetensors_metadata(file, "format");
    bool is_state_file = format && strncmp(format, FORMAT_PREFIX, strlen(FORMAT_PREFIX)) == 0;
    if (is_state_file && strcmp(format, FORMAT) != 0)
        return tu_fail(TU_UNSUPPORTED, "state file '%s' has format '%.40s': expected '%s'", path, format,
                       FORMAT);
    if (!is_state_file && !tu__safetensors_metadata(file, TU__METADATA_DIGEST)) return TU_OK;
    return tu__safetensors_check(file, is_state_file ? "state file" : "checkpoint", path);
}

/* Returns the name of a variable in the file, which may be the name it had in an earlier version. */
static const char *name_in_file(const tu__safetensors *file, const char *name) {
    /* Current name, former name. */
    static const char *const renamed[][2] = {{"optimizer/healthy", "optimizer/sound"}};
    if (tu__safetensors_find(file, name)) return name;
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (strcmp(name, renamed[i][0]) == 0 && tu__safetensors_find(file, renamed[i][1]))
            return renamed[i][1];
    return name;
}

static tu_status compare_variable(const tu__safetensors *file, const tu__variable *v, bool allow_conversion,
                                  tu_load_report *report) {
    const tu__named_tensor *tensor = tu__safetensors_find(file, name_in_file(file, v->name));
    const char *reason = tensor ? NULL : tu__safetensors_unsupported_reason(file, v->name);
    if (!tensor && !reason)
        return tu__load_report_add(report, TU_LOAD_MISSING, v->name, &v->type, NULL, NULL);
    bool is_compatible = tensor && tu__tensor_is_compatible(tensor, v->type, allow_conversion);
    return tu__load_report_add(report, is_compatible ? TU_LOAD_MATCHED : TU_LOAD_MISMATCHED, v->name,
                               &v->type, tensor ? &tensor->type : NULL, reason);
}

static tu_status compare_all(const tu__safetensors *file, const tu_state *state,
                             const tu_state_load_options *o, tu_load_report *report) {
    uint32_t index;
    for (size_t i = 0; i < state->count; i++)
        if (is_selected(o->only, o->except, state->variables[i].name))
            TU_TRY(compare_variable(file, &state->variables[i], o->convert, report));
    for (size_t i = 0; i < file->tensor_count; i++) {
        const tu__named_tensor *t = &file->tensors[i];
        if (is_selected(o->only, o->except, t->name) && !tu__names_find(state->names, t->name, &index))
            TU_TRY(tu__load_report_add(report, TU_LOAD_EXTRA, t->name, NULL, &t->type, NULL));
    }
    for (size_t i = 0; i < file->unsupported_count; i++) {
        const tu__unsupported_tensor *t = &file->unsupported[i];
        if (is_selected(o->only, o->except, t->name) && !tu__names_find(state->names, t->name, &index))
            TU_TRY(tu__load_report_add(report, TU_LOAD_EXTRA, t->name, NULL, NULL, t->reason));
    }
    return TU_OK;
}

/* Fails unless all selected variables match, or .partial is set and at least one matches. */
static tu_status check_report(const tu_state *state, const char *path, const tu_state_load_options *o,
                              tu_load_report *report) {
    size_t matched = tu_load_report_entry_count(report, TU_LOAD_MATCHED);
    size_t unmatched = tu_load_report_entry_count(report, TU_LOAD_MISSING) +
                       tu_load_report_entry_count(report, TU_LOAD_MISMATCHED);
    if (matched + unmatched == 0)
        return state->count ? fail_nothing_selected(state, o->only, o->except) : TU_OK;
    if (matched == 0)
        return tu_fail(TU_INVALID, "'%s' matches no variable of the state: %s", path,
                       tu_load_report_text(report));
    if (unmatched == 0 || o->partial) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "'%s' does not match the state: %s (set .partial = true to load only the matching variables)", path,
        tu_load_report_text(report));
}

/* Reads an unsigned integer from the metadata; leaves `*value` unchanged if the key is absent. */
static tu_status read_metadata_u64(const tu__safetensors *file, const char *path, const char *key,
                                   uint64_t max, uint64_t *value) {
    const char *text = tu__safetensors_metadata(file, key);
    if (!text) return TU_OK;
    char *end;
    errno = 0;
    uintmax_t number = strtoumax(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || number > max)
        return tu_fail(TU_CORRUPT,
                       "state file '%s': '%s' in its metadata is '%.40s': expected an unsigned integer", path,
                       key, text);
    *value = number;
    return TU_OK;
}

/* Copies the matched tensors. Converts all of them first, so that running out of memory leaves the state unchanged.
 * `converted`: one NULL pointer per match. */
static tu_status copy_matches(const tu__safetensors *file, tu_state *state, const tu_load_report *report,
                              void **converted) {
    size_t count = tu_load_report_entry_count(report, TU_LOAD_MATCHED);
    const char *name;
    tu_type type;
    for (size_t i = 0; i < count; i++) {
        TU_TRY(tu_load_report_entry(report, TU_LOAD_MATCHED, i, &name, &type, NULL));
        TU_TRY(convert_elements(tu__safetensors_find(file, name_in_file(file, name)), type, &converted[i]));
    }
    for (size_t i = 0; i < count; i++) {
        TU_TRY(tu_load_report_entry(report, TU_LOAD_MATCHED, i, &name, &type, NULL));
        const void *data =
            converted[i] ? converted[i] : tu__safetensors_find(file, name_in_file(file, name))->data;
        TU_TRY(tu_state_set(state, name, data, tu_type_bytes(type)));
    }
    return TU_OK;
}

static tu_status load_tensors(const tu__safetensors *file, const char *path, tu_state *state,
                              const tu_state_load_options *o, tu_load_report *report) {
    uint64_t seed = state->seed, sample = (uint64_t)state->next_sample;
    TU_TRY(compare_all(file, state, o, report));
    TU_TRY(check_report(state, path, o, report));
    /* Seed and next sample belong to the whole state; files from other programs have neither. */
    bool loads_all =
        !o->partial && !o->only && !o->except && tu__safetensors_metadata(file, TU__METADATA_DIGEST);
    if (loads_all) {
        TU_TRY(read_metadata_u64(file, path, "seed", UINT64_MAX, &seed));
        TU_TRY(read_metadata_u64(file, path, "sample", INT64_MAX, &sample));
    }
    size_t count = tu_load_report_entry_count(report, TU_LOAD_MATCHED);
    void **converted = tu__alloc_array(count, sizeof *converted, "the variables of a state file");
    if (!converted) return TU_NO_MEMORY;
    tu_status status = copy_matches(file, state, report, converted);
    for (size_t i = 0; i < count; i++) tu__free_aligned(converted[i]);
    tu__free(converted);
    if (status != TU_OK) return status;
    state->seed = seed;
    state->next_sample = (int64_t)sample;
    return TU_OK;
}

static tu_status load_state(tu_state *state, const char *path, const tu_state_load_options *options) {
    TU__OPTIONS(tu_state_load_options, o, options);
    if (o.report) *o.report = NULL;
    if (!path || !*path) return tu_fail(TU_INVALID, "cannot load the state: the path is NULL or empty");
    tu__safetensors file;
    TU_TRY(tu__safetensors_open(path, &file));
    tu_load_report *report = NULL;
    tu_status status = check_file(&file, path);
    if (status == TU_OK) {
        report = tu__load_report_new(path);
        status = report ? load_tensors(&file, path, state, &o, report) : TU_NO_MEMORY;
    }
    if (status == TU_OK) status = tu__safetensors_intact(&file); /* else some variables may be zeros */
    tu__safetensors_close(&file);
    if (o.report)
        *o.report = report;
    else
        tu_load_report_free(report);
    return status;
}

tu_status tu_state_load_with(tu_state *state, const char *path, const tu_state_load_options *options) {
    tu__state_lock(state);
    tu_status status = load_state(state, path, options);
    tu__state_unlock(state);
    return status;
}
