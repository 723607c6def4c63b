/* Training and inference in a loop use no more memory, descriptors and threads the longer they run.
 *
 * Each loop runs for TUTTI_FLAT_SECONDS (default 3; an hour as a long test), with evaluations, checkpoints, and models that
 * are loaded and freed again. It is sampled 400 times. From the end of the second quarter on, when all buffers have their
 * size, the medians of an eighth must not grow from the first eighth to the last. */
#include <dirent.h>
#include <time.h>

#include <tutti/model.h>

#include "train/fresh_run.h"

/* The curves of a run keep 24 bytes for each evaluation, in arrays that double: few evaluations, so that these do not count. */
enum { SAMPLES = 400, EIGHTH = SAMPLES / 8, MAX_GROWTH_KIB = 1024 };

static struct samples {
    double begin, next, interval; /* seconds */
    size_t count;
    long rss[SAMPLES], descriptors[SAMPLES], threads[SAMPLES]; /* rss in KiB */
} samples;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void begin_sampling(void) {
    const char *text = getenv("TUTTI_FLAT_SECONDS");
    samples = (struct samples){.begin = now(), .interval = (text ? strtod(text, NULL) : 3) / SAMPLES};
    samples.next = samples.begin + samples.interval;
}

static long status_number(const char *key) {
    char line[256];
    long number = -1;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (number < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0) number = strtol(line + strlen(key), NULL, 10);
    fclose(file);
    return number;
}

static long count_descriptors(void) {
    long count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

/* Takes a sample if it is due. Returns true after the last one. */
static bool sample(void) {
    double time = now();
    if (time >= samples.next && samples.count < SAMPLES) {
        samples.next = time + samples.interval;
        samples.rss[samples.count] = status_number("VmRSS:");
        samples.descriptors[samples.count] = count_descriptors();
        samples.threads[samples.count++] = status_number("Threads:");
    }
    return samples.count == SAMPLES;
}

static int by_size(const void *a, const void *b) {
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

/* The median of the eighth of the samples that begins at `first`. */
static long median(const long *values, size_t first) {
    long sorted[EIGHTH];
    memcpy(sorted, values + first, sizeof sorted);
    qsort(sorted, EIGHTH, sizeof *sorted, by_size);
    return sorted[EIGHTH / 2];
}

static void expect_flat(const char *what, const char *counted, int64_t count) {
    size_t first = SAMPLES / 2, last = SAMPLES - EIGHTH;
    long rss[] = {median(samples.rss, first), median(samples.rss, last)};
    long descriptors[] = {median(samples.descriptors, first), median(samples.descriptors, last)};
    long threads[] = {median(samples.threads, first), median(samples.threads, last)};
    print_message(
        "%s: %.0f s, %lld %s; RSS %ld KiB after half of the time, %ld KiB at the end; descriptors %ld, "
        "%ld; threads %ld, %ld\n",
        what, now() - samples.begin, (long long)count, counted, rss[0], rss[1], descriptors[0],
        descriptors[1], threads[0], threads[1]);
    assert_int_equal(samples.count, SAMPLES); /* the loop has not ended before its time */
    assert_true(rss[1] - rss[0] <= MAX_GROWTH_KIB);
    assert_int_equal(descriptors[0], descriptors[1]);
    assert_int_equal(threads[0], threads[1]);
}

/* ---- Training ---- */

static void sample_training(void *context, const tu_train_report *report) {
    int64_t *steps = context;
    if (report->event != TU_TRAIN_STEPPED) return;
    *steps = report->step;
    if (sample()) stop_flag = 1;
}

static void a_long_training_uses_no_more_memory(void **state) {
    (void)state;
    int64_t steps = 0;
    stop_flag = 0;
    begin_sampling();
    train_small(set, NULL, .out = in_scratch("run").text, .steps = INT64_C(1000000000),
                .checkpoint_every = 1000, .evaluate_every = 20000, .stop = &stop_flag,
                .on_report = sample_training, .context = &steps);
    expect_flat("training", "steps", steps);
}

/* ---- Inference ---- */

enum { PIXELS = SMALL_SIDE * SMALL_SIDE, CALLS_PER_MODEL = 1000 };

static int64_t use_model(const char *path) {
    static float images[SMALL_TEST][PIXELS], answers[SMALL_TEST][SMALL_CLASSES];
    int64_t calls = 0;
    tu_model *model;
    assert_int_equal(tu_model_load(path, &model, .devices = "cpu:0", .threads = 1), TU_OK);
    for (bool is_last = false; !is_last && calls < CALLS_PER_MODEL; calls++) {
        assert_int_equal(tu_model_run(model, 1 + calls % SMALL_TEST, images, answers), TU_OK);
        is_last = sample();
    }
    tu_model_free(model);
    return calls;
}

static int64_t use_run(const char *run) {
    static float images[SMALL_TEST][PIXELS], answers[SMALL_TEST][SMALL_CLASSES];
    tu_predictor *predictor;
    assert_int_equal(tu_predictor_new(run, &predictor), TU_OK);
    assert_int_equal(tu_predict_images(predictor, TU_F32, images, SMALL_TEST, answers[0]), TU_OK);
    tu_predictor_free(predictor);
    return 1;
}

static void inference_for_long_uses_no_more_memory(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run"), path = in_scratch("a.model");
    int64_t calls = 0;
    train_small(set, NULL, .out = run.text, .epochs = 1);
    assert_int_equal(tu_export(run.text, path.text, NULL, .set = set), TU_OK);
    begin_sampling();
    while (!sample()) calls += use_model(path.text) + use_run(run.text);
    expect_flat("inference", "calls", calls);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        fresh(a_long_training_uses_no_more_memory),
        fresh(inference_for_long_uses_no_more_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
