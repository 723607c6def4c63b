/* Invalid arguments of normalisations and layers fail with a message that contains the operation, the input types and
 * the expected value. */
#include "unit/expect_error.h"

#include <math.h>

#include "graph/graph.h"

/* `g` is declared by EXPECT_ERROR. */
#define IMAGES TENSOR(TU_F32, 2, 7, 6, 4)
#define ROWS TENSOR(TU_F32, 5, 3, 4)
#define SCALAR tu_input(g, "x", TU_F32, TU_SCALAR)
#define GAMMA(dtype, ...) tu_input(g, "gamma", dtype, TU_SHAPE(__VA_ARGS__))
#define DY(dtype, ...) tu_input(g, "dy", dtype, TU_SHAPE(__VA_ARGS__))
#define BETA(dtype, ...) tu_input(g, "beta", dtype, TU_SHAPE(__VA_ARGS__))

static const tu_dtype non_floats[] = {TU_I32, TU_I64, TU_U8, TU_I8, TU_BOOL};
enum { NON_FLOATS = sizeof non_floats / sizeof *non_floats };

/* ---- Operations: tu_batch_normalize, tu_layer_normalize, tu_lrn ---- */

static void activations_of_the_wrong_type_are_rejected(void **state) {
    (void)state;
    for (size_t i = 0; i < NON_FLOATS; i++) {
        const char *name = tu_dtype_name(non_floats[i]);
        EXPECT_ERROR(tu_batch_normalize(TENSOR(non_floats[i], 5, 4), GAMMA(TU_F32, 4), BETA(TU_F32, 4)),
                     "batch_norm node 'batch_norm' (inputs ", name, "f32[4], f32[4]", "x (input 0) has type",
                     "expected a float type (convert with tu_cast)");
        EXPECT_ERROR(tu_layer_normalize(TENSOR(non_floats[i], 5, 4), GAMMA(TU_F32, 4), BETA(TU_F32, 4)),
                     "layer_norm node 'layer_norm' (inputs ", name, "x (input 0) has type",
                     "expected a float type (convert with tu_cast)");
        EXPECT_ERROR(tu_lrn(TENSOR(non_floats[i], 5, 4)), "lrn node 'lrn' (input ", name,
                     "x (input 0) has type", "expected a float type (convert with tu_cast)");
    }
}

static void activations_of_too_few_axes_are_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu_batch_normalize(TENSOR(TU_F32, 4), GAMMA(TU_F32, 4), BETA(TU_F32, 4)),
                 "batch_norm node 'batch_norm' (inputs f32[4], f32[4], f32[4]",
                 "x (input 0) has rank 1, expected at least 2: [..., channels]");
    EXPECT_ERROR(tu_batch_normalize(SCALAR, GAMMA(TU_F32, 4), BETA(TU_F32, 4)), "f32[]", "has rank 0",
                 "expected at least 2");
    EXPECT_ERROR(tu_layer_normalize(SCALAR, GAMMA(TU_F32, 4), BETA(TU_F32, 4)),
                 "layer_norm node 'layer_norm' (inputs f32[], f32[4], f32[4]", "x (input 0) is a scalar",
                 "expected at least 1 axis");
    EXPECT_ERROR(tu_lrn(SCALAR), "lrn node 'lrn' (input f32[]", "x (input 0) is a scalar",
                 "expected at least 1 axis: [..., channels]");
}

