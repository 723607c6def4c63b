/* Random graphs on random placements: the same results as on one device.
 *
 * Each graph is built twice from one seed: once for a single device, once with every node put on a random one of
 * several, some left to the engine, some colocated, some made to wait for others that they do not read. Devices of one
 * kind and width must agree in every bit; the reference among them gives another rounding, and then a tolerance holds. The
 * devices "shy" are the CPU's, but do not take some operations, which then must go elsewhere. On null devices the program is
 * planned and run for its order alone. */
#include "ops/random_graph.h"

#include "device/device.h"

enum { MAX_VALUES = 256, ROWS = 6, COLUMNS = 8, MAX_FETCHES = 12 };

typedef struct maker {
    tu_graph *graph;
    uint64_t random;
    tu_value values[MAX_VALUES]; /* all f32 [ROWS, COLUMNS] */
    int count;
    tu_value fetches[MAX_FETCHES];
    int fetch_count;
} maker;

static tu_value any(maker *m) {
    return pick_value(&m->random, m->values, m->count);
}

static void push(maker *m, tu_value value) {
    if (m->count < MAX_VALUES) m->values[m->count++] = value;
}

static tu_value weights(maker *m, const char *name, tu_shape shape) {
    return tu_variable(m->graph, name, TU_F32, shape, .init = {.kind = TU_INIT_UNIFORM, .a = -0.4, .b = 0.4});
}

/* One more operation over values there are; results stay around one in size. */
static void grow(maker *m, int index) {
    char name[32];
    snprintf(name, sizeof name, "w%d", index);
    tu_value x = any(m), y = any(m);
    switch (draw(&m->random, 14)) {
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
    /* Continuous where the two meet: devices of two kinds may decide a close call differently. */
    default: push(m, tu_select(tu_greater(x, y), x, tu_add(tu_scale(x, 0.5), tu_scale(y, 0.5)))); break;
    }
}

static void fetch(maker *m, tu_value value) {
    if (m->fetch_count < MAX_FETCHES) m->fetches[m->fetch_count++] = value;
}

/* Operations, then gradients of a loss by some variables, and updates of these. */
static bool make_graph(maker *m, uint64_t seed) {
    m->random = seed;
    if (tu_graph_new(&m->graph) != TU_OK) return false;
    push(m, tu_batch_input(m->graph, "a", TU_F32, TU_SHAPE(ROWS, COLUMNS)));
    push(m, tu_input(m->graph, "b", TU_F32, TU_SHAPE(ROWS, COLUMNS)));
    int operations = 3 + (int)draw(&m->random, 30);
    for (int i = 0; i < operations; i++) grow(m, i);
    for (int i = 0; i < 3; i++) fetch(m, any(m));
    tu_value variables[64], gradients[64];
    size_t count = tu_trainable(m->graph, 64, variables);
    if (count > 64) count = 64;
    tu_value loss = tu_mean(tu_square(tu_add(any(m), any(m))));
    fetch(m, loss);
    if (draw(&m->random, 4) && count) {
        tu_gradients(loss, count, variables, gradients);
        for (size_t i = 0; i < count; i++) {
            if (draw(&m->random, 2)) fetch(m, gradients[i]);
            tu_assign(variables[i], tu_sub(variables[i], tu_scale(gradients[i], 0.5)));
        }
    }
    return tu_graph_status(m->graph) == TU_OK;
}

static bool run(maker *m, const char *devices, outcome *o) {
    float a[ROWS * COLUMNS], b[ROWS * COLUMNS];
    uint64_t random = 77;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        a[i] = (float)draw(&random, 1000) / 500 - 1;
        b[i] = (float)draw(&random, 1000) / 500 - 1;
    }
    const tu_feed feeds[] = {{m->values[0], a}, {m->values[1], b}};
    const tu_compile_options how = {
        .devices = devices, .fetch = m->fetches, .fetch_count = (size_t)m->fetch_count};
    return run_graph(m->graph, &how, 2, feeds, o);
}

/* ---- Placements ---- */

typedef struct placement {
    const char *list;
    int count;
    const char *names[5];
    const char *alone; /* the one device to compare with */
    bool bits, computes;
} placement;

