/* Convolution by our own tiles: running y and x. Each worker takes images, or bands of them, one after the other. */
#include "device/cpu/conv_direct_plan.h"

enum {
    PANEL_CHUNK =
        512 << 10 /* bytes of a panel worked through before the next rows: half a second-level cache */
};

typedef struct task {
    const cpu_direct *d;
    const cpu_direct_operands *o;
} task;

static char *packed_panel(const cpu_direct *d, const cpu_direct_operands *o, int64_t group, panel p) {
    int64_t group_elements = d->k * d->panel_vectors * d->loops->vector;
    return (char *)o->workspace + (group * group_elements + d->k * p.first) * d->loops->bytes;
}

/* Units are (group, panel, tap). */
static void pack_filter(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const task *t = context;
    const cpu_direct *d = t->d;
    int64_t x_channels = d->shape.x_channels, filter_row = d->taps * x_channels;
    bool forward = d->side == CPU_CONV_Y;
    for (int64_t unit = first; unit < last; unit++) {
        int64_t i = unit % d->taps, group = unit / d->taps / d->panels;
        panel p = cpu_direct_panel(d, unit / d->taps % d->panels);
        int64_t from = group * d->shape.y_channels * filter_row + d->tap_order[i] * x_channels;
        from += p.first * (forward ? filter_row : 1);
        d->loops->pack(d->in_channels, p.columns, (const char *)t->o->second + from * d->loops->bytes,
                       forward ? 1 : filter_row, forward ? filter_row : 1,
                       packed_panel(d, t->o, group, p) + i * d->in_channels * p.width * d->loops->bytes,
                       p.width);
    }
}

/* Blocks in chunks whose part of the panel stays in the cache while rows pass by. */
static int64_t chunk_of(int64_t blocks, int64_t block_bytes) {
    return block_bytes * blocks <= PANEL_CHUNK ? larger(blocks, 1) : larger(PANEL_CHUNK / block_bytes, 1);
}

typedef struct gathering { /* one panel of one phase of one band of an image */
    const cpu_direct *d;
    const cpu_direct_operands *o;
    const phase *f;
    panel p;
    int64_t panel_index, group, from, to; /* rows from … to - 1 of the phase */
    const char *image;                    /* exact: the source; else the padded image from row image_row on */
    int64_t image_row;
    char *out;     /* the result's image */
    const char *b; /* the panel */
} gathering;

/* The address of the result's pixel (row, 0) of the phase, at the panel's first channel. */
static char *result_row(const gathering *w, int64_t row) {
    const cpu_direct *d = w->d;
    int64_t pixel = (w->f->axis[0].first + row * d->out_step[0]) * d->out_size[1] + w->f->axis[1].first;
    return w->out +
           (pixel * d->shape.groups * d->columns + w->group * d->columns + w->p.first) * d->loops->bytes;
}

static void finish_with(const gathering *w, cpu_gemm_tile *t) {
    const char *bias = w->o->bias;
    t->bias = bias ? bias + (w->group * w->d->columns + w->p.first) * w->d->loops->bytes : NULL;
    t->relu = w->o->relu;
}

static cpu_gemm_tile tile_of(const gathering *w) {
    const cpu_direct *d = w->d;
    return (cpu_gemm_tile){.a_row = d->in_step[1] * d->source.channels,
                           .a_step = 1,
                           .b_step = w->p.width,
                           .depth = w->f->depth,
                           .c_row = d->out_step[1] * d->shape.groups * d->columns,
                           .columns = w->p.columns};
}

static void gather_padded(const gathering *w) {
    const cpu_direct *d = w->d;
    const phase *f = w->f;
    int bytes = d->loops->bytes;
    cpu_gemm_tile t = tile_of(w);
    t.b_block = f->depth * w->p.width;
    int64_t chunk = chunk_of(f->blocks, t.b_block * bytes);
    for (int64_t block = 0; block == 0 || block < f->blocks; block += chunk) {
        t.blocks = smaller(chunk, f->blocks - block);
        t.a_blocks = f->a_blocks + block;
        t.b = w->b + block * t.b_block * bytes;
        t.add = block > 0;
        if (block + chunk >= f->blocks) finish_with(w, &t);
        for (int64_t row = w->from; row < w->to; row++) {
            int64_t place = (row * d->in_step[0] - w->image_row) * d->source.full[1] * d->source.channels;
            t.a = w->image + (place + w->group * d->in_channels) * bytes;
            t.c = result_row(w, row);
            cpu_direct_rows(d->loops, t, f->axis[1].count);
        }
    }
}

