/* The data set "generated": 32x32 colour images of ten classes, generated when they are read.
 *
 * It needs no download, disk space or memory. Each image shows a shape at a random position, size and angle, in
 * random colours on a shaded background, with a stroke across it and noise. Single pixels do not determine the class:
 * a small convolutional network learns it in minutes, a linear one does not.
 *
 * An image is a function of split and index: its random numbers come from Philox, and the arithmetic consists of
 * sums, products, quotients and square roots in f32, which every machine rounds the same way. The bytes are therefore
 * the same everywhere, and their digest and means are constants below (a test recomputes them). */
#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "data/dataset.h"

enum { SIDE = 32, CHANNELS = 3, CLASSES = 10 };

/* ---- Shapes: distance to the edge in units of the shape's radius, negative inside ---- */

/* Position of a shape: p = rotation * (pixel - centre) / radius. */
typedef struct pose {
    float x, y, radius, cosine, sine;
} pose;

static float larger(float a, float b) {
    return a > b ? a : b;
}

static float smaller(float a, float b) {
    return a < b ? a : b;
}

static float distance(float x, float y) {
    return sqrtf(x * x + y * y);
}

static float box(float x, float y, float half_width, float half_height) {
    return larger(fabsf(x) - half_width, fabsf(y) - half_height);
}

/* Triangle wave with the given period and values from -1/4 to 1/4 of it. */
static float zigzag(float x, float period) {
    float phase = x / period - floorf(x / period);
    return (fabsf(phase - 0.5F) - 0.25F) * period;
}

static float disc(float x, float y) {
    return distance(x, y) - 0.85F;
}
static float ring(float x, float y) {
    return fabsf(distance(x, y) - 0.72F) - 0.2F;
}
static float square(float x, float y) {
    return box(x, y, 0.78F, 0.78F);
}
static float frame(float x, float y) {
    return larger(square(x, y), -box(x, y, 0.42F, 0.42F));
}
static float triangle(float x, float y) {
    float slope = 0.8660254F * fabsf(x) + 0.5F * y;
    return larger(slope - 0.5F, -y - 0.5F);
}
static float cross(float x, float y) {
    return smaller(box(x, y, 0.95F, 0.28F), box(x, y, 0.28F, 0.95F));
}
static float crescent(float x, float y) {
    return larger(distance(x, y) - 0.95F, 0.72F - distance(x - 0.5F, y));
}
static float stripes(float x, float y) {
    return larger(distance(x, y) - 1.0F, zigzag(x, 0.55F));
}
static float checks(float x, float y) {
    float a = zigzag(x, 0.9F), b = zigzag(y, 0.9F);
    return larger(box(x, y, 0.9F, 0.9F), larger(smaller(a, b), -larger(a, b)));
}
static float dots(float x, float y) {
    float u = x / 0.66F - floorf(x / 0.66F + 0.5F), v = y / 0.66F - floorf(y / 0.66F + 0.5F);
    return larger(box(x, y, 1.0F, 1.0F), distance(u, v) * 0.66F - 0.22F);
}

static const struct shape {
    const char *name;
    float (*edge)(float x, float y);
} shapes[CLASSES] = {
    {"disc", disc},         {"ring", ring},   {"square", square},     {"frame", frame},
    {"triangle", triangle}, {"cross", cross}, {"crescent", crescent}, {"stripes", stripes},
    {"checks", checks},     {"dots", dots},
};

/* ---- Draws ---- */

/* Random words of one image, generated in blocks of four. */
typedef struct random_stream {
    uint32_t key[2], counter[4], words[4];
    int left;
} random_stream;

static random_stream random_stream_of(tu_split split, int64_t index) {
    return (random_stream){.key = {0x54757474u, (uint32_t)split}, /* "Tutt" */
                           .counter = {0, 0, (uint32_t)index, (uint32_t)(index >> 32)}};
}

static uint32_t next_word(random_stream *d) {
    if (d->left == 0) {
        tu__philox4x32(d->counter, d->key, d->words);
        d->counter[0]++;
        d->left = 4;
    }
    return d->words[--d->left];
}

/* Draws a number in [low, high), one of 2^24 equidistant ones. */
static float uniform(random_stream *d, float low, float high) {
    return low + (high - low) * ((float)(next_word(d) >> 8) * (1.0F / 16777216));
}

/* Draws any rotation without trigonometric functions: a rational parametrisation of the unit circle with t in [-1,
 * 1), and a random sign. */
