/* Running the system's C compiler, without a shell in between: a file's name can hold any character.
 *
 * The object is linked against the libraries that this program has loaded, libtutti_train.so (this code's own) and
 * libtutti.so, so that its calls reach those and no others. The headers are those beside the library: installed in
 * PREFIX/include, or in a source tree whose build folder the library lies in. So they agree with each other, and
 * TU_ABI in the object tells where they do not. */
#include "model/compile.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MAX_ARGUMENTS = 32, MAX_OUTPUT = 600 };

/* ---- Headers and library ---- */

/* The file that the code or data at an address was loaded from. */
static bool file_of(const void *inside, char path[PATH_MAX]) {
    Dl_info info;
    return dladdr(inside, &info) && info.dli_fname && realpath(info.dli_fname, path);
}

/* An address in the library of this file. */
static const char own;

static bool has_headers(const char *folder) {
    char header[PATH_MAX];
    int length = snprintf(header, sizeof header, "%s/tutti/tutti.h", folder);
    return length < (int)sizeof header && access(header, R_OK) == 0;
}

/* "include" in the folder of the file, or in one of those around it. */
static bool headers_around(const char *file, char folder[PATH_MAX]) {
    char around[PATH_MAX];
    snprintf(around, sizeof around, "%s", file);
    for (char *slash; (slash = strrchr(around, '/'));) {
        *slash = '\0';
        if (snprintf(folder, PATH_MAX, "%s/include", around) < PATH_MAX && has_headers(folder)) return true;
    }
    return false;
}

static tu_status find_headers(char folder[PATH_MAX]) {
    const char *given = getenv("TUTTI_INCLUDE");
    char file[PATH_MAX];
    if (given && *given) {
        if (has_headers(given) && snprintf(folder, PATH_MAX, "%s", given) < PATH_MAX) return TU_OK;
        return tu_fail(TU_NOT_FOUND,
                       "TUTTI_INCLUDE is '%.200s': expected the folder that holds tutti/tutti.h", given);
    }
    if (!file_of(&own, file)) snprintf(file, sizeof file, "the library");
    if (headers_around(file, folder)) return TU_OK;
    return tu_fail(
        TU_NOT_FOUND,
        "Tutti's headers are not beside %.200s: set TUTTI_INCLUDE to the folder that holds tutti/tutti.h",
        file);
}

/* ---- The command line ---- */

typedef struct command {
    char compiler[256]; /* cut into words */
    char include[PATH_MAX], libraries[2][PATH_MAX];
    char *arguments[MAX_ARGUMENTS];
    int count;
} command;

static void add(command *c, const char *argument) {
    if (c->count + 1 < MAX_ARGUMENTS) c->arguments[c->count++] = (char *)argument;
}

/* $CC may hold options: its words, cut at spaces. */
static void add_compiler(command *c) {
    const char *given = getenv("CC");
    snprintf(c->compiler, sizeof c->compiler, "%s", given ? given : "");
    char *rest = c->compiler;
    for (char *word; (word = strtok_r(rest, " \t", &rest));)
        if (c->count < MAX_ARGUMENTS / 2) add(c, word);
    if (c->count == 0) add(c, "cc");
}

static tu_status make_command(command *c, const char *source, const tu__compiled *compiled) {
    c->count = 0;
    TU_TRY(find_headers(c->include));
    add_compiler(c);
    static const char *const flags[] = {"-std=gnu17", "-O2", "-fPIC", "-shared", "-I"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) add(c, flags[i]);
    add(c, c->include);
    add(c, "-o");
    add(c, compiled->object);
    add(c, "-x");
    add(c, "c");
    add(c, source);
    /* A program that has the engine linked in statically brings both by itself. */
    const void *inside[] = {&own, (const void *)tu_version};
    add(c, "-x");
    add(c, "none");
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        if (file_of(inside[i], c->libraries[i]) && strstr(c->libraries[i], ".so")) add(c, c->libraries[i]);
    c->arguments[c->count] = NULL;
    return TU_OK;
}

/* ---- Running it ---- */

/* Starts the compiler with all it says going into `pipe_end`. */
static tu_status start(const command *c, int pipe_end, pid_t *child) {
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error == 0) {
        error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
        for (int to = 1; to <= 2 && error == 0; to++)
            error = posix_spawn_file_actions_adddup2(&actions, pipe_end, to);
        if (error == 0) error = posix_spawnp(child, c->arguments[0], &actions, NULL, c->arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    if (error == 0) return TU_OK;
    return tu_fail(
        TU_UNSUPPORTED,
        "the C compiler '%s' could not be started: %s; install one (Debian: apt install gcc) or name yours "
        "in the variable CC",
        c->arguments[0], strerror(error));
}

/* Reads to the end, so that the compiler never waits; keeps the beginning. */
static void read_output(int from, char output[MAX_OUTPUT + 1]) {
    size_t length = 0;
    char piece[4096];
    for (;;) {
        ssize_t got = read(from, piece, sizeof piece);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        size_t keep = (size_t)got < MAX_OUTPUT - length ? (size_t)got : MAX_OUTPUT - length;
        memcpy(output + length, piece, keep);
        length += keep;
    }
    while (length && (output[length - 1] == '\n' || output[length - 1] == ' ')) length--;
    output[length] = '\0';
}

/* Whether it ended well. */
static bool ended_well(pid_t child) {
    int status;
    pid_t ended;
    do ended = waitpid(child, &status, 0);
    while (ended < 0 && errno == EINTR);
    return ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static tu_status run(const command *c, const char *source) {
    int ends[2];
    char output[MAX_OUTPUT + 1];
    pid_t child = -1;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return tu_fail(TU_IO, "a pipe to the C compiler could not be had: %s", strerror(errno));
    tu_status status = start(c, ends[1], &child);
    close(ends[1]);
    if (status == TU_OK) {
        read_output(ends[0], output);
        if (!ended_well(child))
            status = tu_fail(TU_INVALID, "'%.200s' does not compile with %s: %s", source, c->arguments[0],
                             *output ? output : "it says nothing");
    }
    close(ends[0]);
    return status;
}

/* ---- All of it ---- */

static tu_status make_folder(tu__compiled *compiled) {
    const char *given = getenv("TMPDIR");
    int length = snprintf(compiled->folder, sizeof compiled->folder, "%s/tutti-XXXXXX",
                          given && *given ? given : "/tmp");
    if (length >= (int)sizeof compiled->folder) return tu_fail(TU_INVALID, "TMPDIR is too long a path");
    if (!mkdtemp(compiled->folder))
        return tu_fail(TU_IO, "no folder '%.200s' to compile in: %s; TMPDIR names another place",
                       compiled->folder, strerror(errno));
    snprintf(compiled->object, sizeof compiled->object, "%s/model.so", compiled->folder);
    return TU_OK;
}

tu_status tu__compile(const char *source, tu__compiled *compiled) {
    command c;
    TU_TRY(make_folder(compiled));
    tu_status status = make_command(&c, source, compiled);
    if (status == TU_OK) status = run(&c, source);
    if (status != TU_OK) tu__compiled_remove(compiled);
    return status;
}

void tu__compiled_remove(const tu__compiled *compiled) {
    unlink(compiled->object);
    rmdir(compiled->folder);
}
