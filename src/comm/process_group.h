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
#include "comm/transport.h"

typedef struct tu__process {
    char host[64];
    uint32_t host_rank, first_on_host, host_size;
    cpu_set_t cores; /* that its threads may use */
} tu__process;

/* A job of the communication thread. The caller owns it, and keeps it until `finished` was called. */
typedef struct tu__group_job {
    char name[160]; /* for messages: "all_reduce of 'fc1/weights'" */
    tu_status (*run)(tu_process_group *group, void *context);
    /* Called after `run`, or without it if the group has failed before, with tu_message() set. */
    void (*finished)(void *context, tu_status status);
    void *context;
    struct tu__group_job *next;
} tu__group_job;

/* Counters of one process in shared memory: how many pieces it has written to its staging buffers, has reduced its
 * slice of, and has read the results of (group_reduce.c). */
typedef struct tu__host_counters {
    _Alignas(64) atomic_uint_least64_t written;
    _Alignas(64) atomic_uint_least64_t reduced;
    _Alignas(64) atomic_uint_least64_t read;
} tu__host_counters;

enum {
    TU__MAX_PROCESSES = 128,
    TU__PIECE_BYTES = 2 << 20, /* of a collective, at a time */
    TU__STAGING_BUFFERS = 2,
    TU__SHARED_BYTES = sizeof(tu__host_counters) + TU__STAGING_BUFFERS * TU__PIECE_BYTES,
};

struct tu_process_group {
    const tu__transport_api *api;
    tu__transport *transport;
    tu__transport_info info;
    tu__process *processes; /* per rank */
    struct tu__monitor *monitor;
    double timeout;
    const char *interface;
    void (*on_failure)(void *context, const char *message);
    void *failure_context;

    /* The processes that add in shared memory: those of the host, or this one alone. */
    uint32_t node_rank, node_size;
    uint32_t node_count, node; /* groups of such processes, and the index of this one's */
    void **areas;              /* per process of the node: its shared memory */
    char *receive_buffer;      /* for slices of the other nodes */
    uint64_t pieces;           /* number of pieces reduced so far */

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wakeup; /* of the communication thread */
    tu__group_job *first, *last;
    bool stop;
    uint64_t job_count;
    double deadline;             /* of the current job */
    atomic_int_least64_t waited; /* nanoseconds that this process has waited for others in collectives */
    /* Number of compute threads that wait for a collective: then polling takes no time from them. */
    atomic_uint awaiting;
    atomic_bool failed;
    /* A failure that all processes know of from a gather: they end by themselves. */
    tu_status disagreement;
    char message[1024]; /* why it failed; under the lock */
};

/* Appends a job. */
void tu__group_post(tu_process_group *group, tu__group_job *job);

/* On the communication thread: waits until `is_ready` returns true; fails with TU_LOST at the job's deadline, or if
 * the group has failed. */
tu_status tu__group_wait(tu_process_group *group, bool (*is_ready)(void *context), void *context);
/* The same, but the time does not count as waiting for other processes. `is_ready` may extend the deadline. */
tu_status tu__group_watch(tu_process_group *group, bool (*is_ready)(void *context), void *context);
/* On the communication thread: waits for transfers, and frees them. */
tu_status tu__group_wait_transfers(tu_process_group *group, size_t count, tu__transfer **transfers);

/* Exchanges the outcome of what every process has just done: if one has failed, all fail, with its message. */
TU__SHARED tu_status tu__group_agree(tu_process_group *group, tu_status status);

/* Makes the group fail. Later calls have no effect. */
void tu__group_fail(tu_process_group *group, const char *message);
/* Fails with the group's message if it has failed. */
tu_status tu__group_check(tu_process_group *group);
/* Returns the status of a call that involved other processes, or TU_LOST if it failed because one of them is lost: the
 * monitor knows that up to half a second later. */
tu_status tu__group_explain(tu_process_group *group, tu_status status);
/* Tells the monitor the devices of a rank, for messages. */
void tu__group_set_device(tu_process_group *group, uint32_t rank, const char *device);
/* Returns the seconds that this process has waited for others since the last call. */
TU__SHARED double tu__group_take_waited(tu_process_group *group);
/* Reports progress to the monitor. */
TU__SHARED void tu__group_set_step(tu_process_group *group, int64_t step);

#endif
