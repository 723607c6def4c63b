/* Functions with known minima, on which searches are compared. */
#ifndef TUTTI_OBJECTIVES_H
#define TUTTI_OBJECTIVES_H

#include <math.h>
#include <string.h>

#include "tune/space.h"

struct objective {
    const char *name, *space;
    double minimum;
    double (*value)(const tu__space *space, const tu__point *point);
};

static inline double branin(const tu__space *space, const tu__point *point) {
    (void)space;
    const double pi = acos(-1), x = point->value[0], y = point->value[1];
    double a = y - 5.1 / (4 * pi * pi) * x * x + 5 / pi * x - 6;
    return a * a + 10 * (1 - 1 / (8 * pi)) * cos(x) + 10;
}

static inline double hartmann6(const tu__space *space, const tu__point *point) {
    (void)space;
    static const double alpha[] = {1.0, 1.2, 3.0, 3.2};
    static const double a[4][6] = {{10, 3, 17, 3.5, 1.7, 8},
                                   {0.05, 10, 17, 0.1, 8, 14},
                                   {3, 3.5, 1.7, 10, 17, 8},
                                   {17, 8, 0.05, 10, 0.1, 14}};
    static const double p[4][6] = {{.1312, .1696, .5569, .0124, .8283, .5886},
                                   {.2329, .4135, .8307, .3736, .1004, .9991},
                                   {.2348, .1451, .3522, .2883, .3047, .6650},
                                   {.4047, .8828, .8732, .5743, .1091, .0381}};
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        double inner = 0;
        for (int j = 0; j < 6; j++)
            inner += a[i][j] * (point->value[j] - p[i][j]) * (point->value[j] - p[i][j]);
        sum -= alpha[i] * exp(-inner);
    }
    return sum;
}

static inline double rosenbrock4(const tu__space *space, const tu__point *point) {
    (void)space;
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        double x = point->value[i], y = point->value[i + 1];
        sum += 100 * (y - x * x) * (y - x * x) + (1 - x) * (1 - x);
    }
    return sum;
}

/* Like a network: a choice of three optimizers with parameters of their own, a rate on a logarithmic scale, a batch. The best
 * is adam with rate 3e-3, beta 0.95, batch 64. */
static inline double conditional(const tu__space *space, const tu__point *point) {
    const tu__parameter *optimizer = &space->parameters[0];
    const char *name = optimizer->choices[(size_t)point->value[0]];
    double batch = fabs(log2(point->value[2] / 64));
    double rate = log10(point->value[1]), base = 0.02 * batch * batch;
    if (strcmp(name, "sgd") == 0) return 0.3 + base + 0.3 * (rate + 1) * (rate + 1);
    if (strcmp(name, "momentum") == 0)
        return 0.15 + base + 0.3 * pow(rate + 2 + 2 * (point->value[3] - 0.9), 2) +
               pow(point->value[3] - 0.9, 2);
    return base + 0.3 * pow(rate - log10(3e-3), 2) + 4 * pow(point->value[4] - 0.95, 2) +
           0.1 * pow(log10(point->value[5]) + 6, 2);
}

static const struct objective objectives[] = {
    {"Branin", "x=-5:10\ny=0:15", 0.39788735772973816, branin},
    {"Hartmann-6", "a=0:1\nb=0:1\nc=0:1\nd=0:1\ne=0:1\nf=0:1", -3.3223680114155, hartmann6},
    {"Rosenbrock-4", "a=-5:10\nb=-5:10\nc=-5:10\nd=-5:10", 0, rosenbrock4},
    {"conditional",
     "optimizer=sgd|momentum|adam\nrate=log:1e-5:1\nbatch=log:int:16:1024\n"
     "momentum=0:1 if optimizer=momentum\nbeta=0.5:1 if optimizer=adam\n"
     "epsilon=log:1e-10:1e-2 if optimizer=adam",
     0, conditional},
};
enum { OBJECTIVES = sizeof objectives / sizeof *objectives };

#endif
