/* Traces the first steps of a run. See trace_steps.h.
 *
 * The trace starts after a few warm-up steps, which touch memory for the first time, load libraries and capture
 * graphs. With gradient accumulation there are two programs, and each is a process in the trace. If several processes
 * train, all trace the same steps, which then take the same path, and rank 0 writes its own trace. */
#include "train/trace_steps.h"

#include <stdio.h>
#include <stdlib.h>

#include "train/ranks.h"

enum { WARM_UP_STEPS = 5, DEFAULT_STEPS = 10 };

static int64_t first_traced(const tu__trainer *t) {
    return t->first_step + WARM_UP_STEPS;
}

static int64_t end_traced(const tu__trainer *t) {
    return first_traced(t) + (t->options.trace_steps > 0 ? t->options.trace_steps : DEFAULT_STEPS);
}

int64_t tu__trace_steps_until(const tu__trainer *t, int64_t limit) {
    int64_t step = t->progress.step;
    if (!t->options.trace || t->traced) return limit;
    int64_t until = step < first_traced(t) ? first_traced(t) - step : end_traced(t) - step;
    return until > 0 && until < limit ? until : limit;
}

static size_t programs_of(const tu__trainer *t, tu_program *programs[2]) {
    programs[0] = t->stepper.full.program;
    programs[1] = t->stepper.apply;
    return programs[1] ? 2 : 1;
}

tu_status tu__trace_steps_begin(tu__trainer *t) {
    tu_program *programs[2];
    if (!t->options.trace || t->tracing || t->traced || t->progress.step < first_traced(t)) return TU_OK;
    for (size_t i = 0, count = programs_of(t, programs); i < count; i++)
        TU_TRY(tu_program_trace_begin(programs[i]));
    t->tracing = true;
    return TU_OK;
}

/* Reports the summary of the program that computes; the other one only updates. */
static tu_status report_summary(tu__trainer *t, tu_program *program) {
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    if (!memory) return tu_fail(TU_NO_MEMORY, "out of memory for the summary of a trace");
    tu_status status = tu_trace_summary(program, memory);
    if (fclose(memory) != 0 && status == TU_OK)
        status = tu_fail(TU_NO_MEMORY, "out of memory for the summary of a trace");
    if (status == TU_OK) tu__trainer_report(t, TU_TRAIN_TRACED, text);
    free(text);
    return status;
}

static tu_status write_trace(tu__trainer *t) {
    tu_program *programs[2];
    if (!tu__is_writer(t)) return TU_OK;
    size_t count = programs_of(t, programs);
    TU_TRY(tu_trace_save(count, programs, t->options.trace));
    return report_summary(t, programs[0]);
}

void tu__trace_steps_end(tu__trainer *t, bool last) {
    if (t->options.trace && last && !t->tracing && !t->traced)
        tu__trainer_notice(t, "nothing was traced: the run ended during the warm-up steps");
    if (!t->tracing || (!last && t->progress.step < end_traced(t))) return;
    t->tracing = false;
    t->traced = true;
    if (write_trace(t) != TU_OK) tu__trainer_notice(t, tu_message());
}
