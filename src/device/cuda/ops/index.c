/* Indexing: gather, take_along, one_hot, scatter_add and put_along.
 *
 * gather copies rows in words of up to 16 bytes. scatter_add and put_along differ only in how an update's index is
 * found, and share their kernels; kernels/index.cu explains how sums keep a fixed order. The choice between its two
 * methods depends only on sizes.
 */
#include "base/number.h"
#include "device/cuda/ops/extent.h"
#include "device/cuda/ops/ops.h"
#include "device/cuda/runtime/cuda.h"
#include "graph/walk.h"

#include "device/cuda/kernels/index_args.h"

static tu_type input_type(const tu__selection *s, const tu__node *node, uint32_t index) {
    return *tu__type_of(s, node->inputs[index]);
}

static tu_status read_inputs(tu__kernel *k, const tu__node *node) {
    for (uint32_t i = 0; i < node->input_count; i++) TU_TRY(tu__kernel_read(k, node->inputs[i]));
    return TU_OK;
}

static tu_status add_operands(tu__kernel *k, const tu__node *node) {
    TU_TRY(read_inputs(k, node));
    return tu__kernel_write(k, (tu__edge){node->id, 0}, -1);
}

static int64_t total_bytes(const tu__selection *s, const tu__node *node) {
    int64_t bytes = (int64_t)tu_type_bytes(node->outputs[0]);
    for (uint32_t i = 0; i < node->input_count; i++) bytes += (int64_t)tu_type_bytes(input_type(s, node, i));
    return bytes;
}

/* ---- gather ---- */

typedef struct gather_data {
    gather_args args;
    cuda_function *function;
} gather_data;

static tu_status run_gather(const tu__kernel *k) {
    const gather_data *d = k->data;
    gather_args a = d->args;
    a.table = k->in[0], a.indices = k->in[1], a.y = k->out[0];
    return cuda_launch(k, d->function, cuda_grid_for(k, a.count), &a);
}

tu_status cuda_lower_gather(tu__selection *s, const tu__node *node) {
    tu__kernel *k = tu__kernel_new(s, node, "gather", run_gather);
    gather_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    tu_type table = input_type(s, node, 0), indices = input_type(s, node, 1);
    tu__lanes lanes = tu__lanes_of(table.shape, tu__attrs(node, gather)->axis);
    int64_t row_bytes = lanes.inner * (int64_t)tu_dtype_size(table.dtype);
    size_t word = cuda_widest_word(row_bytes);
    int64_t row = row_bytes / (int64_t)word, count = tu_shape_elements(indices.shape);
    d->args = (gather_args){.count = lanes.outer * count * row,
                            .row = cuda_extent(row),
                            .indices_per_outer = cuda_extent(count),
                            .size = lanes.size};
    d->function = cuda_request(s, "index", "gather<%s, %s, %s>", cuda_word(word), cuda_type(indices.dtype),
                               cuda_index_type(d->args.count));
    if (!d->function) return TU_NO_MEMORY;
    k->bytes_moved =
        2 * (int64_t)tu_type_bytes(node->outputs[0]); /* only the gathered rows of the table are read */
    return add_operands(k, node);
}

/* ---- take_along ---- */

typedef struct take_data {
    take_args args;
    cuda_function *function;
} take_data;

static tu_status run_take_along(const tu__kernel *k) {
    const take_data *d = k->data;
    take_args a = d->args;
    a.x = k->in[0], a.indices = k->in[1], a.y = k->out[0];
    return cuda_launch(k, d->function, cuda_grid_for(k, a.count), &a);
}

tu_status cuda_lower_take_along(tu__selection *s, const tu__node *node) {
    tu__kernel *k = tu__kernel_new(s, node, "take_along", run_take_along);
    take_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    int64_t axis = tu__attrs(node, take_along)->axis;
    tu_type x = input_type(s, node, 0), y = node->outputs[0];
    tu__lanes lanes = tu__lanes_of(y.shape, axis);
    d->args = (take_args){.count = tu_shape_elements(y.shape),
                          .inner = cuda_extent(lanes.inner),
                          .along = cuda_extent(lanes.size),
                          .size = x.shape.dim[axis]};
    d->function = cuda_request(s, "index", "take_along<%s, %s, %s>", cuda_word(tu_dtype_size(y.dtype)),
                               cuda_type(input_type(s, node, 1).dtype), cuda_index_type(d->args.count));
    if (!d->function) return TU_NO_MEMORY;
    k->bytes_moved = 2 * (int64_t)tu_type_bytes(y) + (int64_t)tu_type_bytes(input_type(s, node, 1));
    return add_operands(k, node);
}

/* ---- one_hot ---- */

typedef struct one_hot_data {
    one_hot_args args;
    cuda_function *function;
} one_hot_data;

static tu_status run_one_hot(const tu__kernel *k) {
    const one_hot_data *d = k->data;
    one_hot_args a = d->args;
    a.indices = k->in[0], a.y = k->out[0];
    return cuda_launch(k, d->function, cuda_grid_for(k, a.count), &a);
}

