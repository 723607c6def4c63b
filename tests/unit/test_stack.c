/* Stacks: several networks trained as one program, compared with each network trained alone. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

enum { MEMBERS = 3, BATCH = 6, CLASSES = 4, SIDE = 6, STEPS = 50 };

/* What differs between the members. */
typedef struct member {
    uint64_t seed;
    double rate, decay, momentum, dropout, smoothing;
} member;

static const member members[MEMBERS + 1] = {
    {1, 0.1, 0.001, 0.9, 0.5, 0.1},
    {2, 0.05, 0.002, 0.8, 0.3, 0.05},
    {2, 0.2, 0.0005, 0.85, 0.1, 0.2},
    {9, 0.15, 0.003, 0.7, 0.25, 0.15}, /* gets a place later */
};

/* A network with every kind of layer that has a rule of its own; the step is an output "loss" and updates. */
static tu_graph *build(const member *m) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_batch_input(g, "images", TU_F32, TU_SHAPE(BATCH, SIDE, SIDE, 3));
    tu_value labels = tu_batch_input(g, "labels", TU_I32, TU_SHAPE(BATCH));
    x = tu_random_flip(tu_random_crop(x, SIDE - 1, SIDE - 1));
    x = tu_conv2d(x, .name = "conv", .filters = 5, .size = 3, .act = TU_RELU);
    x = tu_batch_norm(x);
    x = tu_max_pool(x, .window = {2, 2});
    x = tu_dense(tu_flatten(x), 8, .name = "hidden", .act = TU_RELU);
    x = tu_clip(tu_dropout(x, m->dropout), -3, 3 + m->dropout);
    tu_value logits = tu_dense(x, CLASSES, .name = "last");
    tu_value loss = tu_mean(tu_cross_entropy(logits, labels, .smoothing = m->smoothing));
    tu_optimizer_values values = TU_SIZED(tu_optimizer_values);
    assert_int_equal(tu_add_optimizer(loss, &values, .name = "momentum", .constant_rate = m->rate,
                                      .momentum = m->momentum, .weight_decay = m->decay, .clip_norm = 2),
                     TU_OK);
    tu_output(loss, "loss");
    tu_output(values.gradient_norm, "norm");
    return g;
}

/* Fills the batch of a step: each member has its own data. */
static void fill_batch(const member *m, int64_t step, float *images, int32_t *labels) {
    uint64_t random = m->seed * 1000003 + (uint64_t)step * 7919 + (uint64_t)(m->rate * 1e6);
    for (int i = 0; i < BATCH * SIDE * SIDE * 3; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        images[i] = (float)(random >> 40) / (float)(1 << 23) - 1;
    }
    for (int i = 0; i < BATCH; i++) labels[i] = (int32_t)((random >> (20 + i)) % CLASSES);
}

enum { PIXELS = BATCH * SIDE * SIDE * 3 };

typedef struct alone {
    tu_graph *graph;
    tu_program *program;
    tu_state *state;
    float loss;
} alone;

static alone open_alone(const member *m, const char *device) {
    alone a = {.graph = build(m)};
    tu_value fetch = tu_find_output(a.graph, "loss");
    assert_int_equal(tu_compile(a.graph, &a.program, .devices = device, .threads = 2, .fetch = &fetch,
                                .fetch_count = 1, .updates = true),
                     TU_OK);
    assert_int_equal(tu_state_new(a.graph, &a.state, .seed = m->seed), TU_OK);
    return a;
}

static void close_alone(alone *a) {
    tu_program_free(a->program);
    tu_state_free(a->state);
    tu_graph_free(a->graph);
}

static void train_alone(alone *a, const member *m, int64_t first, int64_t steps) {
    float images[PIXELS];
    int32_t labels[BATCH];
    for (int64_t step = first; step < first + steps; step++) {
        fill_batch(m, step, images, labels);
        assert_int_equal(
            tu_run(a->program, a->state, 2,
                   (tu_feed[]){{tu_find(a->graph, "images"), images}, {tu_find(a->graph, "labels"), labels}},
                   (void *[]){&a->loss}),
            TU_OK);
    }
}

typedef struct together {
    tu_stacked *stack;
    tu_program *program;
    tu_state *state;
    int64_t step[MEMBERS]; /* of the network in each place */
    float losses[MEMBERS];
} together;

