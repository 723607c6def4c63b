/* The run folder: where a training run lives on disk.
 *
 *     config.json                    all that the run is made of; written last, so its presence makes a folder a run
 *     graphs/NAME.graph              step, step-short, apply, evaluate, predict: the network needs no source again
 *     checkpoints/step-N.safetensors the state after step N; best.safetensors likewise
 *     metrics.jsonl, events.out.…    what was measured
 *     curves.svg, kernels.txt        to look at; so is confusion.svg, which `tutti eval` draws
 *     lock                           held while a process trains here
 *
 * The folder of an ensemble has a config.json that names the number of its members, a lock, and in members/N the run folder
 * of each (ensemble.h).
 *
 * Every file but the two logs is saved as a whole (base/save.h). */
#ifndef TU__TRAIN_RUN_FOLDER_H
#define TU__TRAIN_RUN_FOLDER_H

#include <tutti/graph.h>

#include "base/arena.h"
#include "train/settings.h"

enum { TU__RUN_VERSION = 1, TU__LONGEST_FOLDER = 3900 };

/* A path within a run folder; folders are refused when they are longer than leaves room for names. */
typedef struct tu__path {
    char text[4096];
} tu__path;
tu__path tu__path_in(const char *folder, const char *format, ...) TU_PRINTF(2, 3);

/* ---- The folder and its lock ---- */

typedef struct tu__run_folder {
    char path[TU__LONGEST_FOLDER + 1];
    int lock;  /* a file descriptor; 0: none */
    bool made; /* it was not there before */
} tu__run_folder;

/* Whether there is a run in the folder. */
bool tu__run_folder_holds_run(const char *path);
/* Makes the folder (NULL: runs/MODEL-SET-NUMBER, the first number that is free) and takes the lock. A folder that holds a
 * run, what is left of one, or anything that is no part of one is refused. */
tu_status tu__run_folder_create(const char *path, const char *model, const char *set, tu__run_folder *folder);
/* Makes the subfolders of a run; an ensemble has none but that of its members. */
tu_status tu__run_folder_furnish(const tu__run_folder *folder);
/* Takes the lock of a run that exists. */
tu_status tu__run_folder_open(const char *path, tu__run_folder *folder);
/* Gives the lock back; all else stays. */
void tu__run_folder_close(tu__run_folder *folder);
/* After a beginning that failed: gives the lock back and removes the folder, if it was made for this run and holds none. */
void tu__run_folder_discard(tu__run_folder *folder);

/* ---- config.json ---- */

typedef struct tu__run_config {
    const char *model;   /* as it was given */
    const char *network; /* its name; only where a run begins: later the graphs are there */
    const char *data;    /* as it was given; "" for a set of the caller's own */
    tu_dataset_info set;
    tu__settings settings;
    int64_t steps, steps_per_epoch, parameters;
    const char *init;         /* where the weights came from; "": drawn */
    int64_t members;          /* of an ensemble, whose settings these are; 0: a run of its own */
    const char *graph_digest; /* of the training step */
    bool
        looks_at_test; /* begun before there were validation parts: chooses by the test images while it trains */
} tu__run_config;

/* How many training images are kept out to validate with, and how many are trained on. */
int64_t tu__validation_images(const tu__run_config *config);
int64_t tu__training_images(const tu__run_config *config);

/* Fills in steps_per_epoch and steps, and cuts the batch to the images there are. TU_INVALID where it cannot be divided. */
tu_status tu__run_config_count(tu__run_config *config);
tu_status tu__run_config_save(const tu__run_folder *folder, const tu__run_config *config);
/* Strings live in the arena. TU_CORRUPT for what is no configuration of this version. */
tu_status tu__run_config_load(const char *folder, tu__arena *arena, tu__run_config *config);

#endif
