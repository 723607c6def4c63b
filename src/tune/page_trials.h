/* The trials of a page: their order, their colours, and which of them the plots draw. */
#ifndef TU__TUNE_PAGE_TRIALS_H
#define TU__TUNE_PAGE_TRIALS_H

#include "tune/study_view.h"

enum {
    TU__PAGE_COLOURS = 5,
    TU__PAGE_BEST = 500,  /* trials that a plot draws: at most so many of the best, */
    TU__PAGE_OTHERS = 500 /* and so many others */
};

typedef struct tu__page_trials {
    const tu_study *study;
    size_t *order; /* all trials, the best first; those without a cost come last */
    unsigned char
        *colours; /* of each trial: 0 for the best fifth of all costs … 4 for the worst, and without a cost */
    size_t *drawn; /* the trials that the plots draw, in the order of their numbers */
    size_t drawn_count;
    tu__arena arena;
} tu__page_trials;

/* Call tu__page_trials_free even after a failure. */
tu_status tu__page_trials_of(const tu_study *study, tu__page_trials *trials);
void tu__page_trials_free(tu__page_trials *trials);

#endif