tu_status cuda_lower_one_hot(tu__selection *s, const tu__node *node) {
    tu__kernel *k = tu__kernel_new(s, node, "one_hot", run_one_hot);
    one_hot_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    tu_type y = node->outputs[0];
    d->args = (one_hot_args){.count = tu_shape_elements(y.shape),
                             .classes = cuda_extent(tu__attrs(node, one_hot)->classes)};
    tu__store(y.dtype, &d->args.one, 0, 1);
    d->function = cuda_request(s, "index", "one_hot<%s, %s, %s>", cuda_word(tu_dtype_size(y.dtype)),
                               cuda_type(input_type(s, node, 0).dtype), cuda_index_type(d->args.count));
    if (!d->function) return TU_NO_MEMORY;
    k->bytes_moved = total_bytes(s, node);
    return add_operands(k, node);
}

/* ---- scatter_add and put_along ---- */

/* y[o, r, c] += updates[o, j, c] for each j whose index is r. */
typedef struct scatter {
    const char *name;
    tu_dtype dtype, index_dtype;
    int base, indices, updates; /* input numbers; base -1: zeros */
    int64_t outer, size, inner; /* shape of y around the indexed axis */
    int64_t along;              /* number of updates j per (o, c) */
    bool has_index_per_update;  /* one index per update (o, j, c); else one index per j */
} scatter;

static int64_t indices_of(const scatter *sc) {
    return sc->has_index_per_update ? sc->outer * sc->along * sc->inner : sc->along;
}

/* The thread that writes an element also reads it from the base, so y may reuse the base's memory, unless the same
 * buffer is also the indices or the updates, which all threads read. */
static tu_status bind_scatter(tu__kernel *k, const tu__node *node, const scatter *sc) {
    TU_TRY(read_inputs(k, node));
    k->bytes_moved = total_bytes(k->owner, node);
    int in_place = sc->base;
    if (in_place >= 0 &&
        (k->reads[sc->base] == k->reads[sc->indices] || k->reads[sc->base] == k->reads[sc->updates]))
        in_place = -1;
    return tu__kernel_write(k, (tu__edge){node->id, 0}, in_place);
}

/* ---- Method 1: compare all indices ---- */

typedef struct scan_data {
    scatter scatter_info;
    scan_args args;
    cuda_function *function;
} scan_data;

static tu_status run_scan(const tu__kernel *k) {
    const scan_data *d = k->data;
    scan_args a = d->args;
    a.base = d->scatter_info.base < 0 ? NULL : k->in[d->scatter_info.base];
    a.indices = k->in[d->scatter_info.indices], a.updates = k->in[d->scatter_info.updates], a.y = k->out[0];
    return cuda_launch(k, d->function, cuda_grid_for(k, a.count), &a);
}

static tu_status lower_scan(tu__selection *s, const tu__node *node, const scatter *sc) {
    tu__kernel *k = tu__kernel_new(s, node, sc->name, run_scan);
    scan_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    d->scatter_info = *sc;
    d->args = (scan_args){.count = sc->outer * sc->size * sc->inner,
                          .inner = cuda_extent(sc->inner),
                          .size = cuda_extent(sc->size),
                          .along = sc->along,
                          .outer_step = sc->has_index_per_update ? sc->along * sc->inner : 0,
                          .step = sc->has_index_per_update ? sc->inner : 1,
                          .inner_step = sc->has_index_per_update};
    d->function = cuda_request(s, "index", "scatter_scan<%s, %s, %s>", cuda_type(sc->dtype),
                               cuda_type(sc->index_dtype), cuda_index_type(d->args.count));
    return d->function ? bind_scatter(k, node, sc) : TU_NO_MEMORY;
}

/* ---- Method 2: sort the indices ---- */

/* As in kernels/index.cu. A block's counts must fit into shared memory with its other data. */
enum { SORT_THREADS = 1024, MAX_RANGE = 8192 };

typedef struct sort_data {
    scatter scatter_info;
    sort_args sort;
    sum_args sum;
    unsigned blocks;
    int lanes; /* threads per element */
    cuda_function *sorting, *summing;
} sort_data;

static tu_status run_sorted(const tu__kernel *k) {
    const sort_data *d = k->data;
    sort_args sort = d->sort;
    sum_args sum = d->sum;
    unsigned *starts = k->workspace, *sorted = starts + sort.targets + 1;
    sort.indices = k->in[d->scatter_info.indices], sort.starts = starts, sort.sorted = sorted;
    cuda_grid grid = {
        .blocks = {d->blocks}, .threads = SORT_THREADS, .shared = sort.range * (unsigned)sizeof *starts};
    TU_TRY(cuda_launch(k, d->sorting, grid, &sort));
    sum.base = d->scatter_info.base < 0 ? NULL : k->in[d->scatter_info.base];
    sum.updates = k->in[d->scatter_info.updates], sum.y = k->out[0], sum.starts = starts, sum.sorted = sorted;
    return cuda_launch(k, d->summing, cuda_grid_for(k, sum.count * d->lanes), &sum);
}

