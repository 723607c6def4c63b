/* Checks, copies, writes and reads descriptions of columns. See columns.h. */
#include "data/columns.h"

#include <math.h>
#include <string.h>

static const char *const kind_names[] = {"array", "class", "numbers", "categories", "tokens"};
enum { KINDS = sizeof kind_names / sizeof *kind_names, MAX_SAMPLE_BYTES = 1 << 30, MAX_NAME = 4096 };

void tu__columns_of_pictures(const tu_dataset_info *info, tu__columns *columns) {
    *columns = (tu__columns){.count = 2};
    columns->column[0] =
        (tu__column){.name = "images",
                     .kind = TU_COLUMN_ARRAY,
                     .type = {info->dtype, TU_SHAPE(info->height, info->width, info->channels)}};
    columns->column[1] = (tu__column){.name = "labels",
                                      .kind = TU_COLUMN_CLASS,
                                      .type = {TU_I32, TU_SCALAR},
                                      .is_target = true,
                                      .classes = info->classes};
    for (size_t i = 0; i < 2; i++) columns->column[i].bytes = tu_type_bytes(columns->column[i].type);
}

/* ---- Finding ---- */

const tu__column *tu__columns_target(const tu__columns *columns) {
    for (size_t i = 0; i < columns->count; i++)
        if (columns->column[i].is_target) return &columns->column[i];
    return NULL;
}

const tu__column *tu__columns_find(const tu__columns *columns, const char *name) {
    for (size_t i = 0; i < columns->count; i++)
        if (strcmp(columns->column[i].name, name) == 0) return &columns->column[i];
    return NULL;
}

const tu__column *tu__columns_of_kind(const tu__columns *columns, tu_column_kind kind) {
    for (size_t i = 0; i < columns->count; i++)
        if (columns->column[i].kind == kind && !columns->column[i].is_target) return &columns->column[i];
    return NULL;
}

/* ---- Checking ---- */

/* Columns are inputs of graphs, so their names follow the rules of these. */
static bool name_is_usable(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    return name && *name && strlen(name) <= 60 && name[strspn(name, letters)] == '\0' &&
           strcmp(name, "sample_ordinal") != 0 && strcmp(name, "share") != 0 && strcmp(name, "counted") != 0;
}

static tu_status check_type(const char *set, tu__column *c) {
    const tu_shape *s = &c->type.shape;
    bool valid = s->rank >= 0 && s->rank < TU_MAX_RANK && c->type.dtype < TU_DTYPE_COUNT;
    size_t bytes = valid ? tu_dtype_size(c->type.dtype) : 0;
    for (int64_t i = 0; valid && i < s->rank; i++)
        valid = s->dim[i] > 0 && !__builtin_mul_overflow(bytes, (size_t)s->dim[i], &bytes) &&
                bytes <= MAX_SAMPLE_BYTES;
    if (!valid)
        return tu_fail(TU_INVALID,
                       "data set '%s': column '%s' has an invalid type: expected at most %d bytes per "
                       "sample and fewer than %d axes, all positive",
                       set, c->name, MAX_SAMPLE_BYTES, TU_MAX_RANK);
    c->bytes = bytes;
    return TU_OK;
}

static tu_status check_kind(const char *set, const tu__column *c) {
    tu_dtype wanted = c->kind == TU_COLUMN_NUMBERS ? TU_F32 : TU_I32;
    if ((unsigned)c->kind >= KINDS)
        return tu_fail(TU_INVALID, "data set '%s': column '%s' has kind %d: expected 0 to %d", set, c->name,
                       (int)c->kind, KINDS - 1);
    if (c->kind != TU_COLUMN_ARRAY && c->type.dtype != wanted)
        return tu_fail(TU_INVALID, "data set '%s': column '%s' has dtype %s: expected %s for %s", set,
                       c->name, tu_dtype_name(c->type.dtype), tu_dtype_name(wanted), kind_names[c->kind]);
    if (c->kind == TU_COLUMN_CLASS && c->type.shape.rank != 0)
        return tu_fail(TU_INVALID, "data set '%s': column '%s' has %lld axes: expected a class per sample",
                       set, c->name, (long long)c->type.shape.rank);
    bool has_classes = c->kind == TU_COLUMN_CLASS || c->kind == TU_COLUMN_TOKENS;
    int64_t limit = c->kind == TU_COLUMN_TOKENS ? (int64_t)TU__MAX_VOCABULARY : 1 << 20;
    if (has_classes && (c->classes < 1 || c->classes > limit))
        return tu_fail(TU_INVALID, "data set '%s': column '%s' has %lld classes: expected 1 to %lld", set,
                       c->name, (long long)c->classes, (long long)limit);
    if (c->field_count &&
        (c->field_count > TU__MAX_FIELDS || (int64_t)c->field_count != tu_shape_elements(c->type.shape)))
        return tu_fail(TU_INVALID,
                       "data set '%s': column '%s' has %zu fields: expected one per element, at most %d", set,
                       c->name, c->field_count, TU__MAX_FIELDS);
    return TU_OK;
}

