/* Tests of placement in programs: how the device of an operation is chosen, what devices support, control
 * dependencies, and reports. The device "shy" is a CPU that does not support tanh and custom operations; "discrete"
 * is a CPU that claims not to use host memory. */
#include "test.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "device/device.h"
#include "graph/graph.h"

/* ---- Devices and operations ---- */

static tu_status supports_no_tanh(tu_device_instance *device, const tu_graph *graph, uint32_t node) {
    (void)device;
    const char *operation = tu_node_operation(graph, node);
    if (strcmp(operation, "tanh") == 0 || strcmp(operation, "custom") == 0)
        return tu_fail(TU_UNSUPPORTED, "it is shy of %s", operation);
    return TU_OK;
}

static void add_devices(void) {
    static tu_device_api shy, discrete;
    shy = tu__cpu_api;
    shy.kind = "shy";
    shy.supports = supports_no_tanh;
    discrete = tu__cpu_api;
    discrete.kind = "discrete";
    discrete.host_memory = false;
    assert_int_equal(tu__device_kind_add(&shy), TU_OK);
    assert_int_equal(tu__device_kind_add(&discrete), TU_OK);
}

/* Custom operations that record when they ran. */
static atomic_int event_count, early_event, late_event;

static tu_status infer_same_type(const tu_custom_call *call, tu_type *outputs) {
    outputs[0] = call->inputs[0];
    return TU_OK;
}

static tu_status run_early(const tu_custom_call *call, const void *const *in, void *const *out) {
    usleep(2000); /* long enough for an operation that does not wait to finish first */
    memcpy(out[0], in[0], tu_type_bytes(call->inputs[0]));
    early_event = ++event_count;
    return TU_OK;
}

static tu_status run_late(const tu_custom_call *call, const void *const *in, void *const *out) {
    memcpy(out[0], in[0], tu_type_bytes(call->inputs[0]));
    late_event = ++event_count;
    return TU_OK;
}

static const tu_custom_op early_op = {.struct_size = sizeof early_op,
                                      .name = "early",
                                      .outputs = 1,
                                      .shape = infer_same_type,
                                      .run = run_early};
static const tu_custom_op late_op = {
    .struct_size = sizeof late_op, .name = "late", .outputs = 1, .shape = infer_same_type, .run = run_late};

static tu_graph *graph;
static tu_value x;

static tu_value new_graph_with_x(void) {
    tu_graph_free(graph);
    assert_int_equal(tu_graph_new(&graph), TU_OK);
    return x = tu_input(graph, "x", TU_F32, TU_SHAPE(64, 64));
}

static int free_graph(void **state) {
    (void)state;
    tu_graph_free(graph);
    graph = NULL;
    return 0;
}

static tu_placement placement_of(const tu_program *program, const char *name) {
    tu_placement p = TU_SIZED(tu_placement);
    for (size_t i = 0;
         i < tu_program_placement_count(program) && tu_program_placement(program, i, &p) == TU_OK; i++)
        if (strcmp(p.node, name) == 0) return p;
    fail_msg("'%s' is not in the program", name);
    return p;
}

static tu_program *compile_value(tu_value fetch, const tu_compile_options *o) {
    tu_compile_options options = *o;
    options.struct_size = sizeof options;
    options.fetch = &fetch;
    options.fetch_count = 1;
    options.threads = 1;
    tu_program *program;
    if (tu_compile_with(graph, &program, &options) != TU_OK) fail_msg("%s", tu_message());
    return program;
}

static void expect_compile_error(tu_value fetch, const tu_compile_options *o, tu_status status,
                                 const char *message) {
    tu_compile_options options = *o;
    options.struct_size = sizeof options;
    options.fetch = &fetch;
    options.fetch_count = 1;
    tu_program *program;
    assert_int_equal(tu_compile_with(graph, &program, &options), status);
    assert_string_equal(tu_message(), message);
}

/* ---- Rules ---- */

static const char *tanh_to_second(const tu_graph *g, uint32_t node, void *context) {
    return strcmp(tu_node_operation(g, node), "tanh") == 0 ? context : NULL;
}

