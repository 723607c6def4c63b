/* tu_model_verify: computes the golden samples of a model file on the devices of this machine.
 *
 * `ref` runs the graph of the file as it is, like the exporter did, so its bits must be equal. Other devices run the model
 * that tu_model_load makes of it, which is frozen: batch normalisation is folded into weights, for example. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tutti/command.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "device/device.h"
#include "graph/graph.h"
#include "infer/golden.h"
#include "infer/model.h"

enum { MAX_DEVICE_NAME = 64 };

typedef struct verifier {
    tu_verify_options options;
    tu_verify_result result;
    tu__model_file file;
    tu_type rows[TU__MODEL_MAX_PORTS];     /* of the outputs: of a graph for one sample */
    void *outputs[TU__MODEL_MAX_PORTS];    /* computed, all samples */
    void *one_by_one[TU__MODEL_MAX_PORTS]; /* the same, each sample alone */
    const char *device, *precision;
    bool is_cpu;
} verifier;

static size_t output_bytes(const verifier *v, size_t output) {
    return tu_type_bytes(v->file.golden_outputs[output].type);
}

/* ---- Reports ---- */

static void report(verifier *v, tu_verify_check *check) {
    check->struct_size = sizeof *check;
    check->device = v->device;
    check->precision = v->precision;
    v->result.passed += check->outcome == TU_VERIFY_PASSED;
    v->result.failed += check->outcome == TU_VERIFY_FAILED;
    v->result.skipped += check->outcome == TU_VERIFY_SKIPPED;
    if (v->options.on_check) v->options.on_check(v->options.context, check);
}

/* Reports that no output could be computed: with this thread's message. */
static void report_problem(verifier *v, tu_verify_outcome outcome) {
    char reason[512];
    snprintf(reason, sizeof reason, "%s", tu_message());
    tu_verify_check check = {.output = "", .outcome = outcome, .reason = reason};
    report(v, &check);
}

/* ---- ref ---- */

static tu_status make_state(const tu__model_file *file, tu_state **state) {
    TU_TRY(tu_state_new(file->graph, state));
    for (size_t i = 0; i < file->variable_count; i++) {
        const tu__named_tensor *variable = &file->variables[i];
        TU_TRY(tu_state_set(*state, variable->name, variable->data, tu_type_bytes(variable->type)));
    }
    return TU_OK;
}

static tu_status verify_reference(verifier *v) {
    tu_state *state = NULL;
    tu_status status = make_state(&v->file, &state);
    if (status == TU_OK)
        status = tu__golden_compute(v->file.graph, state, NULL, v->file.golden_count, v->file.golden_inputs,
                                    v->outputs, NULL);
    tu_state_free(state);
    TU_TRY(status);
    for (size_t i = 0; i < v->file.output_count; i++) {
        const tu__named_tensor *golden = &v->file.golden_outputs[i];
        tu_verify_check check = {.output = golden->name};
        bool equal = memcmp(golden->data, v->outputs[i], output_bytes(v, i)) == 0;
        check.difference =
            tu__golden_difference(v->rows[i], v->file.golden_count, golden->data, v->outputs[i], false);
        check.outcome = equal ? TU_VERIFY_PASSED : TU_VERIFY_FAILED;
        if (!equal) check.reason = "the bits differ from those of the golden output";
        report(v, &check);
    }
    return TU_OK;
}

/* ---- Other devices ---- */

/* Computes samples first … first + count - 1 in one call, into `outputs`. */
static tu_status run_samples(const verifier *v, tu_model *model, int64_t first, int64_t count,
                             void *const *outputs) {
    const tu__model_file *f = &v->file;
    tu_model_feed feeds[TU__MODEL_MAX_PORTS];
    tu_model_fetch fetches[TU__MODEL_MAX_PORTS];
    for (size_t i = 0; i < f->input_count; i++) {
        tu_type type = f->golden_inputs[i].type;
        size_t row = tu_type_bytes(type) / (size_t)f->golden_count;
        type.shape.dim[0] = count;
        feeds[i] = (tu_model_feed){f->golden_inputs[i].name, type,
                                   (const char *)f->golden_inputs[i].data + (size_t)first * row};
    }
    for (size_t i = 0; i < f->output_count; i++) {
        tu_type type = f->golden_outputs[i].type;
        size_t row = output_bytes(v, i) / (size_t)f->golden_count;
        type.shape.dim[0] = count;
        fetches[i] =
            (tu_model_fetch){f->golden_outputs[i].name, type, (char *)outputs[i] + (size_t)first * row};
    }
    return tu_model_run_named(model, count, f->input_count, feeds, f->output_count, fetches);
}

static void compare_output(verifier *v, size_t output) {
    const tu__named_tensor *golden = &v->file.golden_outputs[output];
    const tu__model_bound *bound = tu__model_file_bound(&v->file, golden->name, v->precision);
    tu_verify_check check = {.output = golden->name, .any_batch = v->is_cpu};
    if (bound) check.limit = bound->limit, check.relative = bound->relative;
    check.difference = tu__golden_difference(v->rows[output], v->file.golden_count, golden->data,
                                             v->outputs[output], check.relative);
    bool same = !v->is_cpu || memcmp(v->outputs[output], v->one_by_one[output], output_bytes(v, output)) == 0;
    if (!same)
        check.outcome = TU_VERIFY_FAILED,
        check.reason = "the bits depend on the batch in which a sample is computed";
    else if (!bound)
        check.outcome = TU_VERIFY_SKIPPED, check.reason = "the file has no bound for this precision";
    else if (!(check.difference <= check.limit))
        check.outcome = TU_VERIFY_FAILED, check.reason = "the difference is above the bound";
    report(v, &check);
}

