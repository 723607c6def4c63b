/* Amounts of memory as text: what is understood, what is refused, what is printed. */
#include "test.h"

#include "cli/size.h"

static void sizes_are_bytes_or_powers_of_1024(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"1", 1},
                {"4096", 4096},
                {"64M", 64 << 20},
                {"1G", 1 << 30},
                {"1.5G", 3u << 29},
                {"0.5K", 512},
                {"2T", (uint64_t)2 << 40},
                {"64MiB", 64 << 20},
                {"1.5 MiB", 3 << 19}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        uint64_t bytes = 0;
        if (!cli_parse_size(good[i].text, &bytes)) fail_msg("'%s' was refused", good[i].text);
        assert_int_equal(bytes, good[i].bytes);
    }
}

static void anything_else_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"",     "12Q",   "M",    ".",    "1.5.2", "-1",   "+1",      "0",
                                      "0.1",  "inf",   "nan",  "0x10", "1e3",   " 1",   "1  M",    "64m",
                                      "64MB", "64MiX", "64Mi", "1MM",  "1iB",   "1G\n", "9999999T"};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (cli_parse_size(bad[i], &bytes)) fail_msg("'%s' was taken", bad[i]);
    char digits[200];
    for (size_t i = 0; i + 1 < sizeof digits; i++) digits[i] = '9';
    digits[sizeof digits - 1] = '\0';
    assert_false(cli_parse_size(digits, &bytes));
}

static void sizes_are_printed_in_the_largest_unit_below(void **state) {
    (void)state;
    assert_string_equal(cli_size(0).text, "0 B");
    assert_string_equal(cli_size(1023).text, "1023 B");
    assert_string_equal(cli_size(1536).text, "1.5 KiB");
    assert_string_equal(cli_size((uint64_t)64 << 20).text, "64.0 MiB");
    assert_string_equal(cli_size(((uint64_t)64 << 20) + 1).text,
                        "64.1 MiB"); /* as a limit it must be enough */
    assert_string_equal(cli_size((uint64_t)5000 << 40).text, "5000.0 TiB");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_bytes_or_powers_of_1024),
        cmocka_unit_test(anything_else_is_refused),
        cmocka_unit_test(sizes_are_printed_in_the_largest_unit_below),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
