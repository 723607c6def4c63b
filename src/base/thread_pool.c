/* A thread pool with slots that threads claim. See thread_pool.h.
 *
 * The caller publishes a region as one number: its sequence number, the threads that may share it and its ranges. Each
 * range has a slot with the sequence numbers of the last region in which the range was claimed, and done. A thread
 * claims a range with a compare-and-swap from a lower number. So a thread that reads an old region late claims nothing:
 * all its slots have that number or a later one. And whoever claims a range may read the region's body and context,
 * which change only after all its ranges are done. */
#include "base/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/start_thread.h"

static const double spin_seconds = 1e-4, crowded_spin_seconds = 5e-6;

typedef struct slot { /* one cache line each: a range, and the thread with its number */
    _Alignas(64) _Atomic uint64_t claimed;
    _Atomic uint64_t done;
    _Atomic uint32_t is_asleep; /* a futex: the thread sleeps while it is 1 */
} slot;

typedef struct pool_thread {
    tu__thread_pool *pool;
    pthread_t thread;
    int index;
} pool_thread;

struct tu__thread_pool {
    /* Written by the caller at each region. */
    _Alignas(64) _Atomic uint64_t region;
    void (*body)(void *context, int range);
    void *context;
    uint64_t sequence;
    /* Changes rarely. */
    _Alignas(64) _Atomic uint32_t caller_sleeps; /* a futex: the caller sleeps while it is 1 */
    atomic_bool any_asleep;                      /* a thread that the run could use may sleep */
    atomic_bool stop;
    atomic_int granted; /* threads of the current or last run, with the caller */
    int threads, started;
    pid_t process; /* a forked child has none of the threads */
    pool_thread *members;
    slot *slots;
};

/* ---- Regions as numbers ---- */

enum { FIELD = 12 }; /* bits of a number of threads: TU__THREAD_POOL_MAX and less */
_Static_assert(TU__THREAD_POOL_MAX < 1 << FIELD, "a number of threads fits its field");

static uint64_t encode_region(uint64_t sequence, int granted, int ranges) {
    return sequence << 2 * FIELD | (uint64_t)granted << FIELD | (uint64_t)ranges;
}

static uint64_t sequence_of(uint64_t region) {
    return region >> 2 * FIELD;
}

static int granted_of(uint64_t region) {
    return (int)(region >> FIELD & ((1 << FIELD) - 1));
}

static int ranges_of(uint64_t region) {
    return (int)(region & ((1 << FIELD) - 1));
}

/* ---- Cores ---- */

static atomic_int cores_in_use; /* of all runs of the process */
static atomic_int core_limit;   /* 0: not counted yet */

static int count_cores(void) {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (sched_getaffinity(getpid(), sizeof mask, &mask) == 0) return CPU_COUNT(&mask);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online < 1 ? 1 : (int)online;
}

void tu__thread_pool_set_cores(int cores) {
    atomic_store(&core_limit, cores > 0 ? cores : count_cores());
}

/* Runs of other threads do not exist in a forked child. */
static void forget_other_runs(void) {
    atomic_store(&cores_in_use, 0);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void prepare_cores(void) {
    if (!atomic_load(&core_limit)) tu__thread_pool_set_cores(0);
    pthread_atfork(NULL, NULL, forget_other_runs);
}

/* Takes up to `threads` cores that no other run uses; at least one. */
static int take_cores(int threads) {
    int used = atomic_load(&cores_in_use), taken;
    do {
        int unused = atomic_load(&core_limit) - used;
        taken = unused < 1 ? 1 : unused < threads ? unused : threads;
    } while (!atomic_compare_exchange_weak(&cores_in_use, &used, used + taken));
    return taken;
}

static bool is_crowded(void) {
    return atomic_load_explicit(&cores_in_use, memory_order_relaxed) >
           atomic_load_explicit(&core_limit, memory_order_relaxed);
}

/* ---- Waiting ---- */

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int threads) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

/* A spin of limited time, which reads the clock only sometimes. */
typedef struct spin {
    unsigned rounds;
    double began;
} spin;

