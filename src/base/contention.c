/* Detects other processes on our cores and then waits passively. See contention.h.
 *
 * libgomp reads its spin count from the environment when it is loaded, before any code of ours runs. But its manual
 * (GOMP_SPINCOUNT) documents that it spins only 100 times while the process has more OpenMP threads than the machine
 * has cores. For passive waiting, a thread of ours therefore starts a second team, just large enough, whose threads
 * sleep. When that thread ends, its team ends too, and libgomp spins as long as before. */
#include "base/contention.h"

#include <stdatomic.h>
#include <stdio.h>

static const double wait_fraction_to_start = 0.25,
                    wait_fraction_to_continue = 0.1; /* fraction of the time that a thread waits for a core */

bool tu__core_is_shared(double waited, double elapsed, long preempted, bool passive) {
    double fraction = passive ? wait_fraction_to_continue : wait_fraction_to_start;
    return elapsed > 0 && preempted > 0 && waited >= fraction * elapsed;
}

bool tu__team_should_wait_passively(int sharing, int threads) {
    return sharing > 0 && 8 * sharing >= threads;
}

bool tu__parse_schedstat(const char *schedstat, double *seconds) {
    unsigned long long ran, waited, times;
    if (sscanf(schedstat, "%llu %llu %llu", &ran, &waited, &times) != 3) return false;
    *seconds = 1e-9 * (double)waited;
    return true;
}

static atomic_bool is_passive;

bool tu__is_waiting_passively(void) {
    return atomic_load(&is_passive);
}

/* Not for clang, whose OpenMP waits differently. Static checkers may define _OPENMP without having omp.h. */
#if defined(_OPENMP) && !defined(__clang__) && __has_include(<omp.h>)

#include <fcntl.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parallel.h"
#include "base/start_thread.h"

static const double check_interval = 0.05, passive_seconds = 0.25; /* seconds */

/* ---- Detecting contention ---- */

static bool read_wait_time(double *seconds) {
    char line[96];
    int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    ssize_t length = read(file, line, sizeof line - 1);
    close(file);
    if (length <= 0) return false;
    line[length] = 0;
    return tu__parse_schedstat(line, seconds);
}

/* True if the calling thread shared its core since the last call. */
static bool thread_shares_core(void) {
    static _Thread_local double last_check, waited;
    static _Thread_local long preempted;
    struct rusage use;
    double now = tu__now(), total_wait;
    if (!read_wait_time(&total_wait) || getrusage(RUSAGE_THREAD, &use) != 0) return false;
    bool shared = last_check > 0 && tu__core_is_shared(total_wait - waited, now - last_check,
                                                       use.ru_nivcsw - preempted, tu__is_waiting_passively());
    last_check = now;
    waited = total_wait;
    preempted = use.ru_nivcsw;
    return shared;
}

static bool team_shares_cores(int threads) {
    int sharing = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sharing)
    sharing += thread_shares_core();
    return tu__team_should_wait_passively(sharing, threads);
}

/* ---- Passive waiting ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double passive_end; /* tu__now() at which passive waiting ends; guarded by the lock */

static double time_left(void) {
    pthread_mutex_lock(&lock);
    double left = passive_end - tu__now();
    if (left <= 0) atomic_store(&is_passive, false);
    pthread_mutex_unlock(&lock);
    return left;
}

static void sleep_for(double seconds) {
    struct timespec left = {.tv_sec = (time_t)seconds};
    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    nanosleep(&left, NULL);
}

static void *run_extra_team(void *threads) {
    atomic_int started = 0;
    omp_set_dynamic(0);
#pragma omp parallel num_threads(*(int *)threads)
    atomic_fetch_add(&started, 1);
    free(threads);
    for (double left; (left = time_left()) > 0;) sleep_for(left);
    return NULL;
}

static void *lock_and_unlock(void *gate) {
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* Creates `count` threads at once to see if that is possible: libgomp ends the process if it cannot create a team. */
static bool can_create_threads(int count) {
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    int started = 0;
    pthread_mutex_lock(&gate);
    while (threads && started < count && tu__start_thread(&threads[started], lock_and_unlock, &gate) == 0)
        started++;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    free(threads);
    return started == count;
}

/* Starts the thread of the extra team. */
static bool start_extra_team(int team) {
    int *threads = malloc(sizeof *threads);
    if (!threads) return false;
    *threads = team;
    pthread_t thread;
    bool started = can_create_threads(team) && tu__start_thread(&thread, run_extra_team, threads) == 0;
    if (started)
        pthread_detach(thread);
    else
        free(threads);
    return started;
}

static pthread_once_t settings_once = PTHREAD_ONCE_INIT;
static bool user_sets_spinning;
static int cores; /* of the process, as libgomp counts them; the calling thread may be bound to fewer */

static void read_settings(void) {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    user_sets_spinning = getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY");
    cores = sched_getaffinity(getpid(), sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 0;
}

bool tu__wait_passively(int threads) {
    pthread_once(&settings_once, read_settings);
    pthread_mutex_lock(&lock);
    passive_end = tu__now() + passive_seconds;
    /* One thread more than cores; one more because libgomp does not count the thread that starts the team. */
    if (!atomic_load(&is_passive)) atomic_store(&is_passive, start_extra_team(cores - threads + 2));
    bool passive = atomic_load(&is_passive);
    pthread_mutex_unlock(&lock);
    return passive;
}

/* ---- The regular check ---- */

void tu__contention_check(double now) {
    static _Thread_local double last_check;
    /* Successive checks that found contention. A single one may be caused by the start of another team. */
    static _Thread_local int contended_checks;
    int threads = tu__parallel_threads();
    if (threads < 2 || now - last_check < check_interval) return;
    last_check = now;
    pthread_once(&settings_once, read_settings);
    /* With more threads than cores libgomp already spins only 100 times. */
    if (user_sets_spinning || threads > cores) return;
    contended_checks = team_shares_cores(threads) ? contended_checks + 1 : 0;
    if (contended_checks > 2 || (contended_checks > 0 && tu__is_waiting_passively()))
        tu__wait_passively(threads);
}

#else

bool tu__wait_passively(int threads) {
    (void)threads;
    return false;
}

void tu__contention_check(double now) {
    (void)now;
}

#endif
