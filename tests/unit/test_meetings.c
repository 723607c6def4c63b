/* Meetings: values that several devices add up together, and what replicas hang on besides: parts of inputs and mirrors of
 * variables. The graphs are built by hand, as the pass replicate would make them. */
#include <math.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/alloc.h"
#include "graph/graph.h"
#include "test.h"

enum { MOST_RANKS = 8 };

static void assert_ok(tu_status status) {
    if (status != TU_OK) fail_msg("%s", tu_message());
}

static tu_graph *new_graph(void) {
    tu_graph *graph;
    assert_int_equal(tu_graph_new(&graph), TU_OK);
    return graph;
}

static const char *device_name(int rank) {
    static char names[MOST_RANKS][24];
    snprintf(names[rank], sizeof names[rank], "cpu:0.%d", rank);
    return names[rank];
}

static const char *device_list(int ranks) {
    static char list[24];
    snprintf(list, sizeof list, "cpu:0/%d", ranks);
    return list;
}

/* Rank's share of a meeting. */
static tu_value meet(tu_value share, int64_t meeting, int rank, int ranks) {
    struct tu__all_reduce_attrs attrs = {.meeting = meeting, .rank = rank, .ranks = ranks};
    return tu__make(share.graph, &(tu__node_request){.op = TU__OP_ALL_REDUCE,
                                                     .attrs = &attrs,
                                                     .inputs = &share,
                                                     .input_count = 1,
                                                     .device = device_name(rank)});
}

/* Rows of the input `name` from `first` on. */
static tu_value rows_of(tu_graph *g, const char *name, int rank, int64_t first, tu_dtype dtype,
                        tu_shape shape) {
    char own[64];
    snprintf(own, sizeof own, "%s/part%d", name, rank);
    struct tu__input_attrs attrs = {.dtype = dtype, .shape = shape};
    return tu__make(g, &(tu__node_request){.op = TU__OP_INPUT,
                                           .name = own,
                                           .exact_name = true,
                                           .attrs = &attrs,
                                           .device = device_name(rank),
                                           .stands_for = name,
                                           .first_row = first});
}

static tu_value mirror_of(tu_value variable, int rank) {
    const tu__node *node = variable.graph->nodes[variable.node];
    char own[64];
    snprintf(own, sizeof own, "%s/mirror%d", node->name, rank);
    return tu__make(variable.graph, &(tu__node_request){.op = TU__OP_VARIABLE,
                                                        .name = own,
                                                        .exact_name = true,
                                                        .attrs = node->attrs,
                                                        .device = device_name(rank),
                                                        .stands_for = node->name});
}

/* ---- Sums ---- */

/* Each rank squares its rows of x and sums them up over the ranks. */
static void assert_sums(int ranks, int64_t columns) {
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(ranks, columns)), sums[MOST_RANKS];
    for (int r = 0; r < ranks; r++) tu_with_device(g, device_name(r)) {
            tu_value part = rows_of(g, "x", r, r, TU_F32, TU_SHAPE(1, columns));
            sums[r] = meet(tu_mul(part, part), 0, r, ranks);
        }
    tu_program *program;
    tu_state *state;
    assert_ok(
        tu_compile(g, &program, .devices = device_list(ranks), .fetch_count = (size_t)ranks, .fetch = sums));
    assert_ok(tu_state_new(g, &state));
    size_t count = (size_t)(ranks * columns);
    float *data = tu__alloc(count * sizeof *data, "x"), *got = tu__alloc(count * sizeof *got, "sums");
    void *out[MOST_RANKS];
    for (size_t i = 0; i < count; i++) data[i] = (float)((i * 7919) % 1009) / 64;
    for (int r = 0; r < ranks; r++) out[r] = got + r * columns;
    for (int run = 0; run < 3; run++) {
        memset(got, 0xff, count * sizeof *got);
        assert_ok(tu_run(program, state, 1, &(tu_feed){x, data}, out));
        for (int64_t i = 0; i < columns; i++) {
            float wanted[MOST_RANKS];
            int left = ranks;
            for (int r = 0; r < ranks; r++) wanted[r] = data[r * columns + i] * data[r * columns + i];
            for (; left > 1; left = (left + 1) / 2)
                for (int k = 0; k < (left + 1) / 2; k++)
                    wanted[k] = 2 * k + 1 < left ? wanted[2 * k] + wanted[2 * k + 1] : wanted[2 * k];
            for (int r = 0; r < ranks; r++) assert_true(got[r * columns + i] == wanted[0]);
        }
    }
    tu__free(data);
    tu__free(got);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

