/* Printed graphs (text, DOT, JSON) and the summary, compared with expected output for small graphs. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "graph/graph.h"
#include "graph/summary.h"

static char *printed; /* the latest output; freed by the next capture() */

static const char *capture(const tu_graph *graph, int format) {
    size_t size;
    free(printed);
    FILE *file = open_memstream(&printed, &size);
    assert_non_null(file);
    tu_status status =
        format < 0 ? tu_graph_summary(graph, file) : tu_graph_print(graph, (tu_graph_format)format, file);
    if (status != TU_OK) fail_msg("%s", tu_message());
    fclose(file);
    return printed;
}

static void assert_has(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("the output does not contain \"%s\":\n%s", part, text);
}

static tu_graph *new_graph(void) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    return g;
}

static tu_graph *small_graph(void) {
    tu_graph *g = new_graph();
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(2, 4, 4, 1)), y = x;
    tu_scope(g, "conv1") {
        tu_value w =
            tu_variable(g, "weights", TU_F32, TU_SHAPE(3, 3, 3, 1), .init = {TU_INIT_NORMAL, .b = 0.05});
        y = tu_convolve(x, w);
    }
    tu_value k = tu_top_k(tu_flatten(y), 2, 1);
    tu_output(tu_output_of(k, 1), "best");
    return g;
}

/* ---- Text ---- */

static void text_has_one_node_per_line(void **state) {
    (void)state;
    tu_graph *g = small_graph();
    assert_string_equal(
        capture(g, TU_GRAPH_TEXT),
        "%0 x = input() batched=true : f32[2,4,4,1]\n"
        "%1 conv1/weights = variable() init=normal b=0.05 : f32[3,3,3,1]\n"
        "%2 conv1/conv2d = conv2d(%0, %1) stride=[1,1] pad=[1,1,1,1] dilation=[1,1] groups=1 : f32[2,4,4,3]\n"
        "%3 reshape = reshape(%2) : f32[2,48]\n"
        "%4 top_k = top_k(%3) axis=1 k=2 : (f32[2,2], i64[2,2])\n"
        "result best = %4:1\n");
    tu_graph_free(g);
}

static void attributes_of_every_kind_are_readable(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2, 3, 4));
    tu_sum(x, .axes = TU_AXES(0, 2), .keep = true);
    tu_cast(x, TU_BF16);
    tu_transpose(x, 2, 0, 1);
    tu_clip(x, -1.0 / 0.0, 0.1);
    tu_slice(x, 1, 1, TU_END, 2);
    tu_recompute(g) tu_neg(x);
    tu_with_device(g, "cpu:0.1") tu_exp(x);
    const char *text = capture(g, TU_GRAPH_TEXT);
    assert_has(text, "sum(%0) axes=[0,2] keep=true : f32[1,3,1]\n");
    assert_has(text, "cast(%0) : bf16[2,3,4]\n");
    assert_has(text, "transpose(%0) permutation=[2,0,1] : f32[4,2,3]\n");
    assert_has(text, "clip(%0) low=-inf high=0.1 : f32[2,3,4]\n");
    assert_has(text, "slice(%0) begin=[0,1,0] end=[2,3,4] step=[1,2,1] : f32[2,1,4]\n");
    assert_has(text, "neg(%0) recompute : f32[2,3,4]\n");
    assert_has(text, "exp(%0) @cpu:0.1 : f32[2,3,4]\n");
    assert_has(capture(g, TU_GRAPH_JSON), "\"op\":\"exp\",\"device\":\"cpu:0.1\",");
    tu_graph_free(g);
}

static void constants_show_their_first_numbers(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_constant(g, TU_F32, TU_SHAPE(3), (const float[]){1, -2.5f, 0});
    tu_constant(g, TU_U8, TU_SHAPE(10), "abcdefghij");
    tu_constant(g, TU_BOOL, TU_SCALAR, &(bool){true});
    const char *text = capture(g, TU_GRAPH_TEXT);
    assert_has(text, "%0 constant = constant() value=[1,-2.5,0] : f32[3]\n");
    assert_has(text, "%1 constant_1 = constant() value=[97,98,99,100,101,102,103,104,...] : u8[10]\n");
    assert_has(text, "value=[1] : bool[]\n");
    tu_graph_free(g);
}

static void an_error_is_printed_after_the_nodes(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2)), y = tu_input(g, "y", TU_F32, TU_SHAPE(3));
    tu_add(x, y);
    const char *text = capture(g, TU_GRAPH_TEXT);
    assert_has(text, "%1 y = input() : f32[3]\n");
    assert_has(text, "mistake: add");
    assert_has(capture(g, TU_GRAPH_JSON), "\"mistake\":\"add");
    tu_graph_free(g);
}

