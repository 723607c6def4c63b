/* Parses arbitrary bytes as JSON. If that succeeds, writing the tree and parsing it again must give the same tree. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (!condition) {
        fprintf(stderr, "%s\n", tu_message());
        abort();
    }
}

static void write_value(tu_json *json, const char *key, const tu__json_value *value) {
    switch (value->kind) {
    case TU__JSON_NULL: tu_json_null(json, key); break;
    case TU__JSON_BOOL: tu_json_bool(json, key, value->truth); break;
    case TU__JSON_STRING: tu_json_string(json, key, value->string); break;
    case TU__JSON_NUMBER:
        if (value->is_integer)
            tu_json_i64(json, key, value->integer);
        else
            tu_json_f64(json, key, value->number);
        break;
    default: {
        bool object = value->kind == TU__JSON_OBJECT;
        (object ? tu_json_begin_object : tu_json_begin_array)(json, key);
        for (size_t i = 0; i < value->count; i++)
            write_value(json, object ? value->keys[i] : NULL, &value->values[i]);
        (object ? tu_json_end_object : tu_json_end_array)(json);
    }
    }
}

static void require_same(const tu__json_value *a, const tu__json_value *b) {
    require(a->kind == b->kind);
    switch (a->kind) {
    case TU__JSON_NULL: return;
    case TU__JSON_BOOL: require(a->truth == b->truth); return;
    case TU__JSON_NUMBER: require(a->number == b->number); return;
    case TU__JSON_STRING: require(strcmp(a->string, b->string) == 0); return;
    default: require(a->count == b->count);
    }
    for (size_t i = 0; i < a->count; i++) {
        if (a->kind == TU__JSON_OBJECT) require(strcmp(a->keys[i], b->keys[i]) == 0);
        require_same(&a->values[i], &b->values[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tu__arena arena = {.purpose = "fuzzing"};
    const tu__json_value *value, *again;
    tu_status status = tu__json_parse(&arena, "input", (const char *)data, size, &value);
    require((status == TU_OK) == (value != NULL));
    require(status == TU_OK || status == TU_CORRUPT);
    if (value) {
        tu__text text = {0};
        tu_json json = tu__json_to_text(&text);
        write_value(&json, NULL, value);
        require(tu_json_finish(&json));
        require(tu__json_parse(&arena, "output", text.data, text.length, &again) == TU_OK);
        require_same(value, again);
        tu__text_free(&text);
    }
    tu__arena_free(&arena);
    return 0;
}
