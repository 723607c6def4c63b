/* Reads host files. See host_file.h. */
#include "cli/host_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/command.h>
#include <tutti/graph.h>

#include "cli/report.h"

enum { MAX_FILE_BYTES = 1 << 20, MAX_SLOTS = 65536 };

/* A word of the text, which has no terminating zero. */
struct word {
    const char *text;
    size_t length;
};

static bool fail(struct cli_host_error *error, const char *format, ...) TU_PRINTF(2, 3);
static bool fail(struct cli_host_error *error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return false;
}

static struct cli_quoted quote(struct word word) {
    char text[128];
    snprintf(text, sizeof text, "%.*s", word.length < 100 ? (int)word.length : 100, word.text);
    return cli_quote(text);
}

/* ---- Words ---- */

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

/* Takes the next word from the beginning of `line`; an empty one at its end, or before a comment. */
static struct word next_word(struct word *line) {
    while (line->length && is_blank(*line->text)) line->text++, line->length--;
    struct word word = {line->text, 0};
    if (line->length && *line->text == '#') line->length = 0;
    while (word.length < line->length && !is_blank(word.text[word.length]) && word.text[word.length] != '#')
        word.length++;
    line->text += word.length;
    line->length -= word.length;
    return word;
}

static bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
}

static bool check_name(struct word name, struct cli_host_error *error) {
    bool valid =
        name.length < sizeof((struct cli_host *)NULL)->name && *name.text != '-' && *name.text != '.';
    for (size_t i = 0; i < name.length; i++) valid = valid && is_name_character(name.text[i]);
    if (valid) return true;
    return fail(error, "host %s: expected a name or an IPv4 address of letters, digits, '.', '-' and '_'%s",
                quote(name).text,
                memchr(name.text, ':', name.length)
                    ? "; the number of processes is given as in 'node1 slots=4'"
                    : "");
}

static bool read_number(struct word word, int64_t *number) {
    *number = 0;
    for (size_t i = 0; i < word.length; i++) {
        if (word.text[i] < '0' || word.text[i] > '9' || *number > MAX_SLOTS) return false;
        *number = 10 * *number + (word.text[i] - '0');
    }
    return word.length > 0 && *number >= 1 && *number <= MAX_SLOTS;
}

/* What follows the name of a host; 0: not given. */
struct host_settings {
    int64_t slots, max_slots;
};

/* Reads "slots=4". Settings of Open MPI that are not about numbers of processes are not supported. */
static bool read_setting(struct word word, struct host_settings *settings, struct cli_host_error *error) {
    static const char *const names[] = {"slots", "max_slots", "max-slots"};
    const char *equals = memchr(word.text, '=', word.length);
    size_t length = equals ? (size_t)(equals - word.text) : word.length;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!equals || strlen(names[i]) != length || memcmp(names[i], word.text, length) != 0) continue;
        struct word value = {equals + 1, word.length - length - 1};
        if (read_number(value, i == 0 ? &settings->slots : &settings->max_slots)) return true;
        return fail(error, "%s %s: expected a number from 1 to %d", names[i], quote(value).text, MAX_SLOTS);
    }
    return fail(error, "%s: expected 'slots=N' or 'max_slots=N' after the host", quote(word).text);
}

/* ---- Hosts ---- */

static struct cli_host *find_host(const struct cli_hosts *hosts, struct word name) {
    for (size_t i = 0; i < hosts->count; i++)
        if (strlen(hosts->list[i].name) == name.length &&
            memcmp(hosts->list[i].name, name.text, name.length) == 0)
            return &hosts->list[i];
    return NULL;
}

static bool add_host(struct cli_hosts *hosts, struct word name, int64_t slots, struct cli_host_error *error) {
    struct cli_host *host = find_host(hosts, name);
    if (host) {
        if (host->slots + slots > MAX_SLOTS)
            return fail(error, "host %s has more than %d slots", quote(name).text, MAX_SLOTS);
        host->slots += slots;
        return true;
    }
    struct cli_host *list = realloc(hosts->list, (hosts->count + 1) * sizeof *list);
    if (!list) return fail(error, "out of memory");
    hosts->list = list;
    list[hosts->count] = (struct cli_host){.slots = slots};
    memcpy(list[hosts->count++].name, name.text, name.length);
    return true;
}

static bool parse_line(struct word line, struct cli_hosts *hosts, struct cli_host_error *error) {
    struct word name = next_word(&line);
    struct host_settings settings = {0};
    if (name.length == 0) return true;
    if (!check_name(name, error)) return false;
    for (struct word word; (word = next_word(&line)).length > 0;)
        if (!read_setting(word, &settings, error)) return false;
    int64_t max = settings.max_slots, slots = settings.slots ? settings.slots : max ? max : 1;
    if (max && slots > max) return fail(error, "slots=%d is more than max_slots=%d", (int)slots, (int)max);
    return add_host(hosts, name, slots, error);
}

bool cli_parse_hosts(const char *text, size_t length, struct cli_hosts *hosts, struct cli_host_error *error) {
    *hosts = (struct cli_hosts){0};
    *error = (struct cli_host_error){0};
    for (size_t begin = 0; begin < length;) {
        const char *end = memchr(text + begin, '\n', length - begin);
        size_t line = end ? (size_t)(end - text) - begin : length - begin;
        error->line++;
        if (!parse_line((struct word){text + begin, line}, hosts, error)) return false;
        begin += line + 1;
    }
    return true;
}

/* ---- The file ---- */

int cli_read_hosts(const char *path, struct cli_hosts *hosts) {
    void *text;
    size_t length;
    struct cli_host_error error;
    *hosts = (struct cli_hosts){0};
    if (tu_file_read(path, MAX_FILE_BYTES, &text, &length) != TU_OK)
        return cli_input_error("launch: --hosts: %s", tu_message());
    int status = CLI_DONE;
    if (!cli_parse_hosts(text, length, hosts, &error))
        status = cli_input_error("launch: %s:%zu: %s", path, error.line, error.message);
    if (status == CLI_DONE && hosts->count == 0)
        status = cli_input_error("launch: --hosts: %s names no host: expected lines such as 'node1 slots=4'",
                                 cli_quote(path).text);
    tu_bytes_free(text);
    return status;
}

int64_t cli_count_slots(const struct cli_hosts *hosts) {
    int64_t slots = 0;
    for (size_t i = 0; i < hosts->count; i++) slots += hosts->list[i].slots;
    return slots;
}
