/* Checks that random graphs with random placements compute the same as on one device.
 *
 * Each graph is built twice from one seed: once for a single device, once with most nodes assigned to random
 * devices; the engine places the others. Some nodes are colocated, some have control dependencies. Devices of one
 * kind must agree in every bit; results of different kinds are compared with a tolerance. The device kind
 * "limited" is a CPU that does not support some operations, which the engine must place elsewhere. Null devices
 * compute nothing: with them the test checks only that the program is planned and runs to its end. */
#include "ops/random_graph.h"

#include "device/device.h"

enum { MAX_VALUES = 256, ROWS = 6, COLUMNS = 8, MAX_FETCHES = 12 };

typedef struct model {
    tu_graph *graph;
    uint64_t random;
    tu_value values[MAX_VALUES]; /* all f32 [ROWS, COLUMNS] */
    int count;
    tu_value fetches[MAX_FETCHES];
    int fetch_count;
} model;

static tu_value any_value(model *m) {
    return pick_value(&m->random, m->values, m->count);
}

static void push(model *m, tu_value value) {
    if (m->count < MAX_VALUES) m->values[m->count++] = value;
}

static tu_value weights(model *m, const char *name, tu_shape shape) {
    return tu_variable(m->graph, name, TU_F32, shape, .init = {.kind = TU_INIT_UNIFORM, .a = -0.4, .b = 0.4});
}

/* Adds one random operation on existing values. The magnitude of results stays near one. */
static void add_operation(model *m, int index) {
    char name[32];
    snprintf(name, sizeof name, "w%d", index);
    tu_value x = any_value(m), y = any_value(m);
    switch (random_below(&m->random, 14)) {
    case 0: push(m, tu_tanh(tu_add(x, y))); break;
    case 1: push(m, tu_mul(x, tu_sigmoid(y))); break;
    case 2: push(m, tu_relu(tu_sub(x, y))); break;
    case 3: push(m, tu_maximum(x, tu_scale(y, 0.5))); break;
    case 4: push(m, tu_tanh(tu_matmul(x, weights(m, name, TU_SHAPE(COLUMNS, COLUMNS))))); break;
    case 5: push(m, tu_add(x, weights(m, name, TU_SHAPE(COLUMNS)))); break;
    case 6: push(m, tu_softmax(x, 1)); break;
    case 7: push(m, tu_sub(x, tu_mean(x, .axes = TU_AXES(1), .keep = true))); break;
    case 8:
        push(m, tu_add(tu_scale(y, 0.5), tu_scale(tu_sum(x, .axes = TU_AXES(0), .keep = true), 0.1)));
        break;
    case 9: {
        tu_value halves[] = {tu_slice(x, 1, 0, COLUMNS / 2, 1), tu_slice(y, 1, COLUMNS / 2, TU_END, 1)};
        push(m, tu_concat(halves, 2, 1));
        break;
    }
    case 10: push(m, tu_dropout(x, 0.25)); break;
    case 11: push(m, tu_transpose(tu_tanh(tu_transpose(x)))); break;
    case 12: { /* a small convolution over the rows as one image */
        tu_value image = tu_reshape(x, TU_SHAPE(1, ROWS, COLUMNS / 4, 4));
        tu_value f = weights(m, name, TU_SHAPE(4, 3, 3, 4));
        push(m, tu_tanh(tu_reshape(tu_convolve(image, f), TU_SHAPE(ROWS, COLUMNS))));
        break;
    }
    /* Continuous at x = y, because devices of two kinds may round differently and select another branch. */
    default: push(m, tu_select(tu_greater(x, y), x, tu_add(tu_scale(x, 0.5), tu_scale(y, 0.5)))); break;
    }
}

static void fetch(model *m, tu_value value) {
    if (m->fetch_count < MAX_FETCHES) m->fetches[m->fetch_count++] = value;
}

/* Builds random operations, the gradients of a loss with respect to the variables, and updates of these. */
static bool build_graph(model *m, uint64_t seed) {
    m->random = seed;
    if (tu_graph_new(&m->graph) != TU_OK) return false;
    push(m, tu_batch_input(m->graph, "a", TU_F32, TU_SHAPE(ROWS, COLUMNS)));
    push(m, tu_input(m->graph, "b", TU_F32, TU_SHAPE(ROWS, COLUMNS)));
    int operations = 3 + (int)random_below(&m->random, 30);
    for (int i = 0; i < operations; i++) add_operation(m, i);
    for (int i = 0; i < 3; i++) fetch(m, any_value(m));
    tu_value variables[64], gradients[64];
    size_t count = tu_trainable(m->graph, 64, variables);
    if (count > 64) count = 64;
    tu_value loss = tu_mean(tu_square(tu_add(any_value(m), any_value(m))));
    fetch(m, loss);
    if (random_below(&m->random, 4) && count) {
        tu_gradients(loss, count, variables, gradients);
        for (size_t i = 0; i < count; i++) {
            if (random_below(&m->random, 2)) fetch(m, gradients[i]);
            tu_assign(variables[i], tu_sub(variables[i], tu_scale(gradients[i], 0.5)));
        }
    }
    return tu_graph_status(m->graph) == TU_OK;
}

static bool run(model *m, const char *devices, outcome *o) {
    float a[ROWS * COLUMNS], b[ROWS * COLUMNS];
    uint64_t random = 77;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        a[i] = (float)random_below(&random, 1000) / 500 - 1;
        b[i] = (float)random_below(&random, 1000) / 500 - 1;
    }
    const tu_feed feeds[] = {{m->values[0], a}, {m->values[1], b}};
    const tu_compile_options options = {
        .devices = devices, .fetch = m->fetches, .fetch_count = (size_t)m->fetch_count};
    return run_graph(m->graph, &options, 2, feeds, o);
}

