/* The stepper: the compiled training step of a run, fed with batches.
 *
 * It hides that a batch may be short or computed in pieces: one call is one step, whatever programs that takes. */
#ifndef TU__TRAIN_STEPPER_H
#define TU__TRAIN_STEPPER_H

#include <tutti/data.h>
#include <tutti/run.h>

#include "train/run_graphs.h"
#include "train/undo.h"

typedef struct tu__piece { /* a program over a fixed number of samples */
    tu_graph *graph;       /* the run's; NULL: it needs none of this size */
    tu_program *program;
    int64_t samples;
    tu_value images, labels, ordinals, share; /* inputs; the last two invalid where the graph has none */
} tu__piece;

typedef struct tu__stepper {
    tu__piece full, rest;  /* rest: what remains of an epoch when pieces do not divide it */
    tu_graph *apply_graph; /* NULL where a batch is one piece */
    tu_program *apply;
    tu__undo undo; /* of the pieces before a bad one */
    size_t image_bytes;
    /* Of the training images, where steps pick theirs by number; NULL: batches bring them. */
    tu_table *images, *labels;
} tu__stepper;

typedef struct tu__step_values {
    double loss; /* mean over the batch */
    int64_t correct;
    double rate, gradient_norm;
    bool finite;          /* false: the step changed nothing … */
    const tu__piece *bad; /* … because of this piece, whose samples begin here: */
    int64_t bad_first;
} tu__step_values;

/* Compiles the step of a run, whose graphs must outlive the stepper. tu__stepper_close is needed in any case. */
tu_status tu__stepper_open(const tu__run_graphs *graphs, const tu__run_config *config, tu__stepper *stepper);
/* The same as far as the plans of its programs go, which need not fit: to be looked at, not to be run. */
tu_status tu__stepper_plan(const tu__run_graphs *graphs, const tu__run_config *config, tu__stepper *stepper);
void tu__stepper_close(tu__stepper *stepper);

/* Lets steps pick their images by number from a set that lies in memory, where that is the better way: where the device's own
 * threads copy them straight into the step's inputs. A thread that read batches ahead would take a core from them just then.
 * The set must outlive the stepper; its batches then need no images. */
tu_status tu__stepper_pick_from(tu__stepper *stepper, const tu_dataset *set);

/* A state with all variables of the step, by their initialisers. */
tu_status tu__stepper_state(const tu__stepper *stepper, uint64_t seed, tu_state **state);

/* One step. */
tu_status tu__stepper_run(const tu__stepper *stepper, tu_state *state, const tu_batch *batch,
                          tu__step_values *values);

/* The feeds of a piece that begins at sample `first` of a batch; returns how many. `*share` must live until the run. */
enum { TU__MAX_FEEDS = 4 };
size_t tu__piece_feeds(const tu__stepper *stepper, const tu__piece *piece, const tu_batch *batch,
                       int64_t first, float *share, tu_feed feeds[TU__MAX_FEEDS]);

/* An input by its name; invalid, without a complaint, where there is none. */
tu_value tu__find_input(tu_graph *graph, const char *name);

#endif
