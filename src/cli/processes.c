/* Joins the processes that mpirun or srun has started. See processes.h. */
#include "cli/processes.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/launched.h"
#include "cli/report.h"
#include "cli/terminal.h"

static tu_process_info own = TU_SIZED(tu_process_info);

static void pause_for(double seconds) {
    struct timespec left = {.tv_sec = (time_t)seconds};
    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) != 0) {}
}

/* Called in a thread of the group; others may be stuck. If another process has failed by itself, this one ends with the
 * same status. The line is written at once: mpirun sends SIGTERM one second after
 * a process has died, and SIGKILL after another second. It sends the next signal early when another process ends, so
 * this one waits until the rest have printed the line, too. */
static void end_process(void *context, tu_status cause, const char *message) {
    (void)context;
    const double others_print = 0.6;
    char line[1400];
    int length = snprintf(line, sizeof line, "tutti: rank %u on host %s: %s\n", own.rank, own.host, message);
    if (length >= (int)sizeof line) length = (int)sizeof line - 1;
    int status = cli_exit_status(cause);
    if (cause == TU_LOST)
        cli_tell_launch("lost");
    else
        cli_tell_launch("status %d", status);
    signal(SIGTERM, SIG_IGN);
    if (length > 0 && cli_print_unlocked(line) != 0) _exit(status);
    pause_for(others_print);
    _exit(status);
}

/* Returns the first of the variables that is set, as a number: 0 if there is none. */
static long number_of(const char *const *variables, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const char *text = getenv(variables[i]);
        if (text) return strtol(text, NULL, 10);
    }
    return 0;
}

/* A process that cannot join usually has the reason in common with all others, or with those of its host, for example
 * that Open MPI is not installed, but cannot know. So rank 0 prints it first, then the first process of each other host;
 * by then the launcher has usually ended the rest. */
static void wait_for_turn(void) {
    enum { LAUNCHER_ENDS_OTHERS = 4 };
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
    static const char *const host_ranks[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"};
    if (number_of(ranks, sizeof ranks / sizeof *ranks) == 0) return;
    bool is_first = number_of(host_ranks, sizeof host_ranks / sizeof *host_ranks) == 0;
    pause_for(is_first ? LAUNCHER_ENDS_OTHERS : 2 * LAUNCHER_ENDS_OTHERS);
}

static int fail_to_join(tu_status status) {
    enum { PRINTING = 1 };
    if (!tu_process_group_prints(NULL)) {
        pause_for(PRINTING); /* the first process that ends makes mpirun end the others */
        return cli_exit_status(status);
    }
    wait_for_turn();
    cli_report(status);
    if (status == TU_LOST) _exit(CLI_LOST); /* a thread is stuck in MPI */
    return cli_exit_status(status);
}

int cli_join_processes(double timeout, const char *interface, tu_process_group **group) {
    *group = NULL;
    tu_status status = TU_OK;
    if (tu_process_group_is_launched()) {
        status = tu_process_group_open(group, .timeout = timeout, .interface = interface,
                                       .on_failure = end_process);
        if (status != TU_OK) return fail_to_join(status);
        status = tu_process_group_describe(*group, &own);
    }
    if (status == TU_OK && cli_prints(*group)) cli_tell_launch("joined");
    return cli_report(status);
}

/* Not all processes end at the same moment, and the first one that ends with a status other than 0, such as that of a
 * training that a signal has stopped, makes srun --kill-on-bad-exit send SIGTERM to the others, which then would seem to be
 * killed. */
void cli_leave_processes(tu_process_group *group) {
    if (!group) return;
    fflush(stdout); /* main() reports failures */
    signal(SIGTERM, SIG_IGN);
    tu_process_group_close(group);
}

int cli_stay_independent(const char *command) {
    if (!getenv(CLI_LAUNCH_VARIABLE)) return CLI_DONE;
    return cli_input_error(
        "%s: --independent: 'tutti launch' starts processes that run together: use mpirun or srun", command);
}

bool cli_prints(const tu_process_group *group) {
    return !group || own.rank == 0;
}

int cli_report_common(const tu_process_group *group, tu_status status) {
    enum { ENDS_WITHIN = 5 };
    if (group && status == TU_LOST) pause_for(ENDS_WITHIN); /* end_process prints why */
    return cli_prints(group) ? cli_report(status) : cli_exit_status(status);
}
