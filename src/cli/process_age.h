/* The time since the start of the process. */
#ifndef TU__CLI_PROCESS_AGE_H
#define TU__CLI_PROCESS_AGE_H

/* Returns the seconds since the kernel created this process, at most one clock tick too many; `fallback` if
 * unknown. */
double cli_process_age(double fallback);

#endif
