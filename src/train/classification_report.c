/* F1, AUC and calibration. See classification_report.h. */
#include "train/classification_report.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/alloc.h"

enum { BINS = 15 };

/* ---- F1 ---- */

static double f1_of(int64_t classes, const int64_t *confusion, int64_t class, bool *present) {
    int64_t wanted = 0, predicted = 0, both = confusion[class * classes + class];
    for (int64_t i = 0; i < classes; i++) {
        wanted += confusion[class * classes + i];
        predicted += confusion[i * classes + class];
    }
    *present = wanted + predicted > 0;
    return wanted + predicted ? 2 * (double)both / (double)(wanted + predicted) : 0;
}

static double mean_f1(int64_t classes, const int64_t *confusion) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t c = 0; c < classes; c++) {
        bool present;
        double f1 = f1_of(classes, confusion, c, &present);
        if (!present) continue;
        sum += f1;
        count++;
    }
    return count ? sum / (double)count : 0;
}

/* ---- AUC ---- */

typedef struct scored {
    float score;
    bool positive;
} scored;

/* NaN comes first. */
static int compare_scores(const void *a, const void *b) {
    float x = ((const scored *)a)->score, y = ((const scored *)b)->score;
    if (isnan(x) || isnan(y)) return isnan(y) - isnan(x);
    return (x > y) - (x < y);
}

/* Mann and Whitney: counts the pairs of a positive and a negative sample in which the positive one has the higher score;
 * equal scores count half. Returns NaN if there are no such pairs, or a score is NaN. */
static double auc_of_sorted(const scored *s, int64_t samples) {
    double negatives = 0, positives = 0, pairs = 0;
    for (int64_t i = 0; i < samples;) {
        double same[2] = {0};
        float score = s[i].score;
        if (isnan(score)) return (double)NAN; /* it equals no score, not even itself */
        for (; i < samples && s[i].score == score; i++) same[s[i].positive]++;
        pairs += same[true] * (negatives + same[false] / 2);
        negatives += same[false];
        positives += same[true];
    }
    return positives > 0 && negatives > 0 ? pairs / (positives * negatives) : (double)NAN;
}

static double mean_auc(int64_t samples, int64_t classes, const float *probabilities, const int32_t *labels,
                       scored *s) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t c = classes == 2 ? 1 : 0; c < classes; c++) {
        for (int64_t i = 0; i < samples; i++) s[i] = (scored){probabilities[i * classes + c], labels[i] == c};
        qsort(s, (size_t)samples, sizeof *s, compare_scores);
        double auc = auc_of_sorted(s, samples);
        if (isnan(auc)) continue;
        sum += auc;
        count++;
    }
    return count ? sum / (double)count : (double)NAN;
}

/* ---- Calibration ---- */

static double calibration_error(int64_t samples, int64_t classes, const float *probabilities,
                                const int32_t *labels) {
    double confidence[BINS] = {0}, correct[BINS] = {0}, error = 0;
    for (int64_t i = 0; i < samples; i++) {
        const float *p = probabilities + i * classes;
        int64_t best = 0;
        for (int64_t c = 1; c < classes; c++)
            if (p[c] > p[best]) best = c;
        if (isnan(p[best])) return (double)NAN;
        double place = (double)p[best] * BINS;
        int bin = place < 0 ? 0 : place >= BINS ? BINS - 1 : (int)place;
        confidence[bin] += (double)p[best];
        correct[bin] += best == labels[i];
    }
    for (int b = 0; b < BINS; b++) error += fabs(confidence[b] - correct[b]);
    return samples ? error / (double)samples : 0;
}

tu_status tu__report_classification(int64_t samples, int64_t classes, const int64_t *confusion,
                                    const float *probabilities, const int32_t *labels,
                                    tu__classification_report *report) {
    scored *s = tu__alloc_array((size_t)samples, sizeof *s, "the scores of samples");
    if (!s) return TU_NO_MEMORY;
    *report = (tu__classification_report){.f1 = mean_f1(classes, confusion),
                                          .auc = mean_auc(samples, classes, probabilities, labels, s),
                                          .calibration_error =
                                              calibration_error(samples, classes, probabilities, labels)};
    tu__free(s);
    return TU_OK;
}
