/* Reductions: sum, mean, maximum, minimum, product, logsumexp along any axes; argmax and argmin along one.
 *
 * Axes of size 1 are ignored, and adjacent axes that are both reduced or both kept are merged. Each remaining run of
 * reduced axes is reduced by one stage, x [outer, reduced, inner] -> [outer, inner], innermost run first. Between
 * stages, reducer states are stored in the workspace (kernels/folds.cuh). Nearly all reductions have one run:
 *
 *     a loss's mean                [1, n, 1]         a bias's gradient    [1, n h w, c]
 *     a global average pool        [n, h w, c]       a row's maximum      [rows, n, 1]
 *
 * A run with too few results to occupy the GPU is split along its reduced axis into two stages: partial results, and
 * the reduction of these. The split depends only on shapes and the GPU model, so results are bitwise reproducible.
 */
#include "device/cuda/ops/reduce.h"
#include "device/cuda/ops/ops.h"

#include "device/cuda/kernels/reduce_args.h"

enum {
    BLOCK = 256,
    MAX_STAGES = TU_MAX_RANK, /* at most 4 runs, of two stages each */
    MAX_SPLITS = 4096,
    BLOCKS_PER_MULTIPROCESSOR = 4, /* enough loads in flight to saturate memory */
    ROWS_PER_THREAD = 8,           /* before a column is split further */
    SMALL_WORDS = 1 << 16,         /* 1 MB */
};

/* ---- Reducers ---- */

typedef struct reducer {
    const char *name;    /* in kernels/folds.cuh */
    size_t narrow, wide; /* bytes per state, computed in float or double */
} reducer;

static const reducer reducers[] = {
    [CUDA_SUM] = {"summing", 4, 8},
    [CUDA_PRODUCT] = {"multiplying", 4, 8},
    [CUDA_LARGEST] = {"largest", 4, 8},
    [CUDA_SMALLEST] = {"smallest", 4, 8},
    [CUDA_LOG_SUM_EXP] = {"log_sum_exp", 8, 16},
    [CUDA_ARGMAX] = {"argmax", 16, 16},
    [CUDA_ARGMIN] = {"argmin", 16, 16},
};

/* ---- Stages ---- */

typedef struct stage {
    int64_t outer, reduced, inner, splits;
    size_t to; /* offset in the workspace; the last stage writes the result */
    const cuda_function *function;
    cuda_grid grid;
    reduce_rows_args rows; /* if inner == 1 */
    reduce_columns_args columns;
} stage;

typedef struct reduce_data {
    int count;
    stage stages[MAX_STAGES];
} reduce_data;

static int64_t divide_up(int64_t n, int64_t d) {
    return (n + d - 1) / d;
}

static int64_t min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Elements per 16-byte word, as in kernels/folds.cuh. */
static int64_t elements_per_word(size_t element) {
    return min_i64(16 / (int64_t)element, 8);
}

/* ---- Rows ---- */

/* Returns the threads for a row of `words` words: lanes of a warp, or a block if a warp would take long. */
static int lanes_for(int64_t words) {
    int lanes = 1;
    while (lanes < 32 && lanes < words) lanes *= 2;
    return words >= 4 * BLOCK ? BLOCK : lanes;
}

int cuda_row_lanes(int64_t n, size_t element) {
    return lanes_for(divide_up(n, elements_per_word(element)));
}

static void plan_rows(stage *st, size_t element, int multiprocessors, bool may_split) {
    int64_t word = elements_per_word(element), words = divide_up(st->reduced, word);
    int lanes = lanes_for(words);
    int64_t needed = divide_up((int64_t)BLOCKS_PER_MULTIPROCESSOR * multiprocessors, st->outer);
    int64_t max_splits = lanes == BLOCK ? words / (4 * BLOCK) : 1; /* four words in flight per thread */
    int64_t splits = min_i64(min_i64(needed, max_splits), MAX_SPLITS);
    if (!may_split || st->outer >= 2 * (int64_t)multiprocessors || splits < 2) splits = 1;
    int64_t segment = divide_up(divide_up(st->reduced, splits), word) * word;
    st->splits = divide_up(st->reduced, segment);
    st->rows = (reduce_rows_args){.rows = st->outer * st->splits,
                                  .reduced = st->reduced,
                                  .segment = segment,
                                  .splits = (int)st->splits,
                                  .lanes = lanes};
    st->grid = cuda_row_grid(st->rows.rows, lanes);
}

cuda_grid cuda_row_grid(int64_t rows, int lanes) {
    return (cuda_grid){.blocks = {(unsigned)divide_up(rows, BLOCK / lanes)}, .threads = BLOCK};
}

/* ---- Columns ---- */

