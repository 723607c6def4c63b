/* The built-in networks have the shapes and parameter counts of their papers and tutorials, and a few steps of gradient
 * descent on one batch lower its loss. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "graph/graph.h"

typedef struct built {
    tu_graph *graph;
    tu_network_graph model;
} built;

static built build(const char *name, const tu_network_options *options) {
    built b;
    assert_int_equal(tu_graph_new(&b.graph), TU_OK);
    b.model = TU_SIZED(tu_network_graph);
    if (tu_network_build_with(b.graph, name, &b.model, options) != TU_OK) fail_msg("%s", tu_message());
    assert_int_equal(tu_graph_verify(b.graph), TU_OK);
    return b;
}

static void assert_shape(tu_value value, tu_shape expected) {
    assert_true(tu_ok(value));
    tu_shape shape = tu_value_shape(value);
    assert_int_equal(shape.rank, expected.rank);
    for (int64_t i = 0; i < shape.rank; i++) assert_int_equal(shape.dim[i], expected.dim[i]);
}

static int64_t parameters(const tu_graph *graph) {
    tu_graph_totals totals = TU_SIZED(tu_graph_totals);
    assert_int_equal(tu_graph_total(graph, &totals), TU_OK);
    return totals.parameters;
}

static void mlp_is_784_512_512_10(void **state) {
    (void)state;
    built b = build("mlp", NULL);
    assert_shape(b.model.images, TU_SHAPE(128, 28, 28, 1));
    assert_shape(b.model.labels, TU_SHAPE(128));
    assert_shape(b.model.logits, TU_SHAPE(128, 10));
    assert_shape(b.model.loss, TU_SCALAR);
    assert_shape(tu_find(b.graph, "hidden1/weights"), TU_SHAPE(512, 784));
    assert_shape(tu_find(b.graph, "hidden2/weights"), TU_SHAPE(512, 512));
    assert_shape(tu_find(b.graph, "logits/weights"), TU_SHAPE(10, 512));
    /* 784*512 + 512 + 512*512 + 512 + 512*10 + 10 */
    assert_int_equal(parameters(b.graph), 669706);
    tu_graph_free(b.graph);
}

/* Returns the largest magnitude of the initial values of a variable; `zeros` gets the number of those that are 0. */
static float largest_initial_value(const tu_state *state, const char *name, size_t count, size_t *zeros) {
    float values[64 * 8], largest = 0;
    assert_true(count <= sizeof values / sizeof *values);
    assert_int_equal(tu_state_get(state, name, values, count * sizeof *values), TU_OK);
    *zeros = 0;
    for (size_t i = 0; i < count; i++) {
        largest = fmaxf(largest, fabsf(values[i]));
        *zeros += values[i] == 0;
    }
    return largest;
}

/* Glorot's values for weights and biases, so that the rectifiers of the first layer do not all bend in the mean of the rows. */
static void mlp_for_rows_has_glorots_weights_and_biases(void **state) {
    (void)state;
    tu_graph *g;
    tu_state *values;
    tu_value logits;
    size_t zeros;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value rows = tu_batch_input(g, "rows", TU_F32, TU_SHAPE(4, 8));
    assert_int_equal(tu_network_logits(rows, "mlp", &logits, .classes = 3, .base = 64), TU_OK);
    assert_int_equal(tu_state_new(g, &values, .seed = 1), TU_OK);
    const struct {
        const char *name;
        size_t count;
        double fans; /* in + out */
    } variables[] = {{"hidden1/weights", 64 * 8, 8 + 64},
                     {"hidden1/bias", 64, 8 + 64},
                     {"hidden2/bias", 64, 64 + 64},
                     {"logits/bias", 3, 64 + 3}};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        double bound = sqrt(6 / variables[i].fans);
        float largest = largest_initial_value(values, variables[i].name, variables[i].count, &zeros);
        assert_true(largest <= bound && largest > bound * (variables[i].count > 3 ? 0.8 : 0));
        assert_int_equal(zeros, 0);
    }
    tu_state_free(values);
    tu_graph_free(g);
}

