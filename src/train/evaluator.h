/* The evaluator: the network of a run over the test images of a set, or over the validation part of its training images.
 * Training asks it about the latter now and then, and about the former at its end; `tutti eval` once. */
#ifndef TU__TRAIN_EVALUATOR_H
#define TU__TRAIN_EVALUATOR_H

#include <tutti/run.h>

#include "train/run_folder.h"

typedef struct tu__evaluator {
    tu_graph *graph; /* the caller's */
    tu_program *program;
    tu_value images, labels;
    int64_t batch, classes;
    size_t image_bytes;
    unsigned char *padded; /* a batch of images, for the short last one */
    int32_t *labels_padded;
    int64_t *class_of;  /* of each sample of a batch */
    float *probability; /* of a batch; NULL: not wanted */
    int64_t *images_of; /* counted of each class, for the share of the largest */
    /* On devices that take many batches in one call, for sets that lie in memory. */
    const tu_dataset *tabled;   /* the set that the tables are of … */
    int64_t tabled_validation;  /* … and what of it, as tu__evaluator_run has it */
    unsigned char *part_images; /* a validation part lies scattered: its images, one behind the other … */
    int32_t *part_labels;       /* … and their labels, in the order of the part */
    tu_table *image_table, *label_table;
    int64_t full; /* batches */
    int64_t *rows, *classes_of, *corrects, *top5s;
    float *losses;
} tu__evaluator;

/* What an evaluation comes to. The arrays are the caller's, and filled where they are not NULL. */
typedef struct tu__score {
    int64_t images, correct, top5;
    double loss;          /* mean */
    double largest;       /* share of the largest class: the accuracy of always saying that */
    int64_t *confusion;   /* [classes, classes], counted up */
    float *probabilities; /* [images, classes]; only of an evaluator opened for them */
    int32_t *labels;      /* [images]; together with the probabilities */
} tu__score;

/* Compiles the evaluation graph of a run, as run_graphs.h gives it; it must outlive the evaluator. tu__evaluator_close is
 * needed in any case. `probabilities`: whether they are wanted too, which runs of earlier versions do not give. */
tu_status tu__evaluator_open(tu_graph *graph, const tu__run_config *config, bool probabilities,
                             tu__evaluator *evaluator);
void tu__evaluator_close(tu__evaluator *evaluator);

/* The set must have the size and type of the run's images. `validation`: the number of training images that are its
 * validation part, which is looked at; 0: the test images are. */
tu_status tu__evaluator_run(tu__evaluator *evaluator, tu_state *state, const tu_dataset *set,
                            int64_t validation, tu__score *score);

#endif
