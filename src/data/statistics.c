/* Statistics and digest of a data set. See statistics.h. */
#include "data/statistics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void tu__statistics_begin(tu__statistics *s, const tu_dataset_info *info) {
    *s = (tu__statistics){
        .dtype = info->dtype, .channels = info->channels, .pixels = info->height * info->width};
    tu__sha256_init(&s->hash);
    char line[256];
    int length =
        snprintf(line, sizeof line, "tutti data 1: %s %lldx%lldx%lld, %lld classes, %lld + %lld images\n",
                 tu_dtype_name(info->dtype), (long long)info->height, (long long)info->width,
                 (long long)info->channels, (long long)info->classes, (long long)info->count[TU_TRAIN],
                 (long long)info->count[TU_TEST]);
    tu__sha256_update(&s->hash, line, (size_t)length);
}

static void add_bytes(tu__statistics *s, const uint8_t *image) {
    for (int64_t c = 0; c < s->channels; c++) {
        uint64_t sum = 0, squares = 0;
        for (int64_t i = c; i < s->pixels * s->channels; i += s->channels) {
            sum += image[i];
            squares += (uint64_t)image[i] * image[i];
        }
        s->sum[c] += sum;
        s->squares[c] += squares;
    }
}

static void add_floats(tu__statistics *s, const float *image) {
    for (int64_t c = 0; c < s->channels; c++) {
        double sum = 0, squares = 0;
        for (int64_t i = c; i < s->pixels * s->channels; i += s->channels) {
            sum += image[i];
            squares += (double)image[i] * image[i];
        }
        s->f32_sum[c] += sum;
        s->f32_squares[c] += squares;
    }
}

void tu__statistics_image(tu__statistics *s, tu_split split, const void *image) {
    size_t bytes = (size_t)(s->pixels * s->channels) * tu_dtype_size(s->dtype);
    tu__sha256_update(&s->hash, image, bytes);
    if (split != TU_TRAIN) return;
    s->images++;
    if (s->dtype == TU_U8)
        add_bytes(s, image);
    else
        add_floats(s, image);
}

void tu__statistics_labels(tu__statistics *s, const int32_t *labels, int64_t count) {
    tu__sha256_update(&s->hash, labels, (size_t)count * sizeof *labels);
}

void tu__statistics_end(tu__statistics *s, tu_dataset_info *info, char digest[TU__SHA256_HEX]) {
    unsigned char bytes[TU__SHA256_BYTES];
    tu__sha256_final(&s->hash, bytes);
    tu__sha256_hex(bytes, digest);
    double count = (double)s->images * (double)s->pixels;
    for (int64_t c = 0; c < s->channels && s->images > 0; c++) {
        bool is_u8 = s->dtype == TU_U8;
        double unit = is_u8 ? 255 : 1;
        double mean = (is_u8 ? (double)s->sum[c] : s->f32_sum[c]) / count;
        double squares = (is_u8 ? (double)s->squares[c] : s->f32_squares[c]) / count;
        double variance = squares - mean * mean;
        info->mean[c] = mean / unit;
        info->deviation[c] = variance > 0 ? sqrt(variance) / unit : 0;
    }
}