static void gamma_must_have_the_type_of_x_or_f32_for_half_precision(void **state) {
    (void)state;
#define BATCH(x, gamma) tu_batch_normalize(TENSOR(x, 5, 4), GAMMA(gamma, 4), BETA(gamma, 4))
#define LAYER(x, gamma) tu_layer_normalize(TENSOR(x, 5, 4), GAMMA(gamma, 4), BETA(gamma, 4))
    EXPECT_ERROR(BATCH(TU_F32, TU_F64), "batch_norm node 'batch_norm' (inputs f32[5,4], f64[4], f64[4]",
                 "gamma (input 1) has type f64, expected f32, the type of x (convert with tu_cast)");
    EXPECT_ERROR(BATCH(TU_F64, TU_F32),
                 "gamma (input 1) has type f32, expected f64, the type of x (convert with tu_cast");
    EXPECT_ERROR(BATCH(TU_F32, TU_BF16),
                 "gamma (input 1) has type bf16, expected f32, the type of x (convert with tu_cast");
    EXPECT_ERROR(BATCH(TU_BF16, TU_F64),
                 "gamma (input 1) has type f64, expected bf16, the type of x, or f32");
    EXPECT_ERROR(BATCH(TU_F16, TU_BF16),
                 "gamma (input 1) has type bf16, expected f16, the type of x, or f32");
    EXPECT_ERROR(BATCH(TU_F32, TU_I32), "gamma (input 1) has type i32, expected f32");
    EXPECT_ERROR(LAYER(TU_F32, TU_F64), "layer_norm node 'layer_norm' (inputs f32[5,4], f64[4], f64[4]",
                 "gamma (input 1) has type f64, expected f32, the type of x (convert with tu_cast)");
    EXPECT_ERROR(LAYER(TU_BF16, TU_F16),
                 "gamma (input 1) has type f16, expected bf16, the type of x, or f32");
    EXPECT_ERROR(LAYER(TU_F32, TU_BOOL), "gamma (input 1) has type bool, expected f32");
#undef BATCH
#undef LAYER
}

static void gamma_must_have_the_shape_of_the_normalised_axes(void **state) {
    (void)state;
#define BATCH(...) tu_batch_normalize(IMAGES, GAMMA(TU_F32, __VA_ARGS__), BETA(TU_F32, __VA_ARGS__))
    EXPECT_ERROR(BATCH(5), "batch_norm", "f32[2,7,6,4], f32[5], f32[5]",
                 "gamma (input 1) has shape [5], expected [4], one element per channel");
    EXPECT_ERROR(BATCH(1, 4), "gamma (input 1) has shape [1,4], expected [4]");
    EXPECT_ERROR(BATCH(2), "gamma (input 1) has shape [2], expected [4]");
    EXPECT_ERROR(tu_batch_normalize(IMAGES, tu_input(g, "gamma", TU_F32, TU_SCALAR), BETA(TU_F32, 4)),
                 "gamma (input 1) has shape [], expected [4]");
#undef BATCH
#define LAYER(count, ...)                                                                                    \
    tu_layer_normalize(ROWS, GAMMA(TU_F32, __VA_ARGS__), BETA(TU_F32, __VA_ARGS__), .axes = (count))
    EXPECT_ERROR(LAYER(0, 3), "layer_norm", "f32[5,3,4], f32[3], f32[3]",
                 "gamma (input 1) has shape [3], expected [4], the shape of the normalised axes");
    EXPECT_ERROR(LAYER(2, 4), "gamma (input 1) has shape [4], expected [3,4]");
    EXPECT_ERROR(LAYER(2, 4, 3), "gamma (input 1) has shape [4,3], expected [3,4]");
    EXPECT_ERROR(LAYER(3, 3, 4), "gamma (input 1) has shape [3,4], expected [5,3,4]");
#undef LAYER
}

static void beta_must_have_the_type_of_gamma(void **state) {
    (void)state;
    EXPECT_ERROR(tu_batch_normalize(IMAGES, GAMMA(TU_F32, 4), BETA(TU_F32, 5)),
                 "batch_norm node 'batch_norm' (inputs f32[2,7,6,4], f32[4], f32[5]",
                 "beta (input 2) is f32[5], expected f32[4], the type of gamma");
    EXPECT_ERROR(tu_batch_normalize(IMAGES, GAMMA(TU_F32, 4), BETA(TU_F64, 4)),
                 "beta (input 2) is f64[4], expected f32[4]");
    EXPECT_ERROR(tu_batch_normalize(TENSOR(TU_BF16, 5, 4), GAMMA(TU_F32, 4), BETA(TU_BF16, 4)),
                 "beta (input 2) is bf16[4], expected f32[4]");
    EXPECT_ERROR(tu_layer_normalize(ROWS, GAMMA(TU_F32, 4), BETA(TU_F32, 1, 4)),
                 "layer_norm node 'layer_norm' (inputs f32[5,3,4], f32[4], f32[1,4]",
                 "beta (input 2) is f32[1,4], expected f32[4], the type of gamma");
    EXPECT_ERROR(tu_layer_normalize(ROWS, GAMMA(TU_F32, 4), BETA(TU_F16, 4)),
                 "beta (input 2) is f16[4], expected f32[4]");
}

