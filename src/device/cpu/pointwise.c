/* Running fused pointwise programs, tile by tile.
 *
 * A tile is some hundred to two thousand elements: all registers of a program together fit the first-level cache, so
 * that memory sees each operand once and each result once, however long the program. One step is one call of a loop
 * that the compiler vectorised (isa/loops_pointwise.c); calling it costs a few nanoseconds, a hundredth of the tile's
 * time.
 *
 * The same bits come out however nodes were fused: registers hold what memory would, since a result whose type is
 * narrower than the computing type is rounded to it at once, and no step joins two operations.
 *
 * A guard, a scalar that chooses between the next value of a variable and the one it has, costs nothing while it holds: the
 * step before the choice writes what would be chosen.
 *
 * Tiles are dealt out to the cores by number, over all pieces of the kernel. */
#include "device/cpu/pointwise.h"

#include <string.h>

#include "base/number.h"
#include "device/cpu/isa/kernels.h"
#include "device/cpu/ranges.h"

enum { MAX_SLOTS = 2 * CPU_MAX_OPERANDS + TU__MAX_CLUSTER_NODES };

/* One worker at work on one piece. */
typedef struct runner {
    const tu__kernel *k;
    const cpu_piece *piece;
    const cpu_loops *loops;
    int64_t size;        /* bytes of a computed element */
    char *scratch;       /* the worker's own */
    int64_t block_start; /* elements before the block of rows being summed */
    void *at[MAX_SLOTS]; /* slot -> the tile's data */
} runner;

typedef struct tile {
    int64_t row, column; /* where it begins */
    int64_t rows, n;     /* whole rows, or 1; elements */
    int64_t offset;      /* elements before it */
} tile;

static void *element(void *base, tu_dtype dtype, int64_t index) {
    return (char *)base + index * (int64_t)tu_dtype_size(dtype);
}

static void *computed(const runner *r, void *base, int64_t index) {
    return (char *)base + index * r->size;
}

