/* Training steps: a non-finite step leaves the state bit-identical, including running statistics; accumulated
 * micro-batches give the update of the full batch; all parameters are updated in place by one kernel; half precision
 * keeps f32 weights. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "run/program.h"

typedef struct net {
    tu_graph *graph;
    tu_value images, labels, loss, finite;
} net;

enum { BATCH = 4, SIDE = 6, PIXELS = BATCH * SIDE * SIDE * 2 };

/* Builds a convolution, a normalisation if `normalized`, and a dense layer. */
static net build_net(tu_dtype dtype, int64_t batch, bool normalized) {
    net n;
    assert_int_equal(tu_graph_new(&n.graph), TU_OK);
    n.images = tu_batch_input(n.graph, "images", dtype, TU_SHAPE(batch, SIDE, SIDE, 2));
    n.labels = tu_batch_input(n.graph, "labels", TU_I32, TU_SHAPE(batch));
    tu_value x = tu_conv2d(n.images, .filters = 4, .size = 3, .name = "conv");
    if (normalized) x = tu_batch_norm(x, .act = TU_RELU, .name = "norm");
    n.loss = tu_mean(tu_cross_entropy(tu_dense(tu_flatten(x), .units = 3, .name = "logits"), n.labels));
    return n;
}

static const char *const all_rules[] = {"sgd", "momentum", "nesterov", "rmsprop", "adam", "adamw", "lars"};
enum { RULES = sizeof all_rules / sizeof *all_rules };

static void fill_randomly(float *images) {
    for (int i = 0; i < PIXELS; i++) images[i] = (float)sin(i * 0.7) + (float)cos(i * 0.3);
}

static const int32_t labels[BATCH] = {0, 2, 1, 0};

/* Returns the bytes of all variables; the caller frees them. */
static unsigned char *snapshot(const tu_state *state, size_t *size) {
    unsigned char *bytes = malloc(2 << 20);
    assert_non_null(bytes);
    *size = 0;
    for (size_t i = 0; i < tu_state_variable_count(state); i++) {
        const char *name;
        tu_type type;
        assert_int_equal(tu_state_variable(state, i, &name, &type), TU_OK);
        assert_int_equal(tu_state_get(state, name, bytes + *size, tu_type_bytes(type)), TU_OK);
        *size += tu_type_bytes(type);
    }
    return bytes;
}

/* ---- The guard ---- */

static void assert_non_finite_step_changes_nothing(const char *devices, float poison, bool average) {
    net n = build_net(TU_F32, BATCH, true);
    tu_optimizer_values values = TU_SIZED(tu_optimizer_values);
    assert_int_equal(tu_add_optimizer(n.loss, &values, .name = "adam", .constant_rate = 0.01, .clip_norm = 1,
                                      .average = average ? 0.9 : 0),
                     TU_OK);
    assert_int_equal(tu_graph_verify(n.graph), TU_OK);
    tu_value fetch[] = {n.loss, values.finite};
    tu_program *program;
    tu_state *state;
    if (tu_compile(n.graph, &program, .devices = devices, .threads = 1, .fetch = fetch, .fetch_count = 2,
                   .updates = true) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(n.graph, &state, .seed = 1), TU_OK);
    static float images[PIXELS];
    fill_randomly(images);
    tu_feed feeds[] = {{n.images, images}, {n.labels, labels}};
    float loss, mean[4];
    bool finite;
    for (int i = 0; i < 2; i++)
        assert_int_equal(tu_run(program, state, 2, feeds, (void *[]){&loss, &finite}), TU_OK);
    assert_true(finite && isfinite(loss));
    assert_int_equal(tu_state_get(state, "norm/moving_mean", mean, sizeof mean), TU_OK);
    assert_true(mean[0] != 0); /* good steps change it */

    size_t before_size, after_size;
    unsigned char *before = snapshot(state, &before_size);
    images[17] = poison;
    assert_int_equal(tu_run(program, state, 2, feeds, (void *[]){&loss, &finite}), TU_OK);
    assert_false(finite);
    unsigned char *after = snapshot(state, &after_size);
    assert_int_equal(before_size, after_size);
    assert_memory_equal(before, after, before_size);

    fill_randomly(images);
    int64_t step;
    assert_int_equal(tu_run(program, state, 2, feeds, (void *[]){&loss, &finite}), TU_OK);
    assert_int_equal(tu_state_get(state, "step", &step, sizeof step), TU_OK);
    assert_true(finite && step == 3);
    free(before);
    free(after);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(n.graph);
}

