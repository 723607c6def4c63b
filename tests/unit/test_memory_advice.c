/* Tests of planned memory: the items of the peak add up to the total, the error message for a program that does not
 * fit lists the largest items, and the advice is correct. */
#include "test.h"

#include <stdio.h>
#include <string.h>

#include <tutti/tutti.h>

#include "device/device.h"

enum { MAX_ITEMS = 1024 };

typedef struct network {
    tu_graph *graph;
    tu_network_graph model;
} network;

static void build_network(network *n, const char *name) {
    assert_int_equal(tu_graph_new(&n->graph), TU_OK);
    n->model = TU_SIZED(tu_network_graph);
    assert_int_equal(tu_network_build(n->graph, name, &n->model, .batch = 16), TU_OK);
    assert_int_equal(tu_add_sgd(n->model.loss, 0.1, 0.9), TU_OK);
}

static tu_status compile_network(network *n, tu_program **program, const char *devices, const char *precision,
                                 uint64_t limit, bool plan_only) {
    return tu_compile(n->graph, program, .devices = devices, .precision = precision, .memory_limit = limit,
                      .fetch = &n->model.loss, .fetch_count = 1, .updates = true, .plan_only = plan_only);
}

static uint64_t need_of(const tu_program *program) {
    tu_memory_report r = TU_SIZED(tu_memory_report);
    assert_int_equal(tu_program_memory(program, 0, &r), TU_OK);
    return r.scratch_bytes + r.constant_bytes + r.variable_bytes + r.overhead_bytes;
}

static uint64_t planned_need(network *n, const char *precision) {
    tu_program *program;
    assert_int_equal(compile_network(n, &program, "cpu", precision, 0, true), TU_OK);
    uint64_t need = need_of(program);
    tu_program_free(program);
    return need;
}

static const char *const models[] = {"mlp", "tutorial-cnn", "resnet20"};

static void the_items_of_the_peak_add_up_to_the_planned_need(void **unused) {
    (void)unused;
    static const char *const devices[] = {"cpu", "ref", "null"};
    static tu_memory_item items[MAX_ITEMS];
    for (int m = 0; m < 3; m++)
        for (int d = 0; d < 3; d++) {
            network n;
            tu_program *program;
            build_network(&n, models[m]);
            assert_int_equal(compile_network(&n, &program, devices[d], NULL, 0, false), TU_OK);
            size_t count;
            *items = TU_SIZED(tu_memory_item);
            assert_int_equal(tu_program_peak(program, 0, MAX_ITEMS, items, &count), TU_OK);
            assert_int_equal(count, tu_program_peak_count(program, 0));
            assert_in_range(count, 10, MAX_ITEMS);
            uint64_t sum = 0;
            for (size_t i = 0; i < count; i++) {
                sum += items[i].bytes;
                if (i) assert_true(items[i].bytes <= items[i - 1].bytes);
                if (items[i].kind == TU_MEMORY_TENSOR)
                    assert_true(items[i].bytes >= tu_type_bytes(items[i].type));
            }
            assert_int_equal(sum, need_of(program));
            tu_program_free(program);
            tu_graph_free(n.graph);
        }
}

/* The overhead of a device whose libraries need four megabytes. */
static tu_status describe_heavy(tu_device_instance *device, int index, tu_device_info *info) {
    TU_TRY(tu__ref_api.describe(device, index, info));
    if (device) info->overhead_bytes = 4 << 20;
    return TU_OK;
}

static void device_overhead_is_an_item_and_counts(void **unused) {
    (void)unused;
    static tu_device_api heavy;
    static tu_memory_item items[MAX_ITEMS];
    heavy = tu__ref_api;
    heavy.kind = "heavy";
    heavy.describe = describe_heavy;
    assert_int_equal(tu__device_kind_add(&heavy), TU_OK);
    network n;
    tu_program *program, *light;
    tu_memory_report report = TU_SIZED(tu_memory_report);
    build_network(&n, "mlp");
    assert_int_equal(compile_network(&n, &program, "heavy", NULL, 0, false), TU_OK);
    assert_int_equal(compile_network(&n, &light, "ref", NULL, 0, false), TU_OK);
    assert_int_equal(tu_program_memory(program, 0, &report), TU_OK);
    assert_int_equal(report.overhead_bytes, 4 << 20);
    uint64_t need = need_of(program), sum = 0;
    assert_int_equal(need, need_of(light) + (4 << 20));
    size_t count, found = 0;
    *items = TU_SIZED(tu_memory_item);
    assert_int_equal(tu_program_peak(program, 0, MAX_ITEMS, items, &count), TU_OK);
    for (size_t i = 0; i < count; i++) {
        sum += items[i].bytes;
        if (items[i].kind != TU_MEMORY_OVERHEAD) continue;
        found++;
        assert_string_equal(items[i].name, "context and libraries");
    }
    assert_int_equal(found, 1);
    assert_int_equal(sum, need);
    tu_program_free(program);
    assert_int_equal(compile_network(&n, &program, "heavy", NULL, need - 1, false), TU_NO_MEMORY);
    if (!strstr(tu_message(), "'context and libraries' 4 MiB")) fail_msg("%s", tu_message());
    assert_int_equal(compile_network(&n, &program, "heavy", NULL, need, false), TU_OK);
    tu_program_free(program);
    tu_program_free(light);
    tu_graph_free(n.graph);
}

