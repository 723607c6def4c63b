/* Tests of compile/check_list.c, which rejects command lists that break a rule of decision 41.
 *
 * The engine writes correct lists, so the checker would not be missed until a device or a change of the engine needs
 * it. Here correct lists are edited: each test breaks one rule and expects the message to name it, the queue and the
 * command. The last tests make many small edits, and compare the checker with a slow computation of all races. */
#include <string.h>

#include "ops/random_network.h"
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

static void assert_ok(tu_status status) {
    if (status != TU_OK) fail_msg("%s", tu_message());
}

static void copy_list(void) {
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

static void new_graph(void) {
    assert_ok(tu_graph_new(&e.graph));
}

static void compile(const char *devices, const char *strategy, size_t fetch_count, const tu_value *fetch) {
    assert_ok(tu_compile(e.graph, &e.program, .devices = devices, .strategy = strategy, .updates = true,
                         .threads = 1, .fetch = fetch, .fetch_count = fetch_count));
    assert_ok(tu_state_new(e.graph, &e.state));
    copy_list();
}

static void end(void) {
    tu_program_free(e.program);
    tu_state_free(e.state);
    tu_graph_free(e.graph);
    memset(&e, 0, offsetof(edited, list));
}

static tu_value new_variable(const char *name) {
    return tu_variable(e.graph, name, TU_F32, TU_SHAPE(8));
}

/* Device 0.0 sends h and the variable w to 0.1. It updates v in place, and w with a copy. Device 0.1 sends nothing. */
static void compile_one_way(void) {
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
static void compile_exchange(void) {
    tu_value h = {0}, y = {0}, z = {0};
    new_graph();
    tu_with_device(e.graph, "ref:0.0") h = tu_tanh(tu_input(e.graph, "x", TU_F32, TU_SHAPE(8)));
    tu_with_device(e.graph, "ref:0.1") y = tu_relu(h);
    tu_with_device(e.graph, "ref:0.0") z = tu_add(y, h);
    compile("ref:0/2", NULL, 1, &z);
}

static tu_value all_reduce(tu_value value, int rank, const char *device) {
    struct tu__all_reduce_attrs attrs = {.collective = 1, .rank = rank, .ranks = 2};
    return tu__make(
        e.graph,
        &(tu__node_request){
            .op = TU__OP_ALL_REDUCE, .attrs = &attrs, .inputs = &value, .input_count = 1, .device = device});
}

/* Devices 0.0 and 0.1 add their values of x; 0.2 uses one of the sums. */
static void compile_collective(void) {
    static const char *const devices[] = {"ref:0.0", "ref:0.1"};
    tu_value fetches[3];
    new_graph();
    tu_value x = tu_input(e.graph, "x", TU_F32, TU_SHAPE(8));
    for (int i = 0; i < 2; i++)
        tu_with_device(e.graph, devices[i]) fetches[i] =
            tu_relu(all_reduce(tu_scale(tu_tanh(x), i + 1), i, devices[i]));
    tu_with_device(e.graph, "ref:0.2") fetches[2] = tu_tanh(fetches[0]);
    compile("ref:0/3", NULL, 3, fetches);
}

/* Variables that exchange their values within a device and between devices, a copy of another variable, and a
 * control dependency. */
static void compile_swaps(void) {
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
static void compile_replicas(const char *devices, const char *strategy) {
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

static uint32_t queue_from(uint32_t source, uint32_t partition) {
    uint32_t q = 0;
    while (q < e.list.list.queue_count &&
           (e.queues[q].partition != partition || e.queues[q].source != source))
        q++;
    assert_true(q < e.list.list.queue_count);
    return q;
}

static uint32_t compute_queue(uint32_t partition) {
    return queue_from(partition, partition);
}

/* Returns the position of the first command of a kind, from `position` on. */
static uint32_t find(uint32_t queue, tu_command_kind kind, uint32_t position) {
    while (position < e.queues[queue].count && e.commands[queue][position].kind != kind) position++;
    assert_true(position < e.queues[queue].count);
    return position;
}

static uint32_t find_last(uint32_t queue, tu_command_kind kind) {
    uint32_t position = e.queues[queue].count;
    while (position > 0 && e.commands[queue][position - 1].kind != kind) position--;
    assert_true(position > 0);
    return position - 1;
}

static tu_command remove_command(uint32_t queue, uint32_t position) {
    tu_command removed = e.commands[queue][position];
    memmove(&e.commands[queue][position], &e.commands[queue][position + 1],
            (--e.queues[queue].count - position) * sizeof removed);
    return removed;
}

static void insert_command(uint32_t queue, uint32_t position, tu_command command) {
    memmove(&e.commands[queue][position + 1], &e.commands[queue][position],
            (e.queues[queue].count++ - position) * sizeof command);
    e.commands[queue][position] = command;
}

/* Moves a command, so that it is at position `to` afterwards. */
static void move_command(uint32_t queue, uint32_t from, uint32_t to) {
    insert_command(queue, to, remove_command(queue, from));
}

static tu_status check(void) {
    return tu__command_list_check(&e.list, &e.program->collectives, e.program->partitions);
}

static void expect_message(const char *text) {
    assert_int_equal(check(), TU_INTERNAL);
    if (!strstr(tu_message(), text)) fail_msg("expected '%s' in '%s'", text, tu_message());
}

/* Asserts that the checker names a rule, a command, and a reason. */
static void expect_failure(int rule, uint32_t queue, uint32_t position, const char *reason) {
    char text[512];
    snprintf(text, sizeof text, "breaks rule %d: %s of device '%s', command %u (%s): %s", rule,
             e.queues[queue].source == e.queues[queue].partition ? "the compute queue" : "a copy queue",
             e.program->partitions[e.queues[queue].partition].device->name, position,
             tu__command_describe(&e.commands[queue][position]).text, reason);
    expect_message(text);
}

/* ---- Rule 1: events and order ---- */

static void lists_of_the_engine_are_accepted(void **unused) {
    (void)unused;
    compile_exchange();
    assert_ok(check());
    end();
    compile_replicas("ref:0/3", "mirrored");
    assert_ok(check());
    end();
}

static void an_event_that_is_signalled_twice_is_rejected(void **unused) {
    (void)unused;
    compile_exchange();
    uint32_t queue = compute_queue(0), position = find(queue, TU_COMMAND_SIGNAL, 0);
    insert_command(queue, position, e.commands[queue][position]);
    expect_failure(1, queue, position + 1, "the event is signalled twice in a step");
    end();
}

/* Partition 0 receives nothing, so that nothing signals the end of its step, which is event 0. */
static void waiting_for_an_event_that_is_never_signalled_is_rejected(void **unused) {
    (void)unused;
    compile_one_way();
    uint32_t queue = compute_queue(1);
    insert_command(queue, 1, (tu_command){.kind = TU_COMMAND_WAIT, .index = 0});
    expect_failure(1, queue, 1, "no command signals the event");
    e.commands[queue][1].kind = TU_COMMAND_WAIT_PREVIOUS;
    expect_failure(1, queue, 1, "no command signals the event");
    end();
}

static void queues_that_wait_for_each_other_are_rejected(void **unused) {
    (void)unused;
    compile_exchange();
    uint32_t queue = compute_queue(0), signal = find(queue, TU_COMMAND_SIGNAL, 0);
    move_command(queue, find(queue, TU_COMMAND_WAIT, 0), signal);
    expect_failure(1, queue, signal, "it waits for a command that never runs");
    end();
}

static void kernels_in_another_order_are_rejected(void **unused) {
    (void)unused;
    compile_exchange();
    uint32_t queue = compute_queue(0), first = find(queue, TU_COMMAND_LAUNCH, 0),
             second = find(queue, TU_COMMAND_LAUNCH, first + 1);
    tu_command launch = e.commands[queue][first];
    e.commands[queue][first] = e.commands[queue][second];
    e.commands[queue][second] = launch;
    expect_failure(1, queue, first, "it does not continue the partition's order of kernels");
    copy_list();
    e.commands[queue][second].count++;
    expect_failure(1, queue, second, "it does not continue the partition's order of kernels");
    copy_list();
    remove_command(queue, second);
    expect_message("rule 1: device 'ref:0.0' launches 1 of 2 kernels");
    end();
}

static void expect_index_out_of_range(uint32_t queue, uint32_t position) {
    e.commands[queue][position].index = UINT32_MAX;
    expect_failure(1, queue, position, "its index is out of range");
    copy_list();
}

static void an_index_out_of_range_is_rejected(void **unused) {
    (void)unused;
    static const tu_command_kind kinds[] = {TU_COMMAND_FEED,  TU_COMMAND_POST, TU_COMMAND_AWAIT,
                                            TU_COMMAND_FETCH, TU_COMMAND_WAIT, TU_COMMAND_SIGNAL};
    compile_collective();
    uint32_t copies = queue_from(0, 2), copy = find(copies, TU_COMMAND_COPY, 0);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        expect_index_out_of_range(compute_queue(0), find(compute_queue(0), kinds[i], 0));
    expect_index_out_of_range(copies, find(copies, TU_COMMAND_WAIT_PREVIOUS, 0));
    e.commands[copies][copy].from.buffer = UINT32_MAX;
    expect_failure(1, copies, copy, "its index is out of range");
    copy_list();
    e.commands[copies][copy].to.partition = 3;
    expect_failure(1, copies, copy, "its index is out of range");
    copy_list();
    e.commands[copies][copy].kind = (tu_command_kind)99;
    expect_failure(1, copies, copy, "its index is out of range");
    end();
}

static void a_command_in_a_queue_that_may_not_have_it_is_rejected(void **unused) {
    (void)unused;
    compile_exchange();
    uint32_t copies = queue_from(0, 1);
    insert_command(copies, 1, (tu_command){.kind = TU_COMMAND_LAUNCH, .count = 1});
    expect_failure(1, copies, 1, "it belongs to another queue");
    copy_list();
    insert_command(queue_from(1, 0), 1, e.commands[copies][find(copies, TU_COMMAND_COPY, 0)]);
    expect_failure(1, queue_from(1, 0), 1, "it belongs to another queue");
    copy_list();
    insert_command(compute_queue(1), 0,
                   e.commands[compute_queue(0)][find(compute_queue(0), TU_COMMAND_FEED, 0)]);
    expect_failure(1, compute_queue(1), 0, "it belongs to another queue");
    end();
}

/* ---- Rule 2: memory ---- */

static void a_kernel_that_does_not_wait_for_its_copy_is_rejected(void **unused) {
    (void)unused;
    compile_one_way();
    uint32_t queue = compute_queue(1), wait = find(queue, TU_COMMAND_WAIT, 0);
    assert_int_equal(e.commands[queue][wait + 1].kind, TU_COMMAND_LAUNCH);
    remove_command(queue, wait);
    expect_failure(2, queue, wait, "command 5 of another queue (COPY ");
    end();
}

static void a_sender_that_does_not_wait_at_the_end_of_its_step_is_rejected(void **unused) {
    (void)unused;
    compile_one_way();
    uint32_t queue = compute_queue(0);
    remove_command(queue, find_last(queue, TU_COMMAND_WAIT));
    /* the input of the next step has the memory of h */
    expect_failure(2, queue, find(queue, TU_COMMAND_FEED, 0), "command 5 of another queue (COPY ");
    end();
}

static void a_copy_that_does_not_wait_for_the_previous_step_is_rejected(void **unused) {
    (void)unused;
    compile_one_way();
    uint32_t queue = queue_from(0, 1);
    remove_command(queue, find(queue, TU_COMMAND_WAIT_PREVIOUS, 0));
    expect_failure(2, compute_queue(1), find(compute_queue(1), TU_COMMAND_LAUNCH, 0),
                   "command 4 of another queue (COPY ");
    end();
}

static void a_value_that_is_copied_before_it_is_computed_is_rejected(void **unused) {
    (void)unused;
    compile_exchange();
    uint32_t queue = compute_queue(0), launch = find(queue, TU_COMMAND_LAUNCH, 0);
    move_command(queue, find(queue, TU_COMMAND_SIGNAL, 0), launch);
    expect_failure(2, queue, launch + 1, "command 2 of another queue (COPY ");
    end();
}

static void a_sum_that_is_read_before_the_await_is_rejected(void **unused) {
    (void)unused;
    compile_collective();
    uint32_t queue = compute_queue(1), await = find(queue, TU_COMMAND_AWAIT, 0);
    move_command(queue, await, find_last(queue, TU_COMMAND_LAUNCH));
    expect_failure(2, queue, await, "collective 0 touches the same memory");
    end();
}

/* ---- Rule 3: variables ---- */

static void a_variable_that_changes_while_another_queue_reads_it_is_rejected(void **unused) {
    (void)unused;
    compile_one_way();
    uint32_t queue = compute_queue(0), commit = find(queue, TU_COMMAND_COMMIT, 0);
    assert_int_equal(e.commands[queue][commit - 1].kind, TU_COMMAND_WAIT);
    remove_command(queue, commit - 1);
    expect_failure(3, queue, find(queue, TU_COMMAND_COPY, commit), "command 2 of another queue (COPY ");
    assert_non_null(strstr(tu_message(), "touches the same variable"));
    end();
}

static void a_kernel_that_changes_a_variable_before_commit_is_rejected(void **unused) {
    (void)unused;
    compile_one_way();
    uint32_t queue = compute_queue(0), commit = find(queue, TU_COMMAND_COMMIT, 0);
    move_command(queue, commit, commit + 1);
    expect_failure(3, queue, commit, "it writes a variable or a constant before COMMIT");
    end();
}

static void a_copy_to_a_variable_before_commit_is_rejected(void **unused) {
    (void)unused;
    compile_swaps();
    uint32_t queue = compute_queue(0), commit = find(queue, TU_COMMAND_COMMIT, 0);
    move_command(queue, commit, find_last(queue, TU_COMMAND_COPY));
    expect_failure(3, queue, find(queue, TU_COMMAND_COPY, 0),
                   "it writes a variable or a constant before COMMIT");
    end();
}

static void a_queue_without_one_commit_is_rejected(void **unused) {
    (void)unused;
    compile_one_way();
    uint32_t queue = compute_queue(1), commit = find(queue, TU_COMMAND_COMMIT, 0);
    insert_command(queue, commit, e.commands[queue][commit]);
    expect_failure(3, queue, commit + 1, "the queue has committed before");
    copy_list();
    remove_command(queue, commit);
    expect_message("rule 3: the compute queue of device 'ref:0.1' has no COMMIT");
    end();
}

/* The engine interprets COMMIT as a barrier, which would never be reached. */
static void a_commit_that_waits_for_a_command_after_another_commit_is_rejected(void **unused) {
    (void)unused;
    compile_exchange();
    uint32_t queue = compute_queue(1), other = compute_queue(0);
    move_command(queue, find(queue, TU_COMMAND_SIGNAL, 0), find(queue, TU_COMMAND_COMMIT, 0));
    expect_failure(3, other, find(other, TU_COMMAND_COMMIT, 0),
                   "it waits for a command after the COMMIT of another queue");
    end();
}

/* ---- Rule 4: collectives ---- */

static void a_rank_that_posts_or_awaits_twice_is_rejected(void **unused) {
    (void)unused;
    compile_collective();
    uint32_t queue = compute_queue(0), post = find(queue, TU_COMMAND_POST, 0);
    insert_command(queue, post, e.commands[queue][post]);
    expect_failure(4, queue, post + 1, "the rank has posted before");
    copy_list();
    uint32_t await = find(queue, TU_COMMAND_AWAIT, 0);
    insert_command(queue, await, e.commands[queue][await]);
    expect_failure(4, queue, await + 1, "the rank has awaited the collective before");
    end();
}

static void a_partition_that_is_no_rank_may_not_post(void **unused) {
    (void)unused;
    compile_collective();
    uint32_t queue = compute_queue(2);
    insert_command(queue, 0, (tu_command){.kind = TU_COMMAND_POST});
    expect_failure(4, queue, 0, "the partition is no rank of the collective");
    e.commands[queue][0].kind = TU_COMMAND_AWAIT;
    expect_failure(4, queue, 0, "the partition is no rank of the collective");
    end();
}

static void an_await_before_its_post_is_rejected(void **unused) {
    (void)unused;
    compile_replicas("ref:0/3", "mirrored");
    uint32_t queue = compute_queue(1), post = find(queue, TU_COMMAND_POST, 0);
    move_command(queue, find(queue, TU_COMMAND_AWAIT, 0), post);
    expect_failure(4, queue, post, "the rank has not posted yet");
    end();
}

static void a_rank_that_does_not_take_part_is_rejected(void **unused) {
    (void)unused;
    compile_collective();
    uint32_t queue = compute_queue(1);
    remove_command(queue, find(queue, TU_COMMAND_AWAIT, 0));
    expect_message("rule 4: device 'ref:0.1' does not await collective 0");
    remove_command(queue, find(queue, TU_COMMAND_POST, 0));
    expect_message("rule 4: device 'ref:0.1' does not post its values of collective 0");
    end();
}

/* ---- All races of a list, computed without clocks ----
 *
 * Nodes are the commands and the collectives of two steps. `before` has one set of bits per node: the nodes that have
 * ended before it starts. Memory means addresses, which the program has once it is bound to a state. */

enum { SETS = 2 * MAX_COMMANDS, WORDS = SETS / 64, MAX_TOUCHES = 8192 };

typedef struct touch { /* a range of memory that a node reads or writes */
    uint32_t node;     /* in the first step */
    bool writes;
    const char *begin, *end;
} touch;

static struct {
    uint32_t first[MAX_QUEUES]; /* per queue: node of its first command */
    uint32_t collectives;       /* node of the first collective */
    uint32_t count;             /* nodes of one step */
    uint64_t before[SETS][WORDS];
    touch touches[MAX_TOUCHES];
    uint32_t touch_count;
} races;

static void number_nodes(void) {
    races.count = 0;
    for (uint32_t q = 0; q < e.list.list.queue_count; q++) {
        races.first[q] = races.count;
        races.count += e.queues[q].count;
    }
    races.collectives = races.count;
    races.count += e.list.list.collective_count;
    assert_true(2 * races.count <= SETS);
    memset(races.before, 0, 2 * (size_t)races.count * sizeof *races.before);
}

static bool is_before(uint32_t earlier, uint32_t later) {
    return races.before[later][earlier / 64] >> (earlier % 64) & 1;
}

/* Adds `earlier`, and all that comes before it, to what comes before `later`; true if that changed anything. */
static bool add_before(uint32_t earlier, uint32_t later) {
    bool changed = !is_before(earlier, later);
    races.before[later][earlier / 64] |= (uint64_t)1 << (earlier % 64);
    for (uint32_t i = 0; i < WORDS; i++) {
        uint64_t all = races.before[later][i] | races.before[earlier][i];
        changed = changed || all != races.before[later][i];
        races.before[later][i] = all;
    }
    return changed;
}

/* Adds to what comes before `later` all commands of a kind and an index, in one step. */
static bool add_all_before(tu_command_kind kind, uint32_t index, uint32_t step, uint32_t later) {
    bool changed = false;
    for (uint32_t q = 0; q < e.list.list.queue_count; q++)
        for (uint32_t i = 0; i < e.queues[q].count; i++)
            if (e.commands[q][i].kind == kind && e.commands[q][i].index == index)
                changed = add_before(step * races.count + races.first[q] + i, later) || changed;
    return changed;
}

static bool order_command(uint32_t step, uint32_t queue, uint32_t position) {
    const tu_command *c = &e.commands[queue][position];
    uint32_t node = step * races.count + races.first[queue] + position;
    bool changed = position && add_before(node - 1, node);
    if (!position && step) changed = add_before(races.first[queue] + e.queues[queue].count - 1, node);
    if (c->kind == TU_COMMAND_WAIT)
        changed = add_all_before(TU_COMMAND_SIGNAL, c->index, step, node) || changed;
    if (c->kind == TU_COMMAND_WAIT_PREVIOUS && step)
        changed = add_all_before(TU_COMMAND_SIGNAL, c->index, step - 1, node) || changed;
    if (c->kind == TU_COMMAND_AWAIT)
        changed = add_before(step * races.count + races.collectives + c->index, node) || changed;
    return changed;
}

static bool order_once(void) {
    bool changed = false;
    for (uint32_t step = 0; step < 2; step++) {
        for (uint32_t q = 0; q < e.list.list.queue_count; q++)
            for (uint32_t i = 0; i < e.queues[q].count; i++) changed = order_command(step, q, i) || changed;
        for (uint32_t k = 0; k < e.list.list.collective_count; k++)
            changed = add_all_before(TU_COMMAND_POST, k, step, step * races.count + races.collectives + k) ||
                      changed;
    }
    return changed;
}

static void add_touch(uint32_t node, bool writes, const void *address, size_t bytes) {
    assert_true(races.touch_count < MAX_TOUCHES);
    races.touches[races.touch_count++] =
        (touch){.node = node, .writes = writes, .begin = address, .end = (const char *)address + bytes};
}

/* ---- The parts that depend on src/run: addresses ---- */

static void bind_program(void) {
    assert_ok(tu__execution_of(e.program, NULL, &e.execution));
    assert_ok(tu__bind(e.execution, e.state));
}

static void touch_place(uint32_t node, bool writes, tu_place place, size_t bytes) {
    add_touch(node, writes, e.execution->parts[place.partition].addresses[place.buffer], bytes);
}

static void touch_buffer(uint32_t node, bool writes, uint32_t partition, uint32_t buffer) {
    touch_place(node, writes, (tu_place){partition, buffer},
                e.program->partitions[partition].plan->buffers[buffer].bytes);
}

static void touch_kernel(uint32_t node, uint32_t partition, uint32_t kernel) {
    const tu__partition *p = &e.program->partitions[partition];
    const tu_kernel *k = &p->plan->kernels[kernel];
    for (uint32_t i = 0; i < k->read_count; i++) touch_buffer(node, false, partition, k->reads[i]);
    for (uint32_t i = 0; i < k->write_count; i++) touch_buffer(node, true, partition, k->writes[i]);
    if (k->workspace) add_touch(node, true, e.execution->parts[partition].workspaces[kernel], k->workspace);
}

static void touch_collective(uint32_t node, const tu__collective *c) {
    for (uint32_t r = 0; r < c->ranks; r++)
        for (uint32_t v = 0; v < c->value_count; v++) {
            touch_buffer(node, false, c->members[r].partition, c->members[r].in[v]);
            touch_buffer(node, true, c->members[r].partition, c->members[r].out[v]);
        }
}

static void touch_command(uint32_t node, uint32_t partition, const tu_command *c) {
    const tu_command_list *list = &e.list.list;
    if (c->kind == TU_COMMAND_FEED)
        touch_place(node, true, list->feeds[c->index].place, list->feeds[c->index].bytes);
    if (c->kind == TU_COMMAND_FETCH)
        touch_place(node, false, list->fetches[c->index].place, list->fetches[c->index].bytes);
    if (c->kind == TU_COMMAND_COPY) {
        touch_place(node, false, c->from, c->bytes);
        touch_place(node, true, c->to, c->bytes);
    }
    for (uint32_t i = 0; c->kind == TU_COMMAND_LAUNCH && i < c->count; i++)
        touch_kernel(node, partition, e.program->partitions[partition].order[c->first + i]);
}

/* ---- Races ---- */

static void list_touches(void) {
    races.touch_count = 0;
    for (uint32_t q = 0; q < e.list.list.queue_count; q++)
        for (uint32_t i = 0; i < e.queues[q].count; i++)
            touch_command(races.first[q] + i, e.queues[q].partition, &e.commands[q][i]);
    for (uint32_t k = 0; k < e.list.list.collective_count; k++)
        touch_collective(races.collectives + k, &e.program->collectives.list[k]);
}

static bool is_race(const touch *a, const touch *b) {
    if ((!a->writes && !b->writes) || a->begin >= b->end || b->begin >= a->end) return false;
    bool same_step = a->node == b->node || is_before(a->node, b->node) || is_before(b->node, a->node);
    return !same_step || !is_before(a->node, races.count + b->node) ||
           !is_before(b->node, races.count + a->node);
}

/* True if two commands of the edited list touch the same memory in an order that the list leaves open. */
static bool has_race(void) {
    number_nodes();
    while (order_once()) continue;
    list_touches();
    for (uint32_t i = 0; i < races.touch_count; i++)
        for (uint32_t k = i; k < races.touch_count; k++)
            if (is_race(&races.touches[i], &races.touches[k])) return true;
    return false;
}

/* ---- Many edits ---- */

typedef struct tally {
    size_t edits, rejected;
} tally;

/* Checks that the checker and has_race agree on the edited list. Then restores the list. */
static void compare_and_restore(const char *edit, uint32_t queue, uint32_t position, tally *t) {
    bool race = has_race(), rejected = check() != TU_OK;
    if (race != rejected)
        fail_msg("queue %u, %s command %u: the list has %s race, but the checker says: %s", queue, edit,
                 position, race ? "a" : "no", rejected ? tu_message() : "it is correct");
    t->edits++;
    t->rejected += rejected;
    copy_list();
}

/* Removes the command if it waits, or executes it later. Executes it earlier if it signals. None of these can cause a
 * deadlock. */
static void edit_command(uint32_t queue, uint32_t position, tally *t) {
    tu_command_kind kind = e.commands[queue][position].kind;
    bool waits = kind == TU_COMMAND_WAIT || kind == TU_COMMAND_WAIT_PREVIOUS;
    if (waits) {
        remove_command(queue, position);
        compare_and_restore("without", queue, position, t);
    }
    if (waits && position + 1 < e.queues[queue].count) {
        move_command(queue, position, position + 1);
        compare_and_restore("later", queue, position, t);
    }
    if (kind == TU_COMMAND_SIGNAL && position) {
        move_command(queue, position, position - 1);
        compare_and_restore("earlier", queue, position, t);
    }
}

static void edit_all_commands(tally *t) {
    bind_program();
    assert_false(has_race());
    assert_ok(check());
    for (uint32_t q = 0; q < e.list.list.queue_count; q++)
        for (uint32_t i = 0; i < e.queues[q].count; i++) edit_command(q, i, t);
    end();
}

static void every_missing_wait_that_matters_is_found(void **unused) {
    (void)unused;
    tally t = {0};
    compile_one_way();
    edit_all_commands(&t);
    compile_exchange();
    edit_all_commands(&t);
    compile_swaps();
    edit_all_commands(&t);
    compile_collective();
    edit_all_commands(&t);
    compile_replicas("ref:0/3", "mirrored");
    edit_all_commands(&t);
    compile_replicas("ref:0/3", "central");
    edit_all_commands(&t);
    compile_replicas("cpu:0/2", "central");
    edit_all_commands(&t);
    print_message("%zu edits, %zu of them rejected\n", t.edits, t.rejected);
    assert_true(t.rejected > t.edits / 4 && t.rejected < t.edits);
}

/* Assigns random devices to the nodes of a random network. */
static void compile_random(uint64_t seed) {
    static const char *const names[] = {"cpu:0.0", "cpu:0.1", "cpu:0.2"};
    model m = {0};
    new_graph();
    m.graph = e.graph;
    build_network(&m, seed);
    add_gradient_descent(&m);
    uint64_t device = 0;
    for (uint32_t i = 0; i < e.graph->node_count; i++) {
        if (random_below(&m.random, 12) == 0) device = random_below(&m.random, 3);
        e.graph->nodes[i]->device = names[e.graph->nodes[i]->group ? e.graph->nodes[i]->group % 3 : device];
    }
    compile("cpu:0/3", NULL, (size_t)m.fetch_count, m.fetches);
}

static void every_missing_wait_of_random_networks_that_matters_is_found(void **unused) {
    (void)unused;
    tally t = {0};
    for (uint64_t seed = 0; seed < 12; seed++) {
        compile_random(seed);
        edit_all_commands(&t);
    }
    print_message("%zu edits, %zu of them rejected\n", t.edits, t.rejected);
    assert_true(t.rejected > t.edits / 4 && t.rejected < t.edits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_of_the_engine_are_accepted),
        cmocka_unit_test(an_event_that_is_signalled_twice_is_rejected),
        cmocka_unit_test(waiting_for_an_event_that_is_never_signalled_is_rejected),
        cmocka_unit_test(queues_that_wait_for_each_other_are_rejected),
        cmocka_unit_test(kernels_in_another_order_are_rejected),
        cmocka_unit_test(an_index_out_of_range_is_rejected),
        cmocka_unit_test(a_command_in_a_queue_that_may_not_have_it_is_rejected),
        cmocka_unit_test(a_kernel_that_does_not_wait_for_its_copy_is_rejected),
        cmocka_unit_test(a_sender_that_does_not_wait_at_the_end_of_its_step_is_rejected),
        cmocka_unit_test(a_copy_that_does_not_wait_for_the_previous_step_is_rejected),
        cmocka_unit_test(a_value_that_is_copied_before_it_is_computed_is_rejected),
        cmocka_unit_test(a_sum_that_is_read_before_the_await_is_rejected),
        cmocka_unit_test(a_variable_that_changes_while_another_queue_reads_it_is_rejected),
        cmocka_unit_test(a_kernel_that_changes_a_variable_before_commit_is_rejected),
        cmocka_unit_test(a_copy_to_a_variable_before_commit_is_rejected),
        cmocka_unit_test(a_queue_without_one_commit_is_rejected),
        cmocka_unit_test(a_commit_that_waits_for_a_command_after_another_commit_is_rejected),
        cmocka_unit_test(a_rank_that_posts_or_awaits_twice_is_rejected),
        cmocka_unit_test(a_partition_that_is_no_rank_may_not_post),
        cmocka_unit_test(an_await_before_its_post_is_rejected),
        cmocka_unit_test(a_rank_that_does_not_take_part_is_rejected),
        cmocka_unit_test(every_missing_wait_that_matters_is_found),
        cmocka_unit_test(every_missing_wait_of_random_networks_that_matters_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
