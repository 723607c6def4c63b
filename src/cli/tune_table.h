/* Progress of `tutti tune` on standard error: a table with a line for each worker that is redrawn on a terminal, and a line for
 * each trial that has ended. */
#ifndef TU__CLI_TUNE_TABLE_H
#define TU__CLI_TUNE_TABLE_H

#include <stdbool.h>

#include <tutti/tune.h>

enum { TUNE_MAX_ROWS = 32 };

struct tune_row {
    bool used;
    int64_t trial, step, steps;
    double loss, cost; /* of training, of the latest validation; NaN: none */
    double speed;      /* images/s */
    char device[32], values[160];
};

struct tune_table {
    bool quiet, terminal, pipe_closed;
    int drawn_lines; /* of the table on the terminal */
    double drawn_at, began_at;
    int64_t ended, budget, best;
    double best_cost;
    bool shows_accuracy; /* of trials, which are compared by it; else their loss */
    char loading[128];
    int rows;
    struct tune_row row[TUNE_MAX_ROWS];
};

/* `budget`: trials to expect, 0: unknown. */
void tune_table_begin(struct tune_table *table, bool quiet, int64_t budget);
/* A callback for tu_tune_options.on_report; the context is a struct tune_table. */
void tune_table_show(void *table, const tu_tune_report *report);
void tune_table_end(struct tune_table *table);

#endif
