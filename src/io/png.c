/* Decodes all kinds of PNG and encodes PNG, with libpng.
 *
 * libpng reports errors by longjmp and calls functions for memory, input and output. All of them are defined here:
 * memory comes from the engine's allocator (so that running out of memory is tested and reported as usual), and
 * nothing is printed. The data of these functions is in one structure, so that no local variable must survive a
 * longjmp. */
#include "io/image_codec.h"

#include <string.h>

#ifdef TU_HAVE_PNG

#include <png.h>
#include <setjmp.h>

#include "base/alloc.h"

/* zlib compresses at most 1032 bytes into one, and a pixel has at least one bit. */
enum { MAX_PIXELS_PER_BYTE = 1032 * 8 };

typedef struct codec {
    const char *name;
    const unsigned char *bytes; /* input … */
    unsigned char *written;     /* … or output */
    size_t size, read_offset, capacity;
    int64_t height, width, channels;
    uint8_t *pixels;
    bool out_of_memory;
    char reason[128];
} codec;

bool tu__png_recognise(const void *bytes, size_t size) {
    static const unsigned char signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    return size >= 8 && memcmp(bytes, signature, 8) == 0;
}

/* ---- Callbacks of libpng ---- */

static void on_error(png_structp png, png_const_charp message) {
    codec *c = png_get_error_ptr(png);
    strncpy(c->reason, message, sizeof c->reason - 1);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message) {
    (void)png;
    (void)message;
}

static png_voidp on_allocate(png_structp png, png_alloc_size_t bytes) {
    codec *c = png_get_mem_ptr(png);
    void *block = tu__alloc(bytes, "an image");
    if (!block) c->out_of_memory = true;
    return block;
}

static void on_free(png_structp png, png_voidp block) {
    (void)png;
    tu__free(block);
}

static void on_read(png_structp png, png_bytep bytes, size_t size) {
    codec *c = png_get_io_ptr(png);
    if (size > c->size - c->read_offset) png_error(png, "truncated");
    memcpy(bytes, c->bytes + c->read_offset, size);
    c->read_offset += size;
}

static void on_write(png_structp png, png_bytep bytes, size_t size) {
    codec *c = png_get_io_ptr(png);
    if (size > c->capacity - c->size) {
        size_t capacity = 2 * c->capacity + size;
        unsigned char *grown = tu__realloc(c->written, capacity, "a PNG file");
        if (!grown) {
            c->out_of_memory = true;
            png_error(png, "out of memory");
        }
        c->written = grown;
        c->capacity = capacity;
    }
    memcpy(c->written + c->size, bytes, size);
    c->size += size;
}

static void on_flush(png_structp png) {
    (void)png;
}

/* Returns TU_NO_MEMORY with the allocator's message, or TU_INVALID with libpng's. */
static tu_status fail_png(const codec *c) {
    if (c->out_of_memory) return TU_NO_MEMORY;
    return tu_fail(TU_INVALID, "%s is not a valid PNG file: %s", c->name,
                   c->reason[0] ? c->reason : "libpng failed");
}

/* ---- Reading ---- */

/* Skips chunks that do not change the pixels. Texts and profiles are compressed: each of them could take a thousand times
 * its size in memory. What is left has small chunks. */
static void skip_texts(png_structp png) {
    static const png_byte names[] = "tEXt\0zTXt\0iTXt\0iCCP\0eXIf\0sPLT\0hIST\0pCAL\0sCAL\0tIME\0oFFs\0pHYs";
    enum { COUNT = sizeof names / 5, MAX_CHUNK = 1 << 20 };
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, names, COUNT);
    png_set_chunk_cache_max(png, 16);
    png_set_chunk_malloc_max(png, MAX_CHUNK);
}