static void mlp_for_images_has_biases_of_zero(void **state) {
    (void)state;
    built b = build("mlp", &(tu_network_options){.struct_size = sizeof(tu_network_options), .base = 16});
    tu_state *values;
    size_t zeros;
    assert_int_equal(tu_state_new(b.graph, &values, .seed = 1), TU_OK);
    assert_true(largest_initial_value(values, "hidden1/bias", 16, &zeros) == 0);
    assert_true(largest_initial_value(values, "logits/bias", 10, &zeros) == 0);
    tu_state_free(values);
    tu_graph_free(b.graph);
}

static void tutorial_cnn_has_the_shapes_of_tensorflows_tutorial(void **state) {
    (void)state;
    built b = build("tutorial-cnn", NULL);
    assert_shape(b.model.images, TU_SHAPE(128, 24, 24, 3));
    assert_shape(tu_find(b.graph, "conv1/weights"), TU_SHAPE(64, 5, 5, 3));
    assert_shape(tu_find(b.graph, "pool1"), TU_SHAPE(128, 12, 12, 64));
    assert_shape(tu_find(b.graph, "norm1"), TU_SHAPE(128, 12, 12, 64));
    assert_shape(tu_find(b.graph, "conv2/weights"), TU_SHAPE(64, 5, 5, 64));
    assert_shape(tu_find(b.graph, "norm2"), TU_SHAPE(128, 12, 12, 64));
    assert_shape(tu_find(b.graph, "pool2"), TU_SHAPE(128, 6, 6, 64));
    assert_shape(tu_find(b.graph, "local3/weights"), TU_SHAPE(384, 2304));
    assert_shape(tu_find(b.graph, "local4/weights"), TU_SHAPE(192, 384));
    assert_shape(tu_find(b.graph, "softmax_linear/weights"), TU_SHAPE(10, 192));
    /* conv1 5*5*3*64 + 64 = 4,864; conv2 5*5*64*64 + 64 = 102,464; local3 6*6*64*384 + 384 = 885,120;
     * local4 384*192 + 192 = 73,920; softmax_linear 192*10 + 10 = 1,930 */
    assert_int_equal(parameters(b.graph), 1068298);
    tu_graph_free(b.graph);
}

static void tutorial_cnn_has_the_initialisers_of_tensorflows_tutorial(void **state) {
    (void)state;
    static const struct {
        const char *variable;
        tu_init_kind kind;
        double a, b;
    } expected[] = {
        {"conv1/weights", TU_INIT_TRUNCATED_NORMAL, 0, 0.05},
        {"conv1/bias", TU_INIT_CONSTANT, 0, 0},
        {"conv2/weights", TU_INIT_TRUNCATED_NORMAL, 0, 0.05},
        {"conv2/bias", TU_INIT_CONSTANT, 0.1, 0},
        {"local3/weights", TU_INIT_TRUNCATED_NORMAL, 0, 0.04},
        {"local3/bias", TU_INIT_CONSTANT, 0.1, 0},
        {"local4/weights", TU_INIT_TRUNCATED_NORMAL, 0, 0.04},
        {"local4/bias", TU_INIT_CONSTANT, 0.1, 0},
        {"softmax_linear/weights", TU_INIT_TRUNCATED_NORMAL, 0, 1.0 / 192},
        {"softmax_linear/bias", TU_INIT_DEFAULT, 0, 0},
    };
    built b = build("tutorial-cnn", NULL);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const tu__node *node = tu__find_node(b.graph, expected[i].variable);
        assert_non_null(node);
        const struct tu__variable_attrs *a = tu__attrs(node, variable);
        assert_int_equal(a->init, expected[i].kind);
        assert_true(a->a == expected[i].a && a->b == expected[i].b);
    }
    const struct tu__lrn_attrs *lrn = tu__attrs(tu__find_node(b.graph, "norm1"), lrn);
    assert_int_equal(lrn->radius, 4);
    assert_true(lrn->bias == 1 && lrn->alpha == 0.001 / 9 && lrn->beta == 0.75);
    tu_graph_free(b.graph);
}