static together open_together(const alone *networks, const char *device) {
    together t = {0};
    tu_graph *graphs[MEMBERS];
    for (int i = 0; i < MEMBERS; i++) graphs[i] = networks[i].graph;
    assert_int_equal(tu_stacked_new(MEMBERS, graphs, &t.stack), TU_OK);
    tu_graph *g = tu_stacked_graph(t.stack);
    tu_value fetch = tu_find_output(g, "loss");
    assert_int_equal(tu_compile(g, &t.program, .devices = device, .threads = 2, .fetch = &fetch,
                                .fetch_count = 1, .updates = true),
                     TU_OK);
    assert_int_equal(tu_state_new(g, &t.state), TU_OK);
    for (size_t i = 0; i < MEMBERS; i++)
        assert_int_equal(tu_stacked_insert(t.stack, t.state, i, graphs[i], networks[i].state), TU_OK);
    return t;
}

static void close_together(together *t) {
    tu_program_free(t->program);
    tu_state_free(t->state);
    tu_stacked_free(t->stack);
}

static void train_together(together *t, const member *const *in_place, int64_t steps) {
    static float images[MEMBERS * PIXELS];
    int32_t labels[MEMBERS * BATCH];
    int64_t ordinals[MEMBERS * BATCH];
    tu_graph *g = tu_stacked_graph(t->stack);
    for (int64_t s = 0; s < steps; s++) {
        for (int m = 0; m < MEMBERS; m++) {
            fill_batch(in_place[m], t->step[m], images + m * PIXELS, labels + m * BATCH);
            for (int i = 0; i < BATCH; i++) ordinals[m * BATCH + i] = t->step[m] * BATCH + i;
            t->step[m]++;
        }
        const tu_feed feeds[] = {{tu_find(g, "images"), images},
                                 {tu_find(g, "labels"), labels},
                                 {tu_find(g, "sample_ordinal"), ordinals}};
        assert_int_equal(tu_run(t->program, t->state, 3, feeds, (void *[]){t->losses}), TU_OK);
    }
}

/* Copies a place to the state of a new network, and compares all variables with another state. */
static void check_place(const together *t, size_t place, const alone *expected, double tolerance) {
    tu_state *copy;
    assert_int_equal(tu_state_new(expected->graph, &copy, .seed = 77), TU_OK);
    assert_int_equal(tu_stacked_extract(t->stack, t->state, place, copy), TU_OK);
    for (size_t i = 0; i < tu_state_variable_count(copy); i++) {
        const char *name;
        tu_type type;
        assert_int_equal(tu_state_variable(copy, i, &name, &type), TU_OK);
        size_t bytes = tu_type_bytes(type);
        void *got = malloc(bytes), *want = malloc(bytes);
        assert_int_equal(tu_state_get(copy, name, got, bytes), TU_OK);
        assert_int_equal(tu_state_get(expected->state, name, want, bytes), TU_OK);
        if (tolerance == 0 || type.dtype != TU_F32) {
            if (memcmp(got, want, bytes) != 0) fail_msg("place %zu: '%s' has other bits", place, name);
        } else {
            for (int64_t k = 0; k < tu_shape_elements(type.shape); k++) {
                double a = ((const float *)got)[k], b = ((const float *)want)[k];
                if (fabs(a - b) > tolerance * fmax(1, fabs(b)))
                    fail_msg("place %zu: '%s' element %lld is %g, expected %g", place, name, (long long)k, a,
                             b);
            }
        }
        free(got);
        free(want);
    }
    tu_state_free(copy);
}

static void train_and_compare(const char *device, int64_t steps, double tolerance) {
    alone networks[MEMBERS];
    for (int i = 0; i < MEMBERS; i++) networks[i] = open_alone(&members[i], device);
    together t = open_together(networks, device);
    const member *in_place[MEMBERS] = {&members[0], &members[1], &members[2]};
    train_together(&t, in_place, steps);
    for (int i = 0; i < MEMBERS; i++) {
        train_alone(&networks[i], &members[i], 0, steps);
        check_place(&t, (size_t)i, &networks[i], tolerance);
        if (tolerance == 0) assert_memory_equal(&t.losses[i], &networks[i].loss, sizeof(float));
    }
    close_together(&t);
    for (int i = 0; i < MEMBERS; i++) close_alone(&networks[i]);
}

