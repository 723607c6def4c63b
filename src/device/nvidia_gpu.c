/* Detects an NVIDIA GPU that cannot be used.
 *
 * "all" then selects the CPU, and training takes many times as long, so the user should learn why the GPU is not
 * used. Usually the CUDA plug-in reports that. If it was not built or cannot be loaded, this file provides a kind
 * "gpu" with one device that cannot be used and reports the reason, for `tutti devices` and `--devices gpu`. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"

bool tu__find_nvidia_gpu_in(const char *root, size_t capacity, char *path) {
    static const char *const paths[] = {"/dev/nvidia[0-9]*", "/proc/driver/nvidia/gpus/*",
                                        "/usr/lib/wsl/lib/libcuda.so.1"}; /* the last one: WSL */
    bool found = false;
    for (size_t i = 0; i < sizeof paths / sizeof *paths && !found; i++) {
        char pattern[512];
        glob_t matches = {0};
        snprintf(pattern, sizeof pattern, "%s%s", root, paths[i]);
        found = glob(pattern, 0, NULL, &matches) == 0 && matches.gl_pathc > 0;
        if (found) snprintf(path, capacity, "%s", matches.gl_pathv[0]);
        globfree(&matches);
    }
    return found;
}

/* Users hide all GPUs from CUDA programs with "" or "-1". */
static bool gpus_are_hidden(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return visible && (!*visible || strcmp(visible, "-1") == 0);
}

bool tu__find_nvidia_gpu(size_t capacity, char *path) {
    return !gpus_are_hidden() && tu__find_nvidia_gpu_in("", capacity, path);
}

/* ---- The kind "gpu" without the CUDA plug-in ---- */

static char reason[900] = "libtutti_cuda.so was not found next to libtutti.so: it is built only if "
                          "the headers of CUDA 13 and cuDNN 9 are installed (docs/gpu.md)";

void tu__set_missing_cuda_reason(const char *why) {
    snprintf(reason, sizeof reason, "%s", why);
}

static tu_status describe(tu_device_instance *device, int index, tu_device_info *info) {
    (void)device;
    if (index > 0) return tu_fail(TU_NOT_FOUND, "there is no GPU gpu:%d", index);
    *info = (tu_device_info){.name = "gpu:0", .kind = "gpu", .description = "NVIDIA GPU", .unusable = reason};
    return TU_OK;
}

const tu_device_api tu__missing_cuda_api = {
    .abi = TU_DEVICE_ABI,
    .struct_size = sizeof(tu_device_api),
    .kind = "gpu",
    .accelerator = true,
    .describe = describe,
};