static const placement placements[] = {
    {"cpu:0/2", 2, {"cpu:0.0", "cpu:0.1"}, "cpu:0", true, true},
    {"cpu:0/3", 3, {"cpu:0.0", "cpu:0.1", "cpu:0.2"}, "cpu:0", true, true},
    {"cpu:0/5", 5, {"cpu:0.0", "cpu:0.1", "cpu:0.2", "cpu:0.3", "cpu:0.4"}, "cpu:0", true, true},
    {"ref,cpu:0/2", 3, {"ref:0", "cpu:0.0", "cpu:0.1"}, "ref", false, true},
    {"ref,cpu:0/3", 4, {"ref:0", "cpu:0.0", "cpu:0.1", "cpu:0.2"}, "ref", false, true},
    {"null:0-3", 4, {"null:0", "null:1", "null:2", "null:3"}, NULL, false, false},
    {"shy:0/2,cpu:0", 3, {"shy:0.0", "shy:0.1", "cpu:0"}, "cpu:0", true, true},
    {"cpu:0.0/2,shy:0.1/2", 2, {"cpu:0.0", "shy:0.1"}, "cpu:0", true, true},
    {"gpu:0/2,cpu:0", 3, {"gpu:0.0", "gpu:0.1", "cpu:0"}, "cpu:0", false, true},
    {"cpu:0/2,gpu:0", 3, {"cpu:0.0", "cpu:0.1", "gpu:0"}, "cpu:0", false, true},
};
enum { PLACEMENTS = sizeof placements / sizeof *placements };

static const placement *pick(uint64_t seed) {
    for (size_t i = seed % PLACEMENTS;; i = (i + 1) % PLACEMENTS)
        if (is_for_this_run(placements[i].list)) return &placements[i];
}

/* Some values wait for earlier ones, and some are put together. */
static void bind(maker *m, uint64_t *random) {
    uint32_t nodes = m->graph->node_count;
    for (uint64_t i = draw(random, 6); i > 0; i--) {
        tu_value a = tu__value(m->graph, (uint32_t)draw(random, nodes), 0);
        tu_value b = tu__value(m->graph, (uint32_t)draw(random, nodes), 0);
        const tu__node *late = tu__node_of(a.node > b.node ? a : b),
                       *early = tu__node_of(a.node > b.node ? b : a);
        if (a.node != b.node && tu__node_is_computed(late) && early->op->code != TU__OP_ASSIGN)
            tu_after(a.node > b.node ? a : b, a.node > b.node ? b : a);
        if (draw(random, 2) && late->op->code != TU__OP_ASSIGN && early->op->code != TU__OP_ASSIGN)
            tu_colocate(a, b);
    }
}

/* A device for most nodes, the same for all of a group. */
static void scatter(maker *m, const placement *p, uint64_t seed) {
    uint64_t random = seed ^ 0x5bd1e995;
    bind(m, &random);
    for (uint32_t i = 0; i < m->graph->node_count; i++) {
        tu__node *node = m->graph->nodes[i];
        uint64_t at = draw(&random, (uint64_t)p->count + 1); /* one too many: left to the engine */
        if (node->group) at = node->group % (uint64_t)p->count;
        node->device = at < (uint64_t)p->count ? p->names[at] : NULL;
    }
}

/* ---- Devices that do not take everything ---- */

static tu_status shy_supports(tu_device_instance *device, const tu_graph *graph, uint32_t node) {
    (void)device;
    static const char *const refused[] = {"softmax", "matmul", "random", "concat", "tanh"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strcmp(tu_node_operation(graph, node), refused[i]) == 0)
            return tu_fail(TU_UNSUPPORTED, "it is shy of %s", refused[i]);
    return TU_OK;
}

static bool add_shy_device(void) {
    static tu_device_api shy;
    shy = tu__cpu_api;
    shy.kind = "shy";
    shy.supports = shy_supports;
    return tu__device_kind_add(&shy) == TU_OK;
}

static bool check_graph(uint64_t seed) {
    const placement *p = pick(seed);
    maker one = {0}, many = {0};
    outcome alone = {0}, together = {0};
    bool good = make_graph(&one, seed) && make_graph(&many, seed);
    if (!good) printf("     %s\n", tu_message());
    if (good) scatter(&many, p, seed);
    good = good && run(&many, p->list, &together);
    if (good && p->computes)
        good = run(&one, p->alone, &alone) &&
               same_outcome(one.fetches, (size_t)one.fetch_count, &alone, &together, p->bits ? 0 : 2e-4);
    if (!good) printf("FAIL graph %llu on %s\n", (unsigned long long)seed, p->list);
    free(alone.numbers);
    free(together.numbers);
    tu_graph_free(one.graph);
    tu_graph_free(many.graph);
    return good;
}

int main(int argc, char **argv) {
    return add_shy_device() ? check_graphs(argc, argv, check_graph) : 1;
}
