/* Compares training on several processes with training on one. Started by mpirun:
 *
 *     mpirun -n 2 train_on_ranks            small networks, a few steps
 *     mpirun -n 4 train_on_ranks long       tutorial-cnn and resnet20 in their full size on `ref`, 50 steps
 *
 * Every process trains with the group; then rank 0 trains alone, on the devices of all of them (long: on one), and
 * compares variables and results. It uses the public interface only, as a program of a user would. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

enum { MAX_STEPS = 64, SEED = 11, SMALL_BATCH = 1 };

typedef struct training {
    const char *name, *network, *strategy;
    const char *kind; /* of the devices: "cpu" or "ref" */
    tu_dtype dtype;
    int batch, steps;
    int base;             /* width of the network; 0: its default */
    int devices_per_rank; /* 0: rank 0 has one, the others two or three */
    bool alone_on_one;    /* rank 0 alone uses one device, instead of as many as all of them */
    int invariant;
    bool bf16_gradients;
    const char *optimizer;  /* NULL: momentum */
    bool different_threads; /* odd ranks have two threads, the others one */
    int small_batch_every;  /* every so many steps, a batch that rank 0 computes alone; 0: never */
    const char *central;    /* of rank 0 */
    double tolerance;       /* of variables and losses */
} training;

typedef struct outcome {
    double loss[MAX_STEPS], other[MAX_STEPS]; /* of each step: the loss, and a value that a variable gets */
    int64_t correct[MAX_STEPS];
    double *variables; /* all variables of the state, one after another */
    size_t count;
} outcome;

static tu_process_group *group;
static tu_process_info own = TU_SIZED(tu_process_info);
static int failures;

/* Ends this process; the others then fail. */
static void must(tu_status status, const char *what) {
    if (status == TU_OK) return;
    fprintf(stderr, "train_on_ranks: rank %u: %s: %s\n", own.rank, what, tu_message());
    exit(1);
}

/* ---- Devices ---- */

static int device_count(const training *t, uint32_t rank) {
    return t->devices_per_rank ? t->devices_per_rank : rank ? 2 + (int)rank % 2 : 1;
}

static int all_devices(const training *t) {
    int count = 0;
    for (uint32_t r = 0; r < own.size; r++) count += device_count(t, r);
    return count;
}

/* Lists the logical devices of ranks `first` to `end` - 1. */
static const char *list_devices(const training *t, uint32_t first, uint32_t end, char *list, size_t size) {
    int index = 0, all = all_devices(t);
    size_t length = 0;
    *list = 0;
    for (uint32_t r = 0; r < end; r++)
        for (int i = 0; i < device_count(t, r); i++, index++)
            if (r >= first)
                length += (size_t)snprintf(list + length, size - length, "%s%s:0.%d/%d", length ? "," : "",
                                           t->kind, index, all);
    return list;
}

/* ---- The network ---- */

typedef struct step { /* a training step, as a graph and a program */
    tu_graph *graph;
    tu_value images, labels, fetch[3];
    tu_program *program;
    int batch;
} step;

static tu_shape image_shape(const training *t, int batch) {
    bool is_mlp = strcmp(t->network, "mlp") == 0;
    int64_t side = !t->base ? 32 : strcmp(t->network, "tutorial-cnn") == 0 ? 12 : 8;
    return TU_SHAPE(batch, side, side, is_mlp ? 1 : 3);
}

