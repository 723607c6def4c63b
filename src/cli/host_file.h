/* Reads a host file, in the format of Open MPI:
 *
 *     # comment
 *     node1 slots=4
 *     node2 slots=4 max_slots=8
 *
 * A host without `slots` has one; a host that is named again has the sum. Only names are accepted that cannot be
 * mistaken for options or for several hosts on the command line of mpirun or ssh. */
#ifndef TU__CLI_HOST_FILE_H
#define TU__CLI_HOST_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cli_host {
    char name[256];
    int64_t slots; /* number of processes that may be started on it */
};

struct cli_hosts {
    struct cli_host *list;
    size_t count;
};

struct cli_host_error {
    size_t line;
    char message[256]; /* "slots 'x': expected …" */
};

/* Reads the text of a host file. The caller frees hosts->list, also after a failure. */
bool cli_parse_hosts(const char *text, size_t length, struct cli_hosts *hosts, struct cli_host_error *error);

/* Reads a host file. Prints an error with file and line, and returns CLI_BAD_INPUT, if it is not valid or names no
 * host; otherwise returns CLI_DONE. The caller frees hosts->list, also after a failure. */
int cli_read_hosts(const char *path, struct cli_hosts *hosts);

int64_t cli_count_slots(const struct cli_hosts *hosts);

#endif
