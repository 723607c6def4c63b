/* Finds the nearest name by the case-insensitive "optimal string alignment" distance: the number of letters to
 * insert, delete, replace or swap with a neighbour. A name is near if the distance is at most one per three letters
 * of the word (rounded up), or if the word is a prefix of the name. */
#include <tutti/command.h>

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* Longer words and names are ignored. */
enum { MAX_LENGTH = 63 };

static bool equal_ignoring_case(char a, char b) {
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

static size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Row i of the table contains the distances between the first i letters of `a` and the first j of `b`. Only the last
 * three rows are kept. */
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length) {
    size_t rows[3][MAX_LENGTH + 1];
    for (size_t j = 0; j <= b_length; j++) rows[0][j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            row[j] = above[j - 1] + (equal_ignoring_case(a[i - 1], b[j - 1]) ? 0 : 1);
            row[j] = min_size(row[j], min_size(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && equal_ignoring_case(a[i - 1], b[j - 2]) &&
                equal_ignoring_case(a[i - 2], b[j - 1]))
                row[j] = min_size(row[j], two_above[j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

const char *tu_nearest_name(const char *word, const char *const *names, size_t count) {
    size_t length = strlen(word), best = (length + 2) / 3 + 1;
    const char *nearest = NULL, *prefix_match = NULL;
    if (length == 0 || length > MAX_LENGTH) return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t name_length = strlen(names[i]);
        if (name_length > MAX_LENGTH) continue;
        size_t d = distance(word, length, names[i], name_length);
        if (d < best && d < name_length) { /* if all letters differ, the names are not similar */
            best = d;
            nearest = names[i];
        }
        if (!prefix_match && length >= 2 && strncmp(word, names[i], length) == 0) prefix_match = names[i];
    }
    return nearest ? nearest : prefix_match;
}
