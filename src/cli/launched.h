/* A process that `tutti launch` has started, through mpirun or srun.
 *
 * These join the output of all processes. So that their lines can be told apart, a process with a rank above 0 labels
 * its own: "[1] …". mpirun's and srun's own labels would not do: mpirun loses output if a program prints many short
 * lines, and both change the lines of rank 0, which may be JSON.
 *
 * On standard error a process also sends messages to `tutti launch`: lines that begin with CLI_LAUNCH_MARK. */
#ifndef TU__CLI_LAUNCHED_H
#define TU__CLI_LAUNCHED_H

#include <tutti/status.h>

#define CLI_LAUNCH_VARIABLE "TUTTI_LAUNCHED" /* environment variable of these processes */
enum { CLI_LAUNCH_MARK = 036 };              /* a control character that text does not contain */

/* Labels what the process prints from now on, if `tutti launch` has started it. */
void cli_label_output(void);

/* Sends a message, if `tutti launch` has started the process:
 *
 *     joined      from rank 0: the process group is complete
 *     run FOLDER  from rank 0: a training run has begun or is resumed
 *     trains      from rank 0: SIGUSR1 now stops the run and saves it
 *     lost        the process ends because another one is lost or has failed
 *     status N    the process ends with this exit status */
void cli_tell_launch(const char *format, ...) TU_PRINTF(1, 2);

#endif
