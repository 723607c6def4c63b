/* The sampler TPE: J. Bergstra et al., "Algorithms for Hyper-Parameter Optimization", 2011.
 *
 * The ended trials are divided into the best ones and all others. Two densities are estimated, l of the best points and g of
 * the others. Candidates are drawn from l, and the one with the largest l / g is tried: a point that resembles good ones and
 * not bad ones. Trials that still run count among the others, so that workers keep away from each other's points.
 *
 * A density is a mixture of a kernel for each trial and of the prior, which is uniform on the parameter's scale. A kernel is
 * the product of one for each parameter that its trial uses (S. Falkner et al., "BOHB", 2018), so that parameters are not
 * taken as independent: a normal distribution that is cut at the bounds, or for a choice its value with a high probability.
 * Where the trial does not use a parameter, that factor is the prior; so a trial of one branch of a conditional space says
 * nothing about the parameters of another. The width of the kernels is the spread of their points, as in Scott's rule, so
 * that the search becomes local where the best points agree.
 *
 * A branch is the values of the choices on which other parameters depend. A branch with more parameters needs more trials
 * until it shows how good it is, and would be given up before. Some trials, the fewer the more there are, are therefore made
 * from the trials of one branch alone, which is drawn from the prior. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tune/sampler.h"

enum {
    STARTUP = 10, /* trials that are quasi-random, before there is something to estimate */
    LEAST_BEST = 2,
    MOST_BEST = 25,
    CANDIDATES = 32,
    BRANCH_TRIALS = 40, /* trial n is made from one branch with the probability 40 / n */
    PURPOSE = 201,
};
/* tests/tune/test_tpe.c compares the search with random search, by which these numbers were chosen. */
static const double best_share = 0.1;               /* of the ended trials */
static const double narrowest = 0.01, widest = 0.5; /* width of a kernel, of a scale of length 1 */
static const double choice_weight = 0.8; /* of a kernel's own choice; the rest is spread over all */

/* ---- Densities ---- */

typedef struct mixture {
    const tu__space *space;
    size_t count;
    const tu__outcome *const *trials;
    double width[TU__MAX_PARAMETERS];
} mixture;

static double normal_integral(double x) {
    return 0.5 * erfc(-x / sqrt(2));
}

/* The density of a normal distribution with the given middle, cut to 0 … 1. */
static double cut_normal(double x, double middle, double width) {
    double z = (x - middle) / width;
    double inside = normal_integral((1 - middle) / width) - normal_integral(-middle / width);
    return exp(-0.5 * z * z) / (width * sqrt(2 * acos(-1)) * inside);
}

static double kernel(const mixture *m, const tu__outcome *trial, size_t i, double value) {
    const tu__parameter *p = &m->space->parameters[i];
    double middle = trial->point.value[i];
    if (isnan(middle)) return 1;
    if (p->choice_count)
        return (value == middle ? choice_weight * (double)p->choice_count : 0) + 1 - choice_weight;
    return cut_normal(tu__parameter_unit(p, value), tu__parameter_unit(p, middle), m->width[i]);
}

/* The density at a point, relative to the prior's. */
static double density(const mixture *m, const tu__point *point) {
    double sum = 1; /* the prior */
    for (size_t k = 0; k < m->count; k++) {
        double product = 1;
        for (size_t i = 0; i < m->space->count; i++)
            if (!isnan(point->value[i])) product *= kernel(m, m->trials[k], i, point->value[i]);
        sum += product;
    }
    return sum / (double)(m->count + 1);
}

/* Sets the widths by Scott's rule: spread · n^(-1/(d+4)). */
static void set_widths(mixture *m) {
    for (size_t i = 0; i < m->space->count; i++) {
        double sum = 0, squares = 0, n = 0;
        for (size_t k = 0; k < m->count; k++) {
            double value = m->trials[k]->point.value[i];
            if (isnan(value)) continue;
            double unit = tu__parameter_unit(&m->space->parameters[i], value);
            sum += unit, squares += unit * unit, n++;
        }
        /* The variance of the points and of the prior, 1/12, which counts as one point: two points may be close by chance. */
        double variance = ((n > 0 ? fmax(squares - sum * sum / n, 0) : 0) + 1.0 / 12) / (n + 1);
        double width = sqrt(variance) * pow(fmax(n, 1), -1.0 / ((double)m->space->count + 4));
        m->width[i] = fmin(fmax(width, narrowest), widest);
    }
}

/* ---- Candidates ---- */

typedef struct draws {
    uint64_t seed;
    int64_t trial;
    uint32_t next;
} draws;

static double draw(draws *d) {
    return tu__trial_random(d->seed, d->trial, PURPOSE, d->next++);
}

/* Draws from the normal distribution that is cut to 0 … 1, by bisection of its integral. */
static double draw_cut_normal(draws *d, double middle, double width) {
    double low = 0, high = 1;
    double below = normal_integral(-middle / width), above = normal_integral((1 - middle) / width);
    double target = below + draw(d) * (above - below);
    for (int i = 0; i < 40; i++) {
        double half = 0.5 * (low + high);
        if (normal_integral((half - middle) / width) < target)
            low = half;
        else
            high = half;
    }
    return low;
}

