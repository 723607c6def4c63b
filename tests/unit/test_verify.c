/* The verifier finds every violated invariant. Each test builds a valid graph, corrupts one field, and checks that
 * the message contains the node and the problem. */
#include "test.h"

#include <string.h>

#include <tutti/tutti.h>

#include "graph/graph.h"

typedef struct net {
    tu_graph *graph;
    tu_value x, w, constant, product, sum, assign;
} net;

/* x [2,3] times w [4,3], plus a constant; w is assigned its negative. */
static int build(void **state) {
    static net n;
    static const float numbers[4] = {1, 2, 3, 4};
    if (tu_graph_new(&n.graph) != TU_OK) return 1;
    n.x = tu_input(n.graph, "x", TU_F32, TU_SHAPE(2, 3));
    tu_scope(n.graph, "layer") {
        n.w = tu_variable(n.graph, "w", TU_F32, TU_SHAPE(4, 3), .init = {.kind = TU_INIT_HE_NORMAL});
        n.constant = tu_constant(n.graph, TU_F32, TU_SHAPE(4), numbers);
        n.product = tu_matmul(n.x, n.w, .transpose_b = true);
        n.sum = tu_output(tu_add(n.product, n.constant), "y");
        n.assign = tu_assign(n.w, tu_neg(n.w));
    }
    *state = &n;
    return tu_graph_verify(n.graph) == TU_OK ? 0 : 1;
}

static int destroy(void **state) {
    tu_graph_free(((net *)*state)->graph);
    return 0;
}

static tu__node *node_of(tu_value value) {
    return value.graph->nodes[value.node];
}

static void assert_verify_fails(const net *n, const char *node, const char *problem) {
    assert_int_equal(tu_graph_verify(n->graph), TU_INTERNAL);
    if (!strstr(tu_message(), node)) fail_msg("\"%s\" does not contain \"%s\"", tu_message(), node);
    if (!strstr(tu_message(), problem)) fail_msg("\"%s\" does not contain \"%s\"", tu_message(), problem);
}

/* ---- Identity ---- */

static void a_wrong_id_is_found(void **state) {
    net *n = *state;
    node_of(n->product)->id = 77;
    assert_verify_fails(n, "'layer/matmul' (matmul)", "its id is 77");
}

static void a_missing_node_is_found(void **state) {
    net *n = *state;
    tu__node *removed = node_of(n->product);
    n->graph->nodes[n->product.node] = NULL;
    assert_verify_fails(n, "node 3", "the node pointer is NULL");
    n->graph->nodes[n->product.node] = removed;
}

static void a_missing_operation_is_found(void **state) {
    net *n = *state;
    node_of(n->product)->op = NULL;
    assert_verify_fails(n, "node 3", "operation is not in the operation table");
}

static void an_operation_outside_the_table_is_found(void **state) {
    net *n = *state;
    static tu__op copy;
    copy = *node_of(n->product)->op;
    node_of(n->product)->op = &copy;
    assert_verify_fails(n, "node 3", "operation is not in the operation table");
}

static void a_missing_name_is_found(void **state) {
    net *n = *state;
    node_of(n->product)->name = "";
    assert_verify_fails(n, "node 3", "the name is empty");
}

static void a_name_used_twice_is_found(void **state) {
    net *n = *state;
    node_of(n->sum)->name = node_of(n->product)->name;
    assert_verify_fails(n, "node 4", "maps its name to node 3");
}

static void a_name_missing_in_the_table_is_found(void **state) {
    net *n = *state;
    node_of(n->sum)->name = "nowhere";
    assert_verify_fails(n, "'nowhere'", "not in the name table");
}

static void unknown_flags_are_found(void **state) {
    net *n = *state;
    node_of(n->sum)->flags = 0x40;
    assert_verify_fails(n, "'layer/add'", "unknown flags 0x40");
}

static void an_invalid_device_name_is_found(void **state) {
    net *n = *state;
    node_of(n->sum)->device = "cpu 0";
    assert_verify_fails(n, "'layer/add'", "its device 'cpu 0' is not a valid device name");
}

/* ---- Edges ---- */

static void an_edge_to_a_later_node_is_found(void **state) {
    net *n = *state;
    ((tu__edge *)node_of(n->product)->inputs)[1].node = n->sum.node;
    assert_verify_fails(n, "'layer/matmul'", "input 1 is node 4, expected an earlier node");
}

static void an_edge_to_itself_is_found(void **state) {
    net *n = *state;
    ((tu__edge *)node_of(n->product)->inputs)[0].node = n->product.node;
    assert_verify_fails(n, "'layer/matmul'", "input 0 is node 3, expected an earlier node");
}

static void an_edge_to_a_missing_output_is_found(void **state) {
    net *n = *state;
    ((tu__edge *)node_of(n->product)->inputs)[0].output = 1;
    assert_verify_fails(n, "'layer/matmul'", "input 0 is output 1 of 'x', which has 1 outputs");
}

static void a_wrong_number_of_inputs_is_found(void **state) {
    net *n = *state;
    node_of(n->product)->input_count = 1;
    assert_verify_fails(n, "'layer/matmul'", "has 1 inputs: expected 2");
}

