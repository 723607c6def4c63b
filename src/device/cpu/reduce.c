/* Reductions: any set of axes that, with neighbours joined, leaves one run of reduced axes.
 *
 * Axes of size 1 count for nothing, and neighbouring axes that are both reduced or both kept are one axis.
 * What then remains of all, of leading, of trailing and of middle axes is one form, x [outer, reduced, inner]
 * -> [outer, inner]:
 *
 *     a loss's mean                [1, n, 1]         a bias's gradient    [1, n h w, c]
 *     a global average pool        [n, h w, c]       a row's maximum      [rows, n, 1]
 *
 * Sets that leave two runs, as axes 0 and 2 of three, go to the reference. Bytes: x once.
 *
 * Work is dealt out by results where there are enough of them to go round: by `outer`, and by strips of
 * `inner`. Where there are not (a bias's gradient has c results and a million rows) the reduced axis is cut,
 * each worker folds its rows, and the parts are folded in the order of the ranges: same width, same bits.
 */
#include "device/cpu/isa/kernels.h"
#include "device/cpu/ranges.h"

enum { STRIP = 512 }; /* results of one unit of work, on the stack in f32 */

typedef struct reduce_data {
    int64_t outer, reduced, inner;
    cpu_folding folding;
    float divisor;
    tu_dtype dtype;
    int64_t workers;
    bool cut; /* along the reduced axis */
    size_t worker_bytes;
} reduce_data;

typedef struct cut_run { /* which of `outer` is being folded */
    const tu__kernel *k;
    int64_t slice;
} cut_run;

static const struct cpu_reduce_loops *loops_of(const tu__kernel *k) {
    return cpu_of(k)->loops->kernels->reduce;
}

/* Rows first … last of slice `o`, columns from `column` on, `width` of them: into out. */
static void fold_part(const tu__kernel *k, int64_t o, int64_t first, int64_t last, int64_t column,
                      int64_t width, float *out) {
    const reduce_data *d = k->data;
    int type = cpu_loop_type(d->dtype);
    const void *x = cpu_at(k->in[0], d->dtype, (o * d->reduced + first) * d->inner + column);
    if (d->inner == 1)
        *out = loops_of(k)->row[d->folding][type](last - first, x);
    else
        loops_of(k)->columns[d->folding][type](last - first, width, d->inner, x, out);
}

static void store(const tu__kernel *k, int64_t at, int64_t n, const float *results) {
    const reduce_data *d = k->data;
    loops_of(k)->finish[cpu_loop_type(d->dtype)](n, results, d->divisor, cpu_at(k->out[0], d->dtype, at));
}

/* ---- By results ---- */

static int64_t strips_of(const reduce_data *d) {
    return (d->inner + STRIP - 1) / STRIP;
}

/* Results of neighbouring slices follow each other when a slice has one: they are stored together. */
static void fold_slices(const tu__kernel *k, int64_t first, int64_t last) {
    const reduce_data *d = k->data;
    float results[STRIP];
    for (int64_t o = first; o < last; o += STRIP) {
        int64_t count = last - o < STRIP ? last - o : STRIP;
        for (int64_t i = 0; i < count; i++) fold_part(k, o + i, 0, d->reduced, 0, 1, results + i);
        store(k, o, count, results);
    }
}

static void result_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const reduce_data *d = k->data;
    int64_t strips = strips_of(d);
    float results[STRIP];
    (void)worker;
    if (d->inner == 1) {
        fold_slices(k, first, last);
        return;
    }
    for (int64_t unit = first; unit < last; unit++) {
        int64_t o = unit / strips, column = unit % strips * STRIP;
        int64_t width = d->inner - column < STRIP ? d->inner - column : STRIP;
        fold_part(k, o, 0, d->reduced, column, width, results);
        store(k, o * d->inner + column, width, results);
    }
}

static tu_status run_by_results(const tu__kernel *k) {
    const reduce_data *d = k->data;
    int64_t units = d->outer * strips_of(d), strip = d->inner < STRIP ? d->inner : STRIP;
    tu__parallel_for(units, cpu_grain(units, d->reduced * strip, d->workers), result_range, (void *)k);
    return TU_OK;
}

/* ---- By rows of the reduced axis ---- */

static float *worker_results(const tu__kernel *k, int worker) {
    const reduce_data *d = k->data;
    return (float *)(void *)((char *)k->workspace + (size_t)worker * d->worker_bytes);
}

static void row_range(void *context, int64_t first, int64_t last, int worker) {
    const cut_run *run = context;
    const reduce_data *d = run->k->data;
    fold_part(run->k, run->slice, first, last, 0, d->inner, worker_results(run->k, worker));
}

