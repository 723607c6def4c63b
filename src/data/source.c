/* Data sets from a program: a description and a callback that reads one image, or one sample of columns.
 *
 * A sample of the images is read at once: it provides the means, reveals invalid labels and pixels before a run
 * starts, and its digest distinguishes two sources with the same name. */
#include <math.h>
#include <stddef.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "data/dataset.h"
#include "data/statistics.h"
#include "graph/graph.h"

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

/* ---- Columns ---- */

/* Hashes all columns of up to SAMPLE_IMAGES training samples: the digest distinguishes two sources with one name. */
static tu_status hash_sample(const tu_dataset *dataset, unsigned char *bytes, tu__sha256 *hash) {
    const tu__columns *columns = &dataset->columns;
    int64_t indices = tu__dataset_indices(dataset, TU_TRAIN),
            sample = indices < SAMPLE_IMAGES ? indices : SAMPLE_IMAGES;
    size_t size = tu__sample_bytes(columns);
    void *elements[TU_MAX_COLUMNS];
    for (size_t c = 0, at = 0; c < columns->count; c++) {
        elements[c] = bytes + at;
        at += (columns->column[c].bytes + 15) / 16 * 16;
    }
    for (int64_t i = 0; i < sample; i++) {
        int64_t index = i * (indices / sample) + i * (indices % sample) / sample;
        TU_TRY(tu_dataset_read_columns(dataset, TU_TRAIN, index, elements));
        for (size_t c = 0; c < columns->count; c++)
            tu__sha256_update(hash, elements[c], columns->column[c].bytes);
    }
    tu__sha256_update(hash, &size, sizeof size);
    return TU_OK;
}

static tu_status compute_digest(tu_dataset *dataset) {
    unsigned char digest[TU__SHA256_BYTES];
    char hex[TU__SHA256_HEX];
    tu__sha256 hash;
    tu__sha256_init(&hash);
    unsigned char *bytes =
        tu__alloc_aligned(tu__sample_bytes(&dataset->columns) + (size_t)16 * TU_MAX_COLUMNS, "a sample");
    if (!bytes) return TU_NO_MEMORY;
    tu_status status = hash_sample(dataset, bytes, &hash);
    tu__free_aligned(bytes);
    TU_TRY(status);
    tu__sha256_final(&hash, digest);
    tu__sha256_hex(digest, hex);
    dataset->info.digest = tu__arena_string(&dataset->arena, hex);
    return dataset->info.digest ? TU_OK : TU_NO_MEMORY;
}

static tu_status copy_columns(const tu_source *source, const char *name, tu__columns *columns) {
    if (source->column_count > TU_MAX_COLUMNS || !source->read_columns)
        return tu_fail(
            TU_INVALID, "data source '%s': %zu columns%s: expected 1 to %d, and a function .read_columns",
            name, source->column_count, source->read_columns ? "" : " and no .read_columns", TU_MAX_COLUMNS);
    *columns = (tu__columns){.count = source->column_count};
    for (size_t i = 0; i < source->column_count; i++) {
        tu_column c = {0};
        tu__copy_options(&c, sizeof c, &source->columns[i]);
        columns->column[i] = (tu__column){
            .name = c.name, .kind = c.kind, .type = c.type, .is_target = c.is_target, .classes = c.classes};
    }
    return TU_OK;
}

static tu_status open_columns(const tu_source *source, tu_dataset **dataset) {
    tu__columns columns;
    const char *name = source->name ? source->name : "source";
    TU_TRY(copy_columns(source, name, &columns));
    const tu__column *target = tu__columns_target(&columns);
    bool has_classes = target && target->kind == TU_COLUMN_CLASS;
    tu_dataset_info info = {.name = name,
                            .origin = "functions of the program",
                            .count = {source->count[0], source->count[1]},
                            .dtype = columns.column[0].type.dtype,
                            .classes = has_classes ? target->classes : 0,
                            .class_names = has_classes ? source->class_names : NULL,
                            .validation = source->validation};
    tu_dataset *created;
    TU_TRY(tu__dataset_new_columns(&info, &columns, NULL, source->read_columns, NULL, source->context,
                                   &created));
    tu_status status = compute_digest(created);
    if (status != TU_OK) {
        tu_dataset_free(created);
        return status;
    }
    created->sampled = true;
    created->close = source->close;
    *dataset = created;
    return TU_OK;
}

/* Copies the fields that the program's version of the structure has. */
static tu_source copy_source(const tu_source *given) {
    tu_source source = {0};
    tu__copy_options(&source, sizeof source, given);
    return source;
}

tu_status tu_dataset_from(const tu_source *given, tu_dataset **dataset) {
    if (!given || given->struct_size < TU__FIRST_SIZE(tu_source, validation))
        return tu_fail(TU_INVALID, "data source: struct_size is %zu, expected sizeof(tu_source), %zu",
                       given ? given->struct_size : 0, sizeof *given);
    const tu_source copy = copy_source(given), *source = &copy;
    if (source->columns) return open_columns(source, dataset);
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
