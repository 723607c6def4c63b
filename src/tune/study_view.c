/* The public functions that read a study, and its export as CSV and JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tutti/command.h>

#include "base/alloc.h"
#include "base/choice.h"
#include "base/sized.h"
#include "tune/study_place.h"
#include "tune/study_view.h"

const char *tu_trial_state_name(tu_trial_state state) {
    return state >= TU_TRIAL_WAITING && state <= TU_TRIAL_FAILED ? tu__trial_state_names[state] : "unknown";
}

/* ---- Opening ---- */

static tu_status copy_values(tu_study *s) {
    size_t parameters = s->study.space.count;
    s->values = tu__arena_alloc(&s->arena, (s->trials.count * parameters + 1) * sizeof *s->values);
    if (!s->values) return TU_NO_MEMORY;
    for (size_t i = 0; i < s->trials.count; i++)
        for (size_t k = 0; k < parameters; k++) {
            double value = s->trials.trials[i].point.value[k];
            tu__text text = {0};
            if (isnan(value)) continue;
            tu__parameter_format(&s->study.space.parameters[k], value, &text);
            s->values[i * parameters + k] = tu__arena_string(&s->arena, tu__text_string(&text));
            tu__text_free(&text);
            if (!s->values[i * parameters + k]) return TU_NO_MEMORY;
        }
    return TU_OK;
}

/* Makes the paths of run folders. */
static tu_status set_runs(tu_study *s) {
    for (size_t i = 0; i < s->trials.count; i++) {
        tu__trial *t = &s->trials.trials[i];
        char path[8300];
        if (!*t->run) continue;
        snprintf(path, sizeof path, "%s/%s", s->folder, t->run);
        t->run = tu__arena_string(&s->arena, path);
        if (!t->run) return TU_NO_MEMORY;
    }
    return TU_OK;
}

static tu_status open_study(const char *address, const char *name, tu_study *s) {
    tu__study_place place;
    TU_TRY(tu__study_place_find(address, NULL, &place));
    TU_TRY(tu__study_connect(place.address, false, &s->study));
    TU_TRY(tu__study_load(&s->study, name));
    TU_TRY(tu__study_read(&s->study, true, &s->trials));
    snprintf(s->folder, sizeof s->folder, "%s", *place.folder ? place.folder : s->study.plan.folder);
    TU_TRY(set_runs(s));
    return copy_values(s);
}

tu_status tu_study_open(const char *study, const char *name, tu_study **opened) {
    *opened = tu__alloc(sizeof **opened, "a study");
    if (!*opened) return TU_NO_MEMORY;
    (*opened)->arena.purpose = "a study";
    pthread_mutex_init(&(*opened)->study.lock, NULL);
    tu_status status = open_study(study, name, *opened);
    if (status == TU_OK) return TU_OK;
    char message[1200];
    snprintf(message, sizeof message, "%s", tu_message());
    tu_study_free(*opened);
    *opened = NULL;
    return tu_fail(status, "%s", message);
}

void tu_study_free(tu_study *study) {
    if (!study) return;
    tu__trials_free(&study->trials);
    tu__study_close(&study->study);
    tu__arena_free(&study->arena);
    tu__free(study);
}

/* ---- Reading ---- */

bool tu__study_shows_accuracy(const tu_study *study) {
    return strcmp(study->study.plan.objective, "accuracy") == 0;
}

const char *tu__study_value(const tu_study *study, size_t trial, size_t parameter) {
    return study->values[trial * study->study.space.count + parameter];
}

tu_status tu_study_describe(const tu_study *study, tu_study_info *info) {
    TU_TRY(TU__CHECK_SIZED(tu_study_info, info));
    const tu__study_plan *p = &study->study.plan;
    const tu__trial *best = tu__best_trial(&study->trials);
    tu_study_info full = {.name = p->name,
                          .model = p->model,
                          .data = p->data,
                          .space = p->space,
                          .settings = p->settings,
                          .objective = p->objective,
                          .sampler = p->sampler,
                          .pruner = p->pruner,
                          .folder = study->folder,
                          .seed = p->seed,
                          .trial_budget = p->trials,
                          .step_budget = p->steps,
                          .trials = (int64_t)study->trials.count,
                          .parameters = study->study.space.count,
                          .best = best ? best->number : -1,
                          .best_cost = best ? best->cost : (double)NAN,
                          .tested = study->trials.tested,
                          .test_accuracy = study->trials.test_accuracy,
                          .test_loss = study->trials.test_loss};
    int64_t *counts[] = {&full.waiting, &full.running, &full.finished, &full.pruned, &full.failed};
    for (size_t i = 0; i < study->trials.count; i++) {
        ++*counts[study->trials.trials[i].state];
        full.steps += study->trials.trials[i].step;
    }
    TU__COPY_SIZED(info, full);
    return TU_OK;
}