static tu_status run_by_rows(const tu__kernel *k) {
    const reduce_data *d = k->data;
    int64_t grain = cpu_grain(d->reduced, d->inner, d->workers);
    int ranges = tu__parallel_ranges(d->reduced, grain);
    for (int64_t o = 0; o < d->outer; o++) {
        cut_run run = {k, o};
        tu__parallel_for(d->reduced, grain, row_range, &run);
        for (int worker = 1; worker < ranges; worker++)
            loops_of(k)->merge[d->folding](d->inner, worker_results(k, worker), worker_results(k, 0));
        store(k, o * d->inner, d->inner, worker_results(k, 0));
    }
    return TU_OK;
}

/* ---- Making ---- */

/* The three sizes; false when the reduced axes are not one run. */
static bool collapse(tu_shape shape, int64_t axes, reduce_data *d) {
    d->outer = d->reduced = d->inner = 1;
    bool inside = false, behind = false; /* the run */
    for (int64_t i = 0; i < shape.rank; i++) {
        if (shape.dim[i] == 1) continue;
        bool is_reduced = axes >> i & 1;
        if (is_reduced && behind) return false;
        if (is_reduced) {
            inside = true;
            d->reduced *= shape.dim[i];
        } else if (inside) {
            behind = true;
            d->inner *= shape.dim[i];
        } else {
            d->outer *= shape.dim[i];
        }
    }
    if (d->reduced == 1) { /* a copy: one long row, not many short ones */
        d->inner *= d->outer;
        d->outer = 1;
    }
    return true;
}

/* Too few results for all workers, and rows enough to be worth more than one. */
static bool should_cut(const reduce_data *d) {
    return d->outer * strips_of(d) < d->workers && d->reduced > 1 &&
           d->reduced * d->inner >= 2 * (int64_t)CPU_GRAIN;
}

static cpu_folding folding_of(tu__opcode op) {
    return op == TU__OP_REDUCE_MAX ? CPU_MAX : op == TU__OP_REDUCE_MIN ? CPU_MIN : CPU_SUM;
}

/* sum, mean, reduce_max and reduce_min have the same attributes. */
tu_status cpu_lower_reduce(tu__selection *s, const tu__node *node) {
    tu_type x = cpu_input_type(s, node, 0);
    reduce_data plan = {
        .folding = folding_of(node->op->code), .dtype = x.dtype, .workers = cpu_of(s)->threads};
    if (cpu_loop_type(x.dtype) < 0 || !collapse(x.shape, tu__attrs(node, sum)->axes, &plan))
        return TU_UNSUPPORTED;
    plan.divisor = node->op->code == TU__OP_MEAN ? (float)plan.reduced : 1;
    plan.cut = should_cut(&plan);
    plan.worker_bytes = cpu_lines((size_t)plan.inner * sizeof(float));
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, plan.cut ? run_by_rows : run_by_results);
    reduce_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    *d = plan;
    k->workspace_bytes = plan.cut ? plan.worker_bytes * (size_t)plan.workers : 0;
    cpu_kernel_count(k, s, node);
    return cpu_kernel_bind(k, node, -1);
}

/* ---- Places of extremes along the last axis ---- */

typedef struct arg_data {
    int64_t rows, n;
    tu_dtype dtype;
    bool least;
} arg_data;

static void arg_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const arg_data *d = k->data;
    int type = cpu_loop_type(d->dtype);
    int64_t (*place_of)(int64_t n, const void *x) =
        d->least ? loops_of(k)->place_of_min[type] : loops_of(k)->place_of_max[type];
    (void)worker;
    for (int64_t row = first; row < last; row++)
        ((int64_t *)k->out[0])[row] = place_of(d->n, cpu_at(k->in[0], d->dtype, row * d->n));
}

static tu_status run_arg(const tu__kernel *k) {
    const arg_data *d = k->data;
    tu__parallel_for(d->rows, cpu_grain(d->rows, d->n, cpu_of(k)->threads), arg_range, (void *)k);
    return TU_OK;
}

/* argmin has the attributes of argmax. */
tu_status cpu_lower_arg(tu__selection *s, const tu__node *node) {
    tu_type x = cpu_input_type(s, node, 0);
    int64_t axis = tu__attrs(node, argmax)->axis;
    if (cpu_loop_type(x.dtype) < 0 || axis != x.shape.rank - 1) return TU_UNSUPPORTED;
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_arg);
    arg_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    d->n = x.shape.dim[axis];
    d->rows = tu_shape_elements(x.shape) / d->n;
    d->dtype = x.dtype;
    d->least = node->op->code == TU__OP_ARGMIN;
    cpu_kernel_count(k, s, node);
    return cpu_kernel_bind(k, node, -1);
}