/* With random numbers per sample, batch-norm (resnet20), momentum, clipping, and a variable that is not trained. */
static void build(const training *t, int batch, step *s) {
    s->batch = batch;
    must(tu_graph_new(&s->graph), "graph");
    s->images = tu_batch_input(s->graph, "images", t->dtype, image_shape(t, batch));
    s->labels = tu_batch_input(s->graph, "labels", TU_I32, TU_SHAPE(batch));
    tu_value logits, x = tu_random_brightness(tu_random_flip(s->images), 0.1);
    must(tu_network_logits(x, t->network, &logits, .classes = 10, .base = t->base), "network");
    tu_value loss = tu_mean(tu_cross_entropy(tu_dropout(logits, 0.1), s->labels, .smoothing = 0.1));
    tu_optimizer_values values = TU_SIZED(tu_optimizer_values);
    must(tu_add_optimizer(loss, &values, .name = t->optimizer, .constant_rate = 0.05, .weight_decay = 1e-3,
                          .clip_norm = 5),
         "optimizer");
    tu_value total = tu_variable(s->graph, "total_loss", t->dtype, TU_SCALAR, .init = {.kind = TU_INIT_ZEROS},
                                 .frozen = true);
    s->fetch[0] = loss;
    s->fetch[1] = tu_sum(tu_cast(tu_equal(tu_cast(tu_argmax(logits, -1), TU_I32), s->labels), TU_I64));
    s->fetch[2] = tu_assign(total, tu_add(total, loss));
    must(tu_graph_status(s->graph), "graph");
}

static void compile(const training *t, const char *devices, bool alone, step *s) {
    tu_compile_options o = TU_SIZED(tu_compile_options);
    o.devices = devices;
    o.strategy = t->strategy;
    o.invariant = t->invariant;
    o.bf16_gradients = t->bf16_gradients;
    o.threads = t->different_threads && !alone ? 1 + (int)own.rank % 2 : 1;
    o.fetch = s->fetch;
    o.fetch_count = 3;
    o.updates = true;
    o.group = alone ? NULL : group;
    if (strcmp(t->strategy, "central") == 0) o.central = t->central;
    must(tu_compile_with(s->graph, &s->program, &o), t->name);
}

/* On rank 0's first device. */
static void compile_small(const training *t, step *s) {
    char device[64];
    snprintf(device, sizeof device, "%s:0.0/%d", t->kind, all_devices(t));
    must(tu_compile(s->graph, &s->program, .devices = device, .invariant = t->invariant ? 1 : 0, .threads = 1,
                    .fetch = s->fetch, .fetch_count = 3, .updates = true),
         t->name);
}

/* ---- Training ---- */

static void fill_batch(const training *t, int number, const step *s, unsigned char *images, int32_t *labels) {
    uint64_t random = (uint64_t)number + 1;
    int64_t count = tu_shape_elements(tu_value_shape(s->images));
    for (int64_t i = 0; i < count; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double wide = (double)(random >> 11) * 0x1p-53;
        float narrow = (float)wide;
        if (t->dtype == TU_F64)
            memcpy(images + 8 * i, &wide, 8);
        else
            memcpy(images + 4 * i, &narrow, 4);
    }
    for (int i = 0; i < s->batch; i++) labels[i] = (number * 3 + i * i) % 10;
}

static double number(tu_dtype dtype, const void *value) {
    double wide;
    float narrow;
    memcpy(&wide, value, dtype == TU_F64 ? 8 : 4);
    memcpy(&narrow, value, 4);
    return dtype == TU_F64 ? wide : (double)narrow;
}

static void run_step(const training *t, int index, const step *s, tu_state *state, outcome *result) {
    unsigned char *images = calloc((size_t)tu_shape_elements(tu_value_shape(s->images)), 8);
    int32_t *labels = calloc((size_t)s->batch, sizeof *labels);
    unsigned char loss[8] = {0}, other[8] = {0};
    fill_batch(t, index, s, images, labels);
    if (s->program)
        must(tu_run(s->program, state, 2, (tu_feed[]){{s->images, images}, {s->labels, labels}},
                    (void *[]){loss, &result->correct[index], other}),
             t->name);
    else /* rank 0 computes it: its samples count here, too */
        tu_state_set_sample(state, tu_state_sample(state) + s->batch);
    result->loss[index] = number(t->dtype, loss);
    result->other[index] = number(t->dtype, other);
    free(images);
    free(labels);
}

