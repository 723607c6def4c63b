/* Attention and its gradient by our own kernels: with tensor cores (kernels/attention.cu) for bf16 and f16 and widths that
 * are multiples of 16 up to 128, else without (kernels/attention_portable.cu). Decision 47 says why f32 does not use tf32.
 *
 * The gradient is three launches: the products of dy and y per row, which both halves need, the gradients of keys and
 * values, and that of queries.
 */
#include <math.h>

#include "base/text.h"
#include "device/cuda/ops/ops.h"
#include "device/cuda/ops/reduce.h"

#include "device/cuda/kernels/attention_args.h"

enum {
    MIN_CAPABILITY = 80, /* first with tensor cores for bf16 */
    MAX_WIDTH = 128,     /* whose sums fit in registers */
    THREADS = 128,
    TILE = 64,      /* rows or columns of a block in shared memory */
    ROW_PADDING = 8 /* elements between rows in shared memory */
};

enum { PORTABLE_THREADS = 256, PORTABLE_ROWS = 32 };

typedef struct attention_data {
    const cuda_function *forward, *of_keys, *of_queries, *centres;
    cuda_grid grid, centres_grid;
    attention_args args;
    attention_centres_args centres_args;
} attention_data;

/* ---- Running ---- */

static tu_status run_forward(const tu__kernel *k) {
    const attention_data *d = k->data;
    attention_args a = d->args;
    a.x = k->in[0], a.out = k->out[0], a.logarithms = k->out[1];
    return cuda_launch(k, d->forward, d->grid, &a);
}

/* in: x, y, logarithms, dy */
static tu_status run_gradient(const tu__kernel *k) {
    const attention_data *d = k->data;
    attention_centres_args c = d->centres_args;
    c.y = k->in[1], c.dy = k->in[3], c.centres = k->workspace;
    TU_TRY(cuda_launch(k, d->centres, d->centres_grid, &c));
    attention_args a = d->args;
    a.x = k->in[0], a.logarithms = k->in[2], a.dy = k->in[3], a.centres = k->workspace, a.out = k->out[0];
    TU_TRY(cuda_launch(k, d->of_keys, d->grid, &a));
    return cuda_launch(k, d->of_queries, d->grid, &a);
}

/* ---- Lowering rules ---- */

static bool uses_tensor_cores(const tu__selection *s, tu_type x) {
    int64_t width = x.shape.dim[4];
    return (x.dtype == TU_BF16 || x.dtype == TU_F16) && width % 16 == 0 && width <= MAX_WIDTH &&
           cuda_of(s)->capability >= MIN_CAPABILITY;
}

static tu_status check_sizes(const tu__node *node, tu_shape x) {
    const int64_t limit = 1 << 30; /* per axis, so that sums of a few are ints; blocks along y and z */
    if (x.dim[0] <= 65535 && x.dim[3] <= 65535 && x.dim[1] < limit && x.dim[4] < limit) return TU_OK;
    return tu_fail(TU_UNSUPPORTED, "%s '%s' of %s: a GPU computes at most 65535 samples and 65535 heads",
                   node->op->name, node->name, tu__type_string(node->outputs[0]));
}

/* Returns the shared memory of a block of `rows` rows: `arrays` arrays [rows, width] and 4 arrays [TILE, width]. */
static int64_t shared_bytes(tu_shape x, int64_t rows, int64_t arrays) {
    return (arrays * rows + 4 * TILE) * (x.dim[4] + ROW_PADDING) * 2;
}

/* Returns the rows of a block of the kernels with tensor cores: 16 or 32 for each of four warps; 0: they are not used. */
static int64_t block_rows_of(const tu__selection *s, tu_type x, int64_t arrays) {
    int64_t rows = x.shape.dim[4] <= 64 ? 128 : 64;
    return uses_tensor_cores(s, x) && shared_bytes(x.shape, rows, arrays) + 1024 <= cuda_of(s)->shared_bytes
               ? rows
               : 0;
}

