/* Runs a grid of blocks of threads on one thread of the host. */
#ifndef FAKE_CUDA_GRID_H
#define FAKE_CUDA_GRID_H

#include <cstddef>
#include <cstdint>

struct point {
    unsigned x, y, z;
};

/* emulated_device.cuh has the same structure. */
struct emulated_state {
    point thread, block, block_size, grid_size;
    void *shared;
    void (*barrier)(int line);
    unsigned long long (*exchange)(unsigned mask, unsigned long long value, int source, int line);
    unsigned (*vote)(unsigned mask, int value, int line);
};

/* A kernel, as described by its library. */
struct emulated_kernel {
    const char *name;
    emulated_state *state;
    void (*run)(void **parameters);
    char *statics, *statics_end; /* memory of its __shared__ variables */
};

/* Runs all blocks, one after another. Errors that a real GPU would answer with a hang or wrong results (lanes that
 * wait forever, barriers in different lines, writes past the end of shared memory) end the process with a line that
 * says where. */
void run_grid(const emulated_kernel &kernel, point blocks, point threads, size_t shared_bytes,
              void **parameters);

#endif