static void a_non_finite_step_changes_nothing(void **state) {
    (void)state;
    assert_non_finite_step_changes_nothing("ref", INFINITY, true);
    assert_non_finite_step_changes_nothing("cpu", INFINITY, true);
    assert_non_finite_step_changes_nothing("cpu", NAN, false);
}

/* ---- stop_at_nonfinite and loss_scale ---- */

typedef struct guarded {
    net n;
    tu_program *program;
    tu_state *state;
    float images[PIXELS];
} guarded;

static void start_guarded(guarded *g, const char *precision, bool stop_at_nonfinite, double loss_scale) {
    tu_optimizer_values values = TU_SIZED(tu_optimizer_values);
    g->n = build_net(TU_F32, BATCH, true);
    assert_int_equal(tu_add_optimizer(g->n.loss, &values, .constant_rate = 0.01, .clip_norm = 1,
                                      .average = 0.9, .stop_at_nonfinite = stop_at_nonfinite,
                                      .loss_scale = loss_scale),
                     TU_OK);
    assert_int_equal(tu_graph_verify(g->n.graph), TU_OK);
    tu_value fetch[] = {g->n.loss, values.finite, values.gradient_norm};
    if (tu_compile(g->n.graph, &g->program, .devices = "cpu", .threads = 1, .precision = precision,
                   .fetch = fetch, .fetch_count = 3, .updates = true) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(g->n.graph, &g->state, .seed = 1), TU_OK);
    fill_randomly(g->images);
}

static void free_guarded(guarded *g) {
    tu_program_free(g->program);
    tu_state_free(g->state);
    tu_graph_free(g->n.graph);
}

/* Runs one step, with an infinite pixel if `poisoned`. Returns the value `finite` of the step. */
static bool step_guarded(guarded *g, bool poisoned) {
    float loss, norm, pixel = g->images[17];
    bool finite;
    if (poisoned) g->images[17] = INFINITY;
    tu_feed feeds[] = {{g->n.images, g->images}, {g->n.labels, labels}};
    assert_int_equal(tu_run(g->program, g->state, 2, feeds, (void *[]){&loss, &finite, &norm}), TU_OK);
    g->images[17] = pixel;
    return finite;
}

static void set_healthy(tu_state *state, bool healthy) {
    assert_int_equal(tu_state_set(state, "optimizer/healthy", &healthy, sizeof healthy), TU_OK);
}

static void with_stop_at_nonfinite_nothing_changes_after_a_non_finite_step(void **unused) {
    (void)unused;
    guarded g;
    size_t size;
    start_guarded(&g, NULL, true, 0);
    assert_true(step_guarded(&g, false) && step_guarded(&g, false));
    set_healthy(g.state, false);
    unsigned char *before = snapshot(g.state, &size);
    set_healthy(g.state, true);
    assert_false(step_guarded(&g, true));
    for (int i = 0; i < 3; i++) assert_false(step_guarded(&g, false));
    unsigned char *after = snapshot(g.state, &size);
    assert_memory_equal(before, after, size);
    free(before);
    free(after);
    int64_t step;
    set_healthy(g.state, true);
    assert_true(step_guarded(&g, false));
    assert_int_equal(tu_state_get(g.state, "step", &step, sizeof step), TU_OK);
    assert_int_equal(step, 3);
    free_guarded(&g);
}

/* In-place updates are required for multi-step calls. */
static void every_update_of_a_guarded_step_is_in_place(void **unused) {
    (void)unused;
    static const char *const precisions[] = {"f32", "bf16", "f16"};
    for (int i = 0; i < 3; i++) {
        guarded g;
        start_guarded(&g, precisions[i], true, i == 2 ? 65536 : 0);
        const tu__partition *part = &g.program->partitions[0];
        for (uint32_t k = 0; k < part->update_count; k++)
            if (!part->updates[k].in_place)
                fail_msg("%s: '%s' is not", precisions[i],
                         g.program->unit.graph->nodes[part->updates[k].variable]->name);
        free_guarded(&g);
    }
}

