/* The engine validates the plans that devices return. An invalid plan is rejected with a message that names the
 * device, the kernel and the error; nothing runs, and nothing is read out of bounds. */
#include "test.h"

#include <string.h>

#include <tutti/tutti.h>

#include "device/device.h"
#include "device/host_memory.h"
#include "device/kit/plan_check.h"
#include "device/node_plan.h"

/* ---- A device that returns invalid plans ---- */

/* It plans like the device ref, into copies that a test may damage. The graph is y = relu(x + w), fetched. */
typedef struct damaged_plan {
    tu_plan plan;
    tu_buffer buffers[8];
    tu_kernel kernels[4];
    uint32_t indices[4][8]; /* per kernel: its node, reads and writes */
    int32_t in_place[4];
} damaged_plan;

static void (*current_damage)(damaged_plan *d);

static void copy_kernel(damaged_plan *d, uint32_t k) {
    tu_kernel *kernel = &d->kernels[k];
    uint32_t *list = d->indices[k];
    list[0] = kernel->nodes[0];
    memcpy(list + 1, kernel->reads, kernel->read_count * sizeof *list);
    memcpy(list + 1 + kernel->read_count, kernel->writes, kernel->write_count * sizeof *list);
    kernel->nodes = list;
    kernel->reads = list + 1;
    kernel->writes = list + 1 + kernel->read_count;
    d->in_place[k] = -1;
    kernel->in_place = &d->in_place[k];
}

static tu_status lower_damaged(tu_device_instance *device, const tu_partition *partition, tu_plan **plan) {
    static damaged_plan d;
    tu_plan *valid;
    TU_TRY(tu__node_plan_lower(device, partition, &valid));
    assert_true(valid->buffer_count <= 8 && valid->kernel_count <= 4);
    memset(&d, 0, sizeof d);
    d.plan = *valid;
    memcpy(d.buffers, valid->buffers, valid->buffer_count * sizeof *d.buffers);
    memcpy(d.kernels, valid->kernels, valid->kernel_count * sizeof *d.kernels);
    for (uint32_t k = 0; k < valid->kernel_count; k++) copy_kernel(&d, k);
    tu__node_plan_free(device, valid);
    d.plan.buffers = d.buffers;
    d.plan.kernels = d.kernels;
    *plan = &d.plan;
    if (current_damage) current_damage(&d);
    if (d.plan.struct_size == 0) *plan = NULL;
    return TU_OK;
}

static void ignore_plan_free(tu_device_instance *device, tu_plan *plan) {
    (void)device, (void)plan;
}

static tu_status describe(tu_device_instance *device, int index, tu_device_info *info) {
    (void)device;
    *info = (tu_device_info){.name = "wrong:0", .kind = "wrong"};
    return index == 0 ? TU_OK : TU_NOT_FOUND;
}

static tu_status open_device(const tu_open_options *options, tu_device_instance **device) {
    (void)options;
    *device = NULL;
    return TU_OK;
}

static void close_device(tu_device_instance *device) {
    (void)device;
}

static tu_status launch(tu_device_instance *device, tu_executable *executable, uint32_t first,
                        uint32_t count) {
    (void)device, (void)executable, (void)first, (void)count;
    return TU_OK;
}

static const tu_device_api damaged_api = {
    .abi = TU_DEVICE_ABI,
    .struct_size = sizeof damaged_api,
    .kind = "wrong",
    .host_memory = true,
    .describe = describe,
    .open = open_device,
    .close = close_device,
    .allocate = tu__host_allocate,
    .release = tu__host_release,
    .copy = tu__host_copy,
    .lower = lower_damaged,
    .plan_free = ignore_plan_free,
    .build = tu__node_plan_build,
    .executable_free = tu__node_executable_free,
    .launch = launch,
};

/* Compiles y = relu(x + w) for the device, which damages its plan by `damage`; returns the status. */
static tu_status compile(void (*damage)(damaged_plan *d)) {
    tu_graph *g;
    tu_program *program = NULL;
    assert_int_equal(tu__device_kind_add(&damaged_api), TU_OK);
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(5));
    tu_value w = tu_variable(g, "w", TU_F32, TU_SHAPE(5));
    tu_value y = tu_name(tu_relu(tu_name(tu_add(x, w), "sum")), "y");
    current_damage = damage;
    tu_status status = tu_compile(g, &program, .devices = "wrong", .fetch = &y, .fetch_count = 1);
    tu_program_free(program);
    tu_graph_free(g);
    return status;
}

