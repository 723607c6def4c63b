/* Decodes GIF with giflib: the first picture of a file, on black.
 *
 * Only what is needed is read: a file with thousands of pictures costs no more than one. */
#include "io/image_codec.h"

#include <string.h>

bool tu__gif_recognise(const void *bytes, size_t size) {
    return size >= 6 && (memcmp(bytes, "GIF87a", 6) == 0 || memcmp(bytes, "GIF89a", 6) == 0);
}

#ifdef TU_HAVE_GIF

#include <gif_lib.h>

#include "base/alloc.h"

/* A code of 12 bits stands for at most 4096 pixels. */
enum { MAX_PIXELS_PER_BYTE = 4096, NO_COLOUR = -1 };

typedef struct source {
    const unsigned char *bytes;
    size_t size, at;
} source;

static int read_bytes(GifFileType *gif, GifByteType *to, int count) {
    source *s = gif->UserData;
    size_t left = s->size - s->at, wanted = count > 0 ? (size_t)count : 0;
    if (wanted > left) wanted = left;
    memcpy(to, s->bytes + s->at, wanted);
    s->at += wanted;
    return (int)wanted;
}

static tu_status fail_gif(const char *name, const GifFileType *gif) {
    const char *reason = gif ? GifErrorString(gif->Error) : NULL;
    return tu_fail(TU_INVALID, "%s is not a valid GIF file: %s", name,
                   reason ? reason : "the file is damaged");
}

/* Reads extensions up to the first picture; stores the transparent colour. */
static tu_status find_picture(const char *name, GifFileType *gif, int *transparent) {
    *transparent = NO_COLOUR;
    for (;;) {
        GifRecordType type;
        GifByteType *block;
        int code;
        if (DGifGetRecordType(gif, &type) != GIF_OK) return fail_gif(name, gif);
        if (type == IMAGE_DESC_RECORD_TYPE) break;
        if (type != EXTENSION_RECORD_TYPE)
            return tu_fail(TU_INVALID, "%s is not a valid GIF file: it has no picture", name);
        if (DGifGetExtension(gif, &code, &block) != GIF_OK) return fail_gif(name, gif);
        GraphicsControlBlock control;
        if (code == GRAPHICS_EXT_FUNC_CODE && block &&
            DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
            *transparent = control.TransparentColor;
        while (block)
            if (DGifGetExtensionNext(gif, &block) != GIF_OK) return fail_gif(name, gif);
    }
    return DGifGetImageDesc(gif) == GIF_OK ? TU_OK : fail_gif(name, gif);
}

/* Draws a line of colour indices at a row of the image; what is outside is cut off. */
static void draw_line(const GifFileType *gif, const GifPixelType *line, int row, int transparent,
                      tu__image *image) {
    const GifImageDesc *d = &gif->Image;
    const ColorMapObject *colours = d->ColorMap ? d->ColorMap : gif->SColorMap;
    int64_t y = (int64_t)d->Top + row;
    if (y < 0 || y >= image->height) return;
    for (int i = 0; i < d->Width; i++) {
        int64_t x = (int64_t)d->Left + i;
        int index = line[i];
        if (x < 0 || x >= image->width || index == transparent || index >= colours->ColorCount) continue;
        uint8_t *pixel = image->pixels + 3 * (y * image->width + x);
        pixel[0] = colours->Colors[index].Red;
        pixel[1] = colours->Colors[index].Green;
        pixel[2] = colours->Colors[index].Blue;
    }
}

static tu_status draw_picture(const char *name, GifFileType *gif, int transparent, GifPixelType *line,
                              tu__image *image) {
    static const int starts[] = {0, 4, 2, 1}, steps[] = {8, 8, 4, 2};
    const GifImageDesc *d = &gif->Image;
    int passes = d->Interlace ? 4 : 1;
    for (int pass = 0; pass < passes; pass++) {
        int step = d->Interlace ? steps[pass] : 1;
        for (int row = d->Interlace ? starts[pass] : 0; row < d->Height; row += step) {
            if (DGifGetLine(gif, line, d->Width) != GIF_OK) return fail_gif(name, gif);
            draw_line(gif, line, row, transparent, image);
        }
    }
    return TU_OK;
}

static tu_status decode(const char *name, size_t size, GifFileType *gif, tu__image *image) {
    int transparent;
    TU_TRY(find_picture(name, gif, &transparent));
    if (!gif->Image.ColorMap && !gif->SColorMap)
        return tu_fail(TU_INVALID, "%s is not a valid GIF file: it has no colours", name);
    if (gif->Image.Width <= 0 || gif->Image.Height <= 0)
        return tu_fail(TU_INVALID, "%s is not a valid GIF file: its picture is empty", name);
    uint64_t width = gif->SWidth > 0 ? (uint64_t)gif->SWidth : 0,
             height = gif->SHeight > 0 ? (uint64_t)gif->SHeight : 0;
    TU_TRY(tu__image_check_size(name, width, height, size, MAX_PIXELS_PER_BYTE));
    tu__image decoded = {.height = (int64_t)height, .width = (int64_t)width, .channels = 3};
    decoded.pixels = tu__alloc_array((size_t)(3 * width), (size_t)height, "an image");
    GifPixelType *line = tu__alloc((size_t)gif->Image.Width, "an image");
    tu_status status =
        decoded.pixels && line ? draw_picture(name, gif, transparent, line, &decoded) : TU_NO_MEMORY;
    tu__free(line);
    if (status == TU_OK)
        *image = decoded;
    else
        tu__image_free(&decoded);
    return status;
}

tu_status tu__gif_decode(const char *name, const void *bytes, size_t size, tu__image *image) {
    source s = {.bytes = bytes, .size = size};
    int error = 0;
    GifFileType *gif = DGifOpen(&s, read_bytes, &error);
    if (!gif)
        return tu_fail(TU_INVALID, "%s is not a valid GIF file: %s", name,
                       GifErrorString(error) ? GifErrorString(error) : "the file is damaged");
    tu_status status = decode(name, size, gif, image);
    DGifCloseFile(gif, &error);
    return status;
}

#else

tu_status tu__gif_decode(const char *name, const void *bytes, size_t size, tu__image *image) {
    (void)bytes;
    (void)size;
    (void)image;
    return tu_fail(TU_UNSUPPORTED,
                   "%s is a GIF file, which this build cannot read: it was built without giflib "
                   "(Debian: libgif-dev)",
                   name);
}

#endif
