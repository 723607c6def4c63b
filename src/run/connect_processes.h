/* Connects the devices of a program to those of other processes, so that they perform collectives themselves. */
#ifndef TU__RUN_CONNECT_PROCESSES_H
#define TU__RUN_CONNECT_PROCESSES_H

#include "run/program.h"

/* Called when the program is compiled, by all processes of its group: connects its devices, if those of all processes
 * can be, and changes the path of its collectives. Otherwise sets p->host_notice to the reason. */
tu_status tu__connect_processes(tu_program *program);
/* Called when all executions of the program have been freed. */
void tu__disconnect_processes(tu_program *program);

/* Exchanges whether the devices of each process can execute the command list as a whole: all do it, or none. */
tu_status tu__agree_to_submit(tu_program *program);

#endif
