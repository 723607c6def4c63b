/* Resolves, writes and reads the settings of a run. See settings.h.
 *
 * Everything works row by row on one table made from tutti/settings.def: a new setting needs only a row there. */
#include "train/settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/choice.h"
#include "base/parse_integer.h"
#include "graph/graph.h"
#include "optim/update_rules.h"
#include "pass/choices.h"
#include "train/stack_size.h"

enum kind { COUNT, NUMBER, SWITCH, TEXT, SIZE = COUNT, FLAG = SWITCH };

typedef struct setting {
    enum kind kind;
    const char *name;        /* name of the field, and the key in config.json */
    const char *option_name; /* command-line option, for messages */
    size_t offset;           /* offset in tu__settings */
    size_t option_offset;    /* offset in tu_train_options */
    double number;           /* default */
    const char *text;        /* default of a TEXT */
    double min, max;
} setting;

#define DEFAULTS_COUNT(default_value) .number = (double)(default_value)
#define DEFAULTS_SIZE(default_value) .number = (double)(default_value)
#define DEFAULTS_NUMBER(default_value) .number = (default_value)
#define DEFAULTS_SWITCH(default_value) .number = (default_value)
#define DEFAULTS_FLAG(default_value) .number = (default_value)
#define DEFAULTS_TEXT(default_value) .text = (default_value)

static const setting table[] = {
#define TU_SETTING(kind_, field, option, letter, argument, default_value, min_, max_, group, help)           \
    {.kind = kind_,                                                                                          \
     .name = #field,                                                                                         \
     .option_name = "--" option,                                                                             \
     .offset = offsetof(tu__settings, field),                                                                \
     .option_offset = offsetof(tu_train_options, field),                                                     \
     DEFAULTS_##kind_(default_value),                                                                        \
     .min = (double)(min_),                                                                                  \
     .max = (double)(max_)},
#include <tutti/settings.def>
#undef TU_SETTING
};
enum { SETTING_COUNT = sizeof table / sizeof *table };

/* ---- Access to fields ---- */

static void *field_of(const setting *s, tu__settings *settings) {
    return (char *)settings + s->offset;
}

static const void *option_in(const setting *s, const tu_train_options *options) {
    return (const char *)options + s->option_offset;
}

/* Returns the value of a numeric field. */
static double number_of(const setting *s, const void *field) {
    switch (s->kind) {
    case COUNT: return (double)*(const int64_t *)field;
    case NUMBER: return *(const double *)field;
    case SWITCH: return *(const int *)field;
    case TEXT: break;
    }
    return 0;
}

static bool is_given(const setting *s, const void *field) {
    return s->kind == TEXT ? *(const char *const *)field != NULL : number_of(s, field) != 0;
}

static tu_status store_text(void *field, const char *text, tu__arena *arena) {
    char *copy = tu__arena_string(arena, text);
    if (!copy) return TU_NO_MEMORY;
    *(const char **)field = copy;
    return TU_OK;
}

/* Stores an option in a field of tu__settings. In options 0 means "not given" and a negative number means 0. */
static tu_status set_from_option(const setting *s, const void *given, void *field, tu__arena *arena) {
    switch (s->kind) {
    case COUNT: {
        int64_t count = *(const int64_t *)given;
        *(int64_t *)field = count < 0 ? 0 : count;
        return TU_OK;
    }
    case NUMBER: {
        double number = *(const double *)given;
        *(double *)field = number < 0 ? 0 : number;
        return TU_OK;
    }
    case SWITCH: *(int *)field = *(const int *)given > 0; return TU_OK;
    case TEXT: return store_text(field, *(const char *const *)given, arena);
    }
    return TU_OK;
}

static tu_status set_default(const setting *s, void *field, tu__arena *arena) {
    switch (s->kind) {
    case COUNT: *(int64_t *)field = (int64_t)s->number; return TU_OK;
    case NUMBER: *(double *)field = s->number; return TU_OK;
    case SWITCH: *(int *)field = (int)s->number; return TU_OK;
    case TEXT: return store_text(field, s->text, arena);
    }
    return TU_OK;
}

static tu_status check_range(const setting *s, const void *field) {
    if (s->kind == TEXT) return TU_OK;
    double number = number_of(s, field);
    if (number >= s->min && number <= s->max) return TU_OK;
    return tu_fail(TU_INVALID, "%s %.10g: expected %s from %.10g to %.10g", s->option_name, number,
                   s->kind == NUMBER ? "a number" : "an integer", s->min, s->max);
}

/* Settings with a fixed list of values. */
static const char *const batch_norms[] = {"global", "replica", "shard", NULL};
static const struct {
    const char *option_name;
    size_t offset;            /* offset in tu__settings */
    const char *const *names; /* ends with NULL */
} choices[] = {
    {"--precision", offsetof(tu__settings, precision), tu__precision_names},
    {"--strategy", offsetof(tu__settings, strategy), tu__strategy_names},
    {"--batch-norm", offsetof(tu__settings, batch_norm), batch_norms},
};