static void a_missing_array_of_inputs_is_found(void **state) {
    net *n = *state;
    node_of(n->product)->inputs = NULL;
    assert_verify_fails(n, "'layer/matmul'", "the array of inputs is missing");
}

/* ---- Attributes ---- */

static void missing_attributes_are_found(void **state) {
    net *n = *state;
    node_of(n->product)->attrs = NULL;
    assert_verify_fails(n, "'layer/matmul'", "attributes are missing");
}

static void an_invalid_bool_attribute_is_found(void **state) {
    net *n = *state;
    ((struct tu__matmul_attrs *)node_of(n->product)->attrs)->transpose_b = 2;
    assert_verify_fails(n, "'layer/matmul'", "'transpose_b' is 2: expected 0 or 1");
}

static void an_unknown_element_type_is_found(void **state) {
    net *n = *state;
    ((struct tu__input_attrs *)node_of(n->x)->attrs)->dtype = 99;
    assert_verify_fails(n, "'x' (input)", "'dtype' is 99");
}

static void a_shape_of_too_many_axes_is_found(void **state) {
    net *n = *state;
    ((struct tu__input_attrs *)node_of(n->x)->attrs)->shape.rank = 9;
    assert_verify_fails(n, "'x' (input)", "'shape' is a shape of rank 9");
}

static void a_dimension_beyond_the_rank_is_found(void **state) {
    net *n = *state;
    ((struct tu__input_attrs *)node_of(n->x)->attrs)->shape.dim[7] = 1;
    assert_verify_fails(n, "'x' (input)", "'shape' has a non-zero dimension beyond its rank of 2");
}

static void a_shape_without_elements_is_found(void **state) {
    net *n = *state;
    ((struct tu__input_attrs *)node_of(n->x)->attrs)->shape.dim[1] = 0;
    assert_verify_fails(n, "'x' (input)", "'shape' is [2,0]");
}

/* ---- Types ---- */

static void a_shape_that_differs_from_the_inferred_one_is_found(void **state) {
    net *n = *state;
    ((tu_type *)node_of(n->product)->outputs)[0].shape.dim[1] = 5;
    assert_verify_fails(n, "'layer/matmul'", "type f32[2,5], but the inferred type is f32[2,4]");
}

static void an_element_type_that_differs_from_the_inferred_one_is_found(void **state) {
    net *n = *state;
    ((tu_type *)node_of(n->product)->outputs)[0].dtype = TU_F64;
    assert_verify_fails(n, "'layer/matmul'", "type f64[2,4], but the inferred type is f32[2,4]");
}

static void an_invalid_type_is_found(void **state) {
    net *n = *state;
    ((tu_type *)node_of(n->product)->outputs)[0].dtype = (tu_dtype)42;
    assert_verify_fails(n, "'layer/matmul'", "has the invalid type");
}

static void inputs_for_which_type_inference_fails_are_found(void **state) {
    net *n = *state;
    ((struct tu__matmul_attrs *)node_of(n->product)->attrs)->transpose_b = 0;
    assert_verify_fails(n, "'layer/matmul'", "type inference fails: matmul");
}

static void a_wrong_number_of_outputs_is_found(void **state) {
    net *n = *state;
    node_of(n->product)->output_count = 2;
    assert_verify_fails(n, "'layer/matmul'", "has 2 outputs: expected 1");
}

/* ---- Data and custom operations ---- */

static void a_constant_without_data_is_found(void **state) {
    net *n = *state;
    node_of(n->constant)->data = NULL;
    assert_verify_fails(n, "'layer/constant'", "a constant needs data");
}

static void a_non_constant_with_data_is_found(void **state) {
    net *n = *state;
    node_of(n->sum)->data = n;
    assert_verify_fails(n, "'layer/add'", "only a constant may have data");
}

static void a_built_in_operation_with_a_tu_custom_op_is_found(void **state) {
    net *n = *state;
    static const tu_custom_op custom = {.name = "custom"};
    node_of(n->sum)->custom = &custom;
    assert_verify_fails(n, "'layer/add'", "only a custom operation may have a tu_custom_op");
}

static void a_bool_that_is_neither_0_nor_1_is_found(void **state) {
    net *n = *state;
    tu_value c = tu_constant(n->graph, TU_BOOL, TU_SHAPE(3), (const unsigned char[]){0, 1, 1});
    assert_int_equal(tu_graph_verify(n->graph), TU_OK);
    ((unsigned char *)node_of(c)->data)[2] = 7;
    assert_verify_fails(n, "'constant'", "element 2 of its data is 7");
}

static void tu_constant_rejects_bools_that_are_neither_0_nor_1(void **state) {
    net *n = *state;
    assert_false(tu_ok(tu_constant(n->graph, TU_BOOL, TU_SHAPE(3), (const unsigned char[]){0, 1, 7})));
    assert_int_equal(tu_graph_verify(n->graph), TU_INVALID);
    assert_non_null(strstr(tu_message(), "constant of bool[3]: element 2 is 7"));
}

