/* Deciding, writing and reading the settings of a run. See settings.h.
 *
 * All is done row by row over one table made from tutti/settings.def: a new setting is one row there. */
#include "train/settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/choice.h"
#include "base/whole_number.h"
#include "graph/graph.h"
#include "optim/update_rules.h"
#include "pass/choices.h"

enum kind { COUNT, NUMBER, SWITCH, TEXT, SIZE = COUNT, FLAG = SWITCH };

typedef struct setting {
    enum kind kind;
    const char *name;  /* of the field, and of the member in config.json */
    const char *shown; /* in messages: as the command has it */
    size_t offset;     /* in tu__settings */
    size_t given;      /* in tu_train_options */
    double number;     /* the default, */
    const char *text;  /* of a TEXT */
    double least, most;
} setting;

#define DEFAULTS_COUNT(standard) .number = (double)(standard)
#define DEFAULTS_SIZE(standard) .number = (double)(standard)
#define DEFAULTS_NUMBER(standard) .number = (standard)
#define DEFAULTS_SWITCH(standard) .number = (standard)
#define DEFAULTS_FLAG(standard) .number = (standard)
#define DEFAULTS_TEXT(standard) .text = (standard)

static const setting table[] = {
#define TU_SETTING(kind_, field, option, argument, standard, least_, most_, help)                            \
    {.kind = kind_,                                                                                          \
     .name = #field,                                                                                         \
     .shown = "--" option,                                                                                   \
     .offset = offsetof(tu__settings, field),                                                                \
     .given = offsetof(tu_train_options, field),                                                             \
     DEFAULTS_##kind_(standard),                                                                             \
     .least = (double)(least_),                                                                              \
     .most = (double)(most_)},
#include <tutti/settings.def>
#undef TU_SETTING
};
enum { SETTING_COUNT = sizeof table / sizeof *table };

/* ---- A field, whichever kind it has ---- */

static void *field_of(const setting *s, tu__settings *settings) {
    return (char *)settings + s->offset;
}

static const void *given_in(const setting *s, const tu_train_options *options) {
    return (const char *)options + s->given;
}

/* What `field` holds where it is a number. */
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

/* A field of the caller's, where zero is not given and negative is zero, into a decided one. */
static tu_status take(const setting *s, const void *given, void *field, tu__arena *arena) {
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

static tu_status take_default(const setting *s, void *field, tu__arena *arena) {
    switch (s->kind) {
    case COUNT: *(int64_t *)field = (int64_t)s->number; return TU_OK;
    case NUMBER: *(double *)field = s->number; return TU_OK;
    case SWITCH: *(int *)field = (int)s->number; return TU_OK;
    case TEXT: return store_text(field, s->text, arena);
    }
    return TU_OK;
}

static tu_status check(const setting *s, const void *field) {
    if (s->kind == TEXT) return TU_OK;
    double number = number_of(s, field);
    if (number >= s->least && number <= s->most) return TU_OK;
    return tu_fail(TU_INVALID, "%s %.10g: expected %s from %.10g to %.10g", s->shown, number,
                   s->kind == NUMBER ? "a number" : "a whole number", s->least, s->most);
}

/* Settings that are one of a few words. */
static const char *const batch_norms[] = {"global", "replica", "shard", NULL};
static const struct {
    const char *shown;
    size_t offset;            /* in tu__settings */
    const char *const *words; /* end with NULL */
} choices[] = {
    {"--precision", offsetof(tu__settings, precision), tu__precision_names},
    {"--strategy", offsetof(tu__settings, strategy), tu__strategy_names},
    {"--batch-norm", offsetof(tu__settings, batch_norm), batch_norms},
};

/* An empty word leaves the choice to the run: sharing.h. */
static tu_status check_choices(const tu__settings *settings) {
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const char *given = *(const char *const *)((const char *)settings + choices[i].offset);
        bool open = choices[i].offset == offsetof(tu__settings, strategy) && !*given;
        size_t found;
        if (!open) TU_TRY(tu__choice_find(choices[i].shown, given, choices[i].words, &found));
    }
    return TU_OK;
}

/* The bits of a part hang on the threads that compute it, and how many there are on the machine. */
static tu_status check_width(const tu__settings *s) {
    if (!s->invariant || s->threads <= 1) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "--invariant %" PRId64 " with --threads %" PRId64
        ": a part is computed by one thread; for more cores divide the processor, as in --devices cpu:0/%" PRId64,
        s->invariant, s->threads, s->threads);
}

