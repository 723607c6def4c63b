/* Copies of images from which tiles are loaded; see tile_product.c. */
#include <string.h>

#include "device/cpu/tile_product_plan.h"

enum {
    VECTOR = 16,   /* bytes that are copied at once */
    MAX_LINES = 16 /* rows of a filter that is gathered in vectors */
};

/* ---- Gathered rows ---- */

/* A row of pixels of y is gathered at a time: `line` has the row of the image under each row of the filter. */
typedef struct gathering {
    const cpu_tile_product *p;
    const char *end;             /* of x */
    const char *line[MAX_LINES]; /* NULL: outside the image */
} gathering;

static int64_t pixel_bytes_of(const cpu_convolution *c) {
    return c->x_channels * TILE_NUMBER_BYTES;
}

/* Copies the pixels under the taps of a row of the filter, of which the first is at column `left`. Pixels under adjacent taps
 * are adjacent, unless the filter is dilated. */
static char *copy_taps(const cpu_convolution *c, const char *line, int64_t left, char *to) {
    const int64_t taps = c->windows.size[1], step = c->windows.dilation[1], width = c->x_size[1];
    const int64_t bytes = pixel_bytes_of(c);
    for (int64_t tap = 0; tap < taps;) {
        const int64_t x = left + tap * step;
        const bool is_inside = line && x >= 0 && x < width;
        const int64_t run = is_inside && step == 1 ? min_i64(taps - tap, width - x) : 1;
        if (is_inside)
            memcpy(to, line + x * bytes, (size_t)(run * bytes));
        else
            memset(to, 0, (size_t)bytes);
        to += run * bytes;
        tap += run;
    }
    return to;
}

static const char *line_under(const cpu_convolution *c, const char *image, int64_t row, int64_t tap) {
    const int64_t y = row * c->windows.stride[0] - c->windows.pad[0] + tap * c->windows.dilation[0];
    return y >= 0 && y < c->x_size[0] ? image + y * c->x_size[1] * pixel_bytes_of(c) : NULL;
}

static void gather_pixel(const gathering *g, const char *image, int64_t row, int64_t column, char *to) {
    const cpu_convolution *c = &g->p->shape;
    const int64_t left = column * c->windows.stride[1] - c->windows.pad[2];
    char *end = to;
    for (int64_t tap = 0; tap < c->windows.size[0]; tap++)
        end = copy_taps(c, line_under(c, image, row, tap), left, end);
    memset(end, 0, (size_t)(to + g->p->pixel_bytes - end));
}

/* ---- The fast way: few bytes under a row of the filter, all inside the image ---- */

static inline void copy_vectors(char *to, const char *from, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += VECTOR) memcpy(to + i, from + i, VECTOR);
}

/* Copies whole vectors, whose excess the next copy overwrites. */
static void gather_inside(const gathering *g, int64_t left, char *to) {
    static const char zeros[CPU_TILE_ROW_BYTES];
    const cpu_convolution *c = &g->p->shape;
    const int64_t run = c->windows.size[1] * pixel_bytes_of(c), offset = left * pixel_bytes_of(c);
    const int64_t used = c->windows.size[0] * run;
    for (int64_t tap = 0; tap < c->windows.size[0]; tap++)
        copy_vectors(to + tap * run, g->line[tap] ? g->line[tap] + offset : zeros, run);
    copy_vectors(to + used, zeros, g->p->pixel_bytes - used);
}

/* True if the pixels of y can be gathered so, except those at the left and right border. */
static bool can_gather_fast(const cpu_tile_product *p) {
    const tu__windows *w = &p->shape.windows;
    return w->size[0] <= MAX_LINES && w->dilation[1] == 1 &&
           w->size[1] * pixel_bytes_of(&p->shape) <= CPU_TILE_ROW_BYTES;
}

/* True if the vectors for a pixel end before the end of x. */
static bool is_inside(const gathering *g, int64_t left) {
    const cpu_convolution *c = &g->p->shape;
    if (left < 0 || left + c->windows.size[1] > c->x_size[1]) return false;
    const char *last = NULL;
    for (int64_t tap = 0; tap < c->windows.size[0]; tap++)
        if (g->line[tap]) last = g->line[tap];
    return !last || last + left * pixel_bytes_of(c) + CPU_TILE_ROW_BYTES <= g->end;
}

