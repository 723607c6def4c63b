/* Collectives of programs that several processes run together (comm/process_group.h). */
#ifndef TU__RUN_GROUP_COLLECTIVE_H
#define TU__RUN_GROUP_COLLECTIVE_H

#include "comm/process_group.h"
#include "compile/collectives.h"

struct tu__execution;
struct tu__part;

/* One collective, as a job of the group's communication thread. */
typedef struct tu__group_collective {
    struct tu__execution *execution;
    const tu__collective *collective;
    uint32_t posted;           /* number of local ranks that have posted their values in this step */
    bool is_performed;         /* in this step, in shared memory */
    tu_executable *executable; /* of a collective by devices; NULL: not built for the current addresses */
    tu_route *routes;          /* of its combinations; NULL: all are from all processes to all */
    tu__group_job job;
} tu__group_collective;

/* The collectives of an execution. */
typedef struct tu__group_run {
    pthread_mutex_t lock;
    pthread_cond_t idle;
    tu__group_collective *list; /* per collective of the program */
    uint32_t next;              /* the next one to give to the communication thread in this step */
    uint32_t running;           /* number of jobs that it has not finished */
    uint64_t first_number;      /* of this step's collectives (tu__group_number) */
    atomic_uint entered, left;  /* numbers of local ranks in this step's collectives in shared memory */
    char *staging;              /* for devices whose memory is not the host's */
    tu_queue *queue;            /* in which devices perform collectives, on the device of the first rank */
} tu__group_run;

tu_status tu__group_run_new(struct tu__execution *e);
void tu__group_run_free(struct tu__execution *e);

/* Builds the collectives that devices perform, if they are not built yet; frees them, before addresses change. */
tu_status tu__group_run_build(struct tu__execution *e);
void tu__group_run_unbuild(struct tu__execution *e);

/* Describes a collective for devices that are connected to those of other processes. The description is valid as long as the
 * addresses. */
tu_status tu__group_describe(const struct tu__execution *e, uint32_t index, tu_collective *what);

/* Called before and after a step. If the step has failed, `status` and the message tell the other processes. */
void tu__group_begin_step(struct tu__execution *e);
void tu__group_end_step(struct tu__execution *e, tu_status status);

/* POST and AWAIT of a collective over processes. */
void tu__group_collective_post(struct tu__execution *e, const tu__collective *c);
tu_status tu__group_collective_await(struct tu__execution *e, struct tu__part *part, const tu__collective *c);

/* Called at POST of a collective in shared memory: performs a broadcast from here, unless others come before it. */
tu_status tu__group_collective_send(struct tu__execution *e, const struct tu__part *part,
                                    const tu__collective *c);
/* Performs a rank's part of a collective in shared memory, when all local ranks have posted. */
tu_status tu__group_collective_run(struct tu__execution *e, const struct tu__part *part,
                                   const tu__collective *c);

#endif
