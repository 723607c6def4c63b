/* Cumulative sums and the k largest elements along an axis. Kernels: kernels/order.cu. */
#include "device/cuda/ops/ops.h"
#include "device/cuda/ops/reduce.h"

#include "device/cuda/kernels/order_args.h"
#include "device/cuda/kernels/reduce_args.h"

enum {
    SHORT_LANE = 64,      /* elements that one thread sums sequentially */
    MANY_LANES = 1 << 14, /* adjacent lanes: enough threads to fill the GPU */
    MIN_SEGMENT = 8192,   /* minimum elements per segment of a split lane */
    MAX_SEGMENTS = 1024,
    MAX_RUN = 1024, /* as in kernels/order.cu */
};

/* x [outer, size, inner] around an axis; lanes = outer * inner. */
typedef struct lanes {
    int64_t lanes, n, inner;
} lanes;

static lanes lanes_of(tu_shape shape, int64_t axis) {
    lanes l = {.n = shape.dim[axis], .inner = 1};
    for (int64_t i = axis + 1; i < shape.rank; i++) l.inner *= shape.dim[i];
    l.lanes = tu_shape_elements(shape) / l.n;
    return l;
}

static int64_t divide_up(int64_t n, int64_t d) {
    return (n + d - 1) / d;
}

/* ---- Cumulative sums ---- */

typedef struct scan_data {
    scan_args scan;
    cuda_grid grid;
    const cuda_function *function;
    /* for a split lane: the segments' sums, and their cumulative sums */
    const cuda_function *sum_segments, *scan_sums;
    reduce_rows_args sums;
    size_t before; /* offset in the workspace, after the sums */
} scan_data;

static tu_status run_scan(const tu__kernel *k) {
    const scan_data *d = k->data;
    scan_args scan = d->scan;
    if (d->sum_segments) {
        void *before = (char *)k->workspace + d->before;
        scan_args sums = {.x = k->workspace,
                          .y = before,
                          .lanes = d->scan.lanes,
                          .n = d->scan.splits,
                          .inner = 1,
                          .segment = d->scan.splits,
                          .splits = 1,
                          .exclusive = true,
                          .reverse = d->scan.reverse};
        reduce_rows_args rows = d->sums;
        rows.x = k->in[0], rows.y = k->workspace;
        TU_TRY(cuda_launch(k, d->sum_segments, cuda_row_grid(rows.rows, rows.lanes), &rows));
        TU_TRY(cuda_launch(k, d->scan_sums, (cuda_grid){.blocks = {(unsigned)sums.lanes}, .threads = 256},
                           &sums));
        scan.before = before;
    }
    scan.x = k->in[0], scan.y = k->out[0];
    return cuda_launch(k, d->function, d->grid, &scan);
}

/* Splits few long contiguous lanes into segments, so that they fill the GPU. */
static tu_status split_lanes(tu__kernel *k, scan_data *d, tu_dtype dtype) {
    int64_t needed = divide_up(2 * (int64_t)cuda_of(k)->multiprocessors, d->scan.lanes);
    int64_t max_splits = d->scan.n / MIN_SEGMENT, limit = needed < MAX_SEGMENTS ? needed : MAX_SEGMENTS;
    int64_t splits = max_splits < limit ? max_splits : limit;
    if (d->scan.inner > 1 || splits < 2) return TU_OK;
    d->scan.segment = divide_up(divide_up(d->scan.n, splits), 1024) * 1024;
    d->scan.splits = (int)divide_up(d->scan.n, d->scan.segment);
    d->sums = (reduce_rows_args){.rows = d->scan.lanes * d->scan.splits,
                                 .reduced = d->scan.n,
                                 .segment = d->scan.segment,
                                 .splits = d->scan.splits,
                                 .lanes = 256,
                                 .divisor = 1};
    size_t bytes = (size_t)d->sums.rows * (cuda_is_wide(dtype) ? sizeof(double) : sizeof(float));
    d->before = (bytes + 63) & ~(size_t)63;
    k->workspace_bytes = d->before + bytes;
    d->sum_segments =
        cuda_request(k->owner, "reduce", "reduce_rows<summing, %s, true, false>", cuda_type(dtype));
    d->scan_sums = cuda_request(k->owner, "order", "scan_blocks<%s>", cuda_is_wide(dtype) ? "f64" : "f32");
    return d->sum_segments && d->scan_sums ? TU_OK : TU_NO_MEMORY;
}