/* Two schedules drop the rate every so many epochs, for which there is no good default. */
static tu_status check_schedule(const tu__settings *s) {
    bool drops = strcmp(s->schedule, "step") == 0 || strcmp(s->schedule, "exponential") == 0;
    if (!drops || s->rate_every > 0) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "--schedule %s without --rate-every: expected the epochs after which the rate is multiplied "
        "by --rate-factor (%g), as in --rate-every 30",
        s->schedule, s->rate_factor);
}

tu_status tu__read_ignore_label(const char *text, bool *given, int64_t *label) {
    *given = text && *text;
    if (!*given || tu__read_whole_number(text, label)) return TU_OK;
    return tu_fail(TU_INVALID, "--ignore-label '%.60s': expected a whole number, as the labels are", text);
}

/* From 2 on it counts images; what lies between is neither. */
static tu_status check_validation(const tu__settings *s) {
    bool label_given;
    int64_t label;
    TU_TRY(tu__read_ignore_label(s->ignore_label, &label_given, &label));
    double v = s->validation;
    if (v < 1 || (v >= 2 && v == floor(v))) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "--validation %.10g: expected a share below 1, as in 0.1, a number of images from 2 on, or "
        "0 for none",
        v);
}

static tu_status check_all(tu__settings *settings) {
    for (size_t i = 0; i < SETTING_COUNT; i++) TU_TRY(check(&table[i], field_of(&table[i], settings)));
    TU_TRY(check_width(settings));
    TU_TRY(check_schedule(settings));
    TU_TRY(check_validation(settings));
    return check_choices(settings);
}

/* ---- Deciding ---- */

static tu_status lay_over(tu__settings *settings, const tu_train_options *given, tu__arena *arena) {
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const void *field = given_in(&table[i], given);
        if (is_given(&table[i], field)) TU_TRY(take(&table[i], field, field_of(&table[i], settings), arena));
    }
    return TU_OK;
}

static tu_status take_defaults(tu__settings *settings, tu__arena *arena) {
    for (size_t i = 0; i < SETTING_COUNT; i++)
        TU_TRY(take_default(&table[i], field_of(&table[i], settings), arena));
    return TU_OK;
}

/* Not given, the momentum is the optimizer's own: rmsprop has one only when asked. */
static tu_status settle_momentum(tu__settings *settings, const tu_train_options *recipe,
                                 const tu_train_options *given) {
    const tu__update_rule *rule = tu__update_rule_find(settings->optimizer);
    if (!rule) return TU_INVALID;
    if (recipe->momentum == 0 && given->momentum == 0) settings->momentum = rule->momentum;
    return TU_OK;
}

tu_status tu__settings_decide(const char *model, const tu_train_options *given, tu__arena *arena,
                              tu__settings *settings) {
    *settings = (tu__settings){0};
    const char *name = given->recipe ? given->recipe : "quick";
    const tu_train_options *recipe = tu__recipe_find(name, model);
    if (!recipe) return TU_NOT_FOUND;
    settings->recipe = tu__arena_string(arena, name);
    if (!settings->recipe) return TU_NO_MEMORY;
    TU_TRY(take_defaults(settings, arena));
    TU_TRY(lay_over(settings, recipe, arena));
    TU_TRY(lay_over(settings, given, arena));
    TU_TRY(settle_momentum(settings, recipe, given));
    return check_all(settings);
}

/* A decided value as a given one, where a negative number stands for zero. */
static void give(const setting *s, const void *field, void *given) {
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
        give(&table[i], (const char *)settings + table[i].offset, (char *)options + table[i].given);
}

/* ---- Going on ---- */

