/* Crops and resizes images with a graph. See fit.h.
 *
 * Plain bilinear interpolation would read four pixels of a large image and ignore those between, so images are first
 * averaged by integer factors; the remaining factor, below two, is interpolated. The window is cropped first, so that
 * nothing outside it is computed.
 *
 * A program has a fixed input size. Images of one camera have one size, so the last few programs are cached. */
#include "data/fit.h"

#include <pthread.h>
#include <string.h>

#include <tutti/ops.h>
#include <tutti/run.h>

enum { CACHED = 8, MAX_SIDE = 1 << 16 };

typedef struct sizes {
    int64_t from[3], to[3]; /* height, width, channels */
} sizes;

typedef struct cached_program {
    sizes key;
    uint64_t used; /* value of use_count at its last use */
    tu_graph *graph;
    tu_value input, result;
    tu_program *program;
    tu_state *state;
} cached_program;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cached_program cache[CACHED];
static uint64_t use_count;

/* ---- The graph ---- */

static tu_value crop_axis(tu_value x, int axis, int64_t from, int64_t to) {
    return from == to ? x : tu_slice(x, axis, (from - to) / 2, (from - to) / 2 + to, 1);
}

/* Converts colour to grey with the Rec. 601 weights, like JPEG, and grey to colour by repetition. */
static tu_value convert_channels(tu_value x, int64_t from, int64_t to) {
    static const double weights[3] = {0.299, 0.587, 0.114};
    if (from == to) return x;
    if (from == 1) return tu_concat((tu_value[]){x, x, x}, 3, 3);
    tu_value grey = tu_scale(tu_slice(x, 3, 0, 1, 1), weights[0]);
    for (int c = 1; c < 3; c++) grey = tu_add(grey, tu_scale(tu_slice(x, 3, c, c + 1, 1), weights[c]));
    return grey;
}

/* Returns the window size along one axis: `target` output pixels of `unit` input pixels each, rounded, at most
 * `size`. */
static int64_t window_side(int64_t target, double unit, int64_t size) {
    int64_t side = (int64_t)((double)target * unit + 0.5);
    return side < 1 ? 1 : side > size ? size : side;
}

static tu_value build_fit(tu_value x, const sizes *key) {
    int64_t height = key->to[0], width = key->to[1];
    double vertical = (double)key->from[0] / (double)height,
           horizontal = (double)key->from[1] / (double)width;
    double unit = vertical < horizontal ? vertical : horizontal;
    int64_t rows = window_side(height, unit, key->from[0]), columns = window_side(width, unit, key->from[1]);
    int64_t factor = rows / height < columns / width ? rows / height : columns / width;
    if (factor < 1) factor = 1;
    x = crop_axis(x, 1, key->from[0], rows / factor * factor);
    x = crop_axis(x, 2, key->from[1], columns / factor * factor);
    x = convert_channels(tu_cast(x, TU_F32), key->from[2], key->to[2]);
    if (factor > 1) x = tu_avg_pool(x, .window = {factor, factor}, .padding = TU_VALID);
    if (rows / factor != height || columns / factor != width) x = tu_resize(x, height, width, TU_BILINEAR);
    return tu_cast(tu_clip(tu_round(x), 0, 255), TU_U8);
}

static tu_status build_program(cached_program *f) {
    TU_TRY(tu_graph_new(&f->graph));
    f->input =
        tu_input(f->graph, "image", TU_U8, TU_SHAPE(1, f->key.from[0], f->key.from[1], f->key.from[2]));
    f->result = build_fit(f->input, &f->key);
    TU_TRY(tu_compile(f->graph, &f->program, .devices = "cpu:0", .fetch = &f->result, .fetch_count = 1));
    return tu_state_new(f->graph, &f->state);
}

/* ---- Cached programs ---- */

static void free_program(cached_program *f) {
    tu_program_free(f->program);
    tu_state_free(f->state);
    tu_graph_free(f->graph);
    *f = (cached_program){0};
}

/* Returns the program for these sizes. Replaces the least recently used one if there is none. */
static tu_status find_program(const sizes *key, cached_program **found) {
    cached_program *oldest = &cache[0];
    for (int i = 0; i < CACHED; i++) {
        if (cache[i].program && memcmp(&cache[i].key, key, sizeof *key) == 0) {
            *found = &cache[i];
            return TU_OK;
        }
        if (cache[i].used < oldest->used) oldest = &cache[i];
    }
    free_program(oldest);
    oldest->key = *key;
    tu_status status = build_program(oldest);
    if (status != TU_OK) {
        free_program(oldest);
        return status;
    }
    *found = oldest;
    return TU_OK;
}

static tu_status run_program(const sizes *key, const uint8_t *pixels, uint8_t *out) {
    cached_program *f;
    TU_TRY(find_program(key, &f));
    f->used = ++use_count;
    return tu_run(f->program, f->state, 1, (tu_feed[]){{f->input, pixels}}, (void *[]){out});
}

void tu__fit_free_cache(void) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < CACHED; i++) free_program(&cache[i]);
    pthread_mutex_unlock(&lock);
}

tu_status tu__fit_image(const tu__image *image, int64_t height, int64_t width, int64_t channels,
                        uint8_t *out) {
    if (height < 1 || width < 1 || height > MAX_SIDE || width > MAX_SIDE || (channels != 1 && channels != 3))
        return tu_fail(
            TU_INVALID,
            "cannot resize an image to %lld x %lld pixels with %lld channels: expected sides of 1 to %d and 1 or 3 channels",
            (long long)height, (long long)width, (long long)channels, MAX_SIDE);
    sizes key = {.from = {image->height, image->width, image->channels}, .to = {height, width, channels}};
    pthread_mutex_lock(&lock);
    tu_status status = run_program(&key, image->pixels, out);
    pthread_mutex_unlock(&lock);
    return status;
}
