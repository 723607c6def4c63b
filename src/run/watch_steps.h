/* Watches a call with many steps of a program whose devices perform collectives over processes. */
#ifndef TU__RUN_WATCH_STEPS_H
#define TU__RUN_WATCH_STEPS_H

#include "comm/process_group.h"
#include "run/program.h"

/* The watch of one call. */
typedef struct tu__step_watch {
    tu_process_group *group; /* NULL: nothing is watched */
    const tu_submission *submission;
    tu__group_job job;
    uint32_t seen;     /* number of steps that have ended, when the deadline was set */
    atomic_bool ended; /* the call has returned */
    pthread_mutex_t lock;
    pthread_cond_t wakeup;
    bool is_finished;
    tu_status status;
    char message[1024];
} tu__step_watch;

/* Called by the thread that submits, before and after the call. The second function returns the status of the call, or,
 * if a process was lost, TU_LOST with the group's message. */
void tu__watch_steps_begin(tu__step_watch *watch, const tu_program *program, const tu_submission *submission);
tu_status tu__watch_steps_end(tu__step_watch *watch, tu_status status);

/* Compares the call of this process with those of the others, which must be the same, and sets `*chunk` to the smallest
 * number of steps that a process can submit at once. */
tu_status tu__agree_on_steps(const tu_program *program, bool are_submitted, size_t steps, size_t *chunk);

#endif
