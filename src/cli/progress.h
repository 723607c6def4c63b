/* How `tutti train` shows a run while it goes on: a line that is drawn again on a terminal, plain lines elsewhere. All of
 * it goes to standard error: standard output is for results. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>

#include <tutti/train.h>

struct progress {
    bool quiet;    /* nothing but notices */
    bool terminal; /* standard error is one */
    bool open;     /* a line stands there that is not ended */
    bool closed;   /* standard error is a pipe whose reader closed it: nobody will see any more of this */
    double drawn;  /* when, in seconds */
    int64_t told;  /* in plain lines: the part of the run that the last one stood for */
    char loading[128];
};

void progress_begin(struct progress *progress, bool quiet);
/* For tu_train_options.on_report, with a struct progress as context. */
void progress_show(void *progress, const tu_train_report *report);
/* Ends the line that is drawn, if there is one. */
void progress_end(struct progress *progress);

/* "3:05", "1:02:07" */
struct duration {
    char text[32];
};
struct duration show_duration(double seconds);

#endif
