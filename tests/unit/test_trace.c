/* Traces: everything a program planned is in them, once a run; rows are in order and what is in a run lies within it;
 * bytes copied are those predicted; a program that is not traced notes nothing. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "run/trace.h"

enum { RUNS = 3, SIZE = 64 };

/* Two branches on two devices, joined on the first; a variable counts. */
typedef struct pair {
    tu_graph *graph;
    tu_value x, y;
    tu_program *program;
    tu_state *state;
} pair;

static void begin(pair *p, const char *devices, const char *one, const char *other) {
    assert_int_equal(tu_graph_new(&p->graph), TU_OK);
    tu_value a, b, w;
    p->x = tu_input(p->graph, "x", TU_F32, TU_SHAPE(SIZE, SIZE));
    w = tu_variable(p->graph, "w", TU_F32, TU_SHAPE(SIZE, SIZE));
    tu_with_device(p->graph, one) a = tu_matmul(p->x, p->x);
    tu_with_device(p->graph, other) b = tu_matmul(p->x, tu_matmul(a, p->x));
    tu_with_device(p->graph, one) {
        p->y = tu_sum(tu_mul(b, tu_softmax(a, -1)));
        tu_assign(w, tu_add(w, b));
    }
    if (tu_compile(p->graph, &p->program, .devices = devices, .threads = 1, .fetch = &p->y, .fetch_count = 1,
                   .updates = true) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(p->graph, &p->state, .seed = 1), TU_OK);
}

static void end(pair *p) {
    tu_program_free(p->program);
    tu_state_free(p->state);
    tu_graph_free(p->graph);
}

static void run(pair *p, int times) {
    static float x[SIZE * SIZE];
    float y;
    for (int i = 0; i < SIZE * SIZE; i++) x[i] = (float)(i % 7) * 0.01f;
    for (int i = 0; i < times; i++)
        if (tu_run(p->program, p->state, 1, (tu_feed[]){{p->x, x}}, (void *[]){&y}) != TU_OK)
            fail_msg("%s", tu_message());
}

/* ---- Decoding ---- */

typedef struct decoded {
    char *text;
    size_t length;
    tu__arena arena;
    const tu__json_value *events;
} decoded;

static decoded decode(tu_program *program) {
    decoded d = {.arena = {.purpose = "a test"}};
    FILE *file = open_memstream(&d.text, &d.length);
    assert_non_null(file);
    if (tu_trace_write(1, &program, file) != TU_OK) fail_msg("%s", tu_message());
    fclose(file);
    const tu__json_value *root;
    if (tu__json_parse(&d.arena, "trace", d.text, d.length, &root) != TU_OK) fail_msg("%s", tu_message());
    d.events = tu__json_member(root, "traceEvents");
    assert_non_null(d.events);
    assert_int_equal(d.events->kind, TU__JSON_ARRAY);
    return d;
}

static void drop(decoded *d) {
    free(d->text);
    tu__arena_free(&d->arena);
}

static double number(const tu__json_value *event, const char *key) {
    const tu__json_value *v = tu__json_member(event, key);
    if (!v || v->kind != TU__JSON_NUMBER) fail_msg("'%s' is missing or no number", key);
    return v->number;
}

static const char *string(const tu__json_value *event, const char *key) {
    const tu__json_value *v = tu__json_member(event, key);
    if (!v || v->kind != TU__JSON_STRING) fail_msg("'%s' is missing or no string", key);
    return v->string;
}

static bool is_span(const tu__json_value *event) {
    return strcmp(string(event, "ph"), "X") == 0;
}

static bool is_a(const tu__json_value *event, const char *category) {
    return is_span(event) && strcmp(string(event, "cat"), category) == 0;
}

static double argument(const tu__json_value *event, const char *key) {
    return number(tu__json_member(event, "args"), key);
}

/* ---- What must hold of every trace ---- */

