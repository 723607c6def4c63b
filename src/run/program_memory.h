/* The memory of a program, for models that share it between programs. */
#ifndef TU__RUN_PROGRAM_MEMORY_H
#define TU__RUN_PROGRAM_MEMORY_H

#include <tutti/run.h>

typedef struct tu__program_bytes {
    uint64_t scratch, own_constants, shared_constants;
} tu__program_bytes;

/* Returns the sums over all devices of the program. */
tu__program_bytes tu__program_bytes_of(const tu_program *program);

#endif
