/* Measures the throughput of a data loader, without a network.
 *
 *     bench_loader [SET] [THREADS] [SECONDS]              defaults: cifar10, all cores, 3
 *
 * Prints one line for shuffled and one for sequential order, with batches of 128. The first epoch is not measured: it
 * loads the file into memory. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <tutti/data.h>

#include "../measure.h"

static int fail(void) {
    fprintf(stderr, "bench_loader: %s\n", tu_message());
    return 1;
}

static int measure(const tu_dataset *set, int threads, bool shuffle, double seconds) {
    tu_loader *loader;
    tu_batch batch = TU_SIZED(tu_batch);
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    if (tu_dataset_describe(set, &info) != TU_OK) return fail();
    if (tu_loader_new(set, &loader, .batch = 128, .shuffle = shuffle, .seed = 1, .threads = threads) != TU_OK)
        return fail();
    for (int64_t seen = 0; seen < info.count[TU_TRAIN]; seen += batch.count)
        if (tu_loader_next(loader, &batch) != TU_OK) return fail();
    int64_t images = 0;
    double begin = seconds_now(), passed = 0;
    while (passed < seconds) {
        for (int i = 0; i < 64; i++) {
            if (tu_loader_next(loader, &batch) != TU_OK) return fail();
            images += batch.count;
        }
        passed = seconds_now() - begin;
    }
    size_t bytes = (size_t)(info.height * info.width * info.channels) * tu_dtype_size(info.dtype);
    printf("%-10s %3d threads  %-8s  %10.0f images/s  %6.2f GB/s\n", info.name, threads,
           shuffle ? "shuffled" : "in order", (double)images / passed,
           (double)images * (double)bytes / passed * 1e-9);
    tu_loader_free(loader);
    return 0;
}

int main(int argc, char **argv) {
    const char *spec = argc > 1 ? argv[1] : "cifar10";
    int threads = argc > 2 ? atoi(argv[2]) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    double seconds = argc > 3 ? atof(argv[3]) : 3;
    tu_dataset *set;
    if (threads < 1 || !(seconds > 0)) {
        fprintf(stderr, "bench_loader: expected [SET] [THREADS] [SECONDS], numbers above 0\n");
        return 2;
    }
    if (tu_dataset_open(spec, &set) != TU_OK) return fail();
    int failed = measure(set, threads, true, seconds) || measure(set, threads, false, seconds);
    tu_dataset_free(set);
    return failed;
}
