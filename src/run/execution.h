/* An execution: a program in a session. Everything that runs of a program change is here; the program itself does not
 * change once it is compiled. */
#ifndef TU__RUN_EXECUTION_H
#define TU__RUN_EXECUTION_H

#include "comm/communicator.h"
#include "run/group_collective.h"
#include "run/inputs.h"
#include "run/program.h"
#include "run/run_sync.h"
#include "run/state.h"
#include "run/submit.h"

typedef struct tu__bound_leaf { /* of a leaf that is a variable: its storage in the state */
    tu__variable *variable;     /* NULL: the leaf is no variable */
    tu__mirror *mirror;         /* the variable's mirror on this device; NULL: uses the variable itself */
} tu__bound_leaf;

typedef struct tu__bound_update {
    void *staging; /* memory of the staging buffer, if there is one */
    tu__variable *target;
    tu__mirror *mirror;      /* the target's mirror on this device; NULL: updates the target itself */
    uint64_t version_before; /* the target's version when the run began */
} tu__bound_update;

typedef struct tu__bound_copy { /* a copy from another partition */
    bool is_async;              /* the copying device copies asynchronously, in a queue */
    bool is_pinned;             /* the copying device can access the host end of the copy directly */
    /* In this run: the compute thread of the copying partition begins the copy, not its copy thread. */
    bool by_compute_thread;
    uint64_t begun_in_run; /* epoch of the latest run in which the copy was begun */
} tu__bound_copy;

/* Bytes of the staging buffer per input, for TU__COLLECTIVE_THROUGH_HOST. */
enum { TU__STAGED_BYTES = 1 << 18 };

/* A partition in a session. */
typedef struct tu__part {
    const tu__partition *partition;
    uint32_t index;
    tu__device *device;
    tu__session_device *on; /* scratch memory and threads of the session */
    /* Queues for kernels, for copies from the host and to it; NULL if the device has no queues. Their events have the
     * numbers of the run's events (run_sync.h). */
    tu_queue *queue, *upload_queue, *download_queue;
    tu_executable *executable;
    void **addresses;  /* per buffer */
    void **workspaces; /* per kernel; NULL: it has none */
    tu__bound_leaf *leaves;
    tu__bound_update *updates;
    tu__bound_copy *copies;      /* per receive */
    tu_executable **collectives; /* per collective that it takes part in; NULL: the host runs it */
    uint32_t copy_thread_copies; /* number of copies that the copy thread performs in this run */
    char *staging;               /* for TU__COLLECTIVE_THROUGH_HOST: perform_collective.c */
    uint64_t scratch_generation; /* of the scratch memory for which the addresses were set */
    /* For messages about timeouts: the command that the compute thread executes, and for each thread the partition
     * whose device event it waits for, plus 1; 0: none. */
    atomic_uint current_command, compute_thread_awaits, copy_thread_awaits;
    atomic_bool is_committing; /* it has computed, and waits for the others */
} tu__part;

/* Argument of a partition's threads. */
typedef struct tu__job {
    struct tu__execution *execution;
    tu__part *part;
    const tu_submission *submission; /* NULL: one interpreted step */
} tu__job;

typedef struct tu__execution {
    tu_program *program;
    tu_session *session;             /* NULL: the default session */
    tu__part *parts;                 /* per partition */
    tu__communicator *communicators; /* per collective */
    tu__group_run group;             /* collectives over processes */
    tu__run_sync sync;
    tu__job *jobs;  /* per partition; they are not freed while a thread of an abandoned run uses them */
    bool abandoned; /* the latest run was abandoned: a device call had not returned at the deadline */
    uint64_t seed;
    tu__inputs inputs;    /* of the current call */
    tu__submit submit;    /* for calls with many steps */
    tu__trace *trace;     /* NULL: the current call is not traced */
    uint64_t bound_state; /* id of the state that the addresses are for; 0: none */
    uint64_t bound_generation;
    tu_state *empty_state; /* for runs without a state; created by the first such run */
    struct tu__execution *next_in_program, *next_in_session;
} tu__execution;

/* execution.c: returns the execution of a program in a session (NULL: the default session); creates it if there is
 * none. */
tu_status tu__execution_of(tu_program *program, tu_session *session, tu__execution **execution);
/* execution.c: returns the execution in the default session; NULL if the program has not run there yet. */
tu__execution *tu__default_execution(const tu_program *program);
/* execution.c: frees all executions of a program, or of a session. */
void tu__program_free_executions(tu_program *program);
void tu__session_free_executions(tu_session *session);
/* True if a thread of an abandoned run may still use the execution. */
bool tu__execution_is_stuck(const tu__execution *e);

