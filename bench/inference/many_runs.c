/* Runs a model file very often, from several threads at once, and checks bits and memory.
 *
 *     bench_many_runs FILE.model [THREADS [RUNS]]
 *
 * RUNS (default 1,000,000) are divided among THREADS (default 8), each with a session of its own. Most runs compute one of 64
 * random samples, every 32nd some of them at once. Every answer must have the bits that one thread gets without batches.
 * Prints the planned memory, and the resident memory ten times. Exits with 1 if an answer differs. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <tutti/model.h>

#include "../measure.h"

enum { MAX_BATCH = 8, SAMPLES = 64, MAX_THREADS = 256, BATCH_EVERY = 32, REPORTS = 10 };

static tu_model *model;
static size_t input_bytes, output_bytes; /* of a sample */
static char *inputs, *expected;          /* SAMPLES, and MAX_BATCH more, which repeat the first */
static long runs_of_thread;
static pthread_barrier_t phase;

static double resident_mib(void) {
    unsigned long size, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu %lu", &size, &resident) != 2) exit(2);
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

static void *allocate(size_t bytes) {
    void *memory = calloc(bytes, 1);
    if (!memory) exit(2);
    return memory;
}

/* Computes what every answer must be: one sample at a time, by one thread. */
static void compute_expected(const char *path) {
    tu_type input, output;
    uint32_t random = 1;
    must(tu_model_load(path, &model, .devices = "cpu:0", .threads = 1, .max_batch = 1));
    must(tu_model_input(model, 0, NULL, &input));
    must(tu_model_output(model, 0, NULL, &output));
    input_bytes = tu_type_bytes(input);
    output_bytes = tu_type_bytes(output);
    inputs = allocate((SAMPLES + MAX_BATCH) * input_bytes);
    expected = allocate((SAMPLES + MAX_BATCH) * output_bytes);
    for (size_t i = 0; i < SAMPLES * input_bytes; i++) {
        random = random * 1664525 + 1013904223;
        /* Floats of small integers; bytes of any value. */
        if (input.dtype == TU_U8)
            inputs[i] = (char)(random >> 24);
        else if (input.dtype == TU_F32 && i % sizeof(float) == 0)
            memcpy(inputs + i, &(float){(float)(random >> 28) / 4 - 2}, sizeof(float));
    }
    memcpy(inputs + SAMPLES * input_bytes, inputs, MAX_BATCH * input_bytes);
    for (size_t i = 0; i < SAMPLES; i++)
        must(tu_model_run(model, 1, inputs + i * input_bytes, expected + i * output_bytes));
    memcpy(expected + SAMPLES * output_bytes, expected, MAX_BATCH * output_bytes);
    tu_model_free(model);
}

/* Counts answers that differ, in *argument. */
static void *run_often(void *argument) {
    long *wrong = argument;
    char *answers = allocate(MAX_BATCH * output_bytes);
    for (int report = 0; report < REPORTS; report++) {
        for (long i = runs_of_thread * report / REPORTS; i < runs_of_thread * (report + 1) / REPORTS; i++) {
            size_t sample = (size_t)(i * 7) % SAMPLES;
            int64_t count = i % BATCH_EVERY ? 1 : 2 + i / BATCH_EVERY % (MAX_BATCH - 1);
            must(tu_model_run(model, count, inputs + sample * input_bytes, answers));
            *wrong += memcmp(answers, expected + sample * output_bytes, (size_t)count * output_bytes) != 0;
        }
        pthread_barrier_wait(&phase);
        pthread_barrier_wait(&phase); /* the memory has been read */
    }
    free(answers);
    return NULL;
}

int main(int count, char **given) {
    int threads = count > 2 ? atoi(given[2]) : 8;
    long runs = count > 3 ? atol(given[3]) : 1000000, wrong = 0;
    if (count < 2 || threads < 1 || threads > MAX_THREADS || runs < 1) {
        fprintf(stderr, "usage: bench_many_runs FILE.model [THREADS [RUNS]]\n");
        return 2;
    }
    pthread_t callers[MAX_THREADS];
    static long wrong_of[MAX_THREADS];
    tu_model_memory_report memory = TU_SIZED(tu_model_memory_report);
    compute_expected(given[1]);
    double before = resident_mib();
    must(tu_model_load(given[1], &model, .devices = "cpu:0", .threads = 1, .sessions = threads,
                       .max_batch = MAX_BATCH));
    must(tu_model_memory(model, &memory));
    printf("planned %.1f MiB; loading added %.1f MiB to %.1f\n", (double)memory.total_bytes / (1 << 20),
           resident_mib() - before, before);
    runs_of_thread = runs / threads;
    pthread_barrier_init(&phase, NULL, (unsigned)threads + 1);
    double began = seconds_now();
    for (int i = 0; i < threads; i++)
        if (pthread_create(&callers[i], NULL, run_often, &wrong_of[i]) != 0) return 2;
    for (int report = 1; report <= REPORTS; report++) {
        pthread_barrier_wait(&phase);
        printf("%9ld runs  %6.1f s  %7.2f MiB resident\n", runs_of_thread * threads * report / REPORTS,
               seconds_now() - began, resident_mib());
        fflush(stdout);
        pthread_barrier_wait(&phase);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(callers[i], NULL);
        wrong += wrong_of[i];
    }
    printf("%ld answers with other bits than those of one thread without batches\n", wrong);
    tu_model_free(model);
    free(inputs);
    free(expected);
    return wrong != 0;
}
