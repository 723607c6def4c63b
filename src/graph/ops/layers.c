/* Layers: functions that create variables and apply operations to them.
 *
 * Each opens a scope of its name, creates its variables there and builds ordinary operations. The rest of the engine
 * sees only these operations. */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include <tutti/layers.h>

#include "base/number.h"
#include "base/text.h"
#include "graph/graph.h"

static tu_value fail_layer(tu_value x, const char *layer, const char *expected) {
    return tu__graph_fail(x.graph, TU_INVALID, "%s of '%s' %s: expected %s", layer, tu_value_name(x),
                          tu__type_string(tu_value_type(x)), expected);
}

/* Records that an option has an invalid value. */
static tu_value fail_option(tu_value x, const char *layer, const char *option, int64_t given,
                            const char *expected) {
    return tu__graph_fail(x.graph, TU_INVALID, "%s of '%s' %s: %s is %" PRId64 ", expected %s", layer,
                          tu_value_name(x), tu__type_string(tu_value_type(x)), option, given, expected);
}

/* Returns the initialiser of weights: He for rectifiers, which halve the variance (He et al. 2015), else Xavier. */
static tu_init weights_or_default(tu_init given, tu_activation act, int64_t fan_in, int64_t fan_out) {
    bool is_rectifier = act == TU_RELU || act == TU_GELU || act == TU_GELU_TANH || act == TU_SILU ||
                        act == TU_ELU || act == TU_LEAKY_RELU;
    if (given.kind == TU_INIT_DEFAULT) given.kind = is_rectifier ? TU_INIT_HE_NORMAL : TU_INIT_XAVIER_UNIFORM;
    if (!given.fan_in) given.fan_in = fan_in;
    if (!given.fan_out) given.fan_out = fan_out;
    return given;
}

/* ---- Parameters: new variables, or values passed as .given_weights and .given_bias ---- */

/* True if an option is set, even to an invalid value. */
static bool is_given(tu_value value) {
    return value.graph || value.node;
}

/* Returns the option `size`; if it is 0, the size of axis `axis` of the given parameter. */
static int64_t size_or_given_axis(int64_t size, tu_value given, int64_t axis) {
    if (size || !tu_ok(given)) return size;
    tu_shape shape = tu_value_shape(given);
    return axis < shape.rank ? shape.dim[axis] : size;
}

/* Returns the given parameter, which must have this type, or creates the variable `name`. */
static tu_value parameter(tu_value x, const char *layer, const char *name, tu_value given, tu_type type,
                          tu_init init) {
    if (!is_given(given)) return tu_variable(x.graph, name, type.dtype, type.shape, .init = init);
    if (!tu_ok(given)) return tu__invalid(x.graph);
    tu_type given_type = tu_value_type(given);
    if (given_type.dtype != type.dtype || !tu_shape_equal(given_type.shape, type.shape))
        return tu__graph_fail(x.graph, TU_INVALID, "%s of '%s' %s: .given_%s is '%s' %s, expected %s", layer,
                              tu_value_name(x), tu__type_string(tu_value_type(x)), name, tu_value_name(given),
                              tu__type_string(given_type), tu__type_string(type));
    return given;
}

/* Checks that a parameter is not both given and initialised, and that no bias is given with .no_bias. */
static bool check_given_parameters(tu_value x, const char *layer, tu_value weights, tu_init init,
                                   tu_value bias, tu_init bias_init, bool no_bias) {
    if (is_given(weights) && init.kind != TU_INIT_DEFAULT)
        fail_layer(x, layer, "either .weights (an initialiser) or .given_weights, not both");
    else if (is_given(bias) && (no_bias || bias_init.kind != TU_INIT_DEFAULT))
        fail_layer(x, layer, ".given_bias without .bias (an initialiser) and without .no_bias");
    else
        return true;
    return false;
}

tu_value tu_dense_with(tu_value x, const tu_dense_options *options) {
    TU__OPTIONS(tu_dense_options, o, options);
    if (!tu_ok(x)) return tu__invalid(x.graph);
    tu_graph *g = x.graph;
    tu_type type = tu_value_type(x);
    if (type.shape.rank < 2 || !tu_dtype_is_float(type.dtype))
        return fail_layer(x, "dense", "a floating-point matrix [..., n] of at least 2 axes (use tu_flatten)");
    if (!check_given_parameters(x, "dense", o.given_weights, o.weights, o.given_bias, o.bias, o.no_bias))
        return tu__invalid(g);
    int64_t n = type.shape.dim[type.shape.rank - 1], units = size_or_given_axis(o.units, o.given_weights, 0);
    if (is_given(o.given_weights) && !tu_ok(o.given_weights)) return tu__invalid(g);
    if (units < 1) return fail_option(x, "dense", ".units", units, "at least 1");
    tu_value y = x;
    tu_scope(g, o.name ? o.name : "dense") {
        tu_init init = weights_or_default(o.weights, o.act, n, units);
        tu_type weights = {type.dtype, TU_SHAPE(units, n)}, bias = {type.dtype, TU_SHAPE(units)};
        y = tu_matmul(x, parameter(x, "dense", "weights", o.given_weights, weights, init),
                      .transpose_b = true);
        if (!o.no_bias) y = tu_add(y, parameter(x, "dense", "bias", o.given_bias, bias, o.bias));
        y = tu_activate(y, o.act);
    }
    return y;
}

