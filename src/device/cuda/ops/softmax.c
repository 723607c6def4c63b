/* Softmax and log-softmax in one launch: a few lanes, a warp or a block per row; along other axes than the last,
 * adjacent columns. Kernels: kernels/softmax.cu. */
#include "device/cuda/ops/ops.h"
#include "device/cuda/ops/reduce.h"

#include "device/cuda/kernels/softmax_args.h"

typedef struct softmax_data {
    const cuda_function *function;
    cuda_grid grid;
    softmax_rows_args rows;
    softmax_columns_args columns;
} softmax_data;

/* ---- Softmax ---- */

static tu_status run_rows(const tu__kernel *k) {
    const softmax_data *d = k->data;
    softmax_rows_args a = d->rows;
    a.x = k->in[0], a.y = k->out[0];
    return cuda_launch(k, d->function, d->grid, &a);
}

static tu_status run_columns(const tu__kernel *k) {
    const softmax_data *d = k->data;
    softmax_columns_args a = d->columns;
    a.x = k->in[0], a.y = k->out[0];
    return cuda_launch(k, d->function, d->grid, &a);
}

static void plan_rows(softmax_data *d, tu_type x, int64_t n, bool logarithm) {
    int64_t rows = tu_shape_elements(x.shape) / n;
    int lanes = cuda_row_lanes(n, tu_dtype_size(x.dtype));
    d->rows = (softmax_rows_args){.rows = rows, .n = n, .lanes = lanes, .logarithm = logarithm};
    d->grid = cuda_row_grid(rows, lanes);
}

static void plan_columns(softmax_data *d, tu_type x, int64_t n, int64_t inner, bool logarithm) {
    int64_t columns = tu_shape_elements(x.shape) / n;
    d->columns = (softmax_columns_args){.columns = columns, .inner = inner, .n = n, .logarithm = logarithm};
    d->grid = (cuda_grid){.blocks = {(unsigned)((columns + 31) / 32)}, .threads = 256};
}

/* log_softmax has the attributes of softmax. */
tu_status cuda_lower_softmax(tu__selection *s, const tu__node *node) {
    tu_type x = node->outputs[0];
    int64_t axis = tu__attrs(node, softmax)->axis, n = x.shape.dim[axis], inner = 1;
    bool logarithm = node->op->code == TU__OP_LOG_SOFTMAX;
    for (int64_t i = axis + 1; i < x.shape.rank; i++) inner *= x.shape.dim[i];
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, inner == 1 ? run_rows : run_columns);
    softmax_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    if (inner == 1)
        plan_rows(d, x, n, logarithm);
    else
        plan_columns(d, x, n, inner, logarithm);
    const char *form = inner == 1 ? "softmax_rows" : "softmax_columns";
    d->function = cuda_request(s, "softmax", "%s<%s>", form, cuda_type(x.dtype));
    if (!d->function) return TU_NO_MEMORY;
    cuda_kernel_set_costs(k, node);
    return cuda_kernel_add_operands(k, node, 0);
}
