/* Commands that mpirun or srun starts as one of several processes. */
#ifndef TU__CLI_PROCESSES_H
#define TU__CLI_PROCESSES_H

#include <tutti/process_group.h>

/* Joins the other processes, if there are any: otherwise sets `*group` to NULL. If a process is lost later, every other
 * one prints a line that names it and ends with CLI_LOST. Returns CLI_DONE, or the exit status of a failure that has
 * been printed. */
int cli_join_processes(double timeout, const char *interface, tu_process_group **group);
/* Leaves them, when everything is printed and saved. */
void cli_leave_processes(tu_process_group *group);
/* For --independent: stays alone. Returns CLI_DONE, or the exit status of a failure that has been printed. */
int cli_stay_independent(const char *command);
/* True for rank 0, and for a process alone: it prints results and errors that all have in common. */
bool cli_prints(const tu_process_group *group);
/* Reports the result of a library call that all processes have made: the one that prints does. Returns the exit
 * status. */
int cli_report_common(const tu_process_group *group, tu_status status);

#define CLI_HELP_COLLECTIVE_TIMEOUT                                                                          \
    "with mpirun or srun: time without progress in a collective, after which all processes end and name the late one"
#define CLI_HELP_INDEPENDENT "with mpirun or srun: run alone, not together with the other processes"
#define CLI_HELP_INTERFACE "with mpirun or srun: network interface for heartbeats (default: any)"

#endif
