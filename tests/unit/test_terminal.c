/* What comes from outside cannot control the terminal: the filter of stdout and stderr. */
#include <string.h>

#include "test.h"

#include "cli/terminal.h"

/* Filters the text in pieces of `piece` bytes. */
static const char *safe(const char *text, size_t piece) {
    static char out[CLI_SAFE_BYTES(512)];
    struct cli_pending pending = {.count = 0};
    size_t used = 0, length = strlen(text);
    for (size_t i = 0; i < length; i += piece)
        used += cli_make_safe(&pending, text + i, length - i < piece ? length - i : piece, out + used);
    out[used] = '\0';
    return out;
}

static void text_is_kept(void **state) {
    (void)state;
    static const char text[] = "tab\tand\nlines, Käse, 猫, 🐈, \xC2\xA0";
    for (size_t piece = 1; piece < sizeof text; piece++) assert_string_equal(safe(text, piece), text);
}

static void control_characters_become_text(void **state) {
    (void)state;
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"\x1b]0;title\a", "\\x1b]0;title\\x07"},
        {"one\rtwo", "one\\x0dtwo"},
        {"\x7f", "\\x7f"},
        {"\xC2\x9B"
         "31m",
         "\\u009b31m"},
        {"\xE2\x80\xAEgpj\xE2\x80\xAC", "\\u202egpj\\u202c"},
        {"\x9b", "\\x9b"},
        {"\xff\xfe", "\\xff\\xfe"},
        {"\xC0\x8A", "\\xc0\\x8a"},                   /* an overlong newline */
        {"\xED\xA0\x80", "\\xed\\xa0\\x80"},          /* a surrogate */
        {"\xF4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, /* above U+10FFFF */
        {"\xE7\x8Cx", "\\xe7\\x8cx"},                 /* a character that is cut short */
        {"a\xF0\x9F\x90z\xC2", "a\\xf0\\x9f\\x90z"},  /* the last byte waits for the next */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t piece = 1; piece < 12; piece++)
            assert_string_equal(safe(rows[i].text, piece), rows[i].expected);
}

static void no_bytes_give_raw_control_bytes(void **state) {
    (void)state;
    unsigned seed = 1;
    for (int round = 0; round < 20000; round++) {
        char text[40];
        for (size_t i = 0; i < sizeof text - 1; i++) {
            seed = seed * 1664525u + 1013904223u;
            text[i] = (char)(seed >> 24 ? seed >> 24 : 1);
        }
        text[sizeof text - 1] = '\0';
        const char *out = safe(text, 1 + (size_t)round % 7);
        for (size_t i = 0; out[i]; i++) {
            unsigned char c = (unsigned char)out[i];
            assert_false((c < ' ' && c != '\n' && c != '\t') || c == 0x7F);
            assert_false(c == 0xC2 && (unsigned char)out[i + 1] < 0xA0);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_kept),
        cmocka_unit_test(control_characters_become_text),
        cmocka_unit_test(no_bytes_give_raw_control_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
