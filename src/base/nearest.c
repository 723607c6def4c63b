/* Nearness of words: how many letters must be put in, taken out, replaced or swapped with their neighbour, upper and
 * lower case alike (the "optimal string alignment" distance). What is near grows with the word: one slip in up to
 * three letters, two in up to six, and so on. A word that a name begins with is near it too.
 *
 * It uses nothing of the library, so that the command can compile it in for its own words. */
#include <tutti/command.h>

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* Longer words are no names of ours. */
enum { LONGEST = 63 };

static bool same(char a, char b) {
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Row i of the table holds the distances from the first i letters of `a` to the first j of `b`; only the last three
 * rows are needed at a time. */
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length) {
    size_t rows[3][LONGEST + 1];
    for (size_t j = 0; j <= b_length; j++) rows[0][j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *above_that = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            row[j] = above[j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1);
            row[j] = least(row[j], least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
                row[j] = least(row[j], above_that[j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

const char *tu_nearest_name(const char *word, const char *const *names, size_t count) {
    size_t length = strlen(word), best = (length + 2) / 3 + 1;
    const char *nearest = NULL, *begins = NULL;
    if (length == 0 || length > LONGEST) return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t name_length = strlen(names[i]);
        if (name_length > LONGEST) continue;
        size_t d = distance(word, length, names[i], name_length);
        if (d < best && d < name_length) { /* replacing every letter is no likeness */
            best = d;
            nearest = names[i];
        }
        if (!begins && length >= 2 && strncmp(word, names[i], length) == 0) begins = names[i];
    }
    return nearest ? nearest : begins;
}
