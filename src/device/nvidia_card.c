/* A machine with an NVIDIA card that cannot be used.
 *
 * "all" then means the CPU, and a training there takes many times as long: whoever has a card should hear why it is idle.
 * Usually the CUDA device knows. Where the build has none, or it cannot be loaded, the kind "gpu" is this stand-in: it has
 * one device, which cannot be used and says why, so that `tutti devices` lists it and `--devices gpu` explains itself. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"

bool tu__nvidia_card_in(const char *root, size_t capacity, char *path) {
    static const char *const signs[] = {"/dev/nvidia[0-9]*", "/proc/driver/nvidia/gpus/*",
                                        "/usr/lib/wsl/lib/libcuda.so.1"}; /* the last: Linux under Windows */
    bool found = false;
    for (size_t i = 0; i < sizeof signs / sizeof *signs && !found; i++) {
        char pattern[512];
        glob_t matches = {0};
        snprintf(pattern, sizeof pattern, "%s%s", root, signs[i]);
        found = glob(pattern, 0, NULL, &matches) == 0 && matches.gl_pathc > 0;
        if (found) snprintf(path, capacity, "%s", matches.gl_pathv[0]);
        globfree(&matches);
    }
    return found;
}

/* "" and "-1" are how users hide all cards from CUDA programs. */
static bool cards_are_hidden(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return visible && (!*visible || strcmp(visible, "-1") == 0);
}

bool tu__nvidia_card(size_t capacity, char *path) {
    return !cards_are_hidden() && tu__nvidia_card_in("", capacity, path);
}

/* ---- The kind "gpu" without the CUDA device ---- */

static char reason[900] = "the CUDA device, libtutti_cuda.so, is not beside libtutti.so: it is built where "
                          "the headers of CUDA 13 and cuDNN 9 are found (docs/gpu.md)";

void tu__missing_cuda_because(const char *why) {
    snprintf(reason, sizeof reason, "%s", why);
}

static tu_status describe(int index, tu_device_info *info) {
    if (index > 0) return tu_fail(TU_NOT_FOUND, "there is no GPU gpu:%d", index);
    *info = (tu_device_info){.name = "gpu:0", .kind = "gpu", .description = "NVIDIA GPU", .unusable = reason};
    return TU_OK;
}

const tu_device_api tu__missing_cuda_api = {
    .abi = TU_DEVICE_ABI, .struct_size = sizeof(tu_device_api), .kind = "gpu", .describe = describe};
