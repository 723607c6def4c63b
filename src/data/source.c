/* Sets of the program's own: a description and a function that reads one image.
 *
 * Nothing is known about such a source but what it says, so a sample of it is read at once: it gives the means, shows
 * wrong labels and pixels before a run begins, and its digest tells two sources of one name apart. */
#include <math.h>
#include <stddef.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "data/content.h"
#include "data/dataset.h"

enum { SAMPLE = 10000 };

static tu_status check_pixels(const tu_dataset *set, int64_t index, const void *image) {
    const float *pixels = image;
    if (set->info.dtype != TU_F32) return TU_OK;
    for (size_t i = 0; i < set->image_bytes / sizeof *pixels; i++)
        if (!isfinite(pixels[i]))
            return tu_fail(TU_INVALID,
                           "data source '%s': training image %lld has a pixel that is %g: expected numbers",
                           set->info.name, (long long)index, (double)pixels[i]);
    return TU_OK;
}

/* Reads up to SAMPLE training images, evenly spread: sets are often sorted by class. */
static tu_status look_at(tu_dataset *set, void *image, tu__content *content) {
    int64_t count = set->info.count[TU_TRAIN], sample = count < SAMPLE ? count : SAMPLE;
    for (int64_t i = 0; i < sample; i++) {
        int32_t label;
        int64_t index = i * (count / sample) + i * (count % sample) / sample;
        TU_TRY(tu_dataset_read(set, TU_TRAIN, index, image, &label));
        TU_TRY(check_pixels(set, index, image));
        tu__content_image(content, TU_TRAIN, image);
        tu__content_labels(content, &label, 1);
    }
    return TU_OK;
}

static tu_status take_statistics(tu_dataset *set) {
    char digest[TU__SHA256_HEX];
    tu__content content;
    void *image = tu__alloc_aligned(set->image_bytes, "an image");
    if (!image) return TU_NO_MEMORY;
    tu__content_begin(&content, &set->info);
    tu_status status = look_at(set, image, &content);
    tu__free_aligned(image);
    TU_TRY(status);
    tu__content_end(&content, &set->info, digest);
    set->info.digest = tu__arena_string(&set->arena, digest);
    return set->info.digest ? TU_OK : TU_NO_MEMORY;
}

tu_status tu_dataset_from(const tu_source *source, tu_dataset **set) {
    if (!source || source->struct_size < TU__FIRST_SIZE(tu_source, validation))
        return tu_fail(TU_INVALID, "data source: struct_size is %zu, expected sizeof(tu_source), %zu",
                       source ? source->struct_size : 0, sizeof *source);
    if (!source->read)
        return tu_fail(TU_INVALID, "data source '%s': it has no function 'read': expected one",
                       source->name ? source->name : "");
    tu_dataset_info info = {.name = source->name ? source->name : "source",
                            .origin = "functions of the program",
                            .count = {source->count[0], source->count[1]},
                            .height = source->height,
                            .width = source->width,
                            .channels = source->channels,
                            .dtype = source->dtype,
                            .classes = source->classes,
                            .class_names = source->class_names,
                            .validation = source->validation};
    tu_dataset *made;
    TU_TRY(tu__dataset_new(&info, source->read, NULL, source->context, &made));
    tu_status status = take_statistics(made);
    if (status != TU_OK) {
        tu_dataset_free(made);
        return status;
    }
    made->sampled = true;
    made->close = source->close; /* from here on the source is the set's */
    *set = made;
    return TU_OK;
}
