/* Settings of tables and of classes. See table_settings.h. */
#include "train/table_settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data/tokenizer.h"
#include "data/validation.h"
#include "train/task.h"

const char *tu__categories_of(const tu__settings *s) {
    static _Thread_local char joined[8192];
    if (strcmp(s->task, tu__task_classification.name) != 0 || !*s->target) return s->categories;
    snprintf(joined, sizeof joined, "%s%s%s", s->categories, *s->categories ? "," : "", s->target);
    return joined;
}

int64_t tu__window_of(const tu__columns *columns) {
    const tu__column *tokens = tu__columns_of_kind(columns, TU_COLUMN_TOKENS);
    return tokens ? tokens->type.shape.dim[0] - 1 : 0;
}

/* ---- Comparing ---- */

bool tu__same_columns(const tu__columns *a, const tu__columns *b) {
    bool same = a->count == b->count;
    for (size_t i = 0; same && i < a->count; i++) {
        const tu__column *x = &a->column[i], *y = &b->column[i];
        same = strcmp(x->name, y->name) == 0 && x->kind == y->kind && x->type.dtype == y->type.dtype &&
               tu_shape_equal(x->type.shape, y->type.shape) && x->is_target == y->is_target &&
               x->classes == y->classes && x->field_count == y->field_count;
    }
    return same;
}

static bool same_categories(const tu__field *a, const tu__field *b) {
    bool same = a->categories == b->categories;
    for (int64_t i = 0; same && i < a->categories; i++)
        same = strcmp(a->category_names[i], b->category_names[i]) == 0;
    return same;
}

static tu_status check_fields(const tu__run_config *config, const tu_dataset *set, const tu__column *a,
                              const tu__column *b) {
    for (size_t i = 0; i < a->field_count; i++) {
        const tu__field *x = &a->fields[i], *y = &b->fields[i];
        if (strcmp(x->name, y->name) != 0)
            return tu_fail(TU_INVALID,
                           "data set '%s' has the column '%.60s' where '%s', on which the run was trained, "
                           "has '%.60s'",
                           set->info.name, y->name, config->dataset.name, x->name);
        if (!same_categories(x, y))
            return tu_fail(
                TU_INVALID,
                "data set '%s', column '%.60s' has other categories than '%s', on which the run was trained; "
                "tutti predict reads such a table",
                set->info.name, y->name, config->dataset.name);
    }
    return TU_OK;
}

tu_status tu__check_columns(const tu__run_config *config, const tu_dataset *set) {
    const tu__columns *a = &config->columns, *b = &set->columns;
    if (!tu__same_tokenizer(a->tokenizer, b->tokenizer))
        return tu_fail(
            TU_INVALID,
            "data set '%s' has tokens of the tokenizer '%.300s', but the run was trained on those of '%.300s'",
            set->info.name, b->tokenizer, a->tokenizer);
    if (!tu__same_columns(a, b))
        return tu_fail(TU_INVALID, "data set '%s' has other columns than '%s', on which the run was trained",
                       set->info.name, config->dataset.name);
    for (size_t i = 0; i < a->count; i++) TU_TRY(check_fields(config, set, &a->column[i], &b->column[i]));
    if (set->info.count[TU_TEST] > 0) return TU_OK;
    return tu_fail(TU_INVALID, "data set '%s' has no test samples", set->info.name);
}

/* ---- Weights of classes ---- */

/* Counts the training samples of each class. */
static tu_status count_classes(const tu__trainer *t, int64_t *counts) {
    const tu_dataset *set = t->dataset;
    const tu__column *target = tu__columns_target(&set->columns);
    size_t column = (size_t)(target - set->columns.column);
    tu__image_split split =
        tu__image_split_of(&set->info, TU_TRAIN, tu__validation_images(&t->config), false);
    for (int64_t i = 0; i < split.count; i++) {
        int32_t class;
        void *elements[TU_MAX_COLUMNS] = {0};
        elements[column] = &class;
        TU_TRY(tu_dataset_read_columns(set, TU_TRAIN, tu__image_split_index(&split, i), elements));
        counts[class]++;
    }
    return TU_OK;
}

/* n / (classes · samples of the class): every class has the same total weight. */
static tu_status balance(const tu__trainer *t, double *weights) {
    int64_t classes = t->config.dataset.classes, present = 0, samples = 0;
    int64_t *counts = tu__alloc_array((size_t)classes, sizeof *counts, "the samples of each class");
    if (!counts) return TU_NO_MEMORY;
    tu_status status = count_classes(t, counts);
    for (int64_t i = 0; i < classes; i++) {
        present += counts[i] > 0;
        samples += counts[i];
    }
    for (int64_t i = 0; i < classes; i++)
        weights[i] = counts[i] ? (double)samples / ((double)present * (double)counts[i]) : 1;
    tu__free(counts);
    return status;
}

static tu_status fail_entry(const char *entry) {
    return tu_fail(TU_INVALID,
                   "--class-weights '%.60s': expected balanced, or CLASS=WEIGHT for classes of the data set, "
                   "as in 'yes=4,no=1'",
                   entry);
}

/* Reads CLASS=WEIGHT,…; other classes have weight 1. */
static tu_status read_list(const tu__trainer *t, char *list, double *weights) {
    const tu_dataset_info *info = &t->config.dataset;
    char *rest = NULL;
    for (char *entry = strtok_r(list, ",", &rest); entry; entry = strtok_r(NULL, ",", &rest)) {
        char *equals = strrchr(entry, '='), *end = NULL;
        double weight = equals ? strtod(equals + 1, &end) : -1;
        if (!equals || end == equals + 1 || *end || !(weight >= 0) || !isfinite(weight))
            return fail_entry(entry);
        *equals = '\0';
        int64_t class = 0;
        while (class < info->classes && strcmp(info->class_names[class], entry) != 0) class ++;
        if (class == info->classes) {
            *equals = '=';
            return fail_entry(entry);
        }
        weights[class] = weight;
    }
    return TU_OK;
}

tu_status tu__choose_class_weights(tu__trainer *t) {
    const char *text = t->config.settings.class_weights;
    int64_t classes = t->config.dataset.classes;
    t->config.class_weights = NULL;
    if (!*text) return TU_OK;
    double *weights = tu__arena_alloc(&t->arena, (size_t)classes * sizeof *weights);
    if (!weights) return TU_NO_MEMORY;
    for (int64_t i = 0; i < classes; i++) weights[i] = 1;
    t->config.class_weights = weights;
    if (strcmp(text, "balanced") == 0) return balance(t, weights);
    char *list = tu__arena_string(&t->arena, text);
    return list ? read_list(t, list, weights) : TU_NO_MEMORY;
}
