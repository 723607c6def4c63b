/* The lock of capture_lock.h: a read-write lock, whose readers capture. One for all GPUs, because a graph may be captured
 * from streams of several. A call that waits for captures goes before later ones, or it might wait forever. */
#include "device/cuda/runtime/capture_lock.h"

#include <pthread.h>

static pthread_rwlock_t captures = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static _Thread_local unsigned sections; /* that this thread is in */

void cuda_capture_lock(void) {
    if (sections++ == 0) pthread_rwlock_rdlock(&captures);
}

void cuda_capture_unlock(void) {
    if (--sections == 0) pthread_rwlock_unlock(&captures);
}

void cuda_sync_lock(void) {
    if (sections++ == 0) pthread_rwlock_wrlock(&captures);
}

void cuda_sync_unlock(void) {
    if (--sections == 0) pthread_rwlock_unlock(&captures);
}
