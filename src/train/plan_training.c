/* tu_plan_training: prepares a run up to the plan of its step, to report how much memory it needs. */
#include "base/alloc.h"
#include "base/sized.h"
#include "train/trainer.h"

/* Returns the bytes needed on all devices; 0 if ` program` is NULL. */
static uint64_t bytes_needed(const tu_program *program) {
    tu_memory_report report = TU_SIZED(tu_memory_report);
    uint64_t bytes = 0;
    for (size_t i = 0; program && i < tu_program_device_count(program); i++)
        if (tu_program_memory(program, i, &report) == TU_OK) bytes += report.need_bytes;
    return bytes;
}

static const tu_program *largest_program(const tu__stepper *s) {
    const tu_program *programs[] = {s->full.program, s->short_batch.program, s->apply},
                     *largest = programs[0];
    for (size_t i = 1; i < sizeof programs / sizeof *programs; i++)
        if (bytes_needed(programs[i]) > bytes_needed(largest)) largest = programs[i];
    return largest;
}

tu_status tu_plan_training_with(const char *model, const char *data, tu_train_plan *plan,
                                const tu_train_options *options) {
    TU_TRY(TU__CHECK_SIZED(tu_train_plan, plan));
    tu__clear_sized(plan);
    tu__trainer *t = tu__alloc(sizeof *t, "the plan of a run");
    if (!t) return TU_NO_MEMORY;
    tu_train_plan full = {.internal = t};
    TU__COPY_SIZED(plan, full);
    tu_status status = tu__trainer_plan(t, model, data, options, NULL);
    if (status != TU_OK) {
        tu_train_plan_free(plan);
        return status;
    }
    const tu__settings *s = &t->config.settings;
    full.program = largest_program(&t->stepper);
    full.batch = s->batch;
    full.accumulate = s->accumulate;
    full.precision = s->precision;
    full.set = t->dataset;
    TU__COPY_SIZED(plan, full);
    return TU_OK;
}

void tu_train_plan_free(tu_train_plan *plan) {
    tu__trainer *t = plan->internal;
    if (t) tu__trainer_end(t);
    tu__free(t);
    tu__clear_sized(plan);
}
