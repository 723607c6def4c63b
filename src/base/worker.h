/* Worker threads, each of which runs one job at a time. A device has two: its compute thread and its copy thread. */
#ifndef TU__BASE_WORKER_H
#define TU__BASE_WORKER_H

#include <stdbool.h>

#include <tutti/status.h>

typedef struct tu__worker tu__worker;

/* Starts a worker. `begin` (optional) runs first on the new thread; if it fails, tu__worker_start fails. */
tu_status tu__worker_start(tu__worker **worker, const char *name, tu_status (*begin)(void *context),
                           void *context);
/* Posts a job; the worker must be idle. */
void tu__worker_post(tu__worker *worker, void (*job)(void *argument), void *argument);
/* Waits until the job is done. */
void tu__worker_join(tu__worker *worker);
/* Waits until the job is done or `deadline` (seconds of CLOCK_MONOTONIC) passes. Returns false if the job still
 * runs. */
bool tu__worker_join_until(tu__worker *worker, double deadline);
/* True while a job is posted or running; false for NULL. */
bool tu__worker_busy(tu__worker *worker);
/* Ends the thread and frees the worker. Does nothing for NULL. */
void tu__worker_stop(tu__worker *worker);

#endif
