/* State of tu_train_ensemble: prepared by ensemble.c, used by ensemble_members.c to train the members. */
#ifndef TU__TRAIN_ENSEMBLE_H
#define TU__TRAIN_ENSEMBLE_H

#include <pthread.h>

#include "base/text.h"
#include "train/compile_options.h"
#include "train/run_folder.h"

typedef struct tu__ensemble_member {
    struct tu__ensemble *ensemble;
    int64_t number;
    tu_train_report latest;     /* its latest report */
    bool started;               /* this process started or resumed it */
    int64_t first_step;         /* step at which this process started or resumed it */
    volatile sig_atomic_t stop; /* copy of the caller's stop flag, one per thread */
    tu_status status;
    char message[1024]; /* error message that belongs to `status` */
} tu__ensemble_member;

typedef struct tu__ensemble {
    tu_train_options options; /* given by the caller */
    tu__arena arena;          /* holds the strings of `config` */
    tu__run_folder folder;
    tu__run_config config; /* shared by all members; each has its own seed and device */
    tu__text notices;      /* notices for the user, delivered after all checks have passed */
    bool created;          /* the folder was created by this process, which removes it if no member starts */
    size_t device_count;
    tu__device_spec devices[TU__MAX_DEVICES];
    tu__ensemble_member *members;
    tu_train_result *results;
    double start_time;
    pthread_mutex_t start_lock;  /* serialises compiling a member and creating its folder */
    pthread_mutex_t report_lock; /* held while calling the on_report callback; guards all `latest` */
} tu__ensemble;

/* Returns the path of the run folder of member `number`. */
tu__path tu__member_folder(const char *ensemble, int64_t number);

/* Trains the members on their devices until they are finished or the caller's stop flag is set. Returns the status of
 * the first member that failed. */
tu_status tu__ensemble_run(tu__ensemble *ensemble);

#endif
