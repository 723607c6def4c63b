/* Shared by tests on the emulated GPU: its settings, and its live objects. */
#ifndef TESTS_CUDA_EMULATED_H
#define TESTS_CUDA_EMULATED_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Must be called before devices are listed. FAKE_CUDA is the folder of the fake libraries, defined by the build. */
static inline void use_emulated_gpu(void) {
    setenv("TUTTI_CUDA_LIBRARIES", FAKE_CUDA, 1);
    setenv("TUTTI_KERNELS", "", 1); /* the fake NVRTC has a separate cache */
    unsetenv("TUTTI_CUDA");
    unsetenv("TUTTI_DEVICES");
    unsetenv("FAKE_CUDA_FAIL");
}

/* Uses the machine's real GPU if the test is called as "test_NAME real", else the emulated one. Returns true for a
 * real GPU. */
static inline bool use_real_gpu(int argc, char **argv) {
    bool is_real = argc > 1 && strcmp(argv[1], "real") == 0;
    if (!is_real) use_emulated_gpu();
    return is_real;
}

/* Counts and names the live objects of the driver and the libraries; 0 before the driver is loaded. */
static inline size_t emulated_live(char *text, size_t capacity) {
    void *driver = dlopen(FAKE_CUDA "/libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    size_t (*live)(char *, size_t) = NULL;
    *text = '\0';
    if (driver) *(void **)&live = dlsym(driver, "fake_cuda_live");
    return live ? live(text, capacity) : 0;
}

/* Returns the used bytes of the first GPU's memory; 0 before the driver is loaded. */
static inline size_t emulated_used(void) {
    void *driver = dlopen(FAKE_CUDA "/libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    size_t (*used)(int) = NULL;
    if (driver) *(void **)&used = dlsym(driver, "fake_cuda_used");
    return used ? used(0) : 0;
}

#endif