static void read_variables(tu_state *state, outcome *result) {
    for (size_t i = 0; i < tu_state_variable_count(state); i++) {
        const char *name;
        tu_type type;
        must(tu_state_variable(state, i, &name, &type), "variables");
        size_t count = (size_t)tu_shape_elements(type.shape), bytes = tu_type_bytes(type),
               size = bytes / count;
        unsigned char *data = calloc(count + 1, 8);
        result->variables = realloc(result->variables, (result->count + count) * sizeof *result->variables);
        must(tu_state_get(state, name, data, bytes), "variables");
        for (size_t k = 0; k < count; k++)
            result->variables[result->count++] = size == 1 ? data[k] : number(type.dtype, data + k * size);
        free(data);
    }
}

/* Trains with the other processes or alone. With strategy central, only rank 0 needs variables. */
static void train(const training *t, bool alone, outcome *result) {
    char devices[2048];
    uint32_t rank = alone ? 0 : own.rank, end = alone ? own.size : own.rank + 1;
    step full = {0}, small = {0};
    tu_state *state;
    tu_graph *nothing;
    *result = (outcome){{0}, {0}, {0}, NULL, 0};
    if (alone && t->alone_on_one)
        snprintf(devices, sizeof devices, "%s:0", t->kind);
    else
        list_devices(t, rank, end, devices, sizeof devices);
    bool is_small = t->small_batch_every > 0,
         has_variables = rank == 0 || strcmp(t->strategy, "central") != 0;
    build(t, t->batch, &full);
    compile(t, devices, alone, &full);
    if (is_small) {
        build(t, SMALL_BATCH, &small);
        if (rank == 0) compile_small(t, &small);
    }
    must(tu_graph_new(&nothing), "graph");
    must(tu_state_new(has_variables ? full.graph : nothing, &state, .seed = SEED), "state");
    for (int i = 0; i < t->steps; i++)
        run_step(t, i, is_small && i % t->small_batch_every == t->small_batch_every - 1 ? &small : &full,
                 state, result);
    read_variables(state, result);
    tu_program_free(full.program);
    tu_program_free(small.program);
    tu_state_free(state);
    tu_graph_free(full.graph);
    if (is_small) tu_graph_free(small.graph);
    tu_graph_free(nothing);
}

/* ---- Comparing ---- */

static double largest_difference(const training *t, const outcome *a, const outcome *b) {
    double largest = a->count == b->count && a->count ? 0 : INFINITY;
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        double difference = fabs(a->variables[i] - b->variables[i]);
        if (!(difference <= largest)) largest = difference;
    }
    for (int i = 0; i < t->steps; i++) {
        largest = fmax(largest, fabs(a->loss[i] - b->loss[i]));
        largest = fmax(largest, fabs(a->other[i] - b->other[i]));
        if (a->correct[i] != b->correct[i]) largest = INFINITY;
    }
    return largest;
}

/* A checksum (FNV-1a) of all variables. */
static uint64_t sum_variables(const outcome *result) {
    const unsigned char *bytes = (const unsigned char *)result->variables;
    uint64_t sum = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < result->count * sizeof *result->variables; i++)
        sum = (sum ^ bytes[i]) * UINT64_C(1099511628211);
    return sum;
}

/* Mirrored replicas must have the same bits in their variables. */
static void compare_variables(const training *t, const outcome *mine) {
    uint64_t *all = calloc(own.size, sizeof *all), sum = sum_variables(mine);
    must(tu_process_group_gather(group, &sum, sizeof sum, all), "gather");
    for (uint32_t r = 1; r < own.size && own.rank == 0; r++)
        if (all[r] != all[0]) {
            printf("FAILED  %s, %s: the variables of ranks 0 and %u differ\n", t->name, t->strategy, r);
            failures++;
        }
    free(all);
}

/* All processes must have fetched the same bits, unless rank 0 has computed some batches alone. */
static void compare_with_other_ranks(const training *t, const outcome *mine) {
    outcome *all = calloc(own.size, sizeof *all);
    if (strcmp(t->strategy, "mirrored") == 0) compare_variables(t, mine);
    must(tu_process_group_gather(group, mine, sizeof *mine, all), "gather");
    for (uint32_t r = 1; r < own.size && own.rank == 0 && !t->small_batch_every; r++)
        if (memcmp(all[r].loss, all[0].loss, sizeof all[0].loss) != 0 ||
            memcmp(all[r].other, all[0].other, sizeof all[0].other) != 0 ||
            memcmp(all[r].correct, all[0].correct, sizeof all[0].correct) != 0) {
            printf("FAILED  %s, %s: ranks 0 and %u have fetched different values\n", t->name, t->strategy, r);
            failures++;
        }
    free(all);
}

