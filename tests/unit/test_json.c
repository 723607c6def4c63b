/* The JSON writer writes valid JSON for any input and reports write errors. */
#include "test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "decimal_comma.h"

static tu__text text;
static tu_json json;

static int begin_document(void **state) {
    (void)state;
    json = tu__json_to_text(&text);
    return 0;
}

static int end_document(void **state) {
    (void)state;
    tu__text_free(&text);
    return 0;
}

static void assert_written(const char *expected) {
    assert_true(tu_json_finish(&json));
    assert_string_equal(tu__text_string(&text), expected);
}

static void objects_and_arrays_nest(void **state) {
    (void)state;
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "device", "cpu:0");
    tu_json_begin_array(&json, "shape");
    tu_json_i64(&json, NULL, 128);
    tu_json_i64(&json, NULL, 784);
    tu_json_end_array(&json);
    tu_json_begin_object(&json, "empty");
    tu_json_end_object(&json);
    tu_json_begin_array(&json, "rows");
    tu_json_begin_object(&json, NULL);
    tu_json_bool(&json, "ok", true);
    tu_json_end_object(&json);
    tu_json_begin_array(&json, NULL);
    tu_json_end_array(&json);
    tu_json_null(&json, NULL);
    tu_json_end_array(&json);
    tu_json_bool(&json, "last", false);
    tu_json_end_object(&json);
    assert_written("{\"device\":\"cpu:0\",\"shape\":[128,784],\"empty\":{},\"rows\":[{\"ok\":true},[],null],"
                   "\"last\":false}");
}

static void a_single_value_is_a_document(void **state) {
    (void)state;
    tu_json_string(&json, NULL, "alone");
    assert_written("\"alone\"");
}

static void strings_and_keys_are_escaped(void **state) {
    (void)state;
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "a\"b", "quote \" backslash \\ slash /");
    tu__json_bytes(&json, "control", "\b\f\n\r\t\0\x1f\x7f", 8);
    tu_json_string(&json, "none", NULL);
    tu_json_end_object(&json);
    assert_written(
        "{\"a\\\"b\":\"quote \\\" backslash \\\\ slash /\",\"control\":\"\\b\\f\\n\\r\\t\\u0000\\u001f\\u007f\","
        "\"none\":null}");
}

/* The first and last characters of two, three and four bytes, and the characters next to the surrogates. */
#define TWO_BYTES "\xC2\xA0\xDF\xBF"
#define THREE_BYTES "\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF"
#define FOUR_BYTES "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF"

static void valid_utf8_passes_unchanged(void **state) {
    (void)state;
    tu_json_string(&json, NULL, TWO_BYTES THREE_BYTES FOUR_BYTES);
    assert_written("\"" TWO_BYTES THREE_BYTES FOUR_BYTES "\"");
}

/* Control characters beyond ASCII are valid in JSON, but a terminal obeys them. */
static void c1_controls_are_escaped(void **state) {
    (void)state;
    tu_json_string(&json, NULL, "\xC2\x80 \xC2\x9B \xC2\x9F \xC2\xA0");
    assert_written("\"\\u0080 \\u009b \\u009f \xC2\xA0\"");
}

#define REPLACED "\xEF\xBF\xBD"

static void ill_formed_utf8_is_replaced(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *written;
    } cases[] = {
        {"a\xFFz", "a" REPLACED "z"},
        {"\x80", REPLACED},                                        /* a single continuation byte */
        {"\xC0\x80", REPLACED REPLACED},                           /* overlong, of two bytes */
        {"\xE0\x80\x80", REPLACED REPLACED REPLACED},              /* overlong, of three */
        {"\xED\xA0\x80", REPLACED REPLACED REPLACED},              /* a surrogate */
        {"\xF4\x90\x80\x80", REPLACED REPLACED REPLACED REPLACED}, /* beyond U+10FFFF */
        {"\xE2\x82", REPLACED},                                    /* truncated at the end: one replacement */
        {"\xE2\x82\"", REPLACED "\\\""},                           /* truncated before an escaped character */
        {"\xF0\x9F\x8Ez", REPLACED "z"},                           /* truncated before another character */
        {"\xE2\xE2\x82\xAC", REPLACED "\xE2\x82\xAC"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char expected[64];
        snprintf(expected, sizeof expected, "\"%s\"", cases[i].written);
        json = tu__json_to_text(&text);
        tu_json_string(&json, NULL, cases[i].bytes);
        assert_written(expected);
        tu__text_free(&text);
    }
}

static void integers_keep_their_extremes(void **state) {
    (void)state;
    tu_json_begin_array(&json, NULL);
    tu_json_i64(&json, NULL, INT64_MIN);
    tu_json_i64(&json, NULL, INT64_MAX);
    tu_json_u64(&json, NULL, UINT64_MAX);
    tu_json_end_array(&json);
    assert_written("[-9223372036854775808,9223372036854775807,18446744073709551615]");
}

