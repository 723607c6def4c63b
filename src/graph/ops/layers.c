/* Layers: operations together with the variables they own.
 *
 * Each opens a scope of its own name, makes its variables there and applies ordinary operations; nothing here is
 * known to the table, the gradients or the devices. */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include <tutti/layers.h>

#include "base/number.h"
#include "base/text.h"
#include "graph/graph.h"

static tu_value refuse(tu_value x, const char *layer, const char *expected) {
    return tu__graph_fail(x.graph, TU_INVALID, "%s of '%s' %s: expected %s", layer, tu_value_name(x),
                          tu__type_string(tu_value_type(x)), expected);
}

/* An option's value, and what was expected of it. */
static tu_value refuse_option(tu_value x, const char *layer, const char *option, int64_t given,
                              const char *expected) {
    return tu__graph_fail(x.graph, TU_INVALID, "%s of '%s' %s: %s is %" PRId64 ", expected %s", layer,
                          tu_value_name(x), tu__type_string(tu_value_type(x)), option, given, expected);
}

/* ReLU halves the variance that Xavier's scheme counts on (He et al. 2015). */
static tu_init weights_or_default(tu_init given, tu_activation act, int64_t fan_in, int64_t fan_out) {
    bool rectifies = act == TU_RELU || act == TU_GELU || act == TU_GELU_TANH || act == TU_SILU;
    if (given.kind == TU_INIT_DEFAULT) given.kind = rectifies ? TU_INIT_HE_NORMAL : TU_INIT_XAVIER_UNIFORM;
    if (!given.fan_in) given.fan_in = fan_in;
    if (!given.fan_out) given.fan_out = fan_out;
    return given;
}

tu_value tu_dense_with(tu_value x, const tu_dense_options *options) {
    TU__OPTIONS(tu_dense_options, o, options);
    if (!tu_ok(x)) return tu__invalid(x.graph);
    tu_graph *g = x.graph;
    tu_type type = tu_value_type(x);
    if (type.shape.rank < 2 || !tu_dtype_is_float(type.dtype))
        return refuse(x, "dense", "floating-point rows [..., n] (tu_flatten makes them)");
    if (o.units < 1) return refuse_option(x, "dense", ".units", o.units, "at least 1");
    int64_t n = type.shape.dim[type.shape.rank - 1];
    tu_value y = x;
    tu_scope(g, o.name ? o.name : "dense") {
        tu_init init = weights_or_default(o.weights, o.act, n, o.units);
        tu_value w = tu_variable(g, "weights", type.dtype, TU_SHAPE(o.units, n), .init = init);
        y = tu_matmul(x, w, .transpose_b = true);
        if (!o.no_bias) y = tu_add(y, tu_variable(g, "bias", type.dtype, TU_SHAPE(o.units), .init = o.bias));
        y = tu_activate(y, o.act);
    }
    return y;
}

tu_value tu_conv2d_with(tu_value x, const tu_conv2d_options *options) {
    TU__OPTIONS(tu_conv2d_options, o, options);
    if (!tu_ok(x)) return tu__invalid(x.graph);
    tu_graph *g = x.graph;
    tu_type type = tu_value_type(x);
    if (type.shape.rank != 4 || !tu_dtype_is_float(type.dtype))
        return refuse(x, "conv2d", "floating-point images [n,h,w,c]");
    int64_t kh = o.height ? o.height : o.size, kw = o.width ? o.width : o.size;
    int64_t groups = o.groups ? o.groups : 1, channels = type.shape.dim[3];
    const int64_t most = 1 << 20; /* products of any three stay far from overflow */
    if (o.filters < 1 || kh < 1 || kw < 1 || o.filters > most || kh > most || kw > most)
        return refuse(x, "conv2d", ".filters and .size (or .height and .width) from 1 to 2^20");
    if (groups < 1 || channels % groups || o.filters % groups)
        return refuse(x, "conv2d", ".groups that divide the channels and the filters");
    int64_t receptive = kh * kw, in = channels / groups;
    tu_value y = x;
    tu_scope(g, o.name ? o.name : "conv2d") {
        tu_init init = weights_or_default(o.weights, o.act, receptive * in, receptive * o.filters / groups);
        tu_value w = tu_variable(g, "weights", type.dtype, TU_SHAPE(o.filters, kh, kw, in), .init = init);
        y = tu_convolve(x, w, .stride = {o.stride, o.stride}, .dilation = {o.dilation, o.dilation},
                        .padding = o.padding, .pad = {o.pad[0], o.pad[1], o.pad[2], o.pad[3]},
                        .groups = o.groups);
        if (!o.no_bias)
            y = tu_add(y, tu_variable(g, "bias", type.dtype, TU_SHAPE(o.filters), .init = o.bias));
        y = tu_activate(y, o.act);
    }
    return y;
}