/* Returns false once the thread has spun for long enough. */
static bool spin_once(spin *s) {
    pause_briefly();
    if (++s->rounds % 32) return true;
    double now = tu__now();
    if (s->began == 0) s->began = now;
    return now - s->began < (is_crowded() ? crowded_spin_seconds : spin_seconds);
}

/* Wakes up to two threads that the run can use. Each of them wakes two more: waking all would delay the caller. */
static void wake_threads(tu__thread_pool *pool) {
    int granted = atomic_load(&pool->granted);
    for (int i = 1, woken = 0; i < granted && woken < 2; i++) {
        _Atomic uint32_t *is_asleep = &pool->slots[i].is_asleep;
        if (!atomic_load(is_asleep) || !atomic_exchange(is_asleep, 0)) continue;
        futex_wake(is_asleep, 1);
        woken++;
    }
}

static void wake_threads_if_asleep(tu__thread_pool *pool) {
    if (atomic_load(&pool->any_asleep) && atomic_exchange(&pool->any_asleep, false)) wake_threads(pool);
}

/* ---- Ranges ---- */

static bool claim(slot *s, uint64_t sequence) {
    uint64_t last = atomic_load_explicit(&s->claimed, memory_order_relaxed);
    return last < sequence && atomic_compare_exchange_strong(&s->claimed, &last, sequence);
}

/* Runs the thread's range, and its part of those beyond the threads that may share the region. */
static void run_own_ranges(tu__thread_pool *pool, uint64_t region, int index) {
    uint64_t sequence = sequence_of(region);
    for (int range = index; range < ranges_of(region); range += granted_of(region)) {
        slot *s = &pool->slots[range];
        if (!claim(s, sequence)) continue;
        pool->body(pool->context, range);
        atomic_store(&s->done, sequence);
        if (atomic_load(&pool->caller_sleeps) && atomic_exchange(&pool->caller_sleeps, 0))
            futex_wake(&pool->caller_sleeps, 1);
    }
}

/* ---- Threads ---- */

/* Sleeps until a run begins or a region follows `last`. */
static void sleep_after(tu__thread_pool *pool, int index, uint64_t last) {
    _Atomic uint32_t *is_asleep = &pool->slots[index].is_asleep;
    atomic_store(is_asleep, 1);
    if (index < atomic_load(&pool->granted)) atomic_store(&pool->any_asleep, true);
    if (atomic_load(&pool->region) == last && !atomic_load(&pool->stop)) futex_wait(is_asleep, 1);
    atomic_store(is_asleep, 0);
    if (index < atomic_load(&pool->granted)) wake_threads(pool);
}

/* Returns the next region after `last`, or `last` if the thread should end. */
static uint64_t await_region(tu__thread_pool *pool, int index, uint64_t last) {
    spin s = {0};
    for (;;) {
        uint64_t region = atomic_load_explicit(&pool->region, memory_order_acquire);
        if (region != last || atomic_load_explicit(&pool->stop, memory_order_relaxed)) return region;
        bool is_needed = index < atomic_load_explicit(&pool->granted, memory_order_relaxed);
        if (is_needed && spin_once(&s)) continue;
        sleep_after(pool, index, last);
        s = (spin){0};
    }
}

static void *work(void *argument) {
    const pool_thread *self = argument;
    tu__thread_pool *pool = self->pool;
    uint64_t last = 0;
    for (;;) {
        uint64_t region = await_region(pool, self->index, last);
        if (region == last) return NULL;
        last = region;
        if (self->index < granted_of(region)) run_own_ranges(pool, region, self->index);
    }
}

/* ---- The caller ---- */

/* Waits until a thread is done with a range that it has claimed. If it takes long, another process may need the core. */
static void await_range(tu__thread_pool *pool, const slot *s, uint64_t sequence) {
    spin waiting = {0};
    while (atomic_load_explicit(&s->done, memory_order_acquire) != sequence) {
        if (spin_once(&waiting)) continue;
        atomic_store(&pool->caller_sleeps, 1);
        if (atomic_load(&s->done) != sequence) futex_wait(&pool->caller_sleeps, 1);
        atomic_store(&pool->caller_sleeps, 0);
    }
}