static void resnet20_has_the_shapes_of_its_paper(void **state) {
    (void)state;
    built b = build("resnet20", NULL);
    assert_shape(b.model.images, TU_SHAPE(128, 32, 32, 3));
    assert_shape(tu_find(b.graph, "stage1/block3/relu"), TU_SHAPE(128, 32, 32, 16));
    assert_shape(tu_find(b.graph, "stage2/block3/relu"), TU_SHAPE(128, 16, 16, 32));
    assert_shape(tu_find(b.graph, "stage3/block3/relu"), TU_SHAPE(128, 8, 8, 64));
    assert_shape(tu_find(b.graph, "stage2/block1/shortcut/weights"), TU_SHAPE(32, 1, 1, 16));
    assert_null(tu__find_node(b.graph, "stage1/block1/shortcut/weights"));
    /* Convolutions without bias, each followed by a normalisation with 2 parameters per channel:
     *   conv1                     3*3*3*16 + 32                                        =     464
     *   stage1  3 blocks of       2 * (3*3*16*16 + 32)                        = 4,672  =  14,016
     *   stage2  block 1           3*3*16*32 + 3*3*32*32 + 128, shortcut 16*32 + 64     =  14,528
     *           2 blocks of       2 * (3*3*32*32 + 64)                        = 18,560 =  37,120
     *   stage3  block 1           3*3*32*64 + 3*3*64*64 + 256, shortcut 32*64 + 128    =  57,728
     *           2 blocks of       2 * (3*3*64*64 + 128)                       = 73,984 = 147,968
     *   logits                    64*10 + 10                                           =     650 */
    assert_int_equal(parameters(b.graph), 272474);
    tu_graph_free(b.graph);
}

/* ---- Parameter counts of other models, from torchvision and the papers ---- */

static int64_t parameters_of(const char *name, int64_t size, int64_t classes) {
    built b = build(name, &(tu_network_options){.struct_size = sizeof(tu_network_options),
                                                .batch = 2,
                                                .height = size,
                                                .width = size,
                                                .classes = classes});
    int64_t count = parameters(b.graph);
    tu_graph_free(b.graph);
    return count;
}

static void parameter_counts_agree_with_the_literature(void **state) {
    (void)state;
    assert_int_equal(parameters_of("resnet18", 224, 1000), 11689512);     /* torchvision */
    assert_int_equal(parameters_of("resnet50", 224, 1000), 25557032);     /* torchvision */
    assert_int_equal(parameters_of("wide-resnet-16-4", 32, 10), 2748890); /* the paper's 2.7M */
    /* With 3x3 instead of 7x7 at the start, and ten classes: 9,408 - 1,728 and 990 * 513 fewer. */
    assert_int_equal(parameters_of("resnet18", 32, 10), 11689512 - (9408 - 1728) - 990 * 513);
}

static void large_images_are_reduced_by_4_before_the_first_stage(void **state) {
    (void)state;
    static const struct { int64_t size, first, last; } cases[] = {{224, 56, 7}, {64, 16, 2}, {32, 32, 4}};
    for (int i = 0; i < 3; i++) {
        built b = build("resnet18", &(tu_network_options){.struct_size = sizeof(tu_network_options),
                                                          .batch = 1,
                                                          .height = cases[i].size,
                                                          .width = cases[i].size,
                                                          .base = 8});
        assert_shape(tu_find(b.graph, "stage1/block2/relu"), TU_SHAPE(1, cases[i].first, cases[i].first, 8));
        assert_shape(tu_find(b.graph, "stage4/block2/relu"), TU_SHAPE(1, cases[i].last, cases[i].last, 64));
        tu_graph_free(b.graph);
    }
}

