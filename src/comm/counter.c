/* Counters in memory that several processes share, with Linux's futex calls. See counter.h. */
#include "comm/counter.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void tu__counter_set(tu__counter *counter, uint32_t value) {
    /* Sequentially consistent, like the operations in tu__counter_sleep: either this thread sees the sleeper, or the
     * sleeper sees the value. */
    atomic_exchange(&counter->value, value);
    if (atomic_load(&counter->sleepers))
        syscall(SYS_futex, &counter->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void tu__counter_sleep(tu__counter *counter, uint32_t value, double seconds) {
    const struct timespec duration = {.tv_nsec = (long)(1e9 * seconds)};
    atomic_fetch_add(&counter->sleepers, 1);
    uint32_t seen = atomic_load(&counter->value);
    if ((int32_t)(seen - value) < 0)
        syscall(SYS_futex, &counter->value, FUTEX_WAIT, seen, &duration, NULL, 0);
    atomic_fetch_sub(&counter->sleepers, 1);
}
