/* F1, AUC and calibration of a classifier, from its confusion matrix and its probabilities.
 *
 *     f1                 mean over the classes of the harmonic mean of precision and recall
 *     auc                area under the ROC curve: the probability that a sample of the class gets a higher score than another
 *                        one. Of two classes that of the second; of more the mean of each class against the others
 *     calibration_error  expected calibration error: mean difference between confidence and accuracy, in 15 equal intervals
 *                        of the confidence
 *
 * Classes without samples do not count, except that F1 is 0 for one that is predicted. Without samples of two kinds, or if a
 * probability is NaN, the AUC is NaN. */
#ifndef TU__TRAIN_CLASSIFICATION_REPORT_H
#define TU__TRAIN_CLASSIFICATION_REPORT_H

#include <stdint.h>

#include <tutti/status.h>

typedef struct tu__classification_report {
    double f1, auc, calibration_error;
} tu__classification_report;

/* confusion [classes, classes]; probabilities [samples, classes]; labels [samples]. */
tu_status tu__report_classification(int64_t samples, int64_t classes, const int64_t *confusion,
                                    const float *probabilities, const int32_t *labels,
                                    tu__classification_report *report);

#endif
