/* Programs whose command lists tests edit: correct lists of the engine, with copies both ways, collectives, swapped
 * variables and replicas, and functions that remove, insert and move commands. */
#ifndef TUTTI_EDITED_LIST_H
#define TUTTI_EDITED_LIST_H

#include <string.h>

#include <tutti/tutti.h>

#include "test.h"

#include "run/execution.h"

enum { MAX_QUEUES = 32, MAX_COMMANDS = 1024 };

/* A program and a copy of its list, which can be edited. */
typedef struct edited {
    tu_graph *graph;
    tu_program *program;
    tu_state *state;
    tu__execution *execution; /* with the addresses, once the program is bound */
    tu__command_list list;
    tu_command_queue queues[MAX_QUEUES];
    tu_command commands[MAX_QUEUES][MAX_COMMANDS];
} edited;

static edited e; /* large, so not on the stack */

/* ---- Programs ---- */

static inline void assert_ok(tu_status status) {
    if (status != TU_OK) fail_msg("%s", tu_message());
}

static inline void copy_list(void) {
    e.list = e.program->list;
    assert_true(e.list.list.queue_count <= MAX_QUEUES);
    for (uint32_t q = 0; q < e.list.list.queue_count; q++) {
        e.queues[q] = e.program->list.list.queues[q];
        assert_true(e.queues[q].count < MAX_COMMANDS);
        memcpy(e.commands[q], e.queues[q].commands, e.queues[q].count * sizeof(tu_command));
        e.queues[q].commands = e.commands[q];
    }
    e.list.list.queues = e.queues;
}

static inline void new_graph(void) {
    assert_ok(tu_graph_new(&e.graph));
}

static inline void compile(const char *devices, const char *strategy, size_t fetch_count,
                           const tu_value *fetch) {
    assert_ok(tu_compile(e.graph, &e.program, .devices = devices, .strategy = strategy, .updates = true,
                         .threads = 1, .fetch = fetch, .fetch_count = fetch_count));
    assert_ok(tu_state_new(e.graph, &e.state));
    copy_list();
}

static inline void end(void) {
    tu_program_free(e.program);
    tu_state_free(e.state);
    tu_graph_free(e.graph);
    memset(&e, 0, offsetof(edited, list));
}

static inline tu_value new_variable(const char *name) {
    return tu_variable(e.graph, name, TU_F32, TU_SHAPE(8));
}

/* Device 0.0 sends h and the variable w to 0.1. It updates v in place, and w with a copy. Device 0.1 sends nothing. */
static inline void compile_one_way(void) {
    tu_value h = {0}, y = {0}, v = {0}, w = {0};
    new_graph();
    tu_with_device(e.graph, "ref:0.0") {
        v = new_variable("v"), w = new_variable("w");
        h = tu_mul(tu_add(tu_input(e.graph, "x", TU_F32, TU_SHAPE(8)), v), w);
        tu_assign(w, tu_scale(w, 0.5));
        tu_assign(v, tu_tanh(h));
    }
    tu_with_device(e.graph, "ref:0.1") y = tu_add(tu_tanh(h), w);
    compile("ref:0/2", NULL, 1, &y);
}

/* Device 0.0 sends h to 0.1, which sends y back. */
static inline void compile_exchange(void) {
    tu_value h = {0}, y = {0}, z = {0};
    new_graph();
    tu_with_device(e.graph, "ref:0.0") h = tu_tanh(tu_input(e.graph, "x", TU_F32, TU_SHAPE(8)));
    tu_with_device(e.graph, "ref:0.1") y = tu_relu(h);
    tu_with_device(e.graph, "ref:0.0") z = tu_add(y, h);
    compile("ref:0/2", NULL, 1, &z);
}

static inline tu_value collective(tu__opcode op, tu_value value, int rank, const char *device) {
    /* The attributes of the other operations are the first of these. */
    struct tu__collective_broadcast_attrs attrs = {.collective = 1, .rank = rank, .ranks = 2};
    return tu__make(
        e.graph,
        &(tu__node_request){.op = op, .attrs = &attrs, .inputs = &value, .input_count = 1, .device = device});
}

/* Devices 0.0 and 0.1 exchange their values of x; 0.2 uses one of the results. */
static inline void compile_collective_of(tu__opcode op) {
    static const char *const devices[] = {"ref:0.0", "ref:0.1"};
    tu_value fetches[3];
    new_graph();
    tu_value x = tu_input(e.graph, "x", TU_F32, TU_SHAPE(8));
    for (int i = 0; i < 2; i++)
        tu_with_device(e.graph, devices[i]) fetches[i] =
            tu_relu(collective(op, tu_scale(tu_tanh(x), i + 1), i, devices[i]));
    tu_with_device(e.graph, "ref:0.2") fetches[2] = tu_tanh(fetches[0]);
    compile("ref:0/3", NULL, 3, fetches);
}

