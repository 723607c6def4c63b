/* Running fused pointwise kernels, tile by tile.
 *
 * A tile has 256 to 2048 elements: all registers of a program together fit the L1 cache, so that each operand is
 * read from memory once and each result written once, however long the program. A step calls a loop that the
 * compiler vectorised (isa/loops_pointwise.c); the call costs a few nanoseconds, a hundredth of the tile's time.
 *
 * Fusion does not change the bits of results: a result whose type is narrower than the computing type is rounded
 * immediately, as if it were stored, and no step combines two operations.
 *
 * A guard, a select with a scalar condition between the next and the current value of a variable, costs nothing if
 * its condition is true: the step before it then writes the result directly.
 *
 * Tiles are divided among the threads by index, over all subkernels of the kernel. */
#include "device/cpu/pointwise.h"

#include <string.h>

#include "base/number.h"
#include "device/cpu/isa/kernels.h"
#include "device/cpu/ranges.h"

enum { MAX_SLOTS = 2 * CPU_MAX_OPERANDS + TU__MAX_CLUSTER_NODES };

/* The state of one worker in one subkernel. */
typedef struct runner {
    const tu__kernel *k;
    const cpu_subkernel *subkernel;
    const cpu_loops *loops;
    int64_t size;               /* bytes of an element of the computing type */
    char *scratch;              /* of this worker */
    int64_t block_start;        /* elements before the block of rows being summed */
    void *slot_data[MAX_SLOTS]; /* slot -> the tile's data */
} runner;

typedef struct tile {
    int64_t row, column; /* its first element */
    int64_t rows, n;     /* number of whole rows, or 1; number of elements */
    int64_t offset;      /* number of elements before it */
} tile;

static void *element(void *base, tu_dtype dtype, int64_t index) {
    return (char *)base + index * (int64_t)tu_dtype_size(dtype);
}

static void *element_at(const runner *r, void *base, int64_t index) {
    return (char *)base + index * r->size;
}

static void convert(const runner *r, tu_dtype dtype, int64_t n, const void *from, void *to) {
    if (r->subkernel->wide)
        tu__load_array(dtype, from, n, to);
    else
        r->loops->convert->load[dtype](n, from, to);
}

static void splat_f32(int64_t n, float number, float *to) {
    for (int64_t i = 0; i < n; i++) to[i] = number;
}

static void splat_f64(int64_t n, double number, double *to) {
    for (int64_t i = 0; i < n; i++) to[i] = number;
}

/* Copies the first element to all n. */
static void fill_from_first(const runner *r, int64_t n, void *to) {
    if (r->subkernel->wide)
        splat_f64(n, *(double *)to, to);
    else
        splat_f32(n, *(float *)to, to);
}

/* ---- Loads ---- */

/* Returns the offset of a row in a broadcast operand. */
static int64_t row_offset(const cpu_subkernel *p, const cpu_load *load, int64_t row) {
    int64_t offset = 0;
    for (int i = p->rank - 2; i >= 0; i--) {
        int64_t index = i ? row % p->dim[i] : row;
        row /= p->dim[i];
        offset += index * load->stride[i];
    }
    return offset;
}

/* Loads `n` elements of one row, from `column` on. */
static void load_row(const runner *r, const cpu_load *load, int64_t row, int64_t column, int64_t n,
                     void *to) {
    bool repeats = load->stride[r->subkernel->rank - 1] == 0;
    int64_t offset = row_offset(r->subkernel, load, row) + (repeats ? 0 : column);
    convert(r, load->dtype, repeats ? 1 : n, element(r->k->in[load->in], load->dtype, offset), to);
    if (repeats) fill_from_first(r, n, to);
}

static int64_t min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Copies the first row to all `rows`, doubling the copied size each time. */
static void repeat_row(const runner *r, int64_t rows, void *to) {
    size_t row = (size_t)(r->subkernel->row * r->size), total = (size_t)rows * row;
    for (size_t done = row; done < total; done *= 2)
        memcpy((char *)to + done, to, done < total - done ? done : total - done);
}

/* Expands element i of the first `rows` to row i, backwards, so that no element is overwritten before it is read. */
static void expand_rows(const runner *r, int64_t rows, void *to) {
    int64_t n = r->subkernel->row;
    for (int64_t i = rows - 1; i >= 0; i--) {
        if (r->subkernel->wide)
            splat_f64(n, ((double *)to)[i], (double *)to + i * n);
        else
            splat_f32(n, ((float *)to)[i], (float *)to + i * n);
    }
}

/* Loads rows that differ in one index only. Images have rows of three channels, and a call per row would cost more
 * than the row itself: so repeated rows are copied, and rows of one repeated number are read together. */
