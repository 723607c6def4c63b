/* Finds out which hosts still answer. */
#ifndef TU__CLI_HOST_CHECK_H
#define TU__CLI_HOST_CHECK_H

#include "cli/host_file.h"

/* Starts `true` on every host as mpirun would start its daemon: with ssh, or with what the environment variable
 * OMPI_MCA_plm_rsh_agent names. A host on which that fails, or takes more than ten seconds, does not answer. This host
 * always does. Prints a notice about each host that does not answer, and returns those that do: the caller frees their
 * list. Ends early if `is_stopped`. */
struct cli_hosts cli_find_answering_hosts(const struct cli_hosts *hosts, bool (*is_stopped)(void));

#endif