static void patterns_override_functions_and_functions_scopes(void **state) {
    (void)state;
    tu_value a, b, c, y;
    new_graph_with_x();
    tu_with_device(graph, "cpu:0.0") {
        tu_scope(graph, "one") a = tu_tanh(x);
        tu_scope(graph, "two") b = tu_tanh(a);
        tu_scope(graph, "three") c = tu_exp(b);
    }
    y = tu_sum(c);
    tu_program *program = compile_value(y, &(tu_compile_options){.devices = "cpu:0/3",
                                                                 .place = "two/*=cpu:0.2,t*=cpu:0.1",
                                                                 .place_by = tanh_to_second,
                                                                 .place_context = "cpu:0.1"});
    tu_placement p = placement_of(program, "one/tanh");
    assert_string_equal(p.device, "cpu:0.1");
    assert_string_equal(p.reason, "placed by the placement function");
    p = placement_of(program, "two/tanh");
    assert_string_equal(p.device, "cpu:0.2");
    assert_string_equal(p.reason, "placed by pattern two/*=cpu:0.2");
    assert_string_equal(placement_of(program, "three/exp").device, "cpu:0.1");
    assert_string_equal(placement_of(program, "sum").device, "cpu:0.1");
    tu_program_free(program);
}

static void patterns_place_gradients_and_updates_follow(void **state) {
    (void)state;
    tu_value w[2], dw[2], h = new_graph_with_x();
    const char *const layers[] = {"one", "two"};
    for (int i = 0; i < 2; i++) tu_scope(graph, layers[i]) {
            w[i] = tu_variable(graph, "w", TU_F32, TU_SHAPE(64, 64));
            h = tu_tanh(tu_matmul(h, w[i]));
        }
    tu_value loss = tu_mean(h);
    assert_int_equal(tu_gradients(loss, 2, w, dw), TU_OK);
    for (int i = 0; i < 2; i++) tu_assign(w[i], tu_sub(w[i], dw[i]));
    tu_program *program = compile_value(
        loss, &(tu_compile_options){.devices = "cpu:0/2", .place = "two/*=cpu:0.1", .updates = true});
    tu_placement p = TU_SIZED(tu_placement);
    for (size_t i = 0;
         i < tu_program_placement_count(program) && tu_program_placement(program, i, &p) == TU_OK; i++) {
        if (strncmp(p.node, "two/", 4) == 0 || strncmp(p.node, "grad/two/", 9) == 0)
            if (!strchr(p.node, '@')) assert_string_equal(p.device, "cpu:0.1");
        if (strncmp(p.node, "one/", 4) == 0 || strncmp(p.node, "grad/one/", 9) == 0)
            if (!strchr(p.node, '@')) assert_string_equal(p.device, "cpu:0.0");
    }
    assert_string_equal(placement_of(program, "sub").device, "cpu:0.0");
    assert_string_equal(placement_of(program, "sub_1").device, "cpu:0.1");
    tu_placement_totals totals = TU_SIZED(tu_placement_totals);
    assert_int_equal(tu_program_placement_totals(program, &totals), TU_OK);
    assert_int_equal(totals.copies, 2); /* an activation forward, its gradient back */
    assert_int_equal(totals.copied_bytes, 2 * 64 * 64 * 4);
    tu_program_free(program);
}

static void invalid_rules_are_rejected(void **state) {
    (void)state;
    new_graph_with_x();
    tu_value y = tu_tanh(x);
    expect_compile_error(y, &(tu_compile_options){.devices = "cpu:0", .place = "tanh"}, TU_INVALID,
                         "placement 'tanh': expected PATTERN=DEVICE, as in conv1/*=gpu:1");
    expect_compile_error(y, &(tu_compile_options){.devices = "cpu:0", .place = "nobody=cpu:0,=cpu:0"},
                         TU_INVALID, "placement '=cpu:0': expected PATTERN=DEVICE, as in conv1/*=gpu:1");
    expect_compile_error(
        y, &(tu_compile_options){.devices = "cpu:0", .place = "tanh=cpu:1"}, TU_NOT_FOUND,
        "tanh 'tanh' is placed on 'cpu:1' by a pattern, which is not a device of the program: its devices are cpu:0");
    expect_compile_error(
        y, &(tu_compile_options){.devices = "cpu:0", .place_by = tanh_to_second, .place_context = "moon"},
        TU_NOT_FOUND,
        "tanh 'tanh' is placed on 'moon' by the placement function, which is not a device of the program: its devices are "
        "cpu:0");
}

