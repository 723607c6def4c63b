/* Embeds the source text of the kernels in the library. NVRTC compiles it on the user's machine. */
#include <string.h>

#include "device/cuda/runtime/cuda.h"

/* KERNEL_SOURCE_DIR is the source folder, defined by the build. The assembler includes each file, followed by a NUL. */
#define KERNEL_FILE(file, symbol)                                                                            \
    extern const char cuda_text_##symbol[];                                                                  \
    __asm__(".pushsection .rodata\n"                                                                         \
            ".hidden cuda_text_" #symbol "\n"                                                                \
            ".global cuda_text_" #symbol "\n"                                                                \
            "cuda_text_" #symbol ":\n"                                                                       \
            ".incbin \"" KERNEL_SOURCE_DIR "/" file "\"\n"                                                   \
            ".byte 0\n"                                                                                      \
            ".popsection\n");
#include "device/cuda/runtime/kernel_files.def"

static const struct source {
    const char *file, *text;
} sources[] = {
#define KERNEL_FILE(file, symbol) {file, cuda_text_##symbol},
#include "device/cuda/runtime/kernel_files.def"
};

const char *cuda_kernel_source(const char *file) {
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        if (strcmp(sources[i].file, file) == 0) return sources[i].text;
    return NULL;
}
