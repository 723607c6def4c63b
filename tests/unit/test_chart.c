/* Charts: well-formed SVG for any label and any numbers, round ticks, thinned curves; matrices of any size. */
#include "test.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "io/chart.h"
#include "io/chart_axis.h"
#include "io/chart_matrix.h"

/* ---- XML ---- */

/* Skips a tag and its attributes; records the names of open elements. */
static const char *pass_tag(const char *s, char open[][16], int *depth) {
    bool closes = *++s == '/';
    if (closes) s++;
    char name[16] = "";
    size_t length = strspn(s, "abcdefghijklmnopqrstuvwxyz");
    assert_in_range(length, 1, 15);
    memcpy(name, s, length);
    s += length;
    while (*s == ' ') {
        s += 1 + strspn(s + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-");
        assert_int_equal(strncmp(s, "=\"", 2), 0);
        s += 2;
        s += strcspn(s, "\"<&");
        assert_int_equal(*s++, '"');
    }
    bool empty = *s == '/';
    if (empty) s++;
    assert_int_equal(*s, '>');
    if (closes) {
        assert_true(*depth > 0);
        assert_string_equal(open[--*depth], name);
    } else if (!empty) {
        assert_true(*depth < 16);
        memcpy(open[(*depth)++], name, sizeof name);
    }
    return s + 1;
}

static const char *pass_entity(const char *s) {
    static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    for (int i = 0; i < 5; i++)
        if (strncmp(s, known[i], strlen(known[i])) == 0) return s + strlen(known[i]);
    fail_msg("no entity: '%.10s'", s);
    return s;
}

static void assert_well_formed(const tu__text *svg) {
    char open[16][16];
    int depth = 0, roots = 0;
    assert_int_equal(strlen(svg->data), svg->length);
    for (const char *s = svg->data; *s;) {
        unsigned char c = (unsigned char)*s;
        assert_true(c >= 0x20 || c == '\n' || c == '\t' || c == '\r');
        if (c == '<') {
            if (depth == 0) roots++;
            s = pass_tag(s, open, &depth);
        } else if (c == '&') {
            s = pass_entity(s);
        } else {
            assert_true(depth > 0 || c == '\n');
            s++;
        }
    }
    assert_int_equal(depth, 0);
    assert_int_equal(roots, 1);
    assert_null(strstr(svg->data, "nan"));
    assert_null(strstr(svg->data, "inf"));
}

static size_t occurrences(const char *text, const char *word) {
    size_t count = 0;
    for (const char *s = text; (s = strstr(s, word)); s++) count++;
    return count;
}

/* ---- Ticks and numbers ---- */

/* Writes the labels of an axis, separated by spaces. */
static const char *axis_labels(double low, double high, bool logarithmic, bool extend_to_ticks) {
    static tu__text text;
    tu__text_free(&text);
    tu__axis axis = tu__axis_of(low, high, logarithmic, extend_to_ticks);
    for (int i = 0; i < axis.tick_count; i++) {
        if (i) tu__text_append(&text, " ", 1);
        tu__axis_label(&text, &axis, axis.ticks[i]);
    }
    static char copy[512];
    snprintf(copy, sizeof copy, "%s", tu__text_string(&text));
    tu__text_free(&text);
    return copy;
}

static void ticks_are_round(void **state) {
    (void)state;
    assert_string_equal(axis_labels(0, 1, false, true), "0 0.2 0.4 0.6 0.8 1.0");
    assert_string_equal(axis_labels(0.31, 2.29, false, true), "0 0.5 1.0 1.5 2.0 2.5");
    assert_string_equal(axis_labels(0.31, 2.29, false, false), "0.5 1.0 1.5 2.0");
    assert_string_equal(axis_labels(-1, 1, false, true), "-1.0 -0.5 0 0.5 1.0");
    assert_string_equal(axis_labels(0, 7, false, true), "0 2 4 6 8");
    assert_string_equal(axis_labels(0, 19995, false, false), "0 5k 10k 15k");
    assert_string_equal(axis_labels(0, 3e6, false, false), "0 1M 2M 3M");
    assert_string_equal(axis_labels(0, 1.2e6, false, false), "0 500k 1M");
    assert_string_equal(axis_labels(90.1, 90.4, false, true), "90.1 90.2 90.3 90.4");
    assert_string_equal(axis_labels(0, 2e-5, false, true), "0 5e-6 1e-5 1.5e-5 2e-5");
}

static void logarithmic_ticks_are_powers_of_ten(void **state) {
    (void)state;
    assert_string_equal(axis_labels(1e-5, 0.1, true, true), "1e-5 0.0001 0.001 0.01 0.1");
    assert_string_equal(axis_labels(0.3, 4, true, true), "0.2 0.5 1 2 5");
    assert_string_equal(axis_labels(1, 1e16, true, true), "1 100 10k 1M 100M 1e10 1e12 1e14 1e16");
}

static void an_axis_is_valid_for_any_numbers(void **state) {
    (void)state;
    static const double ends[] = {0,        1,        -1,        5,   1e-320, 1e-300,   -1e-300, DBL_MAX,
                                  -DBL_MAX, INFINITY, -INFINITY, NAN, 1e16,   1e16 + 2, 0.1,     1e300};
    enum { COUNT = sizeof ends / sizeof *ends };
    for (int i = 0; i < COUNT * COUNT * 4; i++) {
        double low = ends[i % COUNT], high = ends[i / COUNT % COUNT];
        tu__axis axis = tu__axis_of(low, high, i / COUNT / COUNT & 1, i / COUNT / COUNT & 2);
        assert_true(isfinite(axis.low) && isfinite(axis.high) && axis.low < axis.high);
        if (axis.logarithmic) assert_true(axis.low > 0);
        assert_in_range(axis.tick_count, axis.logarithmic ? 0 : 1, 14);
        for (int k = 0; k < axis.tick_count; k++) {
            double position = tu__axis_position(&axis, axis.ticks[k]);
            assert_true(position >= 0 && position <= 1);
            if (k) assert_true(axis.ticks[k] > axis.ticks[k - 1]);
        }
        assert_true(tu__axis_position(&axis, axis.low) == 0 && tu__axis_position(&axis, axis.high) == 1);
    }
}

static void numbers_have_four_significant_digits(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0.91234, "0.9123"},  {45.314, "45.31"}, {1234.6, "1235"},   {0.5, "0.5"},   {0, "0"},
        {-2.30258, "-2.303"}, {3, "3"},          {123456, "123456"}, {1e-7, "1e-7"}, {1.2345e-6, "1.235e-6"},
        {1e6, "1e6"},         {NAN, "-"},        {-INFINITY, "-"},   {0.99999, "1"}, {9.9999e-6, "1e-5"},
        {-1e300, "-1e300"},   {0.001, "0.001"},  {1.0 / 3, "0.3333"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tu__text text = {0};
        tu__chart_number(&text, cases[i].value);
        assert_string_equal(tu__text_string(&text), cases[i].text);
        tu__text_free(&text);
    }
}

