/* What tu_run_many keeps in a program between its calls, so that calls after the first allocate nothing. */
#ifndef TU__RUN_REPEAT_H
#define TU__RUN_REPEAT_H

#include <tutti/run.h>

#include "run/joint.h"

typedef struct tu__many_source { /* where an input's batches come from */
    const tu_feed_many *feed;    /* NULL: the engine makes sample ordinals */
    const void *table; /* the feed's, in the device's memory; NULL: rows are gathered in the block */
    size_t offset;     /* of what the engine makes, in the block */
} tu__many_source;

typedef struct tu__many {
    tu__many_source *sources; /* per input of the program */
    tu_repeat_feed *feeds;
    tu_repeat_fetch *fetches; /* the first fetch_count are wanted */
    uint32_t *fetched;        /* which of the program's each of them is */
    uint32_t fetch_count;
    tu__joint joint; /* where several devices take the steps */
    char *block;     /* rows and ordinals made for the steps of one piece */
    size_t block_bytes;
    uint64_t table_bytes, gathered_bytes;
    char notice[256]; /* why the steps are not taken at once; "": they are */
    char table_notice[256];
} tu__many;

/* Finds out, once a program is compiled, whether its devices take many steps at once. */
tu_status tu__many_begin(tu_program *program);
void tu__many_end(tu__many *many);

#endif