/* ---- Placements ---- */

typedef struct placement {
    const char *devices;
    int count;
    const char *names[5];
    const char *single; /* the one device to compare with */
    bool bit_identical;
    bool computes; /* false: null devices, whose results are not compared */
} placement;

static const placement placements[] = {
    {"cpu:0/2", 2, {"cpu:0.0", "cpu:0.1"}, "cpu:0", true, true},
    {"cpu:0/3", 3, {"cpu:0.0", "cpu:0.1", "cpu:0.2"}, "cpu:0", true, true},
    {"cpu:0/5", 5, {"cpu:0.0", "cpu:0.1", "cpu:0.2", "cpu:0.3", "cpu:0.4"}, "cpu:0", true, true},
    {"ref,cpu:0/2", 3, {"ref:0", "cpu:0.0", "cpu:0.1"}, "ref", false, true},
    {"ref,cpu:0/3", 4, {"ref:0", "cpu:0.0", "cpu:0.1", "cpu:0.2"}, "ref", false, true},
    {"null:0-3", 4, {"null:0", "null:1", "null:2", "null:3"}, NULL, false, false},
    {"limited:0/2,cpu:0", 3, {"limited:0.0", "limited:0.1", "cpu:0"}, "cpu:0", true, true},
    {"cpu:0.0/2,limited:0.1/2", 2, {"cpu:0.0", "limited:0.1"}, "cpu:0", true, true},
    {"gpu:0/2,cpu:0", 3, {"gpu:0.0", "gpu:0.1", "cpu:0"}, "cpu:0", false, true},
    {"cpu:0/2,gpu:0", 3, {"cpu:0.0", "cpu:0.1", "gpu:0"}, "cpu:0", false, true},
};
enum { PLACEMENTS = sizeof placements / sizeof *placements };

static const placement *pick_placement(uint64_t seed) {
    for (size_t i = seed % PLACEMENTS;; i = (i + 1) % PLACEMENTS)
        if (is_for_this_run(placements[i].devices)) return &placements[i];
}

/* Adds random control dependencies and colocations. */
static void add_constraints(model *m, uint64_t *random) {
    uint32_t nodes = m->graph->node_count;
    for (uint64_t i = random_below(random, 6); i > 0; i--) {
        tu_value a = tu__value(m->graph, (uint32_t)random_below(random, nodes), 0);
        tu_value b = tu__value(m->graph, (uint32_t)random_below(random, nodes), 0);
        const tu__node *late = tu__node_of(a.node > b.node ? a : b),
                       *early = tu__node_of(a.node > b.node ? b : a);
        if (a.node != b.node && tu__node_is_computed(late) && early->op->code != TU__OP_ASSIGN)
            tu_after(a.node > b.node ? a : b, a.node > b.node ? b : a);
        if (random_below(random, 2) && late->op->code != TU__OP_ASSIGN && early->op->code != TU__OP_ASSIGN)
            tu_colocate(a, b);
    }
}

/* Assigns a random device to most nodes, the same to all nodes of a colocation group. */
static void assign_devices(model *m, const placement *p, uint64_t seed) {
    uint64_t random = seed ^ 0x5bd1e995;
    add_constraints(m, &random);
    for (uint32_t i = 0; i < m->graph->node_count; i++) {
        tu__node *node = m->graph->nodes[i];
        uint64_t device_index =
            random_below(&random, (uint64_t)p->count + 1); /* p->count: the engine places it */
        if (node->group) device_index = node->group % (uint64_t)p->count;
        node->device = device_index < (uint64_t)p->count ? p->names[device_index] : NULL;
    }
}

/* ---- A device that does not support every operation ---- */

static tu_status limited_cpu_supports(tu_device_instance *device, const tu_graph *graph, uint32_t node) {
    (void)device;
    static const char *const unsupported[] = {"softmax", "matmul", "random", "concat", "tanh"};
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (strcmp(tu_node_operation(graph, node), unsupported[i]) == 0)
            return tu_fail(TU_UNSUPPORTED, "a limited CPU does not support %s", unsupported[i]);
    return TU_OK;
}

static bool add_limited_cpu(void) {
    static tu_device_api api;
    api = tu__cpu_api;
    api.kind = "limited";
    api.supports = limited_cpu_supports;
    return tu__device_kind_add(&api) == TU_OK;
}

static bool check_graph(uint64_t seed) {
    const placement *p = pick_placement(seed);
    model single = {0}, several = {0};
    outcome single_outcome = {0}, several_outcome = {0};
    bool ok = build_graph(&single, seed) && build_graph(&several, seed);
    if (!ok) printf("     %s\n", tu_message());
    if (ok) assign_devices(&several, p, seed);
    ok = ok && run(&several, p->devices, &several_outcome);
    if (ok && p->computes)
        ok = run(&single, p->single, &single_outcome) &&
             outcomes_agree(single.fetches, (size_t)single.fetch_count, &single_outcome, &several_outcome,
                            p->bit_identical ? 0 : 2e-4);
    if (!ok) printf("FAIL graph %llu on %s\n", (unsigned long long)seed, p->devices);
    free(single_outcome.numbers);
    free(several_outcome.numbers);
    tu_graph_free(single.graph);
    tu_graph_free(several.graph);
    return ok;
}

int main(int argc, char **argv) {
    return add_limited_cpu() ? check_graphs(argc, argv, check_graph) : 1;
}
