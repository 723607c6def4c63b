#!/usr/bin/env python3
"""Writes tests/data/pictures for tests/unit/test_image.c: one small PNG of every colour type, JPEGs, a GIF and a WebP.

    tests/data/generate_pictures.py            # needs Pillow for all but the PNGs

The script encodes the PNGs itself, so that they do not depend on the library that Tutti reads them with. Each is 5
pixels wide and 3 high. Pixel (x, y) has red 50 x, green 100 y, blue 10 (x + y) and alpha 255 - 50 x; grey is 20 x
+ 60 y. Interlaced files use Adam7."""
import os
import struct
import zlib

WIDTH, HEIGHT = 5, 3
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pictures")


def colour(x, y):
    return [50 * x, 100 * y, 10 * (x + y)]


def grey(x, y):
    return [20 * x + 60 * y]


def alpha(x):
    return [255 - 50 * x]


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def row_bytes(samples, depth):
    bits = "".join(format(s, "0%db" % depth) for s in samples)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))


PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def png(name, kind, depth, pixel, extra=b"", interlaced=False):
    """kind: 0 grey, 2 colour, 3 palette, 4 grey and alpha, 6 colour and alpha. pixel(x, y) returns the samples."""
    raw = b""
    for x0, y0, dx, dy in PASSES if interlaced else [(0, 0, 1, 1)]:
        for y in range(y0, HEIGHT, dy):
            samples = [s for x in range(x0, WIDTH, dx) for s in pixel(x, y)]
            if samples:
                raw += b"\0" + row_bytes(samples, depth)
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, kind, 0, 0, int(interlaced))
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra
    data += chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")
    with open(os.path.join(FOLDER, name), "wb") as file:
        file.write(data)


def pngs():
    wide = lambda samples: [257 * s for s in samples]
    palette = b"".join(bytes(colour(x, y)) for y in range(HEIGHT) for x in range(WIDTH))
    index = lambda x, y: [x + WIDTH * y]
    png("grey8.png", 0, 8, grey)
    png("grey16.png", 0, 16, lambda x, y: wide(grey(x, y)))
    png("grey1.png", 0, 1, lambda x, y: [(x + y) % 2])
    png("grey2.png", 0, 2, lambda x, y: [(x + y) % 4])
    png("grey4.png", 0, 4, lambda x, y: [x + y])
    png("grey8_interlaced.png", 0, 8, grey, interlaced=True)
    png("grey_alpha8.png", 4, 8, lambda x, y: grey(x, y) + alpha(x))
    png("grey_alpha16.png", 4, 16, lambda x, y: wide(grey(x, y) + alpha(x)))
    png("grey_transparent.png", 0, 8, grey, chunk(b"tRNS", struct.pack(">H", 80)))
    png("colour8.png", 2, 8, colour)
    png("colour16.png", 2, 16, lambda x, y: wide(colour(x, y)))
    png("colour8_interlaced.png", 2, 8, colour, interlaced=True)
    png("colour_transparent.png", 2, 8, colour, chunk(b"tRNS", struct.pack(">HHH", 50, 100, 20)))
    png("colour_alpha8.png", 6, 8, lambda x, y: colour(x, y) + alpha(x))
    png("colour_alpha16_interlaced.png", 6, 16, lambda x, y: wide(colour(x, y) + alpha(x)), interlaced=True)
    png("palette8.png", 3, 8, index, chunk(b"PLTE", palette))
    png("palette4.png", 3, 4, index, chunk(b"PLTE", palette))
    png("palette4_interlaced.png", 3, 4, index, chunk(b"PLTE", palette), interlaced=True)
    opacity = bytes(alpha(x)[0] for y in range(HEIGHT) for x in range(WIDTH))
    png("palette_alpha.png", 3, 8, index, chunk(b"PLTE", palette) + chunk(b"tRNS", opacity))


def jpegs():
    from PIL import Image

    picture = Image.new("RGB", (40, 24))
    picture.putdata([(6 * x, 10 * y, 128) for y in range(24) for x in range(40)])
    path = lambda name: os.path.join(FOLDER, name)
    picture.save(path("colour.jpg"), quality=95, subsampling=0)
    picture.save(path("subsampled.jpg"), quality=95, subsampling=2)
    picture.save(path("progressive.jpg"), quality=95, progressive=True)
    picture.convert("L").save(path("grey.jpg"), quality=95)
    picture.convert("CMYK").save(path("cmyk.jpg"), quality=95)
    exif = picture.getexif()
    exif[0x0112] = 6  # orientation: rotate by 90 degrees; the decoder must ignore it
    picture.save(path("oriented.jpg"), quality=95, subsampling=0, exif=exif)


def gif_and_webp():
    """The GIF has a second frame, which the decoder must ignore; the WebP is lossless."""
    from PIL import Image

    indices = Image.new("P", (WIDTH, HEIGHT))
    indices.putpalette([s for y in range(HEIGHT) for x in range(WIDTH) for s in colour(x, y)])
    indices.putdata(range(WIDTH * HEIGHT))
    second = indices.copy()
    second.putdata(list(range(WIDTH * HEIGHT))[::-1])
    indices.save(os.path.join(FOLDER, "palette.gif"), save_all=True, append_images=[second], optimize=False)
    picture = Image.new("RGB", (WIDTH, HEIGHT))
    picture.putdata([tuple(colour(x, y)) for y in range(HEIGHT) for x in range(WIDTH)])
    picture.save(os.path.join(FOLDER, "colour.webp"), lossless=True)


if __name__ == "__main__":
    os.makedirs(FOLDER, exist_ok=True)
    pngs()
    jpegs()
    gif_and_webp()