/* `rows` 0: the portable kernels, whose shared memory is static. */
static cuda_grid grid_of(tu_shape x, int64_t rows, int64_t arrays) {
    int64_t block_rows = rows ? rows : PORTABLE_ROWS;
    cuda_grid grid = {.blocks = {(unsigned)((x.dim[1] + block_rows - 1) / block_rows), (unsigned)x.dim[3],
                                 (unsigned)x.dim[0]},
                      .threads = rows ? THREADS : PORTABLE_THREADS};
    if (rows) grid.shared = (unsigned)shared_bytes(x, rows, arrays);
    return grid;
}

static tu_status new_kernel(tu__selection *s, const tu__node *node, double scale, bool causal,
                            tu_status (*run)(const tu__kernel *k), tu__kernel **kernel) {
    tu_shape x = tu__type_of(s, node->inputs[0])->shape;
    TU_TRY(check_sizes(node, x));
    tu__kernel *k = *kernel = tu__kernel_new(s, node, node->op->name, run);
    attention_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    d->args = (attention_args){.time = (int)x.dim[1],
                               .heads = (int)x.dim[3],
                               .width = (int)x.dim[4],
                               .causal = causal,
                               .scale = scale != 0 ? scale : 1 / sqrt((double)x.dim[4])};
    cuda_kernel_set_costs(k, node);
    return cuda_kernel_add_operands(k, node, -1);
}

tu_status cuda_lower_attention(tu__selection *s, const tu__node *node) {
    const struct tu__attention_attrs *attrs = node->attrs;
    tu_type x = *tu__type_of(s, node->inputs[0]);
    tu__kernel *k;
    TU_TRY(new_kernel(s, node, attrs->scale, attrs->causal, run_forward, &k));
    attention_data *d = k->data;
    const char *type = cuda_type(x.dtype);
    int64_t rows = block_rows_of(s, x, 1);
    d->grid = grid_of(x.shape, rows, 1);
    d->forward = rows ? cuda_request(s, "attention", "attention<%s, %d>", type, d->args.width)
                      : cuda_request(s, "attention_portable", "attention_portable<%s>", type);
    return d->forward ? TU_OK : TU_NO_MEMORY;
}

static tu_status request_gradient(tu__selection *s, attention_data *d, const char *type, bool tensor_cores) {
    if (tensor_cores) {
        d->of_keys = cuda_request(s, "attention", "attention_gradient<%s, %d, true>", type, d->args.width);
        d->of_queries =
            cuda_request(s, "attention", "attention_gradient<%s, %d, false>", type, d->args.width);
    } else {
        d->of_keys = cuda_request(s, "attention_portable", "attention_gradient_portable<%s, true>", type);
        d->of_queries = cuda_request(s, "attention_portable", "attention_gradient_portable<%s, false>", type);
    }
    d->centres = cuda_request(s, "attention_portable", "attention_centres<%s>", type);
    return d->of_keys && d->of_queries && d->centres ? TU_OK : TU_NO_MEMORY;
}

tu_status cuda_lower_attention_grad(tu__selection *s, const tu__node *node) {
    const struct tu__attention_grad_attrs *attrs = node->attrs;
    tu_type x = node->outputs[0];
    tu__kernel *k;
    TU_TRY(new_kernel(s, node, attrs->scale, attrs->causal, run_gradient, &k));
    attention_data *d = k->data;
    int64_t rows = block_rows_of(s, x, 2),
            centres = tu_shape_elements(tu__type_of(s, node->inputs[2])->shape);
    d->grid = grid_of(x.shape, rows, 2);
    d->centres_args = (attention_centres_args){
        .rows = centres, .time = d->args.time, .heads = d->args.heads, .width = d->args.width};
    d->centres_grid =
        (cuda_grid){.blocks = {(unsigned)((centres * 32 + PORTABLE_THREADS - 1) / PORTABLE_THREADS)},
                    .threads = PORTABLE_THREADS};
    k->workspace_bytes =
        ((size_t)centres * (cuda_is_wide(x.dtype) ? sizeof(double) : sizeof(float)) + 63) & ~(size_t)63;
    return request_gradient(s, d, cuda_type(x.dtype), rows != 0);
}
