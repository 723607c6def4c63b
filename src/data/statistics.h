/* Statistics of a data set: mean and standard deviation of each channel, and one digest of all images and labels.
 *
 * Images and labels are added one after another. Bytes are summed in integers, so the result is bit-identical for the
 * same images. The digest covers, in this order: a line that describes the data set ("tutti data 1: u8 32x32x3, 10
 * classes, 50000 + 10000 images\n"), all training images, all test images, all training labels, all test labels (i32,
 * little-endian). docs/data.md documents it, so that anybody can compute it. */
#ifndef TU__DATA_STATISTICS_H
#define TU__DATA_STATISTICS_H

#include <tutti/data.h>

#include "base/sha256.h"

typedef struct tu__statistics {
    tu_dtype dtype;
    int64_t channels;
    int64_t pixels; /* pixels per image */
    int64_t images; /* training images added so far */
    /* Per channel: sums of the elements and of their squares; of u8 images, and of f32 images. */
    uint64_t sum[TU_MAX_CHANNELS], squares[TU_MAX_CHANNELS];
    double f32_sum[TU_MAX_CHANNELS], f32_squares[TU_MAX_CHANNELS];
    tu__sha256 hash;
} tu__statistics;

void tu__statistics_begin(tu__statistics *statistics, const tu_dataset_info *info);
/* Adds an image. Training images come first; only they count in mean and standard deviation. */
void tu__statistics_image(tu__statistics *statistics, tu_split split, const void *image);
void tu__statistics_labels(tu__statistics *statistics, const int32_t *labels, int64_t count);
/* Sets mean and standard deviation in `info`, and `digest` as hexadecimal text. */
void tu__statistics_end(tu__statistics *statistics, tu_dataset_info *info, char digest[TU__SHA256_HEX]);

#endif
