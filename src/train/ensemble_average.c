/* Ensemble averaging. See ensemble_average.h. */
#include "train/ensemble_average.h"

#include <float.h>
#include <math.h>

#include "base/alloc.h"

enum { TOP_K = 5, CALIBRATION_BINS = 15 };

tu_status tu__ensemble_average_new(int64_t images, int64_t classes, tu__ensemble_average *a) {
    *a = (tu__ensemble_average){.images = images, .classes = classes};
    size_t count = (size_t)images * (size_t)classes;
    a->latest = tu__alloc_array(count, sizeof *a->latest, "the probabilities of a member");
    a->sums = tu__alloc_array(count, sizeof *a->sums, "the probabilities of an ensemble");
    a->labels = tu__alloc_array((size_t)images, sizeof *a->labels, "the labels of test images");
    a->votes = tu__alloc_array(count, sizeof *a->votes, "the votes of an ensemble");
    return a->latest && a->sums && a->labels && a->votes ? TU_OK : TU_NO_MEMORY;
}

void tu__ensemble_average_free(tu__ensemble_average *a) {
    tu__free(a->latest);
    tu__free(a->sums);
    tu__free(a->labels);
    tu__free(a->votes);
    *a = (tu__ensemble_average){0};
}

void tu__ensemble_average_add(tu__ensemble_average *a) {
    for (int64_t i = 0; i < a->images; i++) {
        const float *row = a->latest + i * a->classes;
        int64_t best = 0;
        for (int64_t c = 0; c < a->classes; c++) {
            a->sums[i * a->classes + c] += row[c];
            if (row[c] > row[best]) best = c;
        }
        a->votes[i * a->classes + best]++;
    }
    a->count++;
}

/* Returns how many classes rank before `class`. Of equal probabilities the lower class index ranks first, like argmax
 * and top_k on the devices. */
static int64_t rank_of(const double *row, int64_t classes, int64_t class) {
    int64_t before = 0;
    for (int64_t i = 0; i < classes; i++)
        before += row[i] > row[class] || (row[i] == row[class] && i < class);
    return before;
}

static int64_t most_probable(const double *row, int64_t classes) {
    int64_t best = 0;
    for (int64_t i = 1; i < classes; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

void tu__ensemble_average_score(const tu__ensemble_average *a, tu__score *score) {
    double losses = 0;
    score->images = a->images;
    for (int64_t i = 0; i < a->images; i++) {
        const double *row = a->sums + i * a->classes;
        int64_t label = a->labels[i], rank = rank_of(row, a->classes, label);
        /* The probability may be 0 in every member. */
        losses -= log(fmax(row[label] / (double)a->count, FLT_MIN));
        score->correct += rank == 0;
        score->top5 += rank < TOP_K;
        if (score->confusion) score->confusion[label * a->classes + most_probable(row, a->classes)]++;
    }
    score->loss = losses / (double)a->images;
}

double tu__ensemble_average_disagreement(const tu__ensemble_average *a) {
    double pairs = (double)a->count * (double)(a->count - 1) / 2, agreeing = 0;
    if (pairs == 0) return 0;
    for (int64_t i = 0; i < a->images * a->classes; i++)
        agreeing += (double)a->votes[i] * (double)(a->votes[i] - 1) / 2;
    return 1 - agreeing / pairs / (double)a->images;
}

double tu__ensemble_average_calibration_error(const tu__ensemble_average *a) {
    double confidence[CALIBRATION_BINS] = {0}, correct[CALIBRATION_BINS] = {0}, error = 0;
    for (int64_t i = 0; i < a->images; i++) {
        const double *row = a->sums + i * a->classes;
        int64_t best = most_probable(row, a->classes);
        double p = row[best] / (double)a->count;
        int bin = (int)fmin(fmax(p * CALIBRATION_BINS, 0), CALIBRATION_BINS - 1);
        confidence[bin] += p;
        correct[bin] += best == a->labels[i];
    }
    for (int bin = 0; bin < CALIBRATION_BINS; bin++) error += fabs(confidence[bin] - correct[bin]);
    return error / (double)a->images;
}
