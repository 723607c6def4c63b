/* Averaging answers. See average_answers.h. */
#include "train/average_answers.h"

#include <float.h>
#include <math.h>

#include "base/alloc.h"

enum { AMONG = 5 };

tu_status tu__answers_new(int64_t images, int64_t classes, tu__answers *a) {
    *a = (tu__answers){.images = images, .classes = classes};
    size_t count = (size_t)images * (size_t)classes;
    a->latest = tu__alloc_array(count, sizeof *a->latest, "the answers of a member");
    a->sums = tu__alloc_array(count, sizeof *a->sums, "the answers of an ensemble");
    a->labels = tu__alloc_array((size_t)images, sizeof *a->labels, "the labels of test images");
    return a->latest && a->sums && a->labels ? TU_OK : TU_NO_MEMORY;
}

void tu__answers_free(tu__answers *a) {
    tu__free(a->latest);
    tu__free(a->sums);
    tu__free(a->labels);
    *a = (tu__answers){0};
}

void tu__answers_add(tu__answers *a) {
    for (int64_t i = 0; i < a->images * a->classes; i++) a->sums[i] += a->latest[i];
    a->count++;
}

/* How many classes are likelier than `class`; of equals the lower one is, as for the devices' argmax and top_k. */
static int64_t place_of(const double *row, int64_t classes, int64_t class) {
    int64_t before = 0;
    for (int64_t i = 0; i < classes; i++)
        before += row[i] > row[class] || (row[i] == row[class] && i < class);
    return before;
}

static int64_t likeliest(const double *row, int64_t classes) {
    int64_t best = 0;
    for (int64_t i = 1; i < classes; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

void tu__answers_score(const tu__answers *a, tu__score *score) {
    double losses = 0;
    score->images = a->images;
    for (int64_t i = 0; i < a->images; i++) {
        const double *row = a->sums + i * a->classes;
        int64_t label = a->labels[i], place = place_of(row, a->classes, label);
        /* All members may have rounded it to nothing. */
        losses -= log(fmax(row[label] / (double)a->count, FLT_MIN));
        score->correct += place == 0;
        score->top5 += place < AMONG;
        if (score->confusion) score->confusion[label * a->classes + likeliest(row, a->classes)]++;
    }
    score->loss = losses / (double)a->images;
}
