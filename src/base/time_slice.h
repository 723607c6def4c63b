/* Threads that wake up often and do little each time. */
#ifndef TU__BASE_TIME_SLICE_H
#define TU__BASE_TIME_SLICE_H

/* Asks the scheduler for time slices of 0.1 ms for the calling thread. Since Linux 6.12 a thread with shorter slices
 * than the one that has its core gets the core as soon as it wakes up; otherwise it may wait for the rest of a slice,
 * 1 to 3 ms. Its share of the time stays the same. Older kernels ignore it. */
void tu__request_short_time_slices(void);

#endif
