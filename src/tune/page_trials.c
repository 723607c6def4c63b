/* Chooses the trials that a page draws. See page_trials.h.
 *
 * A browser needs seconds for a page with a line, a dot in each plot and a text for each of 10,000 trials. So the plots draw
 * the best trials, which a reader looks for, and others evenly over the search, which show how it went. */
#include "tune/page_trials.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

static const tu_study
    *sorted_study; /* for compare_trials; set and used by one thread at a time: see sort_lock */
static pthread_mutex_t sort_lock = PTHREAD_MUTEX_INITIALIZER;

/* By cost; trials without one come last. */
static int compare_trials(const void *a, const void *b) {
    const tu__trial *x = &sorted_study->trials.trials[*(const size_t *)a];
    const tu__trial *y = &sorted_study->trials.trials[*(const size_t *)b];
    if (isnan(x->cost) != isnan(y->cost)) return isnan(x->cost) ? 1 : -1;
    if (!isnan(x->cost) && x->cost != y->cost) return x->cost < y->cost ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

static void sort_trials(tu__page_trials *t) {
    size_t count = t->study->trials.count;
    for (size_t i = 0; i < count; i++) t->order[i] = i;
    pthread_mutex_lock(&sort_lock);
    sorted_study = t->study;
    qsort(t->order, count, sizeof *t->order, compare_trials);
    pthread_mutex_unlock(&sort_lock);
}

/* The colour depends on the share of the other costs that are better; equal costs have one colour. */
static void choose_colours(tu__page_trials *t) {
    const tu__trial *trials = t->study->trials.trials;
    size_t count = t->study->trials.count, scored = 0, better = 0;
    while (scored < count && !isnan(trials[t->order[scored]].cost)) scored++;
    for (size_t i = 0; i < count; i++) {
        size_t colour = TU__PAGE_COLOURS - 1;
        if (i < scored) {
            if (i && trials[t->order[i]].cost != trials[t->order[i - 1]].cost) better = i;
            colour = scored > 1 ? TU__PAGE_COLOURS * better / (scored - 1) : 0;
            if (colour > TU__PAGE_COLOURS - 1) colour = TU__PAGE_COLOURS - 1;
        }
        t->colours[t->order[i]] = (unsigned char)colour;
    }
}

/* Trials are stored in the order of their numbers. */
static void choose_drawn(tu__page_trials *t, bool *is_best) {
    size_t count = t->study->trials.count, most = TU__PAGE_BEST + TU__PAGE_OTHERS;
    size_t best = count > most ? TU__PAGE_BEST : count, others = count - best, seen = 0;
    for (size_t i = 0; i < best; i++) is_best[t->order[i]] = true;
    for (size_t i = 0; i < count; i++) {
        bool is_next = false;
        if (others && !is_best[i]) { /* the first of each 500th part of the others */
            is_next = seen == 0 || seen * TU__PAGE_OTHERS / others != (seen - 1) * TU__PAGE_OTHERS / others;
            seen++;
        }
        if (is_best[i] || is_next) t->drawn[t->drawn_count++] = i;
    }
}

tu_status tu__page_trials_of(const tu_study *study, tu__page_trials *trials) {
    size_t count = study->trials.count + 1;
    *trials = (tu__page_trials){.study = study, .arena = {.purpose = "the order of trials"}};
    trials->order = tu__arena_alloc(&trials->arena, count * sizeof *trials->order);
    trials->colours = tu__arena_alloc(&trials->arena, count);
    trials->drawn = tu__arena_alloc(&trials->arena, count * sizeof *trials->drawn);
    bool *is_best = tu__arena_alloc(&trials->arena, count); /* zeroed */
    if (!trials->order || !trials->colours || !trials->drawn || !is_best) return TU_NO_MEMORY;
    sort_trials(trials);
    choose_colours(trials);
    choose_drawn(trials, is_best);
    return TU_OK;
}

void tu__page_trials_free(tu__page_trials *trials) {
    tu__arena_free(&trials->arena);
}