static void epsilon_must_be_positive(void **state) {
    (void)state;
    static const double wrong[] = {-1e-5, -0.5, INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char found[48];
        snprintf(found, sizeof found, "epsilon is %g", wrong[i]);
        EXPECT_ERROR(tu_batch_normalize(IMAGES, GAMMA(TU_F32, 4), BETA(TU_F32, 4), .epsilon = wrong[i]),
                     "batch_norm node 'batch_norm' (inputs f32[2,7,6,4]", found,
                     "expected a finite number above 0");
        EXPECT_ERROR(tu_layer_normalize(ROWS, GAMMA(TU_F32, 4), BETA(TU_F32, 4), .epsilon = wrong[i]),
                     "layer_norm node 'layer_norm' (inputs f32[5,3,4]", found,
                     "expected a finite number above 0");
    }
}

static void scope_and_axes_must_be_in_range(void **state) {
    (void)state;
    EXPECT_ERROR(tu_batch_normalize(IMAGES, GAMMA(TU_F32, 4), BETA(TU_F32, 4), .scope = (tu_batch_scope)3),
                 "batch_norm", "scope is 3, expected TU_SCOPE_GLOBAL, TU_SCOPE_REPLICA or TU_SCOPE_SHARD");
    EXPECT_ERROR(tu_batch_normalize(IMAGES, GAMMA(TU_F32, 4), BETA(TU_F32, 4), .scope = (tu_batch_scope)-1),
                 "batch_norm", "scope is", "expected TU_SCOPE_GLOBAL");
    const char *expected = "expected 1 to 3, the rank of x";
    EXPECT_ERROR(tu_layer_normalize(ROWS, GAMMA(TU_F32, 4), BETA(TU_F32, 4), .axes = 4), "layer_norm",
                 "axes is 4", expected);
    EXPECT_ERROR(tu_layer_normalize(ROWS, GAMMA(TU_F32, 4), BETA(TU_F32, 4), .axes = -1), "axes is -1",
                 expected);
    EXPECT_ERROR(tu_layer_normalize(ROWS, GAMMA(TU_F32, 4), BETA(TU_F32, 4), .axes = INT64_MAX),
                 "axes is 9223372036854775807", expected);
    EXPECT_ERROR(tu_layer_normalize(ROWS, GAMMA(TU_F32, 4), BETA(TU_F32, 4), .axes = INT64_MIN),
                 "axes is -9223372036854775808", expected);
}

static void attributes_of_lrn_must_be_in_range(void **state) {
    (void)state;
    const char *operation = "lrn node 'lrn' (input f32[2,7,6,4]";
    EXPECT_ERROR(tu_lrn(IMAGES, .radius = -2), operation,
                 "radius is -2, expected 0 to 1048576 channels on each side");
    EXPECT_ERROR(tu_lrn(IMAGES, .radius = 1048577), "radius is 1048577, expected 0 to 1048576");
    EXPECT_ERROR(tu_lrn(IMAGES, .radius = INT64_MAX), "radius is 9223372036854775807");
    EXPECT_ERROR(tu_lrn(IMAGES, .bias = -1), operation, "bias is -1, expected a finite number above 0");
    EXPECT_ERROR(tu_lrn(IMAGES, .bias = INFINITY), "bias is inf, expected a finite number above 0");
    EXPECT_ERROR(tu_lrn(IMAGES, .bias = NAN), "bias is", "nan, expected a finite number above 0");
    EXPECT_ERROR(tu_lrn(IMAGES, .alpha = -2), operation,
                 "alpha is -2, expected a finite number of at least 0");
    EXPECT_ERROR(tu_lrn(IMAGES, .alpha = INFINITY), "alpha is inf, expected a finite number of at least 0");
    EXPECT_ERROR(tu_lrn(IMAGES, .alpha = NAN), "alpha is", "nan, expected a finite number of at least 0");
    EXPECT_ERROR(tu_lrn(IMAGES, .beta = -INFINITY), operation, "beta is -inf, expected a finite number");
    EXPECT_ERROR(tu_lrn(IMAGES, .beta = NAN), "beta is", "nan, expected a finite number");
    EXPECT_ERROR(tu__apply(LRN, (&(struct tu__lrn_attrs){0}), IMAGES), "bias is 0");
}

