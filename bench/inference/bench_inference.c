/* Times inference with random weights. compare.js and compare.py run it next to other programs:
 *
 *     bench_inference NETWORK THREADS BATCH RESULT     reads commands from standard input
 *     bench_inference NETWORK THREADS BATCH            prints the time of each kernel
 *
 *     --device NAME      default cpu:0
 *     --precision TYPE   f32 (default), bf16 or f16
 *     --input TYPE       of the images: f32 (default) or bf16
 *     --rounds N         of the times of kernels, of which the least is printed: default 15; 0: only lists the kernels
 *     --tune             times the kernels of libraries when the program is compiled, and takes the fastest
 *
 * A command is a number of runs; the answer is the seconds of a run. The file RESULT gets the result.
 *
 *     N            N calls, each of which reads the input from the host's memory and writes the result there
 *     resident N   one call of N runs that read the input from the device's memory, where earlier calls have left it; the
 *                  results of all runs are copied to the host at the end. For devices that run many steps in one call */
#include <string.h>

#include "../measure.h"
#include "base/number.h"
#include "infer/freeze.h"
#include "networks.h"
#include "pass/pass.h"

typedef struct settings {
    const char *words[4]; /* network, threads, batch, result */
    int word_count;
    const char *device, *precision, *input;
    bool tune;
    int rounds; /* of the times of kernels */
} settings;

typedef struct subject {
    tu_graph *graph;
    tu_value images, result;
    tu_program *program;
    tu_state *state;
    tu_session *session;
    void *input;
    float *output;
    size_t output_bytes;
    int64_t batch;
    tu_table *table; /* of the images, for resident runs */
    double compile_seconds;
} subject;

/* Fills images [n, h, w, c] with the numbers that ONNX Runtime gets as [n, c, h, w]. */
static void fill_images(tu_type type, void *data) {
    int64_t channels = type.shape.dim[3], pixels = type.shape.dim[1] * type.shape.dim[2];
    for (int64_t i = 0; i < tu_shape_elements(type.shape); i++) {
        int64_t image = i / channels / pixels,
                index = (image * channels + i % channels) * pixels + i / channels % pixels;
        tu__store(type.dtype, data, i, bench_number(INPUT_TENSOR, (uint32_t)index));
    }
}

/* With TUTTI_BENCH_CPU_TIME in the environment times are those of the processor, without what other processes take. */
static double clock_now(void) {
    struct timespec t;
    if (!getenv("TUTTI_BENCH_CPU_TIME")) return seconds_now();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Replaces the graph by a frozen one. */
static void freeze(subject *s, const char *precision) {
    tu_graph *frozen;
    tu__precision parsed;
    must(tu__precision_parse(precision, &parsed));
    must(tu__freeze(s->graph, 0, NULL, strcmp(precision, "f32") == 0 ? TU__PRECISION_AS_BUILT : parsed,
                    &frozen));
    tu_graph_free(s->graph);
    s->graph = frozen;
    s->images = tu_find(frozen, "images");
    s->result = tu_find_output(frozen, "result");
}

static void open_subject(subject *s, const bench_network *network, int threads, const settings *o) {
    tu_shape shape = TU_SHAPE(s->batch, network->input[0], network->input[1], network->input[2]);
    must(tu_graph_new(&s->graph));
    tu_set_training(s->graph, false);
    s->images = tu_batch_input(s->graph, "images", strcmp(o->input, "bf16") == 0 ? TU_BF16 : TU_F32, shape);
    s->result = tu_output(network->build(tu_cast(s->images, TU_F32)), "result");
    must(tu_graph_status(s->graph));
    freeze(s, o->precision);
    double start = clock_now();
    must(tu_compile(s->graph, &s->program, .devices = o->device, .threads = threads, .tune_kernels = o->tune,
                    .fetch = &s->result, .fetch_count = 1));
    must(tu_state_new(s->graph, &s->state, .seed = 1));
    must(tu_session_new(s->state, &s->session));
    must(tu_session_warm_up(s->session, s->program));
    s->compile_seconds = clock_now() - start;
    size_t bytes = tu_type_bytes(tu_value_type(s->images));
    s->input = malloc(bytes);
    s->output_bytes = tu_type_bytes(tu_value_type(s->result));
    s->output = malloc(s->output_bytes);
    if (!s->input || !s->output) exit(2);
    fill_images(tu_value_type(s->images), s->input);
    must(tu_table_new(s->input, bytes / (size_t)s->batch, s->batch, &s->table));
}

static double time_runs(subject *s, long count) {
    double start = clock_now();
    for (long i = 0; i < count; i++)
        must(tu_session_run(s->session, s->program, 1, &(tu_feed){s->images, s->input},
                            (void *[]){s->output}));
    return (clock_now() - start) / (double)count;
}

/* Runs all in one call, on the images in the device's memory. Each run has row indices of its own, since a batch that all runs
 * share would be uploaded in every call. */
static double time_resident(subject *s, long count) {
    int64_t *rows = calloc((size_t)(s->batch * count), sizeof *rows);
    char *results = malloc((size_t)count * s->output_bytes);
    if (!rows || !results) exit(2);
    for (int64_t i = 0; i < s->batch * count; i++) rows[i] = i % s->batch;
    const tu_feed_many feed = {.input = s->images, .table = s->table, .rows = rows};
    double start = clock_now();
    must(tu_session_run_many(s->session, s->program, (size_t)count, 1, &feed, (void *[]){results}));
    double seconds = (clock_now() - start) / (double)count;
    memcpy(s->output, results + (size_t)(count - 1) * s->output_bytes, s->output_bytes);
    free(results);
    free(rows);
    return seconds;
}

static void serve(subject *s, const char *path) {
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        const char resident[] = "resident ";
        bool is_resident = strncmp(line, resident, strlen(resident)) == 0;
        long count = atol(is_resident ? line + strlen(resident) : line);
        if (count < 1) exit(2);
        double seconds = (is_resident ? time_resident : time_runs)(s, count);
        FILE *file = fopen(path, "wb");
        if (!file || fwrite(s->output, 1, s->output_bytes, file) != s->output_bytes || fclose(file) != 0)
            exit(2);
        printf("%.9f\n", seconds);
        fflush(stdout);
    }
}

