/* Compares the checker of command lists with a slow computation of all races, over many small edits of correct lists:
 * the checker must reject exactly the lists that have a race. */
#include "ops/random_network.h"

#include "edited_list.h"

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
        cmocka_unit_test(every_missing_wait_that_matters_is_found),
        cmocka_unit_test(every_missing_wait_of_random_networks_that_matters_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
