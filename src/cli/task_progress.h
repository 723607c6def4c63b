/* Progress of a long task on standard error: one line that is overwritten on a terminal, otherwise one line per task. */
#ifndef TU__CLI_TASK_PROGRESS_H
#define TU__CLI_TASK_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct cli_task {
    bool terminal, shown; /* the caller sets `terminal`: standard error is one */
    int64_t percent;      /* last printed; -1: none */
    char what[256];
};

/* A tu_progress callback; the context is a struct cli_task. */
void cli_show_task(void *task, const char *what, int64_t done, int64_t total);
/* Erases the line, if there is one. */
void cli_end_task(const struct cli_task *task);

#endif
