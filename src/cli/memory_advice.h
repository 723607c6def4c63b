/* What `tutti bench` and `tutti train` say of a step that does not fit: one line, what weighs most, what would help.
 *
 * How a step is planned is the command's own affair: it lends a function for it. */
#ifndef CLI_MEMORY_BUILD_ERROR_H
#define CLI_MEMORY_BUILD_ERROR_H

#include <tutti/run.h>

/* What may be changed about a step for it to fit, each by the option of its name. */
struct memory_settings {
    int64_t batch, accumulate; /* accumulate 0: the command has no such option */
    const char *precision;
};

struct memory_plan {
    const tu_program *program;
    struct memory_settings settings;
    void *own; /* the planner's */
};

struct memory_planner {
    const char *command; /* "bench" */
    const char *what;    /* "a workload" */
    bool fixed;          /* nothing about the step may be changed */
    bool own_network;    /* the network is the user's, who can change its layers */
    void *context;
    /* Plans the step with these settings (NULL: as it was asked for). `release` is called in any case. */
    tu_status (*plan)(void *context, const struct memory_settings *settings, struct memory_plan *plan);
    void (*release)(struct memory_plan *plan);
};

/* Reports a failure with TU_NO_MEMORY, whose message is tu_message(): with the tables, as bad input, where it is the plan
 * that does not fit; as the message has it where memory ran out for another reason. Returns the exit status. */
int cli_report_memory(const struct memory_planner *planner);

#endif