/* ---- Charts ---- */

static void a_chart_shows_titles_labels_and_last_values(void **state) {
    (void)state;
    static const double x[] = {0, 100, 200}, loss[] = {2.3, 1.5, 0.8125}, rate[] = {0.1, 0.01, 0.001};
    const tu__curve losses[] = {{"train", 3, x, loss, false}, {"test", 2, x, loss, true}};
    const tu__curve rates[] = {{"rate", 3, x, rate, false}};
    const tu__panel panels[] = {{"Loss", "step", "cross-entropy", false, 2, losses},
                                {"Learning rate", "step", NULL, true, 1, rates}};
    tu__text svg = {0};
    assert_int_equal(tu__chart_svg(&svg, "mlp on mnist", 2, panels), TU_OK);
    assert_well_formed(&svg);
    static const char *const shown[] = {"mlp on mnist",
                                        ">Loss<",
                                        ">Learning rate<",
                                        ">cross-entropy<",
                                        ">step<",
                                        ">train ",
                                        "0.8125",
                                        ">test ",
                                        "1.5</tspan>",
                                        ">0.01<",
                                        "prefers-color-scheme:dark"};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (!strstr(svg.data, shown[i])) fail_msg("the chart does not show '%s'", shown[i]);
    assert_int_equal(occurrences(svg.data, "<circle"), 1 + 2 + 1); /* the ends, and both dots of "test" */
    tu__text_free(&svg);
}

