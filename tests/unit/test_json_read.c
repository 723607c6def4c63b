/* The JSON parser: accepted values, rejected input and error messages. */
#include "test.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/json_read.h"
#include "decimal_comma.h"

static tu__arena arena = {.purpose = "a test"};

static int free_arena(void **state) {
    (void)state;
    tu__arena_free(&arena);
    return 0;
}

/* Parses the text from a block of exactly its size, so that a sanitizer detects reads beyond it. */
static tu_status parse_bytes(const char *text, size_t length, const tu__json_value **value) {
    char *block = malloc(length ? length : 1);
    assert_non_null(block);
    memcpy(block, text, length);
    tu_status status = tu__json_parse(&arena, "t.json", block, length, value);
    free(block);
    return status;
}

static const tu__json_value *parse(const char *text) {
    const tu__json_value *value;
    if (parse_bytes(text, strlen(text), &value) != TU_OK) fail_msg("'%s': %s", text, tu_message());
    return value;
}

static void assert_parse_fails(const char *text, const char *expected) {
    const tu__json_value *value;
    assert_int_equal(parse_bytes(text, strlen(text), &value), TU_CORRUPT);
    assert_null(value);
    if (!strstr(tu_message(), expected))
        fail_msg("'%s': the message '%s' does not contain '%s'", text, tu_message(), expected);
}

static void every_kind_of_value_is_read(void **state) {
    (void)state;
    const tu__json_value *v =
        parse(" {\"a\":null,\"b\":true,\"c\":false,\"d\":-1.5e2,\n\"e\":\"text\",\"f\":[1,[ ],{ }]}\t\r\n");
    assert_int_equal(v->kind, TU__JSON_OBJECT);
    assert_int_equal(v->count, 6);
    assert_int_equal(tu__json_member(v, "a")->kind, TU__JSON_NULL);
    assert_true(tu__json_member(v, "b")->truth);
    assert_int_equal(tu__json_member(v, "c")->kind, TU__JSON_BOOL);
    assert_false(tu__json_member(v, "c")->truth);
    assert_true(tu__json_member(v, "d")->number == -150 && !tu__json_member(v, "d")->is_integer);
    assert_string_equal(tu__json_member(v, "e")->string, "text");
    const tu__json_value *f = tu__json_member(v, "f");
    assert_int_equal(f->count, 3);
    assert_int_equal(f->values[0].integer, 1);
    assert_int_equal(f->values[1].kind, TU__JSON_ARRAY);
    assert_int_equal(f->values[2].kind, TU__JSON_OBJECT);
    assert_int_equal(f->values[1].count + f->values[2].count, 0);
    for (size_t i = 0; i < v->count; i++) assert_int_equal(v->keys[i][0], 'a' + (int)i);
}

static void a_missing_member_is_null(void **state) {
    (void)state;
    assert_null(tu__json_member(parse("{\"a\":1}"), "b"));
    assert_null(tu__json_member(parse("[1]"), "a"));
    assert_null(tu__json_member(NULL, "a"));
}

static void integers_are_exact(void **state) {
    (void)state;
    const tu__json_value *v =
        parse("[-9223372036854775808,9223372036854775807,9223372036854775808,-0,1.0,1e3]");
    assert_true(v->values[0].is_integer && v->values[0].integer == INT64_MIN);
    assert_true(v->values[1].is_integer && v->values[1].integer == INT64_MAX);
    assert_false(v->values[2].is_integer);
    assert_true(v->values[2].number == 9223372036854775808.0);
    assert_true(v->values[3].is_integer && v->values[3].integer == 0 && signbit(v->values[3].number));
    assert_true(!v->values[4].is_integer && v->values[4].number == 1);
    assert_true(!v->values[5].is_integer && v->values[5].number == 1000);
}

