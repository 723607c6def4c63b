/* The one door to the terminal: what comes from outside (names, paths, messages of plug-ins) cannot control it.
 *
 * After cli_open_terminal everything that is printed to stdout and stderr, also by the libraries, passes a filter: it
 * replaces control characters (C0 except newline and tab, DEL, C1), characters that reverse the direction of text, and
 * bytes that are no UTF-8 by text such as \x1b. Only the functions here move the cursor. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stddef.h>

/* Makes sure that the descriptors 0 to 2 are open, so that no file gets one of them, and installs the filters. First of
 * all in main(). */
void cli_open_terminal(void);

/* Draws a line over the current one on stderr, a terminal: at most `columns` bytes of it. Returns -1 and sets errno on
 * failure. */
int cli_draw_line(const char *line, int columns);
/* Erases the current line. */
int cli_erase_line(void);

/* Prints text on stderr at once, without the lock of the stream, which a thread that is stuck may hold. */
int cli_print_unlocked(const char *text);

/* The filter: appends the safe form of `size` bytes to `out`, which has room for CLI_SAFE_BYTES(size), and returns the
 * length. Bytes that may begin a character of the next call stay in `pending`, which is zero at first. */
#define CLI_SAFE_BYTES(size) (8 * ((size) + 4))
struct cli_pending {
    char bytes[4];
    size_t count;
};
size_t cli_make_safe(struct cli_pending *pending, const char *bytes, size_t size, char *out);

#endif
