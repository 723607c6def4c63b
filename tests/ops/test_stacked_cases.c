/* Compares every case, stacked three times with other data and seeds per member, with the case alone: the same bits on
 * `ref`, within the tolerance of the device on others.
 *
 * test_stacked_cases DEVICE [CASE] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "graph/graph.h"
#include "ops/run_case.h"

enum { MEMBERS = 3, INSTANCES = 12 };

static const char *device;

static const char *output_name(int index) {
    static char name[16];
    snprintf(name, sizeof name, "out%d", index);
    return name;
}

/* Returns element `i` of an input of a member: scaled, or for integers rotated. */
static double member_number(const case_tensor *t, int64_t count, int64_t i, int member) {
    if (tu_dtype_is_float(tu_value_dtype(t->value))) return t->data[i] * (1 - member / 16.0);
    return t->data[(i + member) % count];
}

/* Writes the elements of a member's input, in its type. */
static void write_input(const case_tensor *t, int member, unsigned char *to) {
    tu_type type = tu_value_type(t->value);
    int64_t count = tu_shape_elements(type.shape);
    for (int64_t i = 0; i < count; i++) tu__store(type.dtype, to, i, member_number(t, count, i, member));
}

/* Runs a graph with these feeds; allocates results. */
static bool run(tu_graph *graph, tu_state *state, const char *where, size_t feed_count, const tu_feed *feeds,
                int output_count, unsigned char **results) {
    tu_program *program = NULL;
    tu_value fetch[CASE_MAX_OUTPUTS];
    for (int i = 0; i < output_count; i++) {
        fetch[i] = tu_find_output(graph, output_name(i));
        results[i] = calloc(1, tu_type_bytes(tu_value_type(fetch[i])));
    }
    bool ok = tu_compile(graph, &program, .devices = where, .threads = 2, .fetch = fetch,
                         .fetch_count = (size_t)output_count, .no_updates = true) == TU_OK &&
              tu_run(program, state, feed_count, feeds, (void *const *)results) == TU_OK;
    tu_program_free(program);
    return ok;
}

static bool run_alone(const case_run *c, int member, tu_state *state, unsigned char **results) {
    tu_feed feeds[CASE_MAX_INPUTS];
    unsigned char *data[CASE_MAX_INPUTS];
    for (int i = 0; i < c->input_count; i++) {
        data[i] = malloc(tu_type_bytes(tu_value_type(c->inputs[i].value)));
        write_input(&c->inputs[i], member, data[i]);
        feeds[i] = (tu_feed){c->inputs[i].value, data[i]};
    }
    tu_state_set_sample(state, 0);
    bool ok = run(c->graph, state, "ref", (size_t)c->input_count, feeds, c->output_count, results);
    for (int i = 0; i < c->input_count; i++) free(data[i]);
    return ok;
}

/* Feeds the ordinals, which count from 0 in every member. */
static size_t feed_ordinals(tu_graph *graph, tu_feed *feed, int64_t *ordinals) {
    const tu__node *node = tu__find_node(graph, "sample_ordinal");
    if (!node) return 0;
    int64_t count = node->outputs[0].shape.dim[0];
    for (int64_t i = 0; i < count; i++) ordinals[i] = i % (count / MEMBERS);
    *feed = (tu_feed){tu__value(graph, node->id, 0), ordinals};
    return 1;
}

static bool run_stacked(const case_run *c, tu_stacked *stack, tu_state *state, unsigned char **results) {
    tu_graph *graph = tu_stacked_graph(stack);
    tu_feed feeds[CASE_MAX_INPUTS + 1];
    unsigned char *data[CASE_MAX_INPUTS];
    int64_t ordinals[4096];
    size_t count = (size_t)c->input_count;
    for (int i = 0; i < c->input_count; i++) {
        const case_tensor *t = &c->inputs[i];
        size_t bytes = tu_type_bytes(tu_value_type(t->value));
        data[i] = malloc(MEMBERS * bytes);
        for (int m = 0; m < MEMBERS; m++) write_input(t, m, data[i] + (size_t)m * bytes);
        feeds[i] = (tu_feed){tu_find(graph, tu_value_name(t->value)), data[i]};
    }
    count += feed_ordinals(graph, &feeds[count], ordinals);
    bool ok = run(graph, state, device, count, feeds, c->output_count, results);
    for (int i = 0; i < c->input_count; i++) free(data[i]);
    return ok;
}

