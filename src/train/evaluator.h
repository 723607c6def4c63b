/* The evaluator: runs a network over the test split of a data set, or over the validation split of its training
 * samples. Training evaluates the validation split periodically and the test split at its end; `tutti eval` evaluates
 * the test split once.
 *
 * The outputs of an evaluation graph are sums over the samples of a batch, which are added to totals, and values per
 * sample ("class", "probability"). The task's metrics are computed from the totals (metrics_graph.h). */
#ifndef TU__TRAIN_EVALUATOR_H
#define TU__TRAIN_EVALUATOR_H

#include <tutti/run.h>

#include "train/feeder.h"
#include "train/metrics_graph.h"
#include "train/run_folder.h"

enum { TU__MAX_TOTALS = 64 };

/* An output that is a sum over samples. */
typedef struct tu__total {
    const char *name; /* the graph's */
    tu_type type;
    int64_t elements;
    void *batch;   /* of one batch */
    void *batches; /* of all full batches of a call */
    double *sums;  /* [elements] */
} tu__total;

typedef struct tu__evaluator {
    tu_graph *graph; /* owned by the caller */
    tu_program *program;
    const tu__columns *columns; /* the run's */
    tu__inputs inputs;
    int64_t batch, classes;
    size_t label_column; /* of the target's classes; TU_MAX_COLUMNS: the target is no class */
    size_t total_count;
    tu__total totals[TU__MAX_TOTALS];
    tu__metrics_program metrics;  /* zeroed: the task is classification */
    bool returns_class;           /* the program returns class_of */
    void *padded[TU_MAX_COLUMNS]; /* a full batch, to pad the last one */
    float *counted;               /* [batch]: for the input "counted"; NULL: the graph has none */
    int64_t *class_of;            /* predicted class of each sample of a batch */
    float *probability;           /* class probabilities of a batch; NULL: not requested */
    int64_t *samples_of;          /* number of samples of each class, to find the largest */
    tu_process_group *group;      /* the processes that evaluate together; NULL: this one alone */
    /* If rank 0 evaluates alone, the processes that it gives the score; their `program` is NULL. */
    tu_process_group *receivers;
    /* Only on devices that run many batches per call, for data sets in memory: */
    const tu_dataset *tabled;    /* data set that the tables contain */
    int64_t tabled_validation;   /* `validation` of tu__evaluator_run for which the tables were filled */
    void *split[TU_MAX_COLUMNS]; /* copy of the validation samples, which are scattered in `tabled` */
    tu__feeder feeder;
    int64_t full;        /* number of full batches */
    int64_t *rows;       /* indices of the samples of a call */
    float *counted_many; /* for the input "counted" */
    int64_t *classes_of; /* per sample of a call */
} tu__evaluator;

/* Result of an evaluation. The arrays belong to the caller and are filled if not NULL. */
typedef struct tu__score {
    int64_t images, correct, top5; /* samples; correct and top5: of classification */
    double loss;                   /* mean */
    double largest; /* fraction of the samples in the largest class: the accuracy of always predicting it */
    double metrics[TU_MAX_METRICS]; /* of the task, as the run's configuration lists them */
    int64_t *confusion;             /* [classes, classes], incremented */
    float *probabilities; /* [images, classes]; only if the evaluator was opened with `probabilities` */
    int32_t *labels;      /* [images]; required together with `probabilities` */
} tu__score;

/* Compiles the evaluation graph of a run (run_graphs.h), which must outlive the evaluator, and the graph of its metrics
 * (NULL: the task is classification). Call tu__evaluator_close even after a failure. `probabilities`: also compute
 * probabilities, which graphs of runs of earlier versions do not support. */
tu_status tu__evaluator_open(tu_graph *graph, tu_graph *metrics, const tu__run_config *config,
                             bool probabilities, tu__evaluator *evaluator);
void tu__evaluator_close(tu__evaluator *evaluator);

/* Evaluates the samples of `dataset`, whose columns must have the types of the run's. `validation` > 0: evaluates
 * the validation split, that many training samples; 0: evaluates the test split. */
tu_status tu__evaluator_run(tu__evaluator *evaluator, tu_state *state, const tu_dataset *dataset,
                            int64_t validation, tu__score *score);

#endif
