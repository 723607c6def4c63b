/* Internal declarations of programs. */
#ifndef TU__RUN_PROGRAM_H
#define TU__RUN_PROGRAM_H

#include <string.h>

#include <tutti/run.h>

#include "compile/command_list.h"
#include "compile/partition.h"
#include "run/inputs.h"
#include "run/run_sync.h"
#include "run/state.h"
#include "run/submit.h"

/* Where an input gets its data. Its buffer is in the command list. */
typedef struct tu__feed {
    uint32_t source; /* the input's node in the user's graph */
    uint32_t node;   /* the input's node in the program's graph */
    /* Bytes: offset of the input's rows in the user's data for one run, and size of that data. */
    size_t offset, total_bytes;
} tu__feed;

/* Argument of a partition's threads. */
typedef struct tu__job {
    tu_program *program;
    tu__partition *partition;
    const tu_submission *submission; /* NULL: one interpreted step */
} tu__job;

typedef struct tu__trace tu__trace; /* trace.h */

struct tu_program {
    tu_graph *source; /* the user's graph */
    tu__unit unit;
    size_t device_count;
    tu__device *devices[TU__MAX_DEVICES];
    const char *device_names[TU__MAX_DEVICES];
    bool uses_all; /* the device list contained "all": GPUs, and the CPU only if there is no GPU */
    tu__partition *partitions;
    tu__collectives collectives;
    size_t active_count;        /* number of partitions that are not idle */
    tu__partition *only_active; /* the only partition that is not idle; NULL if there are several */
    tu__job *jobs;   /* per partition; they are not freed while a thread of an abandoned run uses them */
    bool abandoned;  /* the latest run was abandoned: a device call had not returned at the deadline */
    tu__feed *feeds; /* per input of the command list */
    size_t feed_count;
    tu_slot *feed_slots, *fetch_slots; /* of the command list */
    tu__command_list list;             /* what one step does */
    tu__run_sync sync;
    uint64_t *sent_bytes; /* per node: bytes of its outputs that are copied to other devices */
    bool plan_only;
    uint64_t seed;
    int64_t samples;      /* in a batch; 0 if the program has no input of sample ordinals */
    tu__trace *trace;     /* NULL if the program is not traced */
    tu__inputs inputs;    /* of the current call */
    tu__submit submit;    /* for calls with many steps */
    uint64_t bound_state; /* id of the state that the program is bound to; 0: none */
    uint64_t bound_generation;
    tu_state *empty_state; /* empty state for runs without a state; created by the first such run */
};

/* True if the input contains the sample ordinals, which the engine generates if they are not fed. */
static inline bool tu__is_sample_ordinals(const tu__node *input) {
    return strcmp(input->stands_for ? input->stands_for : input->name, "sample_ordinal") == 0;
}

/* bind.c: sets the addresses of all buffers for a state, if anything has changed since the last run, and updates
 * outdated mirrors of variables. */
tu_status tu__program_bind(tu_program *program, tu_state *state);
/* bind.c: called before every step, or many submitted steps, and after they have succeeded. Maintain which mirrors
 * equal their variables, and the state's next sample. */
void tu__program_begin_updates(tu_program *program);
void tu__program_end_updates(tu_program *program, tu_state *state, size_t steps);

/* interpret.c: executes one step with the data in `inputs`. Copies the results to index `step` of the arrays in
 * `fetches`. */
tu_status tu__interpret_step(tu_program *program, tu_state *state, void *const *fetches, size_t step);
/* interpret.c: calls `submit` of the devices. */
tu_status tu__submit_to_device(tu_program *program, const tu_submission *submission);
/* Waits until the partition's device has finished all work. An error message contains the device's name. */
tu_status tu__partition_synchronize(const tu__partition *partition);
tu_status tu__partition_fail(const tu__partition *partition, tu_status status);
/* Fails with a message such as "device 'gpu:0' failed at uploading 'images': …". */
tu_status tu__partition_fail_at(const tu__partition *partition, const char *activity, const char *name,
                                tu_status status);
/* Waits without a timeout for an event of the partition's device. Meanwhile `awaited_partition` contains the
 * partition's index + 1. */
tu_status tu__partition_wait_event(const tu_program *program, const tu__partition *partition, void *event,
                                   atomic_uint *awaited_partition);
/* Returns what a partition is doing, for messages: "it is executing matmul 'fc1/matmul'". */
typedef struct tu__phrase {
    char text[320];
} tu__phrase;
tu__phrase tu__partition_activity(const tu_program *program, tu__partition *partition);
/* True if a thread of an abandoned run may still use the program. */
bool tu__program_is_stuck(const tu_program *program);

/* copies.c: called before a run; decides which copies the compute threads begin. */
void tu__assign_copies(tu_program *program);
/* copies.c: begins an asynchronous copy of a value that is computed, or will be when `source_event` completes. */
tu_status tu__begin_copy(const tu_program *program, tu__receive *receive);
/* copies.c: the function of a partition's copy thread in a run; the argument is a tu__job. */
void tu__run_copy_thread(void *job);
/* copies.c: after a run that failed, waits for the copies that a thread of a partition has begun. Ignores their
 * errors. */
void tu__finish_failed_copies(const tu_program *program, const tu__partition *partition, tu__thread thread);

/* memory_limit.c: fails with TU_NO_MEMORY if the program does not fit its devices. The message lists the largest
 * buffers and possible savings. */
tu_status tu__check_memory(const tu_program *program, const tu_compile_options *options);

#endif
