/* Describes a model: inputs, outputs, texts, programs and memory. */
#include <string.h>

#include "base/sized.h"
#include "infer/model.h"
#include "run/program_memory.h"

static tu_status get_port(const tu__model_port *ports, size_t count, const char *kind, size_t index,
                          const char **name, tu_type *type) {
    if (index >= count) return tu_fail(TU_NOT_FOUND, "%s %zu: the model has %zu", kind, index, count);
    if (name) *name = ports[index].name;
    if (type) *type = ports[index].row;
    return TU_OK;
}

size_t tu_model_input_count(const tu_model *model) {
    return model->input_count;
}

size_t tu_model_output_count(const tu_model *model) {
    return model->output_count;
}

tu_status tu_model_input(const tu_model *model, size_t index, const char **name, tu_type *type) {
    return get_port(model->inputs, model->input_count, "input", index, name, type);
}

tu_status tu_model_output(const tu_model *model, size_t index, const char **name, tu_type *type) {
    return get_port(model->outputs, model->output_count, "output", index, name, type);
}

size_t tu_model_label_count(const tu_model *model) {
    return model->label_count;
}

const char *tu_model_label(const tu_model *model, size_t index) {
    return index < model->label_count ? model->labels[index] : NULL;
}

const char *tu_model_text(const tu_model *model, const char *key) {
    for (size_t i = 0; i < model->text_count; i++)
        if (strcmp(model->texts[i].key, key) == 0) return model->texts[i].value;
    return NULL;
}

size_t tu_model_program_count(const tu_model *model) {
    return model->size_count;
}

int64_t tu_model_program_batch(const tu_model *model, size_t index) {
    return index < model->size_count ? model->sizes[index].batch : 0;
}

const tu_program *tu_model_program(const tu_model *model, size_t index) {
    return index < model->size_count ? model->sizes[index].program : NULL;
}

/* All programs share the weights, and those of a session its scratch memory. Small constants exist once per program. */
tu_status tu_model_memory(const tu_model *model, tu_model_memory_report *report) {
    TU_TRY(TU__CHECK_SIZED(tu_model_memory_report, report));
    tu_model_memory_report full = {.device = model->device, .sessions = (int)model->session_count};
    uint64_t shared = 0;
    for (size_t i = 0; i < model->size_count; i++) {
        tu__program_bytes bytes = tu__program_bytes_of(model->sizes[i].program);
        full.weight_bytes += bytes.own_constants;
        if (bytes.shared_constants > shared) shared = bytes.shared_constants;
        if (bytes.scratch > full.scratch_bytes) full.scratch_bytes = bytes.scratch;
    }
    full.weight_bytes += shared;
    full.total_bytes = full.weight_bytes + full.scratch_bytes * model->session_count;
    TU__COPY_SIZED(report, full);
    return TU_OK;
}
