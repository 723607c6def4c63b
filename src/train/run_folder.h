/* The run folder: the files of a training run.
 *
 *     config.json                    configuration of the run; written last, so a folder with it is a complete run
 *     graphs/NAME.graph              step, step-short, apply, evaluate, metrics, predict; the network's source is not
 *                                    needed
 *     checkpoints/step-N.safetensors the state after step N; best.safetensors: the best state
 *     metrics.jsonl, events.out.…    measurements
 *     curves.svg, kernels.txt        for inspection, like confusion.svg, which `tutti eval` draws
 *     lock                           locked while a process trains here
 *
 * The folder of an ensemble contains a config.json with the number of members, a lock, and the run folder of each
 * member in members/N (ensemble.h).
 *
 * All files except the two logs are saved atomically (base/save.h). */
#ifndef TU__TRAIN_RUN_FOLDER_H
#define TU__TRAIN_RUN_FOLDER_H

#include <tutti/graph.h>
#include <tutti/task.h>

#include "base/arena.h"
#include "base/path.h"
#include "data/columns.h"
#include "train/settings.h"

enum { TU__RUN_VERSION = 1, TU__MAX_FOLDER_LENGTH = 3900 };

/* Formats the path of a file within a run folder. Folder paths are limited to TU__MAX_FOLDER_LENGTH, which leaves
 * room for the file names. */
tu__path tu__path_in(const char *folder, const char *format, ...) TU_PRINTF(2, 3);

/* ---- The folder and its lock ---- */

typedef struct tu__run_folder {
    char path[TU__MAX_FOLDER_LENGTH + 1];
    int lock;     /* file descriptor; 0: not locked */
    bool created; /* tu__run_folder_create has created it */
} tu__run_folder;

/* True if the folder contains a run (a config.json). */
bool tu__run_folder_has_run(const char *path);
/* Creates the folder (NULL: runs/MODEL-DATASET-NUMBER with the first free number) and takes the lock. Fails if an
 * existing folder contains a run, files left by one, or other files. */
tu_status tu__run_folder_create(const char *path, const char *model, const char *dataset,
                                tu__run_folder *folder);
/* Creates the subfolders of a run. */
tu_status tu__run_folder_create_subfolders(const tu__run_folder *folder);
/* Takes the lock of an existing run and removes unfinished files of killed processes. */
tu_status tu__run_folder_open(const char *path, tu__run_folder *folder);
/* Releases the lock. */
void tu__run_folder_close(tu__run_folder *folder);
/* Cleans up after a failed start: releases the lock, and removes the folder if it was created for this run and
 * contains none. */
void tu__run_folder_discard(tu__run_folder *folder);

/* ---- config.json ---- */

typedef struct tu__run_metric {
    char name[32];
    bool lower_is_better;
} tu__run_metric;

typedef struct tu__run_config {
    const char *model;   /* as given by the user */
    const char *network; /* name of the network; only set when a run starts, later runs load its graphs */
    const char *data;    /* as given by the user; "" for a data set of the caller */
    tu_dataset_info dataset;
    tu__columns columns; /* of the data set */
    const char *task;    /* name of the task */
    size_t metric_count; /* of the task: the first one selects the best state */
    tu__run_metric metrics[TU_MAX_METRICS];
    const double *class_weights; /* of the loss, [classes]; NULL: none. Only set when a run starts */
    tu__settings settings;
    int64_t steps, steps_per_epoch, parameters;
    int64_t processes;      /* that trained it last */
    bool automatic_threads; /* settings.threads are the cores of a device, not a number that the user chose */
    const char *init;       /* --init: source of the weights; "": initialisers */
    int64_t members;        /* number of members if this configures an ensemble; 0: a single run */
    const char *graph_digest; /* digest of the graph "step" */
    bool selects_on_test; /* an old run without validation split: selects the best state on the test split */
    /* Of this process, not stored: the processes that train together (NULL: this one alone), and its share of the
     * devices (NULL: all). */
    tu_process_group *group;
    const char *rank_devices;
    bool
        user_named_lock; /* the placement lock file is named by the user, not only by a config.json: it may be written */
    const tu_train_hooks *hooks; /* of the caller; NULL: none */
} tu__run_config;

/* Returns what the samples are: "images", "rows", "windows" or "samples". */
const char *tu__samples_name(const tu__run_config *config);
/* Returns the position of a metric; metric_count if the task has none of this name. */
size_t tu__find_metric(const tu__run_config *config, const char *name);

/* Return the number of training images held out for validation, and the number trained on. */
int64_t tu__validation_images(const tu__run_config *config);
int64_t tu__training_images(const tu__run_config *config);

/* Computes steps_per_epoch and steps, and limits the batch to the number of training images. Fails if --accumulate
 * does not divide the batch. */
tu_status tu__run_config_compute_steps(tu__run_config *config);
tu_status tu__run_config_save(const tu__run_folder *folder, const tu__run_config *config);
/* Loads config.json. Strings live in the arena. Returns TU_CORRUPT if the file is not a valid configuration of this
 * version. */
tu_status tu__run_config_load(const char *folder, tu__arena *arena, tu__run_config *config);

#endif