/* A scale that is a power of two changes only exponents. */
static void f32_results_with_a_loss_scale_are_bit_identical(void **unused) {
    (void)unused;
    guarded plain, scaled;
    start_guarded(&plain, NULL, false, 0);
    start_guarded(&scaled, NULL, false, 1024);
    for (int i = 0; i < 3; i++) assert_true(step_guarded(&plain, false) && step_guarded(&scaled, false));
    for (size_t i = 0; i < tu_state_variable_count(plain.state); i++) {
        const char *name;
        tu_type type;
        assert_int_equal(tu_state_variable(plain.state, i, &name, &type), TU_OK);
        size_t bytes = tu_type_bytes(type);
        void *a = test_malloc(bytes), *b = test_malloc(bytes);
        assert_int_equal(tu_state_get(plain.state, name, a, bytes), TU_OK);
        assert_int_equal(tu_state_get(scaled.state, name, b, bytes), TU_OK);
        if (memcmp(a, b, bytes) != 0) fail_msg("'%s' differs", name);
        test_free(a);
        test_free(b);
    }
    free_guarded(&plain);
    free_guarded(&scaled);
}

static float scale_of(const guarded *g) {
    float scale;
    assert_int_equal(tu_state_get(g->state, "optimizer/loss_scale", &scale, sizeof scale), TU_OK);
    return scale;
}

static void a_loss_scale_is_halved_by_non_finite_steps_and_doubled_by_finite_ones(void **unused) {
    (void)unused;
    guarded g;
    int64_t step;
    float good_steps = 2000;
    start_guarded(&g, "f16", true, 4);
    assert_true(step_guarded(&g, false));
    assert_true(scale_of(&g) == 4);
    assert_true(step_guarded(&g, true)); /* skipped, but not a bad step */
    assert_int_equal(tu_state_get(g.state, "step", &step, sizeof step), TU_OK);
    assert_int_equal(step, 1);
    assert_true(scale_of(&g) == 2);
    assert_int_equal(tu_state_set(g.state, "optimizer/good_steps", &good_steps, sizeof good_steps), TU_OK);
    assert_true(step_guarded(&g, false));
    assert_true(scale_of(&g) == 4);
    assert_int_equal(tu_state_get(g.state, "optimizer/good_steps", &good_steps, sizeof good_steps), TU_OK);
    assert_true(good_steps == 1);
    assert_true(step_guarded(&g, true) && step_guarded(&g, true));
    assert_true(scale_of(&g) == 1);
    assert_false(step_guarded(&g, true)); /* at a scale of 1 it is a bad step */
    assert_false(step_guarded(&g, false));
    assert_true(scale_of(&g) == 1);
    assert_int_equal(tu_state_get(g.state, "step", &step, sizeof step), TU_OK);
    assert_int_equal(step, 2);
    free_guarded(&g);
}

static void contradictory_guard_options_are_rejected(void **unused) {
    (void)unused;
    net n = build_net(TU_F32, BATCH, false);
    assert_int_equal(tu_add_optimizer(n.loss, NULL, .constant_rate = 1, .loss_scale = 0.5), TU_INVALID);
    assert_int_equal(tu_add_optimizer(n.loss, NULL, .constant_rate = 1, .loss_scale = 8, .unguarded = true),
                     TU_INVALID);
    assert_int_equal(
        tu_add_optimizer(n.loss, NULL, .constant_rate = 1, .stop_at_nonfinite = true, .unguarded = true),
        TU_INVALID);
    tu_graph_free(n.graph);
}

