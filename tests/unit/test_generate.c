/* Generation: the same tokens with and without a cache, sampling, and networks that cannot generate. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "infer/incremental.h"
#include "infer/sample_token.h"

enum { CONTEXT = 140, VOCABULARY = 60 };

typedef struct network {
    tu_graph *graph;
    tu_state *state;
} network;

/* Weights ten times as large as those that training starts with, so that logits differ. */
static void enlarge_weights(tu_state *state) {
    const char *name;
    tu_type type;
    for (size_t i = 0; i < tu_state_variable_count(state); i++) {
        assert_int_equal(tu_state_variable(state, i, &name, &type), TU_OK);
        if (type.shape.rank < 2) continue;
        size_t count = (size_t)tu_shape_elements(type.shape);
        float *data = calloc(count, sizeof *data);
        assert_int_equal(tu_state_get(state, name, data, count * sizeof *data), TU_OK);
        for (size_t k = 0; k < count; k++) data[k] *= 10;
        assert_int_equal(tu_state_set(state, name, data, count * sizeof *data), TU_OK);
        free(data);
    }
}

static network make_network(int64_t batch) {
    network n;
    assert_int_equal(tu_graph_new(&n.graph), TU_OK);
    tu_value tokens = tu_batch_input(n.graph, "tokens", TU_I32, TU_SHAPE(batch, CONTEXT)), logits;
    if (tu_network_logits(tokens, "char-gpt", &logits, .classes = VOCABULARY, .base = 32) != TU_OK)
        fail_msg("%s", tu_message());
    tu_output(logits, "logits");
    assert_int_equal(tu_state_new(n.graph, &n.state, .seed = 3), TU_OK);
    enlarge_weights(n.state);
    return n;
}

static void free_network(network n) {
    tu_state_free(n.state);
    tu_graph_free(n.graph);
}

static tu_generator *make_generator(network n, bool no_cache) {
    tu_generator *g;
    if (tu_generator_new(n.graph, n.state, &g, .threads = 1, .no_cache = no_cache) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_generator_context(g), CONTEXT);
    assert_int_equal(tu_generator_vocabulary(g), VOCABULARY);
    return g;
}

static void with_a_cache_tokens_are_the_same(void **state) {
    (void)state;
    static const tu_generate_options list[] = {
        {.seed = 1},
        {.seed = 2, .temperature = 0.7, .top_k = 5},
        {.seed = 3, .temperature = 1.5, .top_p = 0.9},
        {.seed = 4, .temperature = TU_ZERO},
        {.seed = 5, .top_k = 20, .top_p = 0.5, .tokens = 50},
    };
    network n = make_network(2);
    tu_generator *cached = make_generator(n, false), *whole = make_generator(n, true);
    int32_t prompt[70], a[CONTEXT], b[CONTEXT];
    for (int i = 0; i < 70; i++) prompt[i] = i * i % VOCABULARY;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        size_t prompts[] = {1, 5, 64, 65, 70}, count = CONTEXT - prompts[i], got;
        tu_generate_options o = list[i];
        o.struct_size = sizeof o;
        assert_int_equal(tu_generate_with(cached, prompt, prompts[i], count, a, &got, &o), TU_OK);
        assert_int_equal(got, count);
        assert_int_equal(tu_generate_with(whole, prompt, prompts[i], count, b, &got, &o), TU_OK);
        assert_int_equal(got, count);
        assert_memory_equal(a, b, count * sizeof *a);
        assert_int_equal(tu_generate_with(cached, prompt, prompts[i], count, b, &got, &o), TU_OK); /* again */
        assert_memory_equal(a, b, count * sizeof *a);
        for (size_t k = 0; k < count; k++) assert_in_range(a[k], 0, (o.tokens ? o.tokens : VOCABULARY) - 1);
    }
    tu_generator_free(cached);
    tu_generator_free(whole);
    free_network(n);
}

static tu_status stop_after_three(void *context, int32_t token) {
    (void)token;
    return ++*(int *)context == 3 ? TU_IO : TU_OK;
}

static void seeds_stops_and_callbacks(void **state) {
    (void)state;
    network n = make_network(1);
    tu_generator *g = make_generator(n, false);
    const int32_t prompt[] = {7};
    int32_t a[50], b[50];
    size_t got;
    int calls = 0;
    assert_int_equal(tu_generate(g, prompt, 1, 50, a, &got, .seed = 1), TU_OK);
    assert_int_equal(tu_generate(g, prompt, 1, 50, b, &got, .seed = 2), TU_OK);
    assert_true(memcmp(a, b, sizeof a) != 0);
    assert_int_equal(tu_generate(g, prompt, 1, 50, b, &got, .seed = 1, .stops = true, .stop = a[4]), TU_OK);
    assert_true(got <= 5 && b[got - 1] == a[4]);
    assert_int_equal(
        tu_generate(g, prompt, 1, 50, b, &got, .seed = 1, .token = stop_after_three, .context = &calls),
        TU_IO);
    assert_int_equal(got, 3);
    assert_int_equal(tu_generate(g, prompt, 1, 0, b, &got), TU_OK);
    assert_int_equal(got, 0);
    tu_generator_free(g);
    tu_generator_free(NULL);
    free_network(n);
}

static void assert_fails(tu_status status, const char *part) {
    assert_int_equal(status, TU_INVALID);
    if (!strstr(tu_message(), part)) fail_msg("'%s' is not in '%s'", part, tu_message());
}