/* Checks the settings with fixed values. An empty strategy means the default (compile_options.h). */
static tu_status check_choices(const tu__settings *settings) {
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const char *given = *(const char *const *)((const char *)settings + choices[i].offset);
        bool is_default = choices[i].offset == offsetof(tu__settings, strategy) && !*given;
        size_t found;
        if (!is_default) TU_TRY(tu__choice_find(choices[i].option_name, given, choices[i].names, &found));
    }
    return TU_OK;
}

/* Bit-identical results need one thread per shard, because the bits depend on the number of threads. */
static tu_status check_invariant(const tu__settings *s) {
    if (!s->invariant || s->threads <= 1) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "--invariant %" PRId64 " cannot be combined with --threads %" PRId64
        ": each shard uses one thread; to use more cores, split the CPU with --devices cpu:0/%" PRId64,
        s->invariant, s->threads, s->threads);
}

/* The step and exponential schedules need --rate-every, which has no useful default. */
static tu_status check_schedule(const tu__settings *s) {
    bool needs_period = strcmp(s->schedule, "step") == 0 || strcmp(s->schedule, "exponential") == 0;
    if (!needs_period || s->rate_every > 0) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "--schedule %s needs --rate-every: the number of epochs after which the learning rate is multiplied by --rate-factor (%g), for example --rate-every 30",
        s->schedule, s->rate_factor);
}

tu_status tu__read_ignore_label(const char *text, bool *given, int64_t *label) {
    *given = text && *text;
    if (!*given || tu__parse_integer(text, label)) return TU_OK;
    return tu_fail(TU_INVALID, "--ignore-label '%.60s': expected an integer", text);
}

/* Validates --validation: below 1 it is a fraction, from 2 on a number of images. Also validates --ignore-label. */
static tu_status check_validation(const tu__settings *s) {
    bool label_given;
    int64_t label;
    TU_TRY(tu__read_ignore_label(s->ignore_label, &label_given, &label));
    double v = s->validation;
    if (v < 1 || (v >= 2 && v == floor(v))) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "--validation %.10g: expected a fraction below 1 (for example 0.1), a number of images of at least 2, or 0 for none",
        v);
}

static tu_status check_settings(tu__settings *settings) {
    for (size_t i = 0; i < SETTING_COUNT; i++) TU_TRY(check_range(&table[i], field_of(&table[i], settings)));
    TU_TRY(check_invariant(settings));
    TU_TRY(check_schedule(settings));
    TU_TRY(check_validation(settings));
    TU_TRY(tu__stack_setting_check(settings->stack));
    return check_choices(settings);
}

/* ---- Resolving ---- */

static tu_status apply_options(tu__settings *settings, const tu_train_options *given, tu__arena *arena) {
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const void *field = option_in(&table[i], given);
        if (is_given(&table[i], field))
            TU_TRY(set_from_option(&table[i], field, field_of(&table[i], settings), arena));
    }
    return TU_OK;
}

static tu_status set_defaults(tu__settings *settings, tu__arena *arena) {
    for (size_t i = 0; i < SETTING_COUNT; i++)
        TU_TRY(set_default(&table[i], field_of(&table[i], settings), arena));
    return TU_OK;
}

/* Without a given momentum, uses the optimizer's default: rmsprop has none. */
static tu_status choose_momentum(tu__settings *settings, const tu_train_options *recipe,
                                 const tu_train_options *given) {
    const tu__update_rule *rule = tu__update_rule_find(settings->optimizer);
    if (!rule) return TU_INVALID;
    if (recipe->momentum == 0 && given->momentum == 0) settings->momentum = rule->momentum;
    return TU_OK;
}

tu_status tu__settings_resolve(const char *model, const tu_train_options *given, tu__arena *arena,
                               tu__settings *settings) {
    *settings = (tu__settings){0};
    const char *name = given->recipe ? given->recipe : "quick";
    const tu_train_options *recipe = tu__recipe_find(name, model);
    if (!recipe) return TU_NOT_FOUND;
    settings->recipe = tu__arena_string(arena, name);
    if (!settings->recipe) return TU_NO_MEMORY;
    TU_TRY(set_defaults(settings, arena));
    TU_TRY(apply_options(settings, recipe, arena));
    TU_TRY(apply_options(settings, given, arena));
    TU_TRY(choose_momentum(settings, recipe, given));
    return check_settings(settings);
}