/* session.c: returns what a session has on a device. NULL: out of memory. */
tu__session_device *tu__session_device_of(tu_session *session, tu__device *device);
tu_state *tu__session_state(const tu_session *session);
tu__execution **tu__session_executions(tu_session *session);

/* bind.c: sets the addresses of all buffers for a state, if anything has changed since the last run, and updates
 * outdated mirrors of variables. Call with the state locked for writing. */
tu_status tu__bind(tu__execution *e, tu_state *state);
/* bind.c: true if tu__bind has nothing to do. Call with the state locked. */
bool tu__is_bound(const tu__execution *e, const tu_state *state);
/* bind.c: builds the parts of all ranks in collectives, if they are not built yet. */
tu_status tu__build_collectives(tu__execution *e);
/* bind.c: frees what binding has created for an execution. */
void tu__unbind(tu__execution *e);
/* bind.c: frees what binding has created for all executions of a program. */
void tu__program_free_constants(tu_program *p);
/* bind.c: called before every step, or many submitted steps, and after they have succeeded. Maintain which mirrors
 * equal their variables, and the state's next sample. */
void tu__begin_updates(tu__execution *e);
void tu__end_updates(tu__execution *e, tu_state *state, size_t steps);

/* interpret.c: executes one step with the data in `inputs`. Copies the results to index `step` of the arrays in
 * `fetches`. */
tu_status tu__interpret_step(tu__execution *e, tu_state *state, void *const *fetches, size_t step);

/* threads.c: fails if a thread of an abandoned run still uses a device of the program. Call before anything of the
 * execution changes, with the devices locked. */
tu_status tu__check_threads_free(const tu__execution *e);
/* threads.c: runs `work` for every partition that is not idle, on the compute thread of its device, and the copies on
 * copy threads; returns the first failure. */
tu_status tu__run_on_threads(tu__execution *e, void (*work)(void *job));
/* threads.c: runs `work` for one partition while the others do nothing: on the caller's thread, if the device is not a
 * logical one. */
tu_status tu__run_on_one_thread(tu__execution *e, void (*work)(void *job), tu__job job);

/* activity.c: messages. Fail with the name of the device, and its own message. */
tu_status tu__part_fail(const tu__part *part, tu_status status);
/* Fails with a message such as "device 'gpu:0' failed at uploading 'images': …". */
tu_status tu__part_fail_at(const tu__part *part, const char *activity, const char *name, tu_status status);
typedef struct tu__phrase {
    char text[320];
} tu__phrase;
/* Returns what a partition is doing: "it is executing matmul 'fc1/matmul'". */
tu__phrase tu__part_activity(const tu__execution *e, tu__part *part);
/* Returns "matmul 'fc1/matmul'", or for several kernels "its 12 kernels from matmul 'fc1/matmul' to …". */
tu__phrase tu__part_kernels(const tu__execution *e, const tu__part *part, uint32_t first, uint32_t count);

/* interpret.c: the kernels of a LAUNCH command, and of those that are launched together with it. */
uint32_t tu__launch_count(const tu__execution *e, const tu__part *part, uint32_t command);
/* interpret.c: signals the values that exist before the run, before threads start. */
void tu__signal_persistent_values(tu__execution *e);
/* interpret.c: waits until the partition's device has finished all work. */
tu_status tu__part_synchronize(const tu__execution *e, const tu__part *part);
/* interpret.c: waits without a timeout for an event of a queue of another partition. Meanwhile `awaited_partition`
 * contains that partition's index + 1. */
tu_status tu__part_wait_event(const tu__part *part, tu_queue *queue, uint32_t event,
                              atomic_uint *awaited_partition);

/* copies.c: called before a run; decides which copies the compute threads begin. */
void tu__assign_copies(tu__execution *e);
/* copies.c: begins an asynchronous copy of a value that is computed, or will be when its event happens. */
tu_status tu__begin_copy(tu__execution *e, const tu__receive *receive);
tu__bound_copy *tu__copy_of(const tu__execution *e, const tu__receive *receive);
/* copies.c: true if a copy of this run is asynchronous. A traced copy is measured by waiting for it. */
bool tu__is_copied_async(const tu__execution *e, const tu__receive *receive);
/* copies.c: the queue in which an asynchronous copy runs. */
tu_queue *tu__copy_queue(const tu__execution *e, const tu__receive *receive);
/* copies.c: the function of a partition's copy thread in a run; the argument is a tu__job. */
void tu__run_copy_thread(void *job);
/* copies.c: after a run that failed, waits for the copies that a thread of a partition has begun. Ignores their
 * errors. */
void tu__finish_failed_copies(const tu__execution *e, const tu__part *part, tu__thread thread);

#endif