static void labels_of_any_bytes_are_well_formed(void **state) {
    (void)state;
    static const char *const nasty[] = {"<script>alert('x')</script>",
                                        "a & b < c > d \"e\"",
                                        "]]>",
                                        "\x01\x1F\x7F",
                                        "\xFF\xC0\x80",
                                        "\xEF\xBF\xBF\xEF\xBF\xBE",
                                        "gr\xC3\xBC\xC3\x9F \xF0\x9F\x98\x80",
                                        ""};
    static const double x[] = {0, 1}, y[] = {0, 1};
    for (size_t i = 0; i < sizeof nasty / sizeof *nasty; i++) {
        const tu__curve curve = {nasty[i], 2, x, y, true};
        const tu__panel panel = {nasty[i], nasty[i], nasty[i], false, 1, &curve};
        tu__text svg = {0};
        assert_int_equal(tu__chart_svg(&svg, nasty[i], 1, &panel), TU_OK);
        assert_well_formed(&svg);
        assert_null(strstr(svg.data, "<script"));
        for (const char *s = svg.data; *s; s++) assert_true(*s != '\xFF' && *s != '\xC0');
        assert_null(strstr(svg.data, "\xEF\xBF\xBF"));
        if (strstr(nasty[i], "gr\xC3\xBC"))
            assert_non_null(strstr(svg.data, "gr\xC3\xBC\xC3\x9F \xF0\x9F\x98\x80"));
        tu__text_free(&svg);
    }
}

static void empty_charts_show_no_data_yet(void **state) {
    (void)state;
    static const double x[] = {0, NAN, 2}, nothing[] = {NAN, 1, INFINITY}, below[] = {-1, 0, -2};
    const tu__curve curves[] = {{"none", 0, NULL, NULL, false}, {"gaps", 3, x, nothing, true}};
    const tu__curve negative = {"negative", 3, x, below, false};
    const tu__panel panels[] = {{"a", "x", "y", false, 2, curves},
                                {"b", NULL, NULL, true, 1, &negative},
                                {NULL, NULL, NULL, false, 0, NULL}};
    tu__text svg = {0};
    assert_int_equal(tu__chart_svg(&svg, NULL, 3, panels), TU_OK);
    assert_well_formed(&svg);
    assert_int_equal(occurrences(svg.data, "no data yet"), 3);
    tu__text_free(&svg);
    assert_int_equal(tu__chart_svg(&svg, "no panel", 0, NULL), TU_OK);
    assert_well_formed(&svg);
    tu__text_free(&svg);
}

/* The d="…" of the first curve. */
static void draw_path(const tu__curve *curve, bool logarithmic, char *path, size_t size) {
    const tu__panel panel = {"p", "x", "y", logarithmic, 1, curve};
    tu__text svg = {0};
    assert_int_equal(tu__chart_svg(&svg, "c", 1, &panel), TU_OK);
    assert_well_formed(&svg);
    const char *begin = strstr(svg.data, "<path class=\"line");
    assert_non_null(begin);
    begin = strstr(begin, "d=\"");
    assert_non_null(begin);
    size_t length = strcspn(begin + 3, "\"");
    assert_true(length < size);
    memcpy(path, begin + 3, length);
    path[length] = '\0';
    tu__text_free(&svg);
}

