/* Noticing other programs on our cores, and giving way to them. See contention.h.
 *
 * How long libgomp spins is read from the environment when it is loaded, before any code of ours runs. But its manual
 * (GOMP_SPINCOUNT) also says that it spins 100 times only while the process has more OpenMP threads than the machine has
 * cores. To give way is to have that many for a while: a thread of ours starts a second team, just large enough, whose
 * threads sleep. When the thread ends the team ends with it, and waiting is as before. */
#include "base/contention.h"

#include <stdatomic.h>
#include <stdio.h>

static const double share_to_begin = 0.25,
                    share_to_go_on = 0.1; /* of its time that a thread waits for a core */

bool tu__core_is_shared(double waited, double elapsed, long preempted, bool giving_way) {
    double share = giving_way ? share_to_go_on : share_to_begin;
    return elapsed > 0 && preempted > 0 && waited >= share * elapsed;
}

bool tu__team_is_crowded(int sharing, int threads) {
    return sharing > 0 && 8 * sharing >= threads;
}

bool tu__read_waited(const char *schedstat, double *seconds) {
    unsigned long long ran, waited, times;
    if (sscanf(schedstat, "%llu %llu %llu", &ran, &waited, &times) != 3) return false;
    *seconds = 1e-9 * (double)waited;
    return true;
}

static atomic_bool gives_way;

bool tu__gives_way(void) {
    return atomic_load(&gives_way);
}

/* clang's OpenMP has ways of its own; a checker may read these flags without having the compiler's header. */
#if defined(_OPENMP) && !defined(__clang__) && __has_include(<omp.h>)

#include <fcntl.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parallel.h"

static const double look_every = 0.05, give_way_for = 0.25; /* seconds */

/* ---- Looking ---- */

static bool waited_so_far(double *seconds) {
    char line[96];
    int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    ssize_t length = read(file, line, sizeof line - 1);
    close(file);
    if (length <= 0) return false;
    line[length] = 0;
    return tu__read_waited(line, seconds);
}

/* Whether the calling thread shared its core since it looked last. */
static bool shares_its_core(void) {
    static _Thread_local double looked, waited;
    static _Thread_local long preempted;
    struct rusage use;
    double now = tu__now(), so_far;
    if (!waited_so_far(&so_far) || getrusage(RUSAGE_THREAD, &use) != 0) return false;
    bool shared = looked > 0 && tu__core_is_shared(so_far - waited, now - looked, use.ru_nivcsw - preempted,
                                                   tu__gives_way());
    looked = now;
    waited = so_far;
    preempted = use.ru_nivcsw;
    return shared;
}

static bool team_shares_cores(int threads) {
    int sharing = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sharing)
    sharing += shares_its_core();
    return tu__team_is_crowded(sharing, threads);
}

/* ---- Giving way ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double until; /* on the clock; guarded by the lock */

static double time_left(void) {
    pthread_mutex_lock(&lock);
    double left = until - tu__now();
    if (left <= 0) atomic_store(&gives_way, false);
    pthread_mutex_unlock(&lock);
    return left;
}

static void sleep_for(double seconds) {
    struct timespec left = {.tv_sec = (time_t)seconds};
    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    nanosleep(&left, NULL);
}

static void *give_way(void *threads) {
    atomic_int started = 0;
    omp_set_dynamic(0);
#pragma omp parallel num_threads(*(int *)threads)
    atomic_fetch_add(&started, 1);
    free(threads);
    for (double left; (left = time_left()) > 0;) sleep_for(left);
    return NULL;
}

static void *wait_at(void *gate) {
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* libgomp ends the process when it cannot have the threads of a team: as many, at once, are asked for before. */
static bool can_have_threads(int count) {
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    int started = 0;
    pthread_mutex_lock(&gate);
    while (threads && started < count && pthread_create(&threads[started], NULL, wait_at, &gate) == 0)
        started++;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    free(threads);
    return started == count;
}

/* The thread that gives way; it handles no signal of the program's. */
static bool start(int team) {
    int *threads = malloc(sizeof *threads);
    if (!threads) return false;
    *threads = team;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = can_have_threads(team) && pthread_create(&thread, NULL, give_way, threads) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        pthread_detach(thread);
    else
        free(threads);
    return started;
}

static pthread_once_t asked = PTHREAD_ONCE_INIT;
static bool users_choice;
static int cores; /* as libgomp counts them: of the process, though a thread that looks may have some only */

static void ask(void) {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    users_choice = getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY");
    cores = sched_getaffinity(getpid(), sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 0;
}

bool tu__give_way(int width) {
    pthread_once(&asked, ask);
    pthread_mutex_lock(&lock);
    until = tu__now() + give_way_for;
    /* One thread more than cores: the team's first is the one that starts it, which nobody has counted. */
    if (!atomic_load(&gives_way)) atomic_store(&gives_way, start(cores - width + 2));
    bool gives = atomic_load(&gives_way);
    pthread_mutex_unlock(&lock);
    return gives;
}

/* ---- Now and then ---- */

void tu__contention_look(double now) {
    static _Thread_local double looked;
    static _Thread_local int
        in_a_row; /* looks that found the team crowded: the first may be the start of another team */
    int threads = tu__parallel_width();
    if (threads < 2 || now - looked < look_every) return;
    looked = now;
    pthread_once(&asked, ask);
    /* With more threads than cores libgomp gives way of its own accord. */
    if (users_choice || threads > cores) return;
    in_a_row = team_shares_cores(threads) ? in_a_row + 1 : 0;
    if (in_a_row > 2 || (in_a_row > 0 && tu__gives_way())) tu__give_way(threads);
}

#else

bool tu__give_way(int width) {
    (void)width;
    return false;
}

void tu__contention_look(double now) {
    (void)now;
}

#endif
