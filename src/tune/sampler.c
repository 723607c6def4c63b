/* The list of samplers, and the two that need no memory of earlier trials nor a sequence: grid and random. */
#include "tune/sampler.h"

#include <math.h>
#include <string.h>

#include "base/choice.h"
#include "base/philox.h"

static const tu__sampler *const samplers[] = {&tu__sample_tpe, &tu__sample_random, &tu__sample_sobol,
                                              &tu__sample_grid};
enum { SAMPLERS = sizeof samplers / sizeof *samplers };

tu_status tu__sampler_find(const char *name, const tu__sampler **sampler) {
    const char *names[SAMPLERS + 1] = {0};
    size_t index;
    for (size_t i = 0; i < SAMPLERS; i++) names[i] = samplers[i]->name;
    TU_TRY(tu__choice_find("--sampler", name, names, &index));
    *sampler = samplers[index];
    return TU_OK;
}

double tu__trial_random(uint64_t seed, int64_t trial, uint32_t purpose, uint32_t index) {
    const uint32_t counter[4] = {(uint32_t)trial, (uint32_t)((uint64_t)trial >> 32), purpose, index};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t bits[4];
    tu__philox4x32(counter, key, bits);
    return ldexp((double)(((uint64_t)bits[0] << 32 | bits[1]) >> 11), -53);
}

void tu__point_from_units(const tu__space *space, const double *units, tu__point *point) {
    for (size_t i = 0; i < space->count; i++)
        point->value[i] = tu__space_uses(space, i, point)
                              ? tu__parameter_value(&space->parameters[i], units[i])
                              : (double)NAN;
}

/* ---- Random ---- */

static tu_status sample_random(const tu__history *history, int64_t trial, tu__point *point) {
    double units[TU__MAX_PARAMETERS];
    for (size_t i = 0; i < history->space->count; i++)
        units[i] = tu__trial_random(history->seed, trial, 0, (uint32_t)i);
    tu__point_from_units(history->space, units, point);
    return TU_OK;
}

const tu__sampler tu__sample_random = {.name = "random", .sample = sample_random};

/* ---- Grid ----
 *
 * The last parameter varies fastest. Parameters that are not used take no part, so that no point occurs twice. */

/* Sets `point` to the first point that has the given values of the first `count` parameters. */
static void first_point(const tu__space *space, size_t count, tu__point *point) {
    for (size_t i = count; i < space->count; i++)
        point->value[i] =
            tu__space_uses(space, i, point) ? tu__parameter_value(&space->parameters[i], 0) : (double)NAN;
}

/* Moves to the next point; false after the last. */
static bool next_point(const tu__space *space, tu__point *point) {
    for (size_t i = space->count; i-- > 0;) {
        if (isnan(point->value[i])) continue;
        if (!tu__parameter_next(&space->parameters[i], &point->value[i])) continue;
        first_point(space, i + 1, point);
        return true;
    }
    return false;
}

tu_status tu__grid_check(const tu__space *space) {
    for (size_t i = 0; i < space->count; i++)
        if (tu__parameter_values(&space->parameters[i]) == 0)
            return tu_fail(
                TU_INVALID,
                "--sampler grid: parameter '%s' has no number of values: expected LOW:HIGH/N or A|B|C",
                space->parameters[i].name);
    return TU_OK;
}

int64_t tu__grid_size(const tu__space *space, int64_t most) {
    tu__point point;
    int64_t count = 0;
    if (tu__grid_check(space) != TU_OK) return 0;
    first_point(space, 0, &point);
    for (bool more = true; more && count < most; more = next_point(space, &point)) count++;
    return count;
}

static tu_status sample_grid(const tu__history *history, int64_t trial, tu__point *point) {
    TU_TRY(tu__grid_check(history->space));
    first_point(history->space, 0, point);
    for (int64_t i = 0; i < trial; i++)
        if (!next_point(history->space, point))
            return tu_fail(TU_NOT_FOUND, "the grid has %lld points, all of which are tried",
                           (long long)i + 1);
    return TU_OK;
}

const tu__sampler tu__sample_grid = {.name = "grid", .sample = sample_grid};