tu_status tu__columns_check(const char *name, tu__columns *columns) {
    size_t targets = 0;
    if (columns->count < 1 || columns->count > TU_MAX_COLUMNS)
        return tu_fail(TU_INVALID, "data set '%s' has %zu columns: expected 1 to %d", name, columns->count,
                       TU_MAX_COLUMNS);
    for (size_t i = 0; i < columns->count; i++) {
        tu__column *c = &columns->column[i];
        if (!name_is_usable(c->name))
            return tu_fail(
                TU_INVALID,
                "data set '%s': a column is called '%.60s': expected 1 to 60 letters, digits or _, and not "
                "sample_ordinal, share or counted",
                name, c->name ? c->name : "");
        if (tu__columns_find(columns, c->name) != c)
            return tu_fail(TU_INVALID, "data set '%s' has two columns '%s'", name, c->name);
        TU_TRY(check_type(name, c));
        TU_TRY(check_kind(name, c));
        targets += c->is_target;
    }
    if (targets <= 1) return TU_OK;
    return tu_fail(TU_INVALID, "data set '%s' has %zu target columns: expected at most one", name, targets);
}

/* ---- Copying ---- */

static tu_status copy_string(const char *from, tu__arena *arena, const char **to) {
    *to = tu__arena_string(arena, from ? from : "");
    return *to ? TU_OK : TU_NO_MEMORY;
}

static tu_status copy_field(const tu__field *from, tu__arena *arena, tu__field *to) {
    *to = *from;
    TU_TRY(copy_string(from->name, arena, &to->name));
    if (!from->categories) return TU_OK;
    const char **names = tu__arena_alloc(arena, (size_t)from->categories * sizeof *names);
    if (!names) return TU_NO_MEMORY;
    for (int64_t i = 0; i < from->categories; i++)
        TU_TRY(copy_string(from->category_names[i], arena, &names[i]));
    to->category_names = names;
    return TU_OK;
}

tu_status tu__columns_copy(const tu__columns *from, tu__arena *arena, tu__columns *to) {
    *to = *from;
    if (from->tokenizer) TU_TRY(copy_string(from->tokenizer, arena, &to->tokenizer));
    for (size_t i = 0; i < from->count; i++) {
        const tu__column *source = &from->column[i];
        tu__column *c = &to->column[i];
        TU_TRY(copy_string(source->name, arena, &c->name));
        if (!source->field_count) continue;
        tu__field *fields = tu__arena_alloc(arena, source->field_count * sizeof *fields);
        if (!fields) return TU_NO_MEMORY;
        for (size_t f = 0; f < source->field_count; f++)
            TU_TRY(copy_field(&source->fields[f], arena, &fields[f]));
        c->fields = fields;
    }
    return TU_OK;
}

/* ---- Writing ---- */

static void write_field(tu_json *json, const tu__field *f) {
    tu_json_begin_object(json, NULL);
    tu_json_string(json, "name", f->name);
    if (f->missing) tu_json_i64(json, "missing", f->missing);
    if (f->categories) {
        tu_json_begin_array(json, "categories");
        for (int64_t i = 0; i < f->categories; i++) tu_json_string(json, NULL, f->category_names[i]);
        tu_json_end_array(json);
    } else {
        tu_json_f64(json, "mean", f->mean);
        tu_json_f64(json, "deviation", f->deviation);
        tu_json_f64(json, "min", f->min);
        tu_json_f64(json, "max", f->max);
    }
    tu_json_end_object(json);
}

void tu__columns_write(tu_json *json, const char *key, const tu__columns *columns) {
    tu_json_begin_array(json, key);
    for (size_t i = 0; i < columns->count; i++) {
        const tu__column *c = &columns->column[i];
        tu_json_begin_object(json, NULL);
        tu_json_string(json, "name", c->name);
        tu_json_string(json, "kind", kind_names[c->kind]);
        tu_json_string(json, "type", tu_dtype_name(c->type.dtype));
        tu_json_begin_array(json, "shape");
        for (int64_t k = 0; k < c->type.shape.rank; k++) tu_json_i64(json, NULL, c->type.shape.dim[k]);
        tu_json_end_array(json);
        if (c->is_target) tu_json_bool(json, "target", true);
        if (c->classes) tu_json_i64(json, "classes", c->classes);
        if (c->field_count) {
            tu_json_begin_array(json, "fields");
            for (size_t f = 0; f < c->field_count; f++) write_field(json, &c->fields[f]);
            tu_json_end_array(json);
        }
        tu_json_end_object(json);
    }
    tu_json_end_array(json);
}