static void check(const training *t) {
    outcome together, alone;
    train(t, false, &together);
    compare_with_other_ranks(t, &together);
    if (own.rank == 0) {
        train(t, true, &alone);
        double difference = largest_difference(t, &together, &alone);
        bool learned = together.loss[0] != together.loss[t->steps - 1];
        bool ok = difference <= t->tolerance && learned;
        printf("%s  %s, %s, %u ranks, %d devices: %.1e from one process after %d steps, at most %g\n",
               ok ? "ok    " : "FAILED", t->name, t->strategy, own.size, all_devices(t), difference, t->steps,
               t->tolerance);
        failures += !ok;
        free(alone.variables);
    }
    free(together.variables);
}

static void check_both_strategies(training t) {
    t.strategy = "mirrored";
    if (!t.small_batch_every) check(&t); /* mirrored replicas would not all be updated */
    t.strategy = "central";
    check(&t);
}

/* ---- Tests ---- */

/* Sums are added in the same order, so all bits are equal, if every process has the same power of two of devices. */
static void check_quickly(void) {
    const training plain = {.name = "mlp",
                            .network = "mlp",
                            .kind = "cpu",
                            .dtype = TU_F32,
                            .batch = 16,
                            .steps = 6,
                            .base = 4,
                            .devices_per_rank = 1};
    training t = plain;
    check_both_strategies(t);
    t.name = "resnet20, 2 devices each", t.network = "resnet20", t.devices_per_rank = 2, t.steps = 4;
    check_both_strategies(t);
    t.name = "resnet20, invariant", t.invariant = 8;
    check_both_strategies(t);
    t = plain;
    t.name = "mlp, some batches on one device", t.small_batch_every = 3;
    check_both_strategies(t);
    t.invariant = 8, t.name = "mlp, invariant, some batches on one device";
    check_both_strategies(t);
    t = plain;
    t.name = "resnet20, uneven shards", t.network = "resnet20", t.batch = 19, t.steps = 4;
    check_both_strategies(t);
    t.name = "resnet20, different numbers of devices", t.kind = "ref", t.dtype = TU_F64,
    t.devices_per_rank = 0;
    t.tolerance = 1e-11;
    check_both_strategies(t);
    t.name = "tutorial-cnn, a device for the variables alone", t.network = "tutorial-cnn",
    t.central = "cpu:0";
    check_both_strategies(t);
    /* Norms of large tensors, which the threads of a device divide. */
    t = plain;
    t.name = "mlp, lars, different numbers of threads", t.optimizer = "lars", t.different_threads = true,
    t.base = 512;
    check_both_strategies(t);
    t = plain;
    t.name = "mlp, gradients in bf16", t.bf16_gradients = true, t.base = 64, t.tolerance = 2e-2;
    check_both_strategies(t);
}

static void check_whole_networks(void) {
    training t = {.kind = "ref",
                  .dtype = TU_F64,
                  .batch = 10,
                  .steps = 50,
                  .devices_per_rank = 1,
                  .alone_on_one = true,
                  .tolerance = 1e-9};
    static const char *const networks[] = {"tutorial-cnn", "resnet20"};
    for (int i = 0; i < 2; i++) {
        t.name = t.network = networks[i];
        check_both_strategies(t);
    }
}

int main(int argc, char **argv) {
    bool is_long = argc > 1 && strcmp(argv[1], "long") == 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* Rank 0 trains alone while the others wait for the next collective. */
    must(tu_process_group_open(&group, .timeout = 1000), "process group");
    must(tu_process_group_describe(group, &own), "process group");
    if (is_long)
        check_whole_networks();
    else
        check_quickly();
    must(tu_process_group_broadcast(group, 0, &failures, sizeof failures), "broadcast");
    tu_process_group_close(group);
    return failures ? 1 : 0;
}
