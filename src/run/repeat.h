/* Data that tu_run_many keeps in a program between calls, so that calls after the first allocate nothing. */
#ifndef TU__RUN_REPEAT_H
#define TU__RUN_REPEAT_H

#include <tutti/run.h>

#include "run/joint.h"

/* The source of an input's batches. */
typedef struct tu__multi_step_source {
    const tu_feed_many *feed; /* NULL: sample ordinals, which the engine generates */
    /* The feed's table in device memory; NULL if its rows are gathered into `block` on the host. */
    const void *table;
    size_t offset; /* offset of generated or gathered data in `block` */
} tu__multi_step_source;

typedef struct tu__multi_step {
    tu__multi_step_source *sources; /* per input of the program */
    tu_repeat_feed *feeds;
    tu_repeat_fetch *fetches; /* the first fetch_count are used */
    uint32_t *fetched;        /* per entry of `fetches`: its index in the program's fetches */
    uint32_t fetch_count;
    tu__joint joint; /* used if several devices run the steps */
    char *block;     /* rows and ordinals for the steps of one chunk */
    size_t block_bytes;
    /* In the latest call: bytes of tables in device memory, and bytes of rows gathered on the host. */
    uint64_t table_bytes, gathered_bytes;
    char notice[256];       /* why the program runs one step at a time; "" if it does not */
    char table_notice[256]; /* why rows are gathered on the host; "" if they are not */
} tu__multi_step;

/* Finds out whether the devices of a compiled program can run multi-step calls. */
tu_status tu__multi_step_init(tu_program *program);
void tu__multi_step_free(tu__multi_step *multi_step);

#endif