static bool may_change(const setting *s) {
    static const char *const free_to_change[] = {"devices",
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
    for (size_t i = 0; i < sizeof free_to_change / sizeof *free_to_change; i++)
        if (strcmp(s->name, free_to_change[i]) == 0) return true;
    return false;
}

/* Counts are compared as they are: a double cannot tell large seeds apart. */
static bool same_value(const setting *s, const void *a, const void *b) {
    if (s->kind == TEXT) return strcmp(*(const char *const *)a, *(const char *const *)b) == 0;
    if (s->kind == COUNT) return *(const int64_t *)a == *(const int64_t *)b;
    return number_of(s, a) == number_of(s, b);
}

static tu_status refuse_change(const setting *s, const void *field, const void *wanted) {
    if (s->kind == TEXT)
        return tu_fail(
            TU_INVALID,
            "%s '%s' with --resume: the run was begun with '%s'; leave the option out, or begin another run",
            s->shown, *(const char *const *)wanted, *(const char *const *)field);
    if (s->kind == COUNT)
        return tu_fail(TU_INVALID,
                       "%s %" PRId64 " with --resume: the run was begun with %" PRId64
                       "; leave the option out, or begin another run",
                       s->shown, *(const int64_t *)wanted, *(const int64_t *)field);
    return tu_fail(
        TU_INVALID,
        "%s %.10g with --resume: the run was begun with %.10g; leave the option out, or begin another run",
        s->shown, number_of(s, wanted), number_of(s, field));
}

static tu_status resume_setting(const setting *s, tu__settings *settings, const tu_train_options *given,
                                tu__arena *arena) {
    const void *wanted = given_in(s, given);
    if (!is_given(s, wanted)) return TU_OK;
    tu__settings decided = *settings;
    void *field = field_of(s, settings), *new_field = field_of(s, &decided);
    TU_TRY(take(s, wanted, new_field, arena));
    if (may_change(s)) {
        *settings = decided;
        return check(s, field);
    }
    return same_value(s, field, new_field) ? TU_OK : refuse_change(s, field, new_field);
}

/* A central device was named for the devices and the strategy that were: others have none, unless it is named again. */
static void settle_central(tu__settings *settings, const tu__settings *before,
                           const tu_train_options *given) {
    bool same =
        strcmp(settings->devices, before->devices) == 0 && strcmp(settings->strategy, before->strategy) == 0;
    if (!same && !given->central) settings->central = "";
}

tu_status tu__settings_resume(tu__settings *settings, const tu_train_options *given, tu__arena *arena) {
    const tu__settings before = *settings;
    if (given->recipe && strcmp(given->recipe, settings->recipe) != 0)
        return tu_fail(TU_INVALID, "--recipe '%s' with --resume: the run was begun with '%s'", given->recipe,
                       settings->recipe);
    for (size_t i = 0; i < SETTING_COUNT; i++) TU_TRY(resume_setting(&table[i], settings, given, arena));
    settle_central(settings, &before, given);
    TU_TRY(check_width(settings));
    return check_choices(settings);
}

bool tu__settings_equal(const tu__settings *a, const tu__settings *b) {
    for (size_t i = 0; i < SETTING_COUNT; i++)
        if (!same_value(&table[i], (const char *)a + table[i].offset, (const char *)b + table[i].offset))
            return false;
    return true;
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

static tu_status refuse_member(const char *name, const char *key, const char *expected) {
    return tu_fail(TU_CORRUPT, "%s: setting '%.60s': expected %s", name, key, expected);
}

static tu_status read_setting(const char *name, const setting *s, const tu__json_value *value, void *field,
                              tu__arena *arena) {
    switch (s->kind) {
    case COUNT:
        if (!value->is_integer) return refuse_member(name, s->name, "a whole number");
        *(int64_t *)field = value->integer;
        return TU_OK;
    case NUMBER:
        if (value->kind != TU__JSON_NUMBER) return refuse_member(name, s->name, "a number");
        *(double *)field = value->number;
        return TU_OK;
    case SWITCH:
        if (value->kind != TU__JSON_BOOL) return refuse_member(name, s->name, "true or false");
        *(int *)field = value->truth;
        return TU_OK;
    case TEXT:
        if (value->kind != TU__JSON_STRING) return refuse_member(name, s->name, "a string");
        return store_text(field, value->string, arena);
    }
    return TU_OK;
}

static tu_status read_member(const char *name, const char *key, const tu__json_value *value, tu__arena *arena,
                             tu__settings *settings) {
    if (strcmp(key, "deadline") == 0) key = "timeout"; /* its name in older runs */
    if (strcmp(key, "recipe") == 0 && value->kind == TU__JSON_STRING)
        return store_text(&settings->recipe, value->string, arena);
    for (size_t i = 0; i < SETTING_COUNT; i++)
        if (strcmp(table[i].name, key) == 0)
            return read_setting(name, &table[i], value, field_of(&table[i], settings), arena);
    return refuse_member(name, key, "one of the settings of this version");
}

tu_status tu__settings_read(const char *name, const tu__json_value *object, tu__arena *arena,
                            tu__settings *settings) {
    *settings = (tu__settings){.recipe = "plain"};
    TU_TRY(take_defaults(settings, arena));
    settings->validation = 0; /* runs begun before there was one have none */
    if (!object || object->kind != TU__JSON_OBJECT)
        return tu_fail(TU_CORRUPT, "%s: expected an object 'settings'", name);
    for (size_t i = 0; i < object->count; i++)
        TU_TRY(read_member(name, object->keys[i], &object->values[i], arena, settings));
    if (check_all(settings) != TU_OK) return tu_fail(TU_CORRUPT, "%s: %s", name, tu_message());
    return TU_OK;
}
