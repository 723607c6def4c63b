/* Maps parameters of a space to settings of tutti/settings.def. See trial_options.h. */
#include "tune/trial_options.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <tutti/network.h>

#include "base/choice.h"
#include "base/json.h"
#include "base/json_read.h"
#include "base/parse_integer.h"
#include "train/settings.h"

/* ---- The settings ---- */

typedef enum kind { COUNT, SIZE, NUMBER, SWITCH, FLAG, TEXT } kind;

typedef struct setting {
    const char *name; /* the option's */
    kind kind;
    size_t offset; /* in tu_train_options */
    double minimum, maximum;
} setting;

static const setting settings[] = {
#define TU_SETTING(kind, field, option, letter, argument, default_value, minimum, maximum, group, help)      \
    {option, kind, offsetof(tu_train_options, field), (double)(minimum), (double)(maximum)},
#include <tutti/settings.def>
#undef TU_SETTING
};
enum { SETTINGS = sizeof settings / sizeof *settings };

static bool is_one_of(const char *name, const char *const *names) {
    while (*names && strcmp(*names, name) != 0) names++;
    return *names != NULL;
}

/* Where a trial runs, which does not change what it computes but for rounding. */
static bool is_local(const setting *s) {
    static const char *const local[] = {"devices",
                                        "threads",
                                        "memory-limit",
                                        "gpu-memory-limit",
                                        "gpu-memory-reserve",
                                        "tune-kernels",
                                        "timeout",
                                        "stack",
                                        NULL};
    return is_one_of(s->name, local);
}

/* A trial trains on one device, and its validation split must be the same as that of the others. */
static bool may_vary(const setting *s) {
    static const char *const fixed[] = {
        "strategy",   "central",    "place",        "strict-placement", "lock",      "keep",
        "validation", "skip-bad",   "ignore-label", "checkpoint-every", "network",   "task",
        "target",     "categories", "drop",         "header",           "invariant", "snapshots",
        NULL};
    return !is_local(s) && !is_one_of(s->name, fixed);
}

static const setting *find_setting(const char *name) {
    for (size_t i = 0; i < SETTINGS; i++)
        if (strcmp(settings[i].name, name) == 0) return &settings[i];
    return NULL;
}

static void *field_of(const setting *s, tu_train_options *options) {
    return (char *)options + s->offset;
}

/* ---- Setting an option ---- */

static tu_status fail_value(const setting *s, const char *text, const char *expected) {
    return tu_fail(TU_INVALID, "parameter '%s': '%.60s': expected %s", s->name, text, expected);
}

static tu_status set_switch(const setting *s, const char *text, int *field) {
    bool yes = strcmp(text, "yes") == 0;
    if (!yes && strcmp(text, "no") != 0) return fail_value(s, text, "yes or no");
    *field = yes ? 1 : TU_ZERO;
    return TU_OK;
}

static tu_status check_bounds(const setting *s, double number) {
    if (number >= s->minimum && number <= s->maximum) return TU_OK;
    return tu_fail(TU_INVALID, "parameter '%s': %.10g is outside of the setting's range, %.10g to %.10g",
                   s->name, number, s->minimum, s->maximum);
}

/* In tu_train_options a negative number means 0. */
static tu_status set_field(const setting *s, const char *text, tu__arena *arena, tu_train_options *options) {
    void *field = field_of(s, options);
    int64_t integer;
    double number;
    switch (s->kind) {
    case COUNT:
    case SIZE:
        if (!tu__parse_integer(text, &integer)) return fail_value(s, text, "an integer");
        *(int64_t *)field = integer ? integer : TU_ZERO;
        return check_bounds(s, (double)integer);
    case NUMBER:
        if (!tu__parse_number(text, &number)) return fail_value(s, text, "a number");
        *(double *)field = number != 0 ? number : TU_ZERO;
        return check_bounds(s, number);
    case SWITCH:
    case FLAG: return set_switch(s, text, field);
    case TEXT:
        *(const char **)field = tu__arena_string(arena, text);
        return *(const char **)field ? TU_OK : TU_NO_MEMORY;
    }
    return TU_OK;
}

/* Appends a parameter of the network to --network. */
static tu_status add_network_parameter(const tu__parameter *p, double value, tu__arena *arena,
                                       tu_train_options *options) {
    tu__text text = {0};
    tu__text_printf(&text, "%s%s%s=", options->network ? options->network : "",
                    options->network && *options->network ? "," : "", p->name);
    tu__parameter_format(p, value, &text);
    options->network = tu__arena_string(arena, tu__text_string(&text));
    tu__text_free(&text);
    return options->network ? TU_OK : TU_NO_MEMORY;
}