/* ---- Unsupported operations ---- */

static void unsupported_operations_are_moved_and_reported(void **state) {
    (void)state;
    new_graph_with_x();
    tu_value y = x;
    tu_with_device(graph, "shy:0") y = tu_exp(tu_tanh(tu_neg(x)));
    tu_program *program = compile_value(y, &(tu_compile_options){.devices = "shy:0,cpu:0"});
    tu_placement p = placement_of(program, "tanh");
    assert_string_equal(p.device, "cpu:0");
    assert_string_equal(
        p.reason,
        "placed by tu_with_device, but shy:0 does not support it: moved to the nearest device that does");
    assert_string_equal(p.unsupported_on, "shy:0: it is shy of tanh");
    assert_true(p.moved);
    assert_int_equal(p.bytes_in, 64 * 64 * 4);
    assert_int_equal(p.bytes_out, 64 * 64 * 4);
    assert_string_equal(placement_of(program, "exp").device, "shy:0");
    tu_placement_totals totals = TU_SIZED(tu_placement_totals);
    assert_int_equal(tu_program_placement_totals(program, &totals), TU_OK);
    assert_int_equal(totals.moved, 1);
    assert_string_equal(
        totals.notice,
        "tanh 'tanh' is computed on cpu:0: placed by tu_with_device, but shy:0 does not support it: moved to the "
        "nearest device that does (shy:0: it is shy of tanh)");
    tu_program_free(program);
    expect_compile_error(
        y, &(tu_compile_options){.devices = "shy:0,cpu:0", .strict_placement = true}, TU_UNSUPPORTED,
        "tanh 'tanh' cannot run on shy:0: it is shy of tanh (it was placed by tu_with_device, and placement is "
        "strict)");
}

static void a_pattern_that_matches_nothing_has_a_notice(void **state) {
    (void)state;
    new_graph_with_x();
    tu_value y = tu_exp(tu_tanh(x));
    tu_program *program =
        compile_value(y, &(tu_compile_options){.devices = "cpu:0/2", .place = "tan*=cpu:0.1,tank*=cpu:0.0"});
    assert_string_equal(placement_of(program, "tanh").device, "cpu:0.1");
    tu_placement_totals totals = TU_SIZED(tu_placement_totals);
    assert_int_equal(tu_program_placement_totals(program, &totals), TU_OK);
    assert_string_equal(totals.notice, "the placement pattern 'tank*' matches no operation ('tutti "
                                       "explain --all' lists them)");
    tu_program_free(program);
    program =
        compile_value(y, &(tu_compile_options){.devices = "cpu:0/2", .place = "tan*=cpu:0.1,*=cpu:0.0"});
    assert_int_equal(tu_program_placement_totals(program, &totals), TU_OK);
    assert_null(totals.notice);
    tu_program_free(program);
}

static void operations_that_no_device_supports_are_rejected(void **state) {
    (void)state;
    new_graph_with_x();
    tu_value y = tu_tanh(x);
    expect_compile_error(
        y, &(tu_compile_options){.devices = "shy:0"}, TU_UNSUPPORTED,
        "no device of the program supports tanh 'tanh' (shy:0: it is shy of tanh): its devices are shy:0; add one that "
        "does, as in \"shy:0,cpu:0\"");
}

