/* The all-reduce of a process group beside that of MPI.
 *
 *     mpirun -n 4 --bind-to none build/release/bench_process_group [MEGABYTES [ROUNDS]]
 *
 * Both sum the same f32 vectors, in turns; after every call all ranks meet in a barrier. GB/s is the bus bandwidth as
 * NCCL's tests define it: 2 (ranks - 1) / ranks times the bytes of a vector, per second. */
#include <mpi.h>

#include <pthread.h>
#include <string.h>

#include "comm/comm.h"
#include "comm/group_reduce.h"

#include "../measure.h"

enum { MAX_ROUNDS = 1000 };

static struct {
    tu_process_group *group;
    float *values;
    size_t bytes;
    tu__communicator communicator; /* one rank per process */
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done;
    tu_status status;
} bench = {.lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static uint32_t process_of(void *context, uint32_t rank) {
    (void)context;
    return rank;
}

static tu_status load(void *context, uint32_t part, const tu_combination *what,
                      const tu__segment_range *range, void *sum) {
    (void)context;
    (void)part;
    const void *in = (const float *)what->segments[0].in[0] + range->first;
    tu__local_add(what->dtype, 1, &in, range->count, sum);
    return TU_OK;
}

static tu_status store(void *context, uint32_t part, const tu_combination *what,
                       const tu__segment_range *range, const void *sum) {
    (void)context;
    (void)part;
    memcpy((float *)what->segments[0].out[0] + range->first, sum, range->count * sizeof(float));
    return TU_OK;
}

static tu_status run(tu_process_group *group, void *context) {
    (void)context;
    return tu__group_perform(group, &(tu__group_work){.communicator = &bench.communicator,
                                                      .process_of = process_of,
                                                      .load = load,
                                                      .store = store});
}

static void finished(void *context, tu_status status) {
    (void)context;
    pthread_mutex_lock(&bench.lock);
    bench.status = status;
    bench.is_done = true;
    pthread_cond_signal(&bench.done);
    pthread_mutex_unlock(&bench.lock);
}

static void all_reduce_by_group(void) {
    tu__group_job job = {.name = "bench", .run = run, .finished = finished};
    bench.is_done = false;
    atomic_fetch_add(&bench.group->awaiting, 1);
    tu__group_post(bench.group, &job);
    pthread_mutex_lock(&bench.lock);
    while (!bench.is_done) pthread_cond_wait(&bench.done, &bench.lock);
    pthread_mutex_unlock(&bench.lock);
    atomic_fetch_sub(&bench.group->awaiting, 1);
    must(bench.status);
}

static void all_reduce_by_mpi(void) {
    MPI_Allreduce(MPI_IN_PLACE, bench.values, (int)(bench.bytes / sizeof(float)), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
}

static double measure(void (*all_reduce)(void)) {
    memset(bench.values, 0, bench.bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = seconds_now();
    all_reduce();
    MPI_Barrier(MPI_COMM_WORLD);
    return seconds_now() - start;
}

static void print(const char *name, double *seconds, int rounds) {
    double ranks = bench.group->info.size, middle = median(seconds, (size_t)rounds);
    printf("%-14s %9.3f %9.3f %9.2f\n", name, 1e3 * seconds[0], 1e3 * middle,
           1e-9 * 2 * (ranks - 1) / ranks * (double)bench.bytes / middle);
}

static void check_sum(void) {
    for (size_t i = 0; i < bench.bytes / sizeof(float); i++) bench.values[i] = (float)(i % 1000);
    all_reduce_by_group();
    for (size_t i = 0; i < bench.bytes / sizeof(float); i++)
        if (bench.values[i] != (float)(i % 1000) * (float)bench.group->info.size) {
            fprintf(stderr, "bench_process_group: element %zu is %g\n", i, (double)bench.values[i]);
            exit(1);
        }
}

int main(int argc, char **argv) {
    static double by_group[MAX_ROUNDS], by_mpi[MAX_ROUNDS];
    double megabytes = argc > 1 ? atof(argv[1]) : 25;
    int rounds = argc > 2 ? atoi(argv[2]) : 50, provided;
    if (!(megabytes > 0 && megabytes < 8000) || rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: bench_process_group [MEGABYTES [ROUNDS]] (ROUNDS: at most %d)\n", MAX_ROUNDS);
        return 2;
    }
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    must(tu_process_group_open(&bench.group));
    bench.bytes = (size_t)(megabytes * 1e6) & ~(size_t)63;
    bench.values = aligned_alloc(64, bench.bytes);
    if (!bench.values) return 2;
    const tu_type type = {TU_F32, TU_SHAPE((int64_t)(bench.bytes / sizeof(float)))};
    must(tu__communicator_new(&bench.communicator, TU__ALL_REDUCE, 0, 1, 1, &type));
    tu__communicator_span(&bench.communicator, bench.group->info.rank, bench.group->info.size);
    tu__communicator_register(&bench.communicator, 0, 0, bench.values, bench.values);
    must(tu__communicator_connect(&bench.communicator));
    check_sum();
    for (int i = -3; i < rounds; i++) {
        double group_seconds = measure(all_reduce_by_group), mpi_seconds = measure(all_reduce_by_mpi);
        if (i >= 0) by_group[i] = group_seconds, by_mpi[i] = mpi_seconds;
    }
    if (bench.group->info.rank == 0) {
        printf("%u ranks, %.1f MB each, f32, %d rounds\n%-14s %9s %9s %9s\n", bench.group->info.size,
               1e-6 * (double)bench.bytes, rounds, "", "min ms", "median", "GB/s");
        print("process group", by_group, rounds);
        print("MPI_Allreduce", by_mpi, rounds);
    }
    tu_process_group_close(bench.group);
    MPI_Finalize();
    tu__communicator_free(&bench.communicator);
    free(bench.values);
    return 0;
}