/* Spans of a row come one after another; `slack` microseconds for times written as decimals. */
static void rows_are_in_order(const decoded *d) {
    const double slack = 0.01;
    double row_end[64] = {0};
    for (size_t i = 0; i < d->events->count; i++) {
        const tu__json_value *e = &d->events->values[i];
        if (!is_span(e)) continue;
        size_t row = (size_t)number(e, "tid");
        assert_true(row < 64);
        double start = number(e, "ts"), seconds = number(e, "dur");
        assert_true(seconds >= 0);
        if (start < row_end[row] - slack)
            fail_msg("'%s' begins at %.3f us, before the end of what precedes it, %.3f", string(e, "name"),
                     start, row_end[row]);
        row_end[row] = start + seconds;
    }
}

static void spans_lie_within_their_run(const decoded *d, int runs) {
    const double slack = 0.01;
    double from[RUNS + 1] = {0}, to[RUNS + 1] = {0};
    int found = 0;
    for (size_t i = 0; i < d->events->count; i++) {
        const tu__json_value *e = &d->events->values[i];
        if (!is_a(e, "run")) continue;
        int run = (int)argument(e, "run");
        from[run] = number(e, "ts");
        to[run] = from[run] + number(e, "dur");
        found++;
    }
    assert_int_equal(found, runs);
    for (size_t i = 0; i < d->events->count; i++) {
        const tu__json_value *e = &d->events->values[i];
        if (!is_span(e)) continue;
        int run = (int)argument(e, "run");
        double start = number(e, "ts");
        if (start < from[run] - slack || start + number(e, "dur") > to[run] + slack)
            fail_msg("'%s' is not within run %d", string(e, "name"), run);
    }
}

static int count_kernel(const decoded *d, const tu_kernel_report *k) {
    int count = 0;
    for (size_t i = 0; i < d->events->count; i++) {
        const tu__json_value *e = &d->events->values[i];
        if (!is_a(e, "kernel") || strcmp(string(e, "name"), k->kernel) != 0) continue;
        const tu__json_value *args = tu__json_member(e, "args");
        if (strcmp(string(args, "operation"), k->node) != 0) continue;
        assert_int_equal((int64_t)number(args, "bytes"), k->bytes);
        assert_int_equal((int64_t)number(args, "flops"), k->flops);
        count++;
    }
    return count;
}

static void every_planned_kernel_is_there(const decoded *d, const tu_program *program) {
    tu_kernel_report k;
    for (size_t i = 0; tu_program_kernel(program, i, &k) == TU_OK; i++)
        if (count_kernel(d, &k) != RUNS)
            fail_msg("kernel %s of '%s' is there %d times, not %d", k.kernel, k.node, count_kernel(d, &k),
                     RUNS);
}

static double predicted_bytes(const tu_program *program, size_t *copies) {
    tu_copy_report c;
    double bytes = 0;
    for (*copies = 0; tu_program_copy(program, *copies, &c) == TU_OK; ++*copies) bytes += (double)c.bytes;
    return bytes;
}

static void bytes_copied_are_those_predicted(const decoded *d, tu_program *program) {
    size_t copies, found = 0;
    double predicted = predicted_bytes(program, &copies), traced = 0, arrived = 0;
    for (size_t i = 0; i < d->events->count; i++)
        if (is_a(&d->events->values[i], "copy")) {
            traced += argument(&d->events->values[i], "bytes");
            found++;
        }
    assert_true(copies > 0);
    assert_int_equal(found, RUNS * copies);
    assert_true(traced == RUNS * predicted);
    tu_trace_report r;
    for (size_t i = 0; tu_trace_device(program, i, &r) == TU_OK; i++) arrived += (double)r.arrived_bytes;
    assert_true(arrived == traced);
}

static void expect_whole_trace(const char *devices, const char *one, const char *other) {
    pair p;
    begin(&p, devices, one, other);
    assert_int_equal(tu_program_trace_begin(p.program), TU_OK);
    run(&p, RUNS);
    decoded d = decode(p.program);
    rows_are_in_order(&d);
    spans_lie_within_their_run(&d, RUNS);
    every_planned_kernel_is_there(&d, p.program);
    bytes_copied_are_those_predicted(&d, p.program);
    drop(&d);
    end(&p);
}

