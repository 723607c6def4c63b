/* Direct convolution: computes y and dx. Each worker processes images, or bands of images, one after the other. */
#include "device/cpu/conv_direct_plan.h"

enum {
    PANEL_CHUNK = 512 << 10
}; /* bytes of a packed panel used for all rows before the next: half of an L2 cache */

typedef struct task {
    const cpu_direct *plan;
    const cpu_direct_operands *operands;
} task;

/* Returns the offset of a panel in the packed filter, in bytes. */
static int64_t panel_offset(const cpu_direct *plan, int64_t group, cpu_panel p) {
    int64_t group_elements = plan->k * plan->panel_vectors * plan->loops->vector_elements;
    return (group * group_elements + plan->k * p.first) * plan->loops->element_bytes;
}

/* Work item: index = (group * panels + panel) * taps + tap. */
static void pack_filter(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const task *t = context;
    const cpu_direct *plan = t->plan;
    int64_t x_channels = plan->shape.x_channels, filter_row = plan->taps * x_channels;
    bool forward = plan->computes == CPU_CONV_Y;
    for (int64_t work_item = first; work_item < last; work_item++) {
        int64_t i = work_item % plan->taps, group = work_item / plan->taps / plan->panels;
        cpu_panel p = cpu_direct_panel(plan, work_item / plan->taps % plan->panels);
        int64_t from = group * plan->shape.y_channels * filter_row + plan->tap_order[i] * x_channels;
        from += p.first * (forward ? filter_row : 1);
        plan->loops->pack(plan->in_channels, p.columns,
                          (const char *)t->operands->second + from * plan->loops->element_bytes,
                          forward ? 1 : filter_row, forward ? filter_row : 1,
                          (char *)t->operands->workspace + panel_offset(plan, group, p) +
                              i * plan->in_channels * p.width * plan->loops->element_bytes,
                          p.width);
    }
}

/* Returns the number of blocks whose part of the panel fits the cache while the rows are processed. */
static int64_t blocks_per_chunk(int64_t blocks, int64_t block_bytes) {
    return block_bytes * blocks <= PANEL_CHUNK ? max_i64(blocks, 1) : max_i64(PANEL_CHUNK / block_bytes, 1);
}

typedef struct conv_work { /* one panel of one phase, for one band of an image */
    const cpu_direct *plan;
    const cpu_direct_operands *operands;
    const phase *phase;
    cpu_panel panel;
    int64_t panel_index, group, from, to; /* rows from … to - 1 of the phase */
    const char *image; /* skips_padding: the source; else the padded image from row image_row on */
    int64_t image_row;
    char *out;     /* the output image */
    const char *b; /* the packed filter panel */
} conv_work;

/* Returns the address of output pixel (row, 0) of the phase, at the panel's first channel. */
static char *result_row(const conv_work *work, int64_t row) {
    const cpu_direct *plan = work->plan;
    int64_t pixel = (work->phase->axis[0].first + row * plan->out_stride[0]) * plan->out_size[1] +
                    work->phase->axis[1].first;
    return work->out +
           (pixel * plan->shape.groups * plan->columns + work->group * plan->columns + work->panel.first) *
               plan->loops->element_bytes;
}

static void set_epilogue(const conv_work *work, cpu_gemm_tile *t) {
    const char *bias = work->operands->bias;
    t->bias = bias ? bias + (work->group * work->plan->columns + work->panel.first) *
                                work->plan->loops->element_bytes
                   : NULL;
    t->relu = work->operands->relu;
}

/* Lets the tile write output row `row` of the phase, and read the residual there if it is the last to add. */
static void set_result(const conv_work *work, int64_t row, bool is_last, cpu_gemm_tile *t) {
    char *c = result_row(work, row);
    const char *residual = work->operands->residual;
    t->c = c;
    if (residual && is_last) t->residual = residual + (c - (const char *)work->operands->out);
}

static cpu_gemm_tile common_tile(const conv_work *work) {
    const cpu_direct *plan = work->plan;
    return (cpu_gemm_tile){.a_row = plan->in_stride[1] * plan->source.channels,
                           .a_step = 1,
                           .b_step = work->panel.width,
                           .depth = work->phase->depth,
                           .c_row = plan->out_stride[1] * plan->shape.groups * plan->columns,
                           .columns = work->panel.columns};
}

static void compute_padded(const conv_work *work) {
    const cpu_direct *plan = work->plan;
    const phase *this_phase = work->phase;
    int bytes = plan->loops->element_bytes;
    cpu_gemm_tile t = common_tile(work);
    t.b_block = this_phase->depth * work->panel.width;
    int64_t chunk = blocks_per_chunk(this_phase->blocks, t.b_block * bytes);
    for (int64_t block = 0; block == 0 || block < this_phase->blocks; block += chunk) {
        t.blocks = min_i64(chunk, this_phase->blocks - block);
        t.a_blocks = this_phase->a_blocks + block;
        t.b = work->b + block * t.b_block * bytes;
        t.add = block > 0;
        bool is_last = block + chunk >= this_phase->blocks;
        if (is_last) set_epilogue(work, &t);
        for (int64_t row = work->from; row < work->to; row++) {
            int64_t row_offset = (row * plan->in_stride[0] - work->image_row) * plan->source.padded_size[1] *
                                 plan->source.channels;
            t.a = work->image + (row_offset + work->group * plan->in_channels) * bytes;
            set_result(work, row, is_last, &t);
            cpu_multiply_rows(plan->loops, t, this_phase->axis[1].count);
        }
    }
}

/* Computes a border tile for filter rows i0 … i1 - 1. A segment is a run of rows of the tile with the same in-bounds
 * taps; `t` contains the fields common to all segments. */
