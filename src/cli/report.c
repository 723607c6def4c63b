/* Prints errors as one line on stderr. See report.h. */
#include "cli/report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <tutti/command.h>

/* Prints the line with one write, so that lines of several processes under mpirun do not interleave. */
static void print_line(const char *format, va_list arguments) {
    char message[2048], line[sizeof message + 16];
    if (vsnprintf(message, sizeof message, format, arguments) < 0) return;
    for (char *c = message; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
    snprintf(line, sizeof line, CLI_PROGRAM ": %s\n", message);
    fputs(line, stderr);
}

int cli_input_error(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_line(format, arguments);
    va_end(arguments);
    return CLI_BAD_INPUT;
}

int cli_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_line(format, arguments);
    va_end(arguments);
    return CLI_FAILED;
}

int cli_exit_status(tu_status status) {
    switch (status) {
    case TU_OK: return CLI_DONE;
    case TU_INVALID:
    case TU_NOT_FOUND:
    case TU_CORRUPT:
    case TU_NUMERIC: /* non-finite numbers: fixed by other settings or data */
    case TU_DEVICE:  /* fixed by another device or driver */
    case TU_UNSUPPORTED: return CLI_BAD_INPUT;
    case TU_LOST: return CLI_LOST;
    default: return CLI_FAILED;
    }
}

int cli_report(tu_status status) {
    const char *message = tu_message();
    if (status != TU_OK) cli_fail("%s", *message ? message : tu_status_text(status));
    return cli_exit_status(status);
}

struct cli_quoted cli_quote(const char *word) {
    enum { MAX_LENGTH = 60 };
    struct cli_quoted quoted;
    char shown[MAX_LENGTH + 1];
    size_t length = strnlen(word, MAX_LENGTH);
    bool cut = word[length] != '\0';
    /* Do not cut a UTF-8 sequence: its continuation bytes are 10xxxxxx. */
    while (cut && length > 0 && ((unsigned char)word[length] & 0xC0) == 0x80) length--;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)word[i];
        shown[i] = c < ' ' || c == 0x7F ? '?' : (char)c;
    }
    shown[length] = '\0';
    snprintf(quoted.text, sizeof quoted.text, "'%s%s'", shown, cut ? "..." : "");
    return quoted;
}

struct cli_list cli_list(const char *const *names, int count) {
    struct cli_list list = {""};
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        const char *link = i == 0 ? "" : i + 1 < count ? ", " : " or ";
        int length = snprintf(list.text + used, sizeof list.text - used, "%s%s", link, names[i]);
        if (length < 0 || (size_t)length >= sizeof list.text - used) break;
        used += (size_t)length;
    }
    list.text[used] = '\0';
    return list;
}

struct cli_quoted cli_did_you_mean(const char *word, const char *const *names, int count) {
    struct cli_quoted hint = {""};
    const char *nearest = tu_nearest_name(word, names, (size_t)count);
    if (nearest) snprintf(hint.text, sizeof hint.text, "; did you mean '%s'?", nearest);
    return hint;
}

bool cli_close_output(void) {
    errno = 0;
    bool lost = ferror(stdout) != 0;
    if (fflush(stdout) != 0) lost = true;
    int reason = errno;
    /* Some file systems report a full disk only when a file is closed. EBADF means that standard output was closed
     * before the program started; if nothing was written to it, that is not an error. */
    if (fclose(stdout) != 0 && errno != EBADF && !lost) {
        lost = true;
        reason = errno;
    }
    if (lost)
        cli_fail("cannot write standard output: %s", reason ? strerror(reason) : "an earlier write failed");
    return !lost;
}
