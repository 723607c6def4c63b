/* Stacks on the CUDA device: a stack runs the same fused kernels as one network, and its networks compute what each computes
 * alone on the reference device. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "cuda/emulated.h"

enum { NETWORKS = 3, STEPS = 4, CLASSES = 6, MAX_KERNELS = 64, NAME = 96 };

/* ---- Networks ---- */

typedef tu_value (*body)(tu_value x);

typedef struct example {
    body network; /* from images to logits */
    int batch, side;
    const char *precision; /* on the GPU */
    double tolerance;
} example;

/* Pooling and normalisation after a relu, and before one. */
static tu_value convolutional(tu_value x) {
    x = tu_conv2d(x, .name = "conv1", .filters = 64, .size = 5, .act = TU_RELU);
    x = tu_lrn(tu_max_pool(x, .window = {3, 3}, .stride = {2, 2}, .padding = TU_SAME), .radius = 4);
    x = tu_conv2d(x, .name = "conv2", .filters = 16, .size = 3, .act = TU_RELU);
    x = tu_max_pool(tu_lrn(x, .radius = 4), .window = {3, 3}, .stride = {2, 2}, .padding = TU_SAME);
    x = tu_dense(tu_flatten(x), 24, .name = "dense", .act = TU_RELU);
    return tu_dense(x, CLASSES, .name = "logits");
}

/* A bias whose gradient is summed by the gradient of pooling, without a relu between them. */
static tu_value pooled(tu_value x) {
    x = tu_max_pool(tu_conv2d(x, .name = "conv", .filters = 8, .size = 3), .window = {2, 2},
                    .stride = {1, 1});
    x = tu_batch_norm(x);
    x = tu_relu(tu_avg_pool(x, .window = {2, 2}));
    return tu_dense(tu_flatten(x), CLASSES, .name = "logits");
}

/* A bias for every element of an image, whose gradient is summed over fewer axes than that of a bias per channel. */
static tu_value shifted(tu_value x) {
    tu_shape shape = tu_value_shape(x);
    int64_t elements = shape.dim[1] * shape.dim[2] * shape.dim[3];
    tu_value bias =
        tu_variable(x.graph, "shift", TU_F32, TU_SHAPE(elements), .init = {.kind = TU_INIT_ZEROS});
    x = tu_relu(tu_add(tu_reshape(x, TU_SHAPE(shape.dim[0], elements)), bias));
    x = tu_max_pool(tu_reshape(x, shape), .window = {2, 2}, .stride = {2, 2});
    return tu_dense(tu_flatten(x), CLASSES, .name = "logits");
}

static tu_value dense(tu_value x) {
    x = tu_dense(tu_flatten(x), 40, .name = "hidden1", .act = TU_RELU);
    x = tu_dense(x, 36, .name = "hidden2", .act = TU_RELU);
    return tu_dense(x, CLASSES, .name = "logits");
}

/* A layer whose weights [140, 136] have four tiles, three of them at an edge. */
static tu_value wide(tu_value x) {
    x = tu_dense(tu_flatten(x), 136, .name = "hidden1", .act = TU_RELU);
    x = tu_dense(x, 140, .name = "hidden2", .act = TU_RELU);
    return tu_dense(x, CLASSES, .name = "logits");
}

/* Layers with few results and an odd number of tiles along each axis; the depth is no multiple of a stage. */
static tu_value narrow(tu_value x) {
    x = tu_dense(tu_flatten(x), 124, .name = "hidden1", .act = TU_RELU);
    x = tu_dense(x, 60, .name = "hidden2");
    x = tu_dense(x, 92, .name = "hidden3", .act = TU_RELU);
    return tu_dense(x, CLASSES, .name = "logits");
}

static const example examples[] = {
    {convolutional, 4, 8, "f32", 2e-5}, {pooled, 4, 6, "f32", 2e-5},  {shifted, 4, 6, "f32", 2e-5},
    {dense, 8, 2, "f32", 2e-5},         {dense, 300, 2, "f32", 2e-5}, /* sums of rows in several blocks */
};
/* Gradients of weights by products with updates. The samples are no multiple of what such a kernel multiplies at a time, and
 * more than it has on their way. */
static const example small = {narrow, 100, 2, "tf32", 5e-3};
static const example updated = {wide, 106, 2, "tf32", 5e-3};

static tu_graph *build(const example *e) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value images = tu_batch_input(g, "images", TU_F32, TU_SHAPE(e->batch, e->side, e->side, 3));
    tu_value labels = tu_batch_input(g, "labels", TU_I32, TU_SHAPE(e->batch));
    tu_value loss = tu_mean(tu_cross_entropy(e->network(images), labels));
    assert_int_equal(tu_add_sgd(loss, 0.05, 0.9), TU_OK);
    tu_output(loss, "loss");
    return g;
}

