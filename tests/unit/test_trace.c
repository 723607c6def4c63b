/* Tests of traces: they contain everything that the program planned, once per run; rows are sorted and spans are
 * within their run; copied bytes are as predicted; a program that is not traced records nothing. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/alloc.h"
#include "run/trace.h"
#include "trace_checks.h"

enum { RUNS = 3, SIZE = 64 };

/* Two branches on two devices, joined on the first; an accumulating variable. */
typedef struct pair {
    tu_graph *graph;
    tu_value x, y;
    tu_program *program;
    tu_state *state;
} pair;

static void create_pair(pair *p, const char *devices, const char *first_device, const char *second_device) {
    assert_int_equal(tu_graph_new(&p->graph), TU_OK);
    tu_value a, b, w;
    p->x = tu_input(p->graph, "x", TU_F32, TU_SHAPE(SIZE, SIZE));
    w = tu_variable(p->graph, "w", TU_F32, TU_SHAPE(SIZE, SIZE));
    tu_with_device(p->graph, first_device) a = tu_matmul(p->x, p->x);
    tu_with_device(p->graph, second_device) b = tu_matmul(p->x, tu_matmul(a, p->x));
    tu_with_device(p->graph, first_device) {
        p->y = tu_sum(tu_mul(b, tu_softmax(a, -1)));
        tu_assign(w, tu_add(w, b));
    }
    if (tu_compile(p->graph, &p->program, .devices = devices, .threads = 1, .fetch = &p->y, .fetch_count = 1,
                   .updates = true) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(p->graph, &p->state, .seed = 1), TU_OK);
}

static void free_pair(pair *p) {
    tu_program_free(p->program);
    tu_state_free(p->state);
    tu_graph_free(p->graph);
}

static void run_pair(pair *p, int times) {
    static float x[SIZE * SIZE];
    float y;
    for (int i = 0; i < SIZE * SIZE; i++) x[i] = (float)(i % 7) * 0.01f;
    for (int i = 0; i < times; i++)
        if (tu_run(p->program, p->state, 1, (tu_feed[]){{p->x, x}}, (void *[]){&y}) != TU_OK)
            fail_msg("%s", tu_message());
}

static void expect_complete_trace(const char *devices, const char *first_device, const char *second_device) {
    pair p;
    create_pair(&p, devices, first_device, second_device);
    assert_int_equal(tu_program_trace_begin(p.program), TU_OK);
    run_pair(&p, RUNS);
    decoded d = decode(p.program);
    rows_are_in_order(&d, 0);
    spans_lie_within_their_run(&d, RUNS, 0);
    every_planned_kernel_is_there(&d, p.program, RUNS);
    bytes_copied_are_those_predicted(&d, p.program, RUNS);
    drop(&d);
    free_pair(&p);
}

static void a_trace_contains_everything_planned(void **unused) {
    (void)unused;
    expect_complete_trace("cpu:0/2", "cpu:0.0", "cpu:0.1");
    expect_complete_trace("cpu:0,ref", "cpu:0", "ref:0"); /* ref cannot measure its kernels */
}

/* ---- Summaries ---- */

static void the_critical_path_is_not_longer_than_the_runs(void **unused) {
    (void)unused;
    pair p;
    create_pair(&p, "cpu:0/2", "cpu:0.0", "cpu:0.1");
    assert_int_equal(tu_program_trace_begin(p.program), TU_OK);
    run_pair(&p, RUNS);
    tu_program_trace_end(p.program);
    tu__critical_path path;
    tu_trace_report r = TU_SIZED(tu_trace_report);
    assert_int_equal(tu__trace_critical_path(p.program, &path), TU_OK);
    assert_int_equal(tu_trace_device(p.program, 0, &r), TU_OK);
    assert_true(path.seconds > 0 && path.seconds + path.gap_seconds <= r.runs);
    bool seen[2] = {false}; /* b needs a from the other device: the path includes both devices */
    int copies = 0;
    for (size_t i = 0; i < path.count; i++) {
        const tu__critical_path_item *item = &path.items[i];
        assert_true(i == 0 || item->seconds <= path.items[i - 1].seconds);
        if (item->span.kind == TU__SPAN_KERNEL) seen[item->span.partition] = true;
        if (item->span.kind == TU__SPAN_COPY) copies++;
    }
    assert_true(seen[0] && seen[1]);
    assert_true(copies >= 2);
    tu__critical_path_free(&path);
    free_pair(&p);
}

static void the_summary_reports_computing_and_waiting(void **unused) {
    (void)unused;
    pair p;
    create_pair(&p, "cpu:0/2", "cpu:0.0", "cpu:0.1");
    assert_int_equal(tu_program_trace_begin(p.program), TU_OK);
    run_pair(&p, RUNS);
    for (size_t i = 0; i < 2; i++) {
        tu_trace_report r = TU_SIZED(tu_trace_report);
        assert_int_equal(tu_trace_device(p.program, i, &r), TU_OK);
        assert_true(r.computing > 0 && r.computing <= r.runs);
        assert_true(r.lost_to_copies + r.waiting + r.computing <= r.runs);
        assert_true(r.overlapped <= r.copying);
    }
    char *text = NULL;
    size_t length;
    FILE *file = open_memstream(&text, &length);
    assert_int_equal(tu_trace_summary(p.program, file), TU_OK);
    fclose(file);
    assert_non_null(strstr(text, "3 runs traced"));
    assert_non_null(strstr(text, "cpu:0.0 to cpu:0.1: "));
    assert_non_null(strstr(text, "Critical path of a run: "));
    free(text);
    free_pair(&p);
}

/* ---- Starting and stopping ---- */

static void a_program_that_is_not_traced_records_nothing(void **unused) {
    (void)unused;
    pair p;
    create_pair(&p, "cpu:0/2", "cpu:0.0", "cpu:0.1");
    run_pair(&p, 1);
    uint64_t before = tu__alloc_count();
    run_pair(&p, 2);
    assert_int_equal(tu__alloc_count(), before);
    assert_null(p.program->trace);
    assert_int_equal(tu_trace_summary(p.program, stdout), TU_INVALID);
    assert_int_equal(tu_trace_write(1, &p.program, stdout), TU_INVALID);
    assert_int_equal(tu_program_trace_begin(p.program), TU_OK);
    assert_int_equal(tu_trace_summary(p.program, stdout), TU_INVALID); /* the program did not run */
    free_pair(&p);
}

static void tracing_can_end_and_begin_again(void **unused) {
    (void)unused;
    pair p;
    create_pair(&p, "cpu:0/2", "cpu:0.0", "cpu:0.1");
    assert_int_equal(tu_program_trace_begin(p.program), TU_OK);
    run_pair(&p, 2);
    tu_program_trace_end(p.program);
    run_pair(&p, 2);
    decoded d = decode(p.program);
    spans_lie_within_their_run(&d, 2, 0);
    drop(&d);
    assert_int_equal(tu_program_trace_begin(p.program), TU_OK);
    run_pair(&p, 1);
    d = decode(p.program);
    spans_lie_within_their_run(&d, 1, 0);
    drop(&d);
    free_pair(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_contains_everything_planned),
        cmocka_unit_test(the_critical_path_is_not_longer_than_the_runs),
        cmocka_unit_test(the_summary_reports_computing_and_waiting),
        cmocka_unit_test(a_program_that_is_not_traced_records_nothing),
        cmocka_unit_test(tracing_can_end_and_begin_again),
    };
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