/* ---- Gradient operations with types that builders never use but a graph file may contain ---- */

/* Applies the gradient operation to inputs of the given types: x, gamma, two statistics and dy. */
static tu_value raw_grad(tu_graph *g, tu__opcode op, const void *attrs, const tu_type type[5]) {
    static const char *const name[] = {"x", "gamma", "mean", "statistic", "dy"};
    tu_value in[5];
    for (int i = 0; i < 5; i++) in[i] = tu_input(g, name[i], type[i].dtype, type[i].shape);
    return tu__apply_list(op, attrs, 5, in);
}

#define F32(...)                                                                                             \
    (tu_type) {                                                                                              \
        TU_F32, TU_SHAPE(__VA_ARGS__)                                                                        \
    }
#define F64(...)                                                                                             \
    (tu_type) {                                                                                              \
        TU_F64, TU_SHAPE(__VA_ARGS__)                                                                        \
    }

static void operands_of_batch_norm_grad_must_agree(void **state) {
    (void)state;
    struct tu__batch_norm_grad_attrs fine = {.epsilon = 1e-5}, scope = {.epsilon = 1e-5, .scope = INT64_MIN};
#define GRAD(attrs, ...) raw_grad(g, TU__OP_BATCH_NORM_GRAD, &(attrs), (tu_type[5]){__VA_ARGS__})
    EXPECT_ERROR(GRAD(fine, F32(5, 4), F32(4), F32(5), F32(4), F32(5, 4)),
                 "batch_norm_grad node 'batch_norm_grad' (inputs",
                 "the mean (input 2) is f32[5], expected f32[4], the type of gamma");
    EXPECT_ERROR(GRAD(fine, F32(5, 4), F32(4), F32(4), F64(4), F32(5, 4)),
                 "the variance (input 3) is f64[4], expected f32[4], the type of gamma");
    EXPECT_ERROR(GRAD(fine, F32(5, 4), F32(4), F32(4), F32(4), F64(5, 4)),
                 "the gradient (input 4) is f64[5,4], expected f32[5,4], the type of x");
    EXPECT_ERROR(GRAD(fine, F32(5, 4), F32(4), F32(4), F32(4), F32(4)),
                 "the gradient (input 4) is f32[4], expected f32[5,4]");
    EXPECT_ERROR(GRAD(fine, F32(5, 4), F32(3), F32(3), F32(3), F32(5, 4)),
                 "gamma (input 1) has shape [3], expected [4]");
    EXPECT_ERROR(GRAD(fine, F32(4), F32(4), F32(4), F32(4), F32(4)), "x (input 0) has rank 1");
    EXPECT_ERROR(GRAD(scope, F32(5, 4), F32(4), F32(4), F32(4), F32(5, 4)), "scope is -9223372036854775808");
    EXPECT_ERROR(
        raw_grad(g, TU__OP_BATCH_NORM_GRAD, NULL, (tu_type[5]){F32(5, 4), F32(4), F32(4), F32(4), F32(5, 4)}),
        "epsilon is 0");
#undef GRAD
}

