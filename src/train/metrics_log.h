/* metrics.jsonl: one JSON object a line, for every measurement and every evaluation.
 *
 *     {"step":100,"epoch":0.26,"seconds":8.1,"loss":1.52,"accuracy":0.44,"rate":0.03,…}
 *     {"step":391,"epoch":1,"seconds":31.9,"validation_loss":1.21,"validation_accuracy":0.56,"validation_top5":0.95}
 *
 * The test images have a line of their own at the end ("test_loss", …); runs of earlier versions have one an evaluation.
 *
 * The log also keeps what it says as series, for curves.svg; a resumed run reads them back. */
#ifndef TU__TRAIN_METRICS_LOG_H
#define TU__TRAIN_METRICS_LOG_H

#include <tutti/train.h>

#include "train/run_folder.h"

typedef struct tu__series {
    size_t count, capacity;
    double *epoch, *loss, *accuracy; /* one block, that of `epoch` */
} tu__series;

typedef struct tu__metrics_log {
    tu__path path;
    int fd; /* -1: not open */
    off_t size;
    tu__series train, validation, test;
} tu__metrics_log;

/* Opens the log for lines after `step`; later ones, and a last one that was cut, are dropped first, in one step that
 * leaves the old file or the new one. tu__metrics_log_close is needed in any case. */
tu_status tu__metrics_log_open(const char *folder, int64_t step, tu__metrics_log *log);
void tu__metrics_log_close(tu__metrics_log *log);
/* Adds a line; what a failed write left of it is taken back. */
tu_status tu__metrics_log_add(tu__metrics_log *log, const tu_train_report *report);
/* The lines so far, onto the disk. */
tu_status tu__metrics_log_flush(tu__metrics_log *log);

#endif