static void doubles_are_short_and_read_back_exactly(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *written;
    } cases[] = {
        {0.0, "0"},        {-0.0, "-0"},          {1.0, "1"},
        {100.0, "100"},    {0.1, "0.1"},          {1.0 / 3, "0.3333333333333333"},
        {1e300, "1e+300"}, {-2.5e-7, "-2.5e-07"}, {0.1 + 0.2, "0.30000000000000004"},
        {NAN, "null"},     {INFINITY, "null"},    {-INFINITY, "null"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json = tu__json_to_text(&text);
        tu_json_f64(&json, NULL, cases[i].value);
        assert_written(cases[i].written);
        tu__text_free(&text);
    }
    static const double extremes[] = {DBL_MAX, -DBL_MAX, DBL_MIN, 4.9406564584124654e-324, DBL_EPSILON};
    for (size_t i = 0; i < sizeof extremes / sizeof *extremes; i++) {
        json = tu__json_to_text(&text);
        tu_json_f64(&json, NULL, extremes[i]);
        assert_true(strtod(tu__text_string(&text), NULL) == extremes[i]);
        tu__text_free(&text);
    }
}

static void a_locale_with_a_decimal_comma_changes_nothing(void **state) {
    (void)state;
    if (!set_decimal_comma()) skip();
    tu_json_f64(&json, NULL, 1.5e-9);
    setlocale(LC_NUMERIC, "C");
    assert_written("1.5e-09");
}

static void finish_fails_for_an_unclosed_document(void **state) {
    (void)state;
    tu_json_begin_object(&json, NULL);
    assert_false(tu_json_finish(&json));
}

static void too_deep_nesting_fails(void **state) {
    (void)state;
    for (int i = 0; i < TU_JSON_MAX_DEPTH; i++) tu_json_begin_array(&json, NULL);
    assert_false(json.failed);
    tu_json_begin_array(&json, NULL);
    assert_true(json.failed);
    for (int i = 0; i <= TU_JSON_MAX_DEPTH; i++) tu_json_end_array(&json);
    assert_false(tu_json_finish(&json));
}

static void a_call_that_would_make_the_document_invalid_fails(void **state) {
    (void)state;
    enum { KEY_IN_ARRAY, NO_KEY_IN_OBJECT, WRONG_END, END_ALONE, SECOND_DOCUMENT, MISUSES };
    for (int misuse = 0; misuse < MISUSES; misuse++) {
        json = tu__json_to_text(&text);
        if (misuse == KEY_IN_ARRAY || misuse == WRONG_END) tu_json_begin_array(&json, NULL);
        if (misuse == NO_KEY_IN_OBJECT) tu_json_begin_object(&json, NULL);
        if (misuse == SECOND_DOCUMENT) tu_json_null(&json, NULL);
        assert_false(json.failed);
        if (misuse == KEY_IN_ARRAY) tu_json_i64(&json, "key", 1);
        if (misuse == NO_KEY_IN_OBJECT || misuse == SECOND_DOCUMENT) tu_json_i64(&json, NULL, 1);
        if (misuse == WRONG_END || misuse == END_ALONE) tu_json_end_object(&json);
        assert_true(json.failed);
        tu__text_free(&text);
    }
}

static void running_out_of_memory_is_reported_once_at_the_end(void **state) {
    (void)state;
    tu__alloc_fail_at(1);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "key", "value");
    tu_json_end_object(&json);
    tu__alloc_fail_at(0);
    assert_false(tu_json_finish(&json));
}

static void a_file_receives_the_same_bytes(void **state) {
    (void)state;
    char buffer[64] = "";
    FILE *file = fmemopen(buffer, sizeof buffer, "w");
    assert_non_null(file);
    tu_json to_file = tu_json_to_file(file);
    tu_json_begin_array(&to_file, NULL);
    tu_json_f64(&to_file, NULL, 0.5);
    tu_json_end_array(&to_file);
    assert_true(tu_json_finish(&to_file));
    fclose(file);
    assert_string_equal(buffer, "[0.5]");
}

static void a_full_disk_is_reported(void **state) {
    (void)state;
    FILE *file = fopen("/dev/full", "w");
    if (!file) skip();
    setvbuf(file, NULL, _IONBF, 0);
    tu_json to_file = tu_json_to_file(file);
    tu_json_string(&to_file, NULL, "lost");
    assert_false(tu_json_finish(&to_file));
    fclose(file);
}

#define DOCUMENT_TEST(test) cmocka_unit_test_setup_teardown(test, begin_document, end_document)

int main(void) {
    const struct CMUnitTest tests[] = {
        DOCUMENT_TEST(objects_and_arrays_nest),
        DOCUMENT_TEST(a_single_value_is_a_document),
        DOCUMENT_TEST(strings_and_keys_are_escaped),
        DOCUMENT_TEST(valid_utf8_passes_unchanged),
        DOCUMENT_TEST(c1_controls_are_escaped),
        DOCUMENT_TEST(ill_formed_utf8_is_replaced),
        DOCUMENT_TEST(integers_keep_their_extremes),
        DOCUMENT_TEST(doubles_are_short_and_read_back_exactly),
        DOCUMENT_TEST(a_locale_with_a_decimal_comma_changes_nothing),
        DOCUMENT_TEST(finish_fails_for_an_unclosed_document),
        DOCUMENT_TEST(too_deep_nesting_fails),
        DOCUMENT_TEST(a_call_that_would_make_the_document_invalid_fails),
        DOCUMENT_TEST(running_out_of_memory_is_reported_once_at_the_end),
        DOCUMENT_TEST(a_file_receives_the_same_bytes),
        DOCUMENT_TEST(a_full_disk_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