/* Freezing a layer by name also freezes its running statistics; other layers are trained. */
static void frozen_layers_keep_their_statistics(void **state) {
    (void)state;
    net n = build_net(TU_F32, BATCH, true);
    tu_program *program;
    tu_state *weights;
    static float images[PIXELS];
    fill_randomly(images);
    assert_int_equal(
        tu_add_optimizer(n.loss, NULL, .constant_rate = 0.1, .freeze = "norm/*", .unguarded = true), TU_OK);
    assert_int_equal(tu_graph_verify(n.graph), TU_OK);
    assert_int_equal(tu_compile(n.graph, &program, .updates = true), TU_OK);
    assert_int_equal(tu_state_new(n.graph, &weights, .seed = 1), TU_OK);
    tu_feed feeds[] = {{n.images, images}, {n.labels, labels}};
    assert_int_equal(tu_run(program, weights, 2, feeds, NULL), TU_OK);
    static const char *const kept[] = {"norm/gamma", "norm/beta", "norm/moving_mean", "norm/moving_variance"};
    for (int i = 0; i < 4; i++) {
        float now[4];
        assert_int_equal(tu_state_get(weights, kept[i], now, sizeof now), TU_OK);
        for (int c = 0; c < 4; c++) assert_true(now[c] == (i == 0 || i == 3 ? 1.0f : 0.0f));
    }
    float bias[4];
    assert_int_equal(tu_state_get(weights, "logits/bias", bias, 3 * sizeof *bias), TU_OK);
    assert_true(bias[0] != 0);
    tu_program_free(program);
    tu_state_free(weights);
    tu_graph_free(n.graph);
}

/* ---- Micro-batches ---- */

static const tu_optimizer_options accumulation_options = {.struct_size = sizeof(tu_optimizer_options),
                                                          .name = "adamw",
                                                          .constant_rate = 0.02,
                                                          .weight_decay = 0.1,
                                                          .clip_norm = 0.7,
                                                          .average = 0.9};

static const void *converted(tu_dtype dtype, const float *numbers) {
    static double wide[PIXELS];
    for (int i = 0; i < PIXELS; i++) wide[i] = (double)numbers[i];
    return dtype == TU_F64 ? (const void *)wide : numbers;
}

/* Returns the state after three batches of BATCH samples, each in `micro_batches` micro-batches. */
static tu_state *train_in_micro_batches(tu_dtype dtype, const char *devices, int64_t micro_batches) {
    int64_t batch = BATCH / micro_batches;
    net n = build_net(dtype, batch, false);
    tu_graph *apply = NULL;
    tu_program *gather, *update = NULL;
    tu_state *state;
    if (micro_batches == 1) {
        assert_int_equal(tu_add_optimizer_with(n.loss, NULL, &accumulation_options), TU_OK);
    } else {
        assert_int_equal(tu_add_accumulation(n.loss, 1.0 / (double)micro_batches, NULL, NULL), TU_OK);
        assert_int_equal(tu_graph_new(&apply), TU_OK);
        if (tu_add_apply_with(apply, n.graph, NULL, &accumulation_options) != TU_OK)
            fail_msg("%s", tu_message());
        assert_int_equal(tu_graph_verify(apply), TU_OK);
        assert_int_equal(tu_compile(apply, &update, .devices = devices, .threads = 1, .updates = true),
                         TU_OK);
    }
    assert_int_equal(tu_compile(n.graph, &gather, .devices = devices, .threads = 1, .updates = true), TU_OK);
    assert_int_equal(tu_state_new(n.graph, &state, .seed = 5), TU_OK);
    if (apply) assert_int_equal(tu_state_extend(state, apply), TU_OK);
    static float images[PIXELS];
    fill_randomly(images);
    const char *data = converted(dtype, images);
    size_t piece_bytes = tu_type_bytes(tu_value_type(n.images));
    for (int step = 0; step < 3; step++) {
        for (int64_t i = 0; i < micro_batches; i++) {
            tu_feed feeds[] = {{n.images, data + (size_t)i * piece_bytes}, {n.labels, labels + i * batch}};
            assert_int_equal(tu_run(gather, state, 2, feeds, NULL), TU_OK);
        }
        if (update) assert_int_equal(tu_run(update, state, 0, NULL, NULL), TU_OK);
    }
    tu_program_free(gather);
    tu_program_free(update);
    tu_graph_free(n.graph);
    tu_graph_free(apply);
    return state;
}

static double largest_difference(const tu_state *a, const tu_state *b, tu_dtype dtype, const char *name,
                                 size_t count) {
    static double x[1024], y[1024];
    double largest = 0;
    assert_int_equal(tu_state_get(a, name, x, count * tu_dtype_size(dtype)), TU_OK);
    assert_int_equal(tu_state_get(b, name, y, count * tu_dtype_size(dtype)), TU_OK);
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, dtype == TU_F64 ? fabs(x[i] - y[i])
                                                : fabs((double)((float *)x)[i] - (double)((float *)y)[i]));
    return largest;
}

