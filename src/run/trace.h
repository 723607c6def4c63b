/* Traces: when everything in a program's runs began and ended.
 *
 * A device has three rows: its kernels, what its launching thread fills and waits for, and what its copying thread brings:
 * what comes to the device, and what it sends to a processor. Where launch computes (the CPU), kernels and waits are the
 * same thread's and share the first row. Each row is written by one thread at a time, so nothing is locked; a program that is not traced has none of it and pays a comparison with NULL. */
#ifndef TU__RUN_TRACE_H
#define TU__RUN_TRACE_H

#include "run/program.h"

typedef enum tu__span_kind {
    TU__SPAN_RUN,
    TU__SPAN_KERNEL,    /* index: its place in the order */
    TU__SPAN_COPY,      /* index: the receive */
    TU__SPAN_WAIT,      /* index: the receive waited for */
    TU__SPAN_BARRIER,   /* until all parts have computed */
    TU__SPAN_MEETING,   /* index: of the part's collectives: its share of the adding */
    TU__SPAN_GATHERING, /* index: likewise: waiting for the others there */
    TU__SPAN_FEED,      /* index: tu_program.feeds */
    TU__SPAN_FETCH,     /* index: tu_program.fetches */
    TU__SPAN_UPDATE,    /* index: the part's update */
} tu__span_kind;

typedef struct tu__span {
    tu__span_kind kind;
    uint32_t run, part, index;
    double start, end; /* seconds of CLOCK_MONOTONIC */
} tu__span;

enum { TU__ROW_COMPUTE, TU__ROW_HOST, TU__ROW_COPIES, TU__ROWS };

typedef struct tu__span_list {
    tu__span *spans;
    size_t count, capacity;
    bool lost; /* memory ran out: something is missing */
} tu__span_list;

struct tu__trace {
    bool on;
    bool primed; /* devices know that somebody wants their kernels' times */
    double began;
    uint32_t runs;
    tu__span_list whole; /* of runs */
    size_t row_count;    /* TU__ROWS a device */
    tu__span_list *rows;
};

/* Seconds by the monotonic clock; 0 when the program is not traced. */
double tu__trace_now(const tu_program *program);
/* Notes what began at `began` and ends now; nothing when the program is not traced. */
void tu__trace_add(tu_program *program, tu__span_kind kind, size_t part, size_t index, double began);
/* Around a run: asks devices to take times; asks for the kernels' times and notes the run. */
tu_status tu__trace_begin_run(tu_program *program, double *began);
tu_status tu__trace_end_run(tu_program *program, double began);
/* Whether kernels must be launched one by one, since the device does not say how long each takes. */
bool tu__trace_times_launches(const tu_program *program, const tu__partition *part);
void tu__trace_free(tu__trace *trace);

/* Looking at it: rows in order of time; the row that spans of a kind are in. */
const tu__span_list *tu__trace_row(const tu_program *program, size_t part, int row);
/* The first span of a row that ends after `time`; spans of a row do not overlap. */
size_t tu__trace_first_after(const tu__span_list *row, double time);
/* Seconds of start … end during which a kernel of the part was under way. */
double tu__trace_computing(const tu_program *program, size_t part, double start, double end);
/* "wait for 'conv1'": what a span is, for people; lives until the next call in this thread. */
const char *tu__span_title(const tu_program *program, const tu__span *span);
uint64_t tu__span_bytes(const tu_program *program, const tu__span *span);

/* trace_path.c: what the runs' ends hung on. Spans of one kind, part and index count together. */
typedef struct tu__path_item {
    tu__span span; /* one of them */
    uint32_t count;
    double seconds;
} tu__path_item;

typedef struct tu__path {
    tu__path_item *items; /* heaviest first */
    size_t count;
    double seconds; /* of all items */
    double between; /* from the end of one to the start of the next: hand-over, launching */
} tu__path;

tu_status tu__trace_path(const tu_program *program, tu__path *path);
void tu__path_free(tu__path *path);

#endif
