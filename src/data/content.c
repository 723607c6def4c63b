/* Sums and the digest over all images of a set. See content.h. */
#include "data/content.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void tu__content_begin(tu__content *content, const tu_dataset_info *info) {
    *content =
        (tu__content){.dtype = info->dtype, .channels = info->channels, .pixels = info->height * info->width};
    tu__sha256_init(&content->hash);
    char line[256];
    int length =
        snprintf(line, sizeof line, "tutti data 1: %s %lldx%lldx%lld, %lld classes, %lld + %lld images\n",
                 tu_dtype_name(info->dtype), (long long)info->height, (long long)info->width,
                 (long long)info->channels, (long long)info->classes, (long long)info->count[TU_TRAIN],
                 (long long)info->count[TU_TEST]);
    tu__sha256_update(&content->hash, line, (size_t)length);
}

static void add_bytes(tu__content *content, const uint8_t *image) {
    for (int64_t c = 0; c < content->channels; c++) {
        uint64_t sum = 0, squares = 0;
        for (int64_t i = c; i < content->pixels * content->channels; i += content->channels) {
            sum += image[i];
            squares += (uint64_t)image[i] * image[i];
        }
        content->sum[c] += sum;
        content->squares[c] += squares;
    }
}

static void add_floats(tu__content *content, const float *image) {
    for (int64_t c = 0; c < content->channels; c++) {
        double sum = 0, squares = 0;
        for (int64_t i = c; i < content->pixels * content->channels; i += content->channels) {
            sum += image[i];
            squares += (double)image[i] * image[i];
        }
        content->f32_sum[c] += sum;
        content->f32_squares[c] += squares;
    }
}

void tu__content_image(tu__content *content, tu_split split, const void *image) {
    size_t bytes = (size_t)(content->pixels * content->channels) * tu_dtype_size(content->dtype);
    tu__sha256_update(&content->hash, image, bytes);
    if (split != TU_TRAIN) return;
    content->images++;
    if (content->dtype == TU_U8)
        add_bytes(content, image);
    else
        add_floats(content, image);
}

void tu__content_labels(tu__content *content, const int32_t *labels, int64_t count) {
    tu__sha256_update(&content->hash, labels, (size_t)count * sizeof *labels);
}

void tu__content_end(tu__content *content, tu_dataset_info *info, char digest[TU__SHA256_HEX]) {
    unsigned char bytes[TU__SHA256_BYTES];
    tu__sha256_final(&content->hash, bytes);
    tu__sha256_hex(bytes, digest);
    double count = (double)content->images * (double)content->pixels;
    for (int64_t c = 0; c < content->channels && content->images > 0; c++) {
        bool whole = content->dtype == TU_U8;
        double unit = whole ? 255 : 1;
        double mean = (whole ? (double)content->sum[c] : content->f32_sum[c]) / count;
        double squares = (whole ? (double)content->squares[c] : content->f32_squares[c]) / count;
        double variance = squares - mean * mean;
        info->mean[c] = mean / unit;
        info->deviation[c] = variance > 0 ? sqrt(variance) / unit : 0;
    }
}