void tu__thread_pool_run(tu__thread_pool *pool, int ranges, void (*body)(void *context, int range),
                         void *context) {
    int granted = atomic_load_explicit(&pool->granted, memory_order_relaxed);
    if (granted <= 1 || ranges <= 1) {
        for (int range = 0; range < ranges; range++) body(context, range);
        return;
    }
    uint64_t sequence = ++pool->sequence;
    pool->body = body;
    pool->context = context;
    atomic_store(&pool->region, encode_region(sequence, granted, ranges));
    wake_threads_if_asleep(pool);
    run_own_ranges(pool, encode_region(sequence, granted, ranges), 0);
    for (int range = 1; range < ranges; range++) {
        slot *s = &pool->slots[range];
        if (!claim(s, sequence)) continue;
        body(context, range);
        atomic_store_explicit(&s->done, sequence, memory_order_relaxed);
    }
    for (int range = 1; range < ranges; range++) await_range(pool, &pool->slots[range], sequence);
}

void tu__thread_pool_begin(tu__thread_pool *pool) {
    int granted = take_cores(pool->threads), before = atomic_exchange(&pool->granted, granted);
    if (granted > before)
        wake_threads(pool);
    else if (granted > 1)
        wake_threads_if_asleep(pool);
}

void tu__thread_pool_end(tu__thread_pool *pool) {
    atomic_fetch_sub(&cores_in_use, atomic_load_explicit(&pool->granted, memory_order_relaxed));
}

int tu__thread_pool_threads(const tu__thread_pool *pool) {
    return pool->threads;
}

/* ---- Creation ---- */

static tu_status start_threads(tu__thread_pool *pool) {
    int error = 0;
    for (int i = 1; i < pool->threads && !error; i++) {
        pool->members[i] = (pool_thread){.pool = pool, .index = i};
        error = tu__start_thread(&pool->members[i].thread, work, &pool->members[i]);
        if (!error) {
            pthread_setname_np(pool->members[i].thread, "tutti-loop");
            pool->started++;
        }
    }
    if (!error) return TU_OK;
    return tu_fail(
        TU_NO_MEMORY,
        "cannot start thread %d of %d for parallel loops: the system's limit of threads or memory is reached; "
        "use fewer threads or sessions",
        pool->started + 2, pool->threads);
}

tu_status tu__thread_pool_new(int threads, tu__thread_pool **pool) {
    if (threads < 1 || threads > TU__THREAD_POOL_MAX)
        return tu_fail(TU_INVALID, "a pool of %d threads: expected 1 to %d", threads, TU__THREAD_POOL_MAX);
    pthread_once(&once, prepare_cores);
    size_t count = (size_t)threads, bytes = sizeof(tu__thread_pool) + count * sizeof(slot);
    tu__thread_pool *p = tu__alloc_aligned(bytes, "a thread pool");
    if (!p) return TU_NO_MEMORY;
    *p = (tu__thread_pool){.threads = threads, .process = getpid(), .slots = (slot *)(void *)(p + 1)};
    for (size_t i = 0; i < count; i++) p->slots[i] = (slot){0};
    atomic_store(&p->granted, threads); /* the threads spin at first, then sleep */
    p->members = tu__alloc_array(count, sizeof *p->members, "a thread pool");
    tu_status status = p->members ? start_threads(p) : TU_NO_MEMORY;
    if (status == TU_OK)
        *pool = p;
    else
        tu__thread_pool_free(p);
    return status;
}

void tu__thread_pool_free(tu__thread_pool *pool) {
    if (!pool) return;
    atomic_store(&pool->stop, true);
    for (int i = 1; i <= pool->started && pool->process == getpid(); i++) {
        atomic_store(&pool->slots[i].is_asleep, 0);
        futex_wake(&pool->slots[i].is_asleep, 1);
        pthread_join(pool->members[i].thread, NULL);
    }
    tu__free(pool->members);
    tu__free_aligned(pool);
}
