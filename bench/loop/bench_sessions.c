/* Measures how inference scales with threads: runs per second of several threads, each with a session of one program,
 * against one thread.
 *
 *     bench_sessions [MODEL [THREADS [SECONDS]]]        default: resnet20, 8 threads, blocks of 0.5 s
 *
 * The program is compiled with one thread and batch 1. Blocks with one thread and with all threads alternate; the
 * result is the median ratio. With as many threads as cores or more, the ideal ratio is the number of cores. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "../measure.h"

enum { MAX_THREADS = 256, PAIRS = 20 };

typedef struct worker {
    pthread_t thread;
    tu_session *session;
    float *image, *result;
    long runs;
} worker;

static struct {
    tu_graph *graph;
    tu_network_graph model;
    tu_program *program;
    tu_state *state;
    atomic_bool stop;
    worker workers[MAX_THREADS];
} bench;

static void build(const char *name) {
    must(tu_graph_new(&bench.graph));
    bench.model = TU_SIZED(tu_network_graph);
    must(tu_network_build(bench.graph, name, &bench.model, .batch = 1));
    must(tu_compile(bench.graph, &bench.program, .devices = "cpu", .threads = 1, .fetch = &bench.model.logits,
                    .fetch_count = 1));
    must(tu_state_new(bench.graph, &bench.state, .seed = 1));
}

static void start_worker(worker *w) {
    size_t bytes = tu_type_bytes(tu_value_type(bench.model.images));
    w->image = calloc(1, bytes);
    w->result = calloc(1, tu_type_bytes(tu_value_type(bench.model.logits)));
    if (!w->image || !w->result) exit(2);
    must(tu_session_new(bench.state, &w->session));
    must(tu_session_warm_up(w->session, bench.program));
}

static void *run_until_stopped(void *argument) {
    worker *w = argument;
    for (w->runs = 0; !atomic_load(&bench.stop); w->runs++)
        must(tu_session_run(w->session, bench.program, 1, &(tu_feed){bench.model.images, w->image},
                            (void *[]){w->result}));
    return NULL;
}

/* Returns runs per second of `count` threads. */
static double measure(int count, double seconds) {
    long runs = 0;
    atomic_store(&bench.stop, false);
    double began = seconds_now();
    for (int i = 0; i < count; i++)
        pthread_create(&bench.workers[i].thread, NULL, run_until_stopped, &bench.workers[i]);
    usleep((useconds_t)(seconds * 1e6));
    atomic_store(&bench.stop, true);
    for (int i = 0; i < count; i++) {
        pthread_join(bench.workers[i].thread, NULL);
        runs += bench.workers[i].runs;
    }
    return (double)runs / (seconds_now() - began);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "resnet20";
    int threads = argc > 2 ? atoi(argv[2]) : 8;
    double seconds = argc > 3 ? atof(argv[3]) : 0.5, one[PAIRS], ratios[PAIRS];
    if (threads < 1 || threads > MAX_THREADS || seconds <= 0) {
        fprintf(stderr, "bench_sessions: expected 1 to %d threads and a positive time\n", MAX_THREADS);
        return 2;
    }
    build(name);
    for (int i = 0; i < threads; i++) start_worker(&bench.workers[i]);
    measure(threads, seconds);
    for (int i = 0; i < PAIRS; i++) {
        one[i] = measure(1, seconds);
        ratios[i] = measure(threads, seconds) / one[i];
    }
    printf("%s, batch 1, %ld cores: one thread %.0f runs/s; %d threads %.2fx (median of %d pairs)\n", name,
           sysconf(_SC_NPROCESSORS_ONLN), median(one, PAIRS), threads, median(ratios, PAIRS), PAIRS);
    return 0;
}
