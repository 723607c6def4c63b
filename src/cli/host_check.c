/* Finds out which hosts still answer. See host_check.h. */
#include "cli/host_check.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/clock.h"

enum { MAX_WORDS = 32, ANSWER_SECONDS = 10 };

struct check {
    pid_t process; /* 0: none, or it has ended */
    bool answers;
};

static bool is_this_host(const char *name) {
    char own[256] = "";
    if (gethostname(own, sizeof own - 1) != 0) return false;
    size_t length = strcspn(own, ".");
    return strcmp(name, own) == 0 || (strlen(name) == length && strncmp(name, own, length) == 0) ||
           strcmp(name, "localhost") == 0 || strcmp(name, "127.0.0.1") == 0;
}

/* ---- The command ---- */

static bool is_on_path(const char *program) {
    const char *path = getenv("PATH");
    char file[4096];
    if (strchr(program, '/')) return access(program, X_OK) == 0;
    while (path && *path) {
        size_t length = strcspn(path, ":");
        snprintf(file, sizeof file, "%.*s/%s", (int)length, path, program);
        if (access(file, X_OK) == 0) return true;
        path += length + (path[length] == ':');
    }
    return false;
}

/* Splits `text` into at most `room` words at blanks; changes it. */
static size_t split(char *text, char **words, size_t room) {
    size_t count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, " \t", &rest); word && count < room; word = strtok_r(NULL, " \t", &rest))
        words[count++] = word;
    return count;
}

static bool is_ssh(const char *program) {
    const char *slash = strrchr(program, '/');
    return strcmp(slash ? slash + 1 : program, "ssh") == 0;
}

/* Replaces this process by the first agent that is installed. The variable lists alternatives with their arguments:
 * "ssh : rsh". */
static void execute(const char *host) {
    static char agents[4096];
    const char *given = getenv("OMPI_MCA_plm_rsh_agent");
    char *rest = NULL;
    snprintf(agents, sizeof agents, "%s", given ? given : "ssh");
    for (char *agent = strtok_r(agents, ":", &rest); agent; agent = strtok_r(NULL, ":", &rest)) {
        static char *const ssh_options[] = {"-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"};
        char *words[MAX_WORDS + 8];
        size_t count = split(agent, words, MAX_WORDS);
        if (count == 0 || !is_on_path(words[0])) continue;
        for (size_t i = 0; is_ssh(words[0]) && i < sizeof ssh_options / sizeof *ssh_options; i++)
            words[count++] = ssh_options[i];
        words[count++] = (char *)host;
        words[count++] = "true";
        words[count] = NULL;
        execvp(words[0], words);
    }
}

static void run_check(const char *host, pid_t parent) {
    sigset_t none;
    sigemptyset(&none);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    setpgid(0, 0);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; nothing >= 0 && fd < 3; fd++) dup2(nothing, fd);
    if (getppid() == parent) execute(host);
    _exit(127);
}

/* ---- All hosts at once ---- */

static void start_checks(const struct cli_hosts *hosts, struct check *checks) {
    pid_t parent = getpid();
    for (size_t i = 0; i < hosts->count; i++) {
        checks[i] = (struct check){.answers = is_this_host(hosts->list[i].name)};
        if (checks[i].answers) continue;
        pid_t process = fork();
        if (process == 0) run_check(hosts->list[i].name, parent);
        if (process > 0) checks[i].process = process;
    }
}

/* Records the checks that have ended, and returns how many have not. */
static size_t collect(struct check *checks, size_t count) {
    size_t running = 0;
    for (size_t i = 0; i < count; i++) {
        int status;
        if (checks[i].process == 0) continue;
        pid_t ended = waitpid(checks[i].process, &status, WNOHANG);
        running += ended == 0;
        if (ended == 0) continue;
        checks[i].answers = ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        checks[i].process = 0;
    }
    return running;
}

/* With their process groups: the agent may have started other programs. */
static void end_checks(struct check *checks, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (checks[i].process == 0) continue;
        kill(-checks[i].process, SIGKILL);
        kill(checks[i].process, SIGKILL); /* if it has not made its group yet */
        waitpid(checks[i].process, NULL, 0);
        checks[i].process = 0;
    }
}

static struct cli_hosts select_answering(const struct cli_hosts *hosts, const struct check *checks) {
    struct cli_hosts found = {.list = malloc((hosts->count + 1) * sizeof *found.list)};
    for (size_t i = 0; found.list && i < hosts->count; i++) {
        if (checks[i].answers)
            found.list[found.count++] = hosts->list[i];
        else
            fprintf(stderr, "tutti: notice: launch: host '%s' does not answer\n", hosts->list[i].name);
    }
    return found;
}

struct cli_hosts cli_find_answering_hosts(const struct cli_hosts *hosts, bool (*is_stopped)(void)) {
    struct cli_hosts found = {0};
    struct check *checks = calloc(hosts->count + 1, sizeof *checks);
    if (!checks) return found;
    start_checks(hosts, checks);
    double end = cli_now() + ANSWER_SECONDS;
    while (collect(checks, hosts->count) > 0 && cli_now() < end && !is_stopped()) {
        const struct timespec nap = {.tv_nsec = 20000000};
        nanosleep(&nap, NULL);
    }
    end_checks(checks, hosts->count);
    if (!is_stopped()) found = select_answering(hosts, checks);
    free(checks);
    return found;
}
