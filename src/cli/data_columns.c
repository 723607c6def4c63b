/* Prints the columns of a data set. See data_columns.h. */
#include "cli/data_columns.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <tutti/command.h>

#include "cli/command.h"

enum { SHOWN_CATEGORIES = 4, LONGEST_NAME = 24 };

static const char *kind_name(tu_column_kind kind) {
    static const char *const names[] = {"array", "class", "numbers", "categories", "tokens"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

/* Formats a shape: "f32[13]". */
struct type_text {
    char text[160];
};
static struct type_text type_text(tu_type type) {
    struct type_text t;
    int length = snprintf(t.text, sizeof t.text, "%s[", tu_dtype_name(type.dtype));
    for (int64_t i = 0; i < type.shape.rank; i++)
        length += snprintf(t.text + length, sizeof t.text - (size_t)length, "%s%" PRId64, i ? "," : "",
                           type.shape.dim[i]);
    snprintf(t.text + length, sizeof t.text - (size_t)length, "]");
    return t;
}

static void print_categories(const tu_field *f) {
    printf("%" PRId64 ": ", f->categories);
    for (int64_t i = 0; i < f->categories && i < SHOWN_CATEGORIES; i++)
        printf("%s%.*s", i ? ", " : "", LONGEST_NAME, f->category_names[i]);
    printf("%s\n", f->categories > SHOWN_CATEGORIES ? ", ..." : "");
}

static void print_fields(const tu_dataset *set, size_t column, const tu_column *c) {
    tu_field f = TU_SIZED(tu_field);
    for (int64_t i = 0; i < c->fields && tu_dataset_field(set, column, (size_t)i, &f) == TU_OK; i++) {
        printf("%-*.*s  %8" PRId64 "  ", LONGEST_NAME, LONGEST_NAME, f.name, f.missing);
        if (f.categories)
            print_categories(&f);
        else
            printf("%-11.6g %-11.6g %-11.6g %-11.6g\n", f.mean, f.deviation, f.min, f.max);
    }
}

static void print_text(const tu_dataset *set, const tu_dataset_info *info) {
    printf("%-10s %s\n", "name", info->name);
    printf("%-10s %s\n", "origin", info->origin);
    printf("%-10s %" PRId64 " training, %" PRId64 " test\n", "samples", info->count[TU_TRAIN],
           info->count[TU_TEST]);
    if (info->validation)
        printf("%-10s the last %" PRId64 " training samples, as the data set defines\n", "validation",
               info->validation);
    printf("%-10s %s\n", "digest", info->digest);
    tu_column c = TU_SIZED(tu_column);
    for (size_t i = 0; i < tu_dataset_columns(set) && tu_dataset_column(set, i, &c) == TU_OK; i++) {
        printf("\ncolumn '%s', %s, %s", c.name, kind_name(c.kind), type_text(c.type).text);
        if (c.classes)
            printf(", %" PRId64 " %s", c.classes, c.kind == TU_COLUMN_TOKENS ? "tokens" : "classes");
        printf("%s\n", c.is_target ? ": the target" : "");
        if (c.fields)
            printf("%-*s  %8s  %-11s %-11s %-11s %-11s\n", LONGEST_NAME, "field", "missing", "mean",
                   "deviation", "min", "max");
        print_fields(set, i, &c);
    }
}

static void put_fields(tu_json *json, const tu_dataset *set, size_t column, const tu_column *c) {
    tu_field f = TU_SIZED(tu_field);
    tu_json_begin_array(json, "fields");
    for (int64_t i = 0; i < c->fields && tu_dataset_field(set, column, (size_t)i, &f) == TU_OK; i++) {
        tu_json_begin_object(json, NULL);
        tu_json_string(json, "name", f.name);
        tu_json_i64(json, "missing", f.missing);
        if (f.categories) {
            tu_json_begin_array(json, "categories");
            for (int64_t k = 0; k < f.categories; k++) tu_json_string(json, NULL, f.category_names[k]);
            tu_json_end_array(json);
        } else {
            tu_json_f64(json, "mean", f.mean);
            tu_json_f64(json, "deviation", f.deviation);
            tu_json_f64(json, "min", f.min);
            tu_json_f64(json, "max", f.max);
        }
        tu_json_end_object(json);
    }
    tu_json_end_array(json);
}

static void print_json(const tu_dataset *set, const tu_dataset_info *info) {
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "name", info->name);
    tu_json_string(&json, "origin", info->origin);
    tu_json_i64(&json, "train", info->count[TU_TRAIN]);
    tu_json_i64(&json, "test", info->count[TU_TEST]);
    if (info->validation) tu_json_i64(&json, "validation", info->validation);
    tu_json_string(&json, "digest", info->digest);
    tu_json_begin_array(&json, "columns");
    tu_column c = TU_SIZED(tu_column);
    for (size_t i = 0; i < tu_dataset_columns(set) && tu_dataset_column(set, i, &c) == TU_OK; i++) {
        tu_json_begin_object(&json, NULL);
        tu_json_string(&json, "name", c.name);
        tu_json_string(&json, "kind", kind_name(c.kind));
        tu_json_string(&json, "type", type_text(c.type).text);
        if (c.is_target) tu_json_bool(&json, "target", true);
        if (c.classes) tu_json_i64(&json, "classes", c.classes);
        if (c.fields) put_fields(&json, set, i, &c);
        tu_json_end_object(&json);
    }
    tu_json_end_array(&json);
    tu_json_end_object(&json);
    putchar('\n');
}

int cli_describe_columns(const tu_dataset *set, const tu_dataset_info *info, bool json) {
    (json ? print_json : print_text)(set, info);
    return CLI_DONE;
}
