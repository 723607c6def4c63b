/* Trains on several processes until the run fails, and prints the status and the message of each. Started by mpirun:
 *
 *     mpirun -n 2 fail_on_ranks nan RUN           an image that the last rank reads has a pixel that is not a number
 *     mpirun -n 2 fail_on_ranks evaluation RUN    the last rank cannot read its validation images
 *     mpirun -n 2 fail_on_ranks reading RUN       the last rank cannot read an image after some steps
 *     mpirun -n 2 fail_on_ranks late              the last rank does not begin a step; steps have a timeout of a second
 *
 * RUN is the run folder. Used by check_training.sh. */
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tutti/tutti.h>

enum { SIDE = 4, IMAGES = 48, VALIDATION = 16, BATCH = 16, CLASSES = 2, READABLE = 100 };

static bool fails_evaluation, fails_reading, has_nan;
static atomic_int images_read;
static tu_process_info own = TU_SIZED(tu_process_info);

static tu_status read_image(void *context, tu_split split, int64_t index, void *image, int32_t *label) {
    float *pixels = image;
    (void)context;
    if (fails_evaluation && index >= IMAGES - VALIDATION && own.rank == own.size - 1)
        return tu_fail(TU_IO, "image %lld cannot be read", (long long)index);
    if (fails_reading && own.rank == own.size - 1 && atomic_fetch_add(&images_read, 1) > READABLE)
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

/* ---- A training run ---- */

static tu_status train(tu_process_group *group, const char *failure, const char *folder) {
    tu_dataset *set;
    TU_TRY(open_dataset(&set));
    fails_evaluation = strcmp(failure, "evaluation") == 0;
    fails_reading = strcmp(failure, "reading") == 0;
    has_nan = strcmp(failure, "nan") == 0;
    tu_status status = tu_train("mlp", NULL, NULL, .set = set, .out = folder, .devices = "cpu:0",
                                .threads = 1, .batch = BATCH, .base = 8, .epochs = 40, .group = group);
    tu_dataset_free(set);
    return status;
}

/* ---- Steps without a run: nothing but their own collectives connects the processes ---- */

static atomic_bool group_failed;

static void on_failure(void *context, tu_status cause, const char *message) {
    (void)context;
    (void)cause;
    (void)message;
    atomic_store(&group_failed, true);
}

static tu_status run_steps(tu_program *step, tu_state *state, const tu_feed feeds[2]) {
    const struct timespec moment = {.tv_nsec = 1000000};
    float loss;
    TU_TRY(tu_run(step, state, 2, feeds, (void *[]){&loss}));
    while (own.rank == own.size - 1 && !atomic_load(&group_failed)) nanosleep(&moment, NULL);
    return tu_run(step, state, 2, feeds, (void *[]){&loss});
}

static tu_status be_late(tu_process_group *group) {
    static const float images[BATCH][SIDE][SIDE];
    static const int32_t labels[BATCH];
    tu_graph *graph;
    tu_program *step;
    tu_state *state;
    tu_value logits;
    tu_optimizer_values values = TU_SIZED(tu_optimizer_values);
    TU_TRY(tu_graph_new(&graph));
    tu_value x = tu_batch_input(graph, "images", TU_F32, TU_SHAPE(BATCH, SIDE, SIDE, 1));
    tu_value y = tu_batch_input(graph, "labels", TU_I32, TU_SHAPE(BATCH));
    TU_TRY(tu_network_logits(x, "mlp", &logits, .classes = CLASSES, .base = 8));
    tu_value loss = tu_mean(tu_cross_entropy(logits, y));
    TU_TRY(tu_add_optimizer(loss, &values, .name = "sgd", .constant_rate = 0.1));
    TU_TRY(tu_compile(graph, &step, .devices = "cpu:0", .threads = 1, .strategy = "mirrored", .updates = true,
                      .fetch = &loss, .fetch_count = 1, .timeout = 1, .group = group));
    TU_TRY(tu_state_new(graph, &state, .seed = 1));
    tu_status status = run_steps(step, state, (tu_feed[]){{x, images}, {y, labels}});
    tu_state_free(state);
    tu_program_free(step);
    tu_graph_free(graph);
    return status;
}

int main(int argc, char **argv) {
    enum { NEVER = 100000 };
    tu_process_group *group;
    bool is_late = argc == 2 && strcmp(argv[1], "late") == 0;
    if (argc != 3 && !is_late) return 2;
    tu_status status =
        tu_process_group_open(&group, .timeout = is_late ? NEVER : 30, .on_failure = on_failure);
    if (status == TU_OK) status = tu_process_group_describe(group, &own);
    if (status != TU_OK) {
        fprintf(stderr, "fail_on_ranks: %s\n", tu_message());
        return 1;
    }
    status = is_late ? be_late(group) : train(group, argv[1], argv[2]);
    printf("rank %u: %s: %s\n", own.rank, tu_status_text(status), tu_message());
    fflush(stdout);
    if (!is_late) tu_process_group_close(group);
    return 0;
}