/* ---- Reading ---- */

static bool get_integer(const tu__json_value *object, const char *key, int64_t *integer) {
    const tu__json_value *value = tu__json_member(object, key);
    if (!value) return true;
    *integer = value->integer;
    return value->is_integer && value->integer >= 0;
}

static bool get_number(const tu__json_value *object, const char *key, double *number) {
    const tu__json_value *value = tu__json_member(object, key);
    if (value) *number = value->number;
    return value && value->kind == TU__JSON_NUMBER && isfinite(value->number);
}

static bool get_string(const tu__json_value *object, const char *key, const char **string) {
    const tu__json_value *value = tu__json_member(object, key);
    if (value) *string = value->string;
    return value && value->kind == TU__JSON_STRING && strlen(value->string) <= MAX_NAME;
}

static bool read_categories(const tu__json_value *array, tu__arena *arena, tu__field *f) {
    if (array->kind != TU__JSON_ARRAY || array->count < 1 || array->count > (1 << 20)) return false;
    const char **names = tu__arena_alloc(arena, array->count * sizeof *names);
    if (!names) return false;
    for (size_t i = 0; i < array->count; i++) {
        if (array->values[i].kind != TU__JSON_STRING) return false;
        names[i] = array->values[i].string;
    }
    f->categories = (int64_t)array->count;
    f->category_names = names;
    return true;
}

static bool read_field(const tu__json_value *object, tu__arena *arena, tu__field *f) {
    const tu__json_value *categories = tu__json_member(object, "categories");
    if (!get_string(object, "name", &f->name) || !get_integer(object, "missing", &f->missing)) return false;
    if (categories) return read_categories(categories, arena, f);
    return get_number(object, "mean", &f->mean) && get_number(object, "deviation", &f->deviation) &&
           get_number(object, "min", &f->min) && get_number(object, "max", &f->max) && f->deviation >= 0;
}

static bool read_fields(const tu__json_value *array, tu__arena *arena, tu__column *c) {
    if (!array) return true;
    if (array->kind != TU__JSON_ARRAY || array->count > TU__MAX_FIELDS) return false;
    tu__field *fields = tu__arena_alloc(arena, (array->count + 1) * sizeof *fields);
    if (!fields) return false;
    for (size_t i = 0; i < array->count; i++)
        if (!read_field(&array->values[i], arena, &fields[i])) return false;
    c->fields = fields;
    c->field_count = array->count;
    return true;
}

static bool read_shape(const tu__json_value *array, tu_shape *shape) {
    if (!array || array->kind != TU__JSON_ARRAY || array->count >= TU_MAX_RANK) return false;
    *shape = (tu_shape){.rank = (int64_t)array->count};
    for (size_t i = 0; i < array->count; i++) {
        if (!array->values[i].is_integer) return false;
        shape->dim[i] = array->values[i].integer;
    }
    return true;
}

static bool read_kind(const tu__json_value *object, tu_column_kind *kind) {
    const char *name;
    if (!get_string(object, "kind", &name)) return false;
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(kind_names[i], name) == 0) {
            *kind = (tu_column_kind)i;
            return true;
        }
    return false;
}

static bool read_column(const tu__json_value *object, tu__arena *arena, tu__column *c) {
    const char *type;
    const tu__json_value *target = tu__json_member(object, "target");
    c->is_target = target && target->kind == TU__JSON_BOOL && target->truth;
    return get_string(object, "name", &c->name) && read_kind(object, &c->kind) &&
           get_string(object, "type", &type) && tu_dtype_parse(type, &c->type.dtype) == TU_OK &&
           read_shape(tu__json_member(object, "shape"), &c->type.shape) &&
           get_integer(object, "classes", &c->classes) &&
           read_fields(tu__json_member(object, "fields"), arena, c);
}

tu_status tu__columns_read(const char *source, const tu__json_value *array, tu__arena *arena,
                           tu__columns *columns) {
    *columns = (tu__columns){0};
    if (!array || array->kind != TU__JSON_ARRAY || array->count > TU_MAX_COLUMNS)
        return tu_fail(TU_CORRUPT, "%s: 'columns': expected a list of at most %d columns", source,
                       TU_MAX_COLUMNS);
    for (size_t i = 0; i < array->count; i++)
        if (!read_column(&array->values[i], arena, &columns->column[i]))
            return tu_fail(TU_CORRUPT, "%s: 'columns': column %zu lacks a member or has an invalid one",
                           source, i);
    columns->count = array->count;
    if (tu__columns_check(source, columns) == TU_OK) return TU_OK;
    return tu_fail(TU_CORRUPT, "%s", tu_message());
}
