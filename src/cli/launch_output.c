/* Passes on what processes print, and records their messages. See launch_output.h.
 *
 * mpirun explains every exit status other than 0 in a text between two horizontal rules. Tutti's processes have said
 * why by then, or `tutti launch` does, so these texts are dropped. Other texts of mpirun are passed on. */
#include "cli/launch_output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/launched.h"
#include "cli/report.h"

enum { MAX_LINE = 1 << 16, RULE_LENGTH = 70 };

static void write_bytes(struct launch_output *o, const char *bytes, size_t count) {
    if (o->is_closed || count == 0) return;
    errno = 0;
    if (fwrite(bytes, 1, count, stderr) < count) o->is_closed = errno == EPIPE;
}

/* ---- mpirun's texts ---- */

static bool begins_with(const char *line, size_t length, const char *text) {
    return length >= strlen(text) && memcmp(line, text, strlen(text)) == 0;
}

static bool is_rule(const char *line, size_t length) {
    size_t dashes = 0;
    while (dashes < length && line[dashes] == '-') dashes++;
    return dashes >= RULE_LENGTH && dashes + 1 == length && line[dashes] == '\n';
}

static bool is_explanation_of_status(const char *line, size_t length) {
    return begins_with(line, length, "Primary job  terminated normally") ||
           begins_with(line, length,
                       "mpirun detected that one or more processes exited with non-zero status") ||
           begins_with(line, length, "mpirun has exited due to process rank");
}

/* mpirun says that it passes on the SIGUSR1 of `tutti launch`. */
static bool is_dropped_line(const char *line, size_t length) {
    return begins_with(line, length, "mpirun: Forwarding signal ");
}

static void write_rule(struct launch_output *o) {
    static const char rule[] = "--------------------------------------------------------------------------\n";
    if (o->has_rule) write_bytes(o, rule, sizeof rule - 1);
    o->has_rule = false;
}

/* A rule is kept back until the next line tells what it begins. */
static void pass_on_line(struct launch_output *o, const char *line, size_t length) {
    bool rule = is_rule(line, length);
    if (o->is_dropped) {
        o->is_dropped = !rule;
        return;
    }
    if (o->has_rule && is_explanation_of_status(line, length)) {
        o->has_rule = false;
        o->is_dropped = true;
        return;
    }
    write_rule(o);
    o->has_rule = rule;
    if (!rule && !is_dropped_line(line, length)) write_bytes(o, line, length);
}

/* ---- Messages ---- */

static void record_message(struct launch_messages *m, const char *message) {
    static const char run[] = "run ", status[] = "status ";
    if (strcmp(message, "joined") == 0) m->joined = true;
    if (strcmp(message, "trains") == 0) m->trains = true;
    if (strcmp(message, "lost") == 0) m->lost = true;
    size_t length = strlen(message);
    if (begins_with(message, length, run) && length - strlen(run) < sizeof m->folder)
        memcpy(m->folder, message + strlen(run), length - strlen(run) + 1);
    if (!begins_with(message, length, status)) return;
    int number = (int)strtol(message + strlen(status), NULL, 10);
    if (number == CLI_LOST)
        m->lost = true;
    else if (m->status == 0)
        m->status = number;
}

/* Ends the line that has been collected. Its last byte is a newline, unless the output or the text before a message
 * ends here. */
static void end_line(struct launch_output *o) {
    if (o->is_message) {
        if (o->used > 0 && o->line[o->used - 1] == '\n') o->line[o->used - 1] = '\0';
        if (o->used > 0 && o->line[o->used - 1] == '\0') record_message(&o->messages, o->line);
    } else if (o->used > 0) {
        pass_on_line(o, o->line, o->used);
    }
    o->used = 0;
    o->is_message = false;
}

static bool has_room(struct launch_output *o) {
    if (o->used < o->size) return true;
    if (o->size == MAX_LINE) end_line(o); /* in pieces */
    if (o->used < o->size) return true;
    size_t size = o->size ? 2 * o->size : 1024;
    char *line = realloc(o->line, size);
    if (!line) return false;
    o->line = line;
    o->size = size;
    return true;
}

void launch_output_take(struct launch_output *o, const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == CLI_LAUNCH_MARK) {
            end_line(o);
            o->is_message = true;
            continue;
        }
        if (!has_room(o)) continue; /* out of memory: the byte is lost */
        o->line[o->used++] = bytes[i];
        if (bytes[i] == '\n') end_line(o);
    }
}

void launch_output_end(struct launch_output *o) {
    end_line(o);
    write_rule(o);
    free(o->line);
    o->line = NULL;
    o->used = o->size = 0;
}
