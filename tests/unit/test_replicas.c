/* Tests of replicas: shards of inputs, mirrors of variables, a training step, its trace, and running out of memory.
 * replica_graphs.h describes the command line. */
#include <stdlib.h>

#include "base/alloc.h"
#include "run/trace.h"
#include "trace_checks.h"
#include "unit/replica_graphs.h"

static tu_value mirror_of(tu_value variable, int rank) {
    const tu__node *node = variable.graph->nodes[variable.node];
    char mirror_name[64];
    snprintf(mirror_name, sizeof mirror_name, "%s/mirror%d", node->name, rank);
    return tu__make(variable.graph, &(tu__node_request){.op = TU__OP_VARIABLE,
                                                        .name = mirror_name,
                                                        .exact_name = true,
                                                        .attrs = node->attrs,
                                                        .device = device_name(rank),
                                                        .stands_for = node->name});
}

/* ---- Shards of inputs ---- */

/* Uneven shards, with tu_run and tu_run_many; rows of tables; sample ordinals. */
static void shards_get_their_rows(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(5, 2)), fetch[4];
    tu_sample_ordinals(g, 5);
    static const int64_t first[] = {0, 3}, rows[] = {3, 2};
    for (int r = 0; r < 2; r++) tu_with_device(g, device_name(r)) {
            fetch[r] = tu_neg(rows_of(g, "x", r, first[r], TU_F32, TU_SHAPE(rows[r], 2)));
            fetch[2 + r] = tu_neg(rows_of(g, "sample_ordinal", r, first[r], TU_I64, TU_SHAPE(rows[r])));
        }
    tu_variable(g, "v", TU_F32, TU_SHAPE(1));
    tu_program *program;
    tu_state *state;
    assert_ok(tu_compile(g, &program, .devices = device_list(2), .fetch_count = 4, .fetch = fetch,
                         .updates = true));
    assert_ok(tu_state_new(g, &state));
    float data[30], a[3][6], b[3][4];
    int64_t oa[3][3], ob[3][2];
    void *out[] = {a, b, oa, ob};
    for (int i = 0; i < 30; i++) data[i] = (float)i;
    assert_ok(tu_run(program, state, 1, &(tu_feed){x, data}, out));
    for (int i = 0; i < 6; i++) assert_true(a[0][i] == -data[i]);
    for (int i = 0; i < 4; i++) assert_true(b[0][i] == -data[6 + i]);
    for (int i = 0; i < 3; i++) assert_int_equal(oa[0][i], -i);
    for (int i = 0; i < 2; i++) assert_int_equal(ob[0][i], -3 - i);
    assert_int_equal(tu_state_sample(state), 5);
    assert_ok(tu_run_many(program, state, 3, 1, &(tu_feed_many){.input = x, .data = data}, out));
    for (int s = 0; s < 3; s++) {
        for (int i = 0; i < 6; i++) assert_true(a[s][i] == -data[10 * s + i]);
        for (int i = 0; i < 4; i++) assert_true(b[s][i] == -data[10 * s + 6 + i]);
        assert_int_equal(ob[s][1], -(5 + 5 * s + 4));
    }
    assert_int_equal(tu_state_sample(state), 20);
    tu_table *table;
    static const int64_t numbers[] = {14, 0, 1, 2, 3, 4, 5, 6, 7, 8};
    assert_ok(tu_table_new(data, 2 * sizeof *data, 15, &table));
    assert_ok(
        tu_run_many(program, state, 2, 1, &(tu_feed_many){.input = x, .table = table, .rows = numbers}, out));
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < 6; i++) assert_true(a[s][i] == -data[2 * numbers[5 * s + i / 2] + i % 2]);
        for (int i = 0; i < 4; i++) assert_true(b[s][i] == -data[2 * numbers[5 * s + 3 + i / 2] + i % 2]);
    }
    tu_table_free(table);
    assert_int_equal(tu_run(program, state, 0, NULL, out), TU_INVALID);
    assert_string_equal(tu_message(), "input 'x' f32[5,2] was not fed");
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

/* ---- Mirrors ---- */

/* One step of w -= mean over the ranks of (w - x) / 2 on replicas, each with one row of x. */
typedef struct replicas {
    tu_graph *g;
    tu_value x, w, mirrors[MAX_RANKS], next[MAX_RANKS];
    tu_program *program;
    tu_state *state;
} replicas;

static tu_status compile_replicas(replicas *t, int ranks) {
    return tu_compile(t->g, &t->program, .devices = device_list(ranks), .updates = true,
                      .fetch_count = (size_t)ranks, .fetch = t->mirrors);
}