static void operands_of_layer_norm_grad_must_agree(void **state) {
    (void)state;
    struct tu__layer_norm_grad_attrs one = {.epsilon = 1e-5, .axes = 1}, none = {.epsilon = 1e-5};
#define GRAD(attrs, ...) raw_grad(g, TU__OP_LAYER_NORM_GRAD, &(attrs), (tu_type[5]){__VA_ARGS__})
    EXPECT_ERROR(GRAD(one, F32(5, 4), F32(4), F32(4), F32(5), F32(5, 4)),
                 "layer_norm_grad node 'layer_norm_grad' (inputs",
                 "the mean (input 2) is f32[4], expected f32[5], the shape of x "
                 "without the normalised axes");
    EXPECT_ERROR(GRAD(one, F32(5, 4), F32(4), F32(5), F32(5, 1), F32(5, 4)),
                 "the inverse standard deviation (input 3) is f32[5,1], expected f32[5], the shape of x "
                 "without the normalised axes");
    EXPECT_ERROR(GRAD(one, F32(5, 4), F32(4), F32(5), F32(5), F32(4, 5)),
                 "the gradient (input 4) is f32[4,5], expected f32[5,4], the type of x");
    EXPECT_ERROR(GRAD(one, F32(5, 4), F64(4), F64(5), F64(5), F32(5, 4)), "gamma (input 1) has type f64");
    EXPECT_ERROR(GRAD(none, F32(5, 4), F32(4), F32(5), F32(5), F32(5, 4)), "axes is 0, expected 1 to 2");
#undef GRAD
}

static void operands_of_lrn_grad_must_agree(void **state) {
    (void)state;
    struct tu__lrn_grad_attrs valid = {.radius = 1, .bias = 1}, too_wide = {.radius = INT64_MAX, .bias = 1};
    EXPECT_ERROR(tu__apply(LRN_GRAD, &valid, IMAGES, DY(TU_F32, 4)),
                 "lrn_grad node 'lrn_grad' (inputs f32[2,7,6,4], f32[4]",
                 "the gradient (input 1) is f32[4], expected f32[2,7,6,4], the type of x");
    EXPECT_ERROR(tu__apply(LRN_GRAD, &valid, IMAGES, DY(TU_F64, 2, 7, 6, 4)),
                 "the gradient (input 1) is f64[2,7,6,4], expected f32[2,7,6,4]");
    EXPECT_ERROR(tu__apply(LRN_GRAD, &too_wide, IMAGES, DY(TU_F32, 2, 7, 6, 4)),
                 "radius is 9223372036854775807");
}

/* ---- Numbers of floating-point operations ---- */

static int64_t flops_of(tu_graph *g, tu_shape shape, int64_t radius) {
    const tu__node *node = tu__node_of(tu_lrn(tu_input(g, "x", TU_F32, shape), .radius = radius));
    return node->op->flops(node, (tu_type[]){{TU_F32, shape}});
}

static void flops_of_lrn_count_only_existing_channels(void **state) {
    (void)state;
    static const struct {
        int64_t rows, channels, radius, flops;
    } known[] = {
        {7, 9, 2, INT64_C(7) * 9 * (5 + 5)},
        {7, 4, 2, INT64_C(7) * 4 * (4 + 5)},
        {7, 1, 1048576, INT64_C(7) * 1 * (1 + 5)},
        {1, INT64_C(1) << 48, 1048576, INT64_MAX},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        tu_graph *g;
        assert_int_equal(tu_graph_new(&g), TU_OK);
        assert_true(flops_of(g, TU_SHAPE(known[i].rows, known[i].channels), known[i].radius) ==
                    known[i].flops);
        tu_graph_free(g);
    }
}

/* ---- Layers, which create variables: tu_batch_norm, tu_layer_norm, … ---- */