/* ---- Programs ---- */

typedef struct training {
    tu_graph *graph;
    tu_program *program;
    tu_state *state;
    tu_value loss;
} training;

static training begin(tu_graph *graph, const char *device, const char *precision, uint64_t seed) {
    training t = {.graph = graph, .loss = tu_find_output(graph, "loss")};
    if (tu_compile(graph, &t.program, .devices = device, .precision = precision, .fetch = &t.loss,
                   .fetch_count = 1, .updates = true) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(graph, &t.state, .seed = seed), TU_OK);
    return t;
}

static void end(training *t) {
    tu_program_free(t->program);
    tu_state_free(t->state);
}

static size_t pixels_of(const example *e) {
    return (size_t)e->side * (size_t)e->side * 3;
}

/* Writes the batches of all steps: [steps, networks, batch, …]. */
static void fill(const example *e, int networks, int first, float *images, int32_t *labels) {
    size_t pixels = (size_t)e->batch * pixels_of(e), at = 0, label = 0;
    for (int s = 0; s < STEPS; s++)
        for (int n = first; n < first + networks; n++) {
            srand((unsigned)(100 * s + n));
            for (size_t i = 0; i < pixels; i++) images[at++] = (float)rand() / (float)RAND_MAX - 0.5f;
            for (int i = 0; i < e->batch; i++) labels[label++] = rand() % CLASSES;
        }
}

/* Runs two steps one by one and the others in one call, so that kernels are enqueued and captured. */
static void train(training *t, const example *e, int networks, int first, float *losses) {
    size_t labels_of_step = (size_t)networks * (size_t)e->batch,
           images_of_step = labels_of_step * pixels_of(e);
    float *images = malloc(STEPS * images_of_step * sizeof *images);
    int32_t *labels = malloc(STEPS * labels_of_step * sizeof *labels);
    tu_value x = tu_find(t->graph, "images"), y = tu_find(t->graph, "labels");
    fill(e, networks, first, images, labels);
    for (int s = 0; s < 2; s++) {
        const tu_feed feeds[] = {{x, images + (size_t)s * images_of_step},
                                 {y, labels + (size_t)s * labels_of_step}};
        if (tu_run(t->program, t->state, 2, feeds, (void *[]){losses + s * networks}) != TU_OK)
            fail_msg("%s", tu_message());
    }
    const tu_feed_many feeds[] = {{.input = x, .data = images + 2 * images_of_step},
                                  {.input = y, .data = labels + 2 * labels_of_step}};
    if (tu_run_many(t->program, t->state, STEPS - 2, 2, feeds, (void *[]){losses + 2 * networks}) != TU_OK)
        fail_msg("%s", tu_message());
    free(images);
    free(labels);
}

typedef struct names {
    size_t count;
    char list[MAX_KERNELS][NAME];
} names;

static names kernels_of(const training *t) {
    names n = {.count = tu_program_kernel_count(t->program)};
    tu_kernel_report report = TU_SIZED(tu_kernel_report);
    assert_true(n.count <= MAX_KERNELS);
    for (size_t i = 0; i < n.count; i++) {
        assert_int_equal(tu_program_kernel(t->program, i, &report), TU_OK);
        snprintf(n.list[i], NAME, "%s", report.kernel);
    }
    return n;
}

typedef struct stack {
    tu_graph *graphs[NETWORKS];
    tu_stacked *stacked;
    training training;
} stack;

static stack begin_stack(const example *e, const char *precision) {
    stack s = {0};
    for (int i = 0; i < NETWORKS; i++) s.graphs[i] = build(e);
    assert_int_equal(tu_stacked_new(NETWORKS, s.graphs, &s.stacked), TU_OK);
    s.training = begin(tu_stacked_graph(s.stacked), "gpu:0", precision, 0);
    for (int i = 0; i < NETWORKS; i++) {
        tu_state *state;
        assert_int_equal(tu_state_new(s.graphs[i], &state, .seed = (uint64_t)i + 1), TU_OK);
        assert_int_equal(tu_stacked_insert(s.stacked, s.training.state, (size_t)i, s.graphs[i], state),
                         TU_OK);
        tu_state_free(state);
    }
    return s;
}

static void end_stack(stack *s) {
    end(&s->training);
    tu_stacked_free(s->stacked);
    for (int i = 0; i < NETWORKS; i++) tu_graph_free(s->graphs[i]);
}

/* ---- Comparing ---- */

typedef void (*comparison)(const char *name, tu_type type, const void *got, const void *expected,
                           double tolerance);

static void within_rounding(const char *name, tu_type type, const void *got, const void *expected,
                            double tolerance) {
    if (type.dtype != TU_F32) return;
    for (int64_t i = 0; i < tu_shape_elements(type.shape); i++) {
        double a = ((const float *)got)[i], b = ((const float *)expected)[i];
        if (!(fabs(a - b) <= tolerance * fmax(1, fabs(b))))
            fail_msg("'%s' element %lld is %g, expected %g", name, (long long)i, a, b);
    }
}