static void load_run(const runner *r, const cpu_load *load, int64_t row, int64_t rows, void *to) {
    const cpu_subkernel *p = r->subkernel;
    int64_t row_stride = p->rank > 1 ? load->stride[p->rank - 2] : 0;
    if (row_stride == 0) {
        load_row(r, load, row, 0, p->row, to);
        repeat_row(r, rows, to);
    } else if (row_stride == 1 && load->stride[p->rank - 1] == 0) {
        convert(r, load->dtype, rows, element(r->k->in[load->in], load->dtype, row_offset(p, load, row)), to);
        expand_rows(r, rows, to);
    } else {
        for (int64_t i = 0; i < rows; i++)
            load_row(r, load, row + i, 0, p->row, element_at(r, to, i * p->row));
    }
}

static void load_rows(const runner *r, const cpu_load *load, tile t) {
    const cpu_subkernel *p = r->subkernel;
    if (p->row_tiles) {
        load_row(r, load, t.row, t.column, t.n, r->slot_data[load->slot]);
        return;
    }
    int64_t side = p->rank > 1 ? p->dim[p->rank - 2] : 1;
    for (int64_t i = 0, run; i < t.rows; i += run) {
        run = min_i64(side - (t.row + i) % side, t.rows - i);
        load_run(r, load, t.row + i, run, element_at(r, r->slot_data[load->slot], i * p->row));
    }
}

static void load_tile(runner *r, const cpu_load *load, tile t) {
    void *base = r->k->in[load->in];
    switch (load->access) {
    case CPU_DIRECT: r->slot_data[load->slot] = element(base, load->dtype, t.offset); break;
    case CPU_CONVERT:
        convert(r, load->dtype, t.n, element(base, load->dtype, t.offset), r->slot_data[load->slot]);
        break;
    case CPU_ROW:
        r->slot_data[load->slot] =
            element(base, load->dtype, row_offset(r->subkernel, load, t.row) + t.column);
        break;
    case CPU_WALK: load_rows(r, load, t); break;
    case CPU_ONCE: break;
    }
}

/* ---- Steps and stores ---- */

static void round_result(const runner *r, const cpu_step *step, int64_t n) {
    if (step->rounded == TU_DTYPE_COUNT) return;
    if (r->subkernel->wide)
        tu__round_array(step->rounded, r->slot_data[step->out], n);
    else
        r->loops->convert->round[step->rounded](n, r->slot_data[step->out]);
}

static void run_step(const runner *r, const cpu_step *step, int64_t n) {
    const void *x = r->slot_data[step->x], *y = r->slot_data[step->y], *z = r->slot_data[step->z];
    if (r->subkernel->wide)
        r->loops->pointwise_f64[step->op](n, x, y, z, step->a, step->b, r->slot_data[step->out]);
    else
        r->loops->pointwise[step->op](n, x, y, z, (float)step->a, (float)step->b, r->slot_data[step->out]);
    round_result(r, step, n);
}

/* True if the condition of a step with can_skip_select is true. */
static bool condition_is_true(const runner *r, const cpu_step *step) {
    const void *condition = r->slot_data[step->x];
    return r->subkernel->wide ? *(const double *)condition != 0 : *(const float *)condition != 0;
}

static void run_steps(const runner *r, int64_t n) {
    const cpu_subkernel *p = r->subkernel;
    for (uint32_t i = 0; i < p->step_count; i++) {
        cpu_step step = p->steps[i];
        const cpu_step *next = i + 1 < p->step_count ? &p->steps[i + 1] : NULL;
        if (next && next->can_skip_select && condition_is_true(r, next)) {
            step.out = next->out;
            i++;
        }
        run_step(r, &step, n);
    }
}

static void *store_address(const runner *r, const cpu_store *store, tile t) {
    if (store->out != TU__NONE) return element(r->k->out[store->out], store->dtype, t.offset);
    return element(r->scratch + store->block, store->dtype, t.offset - r->block_start);
}

static void store_tile(const runner *r, const cpu_store *store, tile t) {
    if (store->direct) return;
    if (r->subkernel->wide)
        tu__store_array(store->dtype, r->slot_data[store->slot], t.n, store_address(r, store, t));
    else
        r->loops->convert->store[store->dtype](t.n, r->slot_data[store->slot], store_address(r, store, t));
}

/* ---- Tiles ---- */

static tile tile_in_row(const cpu_subkernel *p, int64_t row, int64_t tile_index) {
    int64_t column = tile_index * p->tile;
    return (tile){row, column, 1, min_i64(p->tile, p->row - column), row * p->row + column};
}