static void a_short_list_has_the_largest_items(void **unused) {
    (void)unused;
    network n;
    tu_program *program;
    tu_memory_item all[MAX_ITEMS] = {TU_SIZED(tu_memory_item)}, largest[3] = {TU_SIZED(tu_memory_item)};
    build_network(&n, "resnet20");
    assert_int_equal(compile_network(&n, &program, "cpu", NULL, 0, false), TU_OK);
    size_t count;
    assert_int_equal(tu_program_peak(program, 0, MAX_ITEMS, all, &count), TU_OK);
    assert_int_equal(tu_program_peak_count(program, 0), count);
    assert_int_equal(tu_program_peak(program, 0, 3, largest, &count), TU_OK);
    assert_int_equal(count, 3);
    assert_int_equal(tu_program_peak(program, 0, 0, NULL, &count), TU_OK);
    assert_int_equal(count, 0);
    for (int i = 0; i < 3; i++) assert_ptr_equal(largest[i].name, all[i].name);
    assert_int_equal(tu_program_peak_count(program, 1), 0);
    assert_int_equal(tu_program_peak(program, 1, 3, largest, &count), TU_NOT_FOUND);
    tu_program_free(program);
    tu_graph_free(n.graph);
}

static void the_message_names_need_limit_and_largest_item(void **unused) {
    (void)unused;
    for (int m = 0; m < 3; m++) {
        network n;
        tu_program *program;
        tu_memory_item largest = TU_SIZED(tu_memory_item);
        size_t count;
        char words[4][160];
        build_network(&n, models[m]);
        assert_int_equal(compile_network(&n, &program, "cpu", NULL, 1 << 20, true), TU_OK);
        assert_int_equal(tu_program_peak(program, 0, 1, &largest, &count), TU_OK);
        uint64_t need = need_of(program), bf16_need = planned_need(&n, "bf16");
        snprintf(words[0], sizeof words[0], "would need %.4g MiB", (double)need / 1048576);
        snprintf(words[1], sizeof words[1], "the limit is 1 MiB");
        snprintf(words[2], sizeof words[2], "'%s' %.4g MiB", largest.name, (double)largest.bytes / 1048576);
        /* Without a library for bf16, the CPU's kernels may need more memory than they save. */
        if (bf16_need < need)
            snprintf(words[3], sizeof words[3], "bf16, which saves %.4g MiB",
                     (double)(need - bf16_need) / 1048576);
        else
            snprintf(words[3], sizeof words[3], "more memory");
        tu_program_free(program);
        assert_int_equal(compile_network(&n, &program, "cpu", NULL, 1 << 20, false), TU_NO_MEMORY);
        assert_null(program);
        for (int i = 0; i < 4; i++)
            if (!strstr(tu_message(), words[i])) fail_msg("'%s' is not in: %s", words[i], tu_message());
        assert_null(strchr(tu_message(), '\n'));
        tu_graph_free(n.graph);
    }
}

/* Returns the number after `words` in the message; -1 if the message does not contain them. */
static double parse_number_after(const char *words) {
    const char *found = strstr(tu_message(), words);
    double number = -1;
    return found && sscanf(found + strlen(words), "%lf", &number) == 1 ? number : -1;
}

static void advice_that_saves_nothing_is_omitted(void **unused) {
    (void)unused;
    static const char microbatches[] = "(tu_add_accumulation), which saves about ",
                      recompute_text[] = "tu_recompute around layers, which saves up to ";
    network n;
    tu_program *program;
    build_network(&n, "resnet20"); /* mostly activations */
    assert_int_equal(compile_network(&n, &program, "cpu", NULL, 1 << 20, false), TU_NO_MEMORY);
    double batched = parse_number_after("a smaller batch, to which ");
    assert_true(parse_number_after(microbatches) > 0 && parse_number_after(microbatches) < batched / 2);
    assert_true(parse_number_after(recompute_text) > 0 && parse_number_after(recompute_text) < batched);
    assert_int_equal(compile_network(&n, &program, "cpu", "bf16", 1 << 20, false), TU_NO_MEMORY);
    assert_true(parse_number_after("bf16, which saves ") < 0);
    assert_int_equal(tu_compile(n.graph, &program, .devices = "cpu", .memory_limit = 1 << 20,
                                .fetch = &n.model.loss, .fetch_count = 1, .no_updates = true),
                     TU_NO_MEMORY); /* nothing is trained */
    assert_true(parse_number_after(microbatches) < 0 && parse_number_after(recompute_text) < 0);
    tu_graph_free(n.graph);
    build_network(&n, "mlp"); /* accumulated gradients are larger than half of the activations */
    assert_int_equal(compile_network(&n, &program, "cpu", NULL, 1 << 20, false), TU_NO_MEMORY);
    assert_true(parse_number_after(microbatches) < 0);
    tu_graph_free(n.graph);
}

