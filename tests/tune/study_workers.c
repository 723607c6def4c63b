/* Workers on one study that are killed: study_workers ADDRESS TRIALS WORKERS KILL_SECONDS TRIAL_SECONDS
 *
 * Starts WORKERS processes that evaluate a function instead of training, and kills a random one with SIGKILL every
 * KILL_SECONDS, until all trials have ended. Then checks that no trial was lost, none was counted twice, and that each has the
 * values and the cost of an undisturbed study. Prints one line. The database may be restarted meanwhile. */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tune/study.h"

enum { REPORTS = 4, MAX_WORKERS = 64, SEED = 7 };

static const char space_text[] = "rate=log:0.0001:1\noptimizer=sgd|adam\nmomentum=0:0.99 if optimizer=sgd\n";
static double trial_seconds;
static char log_path[] = "/tmp/tutti-study-log-XXXXXX";

static _Noreturn void die(const char *what) {
    fprintf(stderr, "study_workers: %s: %s\n", what, tu_message());
    exit(1);
}

static void sleep_for(double seconds) {
    struct timespec time = {(time_t)seconds, (long)(1e9 * (seconds - floor(seconds)))};
    nanosleep(&time, NULL);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* The cost after `step` of REPORTS. */
static double cost_of(const tu__point *point, int64_t step) {
    double rate = log10(point->value[0]) + 2, momentum = isnan(point->value[2]) ? 0.3 : point->value[2] - 0.9;
    return rate * rate + momentum * momentum + 1 / (double)step;
}

/* ---- A worker ---- */

static tu_status train(tu__study *study, const tu__claim *claim) {
    for (int64_t step = 1; step <= REPORTS; step++) {
        sleep_for(trial_seconds / REPORTS);
        bool prune;
        tu__report report = {step, REPORTS, cost_of(&claim->point, step), 0, 0};
        TU_TRY(tu__study_report(study, claim, &report, &prune));
    }
    return tu__study_end(study, claim, TU__TRIAL_FINISHED, REPORTS, trial_seconds, NULL);
}

static void log_end(int64_t number) {
    char line[32];
    int fd = open(log_path, O_WRONLY | O_APPEND),
        length = snprintf(line, sizeof line, "%" PRId64 "\n", number);
    if (fd < 0 || write(fd, line, (size_t)length) != length) exit(2);
    close(fd);
}

static void work(const char *address) {
    tu__study study;
    tu__claimed claimed;
    if (tu__study_connect(address, false, &study) != TU_OK || tu__study_load(&study, NULL) != TU_OK) {
        fprintf(stderr, "study_workers: notice: %s\n", tu_message()); /* the database may be restarting */
        exit(3);
    }
    study.timeout = 10 * trial_seconds;
    for (;;) {
        tu__claim claim;
        tu__claim_text(claim.text);
        if (tu__study_claim(&study, "worker", &claim, &claimed) != TU_OK) die("claim");
        if (claimed == TU__CLAIM_NEVER) break;
        if (claimed == TU__CLAIM_LATER) {
            sleep_for(0.1);
            continue;
        }
        tu_status status = train(&study, &claim);
        if (status == TU_OK) log_end(claim.number);
        if (status != TU_OK && status != TU_LOST) die("train");
    }
    tu__study_close(&study);
    exit(0);
}

static pid_t start(const char *address) {
    pid_t child = fork();
    if (child == 0) work(address);
    return child;
}

/* Returns the number of workers that were killed. */
static int run_workers(const char *address, int count, double kill_seconds) {
    pid_t children[MAX_WORKERS];
    int running = count, killed = 0;
    double next = now() + kill_seconds;
    for (int i = 0; i < count; i++) children[i] = start(address);
    while (running > 0) {
        sleep_for(0.02);
        for (int i = 0; i < count; i++) {
            int status;
            if (children[i] <= 0 || waitpid(children[i], &status, WNOHANG) != children[i]) continue;
            bool done = WIFEXITED(status) && WEXITSTATUS(status) == 0;
            if (WIFEXITED(status) && WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 3) exit(1);
            if (!done && WIFEXITED(status)) sleep_for(0.5);
            children[i] = done ? 0 : start(address);
            running -= done;
        }
        if (now() < next) continue;
        next += kill_seconds;
        int victim = (int)(random() % count);
        if (children[victim] > 0) kill(children[victim], SIGKILL), killed++;
    }
    return killed;
}

/* ---- Checking ---- */

static void check_trials(const tu__study *study, const tu__trials *trials, int64_t expected) {
    tu__history history = {.space = &study->space, .seed = SEED};
    if ((int64_t)trials->count != expected) {
        fprintf(stderr, "study_workers: %zu trials, expected %" PRId64 "\n", trials->count, expected);
        exit(1);
    }
    for (int64_t i = 0; i < expected; i++) {
        const tu__trial *t = &trials->trials[i];
        tu__point point;
        bool same = tu__sample_random.sample(&history, i, &point) == TU_OK;
        for (size_t k = 0; k < study->space.count; k++)
            same = same &&
                   (isnan(point.value[k]) ? isnan(t->point.value[k]) : point.value[k] == t->point.value[k]);
        bool ended = t->number == i && t->state == TU__TRIAL_FINISHED && t->report_count == REPORTS;
        if (same && ended && t->cost == cost_of(&point, REPORTS)) continue;
        fprintf(stderr,
                "study_workers: trial %" PRId64 ": state %s, %zu reports, cost %.17g, expected %.17g\n", i,
                tu__trial_state_names[t->state], t->report_count, t->cost, cost_of(&point, REPORTS));
        exit(1);
    }
}

/* No trial may have been ended by two workers. A worker that was killed after an end has not logged it. */
static int64_t check_log(int64_t trials) {
    char *seen = calloc((size_t)trials, 1);
    FILE *log = fopen(log_path, "r");
    int64_t number, count = 0;
    while (seen && log && fscanf(log, "%" SCNd64, &number) == 1) {
        if (number < 0 || number >= trials || seen[number]++) {
            fprintf(stderr, "study_workers: trial %" PRId64 " ended twice\n", number);
            exit(1);
        }
        count++;
    }
    if (log) fclose(log);
    free(seen);
    return count;
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: study_workers ADDRESS TRIALS WORKERS KILL_SECONDS TRIAL_SECONDS\n");
        return 2;
    }
    int64_t trials = strtoll(argv[2], NULL, 10);
    int workers = (int)strtol(argv[3], NULL, 10);
    trial_seconds = strtod(argv[5], NULL);
    if (workers < 1 || workers > MAX_WORKERS || trials < 1) return 2;
    close(mkstemp(log_path));
    tu__study study;
    tu__study_plan plan = {.name = "exact",
                           .model = "m",
                           .model_digest = "d",
                           .data = "d",
                           .data_digest = "d",
                           .space = space_text,
                           .settings = "{}",
                           .objective = "loss",
                           .sampler = "random",
                           .pruner = "none",
                           .folder = "",
                           .seed = SEED,
                           .trials = trials,
                           .attempts = 1000};
    if (tu__study_connect(argv[1], true, &study) != TU_OK || tu__study_create(&study, &plan) != TU_OK)
        die("create");
    tu__study_close(&study);
    int killed = run_workers(argv[1], workers, strtod(argv[4], NULL));
    tu__trials read;
    if (tu__study_connect(argv[1], false, &study) != TU_OK || tu__study_load(&study, "exact") != TU_OK)
        die("load");
    if (tu__study_read(&study, true, &read) != TU_OK) die("read");
    check_trials(&study, &read, trials);
    int64_t retried = 0, logged = check_log(trials);
    for (size_t i = 0; i < read.count; i++) retried += read.trials[i].attempts > 1;
    printf("%" PRId64 " trials, %d workers killed, %" PRId64 " trials continued by another, %" PRId64
           " ends logged, none twice\n",
           trials, killed, retried, logged);
    tu__trials_free(&read);
    tu__study_close(&study);
    unlink(log_path);
    return killed > 0 && retried > 0 ? 0 : 1;
}
