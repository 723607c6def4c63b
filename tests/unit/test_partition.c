/* Tests of the passes place and partition: every node has a device, and edges between devices have copies. */
#include "interpret.h"

#include "base/alloc.h"

static const char *const two_devices[] = {"cpu:0.0", "cpu:0.1"};
static const char *const four_devices[] = {"ref:0", "cpu:0.0", "cpu:0.1", "null:2"};

static tu_graph *new_graph(void) {
    tu_graph *graph;
    assert_int_equal(tu_graph_new(&graph), TU_OK);
    return graph;
}

static tu__unit partitioned(tu_graph *graph, size_t count, const tu_value *fetch) {
    return unit_after("partition", graph, count, fetch, TU__PRECISION_AS_BUILT, 2, two_devices);
}

static const char *device_of(const tu__unit *unit, const char *name) {
    const tu__node *node = tu__find_node(unit->graph, name);
    if (!node) fail_msg("'%s' is gone", name);
    return node->device;
}

/* Asserts that every node has a device of the list, and that only copies read from another device. */
static void assert_only_copies_cross_devices(const tu__unit *unit) {
    for (uint32_t i = 0; i < unit->graph->node_count; i++) {
        const tu__node *node = unit->graph->nodes[i];
        bool known = false;
        assert_non_null(node->device);
        for (size_t k = 0; k < unit->device_count; k++)
            known = known || strcmp(unit->devices[k], node->device) == 0;
        assert_true(known);
        for (uint32_t k = 0; k < node->input_count; k++) {
            const char *source = unit->graph->nodes[node->inputs[k].node]->device;
            assert_true(node->op->code == TU__OP_COPY || strcmp(source, node->device) == 0);
        }
    }
}

/* ---- Placement ---- */

static void the_first_device_is_the_default(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3)), y = tu_tanh(x);
    tu__unit unit = partitioned(g, 1, &y);
    assert_string_equal(device_of(&unit, "x"), "cpu:0.0");
    assert_string_equal(device_of(&unit, "tanh"), "cpu:0.0");
    assert_int_equal(count_nodes(unit.graph, TU__OP_COPY), 0);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

static void inputs_are_placed_with_their_first_reader(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3)), y = x;
    tu_with_device(g, "cpu:0.1") y = tu_tanh(x);
    tu__unit unit = partitioned(g, 1, &y);
    assert_string_equal(device_of(&unit, "x"), "cpu:0.1");
    assert_int_equal(count_nodes(unit.graph, TU__OP_COPY), 0);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

static void assignments_are_placed_with_their_variable(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3)), w = x, y = x;
    tu_with_device(g, "cpu:0.1") w = tu_variable(g, "w", TU_F32, TU_SHAPE(3));
    tu_with_device(g, "cpu:0.0") {
        y = tu_tanh(x);
        tu_assign(w, y);
    }
    tu__unit unit = partitioned(g, 1, &y);
    assert_string_equal(device_of(&unit, "assign"), "cpu:0.1");
    assert_string_equal(device_of(&unit, "tanh@cpu:0.1"), "cpu:0.1");
    assert_only_copies_cross_devices(&unit);
    assert_same_results(g, &y, &unit, 0);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

static void gradients_are_computed_on_the_device_of_their_operation(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3)), h = x, dx;
    tu_with_device(g, "cpu:0.1") h = tu_tanh(x);
    assert_int_equal(tu_gradients(tu_sum(h), 1, &x, &dx), TU_OK);
    assert_string_equal(tu_value_device(dx), "cpu:0.1");
    assert_null(tu_value_device(x));
    tu_graph_free(g);
}

static void a_device_kind_stands_for_its_first_device(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3)), y = x;
    tu_with_device(g, "ref") y = tu_tanh(x);
    tu__unit unit = unit_after("place", g, 1, &y, TU__PRECISION_AS_BUILT, 4, four_devices);
    assert_string_equal(device_of(&unit, "tanh"), "ref:0");
    tu__unit_end(&unit);
    tu_graph_free(g);
}