static void custom_operations_stay_in_host_memory(void **state) {
    (void)state;
    new_graph_with_x();
    tu_value a = tu_exp(x), b = tu_custom("early", 1, &a), y = tu_tanh(b);
    tu_program *program = compile_value(y, &(tu_compile_options){.devices = "cpu:0,discrete:0"});
    assert_string_equal(placement_of(program, "exp").device, "discrete:0");
    assert_string_equal(placement_of(program, "exp").reason, "the first GPU");
    assert_string_equal(placement_of(program, "tanh").device, "discrete:0");
    tu_placement p = placement_of(program, "early");
    assert_string_equal(p.device, "cpu:0");
    assert_string_equal(p.reason, "the nearest device that supports it");
    assert_string_equal(
        p.unsupported_on,
        "discrete:0: custom operations run only on devices that compute in host memory, such as the CPU");
    assert_false(p.moved); /* no rule placed it elsewhere */
    tu_program_free(program);
}

static void small_operations_that_the_host_reads_run_on_the_host(void **state) {
    (void)state;
    new_graph_with_x();
    tu_value n = tu_input(graph, "n", TU_F32, TU_SHAPE(4)), big = tu_exp(x);
    tu_value small = tu_scale(tu_square(n), 3), inputs[] = {small};
    tu_value y = tu_add(tu_sum(tu_custom("late", 1, inputs)), tu_sum(big));
    tu_program *program = compile_value(y, &(tu_compile_options){.devices = "discrete:0,cpu:0"});
    assert_string_equal(placement_of(program, "square").device, "cpu:0");
    assert_string_equal(placement_of(program, "square").reason, "small, and only cpu:0 reads it");
    assert_string_equal(placement_of(program, "n").device, "cpu:0");
    assert_string_equal(placement_of(program, "exp").device, "discrete:0");
    tu_program_free(program);
}

/* ---- Colocation ---- */

static void colocated_values_share_a_device(void **state) {
    (void)state;
    new_graph_with_x();
    tu_value a = tu_exp(x), b = a, c = tu_square(x);
    tu_with_device(graph, "cpu:0.1") b = tu_tanh(x);
    tu_colocate(a, b);
    tu_colocate(c, a);
    tu_value y = tu_add(tu_add(a, b), c);
    tu_program *program = compile_value(y, &(tu_compile_options){.devices = "cpu:0/2"});
    assert_string_equal(placement_of(program, "exp").device, "cpu:0.1");
    assert_string_equal(placement_of(program, "exp").reason, "colocated with 'tanh'");
    assert_string_equal(placement_of(program, "square").device, "cpu:0.1");
    tu_program_free(program);
}

static void a_group_is_placed_where_all_of_it_is_supported(void **state) {
    (void)state;
    new_graph_with_x();
    tu_value a = tu_exp(x), b = tu_tanh(a);
    tu_colocate(a, b);
    tu_program *program = compile_value(b, &(tu_compile_options){.devices = "shy:0,cpu:0"});
    assert_string_equal(placement_of(program, "exp").device, "cpu:0");
    assert_string_equal(placement_of(program, "exp").unsupported_on,
                        "shy:0: it is colocated with tanh 'tanh', which is not supported: it is shy of tanh");
    assert_string_equal(placement_of(program, "tanh").device, "cpu:0");
    tu_program_free(program);
}

static void a_group_pinned_to_two_devices_is_rejected(void **state) {
    (void)state;
    new_graph_with_x();
    tu_value a = x, b = x;
    tu_with_device(graph, "cpu:0.0") a = tu_exp(x);
    tu_with_device(graph, "cpu:0.1") b = tu_tanh(a);
    tu_colocate(a, b);
    expect_compile_error(
        b, &(tu_compile_options){.devices = "cpu:0/2"}, TU_INVALID,
        "'exp' and 'tanh' are colocated, but the first is on cpu:0.0 (placed by tu_with_device) and the second "
        "on cpu:0.1 (placed by tu_with_device): place both on one device");
    new_graph_with_x();
    tu_value w = tu_variable(graph, "w", TU_F32, TU_SHAPE(64, 64)), assigned = tu_assign(w, x);
    assert_false(tu_ok(tu_colocate(assigned, x)));
    assert_int_equal(tu_graph_status(graph), TU_INVALID);
    assert_string_equal(
        tu_message(),
        "assignment 'assign' is always on its variable's device: colocate the variable instead");
}

/* ---- Control dependencies ---- */