/* Checks that an option is not set twice: for both axes and per axis. */
static bool check_not_both(tu_value x, int64_t both, const int64_t per_axis[2], const char *expected) {
    if (both == 0 || (per_axis[0] == 0 && per_axis[1] == 0)) return true;
    fail_layer(x, "conv2d", expected);
    return false;
}

static int64_t per_axis_or_both(int64_t both, int64_t one) {
    return one ? one : both;
}

tu_value tu_conv2d_with(tu_value x, const tu_conv2d_options *options) {
    TU__OPTIONS(tu_conv2d_options, o, options);
    if (!tu_ok(x)) return tu__invalid(x.graph);
    tu_graph *g = x.graph;
    tu_type type = tu_value_type(x);
    if (type.shape.rank != 4 || !tu_dtype_is_float(type.dtype))
        return fail_layer(x, "conv2d", "floating-point images [n,h,w,c]");
    if (!check_not_both(x, o.stride, o.strides,
                        "either .stride (both axes) or .strides (per axis), not both") ||
        !check_not_both(x, o.dilation, o.dilations,
                        "either .dilation (both axes) or .dilations (per axis), not both") ||
        !check_given_parameters(x, "conv2d", o.given_weights, o.weights, o.given_bias, o.bias, o.no_bias))
        return tu__invalid(g);
    if (is_given(o.given_weights) && !tu_ok(o.given_weights)) return tu__invalid(g);
    int64_t filters = size_or_given_axis(o.filters, o.given_weights, 0);
    int64_t kh = size_or_given_axis(o.height ? o.height : o.size, o.given_weights, 1);
    int64_t kw = size_or_given_axis(o.width ? o.width : o.size, o.given_weights, 2);
    int64_t groups = o.groups ? o.groups : 1, channels = type.shape.dim[3];
    const int64_t max_size = 1 << 20; /* the product of any three does not overflow */
    if (filters < 1 || kh < 1 || kw < 1 || filters > max_size || kh > max_size || kw > max_size)
        return fail_layer(x, "conv2d", ".filters and .size (or .height and .width) from 1 to 2^20");
    if (groups < 1 || channels % groups || filters % groups)
        return fail_layer(x, "conv2d", ".groups that divide the channels and the filters");
    int64_t receptive = kh * kw, in = channels / groups;
    tu_value y = x;
    tu_scope(g, o.name ? o.name : "conv2d") {
        tu_init init = weights_or_default(o.weights, o.act, receptive * in, receptive * filters / groups);
        tu_type weights = {type.dtype, TU_SHAPE(filters, kh, kw, in)}, bias = {type.dtype, TU_SHAPE(filters)};
        tu_value w = parameter(x, "conv2d", "weights", o.given_weights, weights, init);
        y = tu_convolve(
            x, w,
            .stride = {per_axis_or_both(o.stride, o.strides[0]), per_axis_or_both(o.stride, o.strides[1])},
            .dilation = {per_axis_or_both(o.dilation, o.dilations[0]),
                         per_axis_or_both(o.dilation, o.dilations[1])},
            .padding = o.padding, .pad = {o.pad[0], o.pad[1], o.pad[2], o.pad[3]}, .groups = o.groups);
        if (!o.no_bias) y = tu_add(y, parameter(x, "conv2d", "bias", o.given_bias, bias, o.bias));
        y = tu_activate(y, o.act);
    }
    return y;
}

/* Assigns running = momentum * running + (1 - momentum) * batch. */
static void update_running(tu_value running, tu_value batch, double momentum) {
    tu_assign(running, tu_add(tu_scale(running, momentum), tu_scale(tu_stop_gradient(batch), 1 - momentum)));
}

static tu_value normalize_by(tu_value x, tu_value mean, tu_value variance, tu_value gamma, tu_value beta,
                             double epsilon) {
    tu_value factor = tu_mul(gamma, tu_rsqrt(tu_shift(variance, epsilon)));
    tu_value y = tu_add(tu_mul(tu_sub(tu_cast(x, tu_value_dtype(mean)), mean), factor), beta);
    return tu_cast(y, tu_value_dtype(x));
}

void tu_set_batch_norm_scope(tu_graph *graph, tu_batch_scope scope) {
    if (graph) graph->batch_scope = (int)scope;
}

/* In .momentum (of the running statistics) 0 means the default and TU_ZERO means 0. */

