/* The command line of mpirun or srun that starts all processes. */
#ifndef TU__CLI_LAUNCH_COMMAND_H
#define TU__CLI_LAUNCH_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/status.h>

#include "cli/host_file.h"

enum launcher { LAUNCHER_AUTO, LAUNCHER_MPIRUN, LAUNCHER_SRUN };

/* A list of words, which ends with NULL. */
struct word_list {
    char **words;
    size_t count, size;
    bool failed; /* out of memory */
};
void word_list_add(struct word_list *list, const char *format, ...) TU_PRINTF(2, 3);
void word_list_free(struct word_list *list);
/* Prints the words as a line that a shell would read as these words. */
void word_list_print(const struct word_list *list);

struct launch_command {
    enum launcher launcher;
    int64_t processes;
    const struct cli_hosts *hosts; /* of mpirun; NULL: it finds them itself */
    const char *folder;            /* to resume the training in; "": as the arguments say */
    bool resumes;                  /* resume: in `folder`, or in the folder that the arguments name */
    char **arguments;              /* the command of Tutti and its arguments */
    int argument_count;
};

/* Returns the launcher to use: srun inside an allocation of Slurm, unless hosts are given; else mpirun. */
enum launcher launch_choose(enum launcher given, bool has_hosts);
/* Prints an error and returns CLI_BAD_INPUT if the launcher is not installed, or another program has its name;
 * otherwise returns CLI_DONE. */
int launch_check(enum launcher launcher);
/* Sets environment variables of the launcher, unless the user has set them. */
void launch_set_environment(enum launcher launcher);
/* Writes the command line into an empty list. Prints an error and returns CLI_FAILED if this fails. */
int launch_write_command(const struct launch_command *command, struct word_list *words);

#endif
