/* Data sets from a program: a description and a callback that reads one image.
 *
 * A sample of the images is read at once: it provides the means, reveals invalid labels and pixels before a run
 * starts, and its digest distinguishes two sources with the same name. */
#include <math.h>
#include <stddef.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "data/dataset.h"
#include "data/statistics.h"

enum { SAMPLE_IMAGES = 10000 };

static tu_status check_pixels(const tu_dataset *dataset, int64_t index, const void *image) {
    const float *pixels = image;
    if (dataset->info.dtype != TU_F32) return TU_OK;
    for (size_t i = 0; i < dataset->image_bytes / sizeof *pixels; i++)
        if (!isfinite(pixels[i]))
            return tu_fail(
                TU_INVALID,
                "data source '%s': training image %lld has a pixel that is %g: expected finite numbers",
                dataset->info.name, (long long)index, (double)pixels[i]);
    return TU_OK;
}

/* Reads up to SAMPLE_IMAGES training images, evenly spread, because data sets are often sorted by class. */
static tu_status read_sample(tu_dataset *dataset, void *image, tu__statistics *statistics) {
    int64_t count = dataset->info.count[TU_TRAIN], sample = count < SAMPLE_IMAGES ? count : SAMPLE_IMAGES;
    for (int64_t i = 0; i < sample; i++) {
        int32_t label;
        int64_t index = i * (count / sample) + i * (count % sample) / sample;
        TU_TRY(tu_dataset_read(dataset, TU_TRAIN, index, image, &label));
        TU_TRY(check_pixels(dataset, index, image));
        tu__statistics_image(statistics, TU_TRAIN, image);
        tu__statistics_labels(statistics, &label, 1);
    }
    return TU_OK;
}

static tu_status compute_statistics(tu_dataset *dataset) {
    char digest[TU__SHA256_HEX];
    tu__statistics statistics;
    void *image = tu__alloc_aligned(dataset->image_bytes, "an image");
    if (!image) return TU_NO_MEMORY;
    tu__statistics_begin(&statistics, &dataset->info);
    tu_status status = read_sample(dataset, image, &statistics);
    tu__free_aligned(image);
    TU_TRY(status);
    tu__statistics_end(&statistics, &dataset->info, digest);
    dataset->info.digest = tu__arena_string(&dataset->arena, digest);
    return dataset->info.digest ? TU_OK : TU_NO_MEMORY;
}

tu_status tu_dataset_from(const tu_source *source, tu_dataset **dataset) {
    if (!source || source->struct_size < TU__FIRST_SIZE(tu_source, validation))
        return tu_fail(TU_INVALID, "data source: struct_size is %zu, expected sizeof(tu_source), %zu",
                       source ? source->struct_size : 0, sizeof *source);
    if (!source->read)
        return tu_fail(TU_INVALID, "data source '%s': .read is NULL: expected a function",
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
    tu_dataset *created;
    TU_TRY(tu__dataset_new(&info, source->read, NULL, source->context, &created));
    tu_status status = compute_statistics(created);
    if (status != TU_OK) {
        tu_dataset_free(created);
        return status;
    }
    created->sampled = true;
    created->close = source->close; /* from here on the data set owns the source */
    *dataset = created;
    return TU_OK;
}
