/* Saves an image of a data set as a PNG file, for viewing or for tu_predict.
 *
 * u8 pixels are written unchanged. f32 pixels have no fixed range, so the image is rescaled: its smallest pixel
 * becomes black and its largest white, over all channels. Non-finite pixels become black. */
#include <math.h>

#include "base/alloc.h"
#include "base/save.h"
#include "data/dataset.h"
#include "io/image.h"

static uint8_t rescale(float value, float low, float high) {
    if (!isfinite(value) || !(high > low)) return 0;
    return (uint8_t)lround(255.0 * ((double)value - (double)low) / ((double)high - (double)low));
}

static void rescale_image(const float *values, size_t count, uint8_t *pixels) {
    float low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) continue;
        if (values[i] < low) low = values[i];
        if (values[i] > high) high = values[i];
    }
    for (size_t i = 0; i < count; i++) pixels[i] = rescale(values[i], low, high);
}

/* Reads one image and converts it to bytes, which are stored after the original pixels. The caller frees `*stored`
 * with tu__free_aligned. */
static tu_status read_pixels(const tu_dataset *dataset, tu_split split, int64_t index, void **stored,
                             uint8_t **pixels) {
    size_t count = dataset->image_bytes / tu_dtype_size(dataset->info.dtype);
    bool is_f32 = dataset->info.dtype == TU_F32;
    int32_t label;
    *stored = tu__alloc_aligned(dataset->image_bytes + (is_f32 ? count : 0), "an image");
    if (!*stored) return TU_NO_MEMORY;
    *pixels = is_f32 ? (uint8_t *)*stored + dataset->image_bytes : *stored;
    TU_TRY(tu_dataset_read(dataset, split, index, *stored, &label));
    if (is_f32) rescale_image(*stored, count, *pixels);
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

tu_status tu_dataset_save_image(const tu_dataset *dataset, tu_split split, int64_t index, const char *path) {
    const tu_dataset_info *info = &dataset->info;
    void *stored = NULL;
    uint8_t *pixels = NULL;
    if (info->channels != 1 && info->channels != 3)
        return tu_fail(TU_UNSUPPORTED,
                       "data set '%s': cannot save images with %lld channels: expected 1 or 3", info->name,
                       (long long)info->channels);
    tu_status status = read_pixels(dataset, split, index, &stored, &pixels);
    if (status == TU_OK)
        status = write_png(path, &(tu__image){.height = info->height,
                                              .width = info->width,
                                              .channels = info->channels,
                                              .pixels = pixels});
    tu__free_aligned(stored);
    return status;
}