/* Returns NULL after setting the message if there is no such trial. */
static const tu__trial *find_trial(const tu_study *study, size_t index) {
    if (index < study->trials.count) return &study->trials.trials[index];
    tu_fail(TU_NOT_FOUND, "trial index %zu is out of range: the study has %zu trials", index,
            study->trials.count);
    return NULL;
}

tu_status tu_study_get_trial(const tu_study *study, size_t index, tu_study_trial *trial) {
    TU_TRY(TU__CHECK_SIZED(tu_study_trial, trial));
    const tu__trial *t = find_trial(study, index);
    if (!t) return TU_NOT_FOUND;
    tu_study_trial full = {.number = t->number,
                           .attempts = t->attempts,
                           .step = t->step,
                           .steps = t->steps,
                           .state = (tu_trial_state)t->state,
                           .cost = t->cost,
                           .seconds = t->seconds,
                           .worker = t->worker,
                           .run = t->run,
                           .message = t->message,
                           .reports = t->report_count};
    TU__COPY_SIZED(trial, full);
    return TU_OK;
}

tu_status tu_study_get_value(const tu_study *study, size_t index, size_t parameter, const char **name,
                             const char **value) {
    if (!find_trial(study, index)) return TU_NOT_FOUND;
    if (parameter >= study->study.space.count)
        return tu_fail(TU_NOT_FOUND, "parameter index %zu is out of range: the study has %zu parameters",
                       parameter, study->study.space.count);
    *name = study->study.space.parameters[parameter].name;
    *value = tu__study_value(study, index, parameter);
    return TU_OK;
}

tu_status tu_study_get_report(const tu_study *study, size_t index, size_t report, int64_t *step, double *loss,
                              double *accuracy) {
    const tu__trial *t = find_trial(study, index);
    if (!t) return TU_NOT_FOUND;
    if (report >= t->report_count)
        return tu_fail(TU_NOT_FOUND, "report index %zu is out of range: trial %" PRId64 " has %zu reports",
                       report, t->number, t->report_count);
    *step = t->reports[report].step;
    *loss = t->reports[report].loss;
    *accuracy = t->reports[report].accuracy;
    return TU_OK;
}

/* ---- CSV ---- */

/* Writes a field. Quotes are doubled. A spreadsheet takes text that begins with = + - @ for a formula, which may run programs:
 * such text gets an apostrophe, which it shows as text; numbers are left alone. */
static void put_text(FILE *file, const char *text) {
    double number;
    bool is_formula = *text && strchr("=+-@\t\r", *text) && !tu__parse_number(text, &number);
    bool quoted = is_formula || text[strcspn(text, ",\"\r\n'")] != '\0';
    if (!quoted) {
        fputs(text, file);
        return;
    }
    fputs(is_formula ? "\"'" : "\"", file);
    for (; *text; text++) {
        if (*text == '"') fputc('"', file);
        fputc(*text, file);
    }
    fputc('"', file);
}

static void put_number(FILE *file, double number) {
    char text[TU__NUMBER_TEXT];
    if (isnan(number)) return;
    tu__format_number(number, text);
    fputs(text, file);
}