static void dense_needs_a_float_matrix_and_units(void **state) {
    (void)state;
    EXPECT_ERROR(tu_dense(TENSOR(TU_F32, 4), .units = 3), "dense of 'x' f32[4]",
                 "expected a floating-point matrix [..., n]", "tu_flatten");
    EXPECT_ERROR(tu_dense(SCALAR, .units = 3), "dense of 'x' f32[]", "a floating-point matrix [..., n]");
    for (size_t i = 0; i < NON_FLOATS; i++)
        EXPECT_ERROR(tu_dense(TENSOR(non_floats[i], 5, 4), .units = 3), "dense of 'x'",
                     tu_dtype_name(non_floats[i]), "expected a floating-point matrix");
    EXPECT_ERROR(tu_dense(ROWS), "dense of 'x' f32[5,3,4]", ".units", "at least 1");
    EXPECT_ERROR(tu_dense(ROWS, .units = -3), "dense of 'x' f32[5,3,4]", ".units", "at least 1");
    EXPECT_ERROR(tu_dense(ROWS, .units = INT64_MAX), "variable node 'dense/weights'", "9223372036854775807",
                 "at most 2^48 elements");
    EXPECT_ERROR(tu_dense(ROWS, .units = 3, .act = (tu_activation)99), "activation of 'dense/add'",
                 "f32[5,3,3]", "unknown activation 99");
    EXPECT_ERROR(tu_dense(ROWS, .units = 3, .weights = {.kind = (tu_init_kind)99}),
                 "variable node 'dense/weights'", "initialiser 99");
    EXPECT_ERROR(tu_dense(ROWS, .units = 3, .bias = {TU_INIT_CONSTANT, .a = NAN}),
                 "variable node 'dense/bias'", "finite");
    EXPECT_ERROR(tu_dense(ROWS, .units = 3, .name = "a/b"), "scope 'a/b'", "without '/'");
    EXPECT_ERROR(tu_dense(tu_dense(ROWS, .units = 3, .name = "one"), .units = 3, .name = "one"),
                 "variable 'one/weights'", "the name is already used");
}

static void conv2d_needs_float_images_and_a_filter_size(void **state) {
    (void)state;
    EXPECT_ERROR(tu_conv2d(ROWS, .filters = 8, .size = 3), "conv2d of 'x' f32[5,3,4]",
                 "expected floating-point images [n,h,w,c]");
    for (size_t i = 0; i < NON_FLOATS; i++)
        EXPECT_ERROR(tu_conv2d(TENSOR(non_floats[i], 2, 7, 6, 4), .filters = 8, .size = 3), "conv2d of 'x'",
                     tu_dtype_name(non_floats[i]), "expected floating-point images");
    const char *filter = "expected .filters and .size (or .height and .width) from 1 to 2^20";
    EXPECT_ERROR(tu_conv2d(IMAGES, .size = 3), "conv2d of 'x' f32[2,7,6,4]", filter);
    EXPECT_ERROR(tu_conv2d(IMAGES, .filters = 8), "conv2d of 'x' f32[2,7,6,4]", filter);
    EXPECT_ERROR(tu_conv2d(IMAGES, .filters = -8, .size = 3), filter);
    EXPECT_ERROR(tu_conv2d(IMAGES, .filters = 8, .size = -3), filter);
    EXPECT_ERROR(tu_conv2d(IMAGES, .filters = 8, .height = 3), filter);
    EXPECT_ERROR(tu_conv2d(IMAGES, .filters = 8, .height = 3, .width = -1), filter);
    const char *groups = "expected .groups that divide the channels and the filters";
    EXPECT_ERROR(tu_conv2d(IMAGES, .filters = 8, .size = 3, .groups = 3), "conv2d of 'x' f32[2,7,6,4]",
                 groups);
    EXPECT_ERROR(tu_conv2d(IMAGES, .filters = 9, .size = 3, .groups = 2), groups);
    EXPECT_ERROR(tu_conv2d(IMAGES, .filters = 8, .size = 3, .groups = -2), groups);
}

