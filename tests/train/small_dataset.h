/* A data set that trains in milliseconds, and helpers of the tests of runs: a scratch folder, a run on the data set.
 *
 * It has 70 training and 20 test images of 8x8 grey pixels in three classes: bright above, bright below, bright at
 * the left, each with its own noise. The last 20 training images are the validation split. Batches of 16 give four
 * steps per epoch, the last with two images. */
#ifndef TUTTI_SMALL_DATASET_H
#define TUTTI_SMALL_DATASET_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test.h"

#include <tutti/train.h>

enum {
    SMALL_SIDE = 8,
    SMALL_TRAIN = 70,
    SMALL_VALIDATION = 20,
    SMALL_TRAINED = SMALL_TRAIN - SMALL_VALIDATION,
    SMALL_TEST = 20,
    SMALL_CLASSES = 3,
    SMALL_BATCH = 16,
    SMALL_STEPS = 4
};

/* Index of the training image with a NaN pixel; -1: none. */
static int64_t small_dataset_nan = -1;

/* Index of the image of each split that fails to read; -1: none. */
static int64_t small_dataset_unreadable[2] = {-1, -1};

static inline tu_status small_dataset_read(void *context, tu_split split, int64_t index, void *image,
                                           int32_t *label) {
    (void)context;
    if (index == small_dataset_unreadable[split])
        return tu_fail(TU_IO, "image %lld cannot be read", (long long)index);
    float *pixels = image;
    *label = (int32_t)(index % SMALL_CLASSES);
    uint64_t noise = (uint64_t)index * 2654435761u + (uint64_t)split * 97 + 1;
    for (int i = 0; i < SMALL_SIDE * SMALL_SIDE; i++) {
        int row = i / SMALL_SIDE, column = i % SMALL_SIDE;
        bool bright = *label == 0   ? row < SMALL_SIDE / 2
                      : *label == 1 ? row >= SMALL_SIDE / 2
                                    : column < SMALL_SIDE / 2;
        noise = noise * 6364136223846793005u + 1442695040888963407u;
        pixels[i] = (bright ? 0.7f : 0.3f) + (float)(noise >> 40) / (float)(1 << 24) * 0.4f - 0.2f;
    }
    if (split == TU_TRAIN && index == small_dataset_nan) pixels[5] = NAN;
    return TU_OK;
}

static inline tu_dataset *small_dataset(void) {
    static const char *const names[] = {"above", "below", "left"};
    const tu_source source = {.struct_size = sizeof source,
                              .name = "small",
                              .count = {SMALL_TRAIN, SMALL_TEST},
                              .height = SMALL_SIDE,
                              .width = SMALL_SIDE,
                              .channels = 1,
                              .dtype = TU_F32,
                              .classes = SMALL_CLASSES,
                              .class_names = names,
                              .read = small_dataset_read,
                              .validation = SMALL_VALIDATION};
    tu_dataset *set;
    int64_t nan_index = small_dataset_nan;
    small_dataset_nan = -1; /* compute mean and standard deviation without the NaN */
    assert_int_equal(tu_dataset_from(&source, &set), TU_OK);
    small_dataset_nan = nan_index;
    return set;
}

/* Scratch folder, removed by scratch_end. Uses /dev/shm if possible, because these tests flush to the disk thousands
 * of times and need no real one. */
static char scratch[256];

static inline int scratch_begin(void **state) {
    (void)state;
    snprintf(scratch, sizeof scratch, "%s/tutti-train-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    return mkdtemp(scratch) ? 0 : -1;
}

static inline int scratch_end(void **state) {
    (void)state;
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch);
    return system(command); // NOLINT(cert-env33-c): the path is our own
}

struct scratch_path {
    char text[512];
};
static inline struct scratch_path in_scratch(const char *name) {
    struct scratch_path path;
    snprintf(path.text, sizeof path.text, "%s/%s", scratch, name);
    return path;
}

static inline bool exists(const char *run, const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", run, name);
    return access(path, F_OK) == 0;
}

/* Options of all runs of these tests: one thread, so that results are reproducible. */
#define SMALL_RUN .devices = "cpu:0", .threads = 1, .batch = SMALL_BATCH, .base = 8

/* Trains; the run must succeed. */
#define train_small(set_, result, ...)                                                                       \
    do {                                                                                                     \
        tu_status train_status_ = tu_train("mlp", NULL, result, .set = set_, SMALL_RUN, __VA_ARGS__);        \
        if (train_status_ != TU_OK) print_message("%s\n", tu_message());                                     \
        assert_int_equal(train_status_, TU_OK);                                                              \
    } while (0)

/* Stop flag, set by stop_there after step `stop_at`. */
static volatile sig_atomic_t stop_flag;
static int64_t stop_at;

static inline void stop_there(void *context, const tu_train_report *report) {
    (void)context;
    if (report->event == TU_TRAIN_STEPPED && report->step == stop_at) stop_flag = 1;
}

#endif