static void members_have_the_bits_of_networks_alone_on_ref(void **context) {
    (void)context;
    train_and_compare("ref", STEPS, 0);
}

static void members_agree_with_networks_alone_on_the_cpu(void **context) {
    (void)context;
    train_and_compare("cpu", 200, 2e-3);
}

/* A network that gets a place after 20 steps has the bits of a fresh training; the others are not disturbed. */
static void a_place_is_given_to_another_network(void **context) {
    (void)context;
    alone networks[MEMBERS], newcomer = open_alone(&members[MEMBERS], "ref");
    for (int i = 0; i < MEMBERS; i++) networks[i] = open_alone(&members[i], "ref");
    together t = open_together(networks, "ref");
    const member *in_place[MEMBERS] = {&members[0], &members[1], &members[2]};
    train_together(&t, in_place, 20);
    assert_int_equal(tu_stacked_insert(t.stack, t.state, 1, newcomer.graph, newcomer.state), TU_OK);
    in_place[1] = &members[MEMBERS];
    t.step[1] = 0;
    train_together(&t, in_place, 15);
    train_alone(&newcomer, &members[MEMBERS], 0, 15);
    check_place(&t, 1, &newcomer, 0);
    for (int i = 0; i < MEMBERS; i += 2) {
        train_alone(&networks[i], &members[i], 0, 35);
        check_place(&t, (size_t)i, &networks[i], 0);
    }
    close_together(&t);
    close_alone(&newcomer);
    for (int i = 0; i < MEMBERS; i++) close_alone(&networks[i]);
}

/* ---- Errors ---- */

static tu_graph *one_layer(int64_t units, double factor) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(2, 3));
    tu_output(tu_scale(tu_dense(x, units, .name = "layer"), factor), "y");
    return g;
}

static void other_structures_are_refused(void **context) {
    (void)context;
    tu_graph *graphs[] = {one_layer(4, 2), one_layer(5, 2)};
    tu_stacked *stack;
    assert_int_equal(tu_stacked_new(2, graphs, &stack), TU_INVALID);
    assert_null(stack);
    assert_non_null(strstr(tu_message(), "network 1 has another structure than network 0"));
    assert_non_null(strstr(tu_message(), "layer/weights"));
    assert_int_equal(tu_stacked_new(0, graphs, &stack), TU_INVALID);
    assert_non_null(strstr(tu_message(), "expected at least 1"));
    for (int i = 0; i < 2; i++) tu_graph_free(graphs[i]);
}

static void a_constant_that_is_compiled_in_is_refused(void **context) {
    (void)context;
    tu_graph *graphs[] = {one_layer(4, 2), one_layer(4, 2)}, *other = one_layer(4, 3);
    tu_stacked *stack;
    tu_state *state, *member_state;
    assert_int_equal(tu_stacked_new(2, graphs, &stack), TU_OK);
    assert_int_equal(tu_state_new(tu_stacked_graph(stack), &state), TU_OK);
    assert_int_equal(tu_state_new(other, &member_state), TU_OK);
    assert_int_equal(tu_stacked_insert(stack, state, 1, other, member_state), TU_INVALID);
    assert_non_null(strstr(tu_message(), "'number' of fill"));
    assert_int_equal(tu_stacked_insert(stack, state, 2, graphs[0], member_state), TU_INVALID);
    assert_non_null(strstr(tu_message(), "place 2 is out of range: the stack has 2 places"));
    assert_int_equal(tu_stacked_members(stack), 2);
    tu_state_free(state);
    tu_state_free(member_state);
    tu_stacked_free(stack);
    tu_graph_free(other);
    for (int i = 0; i < 2; i++) tu_graph_free(graphs[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_have_the_bits_of_networks_alone_on_ref),
        cmocka_unit_test(members_agree_with_networks_alone_on_the_cpu),
        cmocka_unit_test(a_place_is_given_to_another_network),
        cmocka_unit_test(other_structures_are_refused),
        cmocka_unit_test(a_constant_that_is_compiled_in_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
