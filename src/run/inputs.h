/* The data of a program's inputs in the steps of one call: given by the caller, gathered from tables, or generated. It
 * is kept in the execution between calls, so that calls after the first allocate nothing. */
#ifndef TU__RUN_INPUTS_H
#define TU__RUN_INPUTS_H

#include <tutti/run.h>

typedef struct tu__execution tu__execution;

/* Feeds of tu_run (`one`) or of tu_run_many (`many`). */
typedef struct tu__feed_list {
    size_t count;
    const tu_feed *one;
    const tu_feed_many *many;
} tu__feed_list;

typedef struct tu__input {
    bool is_fed; /* false: sample ordinals, which the engine generates */
    tu_feed_many feed;
    /* The feed's table in memory that the device can read; NULL if its rows are gathered into `block`. */
    const void *table;
    size_t offset; /* offset of generated or gathered data in `block` */
} tu__input;

typedef struct tu__inputs {
    tu__input *list;       /* per input of the program */
    tu_submit_feed *feeds; /* per input: its data in the current steps */
    bool are_submitted;    /* a device executes the steps of the call; false: they are interpreted */
    char *block;           /* gathered rows and ordinals for the current steps */
    size_t block_bytes;
    /* In the latest call: bytes of tables in device memory, and bytes of rows gathered on the host. */
    uint64_t table_bytes, gathered_bytes;
    char table_notice[256]; /* why rows are gathered on the host; "" if they are not */
} tu__inputs;

/* Checks the feeds of a call. */
tu_status tu__inputs_check(const tu_program *program, const tu__feed_list *feeds, size_t steps);
/* Allocates what all calls need. */
tu_status tu__inputs_allocate(tu__execution *e);
/* Begins a call of `steps` steps. Sets `*chunk` to the number of steps that tu__inputs_fill can prepare at once. */
tu_status tu__inputs_begin(tu__execution *e, const tu__feed_list *feeds, size_t steps, size_t *chunk);
/* Sets `feeds` for steps done … done + steps - 1 of the call. */
void tu__inputs_fill(tu__execution *e, const tu_state *state, size_t done, size_t steps);
/* True if interpreted steps copy rows from tables directly to all inputs, which are in host memory. */
bool tu__inputs_are_in_host_memory(const tu_program *program);
void tu__inputs_free(tu__inputs *inputs);

#endif
