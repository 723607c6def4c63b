/* Reads cells and numbers of CSV files. See csv.h. */
#include <string.h>

#include "data/csv.h"

/* ---- Cells ---- */

static bool is_space(char c) {
    return c == ' ' || c == '\t';
}

/* Reads a cell that begins with a quote. A doubled quote is one quote; then the text is copied to `scratch`. */
static void read_quoted(const char *at, const char *end, char delimiter, tu__csv_cell *cell) {
    const char *begin = ++at;
    bool copied = false;
    size_t length = 0;
    for (;; at++) {
        if (at == end) {
            cell->problem = "begins with a quote that is never closed";
            return;
        }
        if (*at == '"') {
            if (at + 1 == end || at[1] != '"') break;
            if (!copied && at - begin < TU__CSV_LONGEST) {
                length = (size_t)(at - begin);
                memcpy(cell->scratch, begin, length);
            }
            copied = true;
            at++;
        }
        if (copied && length < TU__CSV_LONGEST) cell->scratch[length++] = *at;
    }
    cell->text = copied ? cell->scratch : begin;
    cell->length = copied ? length : (size_t)(at - begin);
    for (at++; at < end && is_space(*at) && *at != delimiter; at++) {}
    if (at < end && *at == '\r' && (at + 1 == end || at[1] == '\n')) at++;
    if (at < end && *at != delimiter && *at != '\n') {
        cell->problem = "has text after a closing quote: a quote inside of quotes must be doubled";
        return;
    }
    cell->next = at;
}

static void read_plain(const char *at, const char *end, char delimiter, tu__csv_cell *cell) {
    const char *stop = at;
    bool has_quote = false;
    for (; stop < end && *stop != delimiter && *stop != '\n'; stop++) has_quote |= *stop == '"';
    cell->next = stop;
    if (has_quote) {
        cell->problem = "has a quote inside: expected the whole cell in quotes, and this quote doubled";
        return;
    }
    if (stop > at && stop[-1] == '\r' && (stop == end || *stop == '\n')) stop--;
    while (stop > at && is_space(stop[-1])) stop--;
    cell->text = at;
    cell->length = (size_t)(stop - at);
}

void tu__csv_cell_at(const char *at, const char *end, char delimiter, tu__csv_cell *cell) {
    cell->problem = NULL;
    cell->next = NULL;
    cell->length = 0;
    while (at < end && is_space(*at) && *at != delimiter) at++;
    if (at < end && *at == '"')
        read_quoted(at, end, delimiter, cell);
    else
        read_plain(at, end, delimiter, cell);
    if (!cell->problem && cell->length >= TU__CSV_LONGEST) cell->problem = "is longer than 4,095 bytes";
}

bool tu__csv_is_missing(const char *text, size_t length) {
    static const char *const names[] = {"NA", "N/A", "NaN", "nan", "NULL", "null", "None", "?"};
    if (length == 0) return true;
    if (length > 4) return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == length && memcmp(names[i], text, length) == 0) return true;
    return false;
}

/* ---- Numbers ---- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Returns digits · 10^exponent. With at most 2^53 and 10^22 both are exact, and the result is rounded once; else the
 * error is far below the precision of f32, in which numbers are stored. Does not depend on the locale, unlike strtod. */
static double scale(uint64_t digits, int exponent) {
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (digits == 0) return 0;
    if (exponent > 330) return 1.0 / 0.0;
    if (exponent < -360) return 0;
    double number = (double)digits;
    for (; exponent > 22; exponent -= 22) number *= 1e22;
    for (; exponent < -22; exponent += 22) number /= 1e22;
    return exponent < 0 ? number / powers[-exponent] : number * powers[exponent];
}

/* Reads digits into `*digits` while they fit into 19 places; returns how many were read, and in `*dropped` how many of
 * them did not fit. */
static const char *read_digits(const char *at, const char *end, uint64_t *digits, int *places, int *dropped) {
    for (; at < end && is_digit(*at); at++) {
        if (*digits > 999999999999999999u) {
            ++*dropped;
            continue;
        }
        *digits = *digits * 10 + (uint64_t)(*at - '0');
        ++*places;
    }
    return at;
}

static const char *read_exponent(const char *at, const char *end, int *exponent) {
    const char *p = at + 1;
    bool negative = p < end && *p == '-';
    int value = 0;
    if (p < end && (*p == '-' || *p == '+')) p++;
    if (p == end || !is_digit(*p)) return at;
    for (; p < end && is_digit(*p); p++)
        if (value < 100000) value = value * 10 + (*p - '0');
    *exponent += negative ? -value : value;
    return p;
}

bool tu__csv_number(const char **at, const char *end, double *number) {
    const char *p = *at;
    bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+')) p++;
    uint64_t digits = 0;
    int places = 0, dropped = 0, fraction = 0, lost = 0;
    const char *begin = p;
    p = read_digits(p, end, &digits, &places, &dropped);
    bool any = p > begin;
    if (p < end && *p == '.') {
        const char *point = ++p;
        p = read_digits(p, end, &digits, &fraction, &lost);
        any = any || p > point;
    }
    if (!any) return false;
    int exponent = dropped - fraction;
    if (p < end && (*p == 'e' || *p == 'E')) p = read_exponent(p, end, &exponent);
    double value = exponent == 0 ? (double)digits : scale(digits, exponent);
    *number = negative ? -value : value;
    *at = p;
    return true;
}

bool tu__csv_is_number(const char *text, size_t length, double *number) {
    const char *at = text;
    return tu__csv_number(&at, text + length, number) && at == text + length;
}