enum { MAX_ROUNDS = 1000 };

/* Of single kernels the least time is printed, which other load on the machine disturbs least. 0: not measured. */
static double least(const double *numbers, size_t count) {
    double best = 0;
    for (size_t i = 0; i < count; i++)
        if (numbers[i] > 0 && (best == 0 || numbers[i] < best)) best = numbers[i];
    return best;
}

static double time_kernels(subject *s, int rounds, size_t count, double (*times)[MAX_ROUNDS]) {
    if (rounds) time_runs(s, 3);
    for (int round = 0; round < rounds; round++) {
        must(tu_run(s->program, s->state, 1, &(tu_feed){s->images, s->input}, (void *[]){s->output}));
        for (size_t i = 0; i < count; i++) {
            tu_kernel_report report = TU_SIZED(tu_kernel_report);
            must(tu_program_kernel(s->program, i, &report));
            times[i][round] = report.seconds;
        }
    }
    return rounds ? time_runs(s, rounds) : 0;
}

/* Without rounds, only lists the kernels. */
static void print_kernels(subject *s, int rounds) {
    size_t count = tu_program_kernel_count(s->program);
    double(*times)[MAX_ROUNDS] = calloc(count, sizeof *times), total = 0;
    if (!times) exit(2);
    double seconds_per_run = time_kernels(s, rounds, count, times);
    for (size_t i = 0; i < count; i++) {
        tu_kernel_report report = TU_SIZED(tu_kernel_report);
        must(tu_program_kernel(s->program, i, &report));
        double seconds = rounds ? least(times[i], (size_t)rounds) : 0;
        total += seconds;
        printf("%10.1f us %8.1f GFLOP/s %8.1f GB/s  %-24s %s\n", 1e6 * seconds,
               seconds > 0 ? (double)report.flops / seconds * 1e-9 : 0,
               seconds > 0 ? (double)report.bytes / seconds * 1e-9 : 0, report.kernel, report.node);
    }
    printf("%zu kernels: %.1f us, %.1f us per run, compiled in %.1f ms\n", count, 1e6 * total,
           1e6 * seconds_per_run, 1e3 * s->compile_seconds);
    free(times);
}

static bool parse(int argc, char **argv, settings *o) {
    for (int i = 1; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--tune") == 0)
            o->tune = true;
        else if (strcmp(argv[i], "--device") == 0 && has_value)
            o->device = argv[++i];
        else if (strcmp(argv[i], "--precision") == 0 && has_value)
            o->precision = argv[++i];
        else if (strcmp(argv[i], "--input") == 0 && has_value)
            o->input = argv[++i];
        else if (strcmp(argv[i], "--rounds") == 0 && has_value)
            o->rounds = atoi(argv[++i]);
        else if (argv[i][0] != '-' && o->word_count < 4)
            o->words[o->word_count++] = argv[i];
        else
            return false;
    }
    return o->word_count >= 3 && o->rounds >= 0 && o->rounds <= MAX_ROUNDS;
}

int main(int argc, char **argv) {
    settings o = {.device = "cpu:0", .precision = "f32", .input = "f32", .rounds = 15};
    bool is_parsed = parse(argc, argv, &o);
    const bench_network *network = is_parsed ? bench_network_find(o.words[0]) : NULL;
    int threads = is_parsed ? atoi(o.words[1]) : 0;
    static subject s; /* static: must() ends the process without freeing it */
    s.batch = is_parsed ? atol(o.words[2]) : 0;
    if (!network || threads < 0 || s.batch < 1) {
        fprintf(stderr,
                "usage: bench_inference mlp|tutorial-cnn|resnet50 THREADS BATCH [RESULT] "
                "[--device NAME] [--precision f32|bf16|f16] [--input f32|bf16] [--tune] [--rounds N]\n");
        return 2;
    }
    open_subject(&s, network, threads, &o);
    if (o.words[3])
        serve(&s, o.words[3]);
    else
        print_kernels(&s, o.rounds);
    tu_session_free(s.session);
    tu_program_free(s.program);
    tu_table_free(s.table);
    tu_state_free(s.state);
    tu_graph_free(s.graph);
    free(s.output);
    free(s.input);
    return 0;
}
