/* Reductions over any set of axes that are adjacent after axes of size 1 are dropped.
 *
 * Adjacent axes that are both reduced or both kept are merged. Reductions over all, leading, trailing or middle axes
 * then all have the form x [outer, reduced, inner] -> [outer, inner]:
 *
 *     mean of a loss               [1, n, 1]         gradient of a bias    [1, n h w, c]
 *     global average pool          [n, h w, c]       maximum of rows       [rows, n, 1]
 *
 * Sets of axes that are not adjacent, such as 0 and 2 of three, use the reference kernel. Memory traffic: x is read
 * once.
 *
 * Work is divided by results if there are enough of them: by `outer`, and by strips of `inner`. Otherwise (the
 * gradient of a bias has c results and a million rows) the reduced axis is divided: each worker reduces its rows,
 * and the partial results are merged in the order of the ranges, so the same number of threads gives the same
 * bits. Mirrored replicas with different numbers of threads all divide it by the least (cpu_sum_threads). In the graph
 * of a model, whose bits depend neither on threads nor on the number of samples, it is never divided, and axes of size
 * 1, which may be the samples, are not dropped. */
#include "device/cpu/isa/kernels.h"
#include "device/cpu/ranges.h"

enum { STRIP = 512 }; /* results per work item, on the stack in f32 */

typedef struct reduce_data {
    int64_t outer, reduced, inner;
    cpu_reduction reduction;
    float divisor;
    tu_dtype dtype;
    int64_t workers;  /* at most so many divide the results, or the additions of one */
    bool splits_rows; /* the reduced axis is divided among the workers */
    size_t worker_bytes;
} reduce_data;

typedef struct split_run { /* the slice of `outer` being reduced */
    const tu__kernel *k;
    int64_t slice;
} split_run;

static const struct cpu_reduce_loops *loops_of(const tu__kernel *k) {
    return cpu_of(k)->loops->kernels->reduce;
}

/* Reduces rows first … last - 1 of slice `o`, for `width` columns from `column` on. */
static void reduce_block(const tu__kernel *k, int64_t o, int64_t first, int64_t last, int64_t column,
                         int64_t width, float *out) {
    const reduce_data *d = k->data;
    int type = cpu_loop_variant(d->dtype);
    const void *x = cpu_element(k->in[0], d->dtype, (o * d->reduced + first) * d->inner + column);
    if (d->inner == 1)
        *out = loops_of(k)->row[d->reduction][type](last - first, x);
    else
        loops_of(k)->columns[d->reduction][type](last - first, width, d->inner, x, out);
}

static void store(const tu__kernel *k, int64_t offset, int64_t n, const float *results) {
    const reduce_data *d = k->data;
    loops_of(k)->finish[cpu_loop_variant(d->dtype)](n, results, d->divisor,
                                                    cpu_element(k->out[0], d->dtype, offset));
}

/* ---- By results ---- */

static int64_t strips_of(const reduce_data *d) {
    return (d->inner + STRIP - 1) / STRIP;
}

/* If a slice has one result, the results of adjacent slices are contiguous: they are stored together. */
static void reduce_slices(const tu__kernel *k, int64_t first, int64_t last) {
    const reduce_data *d = k->data;
    float results[STRIP];
    for (int64_t o = first; o < last; o += STRIP) {
        int64_t count = last - o < STRIP ? last - o : STRIP;
        for (int64_t i = 0; i < count; i++) reduce_block(k, o + i, 0, d->reduced, 0, 1, results + i);
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
        reduce_slices(k, first, last);
        return;
    }
    for (int64_t work_item = first; work_item < last; work_item++) {
        int64_t o = work_item / strips, column = work_item % strips * STRIP;
        int64_t width = d->inner - column < STRIP ? d->inner - column : STRIP;
        reduce_block(k, o, 0, d->reduced, column, width, results);
        store(k, o * d->inner + column, width, results);
    }
}

static tu_status run_by_results(const tu__kernel *k) {
    const reduce_data *d = k->data;
    int64_t work_items = d->outer * strips_of(d), strip = d->inner < STRIP ? d->inner : STRIP;
    tu__parallel_for(work_items, cpu_grain(work_items, d->reduced * strip, d->workers), result_range,
                     (void *)k);
    return TU_OK;
}

/* ---- By rows of the reduced axis ---- */

static float *worker_results(const tu__kernel *k, int worker) {
    const reduce_data *d = k->data;
    return (float *)(void *)((char *)k->workspace + (size_t)worker * d->worker_bytes);
}