tu_status tu__trial_options_set(const tu__space *space, const tu__point *point, tu__arena *arena,
                                tu_train_options *options) {
    tu_status status = TU_OK;
    for (size_t i = 0; status == TU_OK && i < space->count; i++) {
        const tu__parameter *p = &space->parameters[i];
        const setting *s = find_setting(p->name);
        if (isnan(point->value[i])) continue;
        if (!s) {
            status = add_network_parameter(p, point->value[i], arena, options);
            continue;
        }
        tu__text text = {0};
        if (s->kind == COUNT && !p->choice_count)
            tu__text_printf(&text, "%.0f", point->value[i]);
        else
            tu__parameter_format(p, point->value[i], &text);
        status = set_field(s, tu__text_string(&text), arena, options);
        tu__text_free(&text);
    }
    return status;
}

void tu__point_print(const tu__space *space, const tu__point *point, tu__text *text) {
    const char *separator = "";
    for (size_t i = 0; i < space->count; i++) {
        const tu__parameter *p = &space->parameters[i];
        if (isnan(point->value[i])) continue;
        tu__text_printf(text, "%s%s=", separator, p->name);
        if (p->choice_count)
            tu__parameter_format(p, point->value[i], text);
        else
            tu__text_printf(text, "%.4g", point->value[i]);
        separator = " ";
    }
}

/* ---- Checking a space ---- */