/* running = momentum * running + (1 - momentum) * batch */
static void update_running(tu_value running, tu_value batch, double momentum) {
    tu_assign(running, tu_add(tu_scale(running, momentum), tu_scale(tu_stop_gradient(batch), 1 - momentum)));
}

static tu_value normalize_by(tu_value x, tu_value mean, tu_value variance, tu_value gamma, tu_value beta,
                             double epsilon) {
    tu_value factor = tu_mul(gamma, tu_rsqrt(tu_shift(variance, epsilon)));
    tu_value y = tu_add(tu_mul(tu_sub(tu_cast(x, tu_value_dtype(mean)), mean), factor), beta);
    return tu_cast(y, tu_value_dtype(x));
}

void tu_set_batch_scope(tu_graph *graph, tu_batch_scope scope) {
    if (graph) graph->batch_scope = (int)scope;
}

/* The running statistics' momentum as it is used: options cannot say zero by zero. */
static double momentum_of(const tu_batch_norm_options *o) {
    if (o->momentum == TU_ZERO) return 0;
    return o->momentum != 0 ? o->momentum : 0.9;
}

tu_value tu_batch_norm_with(tu_value x, const tu_batch_norm_options *options) {
    TU__OPTIONS(tu_batch_norm_options, o, options);
    if (!tu_ok(x)) return tu__invalid(x.graph);
    tu_graph *g = x.graph;
    tu_type type = tu_value_type(x);
    if (type.shape.rank < 2 || !tu_dtype_is_float(type.dtype))
        return refuse(x, "batch_norm", "floating-point activations [..., c]");
    double epsilon = o.epsilon != 0 ? o.epsilon : 1e-5, momentum = momentum_of(&o);
    if (!(epsilon > 0) || !(momentum >= 0 && momentum <= 1))
        return refuse(x, "batch_norm", ".epsilon above 0 and .momentum in [0, 1] (TU_ZERO for 0)");
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

/* Whether a call's options, as they were written, give the field ".momentum" a value. */
static bool gives_momentum(const char *written) {
    static const char field[] = ".momentum";
    bool quoted = false;
    for (const char *at = written; *at; at++) {
        if (*at == '"' && (at == written || at[-1] != '\\')) quoted = !quoted;
        if (!quoted && strncmp(at, field, sizeof field - 1) == 0 &&
            !isalnum((unsigned char)at[sizeof field - 1]) && at[sizeof field - 1] != '_')
            return true;
    }
    return false;
}

tu_value tu_batch_norm_as_written(tu_value x, const char *written, const tu_batch_norm_options *options) {
    TU__OPTIONS(tu_batch_norm_options, o, options);
    if (tu_ok(x) && o.momentum == 0 && written && gives_momentum(written))
        return refuse(x, "batch_norm",
                      "a .momentum other than 0, which means the default of 0.9: leave it out for the "
                      "default, or give TU_ZERO for none");
    return tu_batch_norm_with(x, options);
}

tu_value tu_layer_norm_with(tu_value x, const tu_layer_norm_options *options) {
    TU__OPTIONS(tu_layer_norm_options, o, options);
    if (!tu_ok(x)) return tu__invalid(x.graph);
    tu_graph *g = x.graph;
    tu_type type = tu_value_type(x);
    int64_t axes = o.axes ? o.axes : 1;
    if (axes < 1 || axes > type.shape.rank || !tu_dtype_is_float(type.dtype))
        return refuse(x, "layer_norm", "floating-point activations with at least .axes axes");
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
    if (o.entries < 1 || o.width < 1)
        return refuse(indices, "embedding", ".entries and .width of at least 1");
    if (o.weights.kind == TU_INIT_DEFAULT) o.weights = (tu_init){.kind = TU_INIT_NORMAL, .b = 0.02};
    tu_value y = indices;
    tu_scope(g, o.name ? o.name : "embedding") {
        tu_value table = tu_variable(g, "weights", o.dtype, TU_SHAPE(o.entries, o.width), .init = o.weights);
        y = tu_gather(table, indices, 0);
    }
    return y;
}