static void every_rank_gets_the_sum(void **unused) {
    (void)unused;
    static const int64_t columns[] = {1, 5, 16, 17, 1000, 40000};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        for (int ranks = 2; ranks <= 5; ranks++) assert_sums(ranks, columns[i]);
}

/* ---- Mirrors ---- */

/* One step of w -= 0.5 * mean gradient of (w - x)^2 / 2 over the rows of x, on `ranks` replicas. */
typedef struct replicas {
    tu_graph *g;
    tu_value x, w, mirrors[MOST_RANKS];
    tu_program *program;
    tu_state *state;
} replicas;

static replicas build_replicas(int ranks) {
    replicas t = {.g = new_graph()};
    t.x = tu_input(t.g, "x", TU_F32, TU_SHAPE(ranks, 3));
    tu_with_device(t.g, device_name(0)) t.w = tu_variable(t.g, "w", TU_F32, TU_SHAPE(3));
    for (int r = 0; r < ranks; r++) tu_with_device(t.g, device_name(r)) {
            tu_value w = t.mirrors[r] = r ? mirror_of(t.w, r) : t.w;
            tu_value part = tu_reshape(rows_of(t.g, "x", r, r, TU_F32, TU_SHAPE(1, 3)), TU_SHAPE(3));
            tu_value sum = meet(tu_sub(w, part), 7, r, ranks);
            tu_assign(w, tu_sub(w, tu_mul(sum, tu_fill(t.g, TU_F32, TU_SCALAR, 0.5 / ranks))));
        }
    assert_ok(tu_compile(t.g, &t.program, .devices = device_list(ranks), .updates = true,
                         .fetch_count = (size_t)ranks, .fetch = t.mirrors));
    assert_ok(tu_state_new(t.g, &t.state));
    return t;
}

static void free_replicas(replicas *t) {
    tu_program_free(t->program);
    tu_state_free(t->state);
    tu_graph_free(t->g);
}

static void replicas_update_alike(void **unused) {
    (void)unused;
    replicas t = build_replicas(4);
    const float x[12] = {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3};
    float w[4][3], own[3];
    void *out[4] = {w[0], w[1], w[2], w[3]};
    assert_int_equal(tu_state_count(t.state), 1);
    for (int step = 0; step < 3; step++) {
        assert_ok(tu_run(t.program, t.state, 1, &(tu_feed){t.x, x}, out));
        for (int r = 0; r < 4; r++)
            for (int i = 0; i < 3; i++)
                assert_true(w[r][i] == (float)(i + 1) * (1 - powf(0.5f, (float)step)));
    }
    assert_ok(tu_state_get(t.state, "w", own, sizeof own));
    for (int i = 0; i < 3; i++) assert_true(own[i] == (float)(i + 1) * 0.875f);
    free_replicas(&t);
}

static void mirrors_follow_a_variable_that_was_set(void **unused) {
    (void)unused;
    replicas t = build_replicas(2);
    const float x[6] = {0}, eight[3] = {8, 8, 8};
    float w[2][3];
    void *out[2] = {w[0], w[1]};
    assert_ok(tu_run(t.program, t.state, 1, &(tu_feed){t.x, x}, out));
    assert_ok(tu_state_set(t.state, "w", eight, sizeof eight));
    assert_ok(tu_run(t.program, t.state, 1, &(tu_feed){t.x, x}, out));
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 3; i++) assert_true(w[r][i] == 8);
    assert_ok(tu_run(t.program, t.state, 1, &(tu_feed){t.x, x}, out));
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 3; i++) assert_true(w[r][i] == 4);
    free_replicas(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_gets_the_sum),
        cmocka_unit_test(replicas_update_alike),
        cmocka_unit_test(mirrors_follow_a_variable_that_was_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
