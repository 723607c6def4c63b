/* The strict JSON parser (RFC 8259). See json_read.h for its guarantees.
 *
 * Recursive descent, at most TU_JSON_MAX_DEPTH deep. The elements of all open containers are pushed on one stack.
 * They move to the arena when the container is closed and its size is known, so memory is proportional to the text's
 * size. Duplicate keys are found by sorting, in O(n log n).
 *
 * `next` never exceeds `end`; the text need not end with a NUL and may contain any bytes. */
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
    const char *name, *begin, *next, *end;
    entry *stack; /* elements of the open containers, outermost first */
    size_t used, capacity;
    size_t values_left; /* before the text is rejected */
    locale_t locale;    /* the C locale: numbers have a decimal point in any process locale */
} parser;

/* ---- Messages ---- */

static TU_PRINTF(2, 3) tu_status fail_at_line(const parser *p, const char *format, ...) {
    size_t line = 1;
    for (const char *s = p->begin; s < p->next; s++) line += *s == '\n';
    char reason[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return tu_fail(TU_CORRUPT, "%s: line %zu: %s", p->name, line, reason);
}

static tu_status fail_expected(const parser *p, const char *expected) {
    if (p->next == p->end) return fail_at_line(p, "the text ends where %s is expected", expected);
    unsigned char c = (unsigned char)*p->next;
    if (c > ' ' && c < 0x7F) return fail_at_line(p, "expected %s, found '%c'", expected, c);
    return fail_at_line(p, "expected %s, found byte 0x%02x", expected, c);
}

/* ---- Tokens ---- */

static void skip_space(parser *p) {
    while (p->next < p->end && (*p->next == ' ' || *p->next == '\t' || *p->next == '\n' || *p->next == '\r'))
        p->next++;
}

static bool next_is(const parser *p, char c) {
    return p->next < p->end && *p->next == c;
}

static bool skip_char(parser *p, char c) {
    if (!next_is(p, c)) return false;
    p->next++;
    return true;
}

static bool skip_word(parser *p, const char *word) {
    size_t length = strlen(word);
    if ((size_t)(p->end - p->next) < length || memcmp(p->next, word, length) != 0) return false;
    p->next += length;
    return true;
}

/* ---- Numbers ---- */

static size_t skip_digits(parser *p) {
    const char *first = p->next;
    while (p->next < p->end && *p->next >= '0' && *p->next <= '9') p->next++;
    return (size_t)(p->next - first);
}

/* Skips a number of RFC 8259's grammar: no leading zero or plus, digits on both sides of the point. */
static tu_status scan_number(parser *p, bool *is_integer_text) {
    skip_char(p, '-');
    if (!skip_char(p, '0') && !skip_digits(p)) return fail_expected(p, "a digit");
    if (p->next < p->end && *p->next >= '0' && *p->next <= '9')
        return fail_at_line(p, "a number must not have a leading zero");
    *is_integer_text = true;
    if (skip_char(p, '.')) {
        *is_integer_text = false;
        if (!skip_digits(p)) return fail_expected(p, "a digit after the point");
    }
    if (skip_char(p, 'e') || skip_char(p, 'E')) {
        *is_integer_text = false;
        if (!skip_char(p, '+')) skip_char(p, '-');
        if (!skip_digits(p)) return fail_expected(p, "a digit of the exponent");
    }
    return TU_OK;
}

static tu_status parse_number(parser *p, tu__json_value *value) {
    const char *first = p->next;
    bool is_integer_text = false;
    TU_TRY(scan_number(p, &is_integer_text));
    char small[64], *digits = small; /* a NUL-terminated copy */
    size_t length = (size_t)(p->next - first);
    if (length >= sizeof small && !(digits = tu__alloc(length + 1, "a number of JSON"))) return TU_NO_MEMORY;
    memcpy(digits, first, length);
    digits[length] = '\0';
    value->kind = TU__JSON_NUMBER;
    value->is_integer = false;
    value->number = strtod_l(digits, NULL, p->locale);
    if (is_integer_text) {
        errno = 0;
        value->integer = strtoll(digits, NULL, 10);
        value->is_integer = errno == 0;
        if (!value->is_integer) value->integer = 0;
    }
    if (digits != small) tu__free(digits);
    if (isfinite(value->number)) return TU_OK;
    return fail_at_line(p, "the number %.*s is too large for a double", length < 40 ? (int)length : 40,
                        first);
}

/* ---- Strings ---- */

static tu_status parse_hex4(parser *p, unsigned *code) {
    *code = 0;
    for (int i = 0; i < 4; i++) {
        char c = '\0';
        if (p->next < p->end) c = *p->next;
        unsigned digit;
        if (c >= '0' && c <= '9')
            digit = (unsigned)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (unsigned)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F')
            digit = (unsigned)(c - 'A') + 10;
        else
            return fail_expected(p, "four hexadecimal digits after \\u");
        *code = *code * 16 + digit;
        p->next++;
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

/* Parses the digits after \u: one code point, or a surrogate pair for one above U+FFFF. */
static tu_status parse_code(parser *p, unsigned *code) {
    TU_TRY(parse_hex4(p, code));
    if (*code == 0) return fail_at_line(p, "a string contains \\u0000, which is not supported");
    if (*code < 0xD800 || *code > 0xDFFF) return TU_OK;
    unsigned low;
    if (*code > 0xDBFF || !skip_word(p, "\\u"))
        return fail_at_line(p, "a string contains \\u%04x, half of a surrogate pair without the other half",
                            *code);
    TU_TRY(parse_hex4(p, &low));
    if (low < 0xDC00 || low > 0xDFFF)
        return fail_at_line(p, "a string contains \\u%04x, half of a surrogate pair, followed by \\u%04x",
                            *code, low);
    *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
    return TU_OK;
}

static tu_status parse_escape(parser *p, char **out) {
    static const char escapes[128] = {['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
                                      ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t'};
    p->next++;
    if (skip_char(p, 'u')) {
        unsigned code;
        TU_TRY(parse_code(p, &code));
        *out = put_utf8(*out, code);
        return TU_OK;
    }
    unsigned char c = p->next < p->end ? (unsigned char)*p->next : 0;
    if (c >= 128 || !escapes[c]) return fail_expected(p, "one of \"\\/bfnrtu after a backslash");
    *(*out)++ = escapes[c];
    p->next++;
    return TU_OK;
}

/* Returns the closing quote of the string that begins at `next`, or NULL. The decoded string is not longer. */
static const char *string_end(const parser *p) {
    for (const char *s = p->next + 1; s < p->end; s++) {
        if (*s == '"') return s;
        if (*s == '\\') s++;
    }
    return NULL;
}

static tu_status parse_string(parser *p, const char **string) {
    if (!next_is(p, '"')) return fail_expected(p, "a string");
    const char *end = string_end(p);
    if (!end) return fail_at_line(p, "a string has no closing quote");
    char *text = tu__arena_alloc(p->arena, (size_t)(end - p->next)); /* decoding never makes it longer */
    if (!text) return TU_NO_MEMORY;
    *string = text;
    p->next++;
    while (p->next < end) {
        unsigned char c = (unsigned char)*p->next;
        if (c == '\\') {
            TU_TRY(parse_escape(p, &text));
            continue;
        }
        if (c < 0x20)
            return fail_at_line(p, "a string contains the control character 0x%02x: expected an escape", c);
        bool valid;
        size_t length = tu__utf8_length(p->next, (size_t)(end - p->next), &valid);
        if (!valid) return fail_at_line(p, "a string is not UTF-8 at byte 0x%02x", c);
        memcpy(text, p->next, length);
        text += length;
        p->next += length;
    }
    *text = '\0';
    p->next++;
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

static tu_status reject_duplicate_keys(const parser *p, size_t count, const char *const *keys) {
    if (count < 2) return TU_OK;
    const char **sorted = tu__alloc_array(count, sizeof *sorted, "the keys of a JSON object");
    if (!sorted) return TU_NO_MEMORY;
    memcpy(sorted, keys, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_keys);
    tu_status status = TU_OK;
    for (size_t i = 1; i < count && status == TU_OK; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            status = fail_at_line(p, "the key \"%.80s\" occurs twice in one object", sorted[i]);
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
    return object ? reject_duplicate_keys(p, count, keys) : TU_OK;
}

static tu_status parse_value(parser *p, int depth, tu__json_value *value);

static tu_status parse_element(parser *p, bool object, int depth) {
    entry element = {0};
    skip_space(p);
    if (object) {
        TU_TRY(parse_string(p, &element.key));
        skip_space(p);
        if (!skip_char(p, ':')) return fail_expected(p, "':' after a key");
    }
    TU_TRY(parse_value(p, depth, &element.value));
    skip_space(p);
    return push(p, &element);
}

static tu_status parse_container(parser *p, int depth, tu__json_value *value) {
    if (depth == TU_JSON_MAX_DEPTH)
        return fail_at_line(p, "arrays and objects are nested deeper than %d", TU_JSON_MAX_DEPTH);
    bool object = *p->next++ == '{';
    char end = object ? '}' : ']';
    size_t base = p->used;
    value->kind = object ? TU__JSON_OBJECT : TU__JSON_ARRAY;
    skip_space(p);
    if (!next_is(p, end)) {
        do TU_TRY(parse_element(p, object, depth + 1));
        while (skip_char(p, ','));
        if (!next_is(p, end)) return fail_expected(p, object ? "',' or '}'" : "',' or ']'");
    }
    p->next++;
    return close_container(p, base, value);
}

static tu_status parse_value(parser *p, int depth, tu__json_value *value) {
    skip_space(p);
    *value = (tu__json_value){0};
    if (!p->values_left--) return fail_at_line(p, "there are too many values for a text of this size");
    char c = '\0';
    if (p->next < p->end) c = *p->next;
    if (c == '{' || c == '[') return parse_container(p, depth, value);
    if (c == '-' || (c >= '0' && c <= '9')) return parse_number(p, value);
    if (c == '"') {
        value->kind = TU__JSON_STRING;
        return parse_string(p, &value->string);
    }
    if (skip_word(p, "null")) return TU_OK;
    value->kind = TU__JSON_BOOL;
    if (skip_word(p, "false")) return TU_OK;
    value->truth = true;
    return skip_word(p, "true") ? TU_OK : fail_expected(p, "a value");
}

/* ---- The interface ---- */

static tu_status parse_document(parser *p, tu__json_value *value) {
    TU_TRY(parse_value(p, 0, value));
    skip_space(p);
    return p->next == p->end ? TU_OK : fail_expected(p, "the end after the value");
}

static tu_status begin(parser *p, tu__arena *arena, const char *name, const char *text, size_t length) {
    *p = (parser){.arena = arena, .name = name, .begin = text, .next = text, .end = text + length};
    p->values_left = TU__JSON_MAX_VALUES + length / 12;
    p->locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return p->locale ? TU_OK : tu__fail_memory("the locale for reading JSON", 0);
}

static void end(parser *p) {
    freelocale(p->locale);
    tu__free(p->stack);
}

tu_status tu__json_parse(tu__arena *arena, const char *name, const char *text, size_t length,
                         const tu__json_value **value) {
    *value = NULL;
    tu__json_value *root = tu__arena_alloc(arena, sizeof *root);
    if (!root) return TU_NO_MEMORY;
    parser p;
    TU_TRY(begin(&p, arena, name, text, length));
    tu_status status = parse_document(&p, root);
    end(&p);
    if (status == TU_OK) *value = root;
    return status;
}

/* ---- Members one at a time ---- */

typedef tu_status (*visitor)(void *context, const char *key, const tu__json_value *value);

static tu_status visit_member(parser *p, visitor visit, void *context) {
    tu__arena arena = {.purpose = "a member of a JSON object"};
    const char *key = NULL;
    tu__json_value value;
    p->arena = &arena;
    p->values_left = TU__JSON_MAX_VALUES;
    skip_space(p);
    tu_status status = parse_string(p, &key);
    if (status == TU_OK) skip_space(p);
    if (status == TU_OK && !skip_char(p, ':')) status = fail_expected(p, "':' after a key");
    if (status == TU_OK) status = parse_value(p, 1, &value);
    if (status == TU_OK) status = visit(context, key, &value);
    if (status == TU_OK) skip_space(p);
    tu__arena_free(&arena);
    p->arena = NULL;
    return status;
}

static tu_status visit_members(parser *p, visitor visit, void *context) {
    skip_space(p);
    if (!skip_char(p, '{')) return fail_expected(p, "'{'");
    skip_space(p);
    if (!next_is(p, '}')) {
        do TU_TRY(visit_member(p, visit, context));
        while (skip_char(p, ','));
        if (!next_is(p, '}')) return fail_expected(p, "',' or '}'");
    }
    p->next++;
    skip_space(p);
    return p->next == p->end ? TU_OK : fail_expected(p, "the end after the value");
}

tu_status tu__json_visit(const char *name, const char *text, size_t length, visitor visit, void *context) {
    parser p;
    TU_TRY(begin(&p, NULL, name, text, length));
    tu_status status = visit_members(&p, visit, context);
    end(&p);
    return status;
}

const tu__json_value *tu__json_member(const tu__json_value *object, const char *key) {
    if (!object || object->kind != TU__JSON_OBJECT) return NULL;
    for (size_t i = 0; i < object->count; i++)
        if (strcmp(object->keys[i], key) == 0) return &object->values[i];
    return NULL;
}