static tile tile_of_rows(const cpu_subkernel *p, int64_t first, int64_t last) {
    int64_t rows = min_i64(p->tile / p->row, last - first);
    return (tile){first, 0, rows, rows * p->row, first * p->row};
}

static tile tile_at(const cpu_subkernel *p, int64_t tile_index) {
    if (p->row_tiles) return tile_in_row(p, tile_index / p->row_tiles, tile_index % p->row_tiles);
    return tile_of_rows(p, tile_index * (p->tile / p->row), p->count / p->row);
}

static void run_tile(runner *r, tile t) {
    const cpu_subkernel *p = r->subkernel;
    for (uint32_t i = 0; i < p->load_count; i++) load_tile(r, &p->loads[i], t);
    for (uint32_t i = 0; i < p->store_count; i++)
        if (p->stores[i].direct) r->slot_data[p->stores[i].slot] = store_address(r, &p->stores[i], t);
    run_steps(r, t.n);
    for (uint32_t i = 0; i < p->store_count; i++) store_tile(r, &p->stores[i], t);
}

/* Sets up the registers, and fills those that are constant for the whole subkernel: numbers, scalars, repeated
 * rows. */
static void init_subkernel(runner *r, const cpu_subkernel *p, char *scratch) {
    r->subkernel = p;
    r->scratch = scratch;
    r->size = p->wide ? 8 : 4;
    for (uint16_t i = 0; scratch && i < p->scratch_slots; i++)
        r->slot_data[i] = scratch + i * p->register_bytes;
    tile all_rows = {.rows = p->row_tiles ? 1 : p->tile / p->row, .n = p->tile};
    for (uint32_t i = 0; i < p->number_count; i++) {
        void *to = r->slot_data[p->numbers[i].slot];
        if (p->wide)
            *(double *)to = p->numbers[i].number;
        else
            *(float *)to = (float)p->numbers[i].number;
        fill_from_first(r, all_rows.n, to);
    }
    for (uint32_t i = 0; i < p->load_count; i++)
        if (p->loads[i].access == CPU_ONCE) load_rows(r, &p->loads[i], all_rows);
}

/* Returns a worker's part of the workspace; NULL if the kernel needs none. */
static char *scratch_of(const tu__kernel *k, int worker) {
    const cpu_pointwise *d = k->data;
    return d->scratch_bytes ? (char *)k->workspace + (size_t)worker * d->scratch_bytes : NULL;
}

/* Runs tiles first … last - 1 of the kernel. */
static void run_tiles(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const cpu_pointwise *d = k->data;
    runner r = {.k = k, .loops = cpu_of(k)->loops};
    char *scratch = scratch_of(k, worker);
    uint32_t subkernel = 0;
    while (d->first_tile[subkernel + 1] <= first) subkernel++;
    for (int64_t tile_index = first; tile_index < last; subkernel++) {
        init_subkernel(&r, &d->subkernels[subkernel], scratch);
        int64_t end = min_i64(last, d->first_tile[subkernel + 1]);
        for (; tile_index < end; tile_index++)
            run_tile(&r, tile_at(r.subkernel, tile_index - d->first_tile[subkernel]));
    }
}

tu_status cpu_run_pointwise(const tu__kernel *k) {
    const cpu_pointwise *d = k->data;
    tu__parallel_for(d->first_tile[d->subkernel_count], d->grain, run_tiles, (void *)k);
    return TU_OK;
}

/* ---- Kernels with sums at the end ----
 *
 * A block of rows is computed and, while it is in the cache, summed with the loops of the reductions, in the same
 * ranges and blocks as there (reduce.c): so the bits are those of a separate reduction. */

static void run_rows(runner *r, int64_t first, int64_t last) {
    const cpu_subkernel *p = r->subkernel;
    if (p->row_tiles) {
        for (int64_t row = first; row < last; row++)
            for (int64_t tile_index = 0; tile_index < p->row_tiles; tile_index++)
                run_tile(r, tile_in_row(p, row, tile_index));
        return;
    }
    while (first < last) {
        tile t = tile_of_rows(p, first, last);
        run_tile(r, t);
        first += t.rows;
    }
}

/* Computes rows first … last - 1, in rows of the sums. */
static void run_block(runner *r, int64_t first, int64_t last) {
    int64_t rows_per_sum_row = r->subkernel->sum_row / r->subkernel->row;
    r->block_start = first * r->subkernel->sum_row;
    run_rows(r, first * rows_per_sum_row, last * rows_per_sum_row);
}