static void same_bits(const char *name, tu_type type, const void *got, const void *expected,
                      double tolerance) {
    (void)tolerance;
    if (memcmp(got, expected, tu_type_bytes(type)) != 0) fail_msg("'%s' has other bits", name);
}

static void compare_states(const tu_state *got, const tu_state *expected, comparison compare,
                           double tolerance) {
    for (size_t i = 0; i < tu_state_variable_count(expected); i++) {
        const char *name;
        tu_type type;
        assert_int_equal(tu_state_variable(expected, i, &name, &type), TU_OK);
        size_t bytes = tu_type_bytes(type);
        void *a = malloc(bytes), *b = malloc(bytes);
        assert_int_equal(tu_state_get(got, name, a, bytes), TU_OK);
        assert_int_equal(tu_state_get(expected, name, b, bytes), TU_OK);
        compare(name, type, a, b, tolerance);
        free(a);
        free(b);
    }
}

static void compare_network(const stack *s, int network, const example *e, const float *stacked_losses) {
    float losses[STEPS];
    tu_state *place;
    training alone = begin(s->graphs[network], "ref", NULL, (uint64_t)network + 1);
    train(&alone, e, 1, network, losses);
    assert_int_equal(tu_state_new(s->graphs[network], &place), TU_OK);
    assert_int_equal(tu_stacked_extract(s->stacked, s->training.state, (size_t)network, place), TU_OK);
    compare_states(place, alone.state, within_rounding, e->tolerance);
    for (int i = 0; i < STEPS; i++)
        within_rounding("loss", (tu_type){TU_F32, TU_SCALAR}, &stacked_losses[i * NETWORKS + network],
                        &losses[i], e->tolerance);
    tu_state_free(place);
    end(&alone);
}

static void check_example(const example *e) {
    float losses[STEPS * NETWORKS];
    stack s = begin_stack(e, e->precision);
    train(&s.training, e, NETWORKS, 0, losses);
    for (int i = 0; i < NETWORKS; i++) compare_network(&s, i, e, losses);
    end_stack(&s);
}

static void networks_of_a_stack_match_the_reference(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) check_example(&examples[i]);
}

/* ---- Kernels ---- */

static void expect_kernel(const names *n, const char *name) {
    for (size_t i = 0; i < n->count; i++)
        if (strcmp(n->list[i], name) == 0) return;
    fail_msg("there is no kernel %s", name);
}

/* Compares names without what computes them, "matmul+bias" for "matmul+bias (cuBLASLt)". */
static void expect_same_operations(const char *of_stack, const char *of_one) {
    size_t length = strcspn(of_stack, " ");
    if (strncmp(of_stack, of_one, length) != 0 || strcspn(of_one, " ") != length)
        fail_msg("the stack has kernel %s, a network %s", of_stack, of_one);
}

static names check_kernels(const example *e, const char *precision) {
    stack s = begin_stack(e, precision);
    training alone = begin(s.graphs[0], "gpu:0", precision, 1);
    names of_stack = kernels_of(&s.training), of_one = kernels_of(&alone);
    for (size_t i = 0; i < of_stack.count && i < of_one.count; i++)
        expect_same_operations(of_stack.list[i], of_one.list[i]);
    assert_int_equal(of_stack.count, of_one.count);
    end(&alone);
    end_stack(&s);
    return of_stack;
}

static void a_stack_has_the_fused_kernels_of_one_network(void **state) {
    (void)state;
    const char *const precisions[] = {"f32", "tf32", "bf16"};
    for (int p = 0; p < 3; p++) {
        names n = check_kernels(&examples[0], precisions[p]);
        expect_kernel(&n, "max_pool_grad+relu_grad+sum");
        expect_kernel(&n, "lrn_grad+relu_grad+sum");
        expect_kernel(&n, "relu_grad+sum");
        expect_kernel(&n, "cross_entropy+mean+gradient");
        n = check_kernels(&examples[1], precisions[p]);
        expect_kernel(&n, "max_pool_grad+sum");
        check_kernels(&examples[3], precisions[p]);
    }
}

static size_t count_kernels(const names *n, const char *name) {
    size_t count = 0;
    for (size_t i = 0; i < n->count; i++) count += strcmp(n->list[i], name) == 0;
    return count;
}

/* ---- Products ---- */

/* Compares two stacks of one example, of which the second has been begun with other settings. */
static void compare_stacks(const example *e, stack *s, stack *other) {
    float losses[STEPS * NETWORKS], other_losses[STEPS * NETWORKS];
    train(&s->training, e, NETWORKS, 0, losses);
    train(&other->training, e, NETWORKS, 0, other_losses);
    for (int i = 0; i < NETWORKS; i++) compare_network(s, i, e, losses);
    compare_states(s->training.state, other->training.state, within_rounding, 2e-5);
}