static void a_gap_interrupts_the_path(void **state) {
    (void)state;
    static const double x[] = {0, 1, 2, 3, 4, 5, 6}, y[] = {1, 2, NAN, 3, INFINITY, 4, 5};
    const tu__curve curve = {"c", 7, x, y, false};
    char path[512];
    draw_path(&curve, false, path, sizeof path);
    assert_int_equal(occurrences(path, "M"), 3);
    assert_int_equal(occurrences(path, "L"), 2);
    assert_int_equal(occurrences(path, "h0"), 1); /* the single point is visible */
}

static void a_long_curve_is_thinned_and_keeps_its_extremes(void **state) {
    (void)state;
    enum { MANY = 200000 };
    double *x = malloc(MANY * sizeof *x), *y = malloc(MANY * sizeof *y);
    assert_non_null(x);
    assert_non_null(y);
    for (int i = 0; i < MANY; i++) {
        x[i] = i;
        y[i] = 0.5;
    }
    y[77777] = 1; /* one point of two hundred thousand */
    y[123456] = 0;
    const tu__curve curve = {"c", MANY, x, y, false};
    static char path[100000];
    draw_path(&curve, false, path, sizeof path);
    size_t points = occurrences(path, "L") + 1;
    assert_in_range(points, 300, 4 * 440);
    double min_y = INFINITY, max_y = -INFINITY;
    for (const char *s = path; *s;) {
        char *end;
        strtod(s + 1, &end);
        double y_position = strtod(end, &end);
        min_y = fmin(min_y, y_position);
        max_y = fmax(max_y, y_position);
        s = end;
    }
    assert_true(max_y - min_y == 210); /* the whole height of the plot */
    free(x);
    free(y);
}

/* ---- Matrices ---- */

static void a_matrix_shows_its_non_zero_counts(void **state) {
    (void)state;
    static const char *const names[] = {"cat", "dog",
                                        "a class with a name too long to be written next to its row"};
    static const int64_t counts[] = {90, 10, 0, 0, 0, 0, 1, 0, 99};
    const tu__matrix matrix = {"pets", "200 images", "is", "taken for", 3, names, counts};
    tu__text svg = {0};
    assert_int_equal(tu__matrix_svg(&svg, &matrix), TU_OK);
    assert_well_formed(&svg);
    assert_int_equal(occurrences(svg.data, "<rect class=\"dot\""), 4);
    assert_int_equal(occurrences(svg.data, "<g class=\"c0\">"),
                     2); /* on the diagonal: a class without images has none */
    static const char *const shown[] = {
        ">pets<", ">200 images<", ">is<", ">taken for<",        ">cat<",
        ">90<",   ">10<",         ">99<", ">a class with a n<", "cat \xE2\x86\x92 dog: 10 of 100<"};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (!strstr(svg.data, shown[i])) fail_msg("the matrix does not show '%s'", shown[i]);
    tu__text_free(&svg);
}

static void matrix_labels_may_contain_any_bytes(void **state) {
    (void)state;
    static const char *const nasty[] = {"<script>", "a & b \"c\"", "\x01\xFF\xC0\x80", ""};
    static const int64_t counts[16] = {1, 2, 3, 4, INT64_MAX / 8, 1, 1, 1, 0, 0, 0, 0, 5, 6, 7, 8};
    const tu__matrix matrix = {nasty[0], nasty[1], nasty[2], nasty[3], 4, nasty, counts};
    tu__text svg = {0};
    assert_int_equal(tu__matrix_svg(&svg, &matrix), TU_OK);
    assert_well_formed(&svg);
    assert_null(strstr(svg.data, "<script"));
    tu__text_free(&svg);
}