/* ---- DOT ---- */

/* Braces outside of quotes are balanced, quotes are closed. */
static void assert_well_formed(const char *dot) {
    int depth = 0;
    bool quoted = false;
    for (const char *c = dot; *c; c++) {
        if (quoted && *c == '\\') {
            c++;
        } else if (*c == '"') {
            quoted = !quoted;
        } else if (!quoted) {
            depth += (*c == '{') - (*c == '}');
        }
        assert_true(depth >= 0 && *c);
    }
    assert_int_equal(depth, 0);
    assert_false(quoted);
}

static void dot_has_scopes_shapes_and_types(void **state) {
    (void)state;
    tu_graph *g = small_graph();
    const char *dot = capture(g, TU_GRAPH_DOT);
    assert_well_formed(dot);
    assert_has(dot, "digraph tutti {");
    assert_has(dot, "subgraph \"cluster_conv1\" {\n    label=\"conv1\";\n");
    assert_has(dot, "n1 [label=\"weights\\nvariable\", tooltip=\"%1 conv1/weights = variable()");
    assert_has(dot, "shape=cylinder");
    assert_has(dot, "shape=parallelogram");
    assert_has(dot, "n0 -> n2 [label=\"f32[2,4,4,1]\", headlabel=\"0\"];");
    assert_has(dot, "r0 [label=\"best\"");
    assert_has(dot, "n4 -> r0 [label=\"i64[2,2]\"];");
    tu_graph_free(g);
}

static void dot_opens_and_closes_nested_scopes(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "a-x", TU_F32, TU_SCALAR); /* sorts between "a" and "a/" */
    tu_scope(g, "a") {
        tu_neg(x);
        tu_scope(g, "b") tu_scope(g, "c") tu_exp(x);
        tu_scope(g, "d") tu_log(x);
    }
    tu_scope(g, "b") tu_sin(x);
    const char *dot = capture(g, TU_GRAPH_DOT);
    assert_well_formed(dot);
    assert_has(dot, "subgraph \"cluster_a/b/c\" {\n        label=\"c\";\n        n2 [label=\"exp\"");
    int boxes = 0;
    for (const char *c = dot; (c = strstr(c, "subgraph")); c++) boxes++;
    assert_int_equal(boxes, 5); /* a, a/b, a/b/c, a/d, b: each opened once */
    tu_graph_free(g);
}

static void dot_escapes_names(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "quote\"back\\slash{}", TU_F32, TU_SCALAR);
    char scope[] = "s";
    for (int i = 0; i < 100; i++) tu_scope_begin(g, scope);
    tu_neg(x);
    for (int i = 0; i < 100; i++) tu_scope_end(g);
    tu_output(x, "\"result\"");
    const char *dot = capture(g, TU_GRAPH_DOT);
    assert_well_formed(dot);
    assert_has(dot, "label=\"quote\\\"back\\\\slash{}\\ninput\"");
    tu_graph_free(g);
}

/* ---- JSON ---- */

static void json_contains_all_fields(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2));
    tu_value c = tu_constant(g, TU_I64, TU_SHAPE(2), (const int64_t[]){9007199254740993, -1});
    tu_output(tu_mul(x, tu_cast(c, TU_F32)), "y");
    assert_string_equal(
        capture(g, TU_GRAPH_JSON),
        "{\"training\":true,\"nodes\":["
        "{\"id\":0,\"name\":\"x\",\"op\":\"input\",\"inputs\":[],\"attributes\":{\"dtype\":\"f32\",\"shape\":[2],\"batched\":false},"
        "\"outputs\":[{\"dtype\":\"f32\",\"shape\":[2]}]},"
        "{\"id\":1,\"name\":\"constant\",\"op\":\"constant\",\"inputs\":[],\"attributes\":{\"dtype\":\"i64\",\"shape\":[2]},"
        "\"outputs\":[{\"dtype\":\"i64\",\"shape\":[2]}],\"values\":[9007199254740993,-1]},"
        "{\"id\":2,\"name\":\"cast\",\"op\":\"cast\",\"inputs\":[{\"node\":1,\"output\":0}],\"attributes\":{\"dtype\":\"f32\"},"
        "\"outputs\":[{\"dtype\":\"f32\",\"shape\":[2]}]},"
        "{\"id\":3,\"name\":\"mul\",\"op\":\"mul\",\"inputs\":[{\"node\":0,\"output\":0},{\"node\":2,\"output\":0}],\"attributes\":{},"
        "\"outputs\":[{\"dtype\":\"f32\",\"shape\":[2]}]}],"
        "\"results\":[{\"name\":\"y\",\"node\":3,\"output\":0}]}\n");
    tu_graph_free(g);
}

