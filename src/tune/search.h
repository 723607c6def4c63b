/* State of tu_tune: prepared by tune.c, used by worker.c to train trials. */
#ifndef TU__TUNE_SEARCH_H
#define TU__TUNE_SEARCH_H

#include <pthread.h>

#include <tutti/tune.h>

#include "train/compile_options.h"
#include "train/stack.h"
#include "train/trainer.h"
#include "tune/study.h"

typedef struct tu__search_worker {
    struct tu__search *search;
    int64_t number;
    const char *device;
    tu__train_stack *stack; /* the device trains several trials as one program; NULL: one trial */
    bool awaited;           /* the first step of the stack waits for this worker */
    char name[160];         /* for people: host, process, device */
    pthread_t thread;
    /* The trial that it trains. */
    tu__claim claim;
    bool has_claim;             /* guarded by the search's lock */
    volatile sig_atomic_t stop; /* ends the training */
    bool pruned, lost;
    double cost; /* lowest of this process's validations; NaN: none */
    int64_t step;
    double seconds, drawn_at;
    tu_status study_status; /* of a report that failed */
    bool done;              /* the thread has ended; guarded by the lock */
} tu__search_worker;

typedef struct tu__search {
    tu_tune_options options;
    tu_train_options train; /* of all trials */
    tu__arena arena;
    tu__study study;
    const char *model, *data, *address, *folder;
    tu_dataset *dataset;
    tu__shared_inputs shared;
    size_t device_count;
    tu__device_spec devices[TU__MAX_DEVICES];
    tu__train_stack *stacks[TU__MAX_DEVICES]; /* with --stack */
    int64_t per_device;                       /* trials at a time */
    size_t worker_count;
    tu__search_worker *workers;
    tu__claim *beating_claims; /* room for a copy of all claims */
    const tu__claim **beating;
    pthread_mutex_t lock; /* held while calling on_report; guards the members below */
    volatile sig_atomic_t stop;
    bool budget_used; /* nothing is left to claim, for this process and all others */
    tu_status status; /* of the first worker that could not go on */
    char message[1024];
    double start_time;
} tu__search;

/* Trains trials on all devices until the budget is used, a worker fails, or the search is stopped. */
tu_status tu__search_run(tu__search *search);

/* Calls the caller's on_report callback. The lock is held. */
void tu__search_report(tu__search *search, tu_tune_report *report);

#endif
