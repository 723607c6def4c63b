/* Filters what is printed. See terminal.h. */
#include "cli/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- Characters ---- */

/* Decodes the UTF-8 character at `text`, of which `left` > 0 bytes remain, and returns its length; 0 if it is ill-formed:
 * an overlong form, a surrogate, or above U+10FFFF. */
static size_t decode(const char *text, size_t left, unsigned *code) {
    static const unsigned smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *s = (const unsigned char *)text;
    size_t length = s[0] < 0x80   ? 1
                    : s[0] < 0xC0 ? 0
                    : s[0] < 0xE0 ? 2
                    : s[0] < 0xF0 ? 3
                    : s[0] < 0xF8 ? 4
                                  : 0;
    if (length == 0 || length > left) return 0;
    *code = length == 1 ? s[0] : s[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
        *code = *code << 6 | (s[i] & 0x3F);
    }
    bool is_surrogate = *code >= 0xD800 && *code <= 0xDFFF;
    return *code < smallest[length] || *code > 0x10FFFF || is_surrogate ? 0 : length;
}

/* True for characters that a terminal obeys instead of showing them. */
static bool is_control(unsigned code) {
    if (code == '\n' || code == '\t') return false;
    return code < ' ' || (code >= 0x7F && code < 0xA0) || (code >= 0x202A && code <= 0x202E) ||
           (code >= 0x2066 && code <= 0x2069) || code == 0x2028 || code == 0x2029;
}

/* True if the bytes may be the beginning of a character whose rest follows later. */
static bool is_incomplete(const unsigned char *s, size_t left) {
    size_t needed = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : s[0] >= 0xC2 ? 2 : 1;
    for (size_t i = 1; i < left; i++)
        if ((s[i] & 0xC0) != 0x80) return false;
    return s[0] <= 0xF4 && left < needed;
}

/* Appends one character, or a byte that is none; returns the length that it has in the input. */
static size_t put_character(const char *text, size_t left, char *out, size_t *used) {
    unsigned code = 0;
    size_t length = decode(text, left, &code);
    if (length && !is_control(code)) {
        memcpy(out + *used, text, length);
        *used += length;
        return length;
    }
    *used += length > 1 ? (size_t)snprintf(out + *used, 8, "\\u%04x", code)
                        : (size_t)snprintf(out + *used, 8, "\\x%02x", (unsigned char)*text);
    return length ? length : 1;
}

size_t cli_make_safe(struct cli_pending *pending, const char *bytes, size_t size, char *out) {
    size_t used = 0;
    while (size > 0 || pending->count > 0) {
        if (pending->count == 0) {
            if (is_incomplete((const unsigned char *)bytes, size)) {
                memcpy(pending->bytes, bytes, size);
                pending->count = size;
                return used;
            }
            size_t length = put_character(bytes, size, out, &used);
            bytes += length;
            size -= length;
            continue;
        }
        /* The beginning of a character is waiting for its rest. */
        bool is_waiting = is_incomplete((const unsigned char *)pending->bytes, pending->count);
        if (is_waiting && size == 0) return used;
        if (is_waiting && ((unsigned char)*bytes & 0xC0) == 0x80) {
            pending->bytes[pending->count++] = *bytes++;
            size--;
            continue;
        }
        size_t length = put_character(pending->bytes, pending->count, out, &used);
        pending->count -= length;
        memmove(pending->bytes, pending->bytes + length, pending->count);
    }
    return used;
}

/* ---- Streams ---- */

struct filter {
    int fd;
    struct cli_pending pending;
};

static int write_all(int fd, const char *bytes, size_t size) {
    while (size > 0) {
        ssize_t written = write(fd, bytes, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return -1;
        bytes += written;
        size -= (size_t)written;
    }
    return 0;
}

/* The write function of a stream: returns 0 on failure. Text is written at once, so that lines of several processes do
 * not interleave. */
static ssize_t write_safely(void *cookie, const char *bytes, size_t size) {
    enum { PIECE = 1024 };
    struct filter *f = cookie;
    char safe[CLI_SAFE_BYTES(PIECE)];
    for (size_t done = 0; done < size;) {
        size_t piece = size - done < PIECE ? size - done : PIECE;
        size_t length = cli_make_safe(&f->pending, bytes + done, piece, safe);
        if (write_all(f->fd, safe, length) != 0) return 0;
        done += piece;
    }
    return (ssize_t)size;
}

static int close_stream(void *cookie) {
    const struct filter *f = cookie;
    return close(f->fd);
}

static void install(struct filter *f, FILE **stream, int buffering) {
    FILE *filtered =
        fopencookie(f, "w", (cookie_io_functions_t){.write = write_safely, .close = close_stream});
    if (!filtered) return; /* out of memory, before anything is printed */
    setvbuf(filtered, NULL, buffering, BUFSIZ);
    *stream = filtered;
}

/* A descriptor that is closed is opened such that using it fails as before: reading from 0, writing to 1 and 2. */
static void keep_descriptors(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
            int nothing = open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
            if (nothing >= 0 && nothing != fd) close(nothing);
        }
}

void cli_open_terminal(void) {
    static struct filter out = {.fd = STDOUT_FILENO}, err = {.fd = STDERR_FILENO};
    keep_descriptors();
    install(&out, &stdout, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF);
    install(&err, &stderr, _IONBF);
}

/* ---- Lines that are drawn over others ---- */

static int draw(const char *begin, const char *line, size_t length, const char *end) {
    struct cli_pending pending = {.count = 0};
    char text[CLI_SAFE_BYTES(512) + 16];
    size_t used = (size_t)snprintf(text, sizeof text, "%s", begin);
    used += cli_make_safe(&pending, line, length < 512 ? length : 512, text + used);
    used += (size_t)snprintf(text + used, sizeof text - used, "%s", end);
    return write_all(STDERR_FILENO, text, used);
}

int cli_draw_line(const char *line, int columns) {
    return draw("\r", line, strnlen(line, (size_t)columns), "\033[K");
}

int cli_erase_line(void) {
    return draw("\r", "", 0, "\033[K");
}

int cli_print_unlocked(const char *text) {
    struct cli_pending pending = {.count = 0};
    char safe[CLI_SAFE_BYTES(2048)];
    size_t length = strnlen(text, 2048);
    return write_all(STDERR_FILENO, safe, cli_make_safe(&pending, text, length, safe));
}
