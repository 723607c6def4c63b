/* Runs the system's C compiler, without a shell, so that file names may contain any character.
 *
 * The object is linked with the libraries that this process has loaded: libtutti_train.so, which contains this code,
 * and libtutti.so. The headers are searched in `include` folders above the library: PREFIX/include of an
 * installation, or the source tree that contains the build folder. If the headers are of another version, TU_ABI in
 * the object shows it. */
#include "network/compile.h"

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

/* Sets `path` to the file from which the code or data at an address was loaded. */
static bool file_of(const void *address, char path[PATH_MAX]) {
    Dl_info info;
    return dladdr(address, &info) && info.dli_fname && realpath(info.dli_fname, path);
}

/* Its address is in the library that contains this file. */
static const char address_in_this_library;

static bool has_headers(const char *folder) {
    char header[PATH_MAX];
    int length = snprintf(header, sizeof header, "%s/tutti/tutti.h", folder);
    return length < (int)sizeof header && access(header, R_OK) == 0;
}

/* Searches for "include" with Tutti's headers in the file's folder and its parent folders. */
static bool find_headers_above(const char *file, char folder[PATH_MAX]) {
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", file);
    for (char *slash; (slash = strrchr(parent, '/'));) {
        *slash = '\0';
        if (snprintf(folder, PATH_MAX, "%s/include", parent) < PATH_MAX && has_headers(folder)) return true;
    }
    return false;
}

static tu_status find_headers(char folder[PATH_MAX]) {
    const char *given = getenv("TUTTI_INCLUDE");
    char file[PATH_MAX];
    if (given && *given) {
        if (has_headers(given) && snprintf(folder, PATH_MAX, "%s", given) < PATH_MAX) return TU_OK;
        return tu_fail(TU_NOT_FOUND,
                       "TUTTI_INCLUDE is '%.200s': expected the folder that contains tutti/tutti.h", given);
    }
    if (!file_of(&address_in_this_library, file)) snprintf(file, sizeof file, "the library");
    if (find_headers_above(file, folder)) return TU_OK;
    return tu_fail(
        TU_NOT_FOUND,
        "Tutti's headers were not found near %.200s: set TUTTI_INCLUDE to the folder that contains tutti/tutti.h",
        file);
}

/* ---- The command line ---- */

typedef struct command {
    char compiler[256]; /* $CC, split into words */
    char include[PATH_MAX], libraries[2][PATH_MAX];
    char *arguments[MAX_ARGUMENTS];
    int count;
} command;

static void add(command *c, const char *argument) {
    if (c->count + 1 < MAX_ARGUMENTS) c->arguments[c->count++] = (char *)argument;
}

/* Adds the words of $CC, which may contain options, or "cc". */
static void add_compiler(command *c) {
    const char *given = getenv("CC");
    snprintf(c->compiler, sizeof c->compiler, "%s", given ? given : "");
    char *rest = c->compiler;
    for (char *word; (word = strtok_r(rest, " \t", &rest));)
        if (c->count < MAX_ARGUMENTS / 2) add(c, word);
    if (c->count == 0) add(c, "cc");
}

static tu_status build_command(command *c, const char *source, const tu__compiled *compiled) {
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
    /* Skips a statically linked engine: the executable then contains both. */
    const void *address[] = {&address_in_this_library, (const void *)tu_version};
    add(c, "-x");
    add(c, "none");
    for (size_t i = 0; i < sizeof address / sizeof *address; i++)
        if (file_of(address[i], c->libraries[i]) && strstr(c->libraries[i], ".so")) add(c, c->libraries[i]);
    c->arguments[c->count] = NULL;
    return TU_OK;
}

/* ---- Running the compiler ---- */

/* Starts the compiler with stdout and stderr redirected to `pipe_end`. */
static tu_status spawn_compiler(const command *c, int pipe_end, pid_t *child) {
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
        "cannot start the C compiler '%s': %s; install one (Debian: apt install gcc) or set the environment "
        "variable CC",
        c->arguments[0], strerror(error));
}

/* Reads all output, so that the compiler never blocks, and keeps the first MAX_OUTPUT bytes. */
static void read_output(int from, char output[MAX_OUTPUT + 1]) {
    size_t length = 0;
    char chunk[4096];
    for (;;) {
        ssize_t got = read(from, chunk, sizeof chunk);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        size_t copied = (size_t)got < MAX_OUTPUT - length ? (size_t)got : MAX_OUTPUT - length;
        memcpy(output + length, chunk, copied);
        length += copied;
    }
    while (length && (output[length - 1] == '\n' || output[length - 1] == ' ')) length--;
    output[length] = '\0';
}

/* Waits for the compiler; returns true if it exited with status 0. */
static bool wait_for_success(pid_t child) {
    int status;
    pid_t ended;
    do ended = waitpid(child, &status, 0);
    while (ended < 0 && errno == EINTR);
    return ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static tu_status run_compiler(const command *c, const char *source) {
    int pipe_fds[2];
    char output[MAX_OUTPUT + 1];
    pid_t child = -1;
    if (pipe2(pipe_fds, O_CLOEXEC) != 0)
        return tu_fail(TU_IO, "cannot create a pipe to the C compiler: %s", strerror(errno));
    tu_status status = spawn_compiler(c, pipe_fds[1], &child);
    close(pipe_fds[1]);
    if (status == TU_OK) {
        read_output(pipe_fds[0], output);
        if (!wait_for_success(child))
            status = tu_fail(TU_INVALID, "'%.200s' does not compile with %s: %s", source, c->arguments[0],
                             *output ? output : "no output");
    }
    close(pipe_fds[0]);
    return status;
}

/* ---- The interface ---- */

static tu_status create_temp_folder(tu__compiled *compiled) {
    const char *given = getenv("TMPDIR");
    int length = snprintf(compiled->folder, sizeof compiled->folder, "%s/tutti-XXXXXX",
                          given && *given ? given : "/tmp");
    if (length >= (int)sizeof compiled->folder) return tu_fail(TU_INVALID, "the path in TMPDIR is too long");
    if (!mkdtemp(compiled->folder))
        return tu_fail(TU_IO,
                       "cannot create the folder '%.200s' to compile in: %s; set TMPDIR to another folder",
                       compiled->folder, strerror(errno));
    snprintf(compiled->object, sizeof compiled->object, "%s/network.so", compiled->folder);
    return TU_OK;
}

tu_status tu__compile(const char *source, tu__compiled *compiled) {
    command c;
    TU_TRY(create_temp_folder(compiled));
    tu_status status = build_command(&c, source, compiled);
    if (status == TU_OK) status = run_compiler(&c, source);
    if (status != TU_OK) tu__compiled_remove(compiled);
    return status;
}

void tu__compiled_remove(const tu__compiled *compiled) {
    unlink(compiled->object);
    rmdir(compiled->folder);
}
