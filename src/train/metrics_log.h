/* metrics.jsonl: one JSON object per line, for every log interval (mean loss and accuracy of its training steps) and
 * every evaluation.
 *
 *     {"step":100,"epoch":0.26,"seconds":8.1,"loss":1.52,"accuracy":0.44,"rate":0.03,…}
 *     {"step":391,"epoch":1,"seconds":31.9,"validation_loss":1.21,"validation_accuracy":0.56,"validation_top5":0.95}
 *
 * "rate" is the learning rate. The evaluation of the test split adds a line at the end ("test_loss", …). Logs written
 * before there were validation splits have such a line for every evaluation.
 *
 * The log also keeps the values as series for curves.svg. A resumed run reads them from the file. */
#ifndef TU__TRAIN_METRICS_LOG_H
#define TU__TRAIN_METRICS_LOG_H

#include <tutti/train.h>

#include "train/run_folder.h"

typedef struct tu__series {
    size_t count, capacity;
    double *epoch, *loss, *accuracy; /* one allocation, owned by `epoch` */
} tu__series;

typedef struct tu__metrics_log {
    const tu__run_config *config; /* has the names of the metrics */
    tu__path path;
    int fd; /* -1: not open */
    off_t size;
    tu__series train, validation, test;
} tu__metrics_log;

/* Opens the log to append lines after `step`. First removes later lines and an incomplete last line, atomically. Call
 * tu__metrics_log_close even after a failure. */
tu_status tu__metrics_log_open(const char *folder, const tu__run_config *config, int64_t step,
                               tu__metrics_log *log);
/* The newest line of a log. */
typedef struct tu__log_summary {
    int64_t step;
    double seconds;
} tu__log_summary;

/* Reads the series of a log and its newest line, without opening it for writing. A missing file is an empty log. Call
 * tu__metrics_log_close even after a failure. */
tu_status tu__metrics_log_read(const char *folder, const tu__run_config *config, tu__metrics_log *log,
                               tu__log_summary *last);
void tu__metrics_log_close(tu__metrics_log *log);
/* Appends a line. If the write fails, removes the incomplete line. */
tu_status tu__metrics_log_add(tu__metrics_log *log, const tu_train_report *report);
/* Flushes the lines to the disk. */
tu_status tu__metrics_log_flush(tu__metrics_log *log);

#endif
