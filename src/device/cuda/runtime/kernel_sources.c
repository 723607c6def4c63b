/* Embeds the source text of the kernels in the library. NVRTC compiles it on the user's machine. */
#include <string.h>

#include "device/cuda/runtime/cuda.h"

/* KERNELS is the source folder, defined by the build. The assembler includes each file, followed by a NUL. */
#define KERNEL_FILE(file, symbol)                                                                            \
    extern const char cuda_text_##symbol[];                                                                  \
    __asm__(".pushsection .rodata\n"                                                                         \
            ".hidden cuda_text_" #symbol "\n"                                                                \
            ".global cuda_text_" #symbol "\n"                                                                \
            "cuda_text_" #symbol ":\n"                                                                       \
            ".incbin \"" KERNELS "/" file "\"\n"                                                             \
            ".byte 0\n"                                                                                      \
            ".popsection\n");
#include "device/cuda/runtime/kernel_files.def"

static const struct unit {
    const char *file, *text;
} units[] = {
#define KERNEL_FILE(file, symbol) {file, cuda_text_##symbol},
#include "device/cuda/runtime/kernel_files.def"
};

const char *cuda_kernel_source(const char *file) {
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(units[i].file, file) == 0) return units[i].text;
    return NULL;
}