/* Gathers `count` pixels of a row of y. */
static void gather_row(gathering *g, const char *image, int64_t row, int64_t column, int64_t count,
                       char *to) {
    const cpu_tile_product *p = g->p;
    const tu__windows *w = &p->shape.windows;
    const bool is_fast = can_gather_fast(p);
    for (int64_t tap = 0; is_fast && tap < w->size[0]; tap++)
        g->line[tap] = line_under(&p->shape, image, row, tap);
    for (int64_t i = column; i < column + count; i++, to += p->pixel_bytes) {
        const int64_t left = i * w->stride[1] - w->pad[2];
        if (is_fast && is_inside(g, left))
            gather_inside(g, left, to);
        else
            gather_pixel(g, image, row, i, to);
    }
}

/* A copy may write some bytes past its row: into the next, which follows, or the memory after the last. */
void cpu_tile_gather(const cpu_tile_product *p, const char *x, const cpu_tile_unit *unit, char *to) {
    const cpu_convolution *c = &p->shape;
    const int64_t height = c->y_size[0], width = c->y_size[1], end = unit->first_pixel + unit->pixels;
    const int64_t image_bytes = c->x_size[0] * c->x_size[1] * pixel_bytes_of(c);
    gathering g = {.p = p, .end = x + c->images * image_bytes};
    for (int64_t i = unit->first_pixel; i < end;) {
        const int64_t row = i / width, column = i - row * width, count = min_i64(width - column, end - i);
        gather_row(&g, x + row / height * image_bytes, row % height, column, count, to);
        to += count * p->pixel_bytes;
        i += count;
    }
}

/* ---- Planes ---- */

/* True if a tap reads pixels whose distance from the first modulo the stride is `phase`. */
static bool is_phase_used(const tu__windows *w, int axis, int64_t phase) {
    for (int64_t i = 0; i < w->size[axis]; i++)
        if (i * w->dilation[axis] % w->stride[axis] == phase) return true;
    return false;
}

/* Copies the pixels first, first + step, … of a row of an image, `count` of them, and zeros for those outside it. */
static void copy_row(const cpu_tile_product *p, const char *line, int64_t first, int64_t step, int64_t count,
                     char *to) {
    const int64_t bytes = p->shape.x_channels * TILE_NUMBER_BYTES, width = p->shape.x_size[1];
    const int64_t before = first < 0 ? min_i64(divide_up(-first, step), count) : 0;
    const int64_t end =
        first < width ? max_i64(min_i64(divide_up(width - first, step), count), before) : before;
    memset(to, 0, (size_t)(before * p->pixel_bytes));
    if (step == 1 && bytes == p->pixel_bytes) {
        memcpy(to + before * bytes, line + (first + before) * bytes, (size_t)((end - before) * bytes));
    } else {
        for (int64_t i = before; i < end; i++) {
            memcpy(to + i * p->pixel_bytes, line + (first + i * step) * bytes, (size_t)bytes);
            memset(to + i * p->pixel_bytes + bytes, 0, (size_t)(p->pixel_bytes - bytes));
        }
    }
    memset(to + end * p->pixel_bytes, 0, (size_t)((count - end) * p->pixel_bytes));
}

/* Copies the pixels of one phase of the strides to a plane. */
static void copy_plane(const cpu_tile_product *p, const char *image, const cpu_tile_unit *unit,
                       const int64_t phase[2], char *to) {
    const tu__windows *w = &p->shape.windows;
    const int64_t row_bytes = p->pitch * p->pixel_bytes;
    const int64_t line_bytes = p->shape.x_size[1] * p->shape.x_channels * TILE_NUMBER_BYTES;
    for (int64_t i = 0; i < p->plane_rows; i++, to += row_bytes) {
        const int64_t y = (unit->first_row + i) * w->stride[0] + phase[0] - w->pad[0];
        if (y < 0 || y >= p->shape.x_size[0])
            memset(to, 0, (size_t)row_bytes);
        else
            copy_row(p, image + y * line_bytes, phase[1] - w->pad[2], w->stride[1], p->pitch, to);
    }
}

void cpu_tile_copy_planes(const cpu_tile_product *p, const char *x, const cpu_tile_unit *unit, char *to) {
    const tu__windows *w = &p->shape.windows;
    const int64_t image_bytes =
        p->shape.x_size[0] * p->shape.x_size[1] * p->shape.x_channels * TILE_NUMBER_BYTES;
    for (int64_t n = 0; n < unit->images; n++)
        for (int64_t i = 0; i < w->stride[0] * w->stride[1]; i++) {
            const int64_t phase[2] = {i / w->stride[1], i % w->stride[1]};
            if (!is_phase_used(w, 0, phase[0]) || !is_phase_used(w, 1, phase[1])) continue;
            copy_plane(p, x + (unit->first_image + n) * image_bytes, unit, phase,
                       to + n * p->image_bytes + i * p->plane_bytes);
        }
}
