/* Assertions about traces, which are parsed from their JSON. For tests on the CPU and on the emulated GPU. */
#ifndef TUTTI_TRACE_CHECKS_H
#define TUTTI_TRACE_CHECKS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/run.h>

#include "base/json_read.h"
#include "test.h"

/* ---- Decoding ---- */

typedef struct decoded {
    char *text;
    size_t length;
    tu__arena arena;
    const tu__json_value *events;
} decoded;

static inline decoded decode(tu_program *program) {
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

static inline void drop(decoded *d) {
    free(d->text);
    tu__arena_free(&d->arena);
}

static inline double number(const tu__json_value *event, const char *key) {
    const tu__json_value *v = tu__json_member(event, key);
    if (!v || v->kind != TU__JSON_NUMBER) fail_msg("'%s' is missing or not a number", key);
    return v->number;
}

static inline const char *string(const tu__json_value *event, const char *key) {
    const tu__json_value *v = tu__json_member(event, key);
    if (!v || v->kind != TU__JSON_STRING) fail_msg("'%s' is missing or not a string", key);
    return v->string;
}

static inline bool is_span(const tu__json_value *event) {
    return strcmp(string(event, "ph"), "X") == 0;
}

static inline bool is_a(const tu__json_value *event, const char *category) {
    return is_span(event) && strcmp(string(event, "cat"), category) == 0;
}

static inline double argument(const tu__json_value *event, const char *key) {
    return number(tu__json_member(event, "args"), key);
}

/* ---- Assertions about every trace ---- */

/* Asserts that the spans of a row do not overlap. `clocks` is the allowed difference of two clocks, in
 * microseconds. */
static inline void rows_are_in_order(const decoded *d, double clocks) {
    const double slack = clocks + 0.01; /* microseconds; 0.01 for the rounding of printed times */
    double row_end[64] = {0};
    for (size_t i = 0; i < d->events->count; i++) {
        const tu__json_value *e = &d->events->values[i];
        if (!is_span(e)) continue;
        size_t row = (size_t)number(e, "tid");
        assert_true(row < 64);
        double start = number(e, "ts"), seconds = number(e, "dur");
        assert_true(seconds >= 0);
        if (start < row_end[row] - slack)
            fail_msg("'%s' starts at %.3f us, before the end of the previous span at %.3f", string(e, "name"),
                     start, row_end[row]);
        row_end[row] = start + seconds;
    }
}

static inline void spans_lie_within_their_run(const decoded *d, int runs, double clocks) {
    enum { MAX_RUNS = 16 };
    const double slack = clocks + 0.01;
    double from[MAX_RUNS + 1] = {0}, to[MAX_RUNS + 1] = {0};
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

static inline int count_kernel(const decoded *d, const tu_kernel_report *k) {
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

static inline void every_planned_kernel_is_there(const decoded *d, const tu_program *program, int runs) {
    tu_kernel_report k = TU_SIZED(tu_kernel_report);
    for (size_t i = 0; i < tu_program_kernel_count(program) && tu_program_kernel(program, i, &k) == TU_OK;
         i++)
        if (count_kernel(d, &k) != runs)
            fail_msg("kernel %s of '%s' occurs %d times, expected %d", k.kernel, k.node, count_kernel(d, &k),
                     runs);
}

static inline double predicted_bytes(const tu_program *program, size_t *copies) {
    tu_copy_report c = TU_SIZED(tu_copy_report);
    double bytes = 0;
    for (*copies = 0;
         *copies < tu_program_copy_count(program) && tu_program_copy(program, *copies, &c) == TU_OK;
         ++*copies)
        bytes += (double)c.bytes;
    return bytes;
}

static inline void bytes_copied_are_those_predicted(const decoded *d, tu_program *program, int runs) {
    size_t copies, found = 0;
    double predicted = predicted_bytes(program, &copies), traced = 0, arrived = 0;
    for (size_t i = 0; i < d->events->count; i++)
        if (is_a(&d->events->values[i], "copy")) {
            traced += argument(&d->events->values[i], "bytes");
            found++;
        }
    assert_true(copies > 0);
    assert_int_equal(found, (size_t)runs * copies);
    assert_true(traced == runs * predicted);
    tu_trace_report r = TU_SIZED(tu_trace_report);
    for (size_t i = 0; i < tu_program_device_count(program) && tu_trace_device(program, i, &r) == TU_OK; i++)
        arrived += (double)r.received_bytes;
    assert_true(arrived == traced);
}

#endif