static void export_csv(const tu_study *s, FILE *file) {
    const tu__space *space = &s->study.space;
    fputs("trial,state", file);
    for (size_t k = 0; k < space->count; k++) {
        fputc(',', file);
        put_text(file, space->parameters[k].name);
    }
    fputs(",cost,validation_loss,validation_accuracy,step,steps,seconds,attempts,worker,run,message\n", file);
    for (size_t i = 0; i < s->trials.count; i++) {
        const tu__trial *t = &s->trials.trials[i];
        fprintf(file, "%" PRId64 ",%s", t->number, tu__trial_state_names[t->state]);
        for (size_t k = 0; k < space->count; k++) {
            const char *value = tu__study_value(s, i, k);
            fputc(',', file);
            put_text(file, value ? value : "");
        }
        const tu__report *last = t->report_count ? &t->reports[t->report_count - 1] : NULL;
        const double numbers[] = {t->cost, last ? last->loss : (double)NAN,
                                  last ? last->accuracy : (double)NAN};
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            fputc(',', file);
            put_number(file, numbers[k]);
        }
        fprintf(file, ",%" PRId64 ",%" PRId64 ",", t->step, t->steps);
        put_number(file, t->seconds);
        fprintf(file, ",%" PRId64, t->attempts);
        const char *const texts[] = {t->worker, t->run, t->message};
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            fputc(',', file);
            put_text(file, texts[k]);
        }
        fputc('\n', file);
    }
}

/* ---- JSON ---- */

static void put_trial(tu_json *json, const tu_study *s, size_t index) {
    const tu__trial *t = &s->trials.trials[index];
    const tu__space *space = &s->study.space;
    tu_json_begin_object(json, NULL);
    tu_json_i64(json, "trial", t->number);
    tu_json_string(json, "state", tu__trial_state_names[t->state]);
    tu_json_begin_object(json, "values");
    for (size_t k = 0; k < space->count; k++) {
        const tu__parameter *p = &space->parameters[k];
        if (isnan(t->point.value[k])) continue;
        if (p->choice_count)
            tu_json_string(json, p->name, tu__study_value(s, index, k));
        else
            tu_json_f64(json, p->name, t->point.value[k]);
    }
    tu_json_end_object(json);
    tu_json_f64(json, "cost", t->cost);
    tu_json_i64(json, "step", t->step);
    tu_json_i64(json, "steps", t->steps);
    tu_json_f64(json, "seconds", t->seconds);
    tu_json_i64(json, "attempts", t->attempts);
    tu_json_string(json, "worker", t->worker);
    tu_json_string(json, "run", t->run);
    if (*t->message) tu_json_string(json, "message", t->message);
    tu_json_begin_array(json, "validations");
    for (size_t i = 0; i < t->report_count; i++) {
        tu_json_begin_object(json, NULL);
        tu_json_i64(json, "step", t->reports[i].step);
        tu_json_f64(json, "loss", t->reports[i].loss);
        tu_json_f64(json, "accuracy", t->reports[i].accuracy);
        tu_json_end_object(json);
    }
    tu_json_end_array(json);
    tu_json_end_object(json);
}

static bool export_json(const tu_study *s, FILE *file) {
    const tu__study_plan *p = &s->study.plan;
    tu_json json = tu_json_to_file(file);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "name", p->name);
    tu_json_string(&json, "model", p->model);
    tu_json_string(&json, "data", p->data);
    tu_json_string(&json, "space", p->space);
    tu_json_string(&json, "settings", p->settings);
    tu_json_string(&json, "objective", p->objective);
    tu_json_string(&json, "sampler", p->sampler);
    tu_json_string(&json, "pruner", p->pruner);
    tu_json_i64(&json, "seed", p->seed);
    if (s->trials.tested >= 0) {
        tu_json_i64(&json, "tested", s->trials.tested);
        tu_json_f64(&json, "test_accuracy", s->trials.test_accuracy);
        tu_json_f64(&json, "test_loss", s->trials.test_loss);
    }
    tu_json_begin_array(&json, "trials");
    for (size_t i = 0; i < s->trials.count; i++) put_trial(&json, s, i);
    tu_json_end_array(&json);
    tu_json_end_object(&json);
    fputc('\n', file);
    return tu_json_finish(&json);
}

tu_status tu_study_export(const tu_study *study, const char *format, FILE *file) {
    static const char *const formats[] = {"csv", "json", NULL};
    size_t index;
    bool written = true;
    TU_TRY(tu__choice_find("--export", format, formats, &index));
    if (index == 0)
        export_csv(study, file);
    else
        written = export_json(study, file);
    if (written && !ferror(file)) return TU_OK;
    return tu_fail(TU_IO, "cannot write the trials of study '%s'", study->study.plan.name);
}