static void convert(const runner *r, tu_dtype dtype, int64_t n, const void *from, void *to) {
    if (r->piece->wide)
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

/* Repeats the first element over all of the n. */
static void spread(const runner *r, int64_t n, void *to) {
    if (r->piece->wide)
        splat_f64(n, *(double *)to, to);
    else
        splat_f32(n, *(float *)to, to);
}

/* ---- Loads ---- */

/* Where a row of a broadcast operand begins. */
static int64_t row_offset(const cpu_piece *p, const cpu_load *load, int64_t row) {
    int64_t offset = 0;
    for (int i = p->rank - 2; i >= 0; i--) {
        int64_t index = i ? row % p->dim[i] : row;
        row /= p->dim[i];
        offset += index * load->stride[i];
    }
    return offset;
}

/* `n` elements of one row, from `column` on. */
static void load_row(const runner *r, const cpu_load *load, int64_t row, int64_t column, int64_t n,
                     void *to) {
    bool repeats = load->stride[r->piece->rank - 1] == 0;
    int64_t offset = row_offset(r->piece, load, row) + (repeats ? 0 : column);
    convert(r, load->dtype, repeats ? 1 : n, element(r->k->in[load->in], load->dtype, offset), to);
    if (repeats) spread(r, n, to);
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The first row of the `rows`, repeated over the others: what was copied is copied, twice as much each time. */
static void repeat_row(const runner *r, int64_t rows, void *to) {
    size_t row = (size_t)(r->piece->row * r->size), all = (size_t)rows * row;
    for (size_t done = row; done < all; done *= 2)
        memcpy((char *)to + done, to, done < all - done ? done : all - done);
}

/* Element i of the first `rows` becomes row i: from the last to the first, none is overwritten before it is read. */
static void spread_rows(const runner *r, int64_t rows, void *to) {
    int64_t n = r->piece->row;
    for (int64_t i = rows - 1; i >= 0; i--) {
        if (r->piece->wide)
            splat_f64(n, ((double *)to)[i], (double *)to + i * n);
        else
            splat_f32(n, ((float *)to)[i], (float *)to + i * n);
    }
}

/* Rows that differ in one index only. Images have rows of three channels: a call for each would cost more than the row
 * does, so rows that repeat are copied, and rows of one number each are read together. */
static void load_run(const runner *r, const cpu_load *load, int64_t row, int64_t rows, void *to) {
    const cpu_piece *p = r->piece;
    int64_t along = p->rank > 1 ? load->stride[p->rank - 2] : 0;
    if (along == 0) {
        load_row(r, load, row, 0, p->row, to);
        repeat_row(r, rows, to);
    } else if (along == 1 && load->stride[p->rank - 1] == 0) {
        convert(r, load->dtype, rows, element(r->k->in[load->in], load->dtype, row_offset(p, load, row)), to);
        spread_rows(r, rows, to);
    } else {
        for (int64_t i = 0; i < rows; i++) load_row(r, load, row + i, 0, p->row, computed(r, to, i * p->row));
    }
}

static void load_rows(const runner *r, const cpu_load *load, tile t) {
    const cpu_piece *p = r->piece;
    if (p->row_tiles) {
        load_row(r, load, t.row, t.column, t.n, r->at[load->slot]);
        return;
    }
    int64_t side = p->rank > 1 ? p->dim[p->rank - 2] : 1;
    for (int64_t i = 0, run; i < t.rows; i += run) {
        run = least(side - (t.row + i) % side, t.rows - i);
        load_run(r, load, t.row + i, run, computed(r, r->at[load->slot], i * p->row));
    }
}

static void load_tile(runner *r, const cpu_load *load, tile t) {
    void *base = r->k->in[load->in];
    switch (load->access) {
    case CPU_DIRECT: r->at[load->slot] = element(base, load->dtype, t.offset); break;
    case CPU_CONVERT:
        convert(r, load->dtype, t.n, element(base, load->dtype, t.offset), r->at[load->slot]);
        break;
    case CPU_ROW:
        r->at[load->slot] = element(base, load->dtype, row_offset(r->piece, load, t.row) + t.column);
        break;
    case CPU_WALK: load_rows(r, load, t); break;
    case CPU_ONCE: break;
    }
}

/* ---- Steps and stores ---- */

static void round_result(const runner *r, const cpu_step *step, int64_t n) {
    if (step->rounded == TU_DTYPE_COUNT) return;
    if (r->piece->wide)
        tu__round_array(step->rounded, r->at[step->out], n);
    else
        r->loops->convert->round[step->rounded](n, r->at[step->out]);
}

static void run_step(const runner *r, const cpu_step *step, int64_t n) {
    const void *x = r->at[step->x], *y = r->at[step->y], *z = r->at[step->z];
    if (r->piece->wide)
        r->loops->pointwise_f64[step->op](n, x, y, z, step->a, step->b, r->at[step->out]);
    else
        r->loops->pointwise[step->op](n, x, y, z, (float)step->a, (float)step->b, r->at[step->out]);
    round_result(r, step, n);
}

/* Whether the condition of a decided step, in a register that it fills, holds. */
static bool holds(const runner *r, const cpu_step *step) {
    const void *condition = r->at[step->x];
    return r->piece->wide ? *(const double *)condition != 0 : *(const float *)condition != 0;
}

static void run_steps(const runner *r, int64_t n) {
    const cpu_piece *p = r->piece;
    for (uint32_t i = 0; i < p->step_count; i++) {
        cpu_step step = p->steps[i];
        const cpu_step *next = i + 1 < p->step_count ? &p->steps[i + 1] : NULL;
        if (next && next->decided && holds(r, next)) {
            step.out = next->out;
            i++;
        }
        run_step(r, &step, n);
    }
}

static void *result(const runner *r, const cpu_store *store, tile t) {
    if (store->out != TU__NONE) return element(r->k->out[store->out], store->dtype, t.offset);
    return element(r->scratch + store->block, store->dtype, t.offset - r->block_start);
}

static void store_tile(const runner *r, const cpu_store *store, tile t) {
    if (store->direct) return;
    if (r->piece->wide)
        tu__store_array(store->dtype, r->at[store->slot], t.n, result(r, store, t));
    else
        r->loops->convert->store[store->dtype](t.n, r->at[store->slot], result(r, store, t));
}

/* ---- Tiles ---- */

static tile part_of_row(const cpu_piece *p, int64_t row, int64_t part) {
    int64_t column = part * p->tile;
    return (tile){row, column, 1, least(p->tile, p->row - column), row * p->row + column};
}

static tile whole_rows(const cpu_piece *p, int64_t first, int64_t last) {
    int64_t rows = least(p->tile / p->row, last - first);
    return (tile){first, 0, rows, rows * p->row, first * p->row};
}

static tile tile_at(const cpu_piece *p, int64_t number) {
    if (p->row_tiles) return part_of_row(p, number / p->row_tiles, number % p->row_tiles);
    return whole_rows(p, number * (p->tile / p->row), p->count / p->row);
}

static void run_tile(runner *r, tile t) {
    const cpu_piece *p = r->piece;
    for (uint32_t i = 0; i < p->load_count; i++) load_tile(r, &p->loads[i], t);
    for (uint32_t i = 0; i < p->store_count; i++)
        if (p->stores[i].direct) r->at[p->stores[i].slot] = result(r, &p->stores[i], t);
    run_steps(r, t.n);
    for (uint32_t i = 0; i < p->store_count; i++) store_tile(r, &p->stores[i], t);
}

/* Registers, and what they hold for the whole piece: numbers, scalars, rows that every tile repeats. */
static void begin_piece(runner *r, const cpu_piece *p, char *scratch) {
    r->piece = p;
    r->scratch = scratch;
    r->size = p->wide ? 8 : 4;
    for (uint16_t i = 0; i < p->scratch_slots; i++) r->at[i] = scratch + i * p->register_bytes;
    tile whole = {.rows = p->row_tiles ? 1 : p->tile / p->row, .n = p->tile};
    for (uint32_t i = 0; i < p->number_count; i++) {
        void *to = r->at[p->numbers[i].slot];
        if (p->wide)
            *(double *)to = p->numbers[i].number;
        else
            *(float *)to = (float)p->numbers[i].number;
        spread(r, whole.n, to);
    }
    for (uint32_t i = 0; i < p->load_count; i++)
        if (p->loads[i].access == CPU_ONCE) load_rows(r, &p->loads[i], whole);
}

/* Tiles first … last - 1 of the kernel. */
static void run_tiles(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const cpu_pointwise *d = k->data;
    runner r = {.k = k, .loops = cpu_of(k)->loops};
    char *scratch = (char *)k->workspace + (size_t)worker * d->scratch_bytes;
    uint32_t piece = 0;
    while (d->first_tile[piece + 1] <= first) piece++;
    for (int64_t number = first; number < last; piece++) {
        begin_piece(&r, &d->pieces[piece], scratch);
        int64_t end = least(last, d->first_tile[piece + 1]);
        for (; number < end; number++) run_tile(&r, tile_at(r.piece, number - d->first_tile[piece]));
    }
}

tu_status cpu_run_pointwise(const tu__kernel *k) {
    const cpu_pointwise *d = k->data;
    tu__parallel_for(d->first_tile[d->piece_count], d->grain, run_tiles, (void *)k);
    return TU_OK;
}

/* ---- With sums at the end ----
 *
 * A block of rows is computed and, while it is in cache, summed with the loops of the reductions, cut into the same
 * ranges and blocks as there (reduce.c): the bits are those of a reduction of its own. */

static void run_rows(runner *r, int64_t first, int64_t last) {
    const cpu_piece *p = r->piece;
    if (p->row_tiles) {
        for (int64_t row = first; row < last; row++)
            for (int64_t part = 0; part < p->row_tiles; part++) run_tile(r, part_of_row(p, row, part));
        return;
    }
    while (first < last) {
        tile t = whole_rows(p, first, last);
        run_tile(r, t);
        first += t.rows;
    }
}

/* Computes rows first … last - 1 of those that sums are over. */
static void run_block(runner *r, int64_t first, int64_t last) {
    int64_t each = r->piece->sum_row / r->piece->row;
    r->block_start = first * r->piece->sum_row;
    run_rows(r, first * each, last * each);
}

static const void *summed_row(const runner *r, const cpu_sum *sum, int64_t row) {
    tile t = {.offset = row * r->piece->sum_row};
    return result(r, &r->piece->stores[sum->store], t);
}

static int loop_type(const cpu_piece *p, const cpu_sum *sum) {
    return cpu_loop_type(p->stores[sum->store].dtype);
}

static float *floats_at(char *scratch, size_t offset) {
    return (float *)(void *)(scratch + offset);
}

static void sum_columns(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const cpu_pointwise *d = k->data;
    const cpu_piece *p = d->pieces;
    const struct cpu_reduce_loops *loops = cpu_of(k)->loops->kernels->reduce;
    runner r = {.k = k, .loops = cpu_of(k)->loops};
    begin_piece(&r, p, (char *)k->workspace + (size_t)worker * d->scratch_bytes);
    for (int64_t row = first; row < last; row += p->block_rows) {
        int64_t end = least(last, row + p->block_rows);
        run_block(&r, row, end);
        for (uint32_t i = 0; i < p->sum_count; i++) {
            float *sums = floats_at(r.scratch, p->sums[i].partial), *spare = floats_at(r.scratch, p->spare);
            loops->columns[CPU_SUM][loop_type(p, &p->sums[i])](end - row, p->sum_row, p->sum_row,
                                                               summed_row(&r, &p->sums[i], row),
                                                               row == first ? sums : spare);
            if (row != first) loops->merge[CPU_SUM](p->sum_row, spare, sums);
        }
    }
}

/* Sums of a block's rows, as the reductions have them. The squares of a norm are summed as they are made, in one pass over
 * the operand. */
static void sum_block(const runner *r, const cpu_sum *sum, int64_t first, int64_t last, float *sums) {
    const cpu_piece *p = r->piece;
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
    const cpu_piece *p = d->pieces;
    const struct cpu_reduce_loops *loops = cpu_of(k)->loops->kernels->reduce;
    runner r = {.k = k, .loops = cpu_of(k)->loops};
    begin_piece(&r, p, (char *)k->workspace + (size_t)worker * d->scratch_bytes);
    for (int64_t row = first; row < last; row += p->block_rows) {
        int64_t end = least(last, row + p->block_rows);
        if (!p->squares) run_block(&r, row, end);
        for (uint32_t i = 0; i < p->sum_count; i++) {
            const cpu_sum *sum = &p->sums[i];
            tu_dtype dtype = p->stores[sum->store].dtype;
            float *sums = floats_at(r.scratch, sum->partial);
            sum_block(&r, sum, row, end, sums);
            loops->finish[loop_type(p, sum)](end - row, sums, sum->divisor,
                                             cpu_at(k->out[sum->out], dtype, row));
        }
    }
}

/* The workers' sums, in the order of their ranges. */
static void join_sums(const tu__kernel *k, int workers) {
    const cpu_pointwise *d = k->data;
    const cpu_piece *p = d->pieces;
    const struct cpu_reduce_loops *loops = cpu_of(k)->loops->kernels->reduce;
    for (uint32_t i = 0; i < p->sum_count; i++) {
        const cpu_sum *sum = &p->sums[i];
        float *all = floats_at(k->workspace, sum->partial);
        for (int worker = 1; worker < workers; worker++) {
            char *scratch = (char *)k->workspace + (size_t)worker * d->scratch_bytes;
            loops->merge[CPU_SUM](p->sum_row, floats_at(scratch, sum->partial), all);
        }
        loops->finish[loop_type(p, sum)](p->sum_row, all, sum->divisor, k->out[sum->out]);
    }
}

tu_status cpu_run_with_sums(const tu__kernel *k) {
    const cpu_pointwise *d = k->data;
    const cpu_piece *p = d->pieces;
    if (p->sum_kind == TU__ROW_SUMS) {
        tu__parallel_for(p->sum_rows, p->sum_grain, sum_each_row, (void *)k);
        return TU_OK;
    }
    tu__parallel_for(p->sum_rows, p->sum_grain, sum_columns, (void *)k);
    join_sums(k, tu__parallel_ranges(p->sum_rows, p->sum_grain));
    return TU_OK;
}
