/* Starting threads without signals. See start_thread.h.
 *
 * The signals of a fault stay unblocked: a thread that faults while they are blocked is killed, even if there is a
 * handler, and map_file.c has one for SIGBUS. */
#include "base/start_thread.h"

#include <signal.h>
#include <stddef.h>

static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

int tu__start_thread(pthread_t *thread, void *(*work)(void *argument), void *argument) {
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before); /* a new thread inherits the mask */
    int error = pthread_create(thread, NULL, work, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