/* Version 1.5: the 3x3 convolution has the stride, not the first 1x1. */
static void resnet50_has_the_stride_in_the_3x3_convolution(void **state) {
    (void)state;
    built b = build("resnet50", &(tu_network_options){.struct_size = sizeof(tu_network_options), .batch = 1});
    assert_shape(tu_find(b.graph, "stage2/block1/conv1/conv2d"), TU_SHAPE(1, 56, 56, 128));
    assert_shape(tu_find(b.graph, "stage2/block1/conv2/conv2d"), TU_SHAPE(1, 28, 28, 128));
    assert_shape(tu_find(b.graph, "stage2/block4/relu"), TU_SHAPE(1, 28, 28, 512));
    tu_graph_free(b.graph);
}

/* ---- All models ---- */

static void a_model_can_be_built_on_any_images_value(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value bytes = tu_batch_input(g, "bytes", TU_U8, TU_SHAPE(4, 28, 28, 1)), logits;
    tu_value images = tu_scale(tu_cast(bytes, TU_F32), 1.0 / 255);
    assert_int_equal(tu_network_logits(images, "mlp", &logits, .classes = 7, .base = 16), TU_OK);
    assert_shape(logits, TU_SHAPE(4, 7));
    assert_shape(tu_find(g, "hidden1/weights"), TU_SHAPE(16, 784));
    assert_int_equal(tu_network_logits(images, "nothing", &logits), TU_NOT_FOUND);
    assert_false(tu_ok(logits));
    assert_int_equal(tu_network_logits(bytes, "mlp", &logits), TU_INVALID);
    assert_non_null(strstr(tu_message(), "dtype = u8: expected f32"));
    assert_int_equal(tu_network_logits(tu_flatten(images), "resnet20", &logits), TU_INVALID);
    assert_non_null(strstr(tu_message(), "expected images [n,h,w,c]"));
    tu_graph_free(g);
}

static void tu_network_defaults_returns_the_default_options(void **state) {
    (void)state;
    tu_network_options defaults = TU_SIZED(tu_network_options);
    assert_int_equal(tu_network_defaults("tutorial-cnn", &defaults), TU_OK);
    assert_true(defaults.height == 24 && defaults.width == 24 && defaults.channels == 3 &&
                defaults.classes == 10);
    assert_int_equal(tu_network_defaults("resnet50", &defaults), TU_OK);
    assert_true(defaults.height == 224 && defaults.classes == 1000 && defaults.base == 64 &&
                defaults.batch == 128);
    assert_int_equal(tu_network_defaults("resnet", &defaults), TU_NOT_FOUND);
}

static const tu_init *init_of(const tu_graph *g, const char *name, tu_init *init) {
    const tu__node *node = tu__find_node(g, name);
    assert_non_null(node);
    const struct tu__variable_attrs *a = node->attrs;
    *init = (tu_init){.kind = (tu_init_kind)a->init, .a = a->a, .b = a->b};
    return init;
}

static void gpt2_has_the_shapes_and_initialisers_of_openais_release(void **state) {
    (void)state;
    built b =
        build("gpt2-124M", &(tu_network_options){.struct_size = sizeof(tu_network_options), .batch = 1});
    assert_shape(b.model.images, TU_SHAPE(1, 1025));
    assert_false(tu_ok(b.model.labels));
    assert_shape(b.model.logits, TU_SHAPE(1, 1024, 50304));
    assert_shape(tu_find(b.graph, "wte"), TU_SHAPE(50304, 768));
    assert_shape(tu_find(b.graph, "wpe"), TU_SHAPE(1024, 768));
    assert_shape(tu_find(b.graph, "h11/attn/c_attn/weights"), TU_SHAPE(2304, 768));
    assert_shape(tu_find(b.graph, "h11/mlp/c_proj/weights"), TU_SHAPE(768, 3072));
    /* wte 50304*768; wpe 1024*768; ln_f 2*768; 12 layers of 4*768 + 768*2304 + 2304 + 768*768 + 768 + 2 * 768*3072 +
     * 3072 + 768 */
    assert_int_equal(parameters(b.graph), 124475904);
    static const struct {
        const char *name;
        double deviation;
    } expected[] = {{"wte", 0.02},
                    {"wpe", 0.01},
                    {"h0/attn/c_attn/weights", 0.02},
                    {"h0/mlp/c_fc/weights", 0.02},
                    {"h3/attn/c_proj/weights", 0.0040824829},
                    {"h3/mlp/c_proj/weights", 0.0040824829}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        tu_init init;
        assert_int_equal(init_of(b.graph, expected[i].name, &init)->kind, TU_INIT_NORMAL);
        assert_true(init.a == 0 && fabs(init.b - expected[i].deviation) < 1e-9);
    }
    tu_graph_free(b.graph);
}

