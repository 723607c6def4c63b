/* Records the progress of a run: metrics.jsonl, TensorBoard's event file, curves.svg.
 *
 * Training does not need these files. If a write fails, a notice reports it once per file, and the run continues. */
#ifndef TU__TRAIN_METRICS_H
#define TU__TRAIN_METRICS_H

#include <tutti/run.h>
#include <tutti/train.h>

#include "run/snapshot.h"
#include "train/run_folder.h"

typedef struct tu__metrics tu__metrics;

typedef void (*tu__notice)(void *context, const char *message);

/* Opens the logs of a run that resumes after `step` (-1: a new run). Drops their entries of later steps. */
tu_status tu__metrics_open(const char *folder, const tu__run_config *config, int64_t step, tu__notice notice,
                           void *context, tu__metrics **metrics);
void tu__metrics_close(tu__metrics *metrics);
/* Flushes everything recorded so far to the disk. Called before a checkpoint is written. */
void tu__metrics_flush(tu__metrics *metrics);

/* Records a measurement: one line in the log, one point of each curve. */
void tu__metrics_training(tu__metrics *metrics, const tu_train_report *report);
/* Records an evaluation of the validation or the test split (according to the report's event) and redraws the
 * curves. */
void tu__metrics_evaluation(tu__metrics *metrics, const tu_train_report *report);
/* Redraws the curves. Used if the run has nothing to evaluate on. */
void tu__metrics_draw(tu__metrics *metrics);
/* Records histograms of the network's variables. Takes the snapshot if it was not taken yet. */
void tu__metrics_histograms(tu__metrics *metrics, int64_t step, const tu_state *state,
                            tu__snapshot *snapshot);
/* Record, once at the start of a run, the graph and a few images of the data set. */
void tu__metrics_graph(tu__metrics *metrics, const tu_graph *graph);
void tu__metrics_images(tu__metrics *metrics, const tu_dataset *dataset);

#endif