static void conv2d_checks_its_options(void **state) {
    (void)state;
    const char *operation = "conv2d node 'conv2d/conv2d' (inputs f32[2,7,6,4], f32[8,3,3,4]";
    EXPECT_ERROR(tu_conv2d(IMAGES, .filters = 8, .size = 3, .stride = -1), operation,
                 "stride[0] is -1, expected at least 1");
    EXPECT_ERROR(tu_conv2d(IMAGES, .filters = 8, .size = 3, .dilation = -1), operation,
                 "dilation[0] is -1, expected at least 1");
    EXPECT_ERROR(tu_conv2d(IMAGES, .filters = 8, .size = 3, .padding = (tu_padding)9),
                 "convolve of 'x' f32[2,7,6,4]", "padding is 9");
    EXPECT_ERROR(tu_conv2d(IMAGES, .filters = 8, .size = 3, .pad = {1}), "pad[0] is 1", "TU_EXPLICIT");
    EXPECT_ERROR(tu_conv2d(IMAGES, .filters = 8, .size = 9, .padding = TU_VALID, .name = "stem"),
                 "conv2d node 'stem/conv2d' (inputs f32[2,7,6,4], f32[8,9,9,4]",
                 "the window's height of 9 is larger than the input's 7");
    EXPECT_ERROR(tu_conv2d(IMAGES, .filters = 8, .size = 3, .act = (tu_activation)-1),
                 "activation of 'conv2d/add' f32[2,7,6,8]", "unknown activation");
    EXPECT_ERROR(tu_conv2d(IMAGES, .filters = 1 << 20, .size = 1 << 20), "variable node 'conv2d/weights'",
                 "at most 2^48 elements");
    EXPECT_ERROR(tu_conv2d(IMAGES, .filters = 8, .size = (int64_t)1 << 40), "from 1 to 2^20");
}

static void batch_norm_needs_float_activations(void **state) {
    (void)state;
    EXPECT_ERROR(tu_batch_norm(TENSOR(TU_F32, 4)), "batch_norm of 'x' f32[4]",
                 "expected floating-point activations [..., c]");
    for (size_t i = 0; i < NON_FLOATS; i++)
        EXPECT_ERROR(tu_batch_norm(TENSOR(non_floats[i], 5, 4)), "batch_norm of 'x'",
                     tu_dtype_name(non_floats[i]), "expected floating-point activations [..., c]");
    const char *options = "expected .epsilon above 0 and .momentum in [0, 1]";
    EXPECT_ERROR(tu_batch_norm(IMAGES, .epsilon = -1), "batch_norm of 'x' f32[2,7,6,4]", options);
    EXPECT_ERROR(tu_batch_norm(IMAGES, .momentum = -0.5), "batch_norm of 'x' f32[2,7,6,4]", options);
    EXPECT_ERROR(tu_batch_norm(IMAGES, .momentum = 1.5), "batch_norm of 'x' f32[2,7,6,4]", options);
    EXPECT_ERROR(tu_batch_norm(IMAGES, .scope = (tu_batch_scope)7),
                 "batch_norm node 'batch_norm/batch_norm' (inputs", "scope is 7, expected TU_SCOPE_GLOBAL");
    EXPECT_ERROR(tu_batch_norm(IMAGES, .act = (tu_activation)99), "activation of 'batch_norm/batch_norm'",
                 "unknown activation 99");
}

static void layer_norm_needs_float_activations(void **state) {
    (void)state;
    const char *expected = "expected floating-point activations with at least .axes axes";
    EXPECT_ERROR(tu_layer_norm(SCALAR), "layer_norm of 'x' f32[]", expected);
    for (size_t i = 0; i < NON_FLOATS; i++)
        EXPECT_ERROR(tu_layer_norm(TENSOR(non_floats[i], 5, 4)), "layer_norm of 'x'",
                     tu_dtype_name(non_floats[i]), expected);
    EXPECT_ERROR(tu_layer_norm(ROWS, .axes = 4), "layer_norm of 'x' f32[5,3,4]", expected);
    EXPECT_ERROR(tu_layer_norm(ROWS, .axes = -1), "layer_norm of 'x' f32[5,3,4]", expected);
    EXPECT_ERROR(tu_layer_norm(ROWS, .axes = INT64_MAX), "layer_norm of 'x' f32[5,3,4]", expected);
    EXPECT_ERROR(tu_layer_norm(ROWS, .epsilon = -1, .name = "norm"),
                 "layer_norm node 'norm/layer_norm' (inputs f32[5,3,4], f32[4], f32[4]",
                 "epsilon is -1, expected a finite number above 0");
}

