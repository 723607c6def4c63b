/* An ensemble under way: what preparing it (ensemble.c) leaves to those who train its members (ensemble_members.c). */
#ifndef TU__TRAIN_ENSEMBLE_H
#define TU__TRAIN_ENSEMBLE_H

#include <pthread.h>

#include "base/text.h"
#include "train/run_folder.h"
#include "train/sharing.h"

typedef struct tu__member {
    struct tu__ensemble *ensemble;
    int64_t number;
    tu_train_report latest;     /* what it told last */
    bool begun;                 /* by this process */
    int64_t first_step;         /* where this process began */
    volatile sig_atomic_t stop; /* its own copy of the caller's flag: threads share none */
    tu_status status;
    char message[1024]; /* of the status */
} tu__member;

typedef struct tu__ensemble {
    tu_train_options options; /* the caller's */
    tu__arena arena;          /* what strings of the configuration live in */
    tu__run_folder folder;
    tu__run_config config; /* of all members; theirs differ in seed and devices */
    tu__text notices;      /* lines for the user about all members, told once nothing can be refused */
    bool made;             /* by this process, which removes it when nothing comes of it */
    size_t device_count;
    tu__device_spec devices[TU__MAX_DEVICES];
    tu__member *members;
    tu_train_result *results;
    double began;
    pthread_mutex_t beginning; /* one member at a time is compiled and makes its folder */
    pthread_mutex_t telling;   /* held while the caller is told; guards `latest` of all */
} tu__ensemble;

/* The run folder of a member. */
tu__path tu__member_folder(const char *ensemble, int64_t number);

/* Trains the members on their devices, to the end or until the caller's flag is up. The status of the first that failed. */
tu_status tu__ensemble_run(tu__ensemble *ensemble);

#endif
