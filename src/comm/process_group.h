/* A process group, inside the engine: include/tutti/process_group.h.
 *
 * The group has one communication thread, the only one that uses the transport. Jobs are given to it in the order in
 * which they must run, which is the same in all processes: a job of one process waits for the same job of the others.
 * The thread polls, then naps; it gives up at the deadline of a job, or when the monitor knows of a failure. */
#ifndef TU__COMM_PROCESS_GROUP_H
#define TU__COMM_PROCESS_GROUP_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include <tutti/process_group.h>

#include "base/shared.h"
#include "comm/counter.h"
#include "comm/transport.h"

typedef struct tu__process {
    char host[64];
    uint32_t host_rank, first_on_host, host_size;
    cpu_set_t cores; /* that its threads may use */
} tu__process;

/* A job of the communication thread. The caller owns it, and keeps it until `finished` was called. */
typedef struct tu__group_job {
    char name[160];  /* for messages: "all_reduce of 'fc1/weights'" */
    uint64_t number; /* tu__group_number */
    tu_status (*run)(tu_process_group *group, void *context);
    /* Called after `run`, or without it if the group has failed before, with tu_message() set. */
    void (*finished)(void *context, tu_status status);
    void *context;
    struct tu__group_job *next;
} tu__group_job;

enum {
    TU__MAX_PROCESSES = 128,
    TU__GATHER_BYTES = 2048,
    TU__MAX_LANES = 8,           /* of a collective (group_reduce.c) */
    TU__PIECE_BYTES = 256 << 10, /* of a collective, at a time */
    TU__LANE_BUFFERS = 4,
    TU__STAGING_BYTES = TU__MAX_LANES * TU__LANE_BUFFERS * TU__PIECE_BYTES,
    TU__RECEIVE_BYTES = TU__PIECE_BYTES + TU__MAX_PROCESSES * 64, /* of the messages of a piece, rounded up */
    TU__RECEIVE_BUFFERS = 8,
};

/* What one process has done with the pieces of a lane: how many it has written to its staging buffers, has reduced its
 * slice of, and has read the results of (group_reduce.c). */
typedef struct tu__lane_counters {
    tu__counter written, reduced, read;
} tu__lane_counters;

/* The memory of one process that the processes of its node share. */
typedef struct tu__shared_area {
    tu__counter gathered; /* number of gathers that the process has begun (group_gather.c) */
    char gather_buffers[2][TU__GATHER_BYTES];
    tu__lane_counters lanes[TU__MAX_LANES];
    _Alignas(4096) char staging[TU__STAGING_BYTES];
} tu__shared_area;

struct tu_process_group {
    const tu__transport_api *api;
    tu__transport *transport;
    tu__transport_info info;
    tu__process *processes; /* per rank */
    struct tu__monitor *monitor;
    double timeout;
    const char *interface;
    void (*on_failure)(void *context, tu_status cause, const char *message);
    void *failure_context;

    /* The processes that add in shared memory: those of the host, or this one alone. */
    uint32_t node_rank, node_size;
    uint32_t node_count, node; /* groups of such processes, and the index of this one's */
    void **areas;              /* per process of the node: its tu__shared_area */
    uint32_t gathers;          /* in shared memory, so far */
    char *receive_buffers;     /* for slices of the other nodes */
    bool is_crowded; /* the processes of this host have fewer cores than processes: they poll less */
    uint32_t lanes;  /* of a large sum: as many as cores for each process of the host */
    uint32_t pieces[TU__MAX_LANES]; /* per lane: number of pieces reduced so far */

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wakeup; /* of the communication thread */
    tu__group_job *first, *last;
    bool stop;
    atomic_uint_least64_t numbers; /* numbers given to collectives so far */
    bool is_closing;               /* the communication thread ends MPI; under the lock */
    atomic_uint arrivals;        /* how often a device has told that values of other processes have arrived */
    double deadline;             /* of the communication thread's current job, if it makes no progress */
    atomic_int_least64_t waited; /* nanoseconds that this process has waited for others in collectives */
    /* Number of compute threads that wait for a collective: then polling takes no time from them. */
    atomic_uint awaiting;
    atomic_bool failed;
    /* A failure that all processes know of from a gather: they end by themselves. */
    tu_status disagreement;
    char message[1024]; /* why it failed; under the lock */
};

/* group_gather.c: gives all processes the `bytes`, at most TU__GATHER_BYTES, of each. All processes must share memory. */
tu_status tu__group_gather_in_memory(tu_process_group *group, const void *mine, size_t bytes, void *all);

