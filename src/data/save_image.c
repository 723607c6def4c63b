/* An image of a set as a PNG file: to look at, and to show to a trained network as a picture like any other.
 *
 * Bytes are written as they are. Numbers have no range of their own, so an image of f32 pixels is stretched: its
 * smallest pixel becomes black and its largest white, all channels alike. What is not finite is black. */
#include <math.h>

#include "base/alloc.h"
#include "base/save.h"
#include "data/dataset.h"
#include "io/image.h"

static uint8_t between(float value, float least, float most) {
    if (!isfinite(value) || !(most > least)) return 0;
    return (uint8_t)lround(255.0 * ((double)value - (double)least) / ((double)most - (double)least));
}

static void stretch(const float *values, size_t count, uint8_t *pixels) {
    float least = INFINITY, most = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) continue;
        if (values[i] < least) least = values[i];
        if (values[i] > most) most = values[i];
    }
    for (size_t i = 0; i < count; i++) pixels[i] = between(values[i], least, most);
}

/* The pixels of one image as bytes, behind the image as it is stored; freed with tu__free_aligned(*stored). */
static tu_status read_pixels(const tu_dataset *set, tu_split split, int64_t index, void **stored,
                             uint8_t **pixels) {
    size_t count = set->image_bytes / tu_dtype_size(set->info.dtype);
    bool numbers = set->info.dtype == TU_F32;
    int32_t label;
    *stored = tu__alloc_aligned(set->image_bytes + (numbers ? count : 0), "an image");
    if (!*stored) return TU_NO_MEMORY;
    *pixels = numbers ? (uint8_t *)*stored + set->image_bytes : *stored;
    TU_TRY(tu_dataset_read(set, split, index, *stored, &label));
    if (numbers) stretch(*stored, count, *pixels);
    return TU_OK;
}

static tu_status write_png(const char *path, const tu__image *image) {
    void *bytes;
    size_t size;
    TU_TRY(tu__image_encode_png(image, &bytes, &size));
    tu_status status = tu_file_save(path, bytes, size);
    tu__free(bytes);
    return status;
}

tu_status tu_dataset_save_image(const tu_dataset *set, tu_split split, int64_t index, const char *path) {
    const tu_dataset_info *info = &set->info;
    void *stored = NULL;
    uint8_t *pixels = NULL;
    if (info->channels != 1 && info->channels != 3)
        return tu_fail(TU_UNSUPPORTED,
                       "data set '%s': images of %lld channels are no pictures: expected 1 or 3", info->name,
                       (long long)info->channels);
    tu_status status = read_pixels(set, split, index, &stored, &pixels);
    if (status == TU_OK)
        status = write_png(path, &(tu__image){.height = info->height,
                                              .width = info->width,
                                              .channels = info->channels,
                                              .pixels = pixels});
    tu__free_aligned(stored);
    return status;
}
