/* char-gpt and the sizes of gpt2: decoders that predict the next token at every position (Radford et al. 2019).
 *
 * A block adds attention and a perceptron to its input, each after a layer normalisation. The weights of the token
 * embedding are those of the logits too. Initialisation is GPT-2's: a deviation of 0.02, 0.01 for positions, and for the
 * layers that add to the residual stream 0.02 divided by the root of their number, so that the stream's variance does not
 * grow with the depth. Variables are named as in OpenAI's release: wte, wpe, h0/ln_1, h0/attn/c_attn, … Our weights are
 * [units, n], theirs [n, units]. */
#include <math.h>
#include <stdio.h>

#include "network/network.h"

typedef struct gpt {
    int64_t layers, head_width;
} gpt;

static tu_init normal(double deviation) {
    return (tu_init){TU_INIT_NORMAL, .b = deviation};
}

/* x [n, t, width] -> [n, t, units] */
static tu_value project(tu_value x, int64_t units, double deviation, tu_activation act, const char *name) {
    return tu_dense(x, .units = units, .act = act, .weights = normal(deviation), .name = name);
}

/* x [n, t, width] -> [n, t, width] */
static tu_value attend(tu_value x, int64_t head_width, double output_deviation) {
    tu_shape s = tu_value_shape(x);
    int64_t width = s.dim[2];
    tu_value y = x;
    tu_scope(x.graph, "attn") {
        tu_value qkv = project(x, 3 * width, 0.02, TU_LINEAR, "c_attn");
        qkv = tu_reshape(qkv, TU_SHAPE(s.dim[0], s.dim[1], 3, width / head_width, head_width));
        y = tu_reshape(tu_attention(qkv, .causal = true), s);
        y = project(y, width, output_deviation, TU_LINEAR, "c_proj");
    }
    return y;
}

static tu_value transform(tu_value x, double output_deviation) {
    int64_t width = tu_value_shape(x).dim[2];
    tu_value y = x;
    tu_scope(x.graph, "mlp") {
        y = project(x, 4 * width, 0.02, TU_GELU_TANH, "c_fc");
        y = project(y, width, output_deviation, TU_LINEAR, "c_proj");
    }
    return y;
}

/* tokens i32 [n, t] -> logits [n, t, classes] */
static tu_value build(tu_value tokens, const tu_network_options *o, gpt model) {
    tu_graph *g = tokens.graph;
    int64_t time = tu_value_shape(tokens).dim[1], width = o->base;
    double output_deviation = 0.02 / sqrt(2 * (double)model.layers);
    tu_value wte = tu_variable(g, "wte", o->dtype, TU_SHAPE(o->classes, width), .init = normal(0.02));
    tu_value wpe = tu_variable(g, "wpe", o->dtype, TU_SHAPE(time, width), .init = normal(0.01));
    tu_value x = tu_add(tu_gather(wte, tokens, 0), wpe);
    for (int64_t i = 0; i < model.layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "h%d", (int)i);
        tu_scope(g, name) {
            x = tu_add(x, attend(tu_layer_norm(x, .name = "ln_1"), model.head_width, output_deviation));
            x = tu_add(x, transform(tu_layer_norm(x, .name = "ln_2"), output_deviation));
        }
    }
    x = tu_layer_norm(x, .name = "ln_f");
    return tu_dense(x, .given_weights = wte, .no_bias = true, .name = "logits");
}

/* Returns the width of a head: `preferred`, or the whole width if that is no multiple of it. */
static int64_t head_width(int64_t width, int64_t preferred) {
    return width % preferred == 0 ? preferred : width;
}

static tu_value build_char_gpt(tu_value tokens, const tu_network_options *o) {
    return build(tokens, o, (gpt){.layers = 4, .head_width = head_width(o->base, 32)});
}

const tu_network_definition tu__char_gpt = {
    TU__BUILT_IN,
    .name = "char-gpt",
    .summary = "GPT of 4 layers for texts as bytes, context 128",
    .defaults = TU_OPTIONS(tu_network_options, .classes = 256, .base = 128, .context = 128),
    .build = build_char_gpt,
    .input = TU_TAKES_TOKENS,
};

/* The four sizes of GPT-2, with heads of 64 channels. */
#define GPT2(id, size, depth, width)                                                                         \
    static tu_value build_##id(tu_value tokens, const tu_network_options *o) {                               \
        return build(tokens, o, (gpt){.layers = (depth), .head_width = head_width(o->base, 64)});            \
    }                                                                                                        \
    const tu_network_definition tu__##id = {                                                                 \
        TU__BUILT_IN,                                                                                        \
        .name = "gpt2-" size,                                                                                \
        .summary = "GPT-2 of " #depth " layers (Radford et al. 2019), context 1024",                         \
        .defaults = TU_OPTIONS(tu_network_options, .classes = 50304, .base = (width), .context = 1024),      \
        .build = build_##id,                                                                                 \
        .input = TU_TAKES_TOKENS,                                                                            \
    };
GPT2(gpt2_124m, "124M", 12, 768)
GPT2(gpt2_355m, "355M", 24, 1024)
GPT2(gpt2_774m, "774M", 36, 1280)
GPT2(gpt2_1558m, "1558M", 48, 1600)
