/* A study for reading: what tu_study_open returns. */
#ifndef TU__TUNE_STUDY_VIEW_H
#define TU__TUNE_STUDY_VIEW_H

#include <tutti/tune.h>

#include "tune/study.h"

struct tu_study {
    tu__study study;
    tu__trials trials;
    tu__arena arena;
    char folder[4096];
    const char **values; /* [trials, parameters]; NULL: not used */
};

/* Reads the parts of a page from a study: page.c. */
const char *tu__study_value(const tu_study *study, size_t trial, size_t parameter);
/* True if an accuracy is shown instead of the cost, which is 1 - accuracy. */
bool tu__study_shows_accuracy(const tu_study *study);

#endif