static void networks_of_tokens_take_tokens_only(void **state) {
    (void)state;
    tu_graph *g;
    tu_value logits;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value pictures = tu_input(g, "pictures", TU_F32, TU_SHAPE(2, 8, 8, 1)),
             tokens = tu_input(g, "tokens", TU_I32, TU_SHAPE(2, 8));
    assert_int_equal(tu_network_logits(pictures, "char-gpt", &logits), TU_INVALID);
    assert_non_null(strstr(tu_message(),
                           "network 'char-gpt' of 'pictures' f32[2,8,8,1]: expected tokens i32 [n,context]"));
    assert_int_equal(tu_network_logits(tokens, "resnet20", &logits), TU_INVALID);
    assert_non_null(
        strstr(tu_message(), "network 'resnet20' of 'tokens' i32[2,8]: expected images [n,h,w,c]"));
    assert_int_equal(tu_network_logits(tokens, "char-gpt", &logits, .base = 16, .classes = 5), TU_OK);
    assert_shape(logits, TU_SHAPE(2, 8, 5));
    assert_int_equal(tu_network_takes("char-gpt"), TU_TAKES_TOKENS);
    assert_int_equal(tu_network_takes("resnet20"), TU_TAKES_IMAGES);
    assert_int_equal(tu_network_takes("none"), 0);
    tu_graph_free(g);
}

static void every_network_can_be_listed_and_built(void **state) {
    (void)state;
    const char *name, *summary;
    size_t count = 0;
    for (; count < tu_network_count() && tu_network(count, &name, &summary) == TU_OK; count++) {
        built b = build(name, &(tu_network_options){.struct_size = sizeof(tu_network_options), .batch = 2});
        assert_true(strlen(summary) > 10);
        assert_true(tu_ok(tu_find_output(b.graph, "logits")));
        assert_int_equal(tu_find_output(b.graph, "loss").node, b.model.loss.node);
        tu_graph_free(b.graph);
    }
    assert_int_equal(count, 11);
    assert_int_equal(tu_network(count, &name, &summary), TU_NOT_FOUND);
    assert_non_null(strstr(tu_message(), "network index 11: expected 0 to 10"));
}

static void options_change_the_model(void **state) {
    (void)state;
    static const char *const names[] = {"mlp",      "tutorial-cnn", "resnet20",
                                        "resnet18", "resnet50",     "wide-resnet-16-4"};
    for (int i = 0; i < 6; i++) {
        built b = build(names[i], &(tu_network_options){.struct_size = sizeof(tu_network_options),
                                                        .batch = 3,
                                                        .height = 12,
                                                        .width = 16,
                                                        .channels = 2,
                                                        .classes = 7,
                                                        .base = 4,
                                                        .dtype = TU_F64});
        assert_shape(b.model.images, TU_SHAPE(3, 12, 16, 2));
        assert_shape(b.model.logits, TU_SHAPE(3, 7));
        assert_int_equal(tu_value_dtype(b.model.logits), TU_F64);
        assert_int_equal(tu_value_dtype(b.model.loss), TU_F64);
        tu_graph_free(b.graph);
    }
}

static void assert_build_fails(const char *name, tu_network_options options, tu_status status,
                               const char *part) {
    tu_graph *g;
    tu_network_graph model = TU_SIZED(tu_network_graph);
    assert_int_equal(tu_graph_new(&g), TU_OK);
    options.struct_size = sizeof options;
    assert_int_equal(tu_network_build_with(g, name, &model, &options), status);
    if (!strstr(tu_message(), part)) fail_msg("\"%s\" does not contain \"%s\"", tu_message(), part);
    assert_false(tu_ok(model.images) || tu_ok(model.labels) || tu_ok(model.logits) || tu_ok(model.loss));
    assert_int_equal(g->node_count, 0);
    tu_graph_free(g);
}