/* ---- Assignments ---- */

static void an_assignment_to_a_non_variable_is_found(void **state) {
    net *n = *state;
    tu_value z = tu_input(n->graph, "z", TU_F32, TU_SHAPE(4, 3));
    tu__apply(ASSIGN, NULL, z, n->w);
    assert_verify_fails(n, "'assign'", "the target is input 'z': expected a variable");
}

static void a_second_assignment_is_found(void **state) {
    net *n = *state;
    tu__apply(ASSIGN, NULL, n->w, n->w);
    assert_verify_fails(n, "'assign'", "variable 'layer/w' is assigned twice");
}

/* ---- Graph outputs: the values named by tu_output (graph->results) ---- */

static void a_graph_output_of_a_missing_node_is_found(void **state) {
    net *n = *state;
    n->graph->results[0].value.node = 1000;
    assert_verify_fails(n, "result 'y'", "node 1000, which does not exist");
}

static void a_graph_output_with_an_invalid_output_index_is_found(void **state) {
    net *n = *state;
    n->graph->results[0].value.output = 3;
    assert_verify_fails(n, "result 'y'", "output 3 of 'layer/add', which has 1 outputs");
}

static void two_graph_outputs_with_one_name_are_found(void **state) {
    net *n = *state;
    tu_output(n->product, "z");
    n->graph->results[1].name = "y";
    assert_verify_fails(n, "graph", "two results are named 'y'");
}

static void a_graph_output_without_a_name_is_found(void **state) {
    net *n = *state;
    n->graph->results[0].name = NULL;
    assert_verify_fails(n, "result 0", "has no name");
}

/* ---- Graphs ---- */

static void an_error_while_building_is_reported(void **state) {
    net *n = *state;
    tu_add(n->x, n->w);
    assert_int_equal(tu_graph_verify(n->graph), TU_INVALID);
    assert_non_null(strstr(tu_message(), "add"));
}

static void a_null_graph_is_rejected(void **state) {
    (void)state;
    assert_int_equal(tu_graph_verify(NULL), TU_INVALID);
}

static void an_empty_graph_is_valid(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    assert_int_equal(tu_graph_verify(g), TU_OK);
    tu_graph_free(g);
}

#define WITH_GRAPH(test) cmocka_unit_test_setup_teardown(test, build, destroy)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_GRAPH(a_wrong_id_is_found),
        WITH_GRAPH(a_missing_node_is_found),
        WITH_GRAPH(a_missing_operation_is_found),
        WITH_GRAPH(an_operation_outside_the_table_is_found),
        WITH_GRAPH(a_missing_name_is_found),
        WITH_GRAPH(a_name_used_twice_is_found),
        WITH_GRAPH(a_name_missing_in_the_table_is_found),
        WITH_GRAPH(unknown_flags_are_found),
        WITH_GRAPH(an_invalid_device_name_is_found),
        WITH_GRAPH(an_edge_to_a_later_node_is_found),
        WITH_GRAPH(an_edge_to_itself_is_found),
        WITH_GRAPH(an_edge_to_a_missing_output_is_found),
        WITH_GRAPH(a_wrong_number_of_inputs_is_found),
        WITH_GRAPH(a_missing_array_of_inputs_is_found),
        WITH_GRAPH(missing_attributes_are_found),
        WITH_GRAPH(an_invalid_bool_attribute_is_found),
        WITH_GRAPH(an_unknown_element_type_is_found),
        WITH_GRAPH(a_shape_of_too_many_axes_is_found),
        WITH_GRAPH(a_dimension_beyond_the_rank_is_found),
        WITH_GRAPH(a_shape_without_elements_is_found),
        WITH_GRAPH(a_shape_that_differs_from_the_inferred_one_is_found),
        WITH_GRAPH(an_element_type_that_differs_from_the_inferred_one_is_found),
        WITH_GRAPH(an_invalid_type_is_found),
        WITH_GRAPH(inputs_for_which_type_inference_fails_are_found),
        WITH_GRAPH(a_wrong_number_of_outputs_is_found),
        WITH_GRAPH(a_constant_without_data_is_found),
        WITH_GRAPH(a_non_constant_with_data_is_found),
        WITH_GRAPH(a_built_in_operation_with_a_tu_custom_op_is_found),
        WITH_GRAPH(a_bool_that_is_neither_0_nor_1_is_found),
        WITH_GRAPH(tu_constant_rejects_bools_that_are_neither_0_nor_1),
        WITH_GRAPH(an_assignment_to_a_non_variable_is_found),
        WITH_GRAPH(a_second_assignment_is_found),
        WITH_GRAPH(a_graph_output_of_a_missing_node_is_found),
        WITH_GRAPH(a_graph_output_with_an_invalid_output_index_is_found),
        WITH_GRAPH(two_graph_outputs_with_one_name_are_found),
        WITH_GRAPH(a_graph_output_without_a_name_is_found),
        WITH_GRAPH(an_error_while_building_is_reported),
        cmocka_unit_test(a_null_graph_is_rejected),
        cmocka_unit_test(an_empty_graph_is_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
