/* Workers: host threads that do jobs in the order posted. A device has one that launches and one that copies. */
#ifndef TU__BASE_WORKER_H
#define TU__BASE_WORKER_H

#include <stdbool.h>

#include <tutti/status.h>

typedef struct tu__worker tu__worker;

/* `begin` (optional) runs first on the new thread, and its failure fails the start. */
tu_status tu__worker_start(tu__worker **worker, const char *name, tu_status (*begin)(void *context),
                           void *context);
/* Posts a job; the worker must be idle (one job at a time is all the executor needs). */
void tu__worker_post(tu__worker *worker, void (*job)(void *argument), void *argument);
/* Waits until the job is done. */
void tu__worker_join(tu__worker *worker);
/* The same, until `deadline` (seconds of CLOCK_MONOTONIC) at most; false: the job is still under way. */
bool tu__worker_join_until(tu__worker *worker, double deadline);
/* Whether a job is under way; NULL has none. */
bool tu__worker_busy(tu__worker *worker);
/* Ends the thread and frees the worker; NULL is nothing. */
void tu__worker_stop(tu__worker *worker);

#endif
