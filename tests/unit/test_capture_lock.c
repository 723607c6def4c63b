/* Tests the lock between captures and calls that synchronise a context: captures run at the same time, such a call runs
 * alone, and a thread never waits for itself. */
#include "test.h"

#include <semaphore.h>
#include <stdbool.h>

#include "device/cuda/runtime/capture_lock.c" /* NOLINT(bugprone-suspicious-include): the plug-in is not linked here */

static void *capture_in_thread(void *unused) {
    (void)unused;
    cuda_capture_lock();
    cuda_capture_unlock();
    return NULL;
}

static void captures_run_at_the_same_time(void **unused) {
    (void)unused;
    pthread_t thread;
    cuda_capture_lock();
    assert_int_equal(pthread_create(&thread, NULL, capture_in_thread, NULL), 0);
    pthread_join(thread, NULL);
    cuda_capture_unlock();
}

typedef struct rival {
    void (*lock)(void);
    void (*unlock)(void);
    sem_t started;
    bool is_excluded; /* by the other thread */
    bool overlapped;
} rival;

static void *enter_in_thread(void *argument) {
    rival *r = argument;
    sem_post(&r->started);
    r->lock();
    r->overlapped = r->is_excluded;
    r->unlock();
    return NULL;
}

/* Starts the rival while this thread is in a section that excludes it. */
static void expect_exclusion(void (*lock)(void), void (*unlock)(void), rival *r) {
    pthread_t thread;
    sem_init(&r->started, 0, 0);
    lock();
    r->is_excluded = true;
    assert_int_equal(pthread_create(&thread, NULL, enter_in_thread, r), 0);
    sem_wait(&r->started);
    r->is_excluded = false;
    unlock();
    pthread_join(thread, NULL);
    sem_destroy(&r->started);
    assert_false(r->overlapped);
}

static void a_call_that_synchronises_runs_alone(void **unused) {
    (void)unused;
    rival capture = {.lock = cuda_capture_lock, .unlock = cuda_capture_unlock},
          synchronises = {.lock = cuda_sync_lock, .unlock = cuda_sync_unlock}, other = synchronises;
    for (int i = 0; i < 100; i++) {
        expect_exclusion(cuda_capture_lock, cuda_capture_unlock, &synchronises);
        expect_exclusion(cuda_sync_lock, cuda_sync_unlock, &capture);
        expect_exclusion(cuda_sync_lock, cuda_sync_unlock, &other);
    }
}

static void a_thread_does_not_wait_for_itself(void **unused) {
    (void)unused;
    cuda_sync_lock();
    cuda_sync_lock();
    cuda_capture_lock();
    cuda_capture_unlock();
    cuda_sync_unlock();
    cuda_sync_unlock();
    cuda_capture_lock();
    cuda_sync_lock();
    cuda_capture_lock();
    cuda_capture_unlock();
    cuda_sync_unlock();
    cuda_capture_unlock();
    rival synchronises = {.lock = cuda_sync_lock, .unlock = cuda_sync_unlock}; /* nothing is left locked */
    expect_exclusion(cuda_capture_lock, cuda_capture_unlock, &synchronises);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captures_run_at_the_same_time),
        cmocka_unit_test(a_call_that_synchronises_runs_alone),
        cmocka_unit_test(a_thread_does_not_wait_for_itself),
    };
    return cmocka_run_group_tests_name("capture_lock", tests, NULL, NULL);
}