static double draw_value(const mixture *m, const tu__outcome *trial, size_t i, draws *d) {
    const tu__parameter *p = &m->space->parameters[i];
    double middle = trial ? trial->point.value[i] : (double)NAN;
    bool from_prior = isnan(middle) || (p->choice_count && draw(d) >= choice_weight);
    if (from_prior) return tu__parameter_value(p, draw(d));
    if (p->choice_count) return middle;
    return tu__parameter_value(p, draw_cut_normal(d, tu__parameter_unit(p, middle), m->width[i]));
}

/* `branch`: values that are decided already; NULL: none. */
static void draw_point(const mixture *m, const tu__point *branch, draws *d, tu__point *point) {
    size_t k = (size_t)(draw(d) * (double)(m->count + 1));
    const tu__outcome *trial = k < m->count ? m->trials[k] : NULL; /* NULL: the prior */
    for (size_t i = 0; i < m->space->count; i++) {
        if (!tu__space_uses(m->space, i, point))
            point->value[i] = (double)NAN;
        else if (branch && !isnan(branch->value[i]))
            point->value[i] = branch->value[i];
        else
            point->value[i] = draw_value(m, trial, i, d);
    }
}

/* ---- Branches ---- */

static bool is_parent(const tu__space *space, size_t index) {
    for (size_t i = 0; i < space->count; i++)
        for (size_t k = 0; k < space->parameters[i].condition_count; k++)
            if (space->parameters[i].conditions[k].parent == index) return true;
    return false;
}

/* Draws a branch, if this trial is to be made from one. Other parameters are NaN. */
static bool draw_branch(const tu__space *space, int64_t trial, draws *d, tu__point *branch) {
    bool wanted = draw(d) < BRANCH_TRIALS / (double)trial, any = false;
    for (size_t i = 0; i < space->count; i++) {
        branch->value[i] = (double)NAN;
        if (!is_parent(space, i) || !tu__space_uses(space, i, branch)) continue;
        branch->value[i] = tu__parameter_value(&space->parameters[i], draw(d));
        any = true;
    }
    return wanted && any;
}

static bool is_in_branch(const tu__space *space, const tu__point *branch, const tu__point *point) {
    for (size_t i = 0; i < space->count; i++)
        if (!isnan(branch->value[i]) && branch->value[i] != point->value[i]) return false;
    return true;
}

/* ---- The sampler ---- */

/* Failed trials are worse than all others, and running ones come last. */
static int compare_outcomes(const void *a, const void *b) {
    const tu__outcome *x = *(const tu__outcome *const *)a, *y = *(const tu__outcome *const *)b;
    int rank_x = x->ended ? !x->scored : 2, rank_y = y->ended ? !y->scored : 2;
    if (rank_x != rank_y) return rank_x - rank_y;
    if (rank_x == 0 && x->value != y->value) return x->value < y->value ? -1 : 1;
    return x < y ? -1 : x > y; /* the order of trials */
}

static size_t count_scored(size_t count, const tu__outcome *const *trials) {
    size_t scored = 0;
    for (size_t i = 0; i < count; i++) scored += trials[i]->ended && trials[i]->scored;
    return scored;
}

/* Returns how many of the sorted trials are the best ones. */
static size_t count_best(size_t count, const tu__outcome *const *trials) {
    size_t scored = count_scored(count, trials), best = (size_t)ceil(best_share * (double)scored);
    if (best < LEAST_BEST) best = LEAST_BEST;
    if (best > MOST_BEST) best = MOST_BEST;
    return best < scored ? best : scored;
}

static void sample_from(const tu__space *space, size_t count, const tu__outcome **trials,
                        const tu__point *branch, draws *d, tu__point *point) {
    qsort(trials, count, sizeof *trials, compare_outcomes);
    size_t best = count_best(count, trials);
    mixture good = {.space = space, .count = best, .trials = trials};
    mixture others = {.space = space, .count = count - best, .trials = trials + best};
    set_widths(&good);
    set_widths(&others);
    double highest = -1;
    for (int i = 0; i < CANDIDATES; i++) {
        tu__point candidate;
        draw_point(&good, branch, d, &candidate);
        double ratio = density(&good, &candidate) / density(&others, &candidate);
        if (ratio > highest) highest = ratio, *point = candidate;
    }
}

static tu_status sample(const tu__history *history, int64_t trial, tu__point *point) {
    if (trial < STARTUP) return tu__sample_sobol.sample(history, trial, point);
    const tu__outcome **trials = tu__alloc_array(history->count + 1, sizeof *trials, "the trials of a study");
    if (!trials) return TU_NO_MEMORY;
    draws d = {.seed = history->seed, .trial = trial};
    tu__point branch;
    bool is_branch = draw_branch(history->space, trial, &d, &branch);
    size_t count = 0;
    for (size_t i = 0; i < history->count; i++)
        if (!is_branch || is_in_branch(history->space, &branch, &history->outcomes[i].point))
            trials[count++] = &history->outcomes[i];
    sample_from(history->space, count, trials, is_branch ? &branch : NULL, &d, point);
    tu__free(trials);
    return TU_OK;
}

const tu__sampler tu__sample_tpe = {.name = "tpe", .reads_history = true, .sample = sample};