/* ---- Ways to damage a plan ----
 *
 * Kernel 0 is add, reads buffers 0 and 1, writes 2; kernel 1 is relu, reads 2, writes 3. */

static void return_no_plan(damaged_plan *d) {
    d->plan.struct_size = 0;
}
static void return_a_short_struct(damaged_plan *d) {
    d->plan.struct_size = 8;
}
static void return_no_kernel_list(damaged_plan *d) {
    d->plan.kernels = NULL;
}
static void buffer_of_an_unknown_node(damaged_plan *d) {
    d->buffers[2].value.node = 77;
}
static void buffer_of_an_unknown_output(damaged_plan *d) {
    d->buffers[2].value.output = 3;
}
static void buffer_too_small(damaged_plan *d) {
    d->buffers[3].bytes = 4;
}
static void buffer_too_large(damaged_plan *d) {
    d->buffers[2].value.node = TU_NO_NODE;
    d->buffers[2].bytes = SIZE_MAX - 5;
}
static void two_buffers_of_one_value(damaged_plan *d) {
    d->buffers[2].value = d->buffers[3].value;
}
static void leaf_not_dense(damaged_plan *d) {
    d->buffers[0].dense = false;
}
static void kernel_without_a_name(damaged_plan *d) {
    d->kernels[1].name = NULL;
}
static void compute_nothing(damaged_plan *d) {
    d->kernels[1].node_count = 0;
}
static void compute_an_unknown_node(damaged_plan *d) {
    d->indices[1][0] = 1000;
}
static void compute_a_leaf(damaged_plan *d) {
    d->indices[1][0] = d->buffers[0].value.node;
}
static void compute_a_node_twice(damaged_plan *d) {
    d->indices[1][0] = d->indices[0][0];
}
static void omit_a_kernel(damaged_plan *d) {
    d->plan.kernel_count = 1;
}
static void read_out_of_range(damaged_plan *d) {
    d->indices[1][1] = 4;
}
static void read_its_own_result(damaged_plan *d) {
    d->indices[1][1] = 3;
}
static void read_no_list(damaged_plan *d) {
    d->kernels[1].reads = NULL;
}
static void write_out_of_range(damaged_plan *d) {
    d->indices[1][2] = 4;
}
static void compute_endless_nodes(damaged_plan *d) {
    d->kernels[1].node_count = UINT32_MAX;
}
static void read_an_endless_list(damaged_plan *d) {
    d->kernels[1].read_count = UINT32_MAX;
}
static void write_an_endless_list(damaged_plan *d) {
    d->kernels[1].write_count = 5;
}
static void write_twice(damaged_plan *d) {
    d->indices[1][2] = 2;
}
static void write_a_leaf(damaged_plan *d) {
    d->indices[0][3] = 1;
}
static void read_an_unwritten_buffer(damaged_plan *d) {
    d->kernels[0].write_count = 0;
}
static void export_an_unwritten_buffer(damaged_plan *d) {
    d->kernels[1].write_count = 0;
}
static void export_not_dense(damaged_plan *d) {
    d->buffers[3].dense = false;
}
static void in_place_out_of_range(damaged_plan *d) {
    d->in_place[0] = 2;
}
static void in_place_below_range(damaged_plan *d) {
    d->in_place[0] = -2;
}
static void workspace_too_large(damaged_plan *d) {
    d->kernels[1].workspace = SIZE_MAX / 2;
}