tu_status cuda_lower_cumsum(tu__selection *s, const tu__node *node) {
    const struct tu__cumsum_attrs *a = tu__attrs(node, cumsum);
    tu_type x = node->outputs[0];
    lanes l = lanes_of(x.shape, a->axis);
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_scan);
    scan_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    bool one_thread_per_lane = l.n <= SHORT_LANE || (l.inner > 1 && l.lanes >= MANY_LANES);
    d->scan = (scan_args){.lanes = l.lanes,
                          .n = l.n,
                          .inner = l.inner,
                          .segment = l.n,
                          .splits = 1,
                          .exclusive = (int)a->exclusive,
                          .reverse = (int)a->reverse};
    if (!one_thread_per_lane) TU_TRY(split_lanes(k, d, x.dtype));
    d->grid = one_thread_per_lane
                  ? cuda_grid_for(k, l.lanes)
                  : (cuda_grid){.blocks = {(unsigned)(l.lanes * d->scan.splits)}, .threads = 256};
    d->function = cuda_request(s, "order", "%s<%s>", one_thread_per_lane ? "scan_lanes" : "scan_blocks",
                               cuda_type(x.dtype));
    if (!d->function) return TU_NO_MEMORY;
    cuda_kernel_set_costs(k, node);
    return cuda_kernel_add_operands(k, node, -1);
}

/* ---- The k largest: sort runs, then merge them until one is left ---- */

typedef struct top_data {
    const cuda_function *sort, *merge;
    top_sort_args args;
    size_t half_bytes; /* of the workspace; passes alternate between the halves */
} top_data;

/* Returns the target of a pass: `runs` runs of `kept` candidates. The last pass writes the result. */
static top_to pass_to(const tu__kernel *k, int64_t runs, int64_t kept, int pass) {
    const top_data *d = k->data;
    top_to to = d->args.to;
    to.runs = runs;
    to.kept = kept;
    to.values = k->out[0];
    to.indices = k->out[1];
    to.candidates = runs > 1 ? (char *)k->workspace + (size_t)(pass % 2) * d->half_bytes : NULL;
    return to;
}

static tu_status run_top(const tu__kernel *k) {
    const top_data *d = k->data;
    top_sort_args sort = d->args;
    int64_t runs = sort.to.runs, kept = sort.to.kept;
    unsigned threads = sort.segment / 2 < 32 ? 32 : sort.segment / 2 > 256 ? 256 : (unsigned)sort.segment / 2;
    sort.x = k->in[0];
    sort.to = pass_to(k, runs, kept, 0);
    TU_TRY(cuda_launch(k, d->sort, (cuda_grid){.blocks = {(unsigned)(sort.lanes * runs)}, .threads = threads},
                       &sort));
    const void *from = sort.to.candidates;
    for (int pass = 1; runs > 1; pass++) {
        int64_t pairs = divide_up(runs, 2), kept_next = 2 * kept < sort.to.k ? 2 * kept : sort.to.k;
        top_merge_args merge = {.from = from,
                                .lanes = sort.lanes,
                                .runs = runs,
                                .kept = kept,
                                .to = pass_to(k, pairs, kept_next, pass)};
        TU_TRY(cuda_launch(k, d->merge, cuda_grid_for(k, sort.lanes * pairs * 2 * kept), &merge));
        from = merge.to.candidates;
        runs = pairs;
        kept = kept_next;
    }
    return TU_OK;
}

tu_status cuda_lower_top_k(tu__selection *s, const tu__node *node) {
    const struct tu__top_k_attrs *a = tu__attrs(node, top_k);
    enum { CANDIDATE_BYTES = 16 };
    tu_type x = *tu__type_of(s, node->inputs[0]);
    lanes l = lanes_of(x.shape, a->axis);
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_top);
    top_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    int segment = 2;
    while (segment < MAX_RUN && segment < l.n) segment *= 2;
    int64_t runs = divide_up(l.n, segment), kept = a->k < segment ? a->k : segment;
    d->args = (top_sort_args){.lanes = l.lanes, .n = l.n, .segment = segment};
    d->args.to = (top_to){.k = a->k, .inner = l.inner, .kept = kept, .runs = runs};
    /* An odd run is merged with padding, so there is room for one more run. */
    d->half_bytes = (size_t)(l.lanes * (runs + 1) * kept) * CANDIDATE_BYTES;
    k->workspace_bytes = runs > 1 ? 2 * d->half_bytes : 0;
    d->sort = cuda_request(s, "order", "top_sort<%s>", cuda_type(x.dtype));
    d->merge = runs > 1 ? cuda_request(s, "order", "top_merge<%s>", cuda_type(x.dtype)) : NULL;
    if (!d->sort || (runs > 1 && !d->merge)) return TU_NO_MEMORY;
    cuda_kernel_set_costs(k, node);
    return cuda_kernel_add_operands(k, node, -1);
}
