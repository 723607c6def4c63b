/* Decodes JPEG with libjpeg-turbo: grey and colour, baseline and progressive.
 *
 * libjpeg decodes damaged files as far as possible: it fills missing data with grey and warns. For training data such
 * warnings are errors here, except a few harmless ones. libjpeg reports errors by longjmp; all data that must survive
 * it is in one structure. */
#include "io/image_codec.h"

#include <string.h>

bool tu__jpeg_recognise(const void *bytes, size_t size) {
    return size >= 3 && memcmp(bytes, "\xFF\xD8\xFF", 3) == 0;
}

#ifdef TU_HAVE_JPEG

#include <setjmp.h>
#include <stdio.h> /* needed by jpeglib.h */

#include <jerror.h>
#include <jpeglib.h>

#include "base/alloc.h"

/* Huffman coding needs at least one bit per block of 64 pixels. */
enum { MAX_PIXELS_PER_BYTE = 64 * 8 };
/* Each scan of a progressive file processes all pixels, however few bytes it has: together they may process a billion
 * pixels, which takes a few seconds. Encoders write about ten scans. */
enum { MAX_SCANS = 500, MAX_SCANNED_PIXELS = 1 << 30 };

typedef struct decoder {
    struct jpeg_error_mgr errors; /* must be first: libjpeg passes its address */
    struct jpeg_decompress_struct jpeg;
    struct jpeg_progress_mgr progress;
    const char *name;
    const unsigned char *bytes;
    size_t size;
    uint8_t *pixels;
    tu_status status;
    jmp_buf on_failure;
} decoder;

static void on_error(j_common_ptr jpeg) {
    decoder *d = (decoder *)jpeg->err;
    char reason[JMSG_LENGTH_MAX];
    d->errors.format_message(jpeg, reason);
    bool is_out_of_memory = d->errors.msg_code == JERR_OUT_OF_MEMORY;
    d->status = is_out_of_memory ? tu_fail(TU_NO_MEMORY, "cannot decode %s: %s", d->name, reason)
                                 : tu_fail(TU_INVALID, "%s is not a valid JPEG file: %s", d->name, reason);
    longjmp(d->on_failure, 1);
}

/* Handles warnings (level -1) and traces; the code is errors.msg_code. */
static void on_message(j_common_ptr jpeg, int level) {
    int code = jpeg->err->msg_code;
    bool is_harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR;
    if (level < 0 && !is_harmless) on_error(jpeg);
}

static void on_progress(j_common_ptr jpeg) {
    decoder *d = (decoder *)jpeg->err;
    int64_t pixels = (int64_t)d->jpeg.image_width * d->jpeg.image_height, most = MAX_SCANNED_PIXELS / pixels;
    if (most > MAX_SCANS) most = MAX_SCANS;
    if (d->jpeg.input_scan_number <= most) return;
    d->status =
        tu_fail(TU_INVALID,
                "%s is not a valid JPEG file: it has more than %d scans of %ux%u pixels: convert it to a "
                "baseline JPEG or PNG",
                d->name, (int)most, d->jpeg.image_width, d->jpeg.image_height);
    longjmp(d->on_failure, 1);
}

static void on_output(j_common_ptr jpeg) {
    (void)jpeg;
}

static tu_status check_header(decoder *d) {
    TU_TRY(tu__image_check_size(d->name, d->jpeg.image_width, d->jpeg.image_height, d->size,
                                MAX_PIXELS_PER_BYTE));
    if (d->jpeg.arith_code)
        return tu_fail(
            TU_INVALID,
            "%s is a JPEG file with arithmetic coding, which is not supported: convert it to Huffman coding or PNG",
            d->name);
    if (d->jpeg.jpeg_color_space == JCS_CMYK || d->jpeg.jpeg_color_space == JCS_YCCK)
        return tu_fail(TU_INVALID, "%s is a JPEG file in CMYK, which is not supported: convert it to RGB",
                       d->name);
    return TU_OK;
}

static void read_rows(decoder *d) {
    size_t row = (size_t)d->jpeg.output_width * (size_t)d->jpeg.output_components;
    while (d->jpeg.output_scanline < d->jpeg.output_height) {
        JSAMPROW next = d->pixels + d->jpeg.output_scanline * row;
        jpeg_read_scanlines(&d->jpeg, &next, 1);
    }
    jpeg_finish_decompress(&d->jpeg);
}

static tu_status read_image(decoder *d) {
    if (setjmp(d->on_failure)) return d->status;
    jpeg_create_decompress(&d->jpeg);
    d->progress.progress_monitor = on_progress;
    d->jpeg.progress = &d->progress;
    jpeg_mem_src(&d->jpeg, d->bytes, (unsigned long)d->size);
    jpeg_read_header(&d->jpeg, TRUE);
    TU_TRY(check_header(d));
    d->jpeg.out_color_space = d->jpeg.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(&d->jpeg);
    d->pixels = tu__alloc_array(d->jpeg.output_height,
                                (size_t)d->jpeg.output_width * (size_t)d->jpeg.output_components, "an image");
    if (!d->pixels) return TU_NO_MEMORY;
    read_rows(d);
    return TU_OK;
}

tu_status tu__jpeg_decode(const char *name, const void *bytes, size_t size, tu__image *image) {
    decoder d = {.name = name, .bytes = bytes, .size = size};
    d.jpeg.err = jpeg_std_error(&d.errors);
    d.errors.error_exit = on_error;
    d.errors.emit_message = on_message;
    d.errors.output_message = on_output;
    tu_status status = read_image(&d);
    if (status == TU_OK)
        *image = (tu__image){.height = d.jpeg.output_height,
                             .width = d.jpeg.output_width,
                             .channels = d.jpeg.output_components,
                             .pixels = d.pixels};
    else
        tu__free(d.pixels);
    jpeg_destroy_decompress(&d.jpeg);
    return status;
}

#else /* built without libjpeg */

tu_status tu__jpeg_decode(const char *name, const void *bytes, size_t size, tu__image *image) {
    (void)bytes;
    (void)size;
    (void)image;
    return tu_fail(
        TU_UNSUPPORTED,
        "%s is a JPEG file, but this Tutti was built without libjpeg: install libjpeg-dev and rebuild", name);
}

#endif