static void assert_in_order(const char *devices, const char *of_early, const char *of_late, bool read_early) {
    new_graph_with_x();
    tu_value a = x, b = x;
    tu_with_device(graph, of_early) a = tu_custom("early", 1, &x);
    tu_with_device(graph, of_late) b = tu_custom("late", 1, &x);
    assert_true(tu_ok(tu_after(b, a)));
    tu_value fetches[] = {b, a};
    tu_program *program;
    tu_state *run;
    if (tu_compile(graph, &program, .devices = devices, .threads = 1, .fetch = fetches,
                   .fetch_count = read_early ? 2 : 1, .timeout = 20) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(graph, &run, .seed = 1), TU_OK);
    static float data[64 * 64], first[64 * 64], second[64 * 64];
    for (int i = 0; i < 5; i++) {
        early_event = late_event = 0;
        assert_int_equal(tu_run(program, run, 1, &(tu_feed){x, data}, (void *[]){first, second}), TU_OK);
        assert_true(early_event > 0);
        assert_true(late_event > early_event);
    }
    tu_program_free(program);
    tu_state_free(run);
}

static void control_dependencies_order_operations(void **state) {
    (void)state;
    assert_in_order("cpu:0", "cpu:0", "cpu:0", true);
    assert_in_order("cpu:0/2", "cpu:0.0", "cpu:0.1", true);
    assert_in_order("cpu:0/2", "cpu:0.1", "cpu:0.0", true);
    assert_in_order("cpu:0,ref", "cpu:0", "ref:0", true);
}

static void control_dependencies_are_computed_even_if_not_read(void **state) {
    (void)state;
    assert_in_order("cpu:0", "cpu:0", "cpu:0", false);
    assert_in_order("cpu:0/2", "cpu:0.0", "cpu:0.1", false);
}

static void a_control_dependency_between_devices_copies_one_element(void **state) {
    (void)state;
    new_graph_with_x();
    tu_value a = x, b = x;
    tu_with_device(graph, "cpu:0.0") a = tu_exp(x);
    tu_with_device(graph, "cpu:0.1") b = tu_tanh(tu_input(graph, "z", TU_F32, TU_SHAPE(3)));
    tu_after(b, a);
    tu_program *program = compile_value(b, &(tu_compile_options){.devices = "cpu:0/2"});
    tu_placement_totals totals = TU_SIZED(tu_placement_totals);
    assert_int_equal(tu_program_placement_totals(program, &totals), TU_OK);
    assert_int_equal(totals.copies, 1);
    assert_int_equal(totals.copied_bytes, sizeof(float));
    tu_program_free(program);
}

static void cyclic_control_dependencies_are_rejected(void **state) {
    (void)state;
    new_graph_with_x();
    tu_value a = tu_exp(x), b = tu_tanh(a);
    assert_false(tu_ok(tu_after(a, b)));
    assert_int_equal(tu_graph_status(graph), TU_INVALID);
    assert_string_equal(
        tu_message(),
        "exp 'exp' cannot be computed after tanh 'tanh', which was created later: expected a value created before it");
    new_graph_with_x();
    assert_false(tu_ok(tu_after(x, tu_exp(x))));
    assert_int_equal(tu_graph_status(graph), TU_INVALID);
    assert_string_equal(
        tu_message(),
        "after: input 'x' cannot be computed after 'exp': inputs, constants, variables and fills "
        "are available before the run starts");
    new_graph_with_x();
    tu_value w = tu_variable(graph, "w", TU_F32, TU_SHAPE(64, 64)), assigned = tu_assign(w, x);
    assert_false(tu_ok(tu_after(tu_exp(x), assigned)));
    assert_int_equal(tu_graph_status(graph), TU_INVALID);
}

/* ---- Control dependencies and colocation in files ---- */

