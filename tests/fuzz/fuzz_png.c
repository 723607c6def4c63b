/* Decodes arbitrary bytes as a PNG file. That must fail, or return all pixels.
 *
 * PNG chunks have checksums, which mutations never get right. Each input is therefore decoded three times:
 * unchanged; with corrected checksums; and as rows of pixels inside a valid file, whose colour type, size and
 * interlacing are chosen by the first bytes of the input. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition) {
    if (!condition) {
        fprintf(stderr, "%s\n", tu_message());
        abort();
    }
}

static void decode(const uint8_t *data, size_t size, int channels) {
    tu__image image;
    tu_status status = tu__image_decode("input", data, size, channels, &image);
    require(status == TU_OK || status == TU_INVALID || status == TU_NO_MEMORY || status == TU_UNSUPPORTED);
    require((status == TU_OK) == (image.pixels != NULL));
    if (status != TU_OK) return;
    require(image.channels == 1 || image.channels == 3);
    require(channels == 0 || image.channels == channels);
    unsigned sum = 0;
    for (int64_t i = 0; i < image.height * image.width * image.channels; i++) sum += image.pixels[i];
    require(sum < UINT32_MAX);
    tu__image_free(&image);
}

/* ---- Creating valid files ---- */

static const uint8_t signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

static uint32_t crc(const uint8_t *bytes, size_t size) {
    uint32_t c = 0xFFFFFFFF;
    for (size_t i = 0; i < size; i++) {
        c ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ 0xEDB88320 : c >> 1;
    }
    return ~c;
}

static void put_u32(uint8_t *bytes, uint32_t value) {
    for (int i = 0; i < 4; i++) bytes[i] = (uint8_t)(value >> (24 - 8 * i));
}

static uint32_t get_u32(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void correct_checksums(uint8_t *data, size_t size) {
    for (size_t offset = 8; size - offset >= 12;) {
        uint32_t length = get_u32(data + offset);
        if (length > size - offset - 12) return;
        put_u32(data + offset + 8 + length, crc(data + offset + 4, length + 4));
        offset += 12 + (size_t)length;
    }
}

/* Writes a chunk; returns a pointer past its end. */
static uint8_t *put_chunk(uint8_t *out, const char *kind, const uint8_t *bytes, size_t size) {
    put_u32(out, (uint32_t)size);
    memcpy(out + 4, kind, 4);
    if (size) memcpy(out + 8, bytes, size);
    put_u32(out + 8 + size, crc(out + 4, size + 4));
    return out + 12 + size;
}

/* Writes a zlib stream with one uncompressed block; returns its size. */
static size_t write_stored_block(uint8_t *to, const uint8_t *rows, uint16_t size) {
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < size; i++) {
        a = (a + rows[i]) % 65521;
        b = (b + a) % 65521;
    }
    const uint8_t head[7] = {
        0x78, 0x01, 1, (uint8_t)size, (uint8_t)(size >> 8), (uint8_t)~size, (uint8_t)(~(unsigned)size >> 8)};
    memcpy(to, head, 7);
    if (size) memcpy(to + 7, rows, size);
    put_u32(to + 7 + size, b << 16 | a);
    return 7 + (size_t)size + 4;
}

static void decode_rows(const uint8_t *data, size_t size) {
    static const uint8_t colour_types[8] = {0, 0, 2, 3, 3, 4, 6, 6}, depths[8] = {1, 8, 16, 2, 8, 8, 8, 16};
    static uint8_t file[70000], zlib_stream[66000], palette[3 * 256], header[13];
    if (size < 3 || size > 60000) return;
    memcpy(file, signature, sizeof signature);
    put_u32(header, data[1] % 40U + 1);
    put_u32(header + 4, data[2] % 40U + 1);
    header[8] = depths[data[0] & 7];
    header[9] = colour_types[data[0] & 7];
    header[12] = data[0] >> 3 & 1;
    uint8_t *end = put_chunk(file + 8, "IHDR", header, sizeof header);
    if (header[9] == 3) end = put_chunk(end, "PLTE", palette, 3 << header[8]);
    if (header[9] == 3 && data[0] >> 4 & 1) end = put_chunk(end, "tRNS", palette, 2);
    end =
        put_chunk(end, "IDAT", zlib_stream, write_stored_block(zlib_stream, data + 3, (uint16_t)(size - 3)));
    end = put_chunk(end, "IEND", zlib_stream, 0);
    decode(file, (size_t)(end - file), data[0] >> 5 & 1 ? 3 : 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    decode(data, size, 0);
    decode_rows(data, size);
    if (size < 20) return 0;
    uint8_t *corrected = malloc(size);
    if (!corrected) return 0;
    memcpy(corrected, data, size);
    memcpy(corrected, signature, sizeof signature);
    correct_checksums(corrected, size);
    decode(corrected, size, size % 3 == 2 ? 0 : (int)(size % 3) * 2 + 1);
    free(corrected);
    return 0;
}