static void embedding_needs_indices_and_a_table_size(void **state) {
    (void)state;
#define WORDS TENSOR(TU_I32, 5, 3)
    const char *sizes = "expected .entries and .width of at least 1";
    EXPECT_ERROR(tu_embedding(WORDS, .width = 8), "embedding of 'x' i32[5,3]", sizes);
    EXPECT_ERROR(tu_embedding(WORDS, .entries = 100), "embedding of 'x' i32[5,3]", sizes);
    EXPECT_ERROR(tu_embedding(WORDS, .entries = -1, .width = 8), sizes);
    EXPECT_ERROR(tu_embedding(WORDS, .entries = 100, .width = -8), sizes);
    EXPECT_ERROR(tu_embedding(WORDS, .entries = INT64_MAX, .width = 8), "variable node 'embedding/weights'",
                 "9223372036854775807", "at most 2^48 elements");
    EXPECT_ERROR(tu_embedding(WORDS, .entries = 100, .width = 8, .dtype = TU_I32),
                 "variable node 'embedding/weights'", "floating-point type");
    EXPECT_ERROR(tu_embedding(ROWS, .entries = 100, .width = 8),
                 "gather node 'embedding/gather' (inputs f32[100,8], f32[5,3,4]", "indices (input 1) are f32",
                 "expected i32 or i64");
    EXPECT_ERROR(tu_embedding(TENSOR(TU_I32, 1, 1, 1, 1, 1, 1, 1, 1), .entries = 100, .width = 8),
                 "gather node 'embedding/gather'", "at most 8 dimensions");
#undef WORDS
}

static void operations_on_invalid_values_keep_the_first_error(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value valid = ROWS, invalid = tu_lrn(valid, .radius = -7);
    const tu_value wrong[] = {invalid, {0}};
    for (size_t i = 0; i < 2; i++) {
        assert_false(tu_ok(tu_batch_normalize(wrong[i], valid, valid)));
        assert_false(tu_ok(tu_batch_normalize(valid, wrong[i], valid)));
        assert_false(tu_ok(tu_batch_normalize(valid, valid, wrong[i])));
        assert_false(tu_ok(tu_layer_normalize(wrong[i], valid, valid)));
        assert_false(tu_ok(tu_layer_normalize(valid, wrong[i], valid)));
        assert_false(tu_ok(tu_layer_normalize(valid, valid, wrong[i])));
        assert_false(tu_ok(tu_lrn(wrong[i])));
        assert_false(tu_ok(tu_dense(wrong[i], .units = 3)));
        assert_false(tu_ok(tu_conv2d(wrong[i], .filters = 3, .size = 3)));
        assert_false(tu_ok(tu_batch_norm(wrong[i])));
        assert_false(tu_ok(tu_layer_norm(wrong[i])));
        assert_false(tu_ok(tu_embedding(wrong[i], .entries = 3, .width = 3)));
    }
    assert_int_equal(tu_graph_status(g), TU_INVALID);
    assert_non_null(strstr(tu_message(), "radius is -7"));
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_of_the_wrong_type_are_rejected),
        cmocka_unit_test(activations_of_too_few_axes_are_rejected),
        cmocka_unit_test(gamma_must_have_the_type_of_x_or_f32_for_half_precision),
        cmocka_unit_test(gamma_must_have_the_shape_of_the_normalised_axes),
        cmocka_unit_test(beta_must_have_the_type_of_gamma),
        cmocka_unit_test(epsilon_must_be_positive),
        cmocka_unit_test(scope_and_axes_must_be_in_range),
        cmocka_unit_test(attributes_of_lrn_must_be_in_range),
        cmocka_unit_test(operands_of_batch_norm_grad_must_agree),
        cmocka_unit_test(operands_of_layer_norm_grad_must_agree),
        cmocka_unit_test(operands_of_lrn_grad_must_agree),
        cmocka_unit_test(flops_of_lrn_count_only_existing_channels),
        cmocka_unit_test(dense_needs_a_float_matrix_and_units),
        cmocka_unit_test(conv2d_needs_float_images_and_a_filter_size),
        cmocka_unit_test(conv2d_checks_its_options),
        cmocka_unit_test(batch_norm_needs_float_activations),
        cmocka_unit_test(layer_norm_needs_float_activations),
        cmocka_unit_test(embedding_needs_indices_and_a_table_size),
        cmocka_unit_test(operations_on_invalid_values_keep_the_first_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