static replicas build_replicas(int ranks) {
    replicas t = {.g = new_graph()};
    t.x = tu_input(t.g, "x", TU_F32, TU_SHAPE(ranks, 3));
    tu_with_device(t.g, device_name(0)) t.w = tu_variable(t.g, "w", TU_F32, TU_SHAPE(3));
    for (int r = 0; r < ranks; r++) tu_with_device(t.g, device_name(r)) {
            tu_value w = t.mirrors[r] = r ? mirror_of(t.w, r) : t.w;
            tu_value shard = tu_reshape(rows_of(t.g, "x", r, r, TU_F32, TU_SHAPE(1, 3)), TU_SHAPE(3));
            tu_value sum = all_reduce_of(tu_sub(w, shard), 7, r, ranks);
            tu_assign(w, tu_sub(w, tu_mul(sum, tu_fill(t.g, TU_F32, TU_SCALAR, 0.5 / ranks))));
        }
    assert_ok(compile_replicas(&t, ranks));
    assert_ok(tu_state_new(t.g, &t.state));
    return t;
}

static void free_replicas(replicas *t) {
    tu_program_free(t->program);
    tu_state_free(t->state);
    tu_graph_free(t->g);
}

/* Runs a step; returns the weights of every replica before it. */
static void run_step(replicas *t, int ranks, const float *x, float w[][3]) {
    void *out[MAX_RANKS];
    for (int r = 0; r < ranks; r++) out[r] = w[r];
    assert_ok(tu_run(t->program, t->state, 1, &(tu_feed){t->x, x}, out));
}

static void replicas_update_identically(void **unused) {
    (void)unused;
    static const float left[] = {1, 0.5f, 0.25f, 0.125f};
    const float x[12] = {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3};
    replicas t = build_replicas(4);
    float w[4][3], final[3];
    assert_int_equal(tu_state_variable_count(t.state), 1);
    for (int n = 0; n < 3; n++) {
        run_step(&t, 4, x, w);
        for (int r = 0; r < 4; r++)
            for (int i = 0; i < 3; i++) assert_true(w[r][i] == (float)(i + 1) * (1 - left[n]));
    }
    assert_ok(tu_state_get(t.state, "w", final, sizeof final));
    for (int i = 0; i < 3; i++) assert_true(final[i] == (float)(i + 1) * (1 - left[3]));
    free_replicas(&t);
}

static void expect_all_weights(float w[][3], int ranks, float value) {
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < 3; i++)
            if (w[r][i] != value) fail_msg("w of replica %d is %g, expected %g", r, w[r][i], value);
}

static void mirrors_are_refreshed_after_the_variable_is_set(void **unused) {
    (void)unused;
    const float x[6] = {0}, eight[3] = {8, 8, 8};
    replicas t = build_replicas(2);
    float w[2][3];
    run_step(&t, 2, x, w);
    assert_ok(tu_state_set(t.state, "w", eight, sizeof eight));
    run_step(&t, 2, x, w);
    expect_all_weights(w, 2, 8);
    run_step(&t, 2, x, w);
    expect_all_weights(w, 2, 4);
    free_replicas(&t);
}

/* w *= 3, on only one device. */
static void mirrors_are_refreshed_after_another_program(void **unused) {
    (void)unused;
    const float x[6] = {0}, eight[3] = {8, 8, 8};
    replicas t = build_replicas(2);
    tu_graph *other = new_graph();
    tu_value w3 = tu_variable(other, "w", TU_F32, TU_SHAPE(3));
    tu_assign(w3, tu_mul(w3, tu_fill(other, TU_F32, TU_SCALAR, 3)));
    tu_program *triple;
    assert_ok(tu_compile(other, &triple, .devices = kind, .updates = true));
    float w[2][3];
    assert_ok(tu_state_set(t.state, "w", eight, sizeof eight));
    run_step(&t, 2, x, w);
    assert_ok(tu_run(triple, t.state, 0, NULL, NULL));
    run_step(&t, 2, x, w);
    expect_all_weights(w, 2, 12);
    run_step(&t, 2, x, w);
    expect_all_weights(w, 2, 6);
    tu_program_free(triple);
    tu_graph_free(other);
    free_replicas(&t);
}

