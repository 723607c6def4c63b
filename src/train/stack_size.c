/* Measures how many members of an ensemble a device should train at once. See stack_size.h.
 *
 * A step of 1, 2, 4, … members is timed with real programs and images of the data set, so that the choice is right for
 * the network, the batch size, the precision and the device. A number that does not fit the device ends the series. */
#include "train/stack_size.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/parse_integer.h"
#include "data/dataset.h"
#include "graph/graph.h"
#include "train/ensemble.h"
#include "train/stack_programs.h"

enum { BLOCKS = 5 };
#define BLOCK_SECONDS 0.04
#define WORTHWHILE 0.97 /* a larger stack must take at most this fraction of the time per member */

/* ---- The setting ---- */

tu_status tu__stack_setting_check(const char *setting) {
    int64_t number;
    if (!*setting || strcmp(setting, "auto") == 0) return TU_OK;
    if (tu__parse_integer(setting, &number) && number >= 1 && number <= TU_MAX_ENSEMBLE) return TU_OK;
    return tu_fail(TU_INVALID, "--stack '%.60s': expected a number of members from 1 to %d, or auto", setting,
                   TU_MAX_ENSEMBLE);
}

int64_t tu__stack_setting_number(const char *setting) {
    int64_t number = 1;
    if (strcmp(setting, "auto") == 0) return 0;
    return *setting && tu__parse_integer(setting, &number) ? number : 1;
}

/* ---- Measuring ---- */

/* Selects images of the data set for all steps and members. */
static tu_status fill_inputs(tu__stack_programs *p, const tu_dataset *dataset) {
    int64_t samples = p->full.samples, images = tu__dataset_indices(dataset, TU_TRAIN);
    for (int64_t step = 0; step < p->capacity; step++)
        for (int64_t place = 0; place < p->places; place++)
            for (int64_t i = 0; i < samples; i++) {
                int64_t at = (step * p->places + place) * samples + i, image = at % images;
                p->ordinals[at] = step * samples + i;
                p->indices[at] = image;
                if (p->feeder.has_tables) continue;
                void *elements[TU_MAX_COLUMNS];
                for (size_t c = 0; c < p->feeder.columns->count; c++)
                    elements[c] = p->columns[c] + (size_t)at * p->feeder.columns->column[c].bytes;
                TU_TRY(tu_dataset_read_columns(dataset, TU_TRAIN, image, elements));
            }
    return TU_OK;
}

/* Stores the shortest time of a step of several blocks. */
static tu_status time_steps(tu__stack_programs *p, double *seconds) {
    int64_t steps = 1;
    TU_TRY(tu__stack_programs_run(p, &p->full, 1));
    double start = tu__now();
    TU_TRY(tu__stack_programs_run(p, &p->full, 1));
    double once = tu__now() - start;
    if (once < BLOCK_SECONDS) steps = (int64_t)(BLOCK_SECONDS / (once > 1e-6 ? once : 1e-6));
    if (steps > p->capacity) steps = p->capacity;
    if (steps < 1) steps = 1;
    *seconds = once;
    for (int block = 0; block < BLOCKS; block++) {
        start = tu__now();
        TU_TRY(tu__stack_programs_run(p, &p->full, steps));
        double each = (tu__now() - start) / (double)steps;
        if (each < *seconds) *seconds = each;
    }
    return TU_OK;
}

static uint64_t peak_bytes(const tu_program *program) {
    tu_memory_report report = TU_SIZED(tu_memory_report);
    return tu_program_memory(program, 0, &report) == TU_OK ? report.need_bytes : 0;
}

static tu_status measure(tu__trainer *one, int64_t members, tu_stack_time *time) {
    tu__stack_programs programs;
    tu__trainer **trainers = tu__alloc_array((size_t)members, sizeof *trainers, "a stack");
    if (!trainers) return TU_NO_MEMORY;
    for (int64_t i = 0; i < members; i++) trainers[i] = one;
    tu_status status = tu__stack_programs_open(&programs, members, trainers, one->dataset);
    if (status == TU_OK) status = fill_inputs(&programs, one->dataset);
    *time = (tu_stack_time){.members = members};
    if (status == TU_OK) status = time_steps(&programs, &time->seconds);
    if (status == TU_OK) time->bytes = peak_bytes(programs.full.program);
    tu__stack_programs_close(&programs);
    tu__free(trainers);
    return status;
}

tu_status tu__stack_measure(const tu__trainer *planned, int64_t most, tu_stack_time *times, size_t *count) {
    tu__trainer one = *planned;
    *count = 0;
    TU_TRY(tu__stepper_state(&planned->stepper, &planned->config, &one.state));
    tu_status status = TU_OK;
    int64_t members = 1;
    while (status == TU_OK && *count < TU__MAX_STACK_TIMES) {
        status = measure(&one, members, &times[*count]);
        if (status == TU_OK) ++*count;
        if (members >= most) break;
        members = 2 * members < most ? 2 * members : most;
    }
    tu_state_free(one.state);
    bool is_full = status == TU_NO_MEMORY && *count > 0;
    return is_full ? TU_OK : status;
}

static double per_member(const tu_stack_time *time) {
    return time->seconds / (double)time->members;
}

int64_t tu__stack_fastest(size_t count, const tu_stack_time *times) {
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        if (per_member(&times[i]) < WORTHWHILE * per_member(&times[best])) best = i;
    return count ? times[best].members : 1;
}

/* Plans and compiles one member on the first device, like ensemble.c. */
static tu_status open_member(tu__trainer *planned, const char *model, const char *data, tu_train_options *o) {
    tu__device_spec devices[TU__MAX_DEVICES];
    size_t device_count;
    TU_TRY(tu__device_specs(o->devices, &device_count, devices));
    o->devices = devices[0].text;
    TU_TRY(tu__trainer_plan(planned, model, data, o, NULL));
    tu__stepper_close(&planned->stepper);
    return tu__stepper_open(&planned->graphs, &planned->config, &planned->stepper);
}

tu_status tu_measure_stacks_with(const char *model, const char *data, int64_t members, size_t capacity,
                                 tu_stack_time *times, size_t *count, int64_t *fastest,
                                 const tu_train_options *options) {
    tu_stack_time all[TU__MAX_STACK_TIMES];
    tu__trainer planned = {0};
    TU__OPTIONS(tu_train_options, o, options);
    o.out = NULL;
    o.resume = false;
    *count = 0;
    if (members < 1 || members > TU_MAX_ENSEMBLE)
        return tu_fail(TU_INVALID, "%lld members: expected 1 to %d", (long long)members, TU_MAX_ENSEMBLE);
    tu_status status = open_member(&planned, model, data, &o);
    if (status == TU_OK) status = tu__stack_measure(&planned, members, all, count);
    tu__trainer_end(&planned);
    TU_TRY(status);
    *fastest = tu__stack_fastest(*count, all);
    for (size_t i = 0; i < *count && i < capacity; i++) times[i] = all[i];
    return TU_OK;
}
