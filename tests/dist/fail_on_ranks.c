/* Trains on several processes until the run fails, and prints the status and the message of each. Started by mpirun:
 *
 *     mpirun -n 2 fail_on_ranks nan RUN           an image that the last rank reads has a pixel that is not a number
 *     mpirun -n 2 fail_on_ranks evaluation RUN    the last rank cannot read its validation images
 *
 * RUN is the run folder. Used by check_training.sh. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

enum { SIDE = 4, IMAGES = 48, VALIDATION = 16, BATCH = 16, CLASSES = 2 };

static bool fails_evaluation, has_nan;
static tu_process_info own = TU_SIZED(tu_process_info);

static tu_status read_image(void *context, tu_split split, int64_t index, void *image, int32_t *label) {
    float *pixels = image;
    (void)context;
    if (fails_evaluation && index >= IMAGES - VALIDATION && own.rank == own.size - 1)
        return tu_fail(TU_IO, "image %lld cannot be read", (long long)index);
    *label = (int32_t)(index % CLASSES);
    for (int i = 0; i < SIDE * SIDE; i++) pixels[i] = (float)((index * 7 + i * (*label + 1)) % 5);
    if (has_nan && split == TU_TRAIN && index == 3) pixels[5] = NAN;
    return TU_OK;
}

static tu_status open_dataset(tu_dataset **set) {
    static const char *const names[] = {"even", "odd"};
    const tu_source source = {.struct_size = sizeof source,
                              .name = "small",
                              .count = {IMAGES, 0},
                              .height = SIDE,
                              .width = SIDE,
                              .channels = 1,
                              .dtype = TU_F32,
                              .classes = CLASSES,
                              .class_names = names,
                              .read = read_image,
                              .validation = VALIDATION};
    return tu_dataset_from(&source, set);
}

int main(int argc, char **argv) {
    tu_process_group *group;
    tu_dataset *set;
    if (argc != 3) return 2;
    tu_status status = tu_process_group_open(&group, .timeout = 30);
    if (status == TU_OK) status = tu_process_group_describe(group, &own);
    if (status == TU_OK) status = open_dataset(&set);
    if (status != TU_OK) {
        fprintf(stderr, "fail_on_ranks: %s\n", tu_message());
        return 1;
    }
    fails_evaluation = strcmp(argv[1], "evaluation") == 0;
    has_nan = strcmp(argv[1], "nan") == 0;
    status = tu_train("mlp", NULL, NULL, .set = set, .out = argv[2], .devices = "cpu:0", .threads = 1,
                      .batch = BATCH, .base = 8, .epochs = 4, .group = group);
    printf("rank %u: %s: %s\n", own.rank, tu_status_text(status), tu_message());
    fflush(stdout);
    tu_dataset_free(set);
    tu_process_group_close(group);
    return 0;
}