static void invalid_plans_are_rejected_with_a_reason(void **unused) {
    (void)unused;
    static const struct {
        void (*damage)(damaged_plan *d);
        const char *expected_text[2];
    } rows[] = {
        {return_no_plan, {"returned no plan", ""}},
        {return_a_short_struct, {"struct_size is 8", "expected"}},
        {return_no_kernel_list, {"4 buffers and 2 kernels", "NULL"}},
        {buffer_of_an_unknown_node, {"buffer 2", "node 77"}},
        {buffer_of_an_unknown_output, {"buffer 2", "output 3"}},
        {buffer_too_small, {"buffer 3 for 'y' has 4 bytes", "20"}},
        {buffer_too_large, {"buffer 2", "expected less than 2^52"}},
        {two_buffers_of_one_value, {"buffers 2 and 3", "'y'"}},
        {leaf_not_dense, {"buffer 0", "not dense"}},
        {kernel_without_a_name, {"kernel 1", "no name"}},
        {compute_nothing, {"kernel 'relu'", "no node"}},
        {compute_an_unknown_node, {"kernel 'relu'", "1000"}},
        {compute_a_leaf, {"kernel 'relu'", "not in the device's partition"}},
        {compute_a_node_twice, {"no kernel computes relu", "'y'"}},
        {omit_a_kernel, {"no kernel computes relu", "'y'"}},
        {read_out_of_range, {"kernel 'relu'", "reads"}},
        {read_its_own_result, {"kernel 'relu'", "writes itself"}},
        {read_no_list, {"kernel 'relu'", "no list"}},
        {write_out_of_range, {"kernel 'relu'", "writes"}},
        {compute_endless_nodes, {"kernel 'relu' has 4294967295 nodes", "expected at most 4"}},
        {read_an_endless_list, {"kernel 'relu' has 4294967295 reads", "expected at most"}},
        {write_an_endless_list, {"kernel 'relu' has 5 writes", "expected at most 4"}},
        {write_twice, {"kernels 'add' and 'relu'", "buffer 2"}},
        {write_a_leaf, {"kernel 'add'", "which only the engine may write"}},
        {read_an_unwritten_buffer, {"kernel 'relu' reads buffer 2", "sum"}},
        {export_an_unwritten_buffer, {"buffer 3", "'y'"}},
        {export_not_dense, {"no dense buffer", "'y'"}},
        {in_place_out_of_range, {"kernel 'add'", "read 2"}},
        {in_place_below_range, {"kernel 'add'", "read -2"}},
        {workspace_too_large, {"kernel 'relu'", "workspace"}},
    };
    assert_int_equal(compile(NULL), TU_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(compile(rows[i].damage), TU_INTERNAL);
        const char *message = tu_message();
        if (!strstr(message, "device 'wrong:0'") || !strstr(message, rows[i].expected_text[0]) ||
            !strstr(message, rows[i].expected_text[1]))
            fail_msg("row %zu gives: %s", i, message);
    }
}

/* ---- Allocation ---- */

static tu_status allocate_nothing(tu_device_instance *device, bool on_host, size_t bytes, void **address) {
    (void)device, (void)on_host, (void)bytes, (void)address;
    return TU_OK;
}

static void a_device_that_allocates_nothing_is_reported(void **unused) {
    (void)unused;
    static tu_device_api api;
    tu_graph *g;
    tu_program *program;
    tu_state *state;
    api = damaged_api;
    api.kind = "empty";
    api.allocate = allocate_nothing;
    assert_int_equal(tu__device_kind_add(&api), TU_OK);
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_variable(g, "x", TU_F32, TU_SHAPE(5)), y = tu_relu(x);
    float result[5];
    current_damage = NULL;
    assert_int_equal(tu_compile(g, &program, .devices = "empty", .fetch = &y, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    assert_int_equal(tu_run(program, state, 0, NULL, (void *[]){result}), TU_INTERNAL);
    assert_non_null(strstr(tu_message(), "returned no address"));
    tu_state_free(state);
    tu_program_free(program);
    tu_graph_free(g);
}

/* A kernel that computes values of level 0 and of level 1 could make another device wait forever. */
static void a_kernel_that_mixes_levels_is_rejected(void **unused) {
    (void)unused;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2)), low = tu_exp(x), high = tu_log(x);
    const uint32_t nodes[] = {low.node, high.node}, reads[] = {0}, writes[] = {1, 2};
    const tu_edge exports[] = {{low.node, 0}, {high.node, 0}};
    uint32_t levels[] = {0, 0, 0};
    tu_partition partition = {.struct_size = sizeof partition,
                              .graph = g,
                              .node_count = 2,
                              .nodes = nodes,
                              .export_count = 2,
                              .exports = exports,
                              .levels = levels};
    const tu_buffer buffers[] = {{8, {x.node, 0}, true}, {8, {low.node, 0}, true}, {8, {high.node, 0}, true}};
    const tu_kernel kernel = {.name = "both",
                              .node_count = 2,
                              .nodes = nodes,
                              .read_count = 1,
                              .reads = reads,
                              .write_count = 2,
                              .writes = writes};
    tu_plan plan = {sizeof plan, 3, 1, buffers, &kernel, 0};
    assert_int_equal(tu__plan_check("here", &partition, &plan), TU_OK);
    levels[high.node] = 1;
    assert_int_equal(tu__plan_check("here", &partition, &plan), TU_INTERNAL);
    assert_non_null(strstr(tu_message(), "kernel 'both' writes 'exp' of level 0 and 'log' of level 1"));
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_plans_are_rejected_with_a_reason),
        cmocka_unit_test(a_device_that_allocates_nothing_is_reported),
        cmocka_unit_test(a_kernel_that_mixes_levels_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