/* Returns the adjacent groups per block: all that fit; fewer if there would be too few blocks with too many rows, but
 * at least a cache line of 128 bytes, or half of one if all data fits into the cache. */
static int64_t columns_for(int64_t groups, int64_t reduced, int64_t blocks_wanted) {
    int64_t columns = divide_up(groups, divide_up(groups, BLOCK));
    int64_t min_columns = groups * reduced <= SMALL_WORDS ? 4 : 8;
    while (columns >= 2 * min_columns && divide_up(groups, columns) < blocks_wanted &&
           reduced > ROWS_PER_THREAD * (BLOCK / columns))
        columns = divide_up(columns, 2);
    return columns;
}

cuda_tiling cuda_tile_columns(int64_t groups, int64_t reduced, int multiprocessors, int resident) {
    int64_t needed = (int64_t)resident * multiprocessors, columns = columns_for(groups, reduced, needed);
    int64_t slices = min_i64(BLOCK / columns, reduced), max_splits = reduced / (slices * ROWS_PER_THREAD * 4);
    int64_t splits = min_i64(min_i64(needed / divide_up(groups, columns), max_splits), MAX_SPLITS);
    int64_t segment = divide_up(reduced, splits > 1 ? splits : 1);
    return (cuda_tiling){(int)columns, (int)slices, (int)divide_up(reduced, segment), segment};
}

static void plan_columns(stage *st, int64_t width, int multiprocessors, bool may_split) {
    int64_t row_groups = st->inner / width, groups = st->outer * row_groups;
    cuda_tiling t = cuda_tile_columns(groups, st->reduced, multiprocessors, BLOCKS_PER_MULTIPROCESSOR);
    st->splits = may_split ? t.splits : 1;
    st->columns = (reduce_columns_args){.groups = groups,
                                        .row_groups = row_groups,
                                        .reduced = st->reduced,
                                        .inner = st->inner,
                                        .segment = may_split ? t.segment : st->reduced,
                                        .columns = t.columns,
                                        .slices = t.slices};
    st->grid = (cuda_grid){.blocks = {(unsigned)divide_up(groups, t.columns), (unsigned)st->splits},
                           .threads = BLOCK};
}

/* ---- Lowering ---- */

typedef struct reduction {
    tu__selection *s;
    cuda_reduce_op op;
    tu_dtype dtype;
    double divisor;
    reduce_data *data;
    size_t workspace;
} reduction;

static size_t state_bytes(const reduction *r) {
    return cuda_is_wide(r->dtype) ? reducers[r->op].wide : reducers[r->op].narrow;
}

/* Adds a stage for x [outer, reduced, inner], and a second one that reduces the partial results if it is split. `last`:
 * no other run follows. */
static tu_status add_run(reduction *r, int64_t outer, int64_t reduced, int64_t inner, bool last,
                         bool may_split) {
    const char *name = reducers[r->op].name, *type = cuda_type(r->dtype);
    bool first = r->data->count == 0;
    size_t element = first ? tu_dtype_size(r->dtype) : state_bytes(r);
    stage *st = &r->data->stages[r->data->count++];
    *st = (stage){.outer = outer, .reduced = reduced, .inner = inner, .to = r->workspace};
    int64_t width = inner % elements_per_word(element) == 0 ? elements_per_word(element) : 1;
    if (inner == 1)
        plan_rows(st, element, cuda_of(r->s)->multiprocessors, may_split);
    else
        plan_columns(st, width, cuda_of(r->s)->multiprocessors, may_split);
    bool is_last_stage = last && st->splits == 1;
    const char *form = first ? (is_last_stage ? "true, true" : "true, false")
                             : (is_last_stage ? "false, true" : "false, false");
    st->rows.divisor = st->columns.divisor = r->divisor;
    st->function = inner == 1 ? cuda_request(r->s, "reduce", "reduce_rows<%s, %s, %s>", name, type, form)
                              : cuda_request(r->s, "reduce", "reduce_columns<%s, %s, %s, %d>", name, type,
                                             form, (int)width);
    if (!st->function) return TU_NO_MEMORY;
    if (!is_last_stage)
        r->workspace += ((size_t)(outer * st->splits * inner) * state_bytes(r) + 63) & ~(size_t)63;
    return st->splits > 1 ? add_run(r, outer, st->splits, inner, last, false) : TU_OK;
}

/* The merged axes: kept and reduced sizes alternate, starting with a kept one (perhaps 1). */
typedef struct axis_runs {
    int count;
    int64_t size[TU_MAX_RANK + 1];
} axis_runs;

static axis_runs merge_axes(tu_shape shape, int64_t axes) {
    axis_runs t = {.count = 1, .size = {1}};
    for (int64_t i = 0; i < shape.rank; i++) {
        if (shape.dim[i] == 1) continue;
        bool reduced = axes >> i & 1, in_reduced = t.count % 2 == 0;
        if (reduced != in_reduced) t.size[t.count++] = 1;
        t.size[t.count - 1] *= shape.dim[i];
    }
    return t;
}