static void rotate(random_stream *d, float *cosine, float *sine) {
    float t = uniform(d, -1, 1), square_of_t = t * t, sign = next_word(d) & 1 ? 1.0F : -1.0F;
    *cosine = sign * (1 - square_of_t) / (1 + square_of_t);
    *sine = sign * 2 * t / (1 + square_of_t);
}

static pose random_pose(random_stream *d) {
    pose p;
    p.radius = uniform(d, 6.5F, 12.5F);
    float room = SIDE / 2.0F - 0.75F * p.radius;
    p.x = SIDE / 2.0F + uniform(d, -room, room);
    p.y = SIDE / 2.0F + uniform(d, -room, room);
    rotate(d, &p.cosine, &p.sine);
    return p;
}

/* ---- Images ---- */

typedef struct paint {
    float shape[CHANNELS], ground[CHANNELS],
        shade[CHANNELS]; /* shade: gradient of the ground from left to right */
    float stroke[CHANNELS];
} paint;

/* Draws the colours. In one channel the shape differs from the ground by at least a quarter of the range. */
static paint random_paint(random_stream *d) {
    paint p;
    for (int c = 0; c < CHANNELS; c++) {
        p.ground[c] = uniform(d, 0.1F, 0.9F);
        p.shade[c] = uniform(d, -0.3F, 0.3F);
        p.shape[c] = uniform(d, 0, 1);
        p.stroke[c] = uniform(d, 0, 1);
    }
    int contrast_channel = (int)(next_word(d) % CHANNELS);
    float step = uniform(d, 0.25F, 0.5F);
    p.shape[contrast_channel] = p.ground[contrast_channel] > 0.5F ? p.ground[contrast_channel] - step
                                                                  : p.ground[contrast_channel] + step;
    return p;
}

/* Returns the covered fraction of a pixel, from the distance of its centre to the edge in pixels. */
static float coverage(float edge) {
    return smaller(larger(0.5F - edge, 0), 1);
}

static uint8_t to_byte(float value) {
    return (uint8_t)(smaller(larger(value, 0), 1) * 255 + 0.5F);
}

static void draw_image(random_stream *d, const struct shape *shape, uint8_t *image) {
    pose p = random_pose(d), line = random_pose(d);
    paint colours = random_paint(d);
    float noise = uniform(d, 0.05F, 0.3F);
    for (int row = 0; row < SIDE; row++) {
        for (int column = 0; column < SIDE; column++) {
            float x = (float)column + 0.5F - p.x, y = (float)row + 0.5F - p.y;
            float u = (p.cosine * x + p.sine * y) / p.radius, v = (p.cosine * y - p.sine * x) / p.radius;
            float inside = coverage(shape->edge(u, v) * p.radius);
            float across =
                line.cosine * ((float)column + 0.5F - line.x) + line.sine * ((float)row + 0.5F - line.y);
            float stroked = 0.7F * coverage(fabsf(across) - 0.8F);
            uint32_t bits = next_word(d);
            for (int c = 0; c < CHANNELS; c++, bits >>= 8) {
                float ground = colours.ground[c] + colours.shade[c] * ((float)column / SIDE - 0.5F);
                float value = ground + inside * (colours.shape[c] - ground);
                value += stroked * (colours.stroke[c] - value);
                value += noise * ((float)(bits & 255) * (1.0F / 255) - 0.5F);
                *image++ = to_byte(value);
            }
        }
    }
}

static tu_status read_generated(void *context, tu_split split, int64_t index, void *image, int32_t *label) {
    (void)context;
    random_stream d = random_stream_of(split, index);
    *label = (int32_t)(index % CLASSES);
    draw_image(&d, &shapes[*label], image);
    return TU_OK;
}

tu_status tu__open_generated(tu_dataset **dataset) {
    const char *names[CLASSES];
    for (int i = 0; i < CLASSES; i++) names[i] = shapes[i].name;
    tu_dataset_info info = {
        .name = "generated",
        .origin = "drawn as it is read",
        .count = {50000, 10000},
        .height = SIDE,
        .width = SIDE,
        .channels = CHANNELS,
        .dtype = TU_U8,
        .classes = CLASSES,
        .class_names = names,
        .mean = {0.49966312354473041, 0.50080477075674024, 0.50069156564031858},
        .deviation = {0.24091642001140728, 0.24122132115118824, 0.2398879084777549},
        .digest = "b265a49f942b8feff29c00767bfa242d2a1d16598807b0a5fc77ee1f774bbdb4",
    };
    return tu__dataset_new(&info, read_generated, NULL, NULL, dataset);
}