static void invalid_names_and_options_are_rejected(void **state) {
    (void)state;
    assert_build_fails(
        "tutorial_cnn", (tu_network_options){0}, TU_NOT_FOUND,
        "unknown network 'tutorial_cnn': expected mlp, tutorial-cnn, resnet20, resnet18, resnet50, wide-resnet-16-4, char-gpt, gpt2-124M, gpt2-355M, gpt2-774M or gpt2-1558M; did you mean 'tutorial-cnn'?");
    assert_build_fails(
        "xyzzy", (tu_network_options){0}, TU_NOT_FOUND,
        "unknown network 'xyzzy': expected mlp, tutorial-cnn, resnet20, resnet18, resnet50, wide-resnet-16-4, char-gpt, gpt2-124M, gpt2-355M, gpt2-774M or");
    assert_build_fails("mlp", (tu_network_options){.batch = -1}, TU_INVALID,
                       "batch = -1: expected at least 1");
    assert_build_fails("mlp", (tu_network_options){.base = -5}, TU_INVALID, "base = -5");
    assert_build_fails("mlp", (tu_network_options){.dtype = TU_I32}, TU_INVALID, "dtype = i32: expected f32");
}

/* ---- Training ---- */

/* Records the loss of one batch before each of `steps` steps. */
static void train(const char *name, int64_t size, int64_t base, double rate, int steps, float *losses) {
    built b = build(name, &(tu_network_options){.struct_size = sizeof(tu_network_options),
                                                .batch = 6,
                                                .height = size,
                                                .width = size,
                                                .channels = 1,
                                                .classes = 3,
                                                .base = base});
    if (tu_add_sgd(b.model.loss, rate, 0.9) != TU_OK) fail_msg("%s", tu_message());
    assert_int_equal(tu_graph_verify(b.graph), TU_OK);
    tu_program *program;
    tu_state *weights;
    if (tu_compile(b.graph, &program, .devices = "ref", .fetch = &b.model.loss, .fetch_count = 1,
                   .updates = true) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(b.graph, &weights, .seed = 3), TU_OK);
    float *images = calloc((size_t)(6 * size * size), sizeof *images);
    const int32_t labels[6] = {0, 1, 2, 0, 1, 2};
    for (int64_t i = 0; i < 6 * size * size; i++) images[i] = (float)(i * 2654435761u % 1000) / 100 - 5;
    for (int i = 0; i < steps; i++)
        if (tu_run(program, weights, 2, (tu_feed[]){{b.model.images, images}, {b.model.labels, labels}},
                   (void *[]){&losses[i]}) != TU_OK)
            fail_msg("%s", tu_message());
    int64_t step;
    assert_int_equal(tu_state_get(weights, "step", &step, sizeof step), TU_OK);
    assert_int_equal(step, steps);
    free(images);
    tu_state_free(weights);
    tu_program_free(program);
    tu_graph_free(b.graph);
}

static void training_lowers_the_loss_of_every_model(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t base;
        double rate;
    } models[] = {{"mlp", 16, 0.05},     {"tutorial-cnn", 32, 0.1}, {"resnet20", 4, 0.05},
                  {"resnet18", 4, 0.05}, {"resnet50", 4, 0.02},     {"wide-resnet-16-4", 2, 0.05}};
    for (int i = 0; i < 6; i++) {
        float losses[40];
        train(models[i].name, 8, models[i].base, models[i].rate, 40, losses);
        print_message("%s: %g -> %g\n", models[i].name, losses[0], losses[39]);
        assert_true(losses[0] > 0.5 && losses[0] < 10);
        assert_true(losses[39] < 0.8 * losses[0]);
    }
}

