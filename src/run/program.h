/* Programs from inside. */
#ifndef TU__RUN_PROGRAM_H
#define TU__RUN_PROGRAM_H

#include <string.h>

#include <tutti/run.h>

#include "compile/collectives.h"
#include "compile/partition.h"
#include "run/exchange.h"
#include "run/repeat.h"
#include "run/state.h"

typedef struct tu__feed_place { /* where an input's data goes, or some rows of them */
    uint32_t source;            /* the node in the user's graph */
    uint32_t node;              /* and in the program's */
    uint32_t part, buffer;
    size_t bytes; /* that go there */
    size_t offset,
        whole; /* bytes: of the first of them in what the user feeds, and of all that is fed for one run */
} tu__feed_place;

typedef struct tu__fetch_place {
    uint32_t part, buffer;
    size_t bytes;
} tu__fetch_place;

/* What a part's threads are given. */
typedef struct tu__job {
    tu_program *program;
    tu__partition *part;
    uint32_t steps; /* with `what`: many, by the device alone */
    const tu_repetition *what;
} tu__job;

typedef struct tu__trace tu__trace; /* trace.h */

/* A line for the user of a device. */
typedef struct tu__device_notice {
    char text[320]; /* "": none */
} tu__device_notice;

struct tu_program {
    tu_graph *source; /* the user's */
    tu__unit unit;
    size_t device_count;
    tu__device *devices[TU__MAX_DEVICES];
    const char *device_names[TU__MAX_DEVICES];
    bool asked_for_all; /* GPUs, and the CPU only where there are none */
    tu__partition *parts;
    tu__collectives collectives;
    size_t working;       /* parts that have something to do */
    tu__partition *alone; /* the only one that has; NULL: there are several */
    tu__job *jobs;        /* a part each; they outlive a run that was abandoned */
    bool abandoned;       /* the latest run was: a device had not come back at the deadline */
    tu__feed_place *feeds;
    const void **fed; /* per feed: where the data of the run lie; NULL: in the input itself already */
    size_t feed_count;
    tu__fetch_place *fetches;
    tu__exchange exchange;
    uint64_t *departing; /* per node: bytes of its values that are copied to other devices */
    bool plan_only;
    uint64_t seed;
    int64_t samples;   /* in the batch; 0: the program draws nothing for samples */
    int64_t *ordinals; /* room for them */
    tu__trace *trace;  /* NULL: nobody asked for one */
    tu__many many;     /* what tu_run_many keeps */
    uint64_t bound;    /* id of the state it is bound to; 0: none */
    uint64_t bound_generation;
    tu__device_notice *notices; /* a device each, in the place of what it says itself; NULL: there are none */
    tu_state *no_state; /* an empty one, for runs that are given none; NULL until there is such a run */
};

static inline bool tu__is_ordinals(const tu__node *input) {
    return strcmp(input->stands_for ? input->stands_for : input->name, "sample_ordinal") == 0;
}

/* run.c: what tu_run and tu_run_many have in common. Whether the program can be run over the state with a list of
 * feeds; the input that feed number `index` is for (NULL, with the message set: it is none); whether the engine fills an
 * input itself when nobody does. */
tu_status tu__program_can_run(const tu_program *program, const tu_state *state, size_t feed_count,
                              const void *feeds);
const tu__node *tu__program_input(const tu_program *program, size_t index, tu_value value);
tu_status tu__program_fed_twice(const tu__node *input, size_t first, size_t second); /* the refusal of it */
/* Puts an empty state of seed 0 in the place of NULL. Between take_turns and give_turns. */
tu_status tu__program_state(tu_program *program, tu_state **state);
tu_status tu__program_makes(const tu_program *program, const tu__feed_place *place);
/* Every device serves one program at a time: runs are made between these two. */
void tu__program_take_turns(const tu_program *program);
void tu__program_give_turns(const tu_program *program);
/* What the user fetches of a run: into the place of step `step` in each list of `fetches`. */
tu_status tu__program_fetch(tu_program *program, void *const *fetches, size_t step);
/* Applies the assignments after a run, and moves the state's sample on. */
tu_status tu__program_apply(tu_program *program, tu_state *state);

/* bind.c: gives every buffer its address for this state, where anything has changed since the last run, and makes mirrors of
 * variables equal to them. */
tu_status tu__program_bind(tu_program *program, tu_state *state);
/* bind.c: around every run, or many at once; the second when it has succeeded: which mirrors are equal to their variables. */
void tu__program_begin_updates(tu_program *program);
void tu__program_end_updates(tu_program *program);

/* executor.c: all parts at once, on their devices' threads, each filled from `fed` first. */
tu_status tu__program_execute(tu_program *program);
/* The same over a state: a thread that does not come back stays with the program, and with the variables that its kernels
 * update, which are then never freed. */
tu_status tu__program_execute_on(tu_program *program, tu_state *state);
/* Waits until what the part's device was given is done; a failure names the device, whatever it said itself. */
tu_status tu__partition_synchronize(const tu__partition *part);
tu_status tu__partition_failed(const tu__partition *part, tu_status status);
/* The same of something in the program: "device 'gpu:0' failed at filling 'images': …" */
tu_status tu__partition_failed_at(const tu__partition *part, const char *doing, const char *name,
                                  tu_status status);
/* Waits for an event of a part's device, which has no deadline; `note` says meanwhile whose it is. */
tu_status tu__partition_await(const tu_program *program, const tu__partition *part, void *event,
                              atomic_uint *note);
/* What a part is about right now, for people: "it is at matmul 'fc1/matmul'". */
typedef struct tu__phrase {
    char text[320];
} tu__phrase;
tu__phrase tu__partition_doing(const tu_program *program, tu__partition *part);
/* Whether a thread of an abandoned run may still use the program. */
bool tu__program_is_stuck(const tu_program *program);
/* Many steps by the program's one device, where it can be told to: repeat.h. */
tu_status tu__program_repeat(tu_program *program, uint32_t steps, const tu_repetition *what);
/* Many steps by all its devices together: joint.h. */
tu_status tu__program_repeat_joint(tu_program *program, uint32_t steps);

/* moves.c: says, before a run, which moves launching threads begin. */
void tu__deal_moves(tu_program *program);
/* moves.c: begins to bring a value, which is made, or will be when `ready` has happened. */
tu_status tu__begin_move(const tu_program *program, tu__receive *receive);
/* moves.c: what a part's copying thread does in a run; the argument is a tu__job. */
void tu__make_moves(void *job);
/* moves.c: waits for what a thread of a part has begun to move in a run that failed. How that ends is of no interest any more. */
void tu__let_moves_land(const tu_program *program, const tu__partition *part, tu__thread thread);

/* device_report.c: notes which devices compute the program's precision slowly, for their reports. */
tu_status tu__program_note_slow_types(tu_program *program);

/* placement_report.c: counts what leaves each node, for its report. */
tu_status tu__program_count_departing(tu_program *program);

/* memory_refusal.c: refuses a program that does not fit its devices, with what weighs most and what would help. */
tu_status tu__check_memory(const tu_program *program, const tu_compile_options *options);

#endif
