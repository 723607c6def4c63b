/* What the members of an ensemble say of the images of a set, and what they say together.
 *
 * Probabilities are averaged, not votes: a member that is sure counts more than one that is not. They are summed in the
 * order of the members, so that the same members give the same bits. */
#ifndef TU__TRAIN_AVERAGE_ANSWERS_H
#define TU__TRAIN_AVERAGE_ANSWERS_H

#include "train/evaluator.h"

typedef struct tu__answers {
    int64_t images, classes, count; /* count: of members added */
    float *latest;                  /* [images, classes]: of one member */
    double *sums;                   /* [images, classes] */
    int32_t *labels;                /* [images] */
} tu__answers;

/* tu__answers_free is needed in any case. */
tu_status tu__answers_new(int64_t images, int64_t classes, tu__answers *answers);
void tu__answers_free(tu__answers *answers);
/* Adds what stands in `latest`. */
void tu__answers_add(tu__answers *answers);
/* What the mean of all answers is worth, as for a network of its own. */
void tu__answers_score(const tu__answers *answers, tu__score *score);

#endif
