/* Random networks with gradients and updates, stacked three times with other data and seeds, have the bits of each network
 * alone on `ref`: all fetched values and variables after some steps. Constants differ between the members, too.
 *
 * Arguments: COUNT [FIRST]. Checks the networks with seeds FIRST … FIRST+COUNT-1. */
#include "ops/random_network.h"

#include <tutti/stack.h>

enum { MEMBERS = 3, STEPS = RANDOM_STEPS };

typedef struct member {
    model m;
    tu_state *state;
} member;

static const char *output_name(int index) {
    static char name[24];
    snprintf(name, sizeof name, "fetch%d", index);
    return name;
}

/* Builds the network; the factor of its first samples differs between the members. */
static bool build_member(member *one, uint64_t seed, int index) {
    one->m = (model){.graph = NULL};
    if (tu_graph_new(&one->m.graph) != TU_OK) return false;
    build_network(&one->m, seed);
    add_gradient_descent(&one->m);
    fetch(&one->m, tu_scale(one->m.samples[0], 1 + index));
    for (int i = 0; i < one->m.fetch_count; i++) tu_output(one->m.fetches[i], output_name(i));
    return tu_graph_status(one->m.graph) == TU_OK &&
           tu_state_new(one->m.graph, &one->state, .seed = 10 + (uint64_t)index) == TU_OK;
}

/* The elements of an output of all members, one after another. */
static void *output_buffer(tu_graph *graph, int index) {
    return calloc(1, tu_type_bytes(tu_value_type(tu_find_output(graph, output_name(index)))));
}

static bool run_steps_of(tu_graph *graph, tu_state *state, int fetch_count, size_t feed_count,
                         const tu_feed *feeds, void **results) {
    tu_program *program = NULL;
    tu_value values[MAX_FETCHES];
    for (int i = 0; i < fetch_count; i++) values[i] = tu_find_output(graph, output_name(i));
    bool ok = tu_compile(graph, &program, .devices = "ref:0", .threads = 1, .fetch = values,
                         .fetch_count = (size_t)fetch_count, .updates = true) == TU_OK;
    for (int step = 0; ok && step < STEPS; step++)
        ok = tu_run(program, state, feed_count, feeds, results) == TU_OK;
    tu_program_free(program);
    return ok;
}

static size_t feed_if(tu_graph *graph, const char *name, const void *data, tu_feed *feed) {
    const tu__node *node = tu__find_node(graph, name);
    if (!node) return 0;
    *feed = (tu_feed){tu__value(graph, node->id, 0), data};
    return 1;
}

typedef struct inputs {
    double a[MEMBERS][MAX_ROWS * COLUMNS], b[MEMBERS][MAX_ROWS * COLUMNS];
    int32_t classes[MEMBERS][MAX_ROWS];
    int64_t ordinals[MEMBERS * MAX_ROWS];
} inputs;

/* Writes the inputs of `count` members from `first` on without gaps. The sample ordinals are the same in every step. */
static void pack_inputs(const member *one, uint64_t seed, int first, int count, inputs *to) {
    size_t rows = (size_t)one->m.rows, elements = rows * COLUMNS;
    for (int i = 0; i < count; i++) {
        double data[2][MAX_ROWS * COLUMNS];
        int32_t classes[MAX_ROWS];
        fill_inputs(seed * 7 + (uint64_t)(first + i), data, classes);
        memcpy((double *)to->a + (size_t)i * elements, data[0], elements * sizeof(double));
        memcpy((double *)to->b + (size_t)i * elements, data[1], elements * sizeof(double));
        memcpy((int32_t *)to->classes + (size_t)i * rows, classes, rows * sizeof *classes);
        for (size_t row = 0; row < rows; row++)
            to->ordinals[(size_t)i * rows + row] = (int64_t)row + first + i;
    }
}