/* Devices 0.0 and 0.1 add their values of x. */
static inline void compile_collective(void) {
    compile_collective_of(TU__OP_ALL_REDUCE);
}

/* Variables that exchange their values within a device and between devices, a copy of another variable, and a
 * control dependency. */
static inline void compile_swaps(void) {
    tu_value a = {0}, b = {0}, c = {0}, h = {0};
    new_graph();
    tu_with_device(e.graph, "ref:0.0") {
        a = new_variable("a"), b = new_variable("b");
        h = tu_tanh(tu_input(e.graph, "x", TU_F32, TU_SHAPE(8)));
        tu_assign(new_variable("copy"), tu_add(a, h));
    }
    tu_with_device(e.graph, "ref:0.1") {
        c = new_variable("c");
        tu_value y = tu_relu(tu_add(a, c));
        tu_after(y, h);
        h = tu_mul(y, b);
    }
    tu_assign(a, b);
    tu_assign(b, c);
    tu_assign(c, a);
    compile("ref:0/2", NULL, 1, &h);
}

/* A network with gradients of all variables. */
static inline void compile_replicas(const char *devices, const char *strategy) {
    new_graph();
    tu_value x = tu_batch_input(e.graph, "x", TU_F32, TU_SHAPE(6, 8)), variables[2], gradients[2];
    for (int i = 0; i < 2; i++) {
        variables[i] = tu_variable(e.graph, i ? "w1" : "w0", TU_F32, TU_SHAPE(8, 8),
                                   .init = {.kind = TU_INIT_UNIFORM, .a = -1, .b = 1});
        x = tu_tanh(tu_matmul(x, variables[i]));
    }
    tu_value loss = tu_mean(tu_square(x));
    tu_gradients(loss, 2, variables, gradients);
    for (int i = 0; i < 2; i++) tu_assign(variables[i], tu_sub(variables[i], gradients[i]));
    compile(devices, strategy, 1, &loss);
}

/* ---- Editing ---- */

static inline uint32_t queue_from(uint32_t source, uint32_t partition) {
    uint32_t q = 0;
    while (q < e.list.list.queue_count &&
           (e.queues[q].partition != partition || e.queues[q].source != source))
        q++;
    assert_true(q < e.list.list.queue_count);
    return q;
}

static inline uint32_t compute_queue(uint32_t partition) {
    return queue_from(partition, partition);
}

/* Returns the position of the first command of a kind, from `position` on. */
static inline uint32_t find(uint32_t queue, tu_command_kind kind, uint32_t position) {
    while (position < e.queues[queue].count && e.commands[queue][position].kind != kind) position++;
    assert_true(position < e.queues[queue].count);
    return position;
}

static inline uint32_t find_last(uint32_t queue, tu_command_kind kind) {
    uint32_t position = e.queues[queue].count;
    while (position > 0 && e.commands[queue][position - 1].kind != kind) position--;
    assert_true(position > 0);
    return position - 1;
}

static inline tu_command remove_command(uint32_t queue, uint32_t position) {
    tu_command removed = e.commands[queue][position];
    memmove(&e.commands[queue][position], &e.commands[queue][position + 1],
            (--e.queues[queue].count - position) * sizeof removed);
    return removed;
}

static inline void insert_command(uint32_t queue, uint32_t position, tu_command command) {
    memmove(&e.commands[queue][position + 1], &e.commands[queue][position],
            (e.queues[queue].count++ - position) * sizeof command);
    e.commands[queue][position] = command;
}

/* Moves a command, so that it is at position `to` afterwards. */
static inline void move_command(uint32_t queue, uint32_t from, uint32_t to) {
    insert_command(queue, to, remove_command(queue, from));
}

static inline tu_status check(void) {
    return tu__command_list_check(&e.list, &e.program->collectives, e.program->partitions);
}

static inline void expect_message(const char *text) {
    assert_int_equal(check(), TU_INTERNAL);
    if (!strstr(tu_message(), text)) fail_msg("expected '%s' in '%s'", text, tu_message());
}

/* Asserts that the checker names a rule, a command, and a reason. */
static inline void expect_failure(int rule, uint32_t queue, uint32_t position, const char *reason) {
    char text[512];
    snprintf(text, sizeof text, "breaks rule %d: %s of device '%s', command %u (%s): %s", rule,
             e.queues[queue].source == e.queues[queue].partition ? "the compute queue" : "a copy queue",
             e.program->partitions[e.queues[queue].partition].device->name, position,
             tu__command_describe(&e.commands[queue][position]).text, reason);
    expect_message(text);
}

#endif