static void numbers_outside_the_grammar_are_rejected(void **state) {
    (void)state;
    static const char *const wrong[] = {"+1",  "01",  "-01", "1.",       ".5",        "-",    "1e",  "1e+",
                                        "0x1", "NaN", "nan", "Infinity", "-Infinity", "1.e3", "--1", "1_0"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_parse_fails(wrong[i], "t.json: line 1: ");
    assert_parse_fails("1e999", "the number 1e999 is too large for a double");
    char long_number[4000];
    memset(long_number, '9', sizeof long_number);
    long_number[sizeof long_number - 1] = '\0';
    assert_parse_fails(long_number, "is too large for a double");
    memcpy(long_number, "0.", 2);
    assert_true(parse(long_number)->number == 1.0);
}

static void strings_are_unescaped(void **state) {
    (void)state;
    static const struct {
        const char *text, *string;
    } cases[] = {
        {"\"\"", ""},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
        {"\"\\u0041\\u00e9\\u20AC\"", "A\xC3\xA9\xE2\x82\xAC"},
        {"\"\\uD83D\\uDE00\"", "\xF0\x9F\x98\x80"},
        {"\"\\uDBFF\\uDFFF\"", "\xF4\x8F\xBF\xBF"},
        {"\"\xC3\xA9 \xF0\x9F\x98\x80\"", "\xC3\xA9 \xF0\x9F\x98\x80"},
        {"\"\x7F\"", "\x7F"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(parse(cases[i].text)->string, cases[i].string);
}

static void invalid_strings_are_rejected(void **state) {
    (void)state;
    assert_parse_fails("\"abc", "a string has no closing quote");
    assert_parse_fails("\"abc\\\"", "a string has no closing quote");
    assert_parse_fails("\"\\x\"", "after a backslash, found 'x'");
    assert_parse_fails("\"\\u12g4\"", "four hexadecimal digits after \\u, found 'g'");
    assert_parse_fails("\"\\u12\"", "four hexadecimal digits after \\u, found '\"'");
    assert_parse_fails("\"\\u0000\"", "contains \\u0000");
    assert_parse_fails("\"\\uD800\"", "\\ud800, half of a surrogate pair without the other half");
    assert_parse_fails("\"\\uDC00\\uD800\"", "\\udc00, half of a surrogate pair without");
    assert_parse_fails("\"\\uD800\\u0041\"", "\\ud800, half of a surrogate pair, followed by \\u0041");
    assert_parse_fails("\"a\nb\"", "the control character 0x0a: expected an escape");
    assert_parse_fails("\"\xFF\"", "not UTF-8 at byte 0xff");
    assert_parse_fails("\"\xC0\xAF\"", "not UTF-8 at byte 0xc0");
    assert_parse_fails("\"\xED\xA0\x80\"", "not UTF-8 at byte 0xed");
    assert_parse_fails("\"\xE2\x82\"", "not UTF-8 at byte 0xe2");
}

static void invalid_structure_is_rejected_with_its_line(void **state) {
    (void)state;
    assert_parse_fails("", "t.json: line 1: the text ends where a value is expected");
    assert_parse_fails("  \n\n ", "line 3: the text ends where a value");
    assert_parse_fails("{\n\"a\": 1,\n\"b\" 2}", "line 3: expected ':' after a key, found '2'");
    assert_parse_fails("{\"a\":1,}", "expected a string, found '}'");
    assert_parse_fails("[1,]", "expected a value, found ']'");
    assert_parse_fails("[1 2]", "expected ',' or ']', found '2'");
    assert_parse_fails("{\"a\":1]", "expected ',' or '}', found ']'");
    assert_parse_fails("[1", "the text ends where ',' or ']' is expected");
    assert_parse_fails("{a:1}", "expected a string, found 'a'");
    assert_parse_fails("[1]x", "expected the end after the value, found 'x'");
    assert_parse_fails("{} {}", "expected the end after the value, found '{'");
    assert_parse_fails("tru", "expected a value, found 't'");
    assert_parse_fails("\xEF\xBB\xBF{}", "expected a value, found byte 0xef");
    assert_parse_fails("'a'", "expected a value, found '''");
    const tu__json_value *value;
    assert_int_equal(parse_bytes("[1]\0", 4, &value), TU_CORRUPT);
}

static void duplicate_keys_are_rejected(void **state) {
    (void)state;
    assert_parse_fails("{\"a\":1,\"b\":2,\"a\":3}", "the key \"a\" occurs twice in one object");
    assert_parse_fails("{\"a\":1,\"\\u0061\":3}", "the key \"a\" occurs twice");
    assert_int_equal(parse("{\"a\":{\"a\":1},\"b\":[{\"a\":1},{\"a\":2}]}")->count, 2);
}

static void deep_nesting_is_rejected(void **state) {
    (void)state;
    char text[2 * TU_JSON_MAX_DEPTH + 3] = "";
    memset(text, '[', TU_JSON_MAX_DEPTH);
    memset(text + TU_JSON_MAX_DEPTH, ']', TU_JSON_MAX_DEPTH);
    assert_int_equal(parse(text)->count, 1);
    memset(text, '[', TU_JSON_MAX_DEPTH + 1);
    memset(text + TU_JSON_MAX_DEPTH + 1, ']', TU_JSON_MAX_DEPTH + 1);
    assert_parse_fails(text, "nested deeper than 64");
    char *deep = malloc(1000001);
    assert_non_null(deep);
    memset(deep, '[', 1000000);
    deep[1000000] = '\0';
    assert_parse_fails(deep, "nested deeper than 64");
    free(deep);
}

static void a_decimal_comma_in_the_locale_changes_nothing(void **state) {
    (void)state;
    if (!set_decimal_comma()) skip();
    double number = parse("1.5")->number;
    setlocale(LC_NUMERIC, "C");
    assert_true(number == 1.5);
}

static void output_of_the_writer_is_read_back(void **state) {
    (void)state;
    static const double numbers[] = {0.1, 1.0 / 3, 1e300, 4.9406564584124654e-324, -2.5e-7, 123456789.0};
    tu__text text = {0};
    tu_json json = tu__json_to_text(&text);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "say \"\\\x01\n\xC3\xA9", "\x1F\t/\xF0\x9F\x98\x80");
    tu_json_begin_array(&json, "numbers");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) tu_json_f64(&json, NULL, numbers[i]);
    tu_json_end_array(&json);
    tu_json_i64(&json, "least", INT64_MIN);
    tu_json_end_object(&json);
    assert_true(tu_json_finish(&json));
    const tu__json_value *v = parse(tu__text_string(&text));
    assert_string_equal(tu__json_member(v, "say \"\\\x01\n\xC3\xA9")->string, "\x1F\t/\xF0\x9F\x98\x80");
    const tu__json_value *list = tu__json_member(v, "numbers");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        assert_true(list->values[i].number == numbers[i]);
    assert_true(tu__json_member(v, "least")->integer == INT64_MIN);
    tu__text_free(&text);
}

static void running_out_of_memory_is_reported(void **state) {
    (void)state;
    tu__text text = {0}; /* a long number, many elements, a string */
    tu__text_printf(&text, "{\"n\":1%0100d,\"list\":[", 0);
    for (int i = 0; i < 200; i++) tu__text_append(&text, "[],", 3);
    tu__text_printf(&text, "\"x\"]}");
    const tu__json_value *value;
    int64_t live = tu__alloc_live();
    uint64_t n = 1;
    for (tu_status status = TU_NO_MEMORY; status != TU_OK; n++) {
        tu__alloc_fail_at(n);
        status = tu__json_parse(&arena, "t.json", text.data, text.length, &value);
        tu__alloc_fail_at(0);
        if (status != TU_OK) assert_int_equal(status, TU_NO_MEMORY);
        tu__arena_free(&arena);
        assert_int_equal(tu__alloc_live(), live);
    }
    assert_true(n > 4);
    tu__text_free(&text);
}

#define ARENA_TEST(test) cmocka_unit_test_teardown(test, free_arena)

int main(void) {
    const struct CMUnitTest tests[] = {
        ARENA_TEST(every_kind_of_value_is_read),
        ARENA_TEST(a_missing_member_is_null),
        ARENA_TEST(integers_are_exact),
        ARENA_TEST(numbers_outside_the_grammar_are_rejected),
        ARENA_TEST(strings_are_unescaped),
        ARENA_TEST(invalid_strings_are_rejected),
        ARENA_TEST(invalid_structure_is_rejected_with_its_line),
        ARENA_TEST(duplicate_keys_are_rejected),
        ARENA_TEST(deep_nesting_is_rejected),
        ARENA_TEST(a_decimal_comma_in_the_locale_changes_nothing),
        ARENA_TEST(output_of_the_writer_is_read_back),
        ARENA_TEST(running_out_of_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