/* group_nodes.c: sets `node_rank` to `is_crowded`, once the processes are known. */
tu_status tu__group_choose_nodes(tu_process_group *group);
/* group_nodes.c: returns the number of processes below rank `end` that may use the same cores as this one. */
uint32_t tu__group_count_sharers(const tu_process_group *group, uint32_t end);

/* Returns the first number of the next `count` collectives, for the monitor: all processes must number theirs in the
 * same order. */
uint64_t tu__group_number(tu_process_group *group, uint64_t count);

/* The functions that follow, up to tu__group_post, are for join_group.c and its communication thread. */
/* Makes the group fail, for the monitor's thread. */
void tu__group_hear_of_failure(void *group, tu_status cause, const char *message);
/* Remembers a failure that all processes know of, and returns it. */
tu_status tu__group_disagree(tu_process_group *group, tu_status status);
/* Gathers with the transport. */
tu_status tu__group_gather_now(tu_process_group *group, const void *mine, size_t bytes, void *all);
/* Exchanges the outcome of what every process has just done, as tu_process_group_agree does later. */
tu_status tu__group_agree_now(tu_process_group *group, tu_status status);
/* Runs jobs until the group is closed. */
void tu__group_run_jobs(tu_process_group *group);

/* Appends a job. */
void tu__group_post(tu_process_group *group, tu__group_job *job);

/* For collectives that other threads perform: tells the monitor when this process begins to wait in one, and when that
 * is done. */
void tu__group_enter(tu_process_group *group, uint64_t number, const char *name);
void tu__group_leave(tu_process_group *group);

/* On the communication thread: a part of the job is done that needed other processes. Its deadline starts again. */
void tu__group_progress(tu_process_group *group);
/* On the communication thread: waits until `check` sets `*ready`, which is progress; fails with TU_LOST at the job's
 * deadline, or if the group has failed. */
tu_status tu__group_wait(tu_process_group *group, tu_status (*check)(void *context, bool *ready),
                         void *context);
/* The same, but the time does not count as waiting for other processes, nor the end as progress. */
tu_status tu__group_watch(tu_process_group *group, tu_status (*check)(void *context, bool *ready),
                          void *context);
/* Waits until a counter of another process has reached a value; fails like tu__group_wait, at `deadline`. Any thread can
 * call it. Adds the seconds that it has waited to `*waited`. */
tu_status tu__group_wait_counter(tu_process_group *group, tu__counter *counter, uint32_t value,
                                 double deadline, double *waited);
/* On the communication thread: sets `*done` if all transfers are done, and frees and clears those that are. Entries may be
 * NULL. */
tu_status tu__group_test_transfers(tu_process_group *group, size_t count, tu__transfer **transfers,
                                   bool *done);
/* On the communication thread: waits for transfers, and frees them. */
tu_status tu__group_wait_transfers(tu_process_group *group, size_t count, tu__transfer **transfers);

/* Ends a call that has failed. If all processes know from an exchange that they have failed, they return the status and
 * message of rank 0, which may have learned more meanwhile; the others wait for it ten times as long as in a collective.
 * Otherwise makes the others fail, unless they are the reason (TU_LOST). */
TU__SHARED tu_status tu__group_end_alike(tu_process_group *group, tu_status status);

/* Makes the group fail: the other processes learn the status and the message. Later calls have no effect. */
void tu__group_fail(tu_process_group *group, tu_status cause, const char *message);
/* Fails because a run of this process takes longer than its own timeout: asks the monitor which rank is late, and waits
 * until all know. Any thread can call it. */
tu_status tu__group_fail_late(tu_process_group *group, double timeout);
/* Fails with the group's message if it has failed. */
tu_status tu__group_check(tu_process_group *group);
/* Returns the status of a call that involved other processes, or TU_LOST if it failed because one of them is lost: the
 * monitor knows that up to half a second later. */
tu_status tu__group_explain(tu_process_group *group, tu_status status);
/* Tells the monitor the devices of a rank, for messages. */
void tu__group_set_device(tu_process_group *group, uint32_t rank, const char *device);
/* Adds to the seconds that this process has waited for others, and returns those since the last call. */
void tu__group_add_waited(tu_process_group *group, double seconds);
TU__SHARED double tu__group_take_waited(tu_process_group *group);
/* Report progress to the monitor: that this process begins its first step, how many it has done, and at least how many
 * all have done. */
TU__SHARED void tu__group_set_begun(tu_process_group *group);
TU__SHARED void tu__group_set_step(tu_process_group *group, int64_t step);
TU__SHARED void tu__group_set_common_step(tu_process_group *group, int64_t step);

#endif
