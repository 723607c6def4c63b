/* Measures the time from the start of a process to the first answer of a model on a CPU, in stages.
 *
 *     bench_first_answer FILE.model [THREADS [MAX_BATCH [ROUNDS]]]
 *
 * Starts itself ROUNDS times (default 21). Each time it loads the model and computes one sample twice. Prints the median and
 * the extremes of each stage, in milliseconds:
 *
 *     libraries  from before the start of the process to main()
 *     load       tu_model_load: reads and checks the file, compiles programs, packs weights, starts threads
 *     first      the first answer
 *     second     the second answer
 *     total      from before the start of the process to the first answer
 *     processor  the processor time of the process until then, which other processes do not lengthen by taking the cores */
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/model.h>

#include "../measure.h"

enum { STAGES = 6, MAX_ROUNDS = 1001 };

static const char *const stage_names[STAGES] = {"libraries", "load", "first", "second", "total", "processor"};

static void *zeros(tu_status status, tu_type row) {
    must(status);
    void *array = calloc(1, tu_type_bytes(row) + 1);
    if (!array) exit(2);
    return array;
}

static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The started process: writes its stages, in seconds, to standard output. `began` is the time of the start. */
static int answer(const char *path, int threads, int64_t max_batch, double began) {
    double in_main = seconds_now(), stages[STAGES];
    tu_model *model;
    tu_type row;
    must(tu_model_load(path, &model, .devices = "cpu:0", .threads = threads, .max_batch = max_batch));
    double loaded = seconds_now();
    void *input = zeros(tu_model_input(model, 0, NULL, &row), row);
    void *output = zeros(tu_model_output(model, 0, NULL, &row), row);
    double before = seconds_now();
    must(tu_model_run(model, 1, input, output));
    double first = seconds_now(), processor = processor_seconds();
    must(tu_model_run(model, 1, input, output));
    double second = seconds_now();
    stages[0] = in_main - began;
    stages[1] = loaded - in_main;
    stages[2] = first - before;
    stages[3] = second - first;
    stages[4] = first - began;
    stages[5] = processor;
    tu_model_free(model);
    free(input);
    free(output);
    return write(STDOUT_FILENO, stages, sizeof stages) == sizeof stages ? 0 : 2;
}

extern char **environ;

/* Starts the process and reads its stages. */
static void measure(char **arguments, double *stages) {
    char began[32];
    int ends[2], status;
    posix_spawn_file_actions_t actions;
    pid_t child;
    if (pipe(ends) != 0 || posix_spawn_file_actions_init(&actions) != 0) exit(2);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    snprintf(began, sizeof began, "%.9f", seconds_now());
    arguments[5] = began;
    if (posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environ) != 0) exit(2);
    close(ends[1]);
    bool is_read = read(ends[0], stages, STAGES * sizeof *stages) == STAGES * sizeof *stages;
    close(ends[0]);
    posix_spawn_file_actions_destroy(&actions);
    if (waitpid(child, &status, 0) != child || status != 0 || !is_read) exit(2);
}

int main(int count, char **given) {
    if (count < 2) {
        fprintf(stderr, "usage: bench_first_answer FILE.model [THREADS [MAX_BATCH [ROUNDS]]]\n");
        return 2;
    }
    char *arguments[7] = {given[0], given[1], count > 2 ? given[2] : "0", count > 3 ? given[3] : "1",
                          count > 4 ? given[4] : "21"};
    if (count > 5) return answer(given[1], atoi(given[2]), atoi(given[3]), atof(given[5]));
    static double times[STAGES][MAX_ROUNDS];
    int rounds = atoi(arguments[4]);
    if (rounds < 1 || rounds > MAX_ROUNDS) return 2;
    for (int round = 0; round < rounds; round++) {
        double stages[STAGES];
        measure(arguments, stages);
        for (int i = 0; i < STAGES; i++) times[i][round] = 1e3 * stages[i];
    }
    printf("%-10s  %8s  %8s  %8s\n", "stage", "median", "least", "most");
    for (int i = 0; i < STAGES; i++) {
        double middle = median(times[i], (size_t)rounds);
        printf("%-10s  %8.2f  %8.2f  %8.2f\n", stage_names[i], middle, times[i][0], times[i][rounds - 1]);
    }
    return 0;
}