static void unknown_devices_fail_with_the_list(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value y = tu_input(g, "x", TU_F32, TU_SHAPE(3));
    tu_with_device(g, "gpu:7") y = tu_tanh(y);
    tu__unit unit;
    assert_int_equal(tu__unit_begin(&unit, g, 1, &y, false), TU_OK);
    unit.devices = four_devices;
    unit.device_count = 4;
    assert_int_equal(tu__run_passes(&unit, NULL), TU_NOT_FOUND);
    assert_string_equal(tu_message(),
                        "tanh 'tanh' is placed on 'gpu:7', which is not a device of the program: "
                        "its devices are ref:0, cpu:0.0, cpu:0.1 and null:2");
    tu__unit_end(&unit);
    tu_graph_free(g);
}

static void device_scopes_nest(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3));
    tu_with_device(g, "cpu:0") {
        tu_with_device(g, "cpu:1") assert_string_equal(tu_value_device(tu_tanh(x)), "cpu:1");
        assert_string_equal(tu_value_device(tu_tanh(x)), "cpu:0");
        tu_with_device(g, NULL) assert_null(tu_value_device(tu_tanh(x)));
    }
    assert_null(tu_value_device(tu_tanh(x)));
    tu_with_device(g, "no device") tu_tanh(x);
    assert_int_equal(tu_graph_status(g), TU_INVALID);
    assert_string_equal(tu_message(), "device 'no device': expected a name like cpu:0 or cpu:0.1");
    tu_graph_free(g);
}

/* ---- Copies ---- */

static void a_value_is_copied_once(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3)), a = tu_tanh(x), b = a;
    tu_with_device(g, "cpu:0.1") b = tu_mul(tu_exp(a), tu_add(a, a));
    tu_value fetch[] = {a, tu_add(b, a)};
    tu__unit unit = partitioned(g, 2, fetch);
    assert_int_equal(count_nodes(unit.graph, TU__OP_COPY), 2); /* a to cpu:0.1, b back */
    assert_string_equal(device_of(&unit, "tanh@cpu:0.1"), "cpu:0.1");
    assert_string_equal(device_of(&unit, "mul@cpu:0.0"), "cpu:0.0");
    assert_only_copies_cross_devices(&unit);
    assert_same_results(g, fetch, &unit, 0);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

static void small_constants_are_duplicated_not_copied(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    float list[3] = {1, 2, 3}, large[2000];
    for (int i = 0; i < 2000; i++) large[i] = (float)i;
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3)), half = tu_number(x, 0.5), b = x;
    tu_value small = tu_constant(g, TU_F32, TU_SHAPE(3), list),
             big = tu_constant(g, TU_F32, TU_SHAPE(2000), large);
    tu_value a = tu_add(tu_mul(x, half), tu_add(small, tu_sum(tu_mul(big, tu_sum(x)))));
    tu_with_device(g, "cpu:0.1") b =
        tu_add(tu_mul(tu_tanh(x), half), tu_add(small, tu_sum(tu_mul(big, tu_sum(x)))));
    tu_value fetch[] = {a, b};
    tu__unit unit = partitioned(g, 2, fetch);
    assert_int_equal(count_nodes(unit.graph, TU__OP_FILL), 2);
    assert_int_equal(count_nodes(unit.graph, TU__OP_CONSTANT), 3); /* the small one on both devices */
    assert_int_equal(count_nodes(unit.graph, TU__OP_COPY), 2);     /* x and the large one */
    assert_only_copies_cross_devices(&unit);
    assert_same_results(g, fetch, &unit, 0);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

static void every_output_is_copied_separately(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(6)), top = tu_top_k(x, 2, 0), y = x;
    tu_with_device(g, "cpu:0.1") y = tu_mul(tu_cast(tu_output_of(top, 1), TU_F32), top);
    tu__unit unit = partitioned(g, 1, &y);
    assert_int_equal(count_nodes(unit.graph, TU__OP_COPY), 2);
    assert_only_copies_cross_devices(&unit);
    assert_same_results(g, &y, &unit, 0);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

