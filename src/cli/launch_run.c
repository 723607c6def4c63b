/* Runs mpirun or srun. See launch_run.h.
 *
 * The launcher has a process group of its own: a Ctrl-C of the terminal then reaches `tutti launch` alone, which decides
 * what to pass on. mpirun and srun kill their processes soon after SIGINT or SIGTERM, too soon to save a training, but
 * pass on SIGUSR1 and do no more. Before a training has begun SIGUSR1 would kill the processes one by one, and mpirun
 * would report each.
 *
 * Nothing is left behind: if `tutti launch` is killed, the launcher gets SIGTERM, after which it ends its processes. If
 * the launcher is killed, its processes on this host become children of `tutti launch`, which kills them; those on other
 * hosts are ended by the daemons that have started them. */
#include "cli/launch_run.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/clock.h"
#include "cli/report.h"

enum { POLL_MS = 200 };

/* ---- Signals ---- */

static volatile sig_atomic_t stop_count, stop_by_user_signal, was_ended;
static volatile sig_atomic_t launcher; /* its process id; 0: none runs */

static void pass_on(void) {
    if (launcher <= 0) return;
    int number = stop_count > 2 ? SIGKILL : stop_count == 2 || !stop_by_user_signal ? SIGTERM : SIGUSR1;
    if (number != SIGUSR1) was_ended = 1;
    kill((pid_t)launcher, number);
}

static void on_signal(int number) {
    int before = errno;
    if (number != SIGHUP || stop_count == 0) {
        stop_count = stop_count + 1;
        pass_on();
    }
    errno = before;
}

/* Its only purpose is to interrupt ppoll. */
static void on_child(int number) {
    (void)number;
}

static void catch_signal(int number, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler}, before;
    sigemptyset(&action.sa_mask);
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler == SIG_IGN && number == SIGHUP) return;
    sigaction(number, &action, NULL);
}

static void block(int number, int how) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(how, &set, NULL);
}

void launch_catch_signals(void) {
    catch_signal(SIGINT, on_signal);
    catch_signal(SIGTERM, on_signal);
    catch_signal(SIGHUP, on_signal);
    catch_signal(SIGCHLD, on_child);
    signal(SIGPIPE, SIG_IGN); /* launch_output.c notices */
    block(SIGCHLD, SIG_BLOCK);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

bool launch_is_stopped(void) {
    return stop_count > 0;
}

/* Blocks or unblocks the signals that are passed on, while `launcher` changes. */
static void hold_signals(int how) {
    block(SIGINT, how);
    block(SIGTERM, how);
    block(SIGHUP, how);
}

/* ---- Starting ---- */

static void execute(char *const *words, pid_t parent, int errors) {
    static const int caught[] = {SIGINT, SIGTERM, SIGCHLD, SIGPIPE};
    prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    setpgid(0, 0);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) signal(caught[i], SIG_DFL);
    struct sigaction hangup;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) signal(SIGHUP, SIG_DFL);
    hold_signals(SIG_UNBLOCK);
    block(SIGCHLD, SIG_UNBLOCK);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    dup2(errors, STDERR_FILENO);
    if (getppid() == parent) execvp(words[0], words);
    cli_fail("launch: cannot start '%s': %s", words[0], strerror(errno));
    _exit(127);
}

static bool start(char *const *words, int *errors) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        cli_fail("launch: cannot create a pipe: %s", strerror(errno));
        return false;
    }
    pid_t parent = getpid();
    hold_signals(SIG_BLOCK);
    stop_by_user_signal = 0;
    pid_t child = fork();
    if (child == 0) execute(words, parent, ends[1]);
    launcher = child > 0 ? child : 0;
    if (child > 0 && stop_count > 0) pass_on(); /* a signal that came before */
    hold_signals(SIG_UNBLOCK);
    close(ends[1]);
    *errors = ends[0];
    if (child > 0) return true;
    close(ends[0]);
    cli_fail("launch: cannot start '%s': %s", words[0], strerror(errno));
    return false;
}