static tu_status fail_unknown(const char *name) {
    const char *names[SETTINGS];
    size_t count = 0;
    for (size_t i = 0; i < SETTINGS; i++)
        if (may_vary(&settings[i])) names[count++] = settings[i].name;
    const char *nearest = tu_nearest_name(name, names, count);
    return tu_fail(
        TU_INVALID,
        "parameter '%s' is neither a setting of 'tutti train' that may vary nor a parameter of the network%s%s%s",
        name, nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

static bool is_given(const setting *s, const tu_train_options *options) {
    const void *field = (const char *)options + s->offset;
    if (s->kind == TEXT) return *(const char *const *)field != NULL;
    if (s->kind == NUMBER) return *(const double *)field != 0;
    return s->kind == SWITCH || s->kind == FLAG ? *(const int *)field != 0 : *(const int64_t *)field != 0;
}

static bool find_network_parameter(const char *network, const char *name, tu_network_parameter *found) {
    for (size_t i = 0; tu_network_get_parameter(network, i, found) == TU_OK; i++)
        if (strcmp(found->name, name) == 0) return true;
    return false;
}

static tu_status check_network_value(const tu__parameter *p, const tu_network_parameter *declared,
                                     double value) {
    if (value >= declared->minimum && value <= declared->maximum) return TU_OK;
    return tu_fail(TU_INVALID,
                   "parameter '%s': %.10g is outside of the range of the network's parameter, %.10g to %.10g",
                   p->name, value, declared->minimum, declared->maximum);
}

static tu_status check_network_parameter(tu__parameter *p, const tu_network_parameter *declared,
                                         const tu_train_options *fixed) {
    size_t length = strlen(p->name);
    for (const char *at = fixed->network; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strncmp(at, p->name, length) == 0 && at[length] == '=')
            return tu_fail(TU_INVALID, "--network fixes '%s', but the space varies it: remove one of both",
                           p->name);
    if (declared->whole) TU_TRY(tu__space_make_whole(p));
    for (size_t i = 0; i < p->choice_count; i++) {
        double value;
        if (!tu__parse_number(p->choices[i], &value))
            return tu_fail(TU_INVALID, "parameter '%s': '%.60s': expected a number", p->name, p->choices[i]);
        TU_TRY(check_network_value(p, declared, value));
    }
    if (p->choice_count) return TU_OK;
    TU_TRY(check_network_value(p, declared, p->low));
    return check_network_value(p, declared, p->high);
}

static tu_status check_parameter(tu__parameter *p, const char *network, const tu_train_options *fixed) {
    const setting *s = find_setting(p->name);
    tu_network_parameter declared;
    if (!s && find_network_parameter(network, p->name, &declared))
        return check_network_parameter(p, &declared, fixed);
    if (!s) return fail_unknown(p->name);
    if (!may_vary(s))
        return tu_fail(TU_INVALID,
                       "parameter '%s': this setting must be the same for all trials: give it as --%s",
                       p->name, p->name);
    if (is_given(s, fixed))
        return tu_fail(TU_INVALID, "--%s is fixed, but the space varies it: remove one of both", p->name);
    bool has_range = p->choice_count == 0;
    if (has_range && (s->kind == TEXT || s->kind == SWITCH || s->kind == FLAG))
        return tu_fail(TU_INVALID, "parameter '%s': a range: expected values, as in A|B", p->name);
    if (s->kind == COUNT || s->kind == SIZE) TU_TRY(tu__space_make_whole(p));
    if (!has_range) return TU_OK;
    TU_TRY(check_bounds(s, p->low));
    return check_bounds(s, p->high);
}

/* Fails if no trial can have the value of a choice: the settings of some random points with it are resolved. */
static tu_status check_choice(const tu__space *space, const char *network, const tu_train_options *fixed,
                              size_t index, size_t choice) {
    enum { TRIES = 16 };
    tu__arena arena = {.purpose = "settings of a trial"};
    tu_status status = TU_INVALID;
    bool used = false;
    for (uint32_t i = 0; i < TRIES && status == TU_INVALID; i++) {
        tu_train_options options = *fixed;
        tu__settings resolved;
        tu__point point;
        for (size_t k = 0; k < space->count; k++) {
            const tu__parameter *p = &space->parameters[k];
            double unit = (0.5 + (double)((i * (k + 1) * 7 + k) % TRIES)) / TRIES;
            if (k < index) { /* the conditions of the parameter must hold */
                const tu__parameter *wanted = &space->parameters[index];
                for (size_t c = 0; c < wanted->condition_count; c++)
                    if (wanted->conditions[c].parent == k && p->choice_count)
                        unit = ((double)__builtin_ctzll(wanted->conditions[c].values) + 0.5) /
                               (double)p->choice_count;
            }
            point.value[k] = !tu__space_uses(space, k, &point) ? (double)NAN
                             : k == index                      ? (double)choice
                                                               : tu__parameter_value(p, unit);
        }
        if (isnan(point.value[index])) continue;
        used = true;
        status = tu__trial_options_set(space, &point, &arena, &options);
        if (status == TU_OK) status = tu__settings_resolve(network, &options, &arena, &resolved);
        if (status == TU_NOT_FOUND) status = TU_INVALID;
    }
    tu__arena_free(&arena);
    if (status == TU_OK || !used) return TU_OK;
    char message[600];
    snprintf(message, sizeof message, "%s", tu_message());
    return tu_fail(status, "parameter '%s', value '%s': %s", space->parameters[index].name,
                   space->parameters[index].choices[choice], message);
}

tu_status tu__trial_options_check(tu__space *space, const char *network, const tu_train_options *fixed) {
    TU_TRY(tu__space_check(space));
    for (size_t i = 0; i < space->count; i++) TU_TRY(check_parameter(&space->parameters[i], network, fixed));
    for (size_t i = 0; i < space->count; i++)
        for (size_t k = 0; k < space->parameters[i].choice_count; k++)
            TU_TRY(check_choice(space, network, fixed, i, k));
    return TU_OK;
}

/* ---- Fixed settings as JSON ---- */

const char *tu__fixed_setting_given(const tu_train_options *given) {
    if (given->recipe) return "--recipe";
    if (given->init) return "--init";
    for (size_t i = 0; i < SETTINGS; i++)
        if (!is_local(&settings[i]) && is_given(&settings[i], given)) return tu__setting_option(i);
    return NULL;
}

void tu__fixed_settings_write(const tu_train_options *fixed, tu__text *text) {
    tu_json json = tu__json_to_text(text);
    tu_json_begin_object(&json, NULL);
    if (fixed->recipe) tu_json_string(&json, "recipe", fixed->recipe);
    if (fixed->init) tu_json_string(&json, "init", fixed->init);
    for (size_t i = 0; i < SETTINGS; i++) {
        const setting *s = &settings[i];
        const void *field = (const char *)fixed + s->offset;
        if (is_local(s) || !is_given(s, fixed)) continue;
        switch (s->kind) {
        case COUNT:
        case SIZE: tu_json_i64(&json, s->name, *(const int64_t *)field); break;
        case NUMBER: tu_json_f64(&json, s->name, *(const double *)field); break;
        case SWITCH:
        case FLAG: tu_json_i64(&json, s->name, *(const int *)field); break;
        case TEXT: tu_json_string(&json, s->name, *(const char *const *)field); break;
        }
    }
    tu_json_end_object(&json);
}

static tu_status read_text(const tu__json_value *value, tu__arena *arena, const char **field) {
    *field = tu__arena_string(arena, value->string);
    return *field ? TU_OK : TU_NO_MEMORY;
}

static tu_status read_member(const char *name, const tu__json_value *value, tu__arena *arena,
                             tu_train_options *fixed) {
    const setting *s = find_setting(name);
    bool is_text = value->kind == TU__JSON_STRING;
    if (strcmp(name, "recipe") == 0 && is_text) return read_text(value, arena, &fixed->recipe);
    if (strcmp(name, "init") == 0 && is_text) return read_text(value, arena, &fixed->init);
    if (!s || is_text != (s->kind == TEXT) || (!is_text && value->kind != TU__JSON_NUMBER))
        return tu_fail(TU_CORRUPT,
                       "the settings of the study have '%.60s', which this version of Tutti does not know",
                       name);
    void *field = field_of(s, fixed);
    switch (s->kind) {
    case COUNT:
    case SIZE: *(int64_t *)field = value->integer; break;
    case NUMBER: *(double *)field = value->number; break;
    case SWITCH:
    case FLAG: *(int *)field = value->integer < 0 ? -1 : value->integer > 0; break;
    case TEXT: return read_text(value, arena, field);
    }
    return TU_OK;
}

tu_status tu__fixed_settings_read(const char *text, tu__arena *arena, tu_train_options *fixed) {
    const tu__json_value *object;
    TU_TRY(tu__json_parse(arena, "settings of the study", text, strlen(text), &object));
    for (size_t i = 0; i < object->count; i++)
        TU_TRY(read_member(object->keys[i], &object->values[i], arena, fixed));
    return TU_OK;
}
