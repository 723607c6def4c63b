/* Joins the processes that mpirun or srun has started. See processes.h. */
#include "cli/processes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/launched.h"
#include "cli/report.h"

static tu_process_info own = TU_SIZED(tu_process_info);

/* Called in a thread of the group; others may be stuck. The line is written at once, since mpirun ends all processes
 * two seconds after one has died. */
static void end_process(void *context, const char *message) {
    (void)context;
    char line[1400];
    int length = snprintf(line, sizeof line, "tutti: rank %u on host %s: %s\n", own.rank, own.host, message);
    if (length >= (int)sizeof line) length = (int)sizeof line - 1;
    cli_tell_launch("lost");
    if (length > 0 && write(STDERR_FILENO, line, (size_t)length) < 0) _exit(CLI_LOST);
    _exit(CLI_LOST);
}

int cli_join_processes(double timeout, const char *interface, tu_process_group **group) {
    *group = NULL;
    tu_status status = TU_OK;
    if (tu_process_group_is_launched()) {
        status = tu_process_group_open(group, .timeout = timeout, .interface = interface,
                                       .on_failure = end_process);
        if (status == TU_OK) status = tu_process_group_describe(*group, &own);
    }
    if (status == TU_OK && cli_prints(*group)) cli_tell_launch("joined");
    return cli_report(status);
}

int cli_stay_independent(const char *command) {
    if (!getenv(CLI_LAUNCH_VARIABLE)) return CLI_DONE;
    return cli_input_error(
        "%s: --independent: 'tutti launch' starts processes that run together: use mpirun or srun", command);
}

bool cli_prints(const tu_process_group *group) {
    return !group || own.rank == 0;
}
