/* Counts the devices of a program that have a copy thread, which is started when it is first needed. */
#ifndef TUTTI_COPIERS_H
#define TUTTI_COPIERS_H

#include "run/program.h"

static inline size_t count_copiers(const tu_program *program) {
    size_t count = 0;
    for (size_t i = 0; i < program->device_count; i++) count += program->devices[i]->copier != NULL;
    return count;
}

#endif
