/* Tests of parsing and printing memory sizes such as 64M and 1.5 GiB. */
#include "test.h"

#include "cli/byte_size.h"

static void sizes_are_bytes_or_powers_of_1024(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } valid[] = {{"1", 1},
                 {"4096", 4096},
                 {"64M", 64 << 20},
                 {"1G", 1 << 30},
                 {"1.5G", 3u << 29},
                 {"0.5K", 512},
                 {"2T", (uint64_t)2 << 40},
                 {"64MiB", 64 << 20},
                 {"1.5 MiB", 3 << 19}};
    for (size_t i = 0; i < sizeof valid / sizeof *valid; i++) {
        uint64_t bytes = 0;
        if (!cli_parse_bytes(valid[i].text, &bytes)) fail_msg("'%s' was rejected", valid[i].text);
        assert_int_equal(bytes, valid[i].bytes);
    }
}

static void invalid_sizes_are_rejected(void **state) {
    (void)state;
    static const char *const invalid[] = {"",     "12Q",   "M",    ".",    "1.5.2", "-1",   "+1",      "0",
                                          "0.1",  "inf",   "nan",  "0x10", "1e3",   " 1",   "1  M",    "64m",
                                          "64MB", "64MiX", "64Mi", "1MM",  "1iB",   "1G\n", "9999999T"};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++)
        if (cli_parse_bytes(invalid[i], &bytes)) fail_msg("'%s' was accepted", invalid[i]);
    char digits[200];
    for (size_t i = 0; i + 1 < sizeof digits; i++) digits[i] = '9';
    digits[sizeof digits - 1] = '\0';
    assert_false(cli_parse_bytes(digits, &bytes));
}

static void sizes_are_printed_in_the_largest_unit_not_above_them(void **state) {
    (void)state;
    assert_string_equal(cli_format_bytes(0).text, "0 B");
    assert_string_equal(cli_format_bytes(1023).text, "1023 B");
    assert_string_equal(cli_format_bytes(1536).text, "1.5 KiB");
    assert_string_equal(cli_format_bytes((uint64_t)64 << 20).text, "64.0 MiB");
    assert_string_equal(cli_format_bytes(((uint64_t)64 << 20) + 1).text,
                        "64.1 MiB"); /* rounded up, so that it is sufficient as a limit */
    assert_string_equal(cli_format_bytes((uint64_t)5000 << 40).text, "5000.0 TiB");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_bytes_or_powers_of_1024),
        cmocka_unit_test(invalid_sizes_are_rejected),
        cmocka_unit_test(sizes_are_printed_in_the_largest_unit_not_above_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