static void control_dependencies_are_stored_and_printed(void **state) {
    (void)state;
    new_graph_with_x();
    tu_value a = tu_exp(x), b = tu_tanh(x);
    char plain[TU_DIGEST_TEXT], bound[TU_DIGEST_TEXT], read[TU_DIGEST_TEXT];
    tu_output(b, "y");
    assert_int_equal(tu_graph_digest(graph, plain), TU_OK);
    tu_colocate(b, a);
    assert_int_equal(tu_graph_digest(graph, bound), TU_OK);
    assert_string_equal(plain, bound); /* the digest does not depend on placement */
    tu_after(b, a);
    assert_int_equal(tu_graph_digest(graph, bound), TU_OK);
    assert_string_not_equal(plain, bound);
    void *bytes;
    size_t size;
    tu_graph *again;
    assert_int_equal(tu_graph_write(graph, &bytes, &size), TU_OK);
    assert_int_equal(tu_graph_read(bytes, size, &again), TU_OK);
    assert_int_equal(tu_graph_digest(again, read), TU_OK);
    assert_string_equal(bound, read);
    const tu__node *node = tu__find_node(again, "tanh");
    assert_int_equal(node->after_count, 1);
    assert_int_equal(node->after[0], tu__find_node(again, "exp")->id);
    assert_int_equal(node->group, tu__find_node(again, "exp")->group);
    char *text = NULL;
    FILE *memory = open_memstream(&text, &size);
    assert_int_equal(tu_graph_print(again, TU_GRAPH_TEXT, memory), TU_OK);
    fclose(memory);
    assert_non_null(strstr(text, "tanh = tanh(%0) group=1 after=%1 : f32[64,64]"));
    free(text);
    tu_bytes_free(bytes);
    tu_graph_free(again);
}

/* ---- Locks ---- */

static void a_lock_reports_moved_operations(void **state) {
    (void)state;
    char path[] = "/tmp/tutti-lock-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    new_graph_with_x();
    tu_value a = tu_exp(x), y = tu_tanh(a);
    char *diff;
    tu_program *program = compile_value(y, &(tu_compile_options){.devices = "cpu:0/2"});
    assert_int_equal(tu_program_check_placement(program, path, false, &diff), TU_OK); /* writes the file */
    assert_int_equal(tu_program_check_placement(program, path, false, &diff), TU_OK); /* compares with it */
    assert_null(diff);
    tu_program_free(program);
    program = compile_value(y, &(tu_compile_options){.devices = "cpu:0/2", .place = "tanh=cpu:0.1"});
    assert_int_equal(tu_program_check_placement(program, path, false, &diff), TU_INVALID);
    assert_string_equal(diff, "  - tanh cpu:0.0\n  + tanh cpu:0.1\n");
    tu_bytes_free(diff);
    assert_int_equal(tu_program_check_placement(program, path, true, &diff), TU_OK);
    assert_int_equal(tu_program_check_placement(program, path, false, NULL), TU_OK);
    tu_program_free(program);
    unlink(path);
}

int main(void) {
    add_devices();
    tu_custom_register(&early_op);
    tu_custom_register(&late_op);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_override_functions_and_functions_scopes),
        cmocka_unit_test(patterns_place_gradients_and_updates_follow),
        cmocka_unit_test(invalid_rules_are_rejected),
        cmocka_unit_test(unsupported_operations_are_moved_and_reported),
        cmocka_unit_test(a_pattern_that_matches_nothing_has_a_notice),
        cmocka_unit_test(operations_that_no_device_supports_are_rejected),
        cmocka_unit_test(custom_operations_stay_in_host_memory),
        cmocka_unit_test(small_operations_that_the_host_reads_run_on_the_host),
        cmocka_unit_test(colocated_values_share_a_device),
        cmocka_unit_test(a_group_is_placed_where_all_of_it_is_supported),
        cmocka_unit_test(a_group_pinned_to_two_devices_is_rejected),
        cmocka_unit_test(control_dependencies_order_operations),
        cmocka_unit_test(control_dependencies_are_computed_even_if_not_read),
        cmocka_unit_test(a_control_dependency_between_devices_copies_one_element),
        cmocka_unit_test(cyclic_control_dependencies_are_rejected),
        cmocka_unit_test(control_dependencies_are_stored_and_printed),
        cmocka_unit_test(a_lock_reports_moved_operations),
    };
    return cmocka_run_group_tests(tests, NULL, free_graph);
}