/* Stores a field as an option, where a negative number means 0. */
static void set_option(const setting *s, const void *field, void *given) {
    switch (s->kind) {
    case COUNT: *(int64_t *)given = *(const int64_t *)field ? *(const int64_t *)field : -1; break;
    case NUMBER: *(double *)given = *(const double *)field != 0 ? *(const double *)field : -1; break;
    case SWITCH: *(int *)given = *(const int *)field ? 1 : -1; break;
    case TEXT: *(const char **)given = *(const char *const *)field; break;
    }
}

void tu__settings_as_options(const tu__settings *settings, tu_train_options *options) {
    options->recipe = settings->recipe;
    for (size_t i = 0; i < SETTING_COUNT; i++)
        set_option(&table[i], (const char *)settings + table[i].offset,
                   (char *)options + table[i].option_offset);
}

/* ---- Resuming ---- */

static bool may_change(const setting *s) {
    static const char *const changeable[] = {"devices",
                                             "strategy",
                                             "central",
                                             "bf16_gradients",
                                             "place",
                                             "strict_placement",
                                             "lock",
                                             "threads",
                                             "memory_limit",
                                             "gpu_memory_limit",
                                             "gpu_memory_reserve",
                                             "keep",
                                             "checkpoint_every",
                                             "tune_kernels",
                                             "timeout"};
    for (size_t i = 0; i < sizeof changeable / sizeof *changeable; i++)
        if (strcmp(s->name, changeable[i]) == 0) return true;
    return false;
}

/* Counts are compared as integers: a double cannot represent all large seeds. */
static bool same_value(const setting *s, const void *a, const void *b) {
    if (s->kind == TEXT) return strcmp(*(const char *const *)a, *(const char *const *)b) == 0;
    if (s->kind == COUNT) return *(const int64_t *)a == *(const int64_t *)b;
    return number_of(s, a) == number_of(s, b);
}

static tu_status fail_change(const setting *s, const void *field, const void *requested) {
    if (s->kind == TEXT)
        return tu_fail(
            TU_INVALID,
            "--resume cannot change %s to '%s': the run was started with '%s'; remove the option, or start a new run",
            s->option_name, *(const char *const *)requested, *(const char *const *)field);
    if (s->kind == COUNT)
        return tu_fail(TU_INVALID,
                       "--resume cannot change %s to %" PRId64 ": the run was started with %" PRId64
                       "; remove the option, or start a new run",
                       s->option_name, *(const int64_t *)requested, *(const int64_t *)field);
    return tu_fail(
        TU_INVALID,
        "--resume cannot change %s to %.10g: the run was started with %.10g; remove the option, or start a new run",
        s->option_name, number_of(s, requested), number_of(s, field));
}

static tu_status resume_setting(const setting *s, tu__settings *settings, const tu_train_options *given,
                                tu__arena *arena) {
    const void *requested = option_in(s, given);
    if (!is_given(s, requested)) return TU_OK;
    tu__settings decided = *settings;
    void *field = field_of(s, settings), *new_field = field_of(s, &decided);
    TU_TRY(set_from_option(s, requested, new_field, arena));
    if (may_change(s)) {
        *settings = decided;
        return check_range(s, field);
    }
    return same_value(s, field, new_field) ? TU_OK : fail_change(s, field, new_field);
}

/* Clears the central device if the devices or the strategy changed and it was not given again. */
static void update_central(tu__settings *settings, const tu__settings *previous,
                           const tu_train_options *given) {
    bool same = strcmp(settings->devices, previous->devices) == 0 &&
                strcmp(settings->strategy, previous->strategy) == 0;
    if (!same && !given->central) settings->central = "";
}

tu_status tu__settings_resume(tu__settings *settings, const tu_train_options *given, tu__arena *arena) {
    const tu__settings previous = *settings;
    if (given->recipe && strcmp(given->recipe, settings->recipe) != 0)
        return tu_fail(TU_INVALID, "--resume cannot change --recipe to '%s': the run was started with '%s'",
                       given->recipe, settings->recipe);
    for (size_t i = 0; i < SETTING_COUNT; i++) TU_TRY(resume_setting(&table[i], settings, given, arena));
    update_central(settings, &previous, given);
    TU_TRY(check_invariant(settings));
    return check_choices(settings);
}

bool tu__settings_equal(const tu__settings *a, const tu__settings *b) {
    for (size_t i = 0; i < SETTING_COUNT; i++)
        if (!same_value(&table[i], (const char *)a + table[i].offset, (const char *)b + table[i].offset))
            return false;
    return true;
}

static void describe_difference(const setting *s, const void *a, const void *b, char *text, size_t bytes) {
    if (s->kind == TEXT)
        snprintf(text, bytes, "%s '%.200s' instead of '%.200s'", s->option_name, *(const char *const *)a,
                 *(const char *const *)b);
    else if (s->kind == COUNT)
        snprintf(text, bytes, "%s %" PRId64 " instead of %" PRId64, s->option_name, *(const int64_t *)a,
                 *(const int64_t *)b);
    else
        snprintf(text, bytes, "%s %.10g instead of %.10g", s->option_name, number_of(s, a), number_of(s, b));
}

