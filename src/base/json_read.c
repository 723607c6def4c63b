/* The strict JSON parser (RFC 8259). See json_read.h for what it promises.
 *
 * Recursive descent, at most as deep as the writer writes. The elements of a container gather on one stack that all
 * containers share, and move to the arena when the container closes and its size is known: so nothing is copied more
 * than twice, and a text of n bytes costs memory in proportion to n. Keys that occur twice are found by sorting, in
 * n log n.
 *
 * `at` never passes `end`; the text need not end with a NUL and may hold any bytes. */
#include "base/json_read.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/status.h"
#include "base/utf8.h"

typedef struct entry {
    const char *key; /* NULL in an array */
    tu__json_value value;
} entry;

typedef struct parser {
    tu__arena *arena;
    const char *name, *begin, *at, *end;
    entry *stack; /* of the containers that are open, outermost first */
    size_t used, capacity;
    locale_t locale; /* numbers are read with a decimal point, whatever the program's locale */
} parser;

/* ---- Messages ---- */

static TU_PRINTF(2, 3) tu_status refuse(const parser *p, const char *format, ...) {
    size_t line = 1;
    for (const char *s = p->begin; s < p->at; s++) line += *s == '\n';
    char reason[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return tu_fail(TU_CORRUPT, "%s: line %zu: %s", p->name, line, reason);
}

static tu_status refuse_here(const parser *p, const char *expected) {
    if (p->at == p->end) return refuse(p, "the text ends where %s is expected", expected);
    unsigned char c = (unsigned char)*p->at;
    if (c > ' ' && c < 0x7F) return refuse(p, "expected %s, found '%c'", expected, c);
    return refuse(p, "expected %s, found byte 0x%02x", expected, c);
}

/* ---- Words ---- */

static void skip_space(parser *p) {
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r')) p->at++;
}

static bool next_is(const parser *p, char c) {
    return p->at < p->end && *p->at == c;
}

static bool take(parser *p, char c) {
    if (!next_is(p, c)) return false;
    p->at++;
    return true;
}

static bool take_word(parser *p, const char *word) {
    size_t length = strlen(word);
    if ((size_t)(p->end - p->at) < length || memcmp(p->at, word, length) != 0) return false;
    p->at += length;
    return true;
}

/* ---- Numbers ---- */

static size_t take_digits(parser *p) {
    const char *first = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') p->at++;
    return (size_t)(p->at - first);
}

/* Passes over a number by RFC 8259's grammar: no leading zero or plus, digits on both sides of the point. */
static tu_status scan_number(parser *p, bool *whole) {
    take(p, '-');
    if (!take(p, '0') && !take_digits(p)) return refuse_here(p, "a digit");
    if (p->at < p->end && *p->at >= '0' && *p->at <= '9')
        return refuse(p, "a number must not begin with a zero that other digits follow");
    *whole = true;
    if (take(p, '.')) {
        *whole = false;
        if (!take_digits(p)) return refuse_here(p, "a digit after the point");
    }
    if (take(p, 'e') || take(p, 'E')) {
        *whole = false;
        if (!take(p, '+')) take(p, '-');
        if (!take_digits(p)) return refuse_here(p, "a digit of the exponent");
    }
    return TU_OK;
}

static tu_status parse_number(parser *p, tu__json_value *value) {
    const char *first = p->at;
    bool whole = false;
    TU_TRY(scan_number(p, &whole));
    char small[64], *digits = small; /* a copy that ends with a NUL */
    size_t length = (size_t)(p->at - first);
    if (length >= sizeof small && !(digits = tu__alloc(length + 1, "a number of JSON"))) return TU_NO_MEMORY;
    memcpy(digits, first, length);
    digits[length] = '\0';
    value->kind = TU__JSON_NUMBER;
    value->number = strtod_l(digits, NULL, p->locale);
    if (whole) {
        errno = 0;
        value->integer = strtoll(digits, NULL, 10);
        value->is_integer = errno == 0;
        if (!value->is_integer) value->integer = 0;
    }
    if (digits != small) tu__free(digits);
    if (isfinite(value->number)) return TU_OK;
    return refuse(p, "the number %.*s is beyond what a double can hold", length < 40 ? (int)length : 40,
                  first);
}

/* ---- Strings ---- */

static tu_status parse_hex4(parser *p, unsigned *code) {
    *code = 0;
    for (int i = 0; i < 4; i++) {
        char c = '\0';
        if (p->at < p->end) c = *p->at;
        unsigned digit;
        if (c >= '0' && c <= '9')
            digit = (unsigned)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (unsigned)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F')
            digit = (unsigned)(c - 'A') + 10;
        else
            return refuse_here(p, "four hexadecimal digits after \\u");
        *code = *code * 16 + digit;
        p->at++;
    }
    return TU_OK;
}

static char *put_utf8(char *out, unsigned code) {
    if (code < 0x80) {
        *out++ = (char)code;
        return out;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xC0, 0xE0, 0xF0};
    *out++ = (char)(lead[more] | code >> (6 * more));
    while (more-- > 0) *out++ = (char)(0x80 | (code >> (6 * more) & 0x3F));
    return out;
}

/* What follows \u: a code, or two that are halves of one beyond U+FFFF. */
static tu_status parse_code(parser *p, unsigned *code) {
    TU_TRY(parse_hex4(p, code));
    if (*code == 0) return refuse(p, "a string holds \\u0000, which no text here may");
    if (*code < 0xD800 || *code > 0xDFFF) return TU_OK;
    unsigned low;
    if (*code > 0xDBFF || !take_word(p, "\\u"))
        return refuse(p, "a string holds \\u%04x, half of a pair without its other half", *code);
    TU_TRY(parse_hex4(p, &low));
    if (low < 0xDC00 || low > 0xDFFF)
        return refuse(p, "a string holds \\u%04x, half of a pair, followed by \\u%04x", *code, low);
    *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
    return TU_OK;
}

static tu_status parse_escape(parser *p, char **out) {
    static const char meaning[128] = {['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
                                      ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t'};
    p->at++;
    if (take(p, 'u')) {
        unsigned code;
        TU_TRY(parse_code(p, &code));
        *out = put_utf8(*out, code);
        return TU_OK;
    }
    unsigned char c = p->at < p->end ? (unsigned char)*p->at : 0;
    if (c >= 128 || !meaning[c]) return refuse_here(p, "one of \"\\/bfnrtu after a backslash");
    *(*out)++ = meaning[c];
    p->at++;
    return TU_OK;
}

/* Where the string that begins at `at` ends, if it does: a bound for the length of what it says. */
static const char *string_end(const parser *p) {
    for (const char *s = p->at + 1; s < p->end; s++) {
        if (*s == '"') return s;
        if (*s == '\\') s++;
    }
    return NULL;
}

static tu_status parse_string(parser *p, const char **string) {
    if (!next_is(p, '"')) return refuse_here(p, "a string");
    const char *end = string_end(p);
    if (!end) return refuse(p, "a string begins here and never ends");
    char *text = tu__arena_alloc(p->arena, (size_t)(end - p->at)); /* an escape is longer than what it says */
    if (!text) return TU_NO_MEMORY;
    *string = text;
    p->at++;
    while (p->at < end) {
        unsigned char c = (unsigned char)*p->at;
        if (c == '\\') {
            TU_TRY(parse_escape(p, &text));
            continue;
        }
        if (c < 0x20) return refuse(p, "a string holds the control character 0x%02x: expected an escape", c);
        bool valid;
        size_t length = tu__utf8_length(p->at, (size_t)(end - p->at), &valid);
        if (!valid) return refuse(p, "a string is not UTF-8 at byte 0x%02x", c);
        memcpy(text, p->at, length);
        text += length;
        p->at += length;
    }
    *text = '\0';
    p->at++;
    return TU_OK;
}

/* ---- Containers ---- */

static tu_status push(parser *p, const entry *element) {
    if (p->used == p->capacity) {
        size_t capacity = p->capacity ? p->capacity * 2 : 64;
        entry *stack = tu__realloc(p->stack, capacity * sizeof *stack, "reading JSON");
        if (!stack) return TU_NO_MEMORY;
        p->stack = stack;
        p->capacity = capacity;
    }
    p->stack[p->used++] = *element;
    return TU_OK;
}

static int compare_keys(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static tu_status refuse_duplicates(const parser *p, size_t count, const char *const *keys) {
    if (count < 2) return TU_OK;
    const char **sorted = tu__alloc_array(count, sizeof *sorted, "the keys of a JSON object");
    if (!sorted) return TU_NO_MEMORY;
    memcpy(sorted, keys, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_keys);
    tu_status status = TU_OK;
    for (size_t i = 1; i < count && status == TU_OK; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            status = refuse(p, "the key \"%.80s\" occurs twice in one object", sorted[i]);
    tu__free(sorted);
    return status;
}

/* Moves the elements above `base` from the stack to the arena. */
static tu_status close_container(parser *p, size_t base, tu__json_value *container) {
    size_t count = p->used - base;
    bool object = container->kind == TU__JSON_OBJECT;
    p->used = base;
    container->count = count;
    if (count == 0) return TU_OK;
    tu__json_value *values = tu__arena_alloc(p->arena, count * sizeof *values);
    const char **keys = object ? tu__arena_alloc(p->arena, count * sizeof *keys) : NULL;
    if (!values || (object && !keys)) return TU_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        values[i] = p->stack[base + i].value;
        if (object) keys[i] = p->stack[base + i].key;
    }
    container->values = values;
    container->keys = keys;
    return object ? refuse_duplicates(p, count, keys) : TU_OK;
}

static tu_status parse_value(parser *p, int depth, tu__json_value *value);

static tu_status parse_element(parser *p, bool object, int depth) {
    entry element = {0};
    skip_space(p);
    if (object) {
        TU_TRY(parse_string(p, &element.key));
        skip_space(p);
        if (!take(p, ':')) return refuse_here(p, "':' after a key");
    }
    TU_TRY(parse_value(p, depth, &element.value));
    skip_space(p);
    return push(p, &element);
}

static tu_status parse_container(parser *p, int depth, tu__json_value *value) {
    if (depth == TU_JSON_MAX_DEPTH)
        return refuse(p, "arrays and objects are nested deeper than %d", TU_JSON_MAX_DEPTH);
    bool object = *p->at++ == '{';
    char end = object ? '}' : ']';
    size_t base = p->used;
    value->kind = object ? TU__JSON_OBJECT : TU__JSON_ARRAY;
    skip_space(p);
    if (!next_is(p, end)) {
        do TU_TRY(parse_element(p, object, depth + 1));
        while (take(p, ','));
        if (!next_is(p, end)) return refuse_here(p, object ? "',' or '}'" : "',' or ']'");
    }
    p->at++;
    return close_container(p, base, value);
}

static tu_status parse_value(parser *p, int depth, tu__json_value *value) {
    skip_space(p);
    *value = (tu__json_value){0};
    char c = '\0';
    if (p->at < p->end) c = *p->at;
    if (c == '{' || c == '[') return parse_container(p, depth, value);
    if (c == '-' || (c >= '0' && c <= '9')) return parse_number(p, value);
    if (c == '"') {
        value->kind = TU__JSON_STRING;
        return parse_string(p, &value->string);
    }
    if (take_word(p, "null")) return TU_OK;
    value->kind = TU__JSON_BOOL;
    if (take_word(p, "false")) return TU_OK;
    value->truth = true;
    return take_word(p, "true") ? TU_OK : refuse_here(p, "a value");
}

/* ---- The interface ---- */

static tu_status parse_document(parser *p, tu__json_value *value) {
    TU_TRY(parse_value(p, 0, value));
    skip_space(p);
    return p->at == p->end ? TU_OK : refuse_here(p, "the end after the value");
}

tu_status tu__json_parse(tu__arena *arena, const char *name, const char *text, size_t length,
                         const tu__json_value **value) {
    *value = NULL;
    tu__json_value *root = tu__arena_alloc(arena, sizeof *root);
    if (!root) return TU_NO_MEMORY;
    parser p = {.arena = arena, .name = name, .begin = text, .at = text, .end = text + length};
    p.locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!p.locale) return tu__fail_memory("the locale that JSON is read in", 0);
    tu_status status = parse_document(&p, root);
    freelocale(p.locale);
    tu__free(p.stack);
    if (status == TU_OK) *value = root;
    return status;
}

const tu__json_value *tu__json_member(const tu__json_value *object, const char *key) {
    if (!object || object->kind != TU__JSON_OBJECT) return NULL;
    for (size_t i = 0; i < object->count; i++)
        if (strcmp(object->keys[i], key) == 0) return &object->values[i];
    return NULL;
}
