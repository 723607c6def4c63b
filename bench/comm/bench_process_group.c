/* The all-reduce of a process group beside that of MPI.
 *
 *     mpirun -n 4 --bind-to none build/release/bench_process_group [--threads N] [--rounds N] [BYTES…]
 *
 * Both sum the same f32 vectors in place, in turns: a block of one's calls, then a block of the other's. A number of
 * bytes may end in K or M (1024, 1048576). A line has the median of the blocks' times per call, of the slowest rank, and
 * the bus bandwidth as NCCL's tests define it: 2 (ranks - 1) / ranks times the bytes of a vector, per second. If all
 * ranks are on one host, N threads of each rank (default 1) add; over several hosts, its communication thread does. */
#include <mpi.h>

#include <pthread.h>
#include <string.h>

#include "base/parallel.h"
#include "comm/comm.h"
#include "comm/group_reduce.h"

#include "../measure.h"

enum { MAX_ROUNDS = 1000, MAX_CALLS = 500 };
static const double block_seconds = 4e-3;
static const char *const default_sizes[] = {"1K", "4K", "16K", "64K", "256K",
                                            "1M", "4M", "16M", "25M", "64M"};

static struct {
    tu_process_group *group;
    float *values;
    size_t bytes;
    tu_combination what;
    tu_combine_segment segment;
    const void *in[1];
    void *out[1];
    int threads, rounds;
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done;
    tu_status status;
} bench = {.threads = 1, .rounds = 21, .lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

/* ---- Calls ---- */

static tu_status load(void *context, const tu_combination *what, const tu__segment_range *range, void *sum) {
    (void)context;
    const void *in = (const float *)what->segments[0].in[0] + range->first;
    tu__local_add(what->dtype, 1, &in, range->count, sum);
    return TU_OK;
}

static tu_status store(void *context, const tu_combination *what, const tu__segment_range *range,
                       const void *sum) {
    (void)context;
    memcpy((float *)what->segments[0].out[0] + range->first, sum, range->count * sizeof(float));
    return TU_OK;
}

static tu_status run(tu_process_group *group, void *context) {
    (void)context;
    return tu__group_perform(group, &(tu__group_work){.what = &bench.what, .load = load, .store = store});
}

static void finished(void *context, tu_status status) {
    (void)context;
    pthread_mutex_lock(&bench.lock);
    bench.status = status;
    bench.is_done = true;
    pthread_cond_signal(&bench.done);
    pthread_mutex_unlock(&bench.lock);
}

static void all_reduce_by_thread(void) {
    tu__group_job job = {.name = "bench", .run = run, .finished = finished};
    bench.is_done = false;
    tu__group_post(bench.group, &job);
    pthread_mutex_lock(&bench.lock);
    while (!bench.is_done) pthread_cond_wait(&bench.done, &bench.lock);
    pthread_mutex_unlock(&bench.lock);
    must(bench.status);
}

static void all_reduce_by_group(void) {
    atomic_fetch_add(&bench.group->awaiting, 1);
    if (tu__group_adds_in_memory(bench.group))
        must(run(bench.group, NULL));
    else
        all_reduce_by_thread();
    atomic_fetch_sub(&bench.group->awaiting, 1);
}

static void all_reduce_by_mpi(void) {
    MPI_Allreduce(MPI_IN_PLACE, bench.values, (int)(bench.bytes / sizeof(float)), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
}

/* ---- Measuring ---- */

/* Returns the seconds of a call. */
static double measure(void (*all_reduce)(void), int calls) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = seconds_now();
    for (int i = 0; i < calls; i++) all_reduce();
    double seconds = (seconds_now() - start) / calls, slowest;
    MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static int choose_calls(void) {
    double calls = block_seconds / measure(all_reduce_by_mpi, 5);
    return calls < 1 ? 1 : calls > MAX_CALLS ? MAX_CALLS : (int)calls;
}

static void check_sum(void) {
    size_t count = bench.bytes / sizeof(float);
    for (size_t i = 0; i < count; i++) bench.values[i] = (float)(i % 1000);
    all_reduce_by_group();
    for (size_t i = 0; i < count; i++)
        if (bench.values[i] != (float)(i % 1000) * (float)bench.group->info.size) {
            fprintf(stderr, "bench_process_group: %zu bytes: element %zu is %g\n", bench.bytes, i,
                    (double)bench.values[i]);
            exit(1);
        }
    memset(bench.values, 0, bench.bytes); /* so that sums of sums stay finite */
}

static double bus_gb_per_second(double seconds) {
    double ranks = bench.group->info.size;
    return 1e-9 * 2 * (ranks - 1) / ranks * (double)bench.bytes / seconds;
}

static void bench_size(size_t bytes) {
    static double by_group[MAX_ROUNDS], by_mpi[MAX_ROUNDS];
    bench.bytes = bytes;
    bench.values = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!bench.values) exit(2);
    bench.in[0] = bench.out[0] = bench.values;
    bench.segment = (tu_combine_segment){bench.in, bench.out, bytes / sizeof(float)};
    bench.what =
        (tu_combination){sizeof bench.what,         TU_F32, .in_count = 1, .out_count = 1, .segment_count = 1,
                         .segments = &bench.segment};
    check_sum();
    int calls = choose_calls();
    for (int i = -1; i < bench.rounds; i++) {
        double group_seconds = measure(all_reduce_by_group, calls),
               mpi_seconds = measure(all_reduce_by_mpi, calls);
        if (i >= 0) by_group[i] = group_seconds, by_mpi[i] = mpi_seconds;
    }
    double group_median = median(by_group, (size_t)bench.rounds),
           mpi_median = median(by_mpi, (size_t)bench.rounds);
    if (bench.group->info.rank == 0)
        printf("%10zu %11.1f %8.2f %11.1f %8.2f %8.2f\n", bytes, 1e6 * group_median,
               bus_gb_per_second(group_median), 1e6 * mpi_median, bus_gb_per_second(mpi_median),
               mpi_median / group_median);
    fflush(stdout);
    free(bench.values);
}

/* ---- The command line ---- */

/* Returns the number of bytes, whole elements; 0 if the text is not a size. */
static size_t read_bytes(const char *text) {
    char *end;
    double number = strtod(text, &end);
    double unit = *end == 'K' ? 1024 : *end == 'M' ? 1048576 : 1;
    if (*end) end++;
    double bytes = number * unit;
    return *end || !(bytes >= sizeof(float) && bytes <= 1e9) ? 0
                                                             : (size_t)bytes / sizeof(float) * sizeof(float);
}

/* Reads the options, and returns the index of the first size; 0 if they are wrong. */
static int read_options(int argc, char **argv) {
    int i = 1;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        int number = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--threads") == 0 && number > 0)
            bench.threads = number;
        else if (strcmp(argv[i], "--rounds") == 0 && number > 0 && number <= MAX_ROUNDS)
            bench.rounds = number;
        else
            return 0;
    }
    for (int k = i; k < argc; k++)
        if (!read_bytes(argv[k])) return 0;
    return i;
}

int main(int argc, char **argv) {
    int first = read_options(argc, argv), provided;
    if (!first) {
        fprintf(stderr,
                "usage: bench_process_group [--threads N] [--rounds N] [BYTES…] (at most 1 GB, %d rounds)\n",
                MAX_ROUNDS);
        return 2;
    }
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    must(tu_process_group_open(&bench.group));
    if (!bench.group) return 2; /* for clang's analyzer */
    tu__parallel_setting before = tu__parallel_begin(bench.threads);
    if (bench.group->info.rank == 0)
        printf("%u ranks, f32 in place, median of %d blocks%s\n%10s %11s %8s %11s %8s %8s\n",
               bench.group->info.size, bench.rounds,
               tu__group_adds_in_memory(bench.group) ? "" : ", by the communication thread", "bytes",
               "group us", "GB/s", "MPI us", "GB/s", "MPI/group");
    for (int i = first; i < argc; i++) bench_size(read_bytes(argv[i]));
    for (size_t i = 0; first == argc && i < sizeof default_sizes / sizeof *default_sizes; i++)
        bench_size(read_bytes(default_sizes[i]));
    tu__parallel_end(before);
    tu_process_group_close(bench.group);
    MPI_Finalize();
    return 0;
}