/* Makes libpng return every row as grey or colour, with or without alpha, 8 bits each. */
static void request_8_bits(png_structp png, png_infop info) {
    png_set_expand(png);
    png_set_scale_16(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
}

static void read_rows(codec *c, png_structp png, png_infop info) {
    int passes = png_get_interlace_type(png, info) == PNG_INTERLACE_NONE ? 1 : 7;
    size_t row = png_get_rowbytes(png, info);
    for (int pass = 0; pass < passes; pass++)
        for (int64_t y = 0; y < c->height; y++) png_read_row(png, c->pixels + (size_t)y * row, NULL);
    png_read_end(png, NULL);
}

/* Multiplies by alpha, which blends the image with black, and removes the alpha channel. */
static void drop_alpha(codec *c) {
    size_t count = (size_t)(c->height * c->width), colours = (size_t)c->channels - 1;
    const uint8_t *from = c->pixels;
    uint8_t *to = c->pixels;
    for (size_t i = 0; i < count; i++, from += colours + 1)
        for (size_t k = 0; k < colours; k++) *to++ = (uint8_t)((from[k] * from[colours] + 127) / 255);
    c->channels = (int64_t)colours;
}

static tu_status read_image(codec *c, png_structp png, png_infop info) {
    if (setjmp(png_jmpbuf(png))) return fail_png(c);
    png_set_user_limits(png, 0x7FFFFFFF, 0x7FFFFFFF); /* Tutti's limits are checked below */
    skip_texts(png);
    png_read_info(png, info);
    c->width = png_get_image_width(png, info);
    c->height = png_get_image_height(png, info);
    TU_TRY(
        tu__image_check_size(c->name, (uint64_t)c->width, (uint64_t)c->height, c->size, MAX_PIXELS_PER_BYTE));
    request_8_bits(png, info);
    c->channels = png_get_channels(png, info);
    c->pixels = tu__alloc_array((size_t)c->height, png_get_rowbytes(png, info), "an image");
    if (!c->pixels) return TU_NO_MEMORY;
    read_rows(c, png, info);
    return TU_OK;
}

tu_status tu__png_decode(const char *name, const void *bytes, size_t size, tu__image *image) {
    codec c = {.name = name, .bytes = bytes, .size = size};
    png_structp png =
        png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &c, on_error, on_warning, &c, on_allocate, on_free);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    tu_status status;
    if (info) {
        png_set_read_fn(png, &c, on_read);
        status = read_image(&c, png, info);
    } else {
        status = fail_png(&c);
    }
    if (png) png_destroy_read_struct(&png, &info, NULL);
    if (status != TU_OK) {
        tu__free(c.pixels);
        return status;
    }
    if (c.channels == 2 || c.channels == 4) drop_alpha(&c);
    *image = (tu__image){.height = c.height, .width = c.width, .channels = c.channels, .pixels = c.pixels};
    return TU_OK;
}

/* ---- Writing ---- */

static tu_status write_image(codec *c, png_structp png, png_infop info, const tu__image *image) {
    if (setjmp(png_jmpbuf(png))) return fail_png(c);
    png_set_IHDR(png, info, (png_uint_32)image->width, (png_uint_32)image->height, 8,
                 image->channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    for (int64_t y = 0; y < image->height; y++)
        png_write_row(png, image->pixels + y * image->width * image->channels);
    png_write_end(png, info);
    return TU_OK;
}

tu_status tu__image_encode_png(const tu__image *image, void **bytes, size_t *size) {
    *bytes = NULL;
    *size = 0;
    bool has_valid_size =
        image->height > 0 && image->width > 0 && image->height <= TU__IMAGE_MAX_PIXELS / image->width;
    if (!has_valid_size || (image->channels != 1 && image->channels != 3))
        return tu_fail(TU_INVALID,
                       "cannot write an image of %lldx%lld pixels and %lld channels as PNG: expected 1 or 3 "
                       "channels and 1 to %d pixels",
                       (long long)image->width, (long long)image->height, (long long)image->channels,
                       TU__IMAGE_MAX_PIXELS);
    codec c = {.name = "the image"};
    png_structp png =
        png_create_write_struct_2(PNG_LIBPNG_VER_STRING, &c, on_error, on_warning, &c, on_allocate, on_free);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    tu_status status;
    if (info) {
        png_set_write_fn(png, &c, on_write, on_flush);
        status = write_image(&c, png, info, image);
    } else {
        status = fail_png(&c);
    }
    if (png) png_destroy_write_struct(&png, &info);
    if (status != TU_OK) {
        tu__free(c.written);
        return status;
    }
    *bytes = c.written;
    *size = c.size;
    return TU_OK;
}

#else /* built without libpng */

bool tu__png_recognise(const void *bytes, size_t size) {
    return size >= 4 && memcmp(bytes, "\x89PNG", 4) == 0;
}

tu_status tu__png_decode(const char *name, const void *bytes, size_t size, tu__image *image) {
    (void)bytes;
    (void)size;
    (void)image;
    return tu_fail(
        TU_UNSUPPORTED,
        "%s is a PNG file, but this Tutti was built without libpng: install libpng-dev and rebuild", name);
}

tu_status tu__image_encode_png(const tu__image *image, void **bytes, size_t *size) {
    (void)image;
    *bytes = NULL;
    *size = 0;
    return tu_fail(
        TU_UNSUPPORTED,
        "cannot write a PNG file: this Tutti was built without libpng: install libpng-dev and rebuild");
}

#endif
