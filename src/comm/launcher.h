/* What the launcher, mpirun or srun, tells a process before it has joined the others. */
#ifndef TU__COMM_LAUNCHER_H
#define TU__COMM_LAUNCHER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tu__launch {
    uint32_t rank, size; /* 0 of 1: not launched as one of several */
    const char *launcher;
    bool connects; /* offers what MPI needs to connect the processes */
} tu__launch;

tu__launch tu__launch_read(void);

#endif