static void a_trace_holds_all_that_was_planned(void **unused) {
    (void)unused;
    expect_whole_trace("cpu:0/2", "cpu:0.0", "cpu:0.1");
    expect_whole_trace("cpu:0,ref", "cpu:0", "ref:0"); /* which does not say how long its kernels take */
}

/* ---- Summing up ---- */

static void the_critical_path_is_no_longer_than_the_runs(void **unused) {
    (void)unused;
    pair p;
    begin(&p, "cpu:0/2", "cpu:0.0", "cpu:0.1");
    assert_int_equal(tu_program_trace_begin(p.program), TU_OK);
    run(&p, RUNS);
    tu_program_trace_end(p.program);
    tu__path path;
    tu_trace_report r;
    assert_int_equal(tu__trace_path(p.program, &path), TU_OK);
    assert_int_equal(tu_trace_device(p.program, 0, &r), TU_OK);
    assert_true(path.seconds > 0 && path.seconds + path.between <= r.runs);
    bool seen[2] = {false}; /* b needs a from the other device: the path goes through both, and back */
    int copies = 0;
    for (size_t i = 0; i < path.count; i++) {
        const tu__path_item *item = &path.items[i];
        assert_true(i == 0 || item->seconds <= path.items[i - 1].seconds);
        if (item->span.kind == TU__SPAN_KERNEL) seen[item->span.part] = true;
        if (item->span.kind == TU__SPAN_COPY) copies++;
    }
    assert_true(seen[0] && seen[1]);
    assert_true(copies >= 2);
    tu__path_free(&path);
    end(&p);
}

static void a_device_waits_for_what_another_computes(void **unused) {
    (void)unused;
    pair p;
    begin(&p, "cpu:0/2", "cpu:0.0", "cpu:0.1");
    assert_int_equal(tu_program_trace_begin(p.program), TU_OK);
    run(&p, RUNS);
    for (size_t i = 0; i < 2; i++) {
        tu_trace_report r;
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
    assert_non_null(strstr(text, "The end of a run hangs on"));
    free(text);
    end(&p);
}

/* ---- Off and on ---- */

static void a_program_that_is_not_traced_notes_nothing(void **unused) {
    (void)unused;
    pair p;
    begin(&p, "cpu:0/2", "cpu:0.0", "cpu:0.1");
    run(&p, 1);
    uint64_t before = tu__alloc_count();
    run(&p, 2);
    assert_int_equal(tu__alloc_count(), before);
    assert_null(p.program->trace);
    assert_int_equal(tu_trace_summary(p.program, stdout), TU_INVALID);
    assert_int_equal(tu_trace_write(1, &p.program, stdout), TU_INVALID);
    assert_int_equal(tu_program_trace_begin(p.program), TU_OK);
    assert_int_equal(tu_trace_summary(p.program, stdout), TU_INVALID); /* no run was made */
    end(&p);
}

static void tracing_ends_and_begins_anew(void **unused) {
    (void)unused;
    pair p;
    begin(&p, "cpu:0/2", "cpu:0.0", "cpu:0.1");
    assert_int_equal(tu_program_trace_begin(p.program), TU_OK);
    run(&p, 2);
    tu_program_trace_end(p.program);
    run(&p, 2);
    decoded d = decode(p.program);
    spans_lie_within_their_run(&d, 2);
    drop(&d);
    assert_int_equal(tu_program_trace_begin(p.program), TU_OK);
    run(&p, 1);
    d = decode(p.program);
    spans_lie_within_their_run(&d, 1);
    drop(&d);
    end(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_holds_all_that_was_planned),
        cmocka_unit_test(the_critical_path_is_no_longer_than_the_runs),
        cmocka_unit_test(a_device_waits_for_what_another_computes),
        cmocka_unit_test(a_program_that_is_not_traced_notes_nothing),
        cmocka_unit_test(tracing_ends_and_begins_anew),
    };
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