/* w' = w - rate * g, then with momentum v = 0.5 v + g: by hand on loss = w^2 / 2, whose gradient is w. */
static void sgd_follows_its_formula(void **state) {
    (void)state;
    static const double momenta[] = {0, 0.5};
    for (int m = 0; m < 2; m++) {
        tu_graph *g;
        assert_int_equal(tu_graph_new(&g), TU_OK);
        tu_value w = tu_variable(g, "w", TU_F64, TU_SCALAR, .init = {TU_INIT_CONSTANT, .a = 8});
        tu_value loss = tu_scale(tu_square(w), 0.5);
        assert_int_equal(tu_add_sgd(loss, 0.25, momenta[m]), TU_OK);
        tu_program *program;
        tu_state *weights;
        assert_int_equal(tu_compile(g, &program, .devices = "ref", .updates = true), TU_OK);
        assert_int_equal(tu_state_new(g, &weights), TU_OK);
        double expected = 8, velocity = 0;
        for (int i = 0; i < 5; i++) {
            assert_int_equal(tu_run(program, weights, 0, NULL, NULL), TU_OK);
            velocity = momenta[m] * velocity + expected;
            expected -= 0.25 * velocity;
            double weight;
            assert_int_equal(tu_state_get(weights, "w", &weight, sizeof weight), TU_OK);
            assert_true(weight == expected);
        }
        assert_int_equal(tu__find_node(g, "optimizer/velocity/w") != NULL, momenta[m] != 0);
        tu_state_free(weights);
        tu_program_free(program);
        tu_graph_free(g);
    }
}

static void assert_sgd_fails(tu_value loss, double rate, double momentum, const char *part) {
    assert_int_equal(tu_add_sgd(loss, rate, momentum), TU_INVALID);
    if (!strstr(tu_message(), part)) fail_msg("\"%s\" does not contain \"%s\"", tu_message(), part);
}

static void sgd_rejects_invalid_arguments(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2));
    assert_sgd_fails((tu_value){0}, 0.1, 0, "the loss is an uninitialised tu_value");
    assert_sgd_fails(tu_sum(x), 0.1, 0, "no trainable variable");
    tu_value w = tu_variable(g, "w", TU_F32, TU_SHAPE(2));
    assert_sgd_fails(tu_sum(w), -1, 0, "rate is -1, expected a finite number of at least 0");
    assert_sgd_fails(tu_sum(w), 1.0 / 0.0, 0, "rate is inf");
    assert_sgd_fails(tu_sum(w), 0.1, 1, "momentum is 1, expected a number in [0, 1)");
    assert_sgd_fails(tu_sum(w), 0.1, 0.0 / 0.0, "momentum");
    assert_int_equal(tu_graph_status(g), TU_OK);
    assert_sgd_fails(w, 0.1, 0, "expected a floating-point scalar");
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlp_is_784_512_512_10),
        cmocka_unit_test(mlp_for_rows_has_glorots_weights_and_biases),
        cmocka_unit_test(mlp_for_images_has_biases_of_zero),
        cmocka_unit_test(tutorial_cnn_has_the_shapes_of_tensorflows_tutorial),
        cmocka_unit_test(tutorial_cnn_has_the_initialisers_of_tensorflows_tutorial),
        cmocka_unit_test(resnet20_has_the_shapes_of_its_paper),
        cmocka_unit_test(parameter_counts_agree_with_the_literature),
        cmocka_unit_test(large_images_are_reduced_by_4_before_the_first_stage),
        cmocka_unit_test(resnet50_has_the_stride_in_the_3x3_convolution),
        cmocka_unit_test(a_model_can_be_built_on_any_images_value),
        cmocka_unit_test(tu_network_defaults_returns_the_default_options),
        cmocka_unit_test(gpt2_has_the_shapes_and_initialisers_of_openais_release),
        cmocka_unit_test(networks_of_tokens_take_tokens_only),
        cmocka_unit_test(every_network_can_be_listed_and_built),
        cmocka_unit_test(options_change_the_model),
        cmocka_unit_test(invalid_names_and_options_are_rejected),
        cmocka_unit_test(training_lowers_the_loss_of_every_model),
        cmocka_unit_test(sgd_follows_its_formula),
        cmocka_unit_test(sgd_rejects_invalid_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