static void multiply_segments(const conv_work *work, const border_tile *tile, int64_t row, int64_t i0,
                              int64_t i1, cpu_gemm_tile t) {
    const cpu_direct *plan = work->plan;
    const axis_phase *rows = &work->phase->axis[0], *columns = &work->phase->axis[1];
    int bytes = plan->loops->element_bytes;
    int64_t step = plan->in_stride[1], pixel = plan->source.channels;
    int64_t source_row = i0 < i1 ? row * plan->in_stride[0] + rows->offset[i0] : 0;
    char *c = (char *)t.c + tile->row * t.c_row * bytes;
    if (t.residual) t.residual = (const char *)t.residual + tile->row * t.c_row * bytes;
    cpu_gemm_tile segment_tile = t;
    segment_tile.bias = segment_tile.residual = NULL;
    segment_tile.relu = false;
    /* A call with blocks = 0 writes zeros, to which the segments are added. */
    if (tile->segment_count > 1 && !t.add) {
        segment_tile.c = c;
        segment_tile.rows = tile->rows;
        segment_tile.blocks = 0;
        plan->loops->tile(&segment_tile);
        segment_tile.add = t.add = true;
    }
    for (int64_t i = 0; i < tile->segment_count; i++) {
        const segment *p = &tile->segments[i];
        cpu_gemm_tile *current = i + 1 < tile->segment_count ? &segment_tile : &t;
        int64_t column = p->taps == 0 ? 0 : (tile->row + p->row) * step + columns->offset[p->tap];
        current->blocks = p->taps == 0 ? 0 : i1 - i0;
        current->depth = p->taps * plan->in_channels;
        current->a = work->image + (source_row * plan->source.size[1] + column) * pixel * bytes;
        current->b = work->b + (i0 * columns->taps + p->tap) * plan->in_channels * work->panel.width * bytes;
        current->c = c + p->row * t.c_row * bytes;
        current->rows = p->rows;
        plan->loops->tile(current);
    }
}

static void compute_skipping_padding(const conv_work *work) {
    const cpu_direct *plan = work->plan;
    const phase *this_phase = work->phase;
    const axis_phase *rows = &this_phase->axis[0];
    cpu_gemm_tile t = common_tile(work);
    t.a_blocks = this_phase->a_blocks;
    t.b_block = this_phase->axis[1].taps * plan->in_channels * work->panel.width;
    int64_t chunk = blocks_per_chunk(rows->taps, max_i64(t.b_block, 1) * plan->loops->element_bytes);
    for (int64_t tap = 0; tap == 0 || tap < rows->taps; tap += chunk) {
        t.add = tap > 0;
        bool is_last = tap + chunk >= rows->taps;
        if (is_last) set_epilogue(work, &t);
        for (int64_t row = work->from; row < work->to; row++) {
            int64_t i0 = tap, i1 = min_i64(tap + chunk, rows->taps);
            while (i0 < i1 && row * plan->in_stride[0] + rows->offset[i0] < 0) i0++;
            while (i1 > i0 && row * plan->in_stride[0] + rows->offset[i1 - 1] >= plan->source.size[0]) i1--;
            set_result(work, row, is_last, &t);
            for (const border_tile *tile = this_phase->tiles[work->panel_index]; tile->rows > 0; tile++)
                multiply_segments(work, tile, row, i0, i1, t);
        }
    }
}

static void compute_band(conv_work *work, int64_t band) {
    const cpu_direct *plan = work->plan;
    const char *filter = plan->is_packed ? work->operands->second : work->operands->workspace;
    for (work->group = 0; work->group < plan->shape.groups; work->group++)
        for (work->panel_index = 0; work->panel_index < plan->panels; work->panel_index++)
            for (int64_t f = 0; f < plan->phase_count; f++) {
                work->phase = &plan->phases[f];
                work->panel = cpu_direct_panel(plan, work->panel_index);
                work->from = band * plan->band_rows;
                work->to = min_i64(work->from + plan->band_rows, work->phase->axis[0].count);
                work->b = filter + panel_offset(plan, work->group, work->panel) +
                          work->phase->k_first * work->panel.width * plan->loops->element_bytes;
                (plan->skips_padding ? compute_skipping_padding : compute_padded)(work);
            }
}

/* Work item: index = image * bands + band. */
static void compute_bands(void *context, int64_t first, int64_t last, int worker) {
    const task *t = context;
    const cpu_direct *plan = t->plan;
    int bytes = plan->loops->element_bytes;
    int64_t source_image = plan->source.size[0] * plan->source.size[1] * plan->source.channels * bytes;
    int64_t out_image = plan->out_size[0] * plan->out_size[1] * plan->shape.groups * plan->columns * bytes;
    char *scratch =
        (char *)t->operands->workspace + plan->packed_bytes + (size_t)worker * plan->scratch_bytes;
    for (int64_t work_item = first; work_item < last; work_item++) {
        int64_t n = work_item / plan->bands, band = work_item % plan->bands, last_row;
        conv_work work = {
            .plan = plan, .operands = t->operands, .out = (char *)t->operands->out + n * out_image};
        work.image = (const char *)t->operands->first + n * source_image;
        if (!plan->skips_padding) {
            cpu_direct_band_rows(plan, band, &work.image_row, &last_row);
            work.image = cpu_direct_pad(&plan->source, bytes, work.image, work.image_row, last_row, scratch);
        }
        compute_band(&work, band);
    }
}

void cpu_direct_output(const cpu_direct *plan, const cpu_direct_operands *operands) {
    task t = {plan, operands};
    if (!plan->is_packed)
        tu__parallel_for(plan->shape.groups * plan->panels * plan->taps, 1, pack_filter, &t);
    tu__parallel_for_stealing(plan->shape.images * plan->bands, 1, compute_bands, &t);
}
