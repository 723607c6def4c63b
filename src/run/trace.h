/* Traces: begin and end times of everything that happens in a program's runs.
 *
 * A device has four rows: its kernels, the feeds and waits of its compute thread, the copies of its copy thread, and
 * the collectives over processes, which the group's communication thread performs.
 * If launching a kernel executes it (the CPU), kernels and waits are on the same thread and share the first row. Only
 * one thread at a time writes a row, so there are no locks. A program that is not traced only pays for a comparison
 * with NULL. */
#ifndef TU__RUN_TRACE_H
#define TU__RUN_TRACE_H

#include "run/execution.h"

typedef enum tu__span_kind {
    TU__SPAN_RUN,
    TU__SPAN_KERNEL,          /* index: position in the kernel order */
    TU__SPAN_COPY,            /* index: the receive */
    TU__SPAN_WAIT,            /* index: the receive waited for */
    TU__SPAN_COMMIT,          /* waits until all partitions have computed */
    TU__SPAN_COLLECTIVE,      /* index: in the partition's collectives; its part of the work */
    TU__SPAN_COLLECTIVE_WAIT, /* index: in the partition's collectives; waiting for the other ranks */
    TU__SPAN_FEED,            /* index: tu_program.feeds */
    TU__SPAN_FETCH,           /* index: tu_program.fetches */
    TU__SPAN_UPDATE,          /* index: in the partition's updates */
} tu__span_kind;

typedef struct tu__span {
    tu__span_kind kind;
    uint32_t run, partition, index;
    double start, end; /* seconds of CLOCK_MONOTONIC */
} tu__span;

/* The rows of a device, in the order above. */
enum { TU__ROW_COMPUTE, TU__ROW_HOST, TU__ROW_COPIES, TU__ROW_PROCESSES, TU__ROWS };

typedef struct tu__span_list {
    tu__span *spans;
    size_t count, capacity;
    bool is_incomplete; /* out of memory: spans are missing */
} tu__span_list;

struct tu__trace {
    bool is_recording;
    bool is_timing;          /* devices measure the times of their kernels */
    double began;            /* time at which the trace was started */
    uint32_t runs;           /* number of runs traced so far */
    tu__span_list run_spans; /* one span per run */
    size_t row_count;        /* TU__ROWS per device */
    tu__span_list *rows;
};

bool tu__is_traced(const tu__execution *e);
/* Returns the seconds of CLOCK_MONOTONIC; 0 if the run is not traced. */
double tu__trace_now(const tu__execution *e);
/* Adds a span from `began` to now, if the run is traced. */
void tu__trace_add(const tu__execution *e, tu__span_kind kind, size_t partition, size_t index, double began);
/* Adds a span of a traced run. */
void tu__trace_add_span(const tu__execution *e, tu__span_kind kind, size_t partition, size_t index,
                        double start, double end);
/* Called before and after a run. The first makes devices measure kernel times; the second collects them and adds a
 * span for the run. */
tu_status tu__trace_begin_run(const tu__execution *e, double *began);
tu_status tu__trace_end_run(const tu__execution *e, double began);
/* True if kernels must be launched one by one, because the device cannot measure them. */
bool tu__trace_times_launches(const tu__execution *e, const tu__part *part);
void tu__trace_free(tu__trace *trace);

/* Returns a row, sorted by time. */
const tu__span_list *tu__trace_row(const tu_program *program, size_t partition, int row);
/* Returns the index of the first span that ends after `time`; spans of a row do not overlap. */
size_t tu__trace_first_after(const tu__span_list *row, double time);
/* Returns the seconds between `start` and `end` in which a kernel of the partition was running. */
double tu__trace_computing(const tu_program *program, size_t partition, double start, double end);
/* Returns a title such as "wait for conv1", valid until the next call in this thread. */
const char *tu__span_title(const tu_program *program, const tu__span *span);
uint64_t tu__span_bytes(const tu_program *program, const tu__span *span);

/* trace_path.c: the critical path of the traced runs. Spans of the same kind, partition and index are added up. */
typedef struct tu__critical_path_item {
    tu__span span; /* one of them */
    uint32_t count;
    double seconds;
} tu__critical_path_item;

typedef struct tu__critical_path {
    tu__critical_path_item *items; /* longest first */
    size_t count;
    double seconds; /* of all items */
    /* From the end of one span to the start of the next: synchronization, launch overhead. */
    double gap_seconds;
} tu__critical_path;

tu_status tu__trace_critical_path(const tu_program *program, tu__critical_path *path);
void tu__critical_path_free(tu__critical_path *path);

#endif