/* ---- Ending ---- */

struct running {
    int errors; /* -1: closed */
    bool has_ended, has_children, is_killed;
    double began;
    double kill_at; /* when the launcher, or what it has left, is killed; 0: not */
    const struct launch_limits *limits;
    struct launch_output output;
    struct launch_outcome *outcome;
};

/* Collects the exit statuses of processes that have ended. */
static void reap(struct running *r) {
    int status;
    pid_t ended;
    hold_signals(SIG_BLOCK);
    while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
        if (ended != launcher) continue;
        r->outcome->status = r->is_killed          ? CLI_LOST
                             : WIFSIGNALED(status) ? 128 + WTERMSIG(status)
                                                   : WEXITSTATUS(status);
        r->has_ended = true;
        launcher = 0;
        r->kill_at = cli_now() + r->limits->rest;
    }
    r->has_children = ended == 0;
    hold_signals(SIG_UNBLOCK);
}

/* Returns the parent of a process; 0 if it does not exist. */
static pid_t parent_of(const char *process) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", process);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    const char *name_end = strrchr(text, ')'); /* "123 (name) S 1 …" */
    return name_end && strlen(name_end) > 4 ? (pid_t)strtol(name_end + 4, NULL, 10) : 0;
}

static void kill_children(void) {
    DIR *processes = opendir("/proc");
    if (!processes) return;
    for (struct dirent *entry; (entry = readdir(processes));)
        if (isdigit((unsigned char)*entry->d_name) && parent_of(entry->d_name) == getpid())
            kill((pid_t)strtol(entry->d_name, NULL, 10), SIGKILL);
    closedir(processes);
}

/* ---- Running ---- */

static void read_errors(struct running *r) {
    char bytes[4096];
    ssize_t count = read(r->errors, bytes, sizeof bytes);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count > 0) {
        launch_output_take(&r->output, bytes, (size_t)count);
        return;
    }
    close(r->errors);
    r->errors = -1;
}

/* Waits for output or for the end of a process. */
static void wait_for_events(struct running *r) {
    struct pollfd polled = {.fd = r->errors, .events = POLLIN};
    const struct timespec limit = {.tv_nsec = POLL_MS * 1000000L};
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    sigdelset(&mask, SIGCHLD);
    if (ppoll(&polled, 1, &limit, &mask) > 0 && polled.revents) read_errors(r);
}

static void react(struct running *r) {
    const struct launch_limits *limits = r->limits;
    const struct launch_messages *m = &r->output.messages;
    stop_by_user_signal = m->trains;
    if (r->output.is_closed && stop_count == 0) raise(SIGTERM); /* as `tutti train` does */
    if (m->lost && r->kill_at == 0) r->kill_at = cli_now() + limits->lost;
    if (!m->joined && r->kill_at == 0 && limits->join > 0 && cli_now() > r->began + limits->join)
        r->kill_at = cli_now();
    if (r->kill_at == 0 || cli_now() < r->kill_at) return;
    r->is_killed = true;
    kill_children();
}

bool launch_run(char *const *words, const struct launch_limits *limits, struct launch_outcome *outcome) {
    enum { GIVE_UP_SECONDS = 10 };
    struct running r = {.limits = limits, .outcome = outcome, .has_children = true, .began = cli_now()};
    *outcome = (struct launch_outcome){.status = 0};
    if (!start(words, &r.errors)) return false;
    while (r.errors >= 0 || r.has_children) {
        wait_for_events(&r);
        reap(&r);
        react(&r);
        if (r.has_ended && cli_now() > r.kill_at + GIVE_UP_SECONDS) break; /* the system cannot kill them */
    }
    if (r.errors >= 0) close(r.errors);
    launch_output_end(&r.output);
    outcome->messages = r.output.messages;
    outcome->was_ended = was_ended != 0;
    return true;
}
