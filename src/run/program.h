/* Internal declarations of programs. */
#ifndef TU__RUN_PROGRAM_H
#define TU__RUN_PROGRAM_H

#include <string.h>

#include <tutti/run.h>

#include "compile/collectives.h"
#include "compile/partition.h"
#include "run/repeat.h"
#include "run/run_sync.h"
#include "run/state.h"

/* The destination of an input's data, or of some of its rows. */
typedef struct tu__feed_slot {
    uint32_t source; /* the input's node in the user's graph */
    uint32_t node;   /* the input's node in the program's graph */
    uint32_t partition, buffer;
    size_t bytes; /* number of bytes that are uploaded */
    /* Bytes: offset of the uploaded rows in the user's data for one run, and size of that data. */
    size_t offset, total_bytes;
} tu__feed_slot;

/* The buffer of a fetched value. */
typedef struct tu__fetch_slot {
    uint32_t partition, buffer;
    size_t bytes;
} tu__fetch_slot;

/* Argument of a partition's threads. */
typedef struct tu__job {
    tu_program *program;
    tu__partition *partition;
    uint32_t steps; /* with `repetition`: number of steps of a multi-step call */
    const tu_repetition *repetition;
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
    tu__job *jobs;  /* per partition; they are not freed while a thread of an abandoned run uses them */
    bool abandoned; /* the latest run was abandoned: a device call had not returned at the deadline */
    tu__feed_slot *feeds;
    const void **feed_data; /* per feed: the data for this run; NULL if the input contains it already */
    size_t feed_count;
    tu__fetch_slot *fetches;
    tu__run_sync sync;
    uint64_t *sent_bytes; /* per node: bytes of its outputs that are copied to other devices */
    bool plan_only;
    uint64_t seed;
    int64_t samples;           /* in a batch; 0 if the program has no input of sample ordinals */
    int64_t *ordinals;         /* buffer for the ordinals of a batch */
    tu__trace *trace;          /* NULL if the program is not traced */
    tu__multi_step multi_step; /* data of tu_run_many */
    uint64_t bound_state;      /* id of the state that the program is bound to; 0: none */
    uint64_t bound_generation;
    tu_state *empty_state; /* empty state for runs without a state; created by the first such run */
};

/* True if the input contains the sample ordinals, which the engine generates if they are not fed. */
static inline bool tu__is_sample_ordinals(const tu__node *input) {
    return strcmp(input->stands_for ? input->stands_for : input->name, "sample_ordinal") == 0;
}

/* run.c: shared by tu_run and tu_run_many. Checks that the program can run with the state and the list of feeds.
 * Returns the input of feed `index`; NULL, with the message set, if `value` is not an input. */
tu_status tu__program_check_run(const tu_program *program, const tu_state *state, size_t feed_count,
                                const void *feeds);
const tu__node *tu__program_input(const tu_program *program, size_t index, tu_value value);
/* Fails with TU_INVALID: two feeds are for the same input. */
tu_status tu__program_fail_fed_twice(const tu__node *input, size_t first, size_t second);
/* Replaces a NULL state by an empty one of seed 0. Call with the devices locked. */
tu_status tu__program_state(tu_program *program, tu_state **state);
/* Fails with TU_INVALID if an input that was not fed is not one that the engine generates. */
tu_status tu__program_check_generated(const tu_program *program, const tu__feed_slot *slot);
/* Lock and unlock all devices of the program: a device runs one program at a time. */
void tu__program_lock_devices(const tu_program *program);
void tu__program_unlock_devices(const tu_program *program);
/* Downloads the fetched values: those of step `step`, to that index of every array in `fetches`. */
tu_status tu__program_fetch(tu_program *program, void *const *fetches, size_t step);
/* Applies the assignments after a run, and advances the state's next sample. */
tu_status tu__program_apply(tu_program *program, tu_state *state);

/* bind.c: sets the addresses of all buffers for a state, if anything has changed since the last run, and updates
 * outdated mirrors of variables. */
tu_status tu__program_bind(tu_program *program, tu_state *state);
/* bind.c: called before every run or multi-step call, and after it has succeeded. Maintain which mirrors equal their
 * variables. */
void tu__program_begin_updates(tu_program *program);
void tu__program_end_updates(tu_program *program);

/* executor.c: runs all partitions in parallel, on their devices' threads. Uploads `feed_data` first. */
tu_status tu__program_execute(tu_program *program);
/* Same as tu__program_execute. If a thread does not return, the program and the variables that its kernels update are
 * never freed. */
tu_status tu__program_execute_on(tu_program *program, tu_state *state);
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
/* Runs a multi-step call on the only active partition (repeat.h). Its device must have `repeat`. */
tu_status tu__program_repeat(tu_program *program, uint32_t steps, const tu_repetition *repetition);
/* Runs a multi-step call on all devices (joint.h). */
tu_status tu__program_repeat_joint(tu_program *program, uint32_t steps);

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