tu_value tu_batch_norm_with(tu_value x, const tu_batch_norm_options *options) {
    TU__OPTIONS(tu_batch_norm_options, o, options);
    if (!tu_ok(x)) return tu__invalid(x.graph);
    tu_graph *g = x.graph;
    tu_type type = tu_value_type(x);
    if (type.shape.rank < 2 || !tu_dtype_is_float(type.dtype))
        return fail_layer(x, "batch_norm", "floating-point activations [..., c]");
    double epsilon = o.epsilon != 0 ? o.epsilon : 1e-5, momentum = tu__given_or(o.momentum, 0.9);
    if (!(epsilon > 0) || !(momentum >= 0 && momentum <= 1))
        return fail_layer(x, "batch_norm", ".epsilon above 0 and .momentum in [0, 1] (TU_ZERO for 0)");
    tu_shape c = TU_SHAPE(type.shape.dim[type.shape.rank - 1]);
    tu_dtype dtype = tu__statistics_dtype(type.dtype);
    tu_batch_scope scope = o.scope ? o.scope : (tu_batch_scope)g->batch_scope;
    tu_value y = x;
    tu_scope(g, o.name ? o.name : "batch_norm") {
        tu_value gamma = tu_variable(g, "gamma", dtype, c, .init = {TU_INIT_CONSTANT, .a = 1});
        tu_value beta = tu_variable(g, "beta", dtype, c);
        tu_value mean = tu_variable(g, "moving_mean", dtype, c, .frozen = true);
        tu_value variance =
            tu_variable(g, "moving_variance", dtype, c, .init = {TU_INIT_CONSTANT, .a = 1}, .frozen = true);
        if (tu_training(g)) {
            y = tu_batch_normalize(x, gamma, beta, .epsilon = epsilon, .scope = scope);
            update_running(mean, tu_output_of(y, 1), momentum);
            update_running(variance, tu_output_of(y, 2), momentum);
        } else {
            y = normalize_by(x, mean, variance, gamma, beta, epsilon);
        }
        y = tu_activate(y, o.act);
    }
    return y;
}

/* True if the source text of a call's options sets the field .momentum. */
static bool sets_momentum(const char *written) {
    static const char field[] = ".momentum";
    bool quoted = false;
    for (const char *c = written; *c; c++) {
        if (*c == '"' && (c == written || c[-1] != '\\')) quoted = !quoted;
        if (!quoted && strncmp(c, field, sizeof field - 1) == 0 &&
            !isalnum((unsigned char)c[sizeof field - 1]) && c[sizeof field - 1] != '_')
            return true;
    }
    return false;
}

tu_value tu_batch_norm_as_written(tu_value x, const char *written, const tu_batch_norm_options *options) {
    TU__OPTIONS(tu_batch_norm_options, o, options);
    if (tu_ok(x) && o.momentum == 0 && written && sets_momentum(written))
        return fail_layer(
            x, "batch_norm",
            ".momentum other than 0, because 0 means the default of 0.9: omit .momentum for the "
            "default, or set TU_ZERO for no momentum");
    return tu_batch_norm_with(x, options);
}

tu_value tu_layer_norm_with(tu_value x, const tu_layer_norm_options *options) {
    TU__OPTIONS(tu_layer_norm_options, o, options);
    if (!tu_ok(x)) return tu__invalid(x.graph);
    tu_graph *g = x.graph;
    tu_type type = tu_value_type(x);
    int64_t axes = o.axes ? o.axes : 1;
    if (axes < 1 || axes > type.shape.rank || !tu_dtype_is_float(type.dtype))
        return fail_layer(x, "layer_norm", "floating-point activations with at least .axes axes");
    tu_shape shape = tu_shape_of((size_t)axes, type.shape.dim + type.shape.rank - axes);
    tu_dtype dtype = tu__statistics_dtype(type.dtype);
    tu_value y = x;
    tu_scope(g, o.name ? o.name : "layer_norm") {
        tu_value gamma = tu_variable(g, "gamma", dtype, shape, .init = {TU_INIT_CONSTANT, .a = 1});
        tu_value beta = tu_variable(g, "beta", dtype, shape);
        y = tu_layer_normalize(x, gamma, beta, .epsilon = o.epsilon, .axes = axes);
    }
    return y;
}

tu_value tu_embedding_with(tu_value indices, const tu_embedding_options *options) {
    TU__OPTIONS(tu_embedding_options, o, options);
    if (!tu_ok(indices)) return tu__invalid(indices.graph);
    tu_graph *g = indices.graph;
    if (is_given(o.given_weights) && !tu_ok(o.given_weights)) return tu__invalid(g);
    if (!check_given_parameters(indices, "embedding", o.given_weights, o.weights, (tu_value){0}, (tu_init){0},
                                true))
        return tu__invalid(g);
    int64_t entries = size_or_given_axis(o.entries, o.given_weights, 0);
    int64_t width = size_or_given_axis(o.width, o.given_weights, 1);
    if (entries < 1 || width < 1)
        return fail_layer(indices, "embedding", ".entries and .width of at least 1");
    if (o.weights.kind == TU_INIT_DEFAULT) o.weights = (tu_init){.kind = TU_INIT_NORMAL, .b = 0.02};
    tu_value y = indices;
    tu_scope(g, o.name ? o.name : "embedding") {
        tu_type type = {tu_ok(o.given_weights) ? tu_value_dtype(o.given_weights) : o.dtype,
                        TU_SHAPE(entries, width)};
        y = tu_gather(parameter(indices, "embedding", "weights", o.given_weights, type, o.weights), indices,
                      0);
    }
    return y;
}
