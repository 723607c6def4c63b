/* What a set's images say as a whole: mean and deviation of each channel, and one digest.
 *
 * Images and labels are added one after the other. Bytes are summed in integers, so that the same images give the
 * same bits whatever they came from. The digest covers, in this order: a line that describes the set ("tutti data 1:
 * u8 32x32x3, 10 classes, 50000 + 10000 images\n"), all training images, all test images, all training labels, all test
 * labels (i32, little-endian). docs/data.md says the same, so that anybody can compute it. */
#ifndef TU__DATA_CONTENT_H
#define TU__DATA_CONTENT_H

#include <tutti/data.h>

#include "base/sha256.h"

typedef struct tu__content {
    tu_dtype dtype;
    int64_t channels;
    int64_t pixels; /* of an image, a channel */
    int64_t images; /* training images counted so far */
    uint64_t sum[TU_MAX_CHANNELS], squares[TU_MAX_CHANNELS];
    double f32_sum[TU_MAX_CHANNELS], f32_squares[TU_MAX_CHANNELS];
    tu__sha256 hash;
} tu__content;

void tu__content_begin(tu__content *content, const tu_dataset_info *info);
/* Training images first; only they count for mean and deviation. */
void tu__content_image(tu__content *content, tu_split split, const void *image);
void tu__content_labels(tu__content *content, const int32_t *labels, int64_t count);
/* Fills mean and deviation, and the digest's hexadecimal digits. */
void tu__content_end(tu__content *content, tu_dataset_info *info, char digest[TU__SHA256_HEX]);

#endif
