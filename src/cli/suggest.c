/* Nearness of words: optimal string alignment (insert, delete, replace, swap two neighbours), letters of either case
 * alike. What is near grows with the word: one slip in up to three characters, two in up to six, and so on. */
#include "cli/suggest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Longer words are not commands, options or models of ours. Bounds the table below. */
enum { LONGEST = 63 };

static bool same(char a, char b) {
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

static int least(int a, int b) {
    return a < b ? a : b;
}

static int distance(const char *a, const char *b) {
    int cost[LONGEST + 1][LONGEST + 1]; /* cost[i][j]: from the first i letters of a to the first j of b */
    int rows = (int)strlen(a), columns = (int)strlen(b);
    for (int i = 0; i <= rows; i++) cost[i][0] = i;
    for (int j = 0; j <= columns; j++) cost[0][j] = j;
    for (int i = 1; i <= rows; i++)
        for (int j = 1; j <= columns; j++) {
            int best = cost[i - 1][j - 1] + !same(a[i - 1], b[j - 1]);
            best = least(best, least(cost[i - 1][j], cost[i][j - 1]) + 1);
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
                best = least(best, cost[i - 2][j - 2] + 1);
            cost[i][j] = best;
        }
    return cost[rows][columns];
}

const char *cli_nearest(const char *word, const char *const *names, int count) {
    size_t length = strlen(word);
    if (length == 0 || length > LONGEST) return NULL;
    const char *nearest = NULL, *begins = NULL;
    int limit = (int)(length + 2) / 3, best = limit + 1;
    for (int i = 0; i < count; i++) {
        if (strlen(names[i]) > LONGEST) continue;
        int d = distance(word, names[i]);
        /* Replacing every letter is no likeness. */
        if (d < best && d < (int)strlen(names[i])) {
            best = d;
            nearest = names[i];
        }
        if (!begins && length >= 2 && strncmp(word, names[i], length) == 0) begins = names[i];
    }
    return nearest ? nearest : begins;
}