static void micro_batches_give_the_update_of_the_batch(void **unused) {
    (void)unused;
    static const struct {
        tu_dtype dtype;
        const char *devices;
        double tolerance;
    } runs[] = {{TU_F64, "ref", 1e-12}, {TU_F32, "cpu", 2e-5}};
    static const struct {
        const char *name;
        size_t count;
    } variables[] = {{"conv/weights", 72},
                     {"conv/bias", 4},
                     {"logits/weights", 432},
                     {"logits/bias", 3},
                     {"average/logits/weights", 432},
                     {"optimizer/mean/conv/weights", 72}};
    for (int r = 0; r < 2; r++)
        for (int64_t micro_batches = 2; micro_batches <= 4; micro_batches += 2) {
            tu_state *full_batch = train_in_micro_batches(runs[r].dtype, runs[r].devices, 1);
            tu_state *parts = train_in_micro_batches(runs[r].dtype, runs[r].devices, micro_batches);
            for (size_t v = 0; v < sizeof variables / sizeof *variables; v++) {
                double apart = largest_difference(full_batch, parts, runs[r].dtype, variables[v].name,
                                                  variables[v].count);
                if (apart > runs[r].tolerance)
                    fail_msg("%s with %d micro-batches on %s: difference %g", variables[v].name,
                             (int)micro_batches, runs[r].devices, apart);
            }
            tu_state_free(full_batch);
            tu_state_free(parts);
        }
}

static void a_non_finite_micro_batch_adds_nothing_and_sums_are_cleared(void **unused) {
    (void)unused;
    net n = build_net(TU_F32, BATCH, true);
    tu_graph *apply;
    tu_program *gather, *update;
    tu_state *state;
    static float images[PIXELS], sums[72];
    assert_int_equal(tu_add_accumulation(n.loss, 0.5, "logits/*", &n.finite), TU_OK);
    assert_int_equal(tu_graph_new(&apply), TU_OK);
    assert_int_equal(tu_add_apply(apply, n.graph, NULL, .constant_rate = 0.1, .freeze = "logits/*"), TU_OK);
    assert_int_equal(tu_compile(n.graph, &gather, .fetch = &n.finite, .fetch_count = 1, .updates = true),
                     TU_OK);
    assert_int_equal(tu_compile(apply, &update, .updates = true), TU_OK);
    assert_int_equal(tu_state_new(n.graph, &state, .seed = 5), TU_OK);
    assert_int_equal(tu_state_extend(state, apply), TU_OK);
    assert_int_equal(tu_state_get(state, "gradient/logits/bias", sums, 12), TU_NOT_FOUND);

    fill_randomly(images);
    tu_feed feeds[] = {{n.images, images}, {n.labels, labels}};
    bool finite;
    size_t size;
    assert_int_equal(tu_run(gather, state, 2, feeds, (void *[]){&finite}), TU_OK);
    assert_true(finite);
    unsigned char *before = snapshot(state, &size);
    images[3] = INFINITY;
    assert_int_equal(tu_run(gather, state, 2, feeds, (void *[]){&finite}), TU_OK);
    assert_false(finite);
    unsigned char *after = snapshot(state, &size);
    assert_memory_equal(before, after, size);
    free(before);
    free(after);

    assert_int_equal(tu_state_get(state, "gradient/conv/weights", sums, sizeof sums), TU_OK);
    assert_true(sums[0] != 0);
    assert_int_equal(tu_run(update, state, 0, NULL, NULL), TU_OK);
    assert_int_equal(tu_state_get(state, "gradient/conv/weights", sums, sizeof sums), TU_OK);
    for (int i = 0; i < 72; i++) assert_true(sums[i] == 0);
    tu_program_free(gather);
    tu_program_free(update);
    tu_state_free(state);
    tu_graph_free(n.graph);
    tu_graph_free(apply);
}

static void the_micro_batch_fraction_must_be_positive(void **unused) {
    (void)unused;
    net n = build_net(TU_F32, BATCH, false);
    assert_int_equal(tu_add_accumulation(n.loss, 0, NULL, NULL), TU_INVALID);
    assert_non_null(strstr(
        tu_message(), "accumulation: share is 0, expected the micro-batch's fraction of the batch, above 0"));
    tu_graph_free(n.graph);
}