/* The reported saving is an upper bound: recomputed layers keep less. */
static void recomputed_layers_save_less(void **unused) {
    (void)unused;
    static const char recompute_text[] = "tu_recompute around layers, which saves up to ";
    static const char *const names[] = {"a", "b", "c", "d"};
    double saved[2];
    for (int recompute = 0; recompute < 2; recompute++) {
        tu_graph *g;
        tu_program *program;
        assert_int_equal(tu_graph_new(&g), TU_OK);
        tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(64, 1000)), h = x;
        for (int i = 0; i < 4; i++) {
            tu_value w = tu_variable(g, names[i], TU_F32, TU_SHAPE(1000));
            if (recompute)
                tu_recompute(g) h = tu_tanh(tu_exp(tu_mul(h, w)));
            else
                h = tu_tanh(tu_exp(tu_mul(h, w)));
        }
        tu_value loss = tu_mean(tu_square(h));
        assert_int_equal(tu_add_sgd(loss, 0.1, 0), TU_OK);
        assert_int_equal(tu_compile(g, &program, .devices = "null", .memory_limit = 1 << 16, .fetch = &loss,
                                    .fetch_count = 1, .updates = true),
                         TU_NO_MEMORY);
        saved[recompute] = parse_number_after(recompute_text);
        tu_graph_free(g);
    }
    assert_true(saved[0] > 0.5);
    assert_true(saved[1] < saved[0] / 2);
}

static void a_program_that_just_fits_compiles(void **unused) {
    (void)unused;
    network n;
    tu_program *program;
    build_network(&n, "tutorial-cnn");
    uint64_t need = planned_need(&n, NULL);
    assert_int_equal(compile_network(&n, &program, "cpu", NULL, need - 1, false), TU_NO_MEMORY);
    assert_int_equal(compile_network(&n, &program, "cpu", NULL, need, false), TU_OK);
    tu_memory_report report = TU_SIZED(tu_memory_report);
    assert_int_equal(tu_program_memory(program, 0, &report), TU_OK);
    assert_int_equal(report.limit_bytes, need);
    tu_program_free(program);
    tu_graph_free(n.graph);
}

static void a_planned_program_cannot_run(void **unused) {
    (void)unused;
    network n;
    tu_program *program;
    tu_state *state;
    build_network(&n, "mlp");
    assert_int_equal(compile_network(&n, &program, "cpu", NULL, 1, true), TU_OK);
    assert_int_equal(tu_state_new(n.graph, &state), TU_OK);
    assert_int_equal(tu_run(program, state, 0, NULL, NULL), TU_INVALID);
    assert_non_null(strstr(tu_message(), "plan_only"));
    tu_state_free(state);
    tu_program_free(program);
    tu_graph_free(n.graph);
}

/* Matrices of 144 terabytes each; the number of operations overflows 64 bits. */
static void matmuls_whose_flops_overflow_64_bits_are_rejected(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value a = tu_input(g, "a", TU_F32, TU_SHAPE(6000000, 6000000));
    tu_value b = tu_input(g, "b", TU_F32, TU_SHAPE(6000000, 6000000)), y = tu_matmul(a, b);
    tu_program *program;
    assert_int_equal(tu_compile(g, &program, .devices = "cpu", .fetch = &y, .fetch_count = 1), TU_NO_MEMORY);
    assert_non_null(strstr(tu_message(), "would need"));
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_items_of_the_peak_add_up_to_the_planned_need),
        cmocka_unit_test(device_overhead_is_an_item_and_counts),
        cmocka_unit_test(a_short_list_has_the_largest_items),
        cmocka_unit_test(the_message_names_need_limit_and_largest_item),
        cmocka_unit_test(advice_that_saves_nothing_is_omitted),
        cmocka_unit_test(recomputed_layers_save_less),
        cmocka_unit_test(a_program_that_just_fits_compiles),
        cmocka_unit_test(a_planned_program_cannot_run),
        cmocka_unit_test(matmuls_whose_flops_overflow_64_bits_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
