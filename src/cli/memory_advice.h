/* The error report of `tutti bench` and `tutti train` for a step that does not fit into memory: one line, a table of
 * the largest buffers and a table of options that help. Each command supplies a function that plans its step. */
#ifndef TU__CLI_MEMORY_ADVICE_H
#define TU__CLI_MEMORY_ADVICE_H

#include <tutti/run.h>

/* Settings that can be changed to make a step fit. Each has an option of the same name. */
struct memory_settings {
    int64_t batch, accumulate; /* accumulate 0: the command has no such option */
    const char *precision;
};

struct memory_plan {
    const tu_program *program;
    struct memory_settings settings;
    void *planner_data; /* used by plan() and release() */
};

struct memory_planner {
    const char *command;  /* name of the command: "bench" */
    const char *what;     /* what does not fit, for the message: "a workload" */
    bool settings_fixed;  /* the settings cannot be changed: no options are suggested */
    bool is_user_network; /* the network is defined in a file of the user, who can change it */
    void *context;
    /* Plans the step with these settings (NULL: those of the command line). `release` is called even if this
     * fails. */
    tu_status (*plan)(void *context, const struct memory_settings *settings, struct memory_plan *plan);
    void (*release)(struct memory_plan *plan);
};

/* Reports a call that failed with TU_NO_MEMORY. If the planned step does not fit, prints the tables and returns
 * CLI_BAD_INPUT. If memory ran out for another reason, prints tu_message() and returns CLI_FAILED. */
int cli_report_memory(const struct memory_planner *planner);

#endif
