/* What a process does for the `tutti launch` that has started it. See launched.h.
 *
 * A second process labels the lines, not a thread: it delivers the last ones however the first has ended. It ends when
 * all that write to its pipes have ended. */
#include "cli/launched.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* Returns the rank that mpirun or srun has given to this process; -1 if `tutti launch` has not started it. */
static long find_rank(void) {
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"};
    if (!getenv(CLI_LAUNCH_VARIABLE)) return -1;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *text = getenv(variables[i]);
        if (text) return strtol(text, NULL, 10);
    }
    return -1;
}

void cli_tell_launch(const char *format, ...) {
    char line[4200] = {CLI_LAUNCH_MARK};
    if (find_rank() < 0) return;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line + 1, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof line - 2 || strchr(line, '\n')) return;
    line[length + 1] = '\n';
    if (write(STDERR_FILENO, line, (size_t)length + 2) < 0) return; /* nobody is left to tell */
}

/* ---- Labels ---- */

enum { LABEL_BYTES = 16, PIECE_BYTES = 4000 }; /* together at most PIPE_BUF, so a piece is written at once */

struct stream {
    int in, out;
    size_t used;
    bool is_inside_line; /* the beginning of the line has been written */
    char piece[PIECE_BYTES];
};

static void write_piece(struct stream *s, char *label, char *piece, size_t length) {
    bool is_labelled = !s->is_inside_line && piece[0] != CLI_LAUNCH_MARK;
    const struct iovec parts[] = {{label, is_labelled ? strlen(label) : 0}, {piece, length}};
    ssize_t written = writev(s->out, parts, 2);
    s->is_inside_line = written > 0 && piece[length - 1] != '\n';
}

/* Writes the complete lines, or all that has been read. */
static void write_lines(struct stream *s, char *label, bool all) {
    size_t begin = 0;
    for (size_t i = 0; i < s->used; i++)
        if (s->piece[i] == '\n') {
            write_piece(s, label, s->piece + begin, i + 1 - begin);
            begin = i + 1;
        }
    if (all && begin < s->used) {
        write_piece(s, label, s->piece + begin, s->used - begin);
        begin = s->used;
    }
    memmove(s->piece, s->piece + begin, s->used - begin);
    s->used -= begin;
}

static void read_stream(struct stream *s, char *label) {
    ssize_t count = read(s->in, s->piece + s->used, sizeof s->piece - s->used);
    if (count < 0 && errno == EINTR) return;
    if (count <= 0) {
        write_lines(s, label, true);
        close(s->in);
        close(s->out);
        s->in = -1;
        return;
    }
    s->used += (size_t)count;
    write_lines(s, label, false);
    if (s->used == sizeof s->piece) write_lines(s, label, true); /* a long line */
}

/* Ignores the signals that end the other process, whose last lines it still has to deliver. */
static void label_streams(struct stream streams[2], long rank) {
    static const int ignored[] = {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGPIPE};
    char label[LABEL_BYTES];
    snprintf(label, sizeof label, "[%ld] ", rank);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
    while (streams[0].in >= 0 || streams[1].in >= 0) {
        struct pollfd polled[2] = {{.fd = streams[0].in, .events = POLLIN},
                                   {.fd = streams[1].in, .events = POLLIN}};
        if (poll(polled, 2, -1) < 0 && errno != EINTR) return;
        for (int i = 0; i < 2; i++)
            if (streams[i].in >= 0 && polled[i].revents) read_stream(&streams[i], label);
    }
}

static void close_pipe(const int pipe_ends[2]) {
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

/* Puts a process with these pipes between this one and its standard output and standard error. */
static void insert_process(const int out[2], const int err[2], long rank) {
    pid_t labeller = fork();
    if (labeller < 0) return;
    if (labeller > 0) {
        dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
        return;
    }
    struct stream streams[2] = {{.in = out[0], .out = STDOUT_FILENO}, {.in = err[0], .out = STDERR_FILENO}};
    close(out[1]);
    close(err[1]);
    label_streams(streams, rank);
    _exit(0);
}

void cli_label_output(void) {
    int out[2], err[2];
    long rank = find_rank();
    if (rank <= 0 || pipe2(out, O_CLOEXEC) != 0) return; /* lines of rank 0 have no label */
    if (pipe2(err, O_CLOEXEC) != 0) {
        close_pipe(out);
        return;
    }
    insert_process(out, err, rank);
    close_pipe(out);
    close_pipe(err);
}