/* The emulated library rounds to tf32 too. */
static void small_products_of_a_stack_match_those_of_the_library(void **state) {
    (void)state;
    stack library = begin_stack(&small, "tf32");
    setenv("TUTTI_PRODUCTS", "own", 1);
    stack s = begin_stack(&small, "tf32");
    unsetenv("TUTTI_PRODUCTS");
    names n = kernels_of(&s.training), of_library = kernels_of(&library.training);
    assert_int_equal(count_kernels(&n, "matmul+bias+relu (tf32)"), 2);
    assert_int_equal(count_kernels(&n, "matmul+bias (tf32)"), 2);
    assert_int_equal(count_kernels(&of_library, "matmul+bias+relu (cuBLASLt)"), 2);
    compare_stacks(&small, &s, &library);
    end_stack(&library);
    end_stack(&s);
}

/* ---- Updates ---- */

/* The weights of two layers are large enough; the others and the biases are updated together. A separate update reads the same
 * gradient. */
static void a_product_updates_the_weights_of_a_stack(void **state) {
    (void)state;
    stack apart = begin_stack(&updated, "tf32");
    setenv("TUTTI_UPDATE", "fused", 1);
    stack s = begin_stack(&updated, "tf32");
    unsetenv("TUTTI_UPDATE");
    names n = kernels_of(&s.training), of_apart = kernels_of(&apart.training);
    assert_int_equal(count_kernels(&n, "matmul+mul+add+mul+sub"), 2);
    assert_int_equal(count_kernels(&n, "5 x mul+add+mul+sub"), 1);
    assert_int_equal(count_kernels(&of_apart, "matmul+mul+add+mul+sub"), 0);
    compare_stacks(&updated, &s, &apart);
    end_stack(&apart);
    end_stack(&s);
}

static tu_graph *build_clipped(const example *e) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value images = tu_batch_input(g, "images", TU_F32, TU_SHAPE(e->batch, e->side, e->side, 3));
    tu_value labels = tu_batch_input(g, "labels", TU_I32, TU_SHAPE(e->batch));
    tu_value loss = tu_mean(tu_cross_entropy(e->network(images), labels));
    tu_optimizer_values values = TU_SIZED(tu_optimizer_values);
    assert_int_equal(tu_add_optimizer(loss, &values, .name = "momentum", .constant_rate = 0.05,
                                      .momentum = 0.9, .clip_norm = 1),
                     TU_OK);
    tu_output(loss, "loss");
    return g;
}

/* The norm of all gradients is known only when all are. */
static void gradients_that_others_read_are_stored(void **state) {
    (void)state;
    tu_graph *graphs[NETWORKS];
    tu_stacked *stacked;
    for (int i = 0; i < NETWORKS; i++) graphs[i] = build_clipped(&updated);
    assert_int_equal(tu_stacked_new(NETWORKS, graphs, &stacked), TU_OK);
    setenv("TUTTI_UPDATE", "fused", 1);
    training t = begin(tu_stacked_graph(stacked), "gpu:0", "tf32", 0);
    unsetenv("TUTTI_UPDATE");
    names n = kernels_of(&t);
    for (size_t i = 0; i < n.count; i++) assert_true(strncmp(n.list[i], "matmul+mul", 10) != 0);
    end(&t);
    tu_stacked_free(stacked);
    for (int i = 0; i < NETWORKS; i++) tu_graph_free(graphs[i]);
}

/* ---- Branches ---- */

static void branches_do_not_change_bits(void **state) {
    (void)state;
    const char *const counts[] = {"1", "2", "8"};
    for (int i = 0; i < 2; i++) {
        float losses[3][STEPS * NETWORKS];
        stack s[3];
        for (int k = 0; k < 3; k++) {
            setenv("TUTTI_BRANCHES", counts[k], 1);
            s[k] = begin_stack(&examples[i], "f32");
            train(&s[k].training, &examples[i], NETWORKS, 0, losses[k]);
            assert_memory_equal(losses[k], losses[0], sizeof losses[0]);
            compare_states(s[k].training.state, s[0].training.state, same_bits, 0);
        }
        for (int k = 0; k < 3; k++) end_stack(&s[k]);
    }
    unsetenv("TUTTI_BRANCHES");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_of_a_stack_match_the_reference),
        cmocka_unit_test(a_stack_has_the_fused_kernels_of_one_network),
        cmocka_unit_test(small_products_of_a_stack_match_those_of_the_library),
        cmocka_unit_test(a_product_updates_the_weights_of_a_stack),
        cmocka_unit_test(gradients_that_others_read_are_stored),
        cmocka_unit_test(branches_do_not_change_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