static void wrong_arguments_are_errors(void **state) {
    (void)state;
    network n = make_network(1);
    tu_generator *g = make_generator(n, false);
    int32_t prompt[CONTEXT + 1] = {0}, out[CONTEXT];
    size_t got = 9;
    assert_fails(tu_generate(g, prompt, 0, 1, out, &got), "the prompt is empty: expected at least one token");
    assert_int_equal(got, 0);
    assert_fails(tu_generate(g, prompt, CONTEXT + 1, 0, out, &got),
                 "a prompt of 141 tokens and 0 new ones: expected at most 140 tokens together, the context");
    assert_fails(tu_generate(g, prompt, 100, 41, out, &got), "a prompt of 100 tokens and 41 new ones");
    assert_fails(tu_generate(g, prompt, 1, SIZE_MAX, out, &got), "a prompt of 1 tokens");
    prompt[2] = VOCABULARY;
    assert_fails(tu_generate(g, prompt, 3, 1, out, &got), "token 2 of the prompt is 60: expected 0 to 59");
    prompt[2] = -1;
    assert_fails(tu_generate(g, prompt, 3, 1, out, &got), "token 2 of the prompt is -1");
    assert_fails(tu_generate(g, prompt, 1, 1, out, &got, .temperature = -2),
                 "temperature is -2: expected 0 to 1e6");
    assert_fails(tu_generate(g, prompt, 1, 1, out, &got, .temperature = NAN), "temperature is nan");
    assert_fails(tu_generate(g, prompt, 1, 1, out, &got, .top_k = -1), "top_k is -1");
    assert_fails(tu_generate(g, prompt, 1, 1, out, &got, .top_p = 1.5), "top_p is 1.5");
    assert_fails(tu_generate(g, prompt, 1, 1, out, &got, .tokens = 61), "tokens is 61: expected 1 to 60");
    tu_generator_free(g);
    free_network(n);
}

/* ---- Networks that cannot generate ---- */

static tu_value attention_of(tu_graph *g, bool causal) {
    tu_value tokens = tu_batch_input(g, "tokens", TU_I32, TU_SHAPE(1, 6));
    tu_value x = tu_embedding(tokens, .entries = 5, .width = 12);
    tu_value y = tu_attention(tu_reshape(x, TU_SHAPE(1, 6, 3, 2, 2)), .causal = causal);
    return tu_reshape(y, TU_SHAPE(1, 6, 4));
}

static void mixing_positions_is_refused_by_name(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) {
        tu_graph *g;
        assert_int_equal(tu_graph_new(&g), TU_OK);
        tu_value x = attention_of(g, i != 0);
        const char *part[] = {"attention 'attention' combines positions", "sum 'sum' combines positions",
                              "cumsum 'cumsum' combines positions", "expected an input tokens i32[n,context]",
                              "input 'more' f32[2]: expected one input, tokens i32[1,context]"};
        if (i == 1) x = tu_sub(x, tu_sum(x, .axes = TU_AXES(1), .keep = true));
        if (i == 2) x = tu_cumsum(x, 1);
        if (i == 4) x = tu_add(x, tu_sum(tu_input(g, "more", TU_F32, TU_SHAPE(2))));
        tu_output(i == 3 ? tu_reshape(x, TU_SHAPE(1, 24)) : x, "logits");
        tu_state *s;
        tu_generator *generator;
        assert_int_equal(tu_state_new(g, &s), TU_OK);
        assert_int_equal(tu_generator_new(g, s, &generator), TU_UNSUPPORTED);
        if (!strstr(tu_message(), part[i])) fail_msg("'%s' is not in '%s'", part[i], tu_message());
        assert_null(generator);
        tu_state_free(s);
        tu_graph_free(g);
    }
}

/* ---- Sampling ---- */

static void draws_have_the_probabilities_of_the_logits(void **state) {
    (void)state;
    enum { DRAWS = 20000 };
    const float logits[] = {0, 1, NAN, 2, -INFINITY, 1};
    tu__candidate scratch[6];
    static const struct {
        double temperature;
        int64_t top_k;
        double top_p, expected[6]; /* weights */
    } list[] = {
        {1, 0, 1, {1, 2.71828, 0, 7.38906, 0, 2.71828}},   {0.5, 0, 1, {1, 7.38906, 0, 54.59815, 0, 7.38906}},
        {1, 2, 1, {0, 2.71828, 0, 7.38906, 0, 0}},         {1, 0, 0.5, {0, 0, 0, 1, 0, 0}},
        {1, 0, 0.6, {0, 2.71828, 0, 7.38906, 0, 0}},       {0, 0, 1, {0, 0, 0, 1, 0, 0}},
        {1, 3, 0.9, {0, 2.71828, 0, 7.38906, 0, 2.71828}},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        int counts[6] = {0};
        double total = 0;
        for (int k = 0; k < DRAWS; k++)
            counts[tu__sample_token(logits, 6, list[i].temperature, list[i].top_k, list[i].top_p, 5, k,
                                    scratch)]++;
        for (int k = 0; k < 6; k++) total += list[i].expected[k];
        for (int k = 0; k < 6; k++) {
            double p = list[i].expected[k] / total, deviation = sqrt(p * (1 - p) / DRAWS);
            if (fabs((double)counts[k] / DRAWS - p) > 5 * deviation + 1e-9)
                fail_msg("case %zu: token %d", i, k);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_a_cache_tokens_are_the_same),
        cmocka_unit_test(seeds_stops_and_callbacks),
        cmocka_unit_test(wrong_arguments_are_errors),
        cmocka_unit_test(mixing_positions_is_refused_by_name),
        cmocka_unit_test(draws_have_the_probabilities_of_the_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