/* Reduces the innermost run and continues with the others. */
static tu_status add_runs(reduction *r, axis_runs t) {
    int64_t inner = 1, outer = 1;
    if (t.count == 1) return add_run(r, 1, 1, t.size[0], true, false); /* nothing to reduce: a copy */
    if (t.count % 2 == 1) inner = t.size[--t.count];
    int64_t reduced = t.size[--t.count];
    for (int i = 0; i < t.count; i++) outer *= t.size[i];
    bool last = t.count == 1;
    TU_TRY(add_run(r, outer, reduced, inner, last, true));
    if (last) return TU_OK;
    t.size[t.count - 1] *= inner;
    return add_runs(r, t);
}

static tu_status run_stage(const tu__kernel *k, const stage *st, const void *x, void *y) {
    reduce_rows_args rows = st->rows;
    reduce_columns_args columns = st->columns;
    rows.x = columns.x = x;
    rows.y = columns.y = y;
    const void *arguments = st->inner == 1 ? (const void *)&rows : &columns;
    return cuda_launch(k, st->function, st->grid, arguments);
}

static tu_status run_reduce(const tu__kernel *k) {
    const reduce_data *d = k->data;
    const void *x = k->in[0];
    for (int i = 0; i < d->count; i++) {
        void *y = i == d->count - 1 ? k->out[0] : (char *)k->workspace + d->stages[i].to;
        TU_TRY(run_stage(k, &d->stages[i], x, y));
        x = y;
    }
    return TU_OK;
}

static tu_status lower_reduction(tu__selection *s, const tu__node *node, cuda_reduce_op op, int64_t axes,
                                 bool is_mean) {
    tu_type x = *tu__type_of(s, node->inputs[0]);
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_reduce);
    reduce_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    int64_t reduced = tu_shape_elements(x.shape) / tu_shape_elements(node->outputs[0].shape);
    reduction r = {s, op, x.dtype, is_mean ? (double)reduced : 1, d, 0};
    TU_TRY(add_runs(&r, merge_axes(x.shape, axes)));
    k->workspace_bytes = r.workspace;
    cuda_kernel_set_costs(k, node);
    return cuda_kernel_add_operands(k, node, -1);
}

/* The six reductions have the same attributes as sum. */
tu_status cuda_lower_reduce(tu__selection *s, const tu__node *node) {
    static const cuda_reduce_op op_of[TU__OP_COUNT] = {
        [TU__OP_SUM] = CUDA_SUM,
        [TU__OP_MEAN] = CUDA_SUM,
        [TU__OP_PROD] = CUDA_PRODUCT,
        [TU__OP_REDUCE_MAX] = CUDA_LARGEST,
        [TU__OP_REDUCE_MIN] = CUDA_SMALLEST,
        [TU__OP_LOGSUMEXP] = CUDA_LOG_SUM_EXP,
    };
    tu__opcode op = node->op->code;
    return lower_reduction(s, node, op_of[op], tu__attrs(node, sum)->axes, op == TU__OP_MEAN);
}

/* argmin has the attributes of argmax. */
tu_status cuda_lower_arg(tu__selection *s, const tu__node *node) {
    cuda_reduce_op op = node->op->code == TU__OP_ARGMIN ? CUDA_ARGMIN : CUDA_ARGMAX;
    return lower_reduction(s, node, op, INT64_C(1) << tu__attrs(node, argmax)->axis, false);
}

/* ---- Shared by these lowering rules ---- */

tu_status cuda_kernel_add_operands(tu__kernel *k, const tu__node *node, int in_place) {
    for (uint32_t i = 0; i < node->input_count; i++) TU_TRY(tu__kernel_read(k, node->inputs[i]));
    for (uint32_t i = 0; i < node->output_count; i++)
        TU_TRY(tu__kernel_write(k, (tu__edge){node->id, i}, i == 0 ? in_place : -1));
    return TU_OK;
}

void cuda_kernel_set_costs(tu__kernel *k, const tu__node *node) {
    tu_type in[8];
    for (uint32_t i = 0; i < node->input_count && i < 8; i++) {
        in[i] = *tu__type_of(k->owner, node->inputs[i]);
        k->bytes_moved += (int64_t)tu_type_bytes(in[i]);
    }
    for (uint32_t i = 0; i < node->output_count; i++)
        k->bytes_moved += (int64_t)tu_type_bytes(node->outputs[i]);
    k->flops = node->op->flops ? node->op->flops(node, in) : tu_shape_elements(node->outputs[0].shape);
}
