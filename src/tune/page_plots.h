/* The plots of a study's page, as inline SVG. The style sheet of page.c has their classes. */
#ifndef TU__TUNE_PAGE_PLOTS_H
#define TU__TUNE_PAGE_PLOTS_H

#include "base/text.h"
#include "tune/page_trials.h"

/* A cost as the page shows it: an accuracy in percent, or a loss. */
double tu__page_score(const tu_study *study, double cost);

/* Scores over trials, with the best so far. */
void tu__page_history(const tu__page_trials *trials, tu__text *page);
/* A line for each trial through an axis for each parameter and one for the score. */
void tu__page_parallel(const tu__page_trials *trials, tu__text *page);
/* Scores over the values of each parameter. */
void tu__page_slices(const tu__page_trials *trials, tu__text *page);
/* Validations over steps. */
void tu__page_curves(const tu__page_trials *trials, tu__text *page);

#endif
