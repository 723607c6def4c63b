/* Pooling: chooses the kernel and the source of the argmax. See kernels/pool.cu.
 *
 * If a max_pool_grad with the same x and windows follows in this partition, max_pool stores the argmax of each window
 * for it (tu__kernel_save), and x can be freed after the forward pass. A gradient without a stored argmax, because
 * max_pool runs elsewhere or again, first computes it in its workspace.
 */
#include <string.h>

#include "device/cuda/ops/columns.h"
#include "device/cuda/ops/ops.h"
#include "device/cuda/ops/relu_grad.h"

#include "device/cuda/kernels/pool_args.h"

enum { MAX_BYTE_INDICES = 128 }; /* larger windows need more than 7 bits */

/* The attributes that all five operations start with. */
typedef struct windows {
    int64_t window[2], stride[2], pad[4];
} windows;

static windows windows_of(const tu__node *node) {
    windows w;
    memcpy(&w, node->attrs, sizeof w);
    return w;
}

#define BEGINS_WITH_WINDOWS(op)                                                                              \
    _Static_assert(offsetof(struct tu__##op##_attrs, window) == offsetof(windows, window) &&                 \
                       offsetof(struct tu__##op##_attrs, stride) == offsetof(windows, stride) &&             \
                       offsetof(struct tu__##op##_attrs, pad) == offsetof(windows, pad),                     \
                   #op " begins with window, stride and pad")
BEGINS_WITH_WINDOWS(max_pool);
BEGINS_WITH_WINDOWS(max_pool_grad);
BEGINS_WITH_WINDOWS(max_pool_pick);
BEGINS_WITH_WINDOWS(avg_pool);
BEGINS_WITH_WINDOWS(avg_pool_grad);

/* ---- A launch ---- */

typedef struct pool_launch {
    pool_args args; /* without addresses */
    cuda_grid grid;
    cuda_function *function;
} pool_launch;

typedef enum position_kind { WINDOWS, ELEMENTS, PATCHES } position_kind;

/* True if sizes fit kernels that compute rows and columns in 32 bits, with a stride or a window added. */
static bool is_small(const windows *w, tu_shape x) {
    const int64_t limit = INT32_MAX / 4;
    bool fits = x.dim[3] <= limit;
    for (int i = 0; i < 2; i++)
        fits = fits && x.dim[1 + i] <= limit && w->window[i] <= limit && w->stride[i] <= limit;
    return fits && w->window[0] * w->window[1] <= limit;
}

/* Counts the positions along each axis. Patches cover x and its padding, and every window has one. */
static void count_positions(const pool_args *a, position_kind kind, int64_t count[2]) {
    for (int i = 0; i < 2; i++) {
        int64_t stride = a->stride[i].value, padded = a->x_size[i] + a->pad[i];
        int64_t patches = (padded + stride - 1) / stride;
        count[i] = kind == WINDOWS ? a->y_size[i] : kind == ELEMENTS ? a->x_size[i] : patches;
        if (kind == PATCHES && count[i] < a->y_size[i]) count[i] = a->y_size[i];
    }
}

/* Plans the grid and all arguments but addresses. Returns TU_UNSUPPORTED if sizes are too large. `sums`: of
 * cuda_plan_columns. */
static tu_status plan_grid(tu__selection *s, const windows *w, tu_shape x, tu_shape y, position_kind kind,
                           int pack, int64_t sums, pool_launch *l) {
    if (!is_small(w, x)) return TU_UNSUPPORTED;
    pool_args *a = &l->args;
    a->channels = (int)x.dim[3];
    for (int i = 0; i < 2; i++) {
        a->x_size[i] = (int)x.dim[1 + i];
        a->y_size[i] = (int)y.dim[1 + i];
        a->window[i] = (int)w->window[i];
        a->pad[i] = (int)w->pad[2 * i];
        a->stride[i] = cuda_fast_divmod((uint32_t)w->stride[i]);
    }
    int64_t count[2];
    count_positions(a, kind, count);
    a->position_rows = cuda_fast_divmod((uint32_t)count[0]);
    a->position_columns = cuda_fast_divmod((uint32_t)count[1]);
    bool planned = cuda_plan_columns(cuda_of(s), x.dim[0] * count[0] * count[1], x.dim[3] / pack, sums,
                                     &a->layout, &l->grid);
    return planned ? TU_OK : TU_UNSUPPORTED;
}

static tu_shape input_shape(const tu__selection *s, const tu__node *node, uint32_t index) {
    return tu__type_of(s, node->inputs[index])->shape;
}

/* ---- Argmax: index of the maximum within its window ---- */

static int64_t window_elements(const windows *w) {
    return w->window[0] * w->window[1];
}

static size_t index_bytes(const windows *w) {
    return window_elements(w) <= MAX_BYTE_INDICES ? 1 : 4;
}

static const char *index_type(const windows *w) {
    return index_bytes(w) == 1 ? "u8" : "u32";
}

/* Returns the window size that kernels are unrolled for; 0 for others. */
static int unrolled_size(const windows *w) {
    bool square = w->window[0] == w->window[1];
    return square && (w->window[0] == 2 || w->window[0] == 3) ? (int)w->window[0] : 0;
}

static tu_status request_argmax(tu__selection *s, const windows *w, tu_type x, tu_shape y, pool_launch *l) {
    int pack = cuda_pack_width(x.dtype, x.shape.dim[3]);
    TU_TRY(plan_grid(s, w, x.shape, y, WINDOWS, pack, 0, l));
    l->function = cuda_request(s, "pool", "max_pool<%s, %d, %s, %d>", cuda_type(x.dtype), pack, index_type(w),
                               unrolled_size(w));
    return l->function ? TU_OK : TU_NO_MEMORY;
}

/* Finds another reader of x with the same windows. */
static const tu__node *find_matching_pool(tu__selection *s, const tu__node *node, tu__opcode op) {
    const tu__kernel_plan *p = s->plan;
    const tu__plan_value *x = tu__plan_value_of(s, node->inputs[0]);
    windows node_windows = windows_of(node);
    for (uint32_t i = 0; i < x->reader_count; i++) {
        const tu__node *reader = s->graph->nodes[p->readers[x->first_reader + i]];
        if (reader->op->code != op || reader->inputs[0].node != node->inputs[0].node ||
            reader->inputs[0].output != node->inputs[0].output)
            continue;
        windows w = windows_of(reader);
        bool is_usable =
            op == TU__OP_MAX_POOL_GRAD ? p->state[reader->id] != TU__DONE : p->saved[reader->id] != TU__NONE;
        if (is_usable && memcmp(&w, &node_windows, sizeof w) == 0) return reader;
    }
    return NULL;
}

static tu_status run_max_pool(const tu__kernel *k) {
    const pool_launch *l = k->data;
    pool_args a = l->args;
    a.x = k->in[0], a.to = k->out[0], a.argmax = k->write_count > 1 ? k->out[1] : NULL;
    return cuda_launch(k, l->function, l->grid, &a);
}

tu_status cuda_lower_max_pool(tu__selection *s, const tu__node *node) {
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_max_pool);
    pool_launch *l = k ? tu__kernel_data(k, sizeof *l) : NULL;
    if (!l) return TU_NO_MEMORY;
    windows w = windows_of(node);
    tu_type y = node->outputs[0];
    TU_TRY(request_argmax(s, &w, *tu__type_of(s, node->inputs[0]), y.shape, l));
    TU_TRY(tu__kernel_read(k, node->inputs[0]));
    TU_TRY(tu__kernel_write(k, (tu__edge){node->id, 0}, -1));
    if (!find_matching_pool(s, node, TU__OP_MAX_POOL_GRAD)) return TU_OK;
    return tu__kernel_save(k, node, (size_t)tu_shape_elements(y.shape) * index_bytes(&w));
}

/* ---- Gradient of the maximum ---- */

typedef struct max_grad_data {
    pool_launch argmax; /* function NULL: the forward pass stored the argmax */
    pool_launch gradient;
    cuda_column_sums sums;
    size_t sums_at; /* offset of the partial sums in the workspace, after the argmax */
} max_grad_data;

static size_t round_up(size_t bytes) {
    return (bytes + 255) / 256 * 256;
}

/* Inputs: dy, then the argmax or x. */
static tu_status run_max_pool_grad(const tu__kernel *k) {
    const max_grad_data *d = k->data;
    pool_args a = d->gradient.args;
    a.from = k->in[0], a.to = k->out[0];
    a.argmax = d->argmax.function ? k->workspace : k->in[1];
    if (d->argmax.function) {
        pool_args find = d->argmax.args;
        find.x = k->in[1], find.argmax = k->workspace;
        TU_TRY(cuda_launch(k, d->argmax.function, d->argmax.grid, &find));
    }
    if (d->sums.function) a.sums = (char *)k->workspace + d->sums_at;
    TU_TRY(cuda_launch(k, d->gradient.function, d->gradient.grid, &a));
    return d->sums.function ? cuda_run_column_sums(k, &d->sums, a.sums, k->out[1]) : TU_OK;
}

/* Uses patches for the common windows; others use one thread per element. */
static tu_status request_gradient(tu__selection *s, const windows *w, tu_type x, tu_shape y,
                                  const cuda_relu_grad *epilogue, pool_launch *l) {
    int pack = cuda_pack_width(x.dtype, x.shape.dim[3]), window_size = unrolled_size(w);
    bool patches = window_size && w->stride[0] == 2 && w->stride[1] == 2;
    TU_TRY(plan_grid(s, w, x.shape, y, patches ? PATCHES : ELEMENTS, pack, epilogue->sums, l));
    if (patches)
        l->function = cuda_request(s, "pool", "max_pool_grad_patches<%s, %d, %d, 2, %d>", cuda_type(x.dtype),
                                   pack, window_size, cuda_relu_grad_bits(epilogue));
    else
        l->function = cuda_request(s, "pool", "max_pool_grad<%s, %d, %s, %d>", cuda_type(x.dtype), pack,
                                   index_type(w), cuda_relu_grad_bits(epilogue));
    return l->function ? TU_OK : TU_NO_MEMORY;
}

static tu_status read_argmax(tu__kernel *k, const tu__node *node, const windows *w, max_grad_data *d) {
    const tu__node *forward = find_matching_pool(k->owner, node, TU__OP_MAX_POOL);
    if (forward) return tu__kernel_read_saved(k, forward);
    tu_shape y = input_shape(k->owner, node, 1);
    TU_TRY(request_argmax(k->owner, w, node->outputs[0], y, &d->argmax));
    d->sums_at = round_up((size_t)tu_shape_elements(y) * index_bytes(w));
    return tu__kernel_read(k, node->inputs[0]);
}

tu_status cuda_lower_max_pool_grad(tu__selection *s, const tu__node *node) {
    static const char *const names[8] = CUDA_RELU_GRAD_NAMES("max_pool_grad");
    tu_type x = node->outputs[0];
    cuda_relu_grad epilogue = cuda_find_relu_grad(s, node, node->inputs[0]);
    tu__kernel *k = tu__kernel_new(s, node, names[cuda_relu_grad_bits(&epilogue)], run_max_pool_grad);
    max_grad_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    windows w = windows_of(node);
    TU_TRY(request_gradient(s, &w, x, input_shape(s, node, 1), &epilogue, &d->gradient));
    TU_TRY(tu__kernel_read(k, node->inputs[1]));
    TU_TRY(read_argmax(k, node, &w, d));
    if (epilogue.sum)
        TU_TRY(cuda_request_column_sums(s, "pool", x.dtype, x.shape.dim[3], d->gradient.grid, &d->sums));
    k->workspace_bytes = d->sums_at + d->sums.bytes;
    return cuda_kernel_write_relu_grad(k, &epilogue, -1);
}

/* ---- Kernels with one launch ---- */

static tu_status run_pick(const tu__kernel *k) {
    const pool_launch *l = k->data;
    pool_args a = l->args;
    a.x = k->in[0], a.from = k->in[1], a.to = k->out[0];
    return cuda_launch(k, l->function, l->grid, &a);
}

static tu_status run_avg_pool(const tu__kernel *k) {
    const pool_launch *l = k->data;
    pool_args a = l->args;
    a.x = k->in[0], a.to = k->out[0];
    return cuda_launch(k, l->function, l->grid, &a);
}

static tu_status run_avg_pool_grad(const tu__kernel *k) {
    const pool_launch *l = k->data;
    pool_args a = l->args;
    a.from = k->in[0], a.to = k->out[0];
    return cuda_launch(k, l->function, l->grid, &a);
}

static tu_status add_operands(tu__kernel *k, const tu__node *node) {
    for (uint32_t i = 0; i < node->input_count; i++) TU_TRY(tu__kernel_read(k, node->inputs[i]));
    return tu__kernel_write(k, (tu__edge){node->id, 0}, -1);
}

tu_status cuda_lower_max_pool_pick(tu__selection *s, const tu__node *node) {
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_pick);
    pool_launch *l = k ? tu__kernel_data(k, sizeof *l) : NULL;
    if (!l) return TU_NO_MEMORY;
    windows w = windows_of(node);
    TU_TRY(plan_grid(s, &w, input_shape(s, node, 0), node->outputs[0].shape, WINDOWS, 1, 0, l));
    l->function = cuda_request(s, "pool", "max_pool_pick<%s>", cuda_type(node->outputs[0].dtype));
    return l->function ? add_operands(k, node) : TU_NO_MEMORY;
}

static tu_status lower_average(tu__selection *s, const tu__node *node, tu_shape x, tu_shape y,
                               position_kind kind, int64_t count_padding,
                               tu_status (*run)(const tu__kernel *k)) {
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run);
    pool_launch *l = k ? tu__kernel_data(k, sizeof *l) : NULL;
    if (!l) return TU_NO_MEMORY;
    windows w = windows_of(node);
    tu_dtype dtype = node->outputs[0].dtype;
    int pack = cuda_pack_width(dtype, x.dim[3]);
    TU_TRY(plan_grid(s, &w, x, y, kind, pack, 0, l));
    l->args.count_padding = count_padding != 0;
    l->function = cuda_request(s, "pool", "%s<%s, %d>", node->op->name, cuda_type(dtype), pack);
    return l->function ? add_operands(k, node) : TU_NO_MEMORY;
}

tu_status cuda_lower_avg_pool(tu__selection *s, const tu__node *node) {
    return lower_average(s, node, input_shape(s, node, 0), node->outputs[0].shape, WINDOWS,
                         tu__attrs(node, avg_pool)->count_padding, run_avg_pool);
}

tu_status cuda_lower_avg_pool_grad(tu__selection *s, const tu__node *node) {
    return lower_average(s, node, node->outputs[0].shape, input_shape(s, node, 0), ELEMENTS,
                         tu__attrs(node, avg_pool_grad)->count_padding, run_avg_pool_grad);
}
