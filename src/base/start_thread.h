/* Starts threads of the library, which take no signals: the program's handlers run in the program's own threads, where
 * they find no lock of the library held. */
#ifndef TU__BASE_START_THREAD_H
#define TU__BASE_START_THREAD_H

#include <pthread.h>

#include "base/shared.h"

/* Like pthread_create with default attributes: returns 0 or an error number. */
TU__SHARED int tu__start_thread(pthread_t *thread, void *(*work)(void *argument), void *argument);

#endif
