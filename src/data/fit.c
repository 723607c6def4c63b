/* Pictures are fitted by a graph, like all other arithmetic on images. See fit.h for what is computed.
 *
 * Shrinking by bilinear interpolation alone would look at four pixels of a photograph and miss all between them, so
 * whole factors are averaged away first; less than a factor of two is left to interpolation. The window is cut out
 * before anything is resized: what falls outside is never computed, however long and thin a picture is.
 *
 * A program belongs to one size of pictures, and pictures of one camera have one size: the last few programs are kept. */
#include "data/fit.h"

#include <pthread.h>
#include <string.h>

#include <tutti/ops.h>
#include <tutti/run.h>

enum { KEPT = 8, MAX_SIDE = 1 << 16 };

typedef struct sizes {
    int64_t from[3], to[3]; /* height, width, channels */
} sizes;

typedef struct fitting {
    sizes key;
    uint64_t used; /* when it was last */
    tu_graph *graph;
    tu_value input, result;
    tu_program *program;
    tu_state *state;
} fitting;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fitting kept[KEPT];
static uint64_t clock_of_use;

/* ---- The graph ------------------------------------------------------------------------------------------------ */

static tu_value cut(tu_value x, int axis, int64_t from, int64_t to) {
    return from == to ? x : tu_slice(x, axis, (from - to) / 2, (from - to) / 2 + to, 1);
}

/* Grey by the weights of Rec. 601, as JPEG has them; colour from grey by repetition. */
static tu_value convert_channels(tu_value x, int64_t from, int64_t to) {
    static const double weights[3] = {0.299, 0.587, 0.114};
    if (from == to) return x;
    if (from == 1) return tu_concat((tu_value[]){x, x, x}, 3, 3);
    tu_value grey = tu_scale(tu_slice(x, 3, 0, 1, 1), weights[0]);
    for (int c = 1; c < 3; c++) grey = tu_add(grey, tu_scale(tu_slice(x, 3, c, c + 1, 1), weights[c]));
    return grey;
}

/* The side of the window: `own` pixels of which `unit` make `target` pixels of the result, rounded. */
static int64_t window_side(int64_t target, double unit, int64_t own) {
    int64_t side = (int64_t)((double)target * unit + 0.5);
    return side < 1 ? 1 : side > own ? own : side;
}

static tu_value fit(tu_value x, const sizes *key) {
    int64_t height = key->to[0], width = key->to[1];
    double vertical = (double)key->from[0] / (double)height,
           horizontal = (double)key->from[1] / (double)width;
    double unit = vertical < horizontal ? vertical : horizontal;
    int64_t rows = window_side(height, unit, key->from[0]), columns = window_side(width, unit, key->from[1]);
    int64_t factor = rows / height < columns / width ? rows / height : columns / width;
    if (factor < 1) factor = 1;
    x = cut(x, 1, key->from[0], rows / factor * factor);
    x = cut(x, 2, key->from[1], columns / factor * factor);
    x = convert_channels(tu_cast(x, TU_F32), key->from[2], key->to[2]);
    if (factor > 1) x = tu_avg_pool(x, .window = {factor, factor}, .padding = TU_VALID);
    if (rows / factor != height || columns / factor != width) x = tu_resize(x, height, width, TU_BILINEAR);
    return tu_cast(tu_clip(tu_round(x), 0, 255), TU_U8);
}

static tu_status build(fitting *f) {
    TU_TRY(tu_graph_new(&f->graph));
    f->input =
        tu_input(f->graph, "image", TU_U8, TU_SHAPE(1, f->key.from[0], f->key.from[1], f->key.from[2]));
    f->result = fit(f->input, &f->key);
    TU_TRY(tu_compile(f->graph, &f->program, .devices = "cpu:0", .fetch = &f->result, .fetch_count = 1));
    return tu_state_new(f->graph, &f->state);
}

/* ---- The programs that are kept -------------------------------------------------------------------------------- */

static void forget(fitting *f) {
    tu_program_free(f->program);
    tu_state_free(f->state);
    tu_graph_free(f->graph);
    *f = (fitting){0};
}

/* The program for these sizes; the one unused for longest makes room for a new one. */
static tu_status find(const sizes *key, fitting **found) {
    fitting *oldest = &kept[0];
    for (int i = 0; i < KEPT; i++) {
        if (kept[i].program && memcmp(&kept[i].key, key, sizeof *key) == 0) {
            *found = &kept[i];
            return TU_OK;
        }
        if (kept[i].used < oldest->used) oldest = &kept[i];
    }
    forget(oldest);
    oldest->key = *key;
    tu_status status = build(oldest);
    if (status != TU_OK) {
        forget(oldest);
        return status;
    }
    *found = oldest;
    return TU_OK;
}

static tu_status run(const sizes *key, const uint8_t *pixels, uint8_t *out) {
    fitting *f;
    TU_TRY(find(key, &f));
    f->used = ++clock_of_use;
    return tu_run(f->program, f->state, 1, (tu_feed[]){{f->input, pixels}}, (void *[]){out});
}

void tu__fit_forget(void) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < KEPT; i++) forget(&kept[i]);
    pthread_mutex_unlock(&lock);
}

tu_status tu__fit_image(const tu__image *image, int64_t height, int64_t width, int64_t channels,
                        uint8_t *out) {
    if (height < 1 || width < 1 || height > MAX_SIDE || width > MAX_SIDE || (channels != 1 && channels != 3))
        return tu_fail(
            TU_INVALID,
            "a picture cannot be fitted to %lld x %lld pixels of %lld channels: expected sides of 1 to %d, "
            "and 1 or 3 channels",
            (long long)height, (long long)width, (long long)channels, MAX_SIDE);
    sizes key = {.from = {image->height, image->width, image->channels}, .to = {height, width, channels}};
    pthread_mutex_lock(&lock);
    tu_status status = run(&key, image->pixels, out);
    pthread_mutex_unlock(&lock);
    return status;
}