/* Labels and numbers do not fit, but the drawing is valid. */
static void a_matrix_of_many_classes_has_no_labels(void **state) {
    (void)state;
    enum { MANY = 300 };
    const char **names = calloc(MANY, sizeof *names);
    int64_t *counts = calloc(MANY * MANY, sizeof *counts);
    assert_true(names && counts);
    for (int i = 0; i < MANY; i++) names[i] = "one of many", counts[i * MANY + i] = 1 + i;
    tu__text svg = {0};
    for (int64_t size = 0; size <= MANY; size += MANY) {
        const tu__matrix matrix = {"many", NULL, NULL, NULL, size, names, counts};
        assert_int_equal(tu__matrix_svg(&svg, &matrix), TU_OK);
        assert_well_formed(&svg);
        assert_int_equal(occurrences(svg.data, "<rect class=\"dot\""), (size_t)size);
        assert_int_equal(occurrences(svg.data, ">one of many<"), 0);
        assert_int_equal(occurrences(svg.data, "<text"), 1);
        tu__text_free(&svg);
    }
    free(names);
    free(counts);
}

static void output_does_not_depend_on_the_locale(void **state) {
    (void)state;
    static const double x[] = {0, 0.3}, y[] = {0.25, 1.75};
    const tu__curve curve = {"c", 2, x, y, false};
    const tu__panel panel = {"p", "x", "y", false, 1, &curve};
    static const char *const with_comma[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
    tu__text plain = {0}, german = {0};
    assert_int_equal(tu__chart_svg(&plain, "c", 1, &panel), TU_OK);
    bool found = false;
    for (size_t i = 0; i < sizeof with_comma / sizeof *with_comma && !found; i++)
        found = setlocale(LC_NUMERIC, with_comma[i]) != NULL;
    tu_status status = tu__chart_svg(&german, "c", 1, &panel);
    setlocale(LC_NUMERIC, "C");
    assert_int_equal(status, TU_OK);
    assert_string_equal(plain.data, german.data);
    tu__text_free(&plain);
    tu__text_free(&german);
    if (!found) skip(); /* no such locale is installed */
}

static void running_out_of_memory_is_reported(void **state) {
    (void)state;
    static const double x[] = {0, 1}, y[] = {0, 1};
    const tu__curve curve = {"c", 2, x, y, true};
    const tu__panel panel = {"p", "x", "y", false, 1, &curve};
    int64_t live = tu__alloc_live();
    uint64_t n = 1;
    for (tu_status status = TU_NO_MEMORY; status != TU_OK; n++) {
        tu__text svg = {0};
        tu__alloc_fail_at(n);
        status = tu__chart_svg(&svg, "c", 1, &panel);
        tu__alloc_fail_at(0);
        if (status != TU_OK) assert_int_equal(status, TU_NO_MEMORY);
        tu__text_free(&svg);
        assert_int_equal(tu__alloc_live(), live);
    }
    assert_true(n > 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ticks_are_round),
        cmocka_unit_test(logarithmic_ticks_are_powers_of_ten),
        cmocka_unit_test(an_axis_is_valid_for_any_numbers),
        cmocka_unit_test(numbers_have_four_significant_digits),
        cmocka_unit_test(a_chart_shows_titles_labels_and_last_values),
        cmocka_unit_test(labels_of_any_bytes_are_well_formed),
        cmocka_unit_test(empty_charts_show_no_data_yet),
        cmocka_unit_test(a_gap_interrupts_the_path),
        cmocka_unit_test(a_long_curve_is_thinned_and_keeps_its_extremes),
        cmocka_unit_test(a_matrix_shows_its_non_zero_counts),
        cmocka_unit_test(matrix_labels_may_contain_any_bytes),
        cmocka_unit_test(a_matrix_of_many_classes_has_no_labels),
        cmocka_unit_test(output_does_not_depend_on_the_locale),
        cmocka_unit_test(running_out_of_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
