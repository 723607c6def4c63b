/* Averages the class probabilities of an ensemble's members over the images of a data set, and scores the average.
 *
 * Probabilities are averaged, not votes: a confident member weighs more than an uncertain one. They are summed in the
 * order of the members, so that the result is bit-identical for the same members. */
#ifndef TU__TRAIN_ENSEMBLE_AVERAGE_H
#define TU__TRAIN_ENSEMBLE_AVERAGE_H

#include "train/evaluator.h"

typedef struct tu__ensemble_average {
    int64_t images, classes, count; /* count: members added so far */
    float *latest;                  /* [images, classes]: probabilities of one member */
    double *sums;                   /* [images, classes]: over the members added */
    int32_t *labels;                /* [images] */
    int32_t *votes;                 /* [images, classes]: members that predict the class */
} tu__ensemble_average;

/* Allocates the arrays. Call tu__ensemble_average_free even after a failure. */
tu_status tu__ensemble_average_new(int64_t images, int64_t classes, tu__ensemble_average *average);
void tu__ensemble_average_free(tu__ensemble_average *average);
/* Adds `latest` to the sums and the votes. */
void tu__ensemble_average_add(tu__ensemble_average *average);
/* Fills `score` with the loss, accuracy and confusion matrix of the mean probabilities. */
void tu__ensemble_average_score(const tu__ensemble_average *average, tu__score *score);

/* Returns the fraction of images for which two members predict different classes, on average over all pairs; 0 for one
 * member. */
double tu__ensemble_average_disagreement(const tu__ensemble_average *average);
/* Returns the expected calibration error of the mean probabilities (Guo et al. 2017, 15 bins): by how much the confidence
 * differs from the accuracy, on average over the images. */
double tu__ensemble_average_calibration_error(const tu__ensemble_average *average);

#endif
