/* What a run tells while it goes on: metrics.jsonl, TensorBoard's event file, curves.svg.
 *
 * None of it is needed to train. A write that fails is told once for each file, as a notice, and the run goes on. */
#ifndef TU__TRAIN_METRICS_H
#define TU__TRAIN_METRICS_H

#include <tutti/run.h>
#include <tutti/train.h>

#include "run/snapshot.h"

typedef struct tu__metrics tu__metrics;

typedef void (*tu__notice)(void *context, const char *message);

/* Opens the logs of a run that goes on after `step` (-1: begins): what they say of later steps is dropped. */
tu_status tu__metrics_open(const char *folder, int64_t step, tu__notice notice, void *context,
                           tu__metrics **metrics);
void tu__metrics_close(tu__metrics *metrics);
/* What was told so far is on the disk when this returns: before a checkpoint, which stands for it. */
void tu__metrics_flush(tu__metrics *metrics);

/* One line, one point of each curve. */
void tu__metrics_training(tu__metrics *metrics, const tu_train_report *report);
/* Likewise for an evaluation, of the validation part or of the test images as the report's event says; draws the curves
 * again. */
void tu__metrics_evaluation(tu__metrics *metrics, const tu_train_report *report);
/* Draws the curves as they are, where there is nothing to evaluate on. */
void tu__metrics_draw(tu__metrics *metrics);
/* Histograms of the network's variables, from the state's snapshot, which is taken if need be. */
void tu__metrics_histograms(tu__metrics *metrics, int64_t step, const tu_state *state,
                            tu__snapshot *snapshot);
/* Once, when a run begins: the graph, and a few pictures of the set. */
void tu__metrics_graph(tu__metrics *metrics, const tu_graph *graph);
void tu__metrics_images(tu__metrics *metrics, const tu_dataset *set);

#endif