static tu_status verify_model(verifier *v, tu_model *model) {
    int64_t count = v->file.golden_count;
    TU_TRY(run_samples(v, model, 0, count, v->outputs));
    for (int64_t i = 0; v->is_cpu && i < count; i++) TU_TRY(run_samples(v, model, i, 1, v->one_by_one));
    for (size_t i = 0; i < v->file.output_count; i++) compare_output(v, i);
    return TU_OK;
}

/* A model that cannot run in f32 fails; a precision that the device lacks is skipped. */
static tu_status verify_precision(verifier *v) {
    tu_model *model = NULL;
    const tu_model_options o = {.struct_size = sizeof o,
                                .devices = v->device,
                                .precision = v->precision,
                                .threads = v->options.threads,
                                .max_batch = v->file.golden_count};
    tu_status status = tu__model_from_file(&v->file, &o, &model);
    if (status == TU_OK) status = verify_model(v, model);
    tu_model_free(model);
    bool is_finding =
        status == TU_UNSUPPORTED || status == TU_NUMERIC || status == TU_DEVICE || status == TU_INTERNAL;
    if (!is_finding) return status;
    bool is_lacking = status == TU_UNSUPPORTED && strcmp(v->precision, "f32") != 0;
    report_problem(v, is_lacking ? TU_VERIFY_SKIPPED : TU_VERIFY_FAILED);
    return TU_OK;
}

static tu_status verify_device(verifier *v, const char *device) {
    static const char *const precisions[] = {TU_PRECISIONS};
    v->device = device;
    v->is_cpu = strncmp(device, "cpu", 3) == 0;
    v->precision = "f32";
    if (strncmp(device, "ref", 3) == 0) return verify_reference(v);
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        v->precision = precisions[i];
        TU_TRY(verify_precision(v));
    }
    return TU_OK;
}

/* ---- All devices ---- */

static tu_status verify_found(verifier *v) {
    for (size_t i = 0; i < tu_device_count(); i++) {
        tu_device_info info = TU_SIZED(tu_device_info);
        TU_TRY(tu_device(i, &info));
        if (info.unusable || strcmp(info.kind, "null") == 0) continue;
        char name[MAX_DEVICE_NAME];
        snprintf(name, sizeof name, "%s", info.name);
        TU_TRY(verify_device(v, name));
    }
    return TU_OK;
}

/* Copies the next name of a list and returns the rest of it; NULL after the last one. */
static const char *next_name(const char *list, char name[MAX_DEVICE_NAME]) {
    size_t length = strcspn(list, ",");
    snprintf(name, MAX_DEVICE_NAME, "%.*s", (int)length, list);
    return list[length] ? list + length + 1 : NULL;
}

/* Checks the whole list before anything is computed. */
static tu_status check_list(const char *list) {
    for (const char *rest = list; rest;) {
        char name[MAX_DEVICE_NAME];
        size_t length = strcspn(rest, ",");
        if (length == 0 || length >= sizeof name)
            return tu_fail(TU_INVALID,
                           "devices is '%.80s': expected names with commas, for example cpu:0,ref", list);
        rest = next_name(rest, name);
    }
    return TU_OK;
}

/* Fails if a device that the caller named cannot be used: that is no finding about the file. */
static tu_status check_device(const char *name) {
    tu__device *devices[TU__MAX_DEVICES];
    size_t count;
    TU_TRY(tu__devices_open(name, NULL, TU__MAX_DEVICES, devices, &count));
    tu__devices_close(count, devices);
    return TU_OK;
}

static tu_status verify_listed(verifier *v) {
    TU_TRY(check_list(v->options.devices));
    for (const char *rest = v->options.devices; rest;) {
        char name[MAX_DEVICE_NAME];
        rest = next_name(rest, name);
        TU_TRY(check_device(name));
        TU_TRY(verify_device(v, name));
    }
    return TU_OK;
}

static tu_status allocate_outputs(verifier *v) {
    for (size_t i = 0; i < v->file.output_count; i++) {
        v->rows[i] = v->file.golden_outputs[i].type;
        v->rows[i].shape.dim[0] = 1;
        v->outputs[i] = tu__alloc_aligned(output_bytes(v, i), "golden outputs");
        v->one_by_one[i] = tu__alloc_aligned(output_bytes(v, i), "golden outputs");
        if (!v->outputs[i] || !v->one_by_one[i]) return TU_NO_MEMORY;
    }
    return TU_OK;
}

static tu_status verify(verifier *v, const char *path) {
    TU_TRY(tu__model_file_open(path, &v->file));
    TU_TRY(tu__model_file_check_digests(&v->file));
    TU_TRY(allocate_outputs(v));
    v->result.samples = v->file.golden_count;
    v->result.tensors = (int64_t)(v->file.variable_count + v->file.input_count + v->file.output_count + 1);
    v->result.bytes = v->file.bytes;
    TU_TRY(v->options.devices ? verify_listed(v) : verify_found(v));
    return tu__model_file_intact(&v->file);
}

tu_status tu_model_verify_with(const char *path, tu_verify_result *result, const tu_verify_options *options) {
    TU__OPTIONS(tu_verify_options, o, options);
    if (result) {
        TU_TRY(TU__CHECK_SIZED(tu_verify_result, result));
        tu__clear_sized(result);
    }
    verifier *v = tu__alloc(sizeof *v, "the verification of a model file");
    if (!v) return TU_NO_MEMORY;
    v->options = o;
    tu_status status = verify(v, path);
    if (status == TU_OK && result) TU__COPY_SIZED(result, v->result);
    for (size_t i = 0; i < TU__MODEL_MAX_PORTS; i++) {
        tu__free_aligned(v->outputs[i]);
        tu__free_aligned(v->one_by_one[i]);
    }
    tu__model_file_close(&v->file);
    tu__free(v);
    return status;
}