static void row_range(void *context, int64_t first, int64_t last, int worker) {
    const split_run *run = context;
    const reduce_data *d = run->k->data;
    reduce_block(run->k, run->slice, first, last, 0, d->inner, worker_results(run->k, worker));
}

static tu_status run_by_rows(const tu__kernel *k) {
    const reduce_data *d = k->data;
    int64_t grain = cpu_grain(d->reduced, d->inner, d->workers);
    int ranges = tu__parallel_ranges(d->reduced, grain);
    for (int64_t o = 0; o < d->outer; o++) {
        split_run run = {k, o};
        tu__parallel_for(d->reduced, grain, row_range, &run);
        for (int worker = 1; worker < ranges; worker++)
            loops_of(k)->merge[d->reduction](d->inner, worker_results(k, worker), worker_results(k, 0));
        store(k, o * d->inner, d->inner, worker_results(k, 0));
    }
    return TU_OK;
}

/* ---- Lowering rules ---- */

/* Computes the three sizes; false if the reduced axes are not adjacent. */
static bool compute_sizes(tu_shape shape, int64_t axes, bool drops_ones, reduce_data *d) {
    d->outer = d->reduced = d->inner = 1;
    bool inside = false, after = false; /* at or after the reduced axes */
    for (int64_t i = 0; i < shape.rank; i++) {
        if (shape.dim[i] == 1 && drops_ones) continue;
        bool is_reduced = axes >> i & 1;
        if (is_reduced && after) return false;
        if (is_reduced) {
            inside = true;
            d->reduced *= shape.dim[i];
        } else if (inside) {
            after = true;
            d->inner *= shape.dim[i];
        } else {
            d->outer *= shape.dim[i];
        }
    }
    if (d->reduced == 1) { /* a copy: treat it as one long row */
        d->inner *= d->outer;
        d->outer = 1;
    }
    return true;
}

/* True if there are too few results for all workers, but enough rows for more than one. */
static bool should_split_rows(const reduce_data *d) {
    return d->outer * strips_of(d) < d->workers && d->reduced > 1 &&
           d->reduced * d->inner >= 2 * (int64_t)CPU_GRAIN;
}

static cpu_reduction reduction_of(tu__opcode op) {
    return op == TU__OP_REDUCE_MAX ? CPU_MAX : op == TU__OP_REDUCE_MIN ? CPU_MIN : CPU_SUM;
}

/* sum, mean, reduce_max and reduce_min have the same attributes. */
tu_status cpu_lower_reduce(tu__selection *s, const tu__node *node) {
    tu_type x = cpu_input_type(s, node, 0);
    reduce_data plan = {
        .reduction = reduction_of(node->op->code), .dtype = x.dtype, .workers = cpu_sum_threads(s)};
    bool is_frozen = s->graph->is_frozen;
    if (cpu_loop_variant(x.dtype) < 0 ||
        !compute_sizes(x.shape, tu__attrs(node, sum)->axes, !is_frozen, &plan))
        return TU_UNSUPPORTED;
    plan.divisor = node->op->code == TU__OP_MEAN ? (float)plan.reduced : 1;
    plan.splits_rows = !is_frozen && should_split_rows(&plan);
    plan.worker_bytes = cpu_round_up_to_line((size_t)plan.inner * sizeof(float));
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, plan.splits_rows ? run_by_rows : run_by_results);
    reduce_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    *d = plan;
    k->workspace_bytes = plan.splits_rows ? plan.worker_bytes * (size_t)plan.workers : 0;
    cpu_kernel_set_costs(k, s, node);
    return cpu_kernel_add_operands(k, node, -1);
}

/* ---- argmax and argmin along the last axis ---- */

typedef struct arg_data {
    int64_t rows, n;
    tu_dtype dtype;
    bool is_min;
} arg_data;

static void arg_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const arg_data *d = k->data;
    int type = cpu_loop_variant(d->dtype);
    int64_t (*index_of)(int64_t n, const void *x) =
        d->is_min ? loops_of(k)->index_of_min[type] : loops_of(k)->index_of_max[type];
    (void)worker;
    for (int64_t row = first; row < last; row++)
        ((int64_t *)k->out[0])[row] = index_of(d->n, cpu_element(k->in[0], d->dtype, row * d->n));
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
    if (cpu_loop_variant(x.dtype) < 0 || axis != x.shape.rank - 1) return TU_UNSUPPORTED;
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_arg);
    arg_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    d->n = x.shape.dim[axis];
    d->rows = tu_shape_elements(x.shape) / d->n;
    d->dtype = x.dtype;
    d->is_min = node->op->code == TU__OP_ARGMIN;
    cpu_kernel_set_costs(k, s, node);
    return cpu_kernel_add_operands(k, node, -1);
}
