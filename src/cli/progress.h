/* Progress of `tutti train` on standard error: one line that is redrawn on a terminal, separate lines otherwise. */
#ifndef TU__CLI_PROGRESS_H
#define TU__CLI_PROGRESS_H

#include <stdbool.h>

#include <tutti/train.h>

struct progress {
    bool quiet;        /* print only notices */
    bool terminal;     /* standard error is a terminal */
    bool line_open;    /* the cursor is on a drawn line without a newline */
    bool pipe_closed;  /* standard error is a pipe, and its reader closed it */
    double drawn_at;   /* time of the latest drawing; see cli_now() */
    int64_t last_line; /* without a terminal: number of the latest progress line, 0 to 20 */
    char loading[128];
};

void progress_begin(struct progress *progress, bool quiet);
/* A callback for tu_train_options.on_report; the context is a struct progress. */
void progress_show(void *progress, const tu_train_report *report);
/* Prints a newline after the drawn line, if there is one. */
void progress_end(struct progress *progress);

/* Minutes and seconds, or hours, minutes and seconds: "3:05", "1:02:07". */
struct duration {
    char text[32];
};
struct duration format_duration(double seconds);

#endif
