/* What tests on the emulated card share: its settings, and what it says is still alive. */
#ifndef TESTS_CUDA_EMULATED_H
#define TESTS_CUDA_EMULATED_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* To be called before anything asks for devices. FAKE_CUDA is the folder of the stand-ins, given by the build. */
static inline void use_emulated_card(void) {
    setenv("TUTTI_CUDA_LIBRARIES", FAKE_CUDA, 1);
    setenv("TUTTI_KERNELS", "", 1); /* the stand-in of NVRTC keeps its own */
    unsetenv("TUTTI_CUDA");
    unsetenv("TUTTI_DEVICES");
    unsetenv("TUTTI_CUDA_FAIL");
}

/* "test_NAME card": on the machine's own card, in so far as a test does without what only the emulated one has. */
static inline bool use_own_card(int argc, char **argv) {
    bool own = argc > 1 && strcmp(argv[1], "card") == 0;
    if (!own) use_emulated_card();
    return own;
}

/* How many objects of the driver and the libraries are alive, and which; 0 before the driver is loaded. */
static inline size_t emulated_live(char *text, size_t capacity) {
    void *driver = dlopen(FAKE_CUDA "/libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    size_t (*live)(char *, size_t) = NULL;
    *text = '\0';
    if (driver) *(void **)&live = dlsym(driver, "fake_cuda_live");
    return live ? live(text, capacity) : 0;
}

/* Bytes of the first card's memory that are taken; 0 before the driver is loaded. */
static inline size_t emulated_used(void) {
    void *driver = dlopen(FAKE_CUDA "/libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    size_t (*used)(int) = NULL;
    if (driver) *(void **)&used = dlsym(driver, "fake_cuda_used");
    return used ? used(0) : 0;
}

#endif