static void plan_sort(sort_data *d, int multiprocessors) {
    const scatter *sc = &d->scatter_info;
    int64_t targets = sc->has_index_per_update ? sc->outer * sc->size * sc->inner : sc->size,
            blocks = 2 * (int64_t)multiprocessors;
    int64_t range = (targets + blocks - 1) / blocks;
    if (range > MAX_RANGE) range = MAX_RANGE;
    d->sort = (sort_args){.count = (unsigned)indices_of(sc),
                          .targets = (unsigned)targets,
                          .range = (unsigned)range,
                          .inner = cuda_fast_divmod(sc->has_index_per_update ? (uint32_t)sc->inner : 1),
                          .along = cuda_fast_divmod((uint32_t)sc->along),
                          .size = sc->size};
    d->blocks = (unsigned)((targets + range - 1) / range);
}

/* Returns the elements per thread. If every update has its own index, y is treated as rows of one element. */
static int plan_sum(sort_data *d, int multiprocessors) {
    const scatter *sc = &d->scatter_info;
    int64_t row = sc->has_index_per_update ? 1 : sc->inner,
            per_thread = 16 / (int64_t)tu_dtype_size(sc->dtype);
    if (row % per_thread) per_thread = 1;
    d->sum = (sum_args){.count = sc->outer * sc->size * sc->inner / per_thread,
                        .row = cuda_extent(row / per_thread),
                        .targets = cuda_extent(d->sort.targets),
                        .along = sc->along};
    enum { THREADS = 2048 }; /* per multiprocessor */
    d->lanes = d->sum.count < (int64_t)multiprocessors * THREADS / 32 ? 32 : 1;
    return (int)per_thread;
}

static tu_status lower_sorted(tu__selection *s, const tu__node *node, const scatter *sc) {
    tu__kernel *k = tu__kernel_new(s, node, sc->name, run_sorted);
    sort_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    d->scatter_info = *sc;
    plan_sort(d, cuda_of(s)->multiprocessors);
    int per_thread = plan_sum(d, cuda_of(s)->multiprocessors);
    k->workspace_bytes = ((size_t)d->sort.targets + 1 + d->sort.count) * sizeof(unsigned);
    d->sorting = cuda_request(s, "index", "scatter_sort<%s>", cuda_type(sc->index_dtype));
    d->summing = cuda_request(s, "index", "scatter_sum<%s, %d, %s, %d>", cuda_type(sc->dtype), per_thread,
                              cuda_index_type(d->sum.count), d->lanes);
    return d->sorting && d->summing ? bind_scatter(k, node, sc) : TU_NO_MEMORY;
}

/* ---- Choosing the method ---- */

/* Comparing costs one comparison per element of y and j. Sorting costs two passes over the indices for each of a few
 * hundred blocks, a second launch and a sorted list. */
static bool prefers_scan(const scatter *sc) {
    int64_t elements = sc->outer * sc->size * sc->inner,
            targets = sc->has_index_per_update ? elements : sc->size;
    if (!cuda_fits_u32(targets) || !cuda_fits_u32(indices_of(sc))) return true;
    enum { SCAN_MAX_UPDATES = 8, SCAN_MAX_COMPARISONS = 1 << 22, PASSES = 512 };
    double comparisons = (double)elements * (double)sc->along;
    return sc->along <= SCAN_MAX_UPDATES || comparisons <= SCAN_MAX_COMPARISONS ||
           comparisons <= PASSES * (double)indices_of(sc);
}

static tu_status lower_scatter(tu__selection *s, const tu__node *node, const scatter *sc) {
    return prefers_scan(sc) ? lower_scan(s, node, sc) : lower_sorted(s, node, sc);
}

tu_status cuda_lower_scatter_add(tu__selection *s, const tu__node *node) {
    tu__lanes lanes = tu__lanes_of(node->outputs[0].shape, tu__attrs(node, scatter_add)->axis);
    tu_type indices = input_type(s, node, 1);
    return lower_scatter(s, node,
                         &(scatter){.name = "scatter_add",
                                    .dtype = node->outputs[0].dtype,
                                    .index_dtype = indices.dtype,
                                    .base = 0,
                                    .indices = 1,
                                    .updates = 2,
                                    .outer = lanes.outer,
                                    .size = lanes.size,
                                    .inner = lanes.inner,
                                    .along = tu_shape_elements(indices.shape)});
}

tu_status cuda_lower_put_along(tu__selection *s, const tu__node *node) {
    int64_t axis = tu__attrs(node, put_along)->axis;
    tu__lanes lanes = tu__lanes_of(node->outputs[0].shape, axis);
    tu_type indices = input_type(s, node, 0);
    return lower_scatter(s, node,
                         &(scatter){.name = "put_along",
                                    .dtype = node->outputs[0].dtype,
                                    .index_dtype = indices.dtype,
                                    .base = -1,
                                    .indices = 0,
                                    .updates = 1,
                                    .outer = lanes.outer,
                                    .size = lanes.size,
                                    .inner = lanes.inner,
                                    .along = indices.shape.dim[axis],
                                    .has_index_per_update = true});
}