static void fetched_and_named_constants_are_kept(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3)), one = tu_fill(g, TU_F32, TU_SHAPE(3), 1), y = x;
    tu_output(one, "one");
    tu_with_device(g, "cpu:0.1") y = tu_mul(tu_tanh(x), one);
    tu_value fetch[] = {one, tu_add(y, x)};
    tu__unit unit = partitioned(g, 2, fetch);
    assert_int_equal(unit.graph->result_count, 1);
    assert_only_copies_cross_devices(&unit);
    assert_same_results(g, fetch, &unit, 0);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

/* The names that copies would get may be in use. Variables must keep theirs. */
static void copies_get_unused_names(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3)), a = tu_tanh(x), y = x;
    tu_with_device(g, "cpu:0.1") y = tu_exp(a);
    tu_value w = tu_variable(g, "tanh@cpu:0.1", TU_F32, TU_SHAPE(3)), z = tu_add(tu_add(w, a), y);
    tu__unit unit = partitioned(g, 1, &z);
    assert_int_equal(tu__find_node(unit.graph, "tanh@cpu:0.1")->op->code, TU__OP_VARIABLE);
    assert_only_copies_cross_devices(&unit);
    assert_same_results(g, &z, &unit, 0);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

/* ---- Networks with every node on a random device ---- */

static void partitioned_networks_are_bit_identical(void **state) {
    (void)state;
    static const char *const names[] = {"mlp", "tutorial-cnn", "resnet20"};
    for (uint64_t seed = 1; seed <= 6; seed++) {
        tu_graph *g = new_graph();
        tu_network_graph model = TU_SIZED(tu_network_graph);
        assert_int_equal(tu_network_build(g, names[seed % 3], &model, .batch = 2, .height = 8, .width = 8,
                                          .base = 4, .classes = 3),
                         TU_OK);
        assert_int_equal(tu_add_sgd(model.loss, 0.1, 0.9), TU_OK);
        uint64_t random = seed;
        for (uint32_t i = 0; i < g->node_count; i++) {
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            uint64_t pick = random >> 60;
            g->nodes[i]->device = pick < 4 ? four_devices[pick] : NULL;
        }
        tu_value fetch[] = {model.loss, model.logits};
        tu__unit unit = unit_after("partition", g, 2, fetch, TU__PRECISION_AS_BUILT, 4, four_devices);
        assert_only_copies_cross_devices(&unit);
        assert_true(count_nodes(unit.graph, TU__OP_COPY) > 10);
        assert_same_results(g, fetch, &unit, 0);
        tu__unit_end(&unit);
        tu_graph_free(g);
    }
}

/* A value changes devices hundreds of times; some of the values between are fetched from both devices. */
static void a_value_may_change_devices_hundreds_of_times(void **state) {
    (void)state;
    enum { STAGES = 400, FETCHES = 8 };
    static const char *const lists[] = {"cpu:0", "cpu:0/2"};
    static const float start[3] = {0.5F, -1, 2};
    float got[2][FETCHES][3];
    for (int several = 0; several < 2; several++) {
        tu_graph *g = new_graph();
        tu_program *program;
        tu_state *none;
        void *results[FETCHES];
        tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3)), h = x, fetched[FETCHES];
        for (int i = 0; i < STAGES; i++) {
            tu_with_device(g, several ? two_devices[i % 2] : NULL) h = tu_sub(tu_tanh(h), tu_scale(h, 0.25));
            if (i % (STAGES / FETCHES) == STAGES / FETCHES - 1) fetched[i / (STAGES / FETCHES)] = h;
        }
        assert_int_equal(tu_compile(g, &program, .devices = lists[several], .threads = 1, .fetch = fetched,
                                    .fetch_count = FETCHES),
                         TU_OK);
        assert_int_equal(tu_state_new(g, &none), TU_OK);
        for (int i = 0; i < FETCHES; i++) results[i] = got[several][i];
        for (int run = 0; run < 3; run++)
            assert_int_equal(tu_run(program, none, 1, (tu_feed[]){{x, start}}, results), TU_OK);
        tu_program_free(program);
        tu_state_free(none);
        tu_graph_free(g);
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
}