static bool run_members(tu_graph *graph, tu_state *state, const member *one, uint64_t seed, int first,
                        int count, void **results) {
    static inputs in;
    tu_feed feeds[4];
    size_t feed_count = 0;
    pack_inputs(one, seed, first, count, &in);
    feed_count += feed_if(graph, "a", in.a, &feeds[feed_count]);
    feed_count += feed_if(graph, "b", in.b, &feeds[feed_count]);
    feed_count += feed_if(graph, "classes", in.classes, &feeds[feed_count]);
    feed_count += feed_if(graph, "sample_ordinal", in.ordinals, &feeds[feed_count]);
    return run_steps_of(graph, state, one->m.fetch_count, feed_count, feeds, results);
}

static bool same_variables(const tu_state *a, const tu_state *b, int index) {
    bool same = true;
    for (size_t i = 0; same && i < tu_state_variable_count(a); i++) {
        const char *name;
        tu_type type;
        tu_state_variable(a, i, &name, &type);
        size_t bytes = tu_type_bytes(type);
        void *x = calloc(1, bytes), *y = calloc(1, bytes);
        same = tu_state_get(a, name, x, bytes) == TU_OK && tu_state_get(b, name, y, bytes) == TU_OK &&
               memcmp(x, y, bytes) == 0;
        if (!same) printf("     variable '%s' of member %d has other bits\n", name, index);
        free(x);
        free(y);
    }
    return same;
}

/* Runs a member alone and compares it with its part of the stack. */
static bool check_member(member *one, uint64_t seed, int index, void *const *stacked, tu_state *extracted) {
    void *alone[MAX_FETCHES];
    for (int i = 0; i < one->m.fetch_count; i++) alone[i] = output_buffer(one->m.graph, i);
    bool ok = run_members(one->m.graph, one->state, one, seed, index, 1, alone);
    for (int i = 0; i < one->m.fetch_count; i++) {
        size_t bytes = tu_type_bytes(tu_value_type(one->m.fetches[i]));
        bool same = memcmp(alone[i], (const char *)stacked[i] + (size_t)index * bytes, bytes) == 0;
        if (ok && !same)
            printf("     %s of member %d has other bits\n", tu_value_name(one->m.fetches[i]), index);
        ok = ok && same;
        free(alone[i]);
    }
    return ok && same_variables(one->state, extracted, index);
}

static bool check_stack(member *members, uint64_t seed) {
    tu_graph *graphs[MEMBERS];
    tu_stacked *stack = NULL;
    tu_state *all = NULL, *extracted = NULL;
    void *results[MAX_FETCHES] = {0};
    for (int i = 0; i < MEMBERS; i++) graphs[i] = members[i].m.graph;
    bool ok = tu_stacked_new(MEMBERS, graphs, &stack) == TU_OK &&
              tu_state_new(tu_stacked_graph(stack), &all) == TU_OK;
    for (int i = 0; ok && i < MEMBERS; i++)
        ok = tu_stacked_insert(stack, all, (size_t)i, graphs[i], members[i].state) == TU_OK;
    for (int i = 0; ok && i < members->m.fetch_count; i++)
        results[i] = output_buffer(tu_stacked_graph(stack), i);
    ok = ok && run_members(tu_stacked_graph(stack), all, members, seed, 0, MEMBERS, results);
    for (int i = 0; ok && i < MEMBERS; i++) {
        ok = tu_state_new(graphs[i], &extracted, .seed = 99) == TU_OK &&
             tu_stacked_extract(stack, all, (size_t)i, extracted) == TU_OK &&
             check_member(&members[i], seed, i, results, extracted);
        tu_state_free(extracted);
    }
    if (!ok) printf("     %s\n", tu_message());
    for (int i = 0; i < members->m.fetch_count; i++) free(results[i]);
    tu_state_free(all);
    tu_stacked_free(stack);
    return ok;
}

static bool check_network(uint64_t seed) {
    static member members[MEMBERS];
    bool ok = true;
    for (int i = 0; i < MEMBERS; i++) {
        members[i].state = NULL;
        ok = build_member(&members[i], seed, i) && ok;
    }
    ok = ok && check_stack(members, seed);
    if (!ok) printf("FAIL seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < MEMBERS; i++) {
        tu_state_free(members[i].state);
        tu_graph_free(members[i].m.graph);
    }
    return ok;
}

int main(int argc, char **argv) {
    return check_graphs(argc, argv, check_network);
}
