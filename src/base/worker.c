/* Worker threads. See worker.h. */
#include "base/worker.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "base/alloc.h"

struct tu__worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void (*job)(void *argument);
    void *argument;
    bool busy, stop, started;
    tu_status (*begin)(void *context);
    void *context;
    tu_status start_status;
    char message[256];
};

static void report_start(tu__worker *w, tu_status status) {
    pthread_mutex_lock(&w->lock);
    w->start_status = status;
    if (status != TU_OK) snprintf(w->message, sizeof w->message, "%s", tu_message());
    w->started = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void *work(void *argument) {
    tu__worker *w = argument;
    report_start(w, w->begin ? w->begin(w->context) : TU_OK);
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        if (!w->job) {
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        void (*job)(void *) = w->job;
        void *job_argument = w->argument;
        w->job = NULL;
        pthread_mutex_unlock(&w->lock);
        job(job_argument);
        pthread_mutex_lock(&w->lock);
        w->busy = false;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

tu_status tu__worker_start(tu__worker **worker, const char *name, tu_status (*begin)(void *context),
                           void *context) {
    tu__worker *w = tu__alloc(sizeof *w, "a worker");
    if (!w) return TU_NO_MEMORY;
    w->begin = begin;
    w->context = context;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&w->thread, NULL, work, w) != 0) {
        pthread_mutex_destroy(&w->lock);
        pthread_cond_destroy(&w->changed);
        tu__free(w);
        return tu_fail(TU_NO_MEMORY, "cannot start a thread for %s: the system's limit of threads is reached",
                       name);
    }
    char short_name[16];
    snprintf(short_name, sizeof short_name, "%s", name);
    pthread_setname_np(w->thread, short_name);
    pthread_mutex_lock(&w->lock);
    while (!w->started) pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    if (w->start_status != TU_OK) {
        tu_status status = tu_fail(w->start_status, "%s", w->message);
        tu__worker_stop(w);
        return status;
    }
    *worker = w;
    return TU_OK;
}

void tu__worker_post(tu__worker *worker, void (*job)(void *argument), void *argument) {
    pthread_mutex_lock(&worker->lock);
    worker->job = job;
    worker->argument = argument;
    worker->busy = true;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
}

void tu__worker_join(tu__worker *worker) {
    pthread_mutex_lock(&worker->lock);
    while (worker->busy) pthread_cond_wait(&worker->changed, &worker->lock);
    pthread_mutex_unlock(&worker->lock);
}

bool tu__worker_join_until(tu__worker *worker, double deadline) {
    struct timespec until = {.tv_sec = (time_t)deadline};
    until.tv_nsec = (long)((deadline - (double)until.tv_sec) * 1e9);
    bool in_time = true;
    pthread_mutex_lock(&worker->lock);
    while (worker->busy && in_time)
        in_time = pthread_cond_timedwait(&worker->changed, &worker->lock, &until) != ETIMEDOUT;
    bool done = !worker->busy;
    pthread_mutex_unlock(&worker->lock);
    return done;
}

bool tu__worker_busy(tu__worker *worker) {
    if (!worker) return false;
    pthread_mutex_lock(&worker->lock);
    bool busy = worker->busy;
    pthread_mutex_unlock(&worker->lock);
    return busy;
}

void tu__worker_stop(tu__worker *worker) {
    if (!worker) return;
    pthread_mutex_lock(&worker->lock);
    worker->stop = true;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
    pthread_join(worker->thread, NULL);
    pthread_mutex_destroy(&worker->lock);
    pthread_cond_destroy(&worker->changed);
    tu__free(worker);
}
