/* Data sets and loaders: a data set from a function, the generated data set by name, batches in a seeded order. */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/tutti.h>

static void exit_on_error(tu_status status) {
    if (status == TU_OK) return;
    fprintf(stderr, "%s\n", tu_message());
    exit(1);
}

/* Image `index` is a 4x4 ramp; its class says whether the ramp goes up. Several threads call this concurrently. */
static tu_status read_ramp(void *context, tu_split split, int64_t index, void *image, int32_t *label) {
    (void)context;
    (void)split;
    float *pixels = image;
    *label = (int32_t)(index % 2);
    for (int i = 0; i < 16; i++) pixels[i] = (float)(*label ? i : 15 - i);
    return TU_OK;
}

static void print_batches(const tu_dataset *set, int batches) {
    tu_loader *loader;
    tu_batch batch = TU_SIZED(tu_batch);
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    exit_on_error(tu_dataset_describe(set, &info));
    printf("%s: %lld images of %lld x %lld x %lld, mean %.3f\n", info.name, (long long)info.count[TU_TRAIN],
           (long long)info.height, (long long)info.width, (long long)info.channels, info.mean[0]);
    exit_on_error(
        tu_loader_new(set, &loader, .split = TU_TRAIN, .batch = 8, .shuffle = true, .seed = 1, .threads = 2));
    for (int i = 0; i < batches; i++) {
        exit_on_error(tu_loader_next(loader, &batch));
        printf("  epoch %lld, samples from %lld:", (long long)batch.epoch, (long long)batch.first);
        for (int64_t k = 0; k < batch.count; k++) printf(" %s", info.class_names[batch.labels[k]]);
        putchar('\n');
    }
    tu_loader_free(loader);
}

int main(void) {
    static const char *const names[] = {"down", "up"};
    tu_source ramps = {.struct_size = sizeof ramps,
                       .name = "ramps",
                       .count = {20, 4},
                       .height = 4,
                       .width = 4,
                       .channels = 1,
                       .dtype = TU_F32,
                       .classes = 2,
                       .class_names = names,
                       .read = read_ramp};
    tu_dataset *set;
    exit_on_error(tu_dataset_from(&ramps, &set));
    print_batches(set, 4); /* the third batch of an epoch is smaller */
    tu_dataset_free(set);

    exit_on_error(tu_dataset_open("generated", &set));
    print_batches(set, 2);
    tu_dataset_free(set);
    return 0;
}
