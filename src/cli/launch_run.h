/* Runs mpirun or srun to its end, on behalf of `tutti launch`. */
#ifndef TU__CLI_LAUNCH_RUN_H
#define TU__CLI_LAUNCH_RUN_H

#include "cli/launch_output.h"

struct launch_outcome {
    /* The exit status of the launcher; 128 + number if a signal has ended it; CLI_LOST if it had to be killed. */
    int status;
    /* A signal came before the training, or a second one: the processes were to end without saving, so those that report
     * the loss of another one were not the first to notice anything. */
    bool was_ended;
    struct launch_messages messages;
};

/* From now on SIGINT, SIGTERM and SIGHUP are passed on to the launcher that is running: the first one so that a
 * training saves its state and stops, the second one so that the processes are killed, the third one kills the
 * launcher. SIGHUP counts once, because closing a terminal sends it twice. */
void launch_catch_signals(void);
bool launch_is_stopped(void);

/* How long, in seconds, the launcher may take until it is killed. */
struct launch_limits {
    double join; /* until the processes have joined; 0: any time */
    double
        lost; /* to end after a process has reported that another one is lost: mpirun waits for a host that is cut off */
    double rest; /* for processes that outlive the launcher to end */
};

/* Runs a program, whose name and arguments end with NULL, until it and all processes that it has started here have
 * ended. Returns false if it could not be started: an error has been printed. */
bool launch_run(char *const *words, const struct launch_limits *limits, struct launch_outcome *outcome);

#endif