static void a_partitioned_graph_can_be_partitioned(void **state) {
    (void)state;
    tu_graph *g = new_graph(), *read;
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3)), y = x;
    tu_with_device(g, "cpu:0.1") y = tu_exp(tu_tanh(x));
    tu_value z = tu_output(tu_add(y, x), "z");
    tu__unit unit = partitioned(g, 1, &z);
    void *bytes;
    size_t size;
    assert_int_equal(tu_graph_write(unit.graph, &bytes, &size), TU_OK);
    assert_int_equal(tu_graph_read(bytes, size, &read), TU_OK);
    tu_bytes_free(bytes);
    z = tu_find_output(read, "z");
    tu__unit again = partitioned(read, 1, &z);
    assert_int_equal(again.graph->node_count, unit.graph->node_count);
    assert_int_equal(count_nodes(again.graph, TU__OP_COPY), count_nodes(unit.graph, TU__OP_COPY));
    assert_same_results(read, &z, &again, 0);
    tu__unit_end(&again);
    tu__unit_end(&unit);
    tu_graph_free(read);
    tu_graph_free(g);
}

/* ---- Memory ---- */

static tu_status run_all_passes(tu_graph *graph, const tu_value *fetch) {
    tu__unit unit;
    TU_TRY(tu__unit_begin(&unit, graph, 1, fetch, true));
    unit.precision = TU__PRECISION_BF16;
    unit.device_count = 2;
    unit.devices = two_devices;
    tu_status status = tu__run_passes(&unit, NULL);
    tu__unit_end(&unit);
    return status;
}

/* The Nth allocation fails, for every N: an error, no leak, and the user's graph is unchanged. */
static void running_out_of_memory_is_an_error(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3, 3)), w = tu_variable(g, "w", TU_F32, TU_SHAPE(3, 3)),
             y = x, dw;
    tu_with_device(g, "cpu:0.1") y = tu_exp(tu_scale(tu_matmul(x, w), 0.5));
    tu_value loss = tu_output(tu_sum(tu_add(y, tu_exp(tu_number(x, 2)))), "loss");
    assert_int_equal(tu_gradients(loss, 1, &w, &dw), TU_OK);
    tu_assign(w, tu_sub(w, dw));
    int64_t live = tu__alloc_live();
    tu_status status = TU_NO_MEMORY;
    for (uint64_t nth = 1; status != TU_OK; nth++) {
        tu__alloc_fail_at(nth);
        status = run_all_passes(g, &loss);
        tu__alloc_fail_at(0);
        if (status != TU_OK && status != TU_NO_MEMORY)
            fail_msg("allocation %llu: %s", (unsigned long long)nth, tu_message());
        assert_int_equal(tu__alloc_live(), live);
    }
    assert_int_equal(tu_graph_verify(g), TU_OK);
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_device_is_the_default),
        cmocka_unit_test(inputs_are_placed_with_their_first_reader),
        cmocka_unit_test(assignments_are_placed_with_their_variable),
        cmocka_unit_test(gradients_are_computed_on_the_device_of_their_operation),
        cmocka_unit_test(a_device_kind_stands_for_its_first_device),
        cmocka_unit_test(unknown_devices_fail_with_the_list),
        cmocka_unit_test(device_scopes_nest),
        cmocka_unit_test(a_value_is_copied_once),
        cmocka_unit_test(small_constants_are_duplicated_not_copied),
        cmocka_unit_test(every_output_is_copied_separately),
        cmocka_unit_test(fetched_and_named_constants_are_kept),
        cmocka_unit_test(copies_get_unused_names),
        cmocka_unit_test(partitioned_networks_are_bit_identical),
        cmocka_unit_test(a_value_may_change_devices_hundreds_of_times),
        cmocka_unit_test(a_partitioned_graph_can_be_partitioned),
        cmocka_unit_test(running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