static void an_empty_graph_prints(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    assert_string_equal(capture(g, TU_GRAPH_TEXT), "");
    assert_string_equal(capture(g, TU_GRAPH_JSON), "{\"training\":true,\"nodes\":[],\"results\":[]}\n");
    assert_well_formed(capture(g, TU_GRAPH_DOT));
    assert_has(capture(g, -1), "0 nodes; 0 variables of 0 B\n");
    tu_graph_free(g);
}

static void a_full_disk_is_reported(void **state) {
    (void)state;
    tu_graph *g = small_graph();
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    setvbuf(full, NULL, _IONBF, 0);
    for (int format = TU_GRAPH_TEXT; format <= TU_GRAPH_JSON; format++) {
        assert_int_equal(tu_graph_print(g, (tu_graph_format)format, full), TU_IO);
        assert_has(tu_message(), "cannot write the graph: No space left on device");
    }
    assert_int_equal(tu_graph_summary(g, full), TU_IO);
    fclose(full);
    assert_int_equal(tu_graph_print(g, (tu_graph_format)9, stdout), TU_INVALID);
    assert_int_equal(tu_graph_print(NULL, TU_GRAPH_TEXT, stdout), TU_INVALID);
    tu_graph_free(g);
}

/* ---- The summary ---- */

static void the_summary_is_a_table_of_layers(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(4, 10));
    tu_value y = tu_dense(x, .units = 20, .act = TU_RELU, .name = "hidden");
    tu_scope(g, "top") y = tu_dense(tu_scale(y, 0.5), .units = 3, .name = "logits");
    assert_string_equal(capture(g, -1), "layer       output        parameters      FLOPs  activations\n"
                                        "------------------------------------------------------------\n"
                                        "x           f32[4,10]              0        0          160 B\n"
                                        "hidden      f32[4,20]            220     1.76 K        960 B\n"
                                        "top/mul     f32[4,20]              0       80          324 B\n"
                                        "top/logits  f32[4,3]              63      492           96 B\n"
                                        "------------------------------------------------------------\n"
                                        "total                            283     2.33 K     1.50 KiB\n"
                                        "12 nodes; 4 variables of 1.11 KiB\n");
    tu_graph_free(g);
}

static void totals_are_counted(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(4, 10));
    tu_value w = tu_variable(g, "w", TU_F32, TU_SHAPE(10, 5)), y = tu_matmul(x, w);
    tu_variable(g, "counter", TU_I64, TU_SCALAR, .frozen = true);
    tu_assign(w, tu_neg(w));
    tu_reshape(y, TU_SHAPE(20));
    tu_graph_totals t = TU_SIZED(tu_graph_totals);
    assert_int_equal(tu_graph_total(g, &t), TU_OK);
    assert_int_equal(t.nodes, 7);
    assert_int_equal(t.variables, 2);
    assert_int_equal(t.parameters, 50);
    assert_int_equal(t.variable_bytes, 50 * 4 + 8);
    assert_int_equal(t.activation_bytes, (40 + 20 + 50) * 4); /* x, y, -w; views need no memory */
    assert_int_equal(t.flops, 2 * 4 * 10 * 5 + 50);
    tu_graph_free(g);
}

static void totals_saturate(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F64, TU_SHAPE(1 << 20, 1 << 20, 1 << 7));
    for (int i = 0; i < 10000; i++) tu_neg(x);
    tu_graph_totals t = TU_SIZED(tu_graph_totals);
    assert_int_equal(tu_graph_total(g, &t), TU_OK);
    assert_true(t.activation_bytes == INT64_MAX);
    assert_has(capture(g, -1), "8 EiB");
    tu_graph_free(g);
}

static int free_text(void **state) {
    (void)state;
    free(printed);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_has_one_node_per_line),
        cmocka_unit_test(attributes_of_every_kind_are_readable),
        cmocka_unit_test(constants_show_their_first_numbers),
        cmocka_unit_test(an_error_is_printed_after_the_nodes),
        cmocka_unit_test(dot_has_scopes_shapes_and_types),
        cmocka_unit_test(dot_opens_and_closes_nested_scopes),
        cmocka_unit_test(dot_escapes_names),
        cmocka_unit_test(json_contains_all_fields),
        cmocka_unit_test(an_empty_graph_prints),
        cmocka_unit_test(a_full_disk_is_reported),
        cmocka_unit_test(the_summary_is_a_table_of_layers),
        cmocka_unit_test(totals_are_counted),
        cmocka_unit_test(totals_saturate),
    };
    return cmocka_run_group_tests(tests, NULL, free_text);
}