void tu__settings_difference(const tu__settings *a, const tu__settings *b, char *text, size_t bytes) {
    text[0] = '\0';
    if (strcmp(a->recipe, b->recipe) != 0) {
        snprintf(text, bytes, "--recipe %.60s instead of %.60s", a->recipe, b->recipe);
        return;
    }
    for (size_t i = 0; i < SETTING_COUNT && !*text; i++) {
        const setting *s = &table[i];
        const void *field = (const char *)a + s->offset, *other = (const char *)b + s->offset;
        if (!same_value(s, field, other)) describe_difference(s, field, other, text, bytes);
    }
}

size_t tu__settings_count(void) {
    return SETTING_COUNT;
}

const char *tu__setting_option(size_t index) {
    return table[index].option_name;
}

void tu__setting_text(const tu__settings *settings, size_t index, char *text, size_t bytes) {
    const setting *s = &table[index];
    const void *field = (const char *)settings + s->offset;
    switch (s->kind) {
    case COUNT: snprintf(text, bytes, "%" PRId64, *(const int64_t *)field); break;
    case NUMBER: snprintf(text, bytes, "%.10g", *(const double *)field); break;
    case SWITCH: snprintf(text, bytes, "%s", *(const int *)field ? "yes" : "no"); break;
    case TEXT: snprintf(text, bytes, "%s", *(const char *const *)field); break;
    }
}

/* ---- config.json ---- */

void tu__settings_write(const tu__settings *settings, tu_json *json) {
    tu_json_string(json, "recipe", settings->recipe);
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const setting *s = &table[i];
        const void *field = (const char *)settings + s->offset;
        switch (s->kind) {
        case COUNT: tu_json_i64(json, s->name, *(const int64_t *)field); break;
        case NUMBER: tu_json_f64(json, s->name, *(const double *)field); break;
        case SWITCH: tu_json_bool(json, s->name, *(const int *)field != 0); break;
        case TEXT: tu_json_string(json, s->name, *(const char *const *)field); break;
        }
    }
}

static tu_status fail_setting(const char *name, const char *key, const char *expected) {
    return tu_fail(TU_CORRUPT, "%s: setting '%.60s': expected %s", name, key, expected);
}

static tu_status read_setting(const char *name, const setting *s, const tu__json_value *value, void *field,
                              tu__arena *arena) {
    switch (s->kind) {
    case COUNT:
        if (!value->is_integer) return fail_setting(name, s->name, "an integer");
        *(int64_t *)field = value->integer;
        return TU_OK;
    case NUMBER:
        if (value->kind != TU__JSON_NUMBER) return fail_setting(name, s->name, "a number");
        *(double *)field = value->number;
        return TU_OK;
    case SWITCH:
        if (value->kind != TU__JSON_BOOL) return fail_setting(name, s->name, "true or false");
        *(int *)field = value->truth;
        return TU_OK;
    case TEXT:
        if (value->kind != TU__JSON_STRING) return fail_setting(name, s->name, "a string");
        return store_text(field, value->string, arena);
    }
    return TU_OK;
}

static tu_status read_member(const char *name, const char *key, const tu__json_value *value, tu__arena *arena,
                             tu__settings *settings) {
    if (strcmp(key, "deadline") == 0) key = "timeout"; /* name of the setting in older runs */
    if (strcmp(key, "recipe") == 0 && value->kind == TU__JSON_STRING)
        return store_text(&settings->recipe, value->string, arena);
    for (size_t i = 0; i < SETTING_COUNT; i++)
        if (strcmp(table[i].name, key) == 0)
            return read_setting(name, &table[i], value, field_of(&table[i], settings), arena);
    return tu_fail(TU_CORRUPT, "%s: unknown setting '%.60s': this version of Tutti does not have it", name,
                   key);
}

tu_status tu__settings_read(const char *name, const tu__json_value *object, tu__arena *arena,
                            tu__settings *settings) {
    *settings = (tu__settings){.recipe = "plain"};
    TU_TRY(set_defaults(settings, arena));
    settings->validation = 0; /* runs of versions without this setting have no validation split */
    if (!object || object->kind != TU__JSON_OBJECT)
        return tu_fail(TU_CORRUPT, "%s: expected an object 'settings'", name);
    for (size_t i = 0; i < object->count; i++)
        TU_TRY(read_member(name, object->keys[i], &object->values[i], arena, settings));
    if (check_settings(settings) != TU_OK) return tu_fail(TU_CORRUPT, "%s: %s", name, tu_message());
    return TU_OK;
}
