/* Checks that random networks compute the same on several replicas as on one device.
 *
 * Each network (random_network.h) is built from a seed. It runs on one device and on several, in f64, so that only the
 * order of sums differs. With .invariant = N, which divides the batch into N fixed shards, results must be bit-identical
 * on any number of devices. Null devices compute nothing: with them the test checks only that the program is planned
 * and runs to its end. */
#include "ops/random_network.h"

static bool build_graph(model *m, uint64_t seed) {
    if (tu_graph_new(&m->graph) != TU_OK) return false;
    build_network(m, seed);
    add_gradient_descent(m);
    return tu_graph_status(m->graph) == TU_OK;
}

static bool run(model *m, tu_compile_options options, outcome *o) {
    double data[2][MAX_ROWS * COLUMNS];
    int32_t classes[MAX_ROWS];
    fill_inputs(77, data, classes);
    const tu_feed feeds[] = {{m->samples[0], data[0]}, {m->samples[1], data[1]}, {m->classes, classes}};
    options.fetch = m->fetches;
    options.fetch_count = (size_t)m->fetch_count;
    return run_graph(m->graph, &options, 3, feeds, o);
}

/* ---- Device configurations ---- */

typedef struct configuration {
    const char *devices, *strategy;
    int invariant;
} configuration;

typedef struct comparison {
    configuration single, several;
    bool computes;    /* false: null devices, whose results are not compared */
    double tolerance; /* 0: bit-identical */
} comparison;

static const comparison comparisons[] = {
    {{"ref", NULL, 0}, {"ref:0/2", "mirrored", 0}, true, 1e-8},
    {{"ref", NULL, 0}, {"ref:0/3", "central", 0}, true, 1e-8},
    {{"ref", NULL, 0}, {"ref:0/4", "mirrored", 0}, true, 1e-8},
    {{"cpu:0", NULL, 0}, {"cpu:0/2", "central", 0}, true, 1e-8},
    {{"cpu:0", NULL, 0}, {"cpu:0/3", "mirrored", 0}, true, 1e-8},
    {{"cpu:0", NULL, 4}, {"cpu:0/2", "mirrored", 4}, true, 0},
    {{"cpu:0", NULL, 4}, {"cpu:0/4", "mirrored", 4}, true, 0},
    {{"cpu:0", NULL, 4}, {"cpu:0/4", "central", 4}, true, 0},
    {{"null:0", NULL, 0}, {"null:0-3", "mirrored", 0}, false, 0},
    {{"gpu:0", NULL, 0}, {"gpu:0/2", "mirrored", 0}, true, 1e-8},
    {{"gpu:0", NULL, 0}, {"gpu:0/3", "central", 0}, true, 1e-8},
    {{"gpu:0", NULL, 4}, {"gpu:0/2", "mirrored", 4}, true, 0},
    {{"gpu:0", NULL, 4}, {"gpu:0/4", "mirrored", 4}, true, 0},
};
enum { COMPARISONS = sizeof comparisons / sizeof *comparisons };

/* Cycles through the comparisons of this run: with GPUs, or without. */
static const comparison *pick_comparison(uint64_t seed) {
    const comparison *matching[COMPARISONS];
    uint64_t count = 0;
    for (size_t i = 0; i < COMPARISONS; i++)
        if (is_for_this_run(comparisons[i].several.devices)) matching[count++] = &comparisons[i];
    return matching[seed % count];
}

static tu_compile_options options_of(const configuration *a) {
    return (tu_compile_options){.devices = a->devices, .strategy = a->strategy, .invariant = a->invariant};
}

static bool check_graph(uint64_t seed) {
    const comparison *c = pick_comparison(seed);
    model m = {0};
    outcome single_outcome = {0}, several_outcome = {0};
    bool ok = build_graph(&m, seed);
    if (!ok) printf("     %s\n", tu_message());
    ok = ok && run(&m, options_of(&c->several), &several_outcome);
    if (ok && c->computes)
        ok =
            run(&m, options_of(&c->single), &single_outcome) &&
            outcomes_agree(m.fetches, (size_t)m.fetch_count, &single_outcome, &several_outcome, c->tolerance);
    if (!ok)
        printf("FAIL graph %llu, %s on %s\n", (unsigned long long)seed, c->several.strategy,
               c->several.devices);
    free(single_outcome.numbers);
    free(several_outcome.numbers);
    tu_graph_free(m.graph);
    return ok;
}

int main(int argc, char **argv) {
    return check_graphs(argc, argv, check_graph);
}
