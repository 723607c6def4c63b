/* The evaluator: runs a network over the test split of a data set, or over the validation split of its training
 * images. Training evaluates the validation split periodically and the test split at its end; `tutti eval` evaluates
 * the test split once. */
#ifndef TU__TRAIN_EVALUATOR_H
#define TU__TRAIN_EVALUATOR_H

#include <tutti/run.h>

#include "train/run_folder.h"

typedef struct tu__evaluator {
    tu_graph *graph; /* owned by the caller */
    tu_program *program;
    tu_value images, labels;
    int64_t batch, classes;
    size_t image_bytes;
    unsigned char *padded; /* a full batch of images, to pad the last one */
    int32_t *labels_padded;
    int64_t *class_of;       /* predicted class of each sample of a batch */
    float *probability;      /* class probabilities of a batch; NULL: not requested */
    int64_t *images_of;      /* number of images of each class, to find the largest */
    tu_process_group *group; /* the processes that evaluate together; NULL: this one alone */
    /* If rank 0 evaluates alone, the processes that it gives the score; their `program` is NULL. */
    tu_process_group *receivers;
    /* Only on devices that run many batches per call, for data sets in memory: */
    const tu_dataset *tabled;    /* data set that the tables contain */
    int64_t tabled_validation;   /* `validation` of tu__evaluator_run for which the tables were filled */
    unsigned char *split_images; /* copy of the validation images, which are scattered in `tabled` */
    int32_t *split_labels;       /* labels of `split_images` */
    tu_table *image_table, *label_table;
    int64_t full;  /* number of full batches */
    int64_t *rows; /* indices of the images of a call */
    /* Results of a call: per image, and the other three per batch. */
    int64_t *classes_of, *corrects, *top5s;
    float *losses;
} tu__evaluator;

/* Result of an evaluation. The arrays belong to the caller and are filled if not NULL. */
typedef struct tu__score {
    int64_t images, correct, top5;
    double loss;    /* mean */
    double largest; /* fraction of the images in the largest class: the accuracy of always predicting it */
    int64_t *confusion;   /* [classes, classes], incremented */
    float *probabilities; /* [images, classes]; only if the evaluator was opened with `probabilities` */
    int32_t *labels;      /* [images]; required together with `probabilities` */
} tu__score;

/* Compiles the evaluation graph of a run (run_graphs.h), which must outlive the evaluator. Call tu__evaluator_close
 * even after a failure. `probabilities`: also compute probabilities, which graphs of runs of earlier versions do not
 * support. */
tu_status tu__evaluator_open(tu_graph *graph, const tu__run_config *config, bool probabilities,
                             tu__evaluator *evaluator);
void tu__evaluator_close(tu__evaluator *evaluator);

/* Evaluates the images of `dataset`, which must have the size and type of the run's images. `validation` > 0: evaluates
 * the validation split, that many training images; 0: evaluates the test split. */
tu_status tu__evaluator_run(tu__evaluator *evaluator, tu_state *state, const tu_dataset *dataset,
                            int64_t validation, tu__score *score);

#endif