/* ---- Kernels ---- */

/* One kernel writes all variables, slots and averages. */
static void all_parameters_are_updated_in_one_kernel(void **unused) {
    (void)unused;
    static const char *const names[] = {"sgd", "momentum", "nesterov", "adam", "adamw"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tu_graph *g;
        tu_network_graph model = TU_SIZED(tu_network_graph);
        tu_program *program;
        tu_optimizer_values values = TU_SIZED(tu_optimizer_values);
        assert_int_equal(tu_graph_new(&g), TU_OK);
        assert_int_equal(tu_network_build(g, "tutorial-cnn", &model, .batch = 2, .base = 8), TU_OK);
        assert_int_equal(tu_add_optimizer(model.loss, &values, .name = names[i], .weight_decay = 1e-4,
                                          .clip_norm = 5, .average = 0.99,
                                          .rate = tu_schedule(g, .kind = "cosine", .rate = 0.1, .steps = 9)),
                         TU_OK);
        if (tu_compile(g, &program, .devices = "cpu", .threads = 1, .fetch = &values.gradient_norm,
                       .fetch_count = 1, .updates = true) != TU_OK)
            fail_msg("%s", tu_message());
        tu_kernel_report report = TU_SIZED(tu_kernel_report);
        uint32_t updates = 0;
        for (size_t k = 0;
             k < tu_program_kernel_count(program) && tu_program_kernel(program, k, &report) == TU_OK; k++)
            if (strncmp(report.node, "average/", 8) == 0 && report.node_count > 20) updates++;
        assert_int_equal(updates, 1);
        tu_program_free(program);
        tu_graph_free(g);
    }
}

/* Fetching loss, rate, norm and the finite flag must not add copies of the variables: all are updated in place. */
static void updates_are_in_place_for_any_fetches(void **unused) {
    (void)unused;
    for (size_t i = 0; i < RULES; i++) {
        net n = build_net(TU_F32, BATCH, true);
        tu_program *program;
        tu_optimizer_values values = TU_SIZED(tu_optimizer_values);
        assert_int_equal(tu_add_optimizer(n.loss, &values, .name = all_rules[i], .constant_rate = 0.1,
                                          .clip_norm = i % 2 ? 5 : 0, .average = i % 3 ? 0.9 : 0),
                         TU_OK);
        tu_value fetch[] = {n.loss, values.rate, values.gradient_norm, values.finite};
        if (tu_compile(n.graph, &program, .devices = "cpu", .threads = 1, .fetch = fetch, .fetch_count = 4,
                       .updates = true) != TU_OK)
            fail_msg("%s", tu_message());
        const tu__partition *part = &program->partitions[0];
        assert_true(part->update_count > 0);
        for (uint32_t u = 0; u < part->update_count; u++)
            if (!part->updates[u].in_place)
                fail_msg("%s: '%s' is not updated in place", all_rules[i],
                         program->unit.graph->nodes[part->updates[u].variable]->name);
        tu_program_free(program);
        tu_graph_free(n.graph);
    }
}

/* ---- Guarded and unguarded results ---- */

/* Returns the bytes of the state after three steps of a network large enough for several threads. */
static unsigned char *trained_bytes(const char *rule, bool unguarded, double clip, int threads,
                                    size_t *size) {
    enum { SAMPLES = 2 };
    static float pixels[SAMPLES * 784];
    static const int32_t classes[SAMPLES] = {3, 7};
    tu_graph *graph;
    tu_network_graph m = TU_SIZED(tu_network_graph);
    tu_program *program;
    tu_state *state;
    assert_int_equal(tu_graph_new(&graph), TU_OK);
    assert_int_equal(tu_network_build(graph, "mlp", &m, .batch = SAMPLES, .base = 96), TU_OK);
    assert_int_equal(tu_add_optimizer(m.loss, NULL, .name = rule, .constant_rate = 0.01, .clip_norm = clip,
                                      .weight_decay = 1e-3, .unguarded = unguarded),
                     TU_OK);
    if (tu_compile(graph, &program, .devices = "cpu", .threads = threads, .updates = true) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(graph, &state, .seed = 1), TU_OK);
    for (int i = 0; i < SAMPLES * 784; i++) pixels[i] = (float)sin(i * 0.37);
    tu_feed feeds[] = {{m.images, pixels}, {m.labels, classes}};
    for (int i = 0; i < 3; i++) assert_int_equal(tu_run(program, state, 2, feeds, NULL), TU_OK);
    unsigned char *bytes = snapshot(state, size);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(graph);
    return bytes;
}