static const void *summed_row(const runner *r, const cpu_sum *sum, int64_t row) {
    tile t = {.offset = row * r->subkernel->sum_row};
    return store_address(r, &r->subkernel->stores[sum->store], t);
}

static int loop_type(const cpu_subkernel *p, const cpu_sum *sum) {
    return cpu_loop_variant(p->stores[sum->store].dtype);
}

static float *floats_at(char *scratch, size_t offset) {
    return (float *)(void *)(scratch + offset);
}

static void sum_columns(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const cpu_pointwise *d = k->data;
    const cpu_subkernel *p = d->subkernels;
    const struct cpu_reduce_loops *loops = cpu_of(k)->loops->kernels->reduce;
    runner r = {.k = k, .loops = cpu_of(k)->loops};
    init_subkernel(&r, p, scratch_of(k, worker));
    for (int64_t row = first; row < last; row += p->block_rows) {
        int64_t end = min_i64(last, row + p->block_rows);
        run_block(&r, row, end);
        for (uint32_t i = 0; i < p->sum_count; i++) {
            float *sums = floats_at(r.scratch, p->sums[i].partial),
                  *extra_sums = floats_at(r.scratch, p->extra_sums);
            loops->columns[CPU_SUM][loop_type(p, &p->sums[i])](end - row, p->sum_row, p->sum_row,
                                                               summed_row(&r, &p->sums[i], row),
                                                               row == first ? sums : extra_sums);
            if (row != first) loops->merge[CPU_SUM](p->sum_row, extra_sums, sums);
        }
    }
}

/* Sums the rows of a block, like the reductions. For a norm, squares are computed and summed in one pass over the
 * operand. */
static void sum_block(const runner *r, const cpu_sum *sum, int64_t first, int64_t last, float *sums) {
    const cpu_subkernel *p = r->subkernel;
    const struct cpu_reduce_loops *loops = r->loops->kernels->reduce;
    const float *operand = r->k->in[p->loads[0].in];
    int type = loop_type(p, sum);
    for (int64_t n = first; n < last; n++)
        sums[n - first] = p->squares ? loops->row_of_squares(p->sum_row, operand + n * p->sum_row)
                                     : loops->row[CPU_SUM][type](p->sum_row, summed_row(r, sum, n));
}

static void sum_each_row(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const cpu_pointwise *d = k->data;
    const cpu_subkernel *p = d->subkernels;
    const struct cpu_reduce_loops *loops = cpu_of(k)->loops->kernels->reduce;
    runner r = {.k = k, .loops = cpu_of(k)->loops};
    init_subkernel(&r, p, scratch_of(k, worker));
    for (int64_t row = first; row < last; row += p->block_rows) {
        int64_t end = min_i64(last, row + p->block_rows);
        if (!p->squares) run_block(&r, row, end);
        for (uint32_t i = 0; i < p->sum_count; i++) {
            const cpu_sum *sum = &p->sums[i];
            tu_dtype dtype = p->stores[sum->store].dtype;
            float *sums = floats_at(r.scratch, sum->partial);
            sum_block(&r, sum, row, end, sums);
            loops->finish[loop_type(p, sum)](end - row, sums, sum->divisor,
                                             cpu_element(k->out[sum->out], dtype, row));
        }
    }
}

/* Adds the workers' sums, in the order of their ranges. */
static void merge_sums(const tu__kernel *k, int workers) {
    const cpu_pointwise *d = k->data;
    const cpu_subkernel *p = d->subkernels;
    const struct cpu_reduce_loops *loops = cpu_of(k)->loops->kernels->reduce;
    for (uint32_t i = 0; i < p->sum_count; i++) {
        const cpu_sum *sum = &p->sums[i];
        float *total = floats_at(k->workspace, sum->partial);
        for (int worker = 1; worker < workers; worker++) {
            char *scratch = scratch_of(k, worker);
            loops->merge[CPU_SUM](p->sum_row, floats_at(scratch, sum->partial), total);
        }
        loops->finish[loop_type(p, sum)](p->sum_row, total, sum->divisor, k->out[sum->out]);
    }
}

tu_status cpu_run_with_sums(const tu__kernel *k) {
    const cpu_pointwise *d = k->data;
    const cpu_subkernel *p = d->subkernels;
    if (p->sum_kind == TU__ROW_SUMS) {
        tu__parallel_for(p->sum_rows, p->sum_grain, sum_each_row, (void *)k);
        return TU_OK;
    }
    tu__parallel_for(p->sum_rows, p->sum_grain, sum_columns, (void *)k);
    merge_sums(k, tu__parallel_ranges(p->sum_rows, p->sum_grain));
    return TU_OK;
}
