/* Counts the devices of a program that have a copy thread, which is started when it is first needed. */
#ifndef TUTTI_COUNT_COPY_THREADS_H
#define TUTTI_COUNT_COPY_THREADS_H

#include "run/program.h"

static inline size_t count_copy_threads(const tu_program *program) {
    size_t count = 0;
    for (size_t i = 0; i < program->device_count; i++)
        count += program->devices[i]->shared.copy_thread != NULL;
    return count;
}

#endif