static void guarded_and_unguarded_steps_are_bit_identical(void **unused) {
    (void)unused;
    for (size_t i = 0; i < RULES; i++)
        for (int threads = 1; threads <= 3; threads++) {
            size_t sizes[2];
            double clip = threads == 2 ? 0.5 : 0;
            unsigned char *bare = trained_bytes(all_rules[i], true, clip, threads, &sizes[0]);
            unsigned char *behind = trained_bytes(all_rules[i], false, clip, threads, &sizes[1]);
            assert_int_equal(sizes[0], sizes[1]);
            if (memcmp(bare, behind, sizes[0]) != 0)
                fail_msg("%s on %d threads: guarded and unguarded results differ", all_rules[i], threads);
            free(bare);
            free(behind);
        }
}

/* ---- Half precision ---- */

/* The updates are about 1e-6; in bf16 they could not change a weight of about 1. */
static void bf16_keeps_f32_master_weights(void **unused) {
    (void)unused;
    net n = build_net(TU_F32, BATCH, false);
    tu_program *program;
    tu_state *state;
    tu_optimizer_values values = TU_SIZED(tu_optimizer_values);
    static float images[PIXELS], before[432], after[432];
    fill_randomly(images);
    assert_int_equal(
        tu_add_optimizer(n.loss, &values, .name = "momentum", .constant_rate = 1e-5, .average = 0.5), TU_OK);
    tu_value fetch[] = {n.loss, values.gradient_norm, values.finite};
    if (tu_compile(n.graph, &program, .devices = "cpu", .threads = 1, .precision = "bf16", .fetch = fetch,
                   .fetch_count = 3, .updates = true) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(n.graph, &state, .seed = 1), TU_OK);
    for (int i = 0; i < 432; i++) before[i] = 1 + (float)i / 1024;
    assert_int_equal(tu_state_set(state, "logits/weights", before, sizeof before), TU_OK);
    tu_feed feeds[] = {{n.images, images}, {n.labels, labels}};
    float loss, norm;
    bool finite;
    assert_int_equal(tu_run(program, state, 2, feeds, (void *[]){&loss, &norm, &finite}), TU_OK);
    assert_true(finite && isfinite(loss) && norm > 0);
    assert_int_equal(tu_state_get(state, "logits/weights", after, sizeof after), TU_OK);
    int moved = 0;
    for (int i = 0; i < 432; i++) {
        float step = fabsf(after[i] - before[i]);
        assert_true(step < 1e-3f); /* the spacing of bf16 at 1 is 0.0078 */
        moved += step > 0;
    }
    assert_true(moved > 300);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(n.graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_non_finite_step_changes_nothing),
        cmocka_unit_test(with_stop_at_nonfinite_nothing_changes_after_a_non_finite_step),
        cmocka_unit_test(every_update_of_a_guarded_step_is_in_place),
        cmocka_unit_test(f32_results_with_a_loss_scale_are_bit_identical),
        cmocka_unit_test(a_loss_scale_is_halved_by_non_finite_steps_and_doubled_by_finite_ones),
        cmocka_unit_test(contradictory_guard_options_are_rejected),
        cmocka_unit_test(frozen_layers_keep_their_statistics),
        cmocka_unit_test(micro_batches_give_the_update_of_the_batch),
        cmocka_unit_test(a_non_finite_micro_batch_adds_nothing_and_sums_are_cleared),
        cmocka_unit_test(the_micro_batch_fraction_must_be_positive),
        cmocka_unit_test(all_parameters_are_updated_in_one_kernel),
        cmocka_unit_test(updates_are_in_place_for_any_fetches),
        cmocka_unit_test(guarded_and_unguarded_steps_are_bit_identical),
        cmocka_unit_test(bf16_keeps_f32_master_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