/* A program that changes only a mirror: it is refreshed from the variable before every run. */
static void a_mirror_does_not_change_its_variable(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value w = {0}, mirror = {0}, fetch[2];
    tu_with_device(g, device_name(0)) w = fetch[0] = tu_variable(g, "w", TU_F32, TU_SHAPE(3));
    tu_with_device(g, device_name(1)) {
        mirror = fetch[1] = mirror_of(w, 1);
        tu_assign(mirror, tu_add(mirror, tu_fill(g, TU_F32, TU_SCALAR, 1)));
    }
    tu_program *program;
    tu_state *state;
    float got[2][3];
    assert_ok(tu_compile(g, &program, .devices = device_list(2), .updates = true, .fetch_count = 2,
                         .fetch = fetch));
    assert_ok(tu_state_new(g, &state));
    for (int run = 0; run < 3; run++) {
        assert_ok(tu_run(program, state, 0, NULL, (void *[]){got[0], got[1]}));
        expect_all_weights(got, 2, 0);
    }
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

static void memory_reports_count_mirrors(void **unused) {
    (void)unused;
    replicas t = build_replicas(3);
    for (size_t i = 0; i < 3; i++) {
        tu_memory_report report = TU_SIZED(tu_memory_report);
        assert_ok(tu_program_memory(t.program, i, &report));
        assert_int_equal(report.variable_bytes, 3 * sizeof(float));
    }
    free_replicas(&t);
}
/* ---- Traces ---- */

static void assert_summary_contains(tu_program *program, const char *expected) {
    char *text = NULL;
    size_t length;
    FILE *file = open_memstream(&text, &length);
    assert_ok(tu_trace_summary(program, file));
    fclose(file);
    if (!strstr(text, expected)) fail_msg("'%s' is not in: %s", expected, text);
    free(text);
}

static void traces_contain_collectives(void **unused) {
    (void)unused;
    enum { RUNS = 3, CLOCKS = 100 }; /* microseconds that a GPU's clock may be off by */
    const float x[6] = {1, 2, 3, 4, 5, 6};
    float w[2][3];
    replicas t = build_replicas(2);
    run_step(&t, 2, x, w);
    assert_ok(tu_program_trace_begin(t.program));
    for (int i = 0; i < RUNS; i++) run_step(&t, 2, x, w);
    decoded d = decode(t.program);
    rows_are_in_order(&d, CLOCKS);
    spans_lie_within_their_run(&d, RUNS, CLOCKS);
    int found = 0;
    for (size_t i = 0; i < d.events->count; i++) {
        const tu__json_value *e = &d.events->values[i];
        if (!is_a(e, "collective")) continue;
        found++;
        assert_string_equal(string(e, "name"), "collective 7");
        assert_true(argument(e, "ranks") == 2 && argument(e, "bytes") == sizeof *w &&
                    argument(e, "values") == 1);
    }
    assert_int_equal(found, 2 * RUNS);
    drop(&d);
    for (size_t i = 0; i < 2; i++) {
        tu_trace_report r = TU_SIZED(tu_trace_report);
        assert_ok(tu_trace_device(t.program, i, &r));
        assert_true(r.collective > 0 && r.collective_waiting >= 0 &&
                    r.collective + r.collective_waiting <= r.runs);
        assert_int_equal(r.collective_bytes, RUNS * sizeof *w);
    }
    assert_summary_contains(t.program, "rank wait ms");
    assert_summary_contains(t.program, "1 collectives: 12 bytes per device are exchanged");
    free_replicas(&t);
}

/* The critical path includes the collective: the rest of the run is shorter than waiting for the other rank. */
static void critical_paths_include_collectives(void **unused) {
    (void)unused;
    const float x[6] = {1, 2, 3, 4, 5, 6};
    float w[2][3];
    replicas t = build_replicas(2);
    assert_ok(tu_program_trace_begin(t.program));
    run_step(&t, 2, x, w);
    tu_program_trace_end(t.program);
    tu__critical_path path;
    assert_ok(tu__trace_critical_path(t.program, &path));
    int collectives = 0, kernels = 0;
    for (size_t i = 0; i < path.count; i++) {
        collectives += path.items[i].span.kind == TU__SPAN_COLLECTIVE;
        kernels += path.items[i].span.kind == TU__SPAN_KERNEL;
    }
    assert_int_equal(collectives, 1);
    assert_true(kernels >= 2); /* one before the post, one that updates */
    tu__critical_path_free(&path);
    free_replicas(&t);
}
/* ---- Out of memory ---- */

/* Every allocation of compiling and of a first run fails once: an error, no leak, and the next attempt succeeds. */
static void running_out_of_memory_is_an_error(void **unused) {
    (void)unused;
    const float x[6] = {1, 2, 3, 1, 2, 3};
    float w[2][3];
    void *out[] = {w[0], w[1]};
    replicas t = build_replicas(2);
    run_step(&t, 2, x, w); /* allocates threads and scratch memory */
    tu_program_free(t.program);
    for (uint64_t nth = 1;; nth++) {
        tu_state *state = NULL;
        t.program = NULL;
        assert_ok(tu_state_new(t.g, &state));
        int64_t live = tu__alloc_live();
        tu__alloc_fail_at(nth);
        tu_status status = compile_replicas(&t, 2);
        if (status == TU_OK) status = tu_run(t.program, state, 1, &(tu_feed){t.x, x}, out);
        tu__alloc_fail_at(0);
        if (status == TU_OK) {
            tu_state_free(state);
            break;
        }
        assert_int_equal(status, TU_NO_MEMORY);
        tu_program_free(t.program);
        tu_state_free(state);
        assert_true(tu__alloc_live() <= live);
    }
    expect_all_weights(w, 2, 0);
    free_replicas(&t);
}

int main(int argc, char **argv) {
    choose_devices(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_get_their_rows),
        cmocka_unit_test(replicas_update_identically),
        cmocka_unit_test(mirrors_are_refreshed_after_the_variable_is_set),
        cmocka_unit_test(mirrors_are_refreshed_after_another_program),
        cmocka_unit_test(a_mirror_does_not_change_its_variable),
        cmocka_unit_test(memory_reports_count_mirrors),
        cmocka_unit_test(traces_contain_collectives),
        cmocka_unit_test(critical_paths_include_collectives),
        cmocka_unit_test(running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests_name("replicas", tests, NULL, NULL);
}