/* A tile over the rows i0 … i1 - 1 of the filter, piece by piece. `t` has what is common to its pieces. */
static void multiply_pieces(const gathering *w, const edge_tile *tile, int64_t row, int64_t i0, int64_t i1,
                            cpu_gemm_tile t) {
    const cpu_direct *d = w->d;
    const axis_phase *rows = &w->f->axis[0], *columns = &w->f->axis[1];
    int bytes = d->loops->bytes;
    int64_t step = d->in_step[1], pixel = d->source.channels;
    int64_t source_row = i0 < i1 ? row * d->in_step[0] + rows->offset[i0] : 0;
    char *c = (char *)t.c + tile->row * t.c_row * bytes;
    cpu_gemm_tile piece_tile = t;
    piece_tile.bias = NULL;
    piece_tile.relu = false;
    if (tile->piece_count > 1 && !t.add) { /* zeros for pieces to add to */
        piece_tile.c = c;
        piece_tile.rows = tile->rows;
        piece_tile.blocks = 0;
        d->loops->tile(&piece_tile);
        piece_tile.add = t.add = true;
    }
    for (int64_t i = 0; i < tile->piece_count; i++) {
        const piece *p = &tile->pieces[i];
        cpu_gemm_tile *use = i + 1 < tile->piece_count ? &piece_tile : &t;
        int64_t column = p->taps == 0 ? 0 : (tile->row + p->row) * step + columns->offset[p->tap];
        use->blocks = p->taps == 0 ? 0 : i1 - i0;
        use->depth = p->taps * d->in_channels;
        use->a = w->image + (source_row * d->source.size[1] + column) * pixel * bytes;
        use->b = w->b + (i0 * columns->taps + p->tap) * d->in_channels * w->p.width * bytes;
        use->c = c + p->row * t.c_row * bytes;
        use->rows = p->rows;
        d->loops->tile(use);
    }
}

static void gather_exact(const gathering *w) {
    const cpu_direct *d = w->d;
    const phase *f = w->f;
    const axis_phase *rows = &f->axis[0];
    cpu_gemm_tile t = tile_of(w);
    t.a_blocks = f->a_blocks;
    t.b_block = f->axis[1].taps * d->in_channels * w->p.width;
    int64_t chunk = chunk_of(rows->taps, larger(t.b_block, 1) * d->loops->bytes);
    for (int64_t tap = 0; tap == 0 || tap < rows->taps; tap += chunk) {
        t.add = tap > 0;
        if (tap + chunk >= rows->taps) finish_with(w, &t);
        for (int64_t row = w->from; row < w->to; row++) {
            int64_t i0 = tap, i1 = smaller(tap + chunk, rows->taps);
            while (i0 < i1 && row * d->in_step[0] + rows->offset[i0] < 0) i0++;
            while (i1 > i0 && row * d->in_step[0] + rows->offset[i1 - 1] >= d->source.size[0]) i1--;
            t.c = result_row(w, row);
            for (const edge_tile *tile = f->tiles[w->panel_index]; tile->rows > 0; tile++)
                multiply_pieces(w, tile, row, i0, i1, t);
        }
    }
}

static void gather_image(gathering *w, int64_t band) {
    const cpu_direct *d = w->d;
    for (w->group = 0; w->group < d->shape.groups; w->group++)
        for (w->panel_index = 0; w->panel_index < d->panels; w->panel_index++)
            for (int64_t f = 0; f < d->phase_count; f++) {
                w->f = &d->phases[f];
                w->p = cpu_direct_panel(d, w->panel_index);
                w->from = band * d->band_rows;
                w->to = smaller(w->from + d->band_rows, w->f->axis[0].count);
                w->b = packed_panel(d, w->o, w->group, w->p) + w->f->k_first * w->p.width * d->loops->bytes;
                (d->exact ? gather_exact : gather_padded)(w);
            }
}

/* Units are (image, band). */
static void gather_bands(void *context, int64_t first, int64_t last, int worker) {
    const task *t = context;
    const cpu_direct *d = t->d;
    int bytes = d->loops->bytes;
    int64_t source_image = d->source.size[0] * d->source.size[1] * d->source.channels * bytes;
    int64_t out_image = d->out_size[0] * d->out_size[1] * d->shape.groups * d->columns * bytes;
    char *scratch = (char *)t->o->workspace + d->packed_bytes + (size_t)worker * d->scratch_bytes;
    for (int64_t unit = first; unit < last; unit++) {
        int64_t n = unit / d->bands, band = unit % d->bands, last_row;
        gathering w = {.d = d, .o = t->o, .out = (char *)t->o->out + n * out_image};
        w.image = (const char *)t->o->first + n * source_image;
        if (!d->exact) {
            cpu_direct_band_rows(d, band, &w.image_row, &last_row);
            w.image = cpu_direct_pad(&d->source, bytes, w.image, w.image_row, last_row, scratch);
        }
        gather_image(&w, band);
    }
}

void cpu_direct_gather(const cpu_direct *d, const cpu_direct_operands *operands) {
    task t = {d, operands};
    tu__parallel_for(d->shape.groups * d->panels * d->taps, 1, pack_filter, &t);
    tu__parallel_deal(d->shape.images * d->bands, 1, gather_bands, &t);
}