static bool agrees(const case_run *c, int output, int member, const unsigned char *alone,
                   const unsigned char *stacked) {
    tu_type type = tu_value_type(c->outputs[output]);
    size_t bytes = tu_type_bytes(type), elements = (size_t)tu_shape_elements(type.shape);
    stacked += (size_t)member * bytes;
    if (strcmp(device, "ref") == 0) {
        if (memcmp(alone, stacked, bytes) == 0) return true;
        printf("FAIL %s, instance %d, %s: output %d of member %d has other bits\n", c->entry->name,
               c->instance, tu_dtype_name(c->dtype), output, member);
        return false;
    }
    double *expected = calloc(elements, sizeof *expected), *got = calloc(elements, sizeof *got);
    tu__load_array(type.dtype, alone, (int64_t)elements, expected);
    tu__load_array(type.dtype, stacked, (int64_t)elements, got);
    bool ok = results_agree(c, output, expected, got, c->entry->flags & CASE_LOOSE ? 2000 : 64);
    free(expected);
    free(got);
    return ok;
}

static bool compare_members(case_run *c, tu_stacked *stack, tu_state *all, tu_state *const *states) {
    unsigned char *stacked[CASE_MAX_OUTPUTS] = {0};
    bool ok = run_stacked(c, stack, all, stacked);
    for (int m = 0; m < MEMBERS && ok; m++) {
        unsigned char *alone[CASE_MAX_OUTPUTS] = {0};
        ok = run_alone(c, m, states[m], alone);
        for (int i = 0; i < c->output_count; i++) {
            ok = ok && agrees(c, i, m, alone[i], stacked[i]);
            free(alone[i]);
        }
    }
    for (int i = 0; i < c->output_count; i++) free(stacked[i]);
    return ok;
}

static bool has_collective(const tu_graph *graph) {
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i]->op->traits & TU__COLLECTIVE) return true;
    return false;
}

/* Collectives belong to several devices: they are refused by name. */
static bool is_refused(case_run *c) {
    tu_stacked *stack = NULL;
    tu_graph *members[] = {c->graph, c->graph};
    bool ok = tu_stacked_new(2, members, &stack) == TU_UNSUPPORTED && !stack &&
              strstr(tu_message(), "cannot be stacked");
    if (!ok) printf("FAIL %s: a collective was stacked\n", c->entry->name);
    return ok;
}

static bool check_instance(case_run *c) {
    if (has_collective(c->graph)) return is_refused(c);
    tu_stacked *stack = NULL;
    tu_state *all = NULL, *states[MEMBERS] = {0};
    tu_graph *members[MEMBERS];
    for (int i = 0; i < c->output_count; i++) tu_output(c->outputs[i], output_name(i));
    for (int m = 0; m < MEMBERS; m++) members[m] = c->graph;
    bool ok = tu_stacked_new(MEMBERS, members, &stack) == TU_OK &&
              tu_state_new(tu_stacked_graph(stack), &all) == TU_OK;
    for (size_t m = 0; m < MEMBERS && ok; m++)
        ok = tu_state_new(c->graph, &states[m], .seed = 3 + m) == TU_OK &&
             tu_stacked_insert(stack, all, m, c->graph, states[m]) == TU_OK;
    ok = ok && compare_members(c, stack, all, states);
    if (!ok)
        printf("FAIL %s, instance %d, %s: %s\n", c->entry->name, c->instance, tu_dtype_name(c->dtype),
               tu_message());
    for (int m = 0; m < MEMBERS; m++) tu_state_free(states[m]);
    tu_state_free(all);
    tu_stacked_free(stack);
    return ok;
}

/* Adds the gradients of the float outputs as one more output each. */
static void add_gradients(case_run *c) {
    tu_value wrt[CASE_MAX_INPUTS], gradients[CASE_MAX_INPUTS], total = {0};
    size_t count = 0;
    for (int i = 0; i < c->input_count; i++)
        if (c->inputs[i].differentiable) wrt[count++] = c->inputs[i].value;
    for (int i = 0; i < c->output_count; i++) {
        if (tu_value_dtype(c->outputs[i]) != c->dtype) continue;
        tu_value term = tu_sum(tu_square(c->outputs[i]));
        total = total.graph ? tu_add(total, term) : term;
    }
    if (!total.graph || tu_gradients(total, count, wrt, gradients) != TU_OK) return;
    for (size_t i = 0; i < count && c->output_count < CASE_MAX_OUTPUTS; i++) case_output(c, gradients[i]);
}

static bool check_case(const op_case *entry, tu_dtype dtype) {
    case_run *c = case_begin(entry, dtype, 33);
    bool ok = true;
    for (int i = 0; i < INSTANCES && ok && case_next_instance(c); i++) {
        if (!(entry->flags & CASE_NO_GRADIENT)) add_gradients(c);
        ok = tu_graph_status(c->graph) == TU_OK && check_instance(c);
    }
    case_end(c);
    return ok;
}

int main(int argc, char **argv) {
    int passed = 0, failed = 0;
    device = argc > 1 ? argv[1] : "ref";
    for (const op_case *e = case_first(); e; e = e->next) {
        if (argc > 2 && strcmp(argv[2], e->name) != 0) continue;
        if (e->flags & CASE_CPU_ONLY && strncmp(device, "gpu", 3) == 0) continue;
        if (check_case(e, TU_F32))
            passed++;
        else
            failed++;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
