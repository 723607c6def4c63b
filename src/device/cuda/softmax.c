/* Softmax, log-softmax and cross-entropy: a few lanes, a warp or a block to each row, one launch. Along another axis than
 * the last, columns side by side. The kernels, and what they move: kernels/softmax.cu. */
#include "device/cuda/kernels/softmax_args.h"
#include "device/cuda/reduce.h"

typedef struct softmax_data {
    const cuda_function *function;
    cuda_grid grid;
    softmax_rows_args rows;
    softmax_columns_args columns;
    cross_entropy_args loss;
} softmax_data;

/* ---- Softmax ---- */

static tu_status run_rows(const tu__kernel *k) {
    softmax_data *d = k->data;
    d->rows.x = k->in[0], d->rows.y = k->out[0];
    return cuda_launch(k, d->function, d->grid, &d->rows);
}

static tu_status run_columns(const tu__kernel *k) {
    softmax_data *d = k->data;
    d->columns.x = k->in[0], d->columns.y = k->out[0];
    return cuda_launch(k, d->function, d->grid, &d->columns);
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
tu_status cuda_make_softmax(tu__selection *s, const tu__node *node) {
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
    cuda_kernel_count(k, node);
    return cuda_kernel_bind(k, node, 0);
}

/* ---- Cross-entropy: in logits [rows, n], labels; out losses [rows], and their gradient where it is found ---- */

/* What autodiff makes of a cross-entropy of class numbers without smoothing (graph/ops/softmax.c):
 *
 *     target = one_hot(labels)        difference = softmax(logits) * sum(target) - target
 *
 * Four kernels that each do next to nothing; the loss has it all at hand. */
typedef struct gradient {
    const tu__node *softmax, *one_hot, *sum, *mul, *sub;
} gradient;

static bool same_edge(tu__edge a, tu__edge b) {
    return a.node == b.node && a.output == b.output;
}

static bool is_output_of(tu__edge value, const tu__node *node) {
    return same_edge(value, (tu__edge){node->id, 0});
}

/* Of this part and level, and no kernel's yet. */
static bool is_free(const tu__selection *s, const tu__node *node, const tu__node *like) {
    tu__node_state state = s->plan->state[node->id];
    return (state == TU__WAITING || state == TU__PENDING) &&
           s->plan->level[node->id] == s->plan->level[like->id];
}

static const tu__node *only_reader(tu__selection *s, const tu__node *node, tu__opcode op) {
    const tu__node *reader = tu__only_reader(s, (tu__edge){node->id, 0});
    return reader && reader->op->code == op ? reader : NULL;
}

/* Whether only `sum` and `sub` read the target. */
static bool is_private(tu__selection *s, const gradient *g) {
    const tu__plan_value *v = tu__plan_value_of(s, (tu__edge){g->one_hot->id, 0});
    return v->reader_count == 2 && !v->exported;
}

static bool is_target(const tu__selection *s, const tu__node *loss, const tu__node *one_hot) {
    tu_type x = *tu__type_of(s, loss->inputs[0]);
    return one_hot->op->code == TU__OP_ONE_HOT && same_edge(one_hot->inputs[0], loss->inputs[1]) &&
           one_hot->outputs[0].dtype == x.dtype && tu_shape_equal(one_hot->outputs[0].shape, x.shape);
}

static bool is_mass(const tu__node *sum) {
    return sum->op->code == TU__OP_SUM && tu__attrs(sum, sum)->keep &&
           tu__attrs(sum, sum)->axes == (int64_t)1 << (sum->outputs[0].shape.rank - 1);
}

/* The chain that begins at `softmax`, a reader of the loss's logits. */
static bool follow(tu__selection *s, const tu__node *loss, const tu__node *softmax, gradient *g) {
    bool last = softmax->op->code == TU__OP_SOFTMAX &&
                tu__attrs(softmax, softmax)->axis == softmax->outputs[0].shape.rank - 1;
    const tu__node *mul = last ? only_reader(s, softmax, TU__OP_MUL) : NULL;
    const tu__node *sub = mul ? only_reader(s, mul, TU__OP_SUB) : NULL;
    if (!sub || !is_output_of(sub->inputs[0], mul)) return false;
    const tu__node *sum = s->graph->nodes[mul->inputs[is_output_of(mul->inputs[0], softmax) ? 1 : 0].node];
    if (!is_mass(sum) || only_reader(s, sum, TU__OP_MUL) != mul || !same_edge(sum->inputs[0], sub->inputs[1]))
        return false;
    *g = (gradient){softmax, s->graph->nodes[sum->inputs[0].node], sum, mul, sub};
    return is_target(s, loss, g->one_hot) && is_private(s, g) && is_free(s, softmax, loss) &&
           is_free(s, g->one_hot, loss) && is_free(s, sum, loss) && is_free(s, mul, loss) &&
           is_free(s, sub, loss);
}

static bool find_gradient(tu__selection *s, const tu__node *loss, gradient *g) {
    const tu__plan_value *v = tu__plan_value_of(s, loss->inputs[0]);
    tu_dtype labels = tu__type_of(s, loss->inputs[1])->dtype;
    if (tu__attrs(loss, cross_entropy)->smoothing != 0 || (labels != TU_I32 && labels != TU_I64))
        return false;
    for (uint32_t i = 0; i < v->reader_count; i++)
        if (follow(s, loss, s->graph->nodes[s->plan->readers[v->first_reader + i]], g)) return true;
    return false;
}

static tu_status take_gradient(tu__kernel *k, const gradient *g) {
    const tu__node *const taken[] = {g->softmax, g->one_hot, g->sum, g->mul, g->sub};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        tu__mark_done(k->owner, taken[i]);
        TU_TRY(tu__kernel_cover(k, taken[i]));
    }
    k->name = "cross_entropy+gradient";
    k->bytes_moved += (int64_t)tu_type_bytes(g->sub->outputs[0]);
    return tu__kernel_write(k, (tu__edge){g->sub->id, 0}, -1);
}

static tu_status run_cross_entropy(const tu__kernel *k) {
    softmax_data *d = k->data;
    d->loss.x = k->in[0], d->loss.labels = k->in[1], d->loss.losses = k->out[0];
    d->loss.gradient = k->write_count > 1 ? k->out[1] : NULL;
    return cuda_launch(k, d->function, d->grid, &d->loss);
}

tu_status cuda_make_cross_entropy(tu__selection *s, const tu__node *node) {
    tu_type x = *tu__type_of(s, node->inputs[0]), labels = *tu__type_of(s, node->inputs[1]);
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_cross_entropy);
    softmax_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    int64_t n = x.shape.dim[x.shape.rank - 1], rows = tu_shape_elements(x.shape) / n;
    int lanes = cuda_row_lanes(n, tu_dtype_size(x.dtype));
    d->loss = (cross_entropy_args){
        .rows = rows, .n = n, .lanes = lanes, .smoothing = tu__attrs(node, cross_entropy)->smoothing};
    d->grid = cuda_row_grid(rows, lanes);
    d->function =
        cuda_request(s, "softmax", "cross_entropy<%s, %s>", cuda_type(x.dtype), cuda_type(labels.dtype));
    if (!d->function) return TU_NO_MEMORY;
    cuda_kernel_count(k, node);
    TU_TRY(cuda_kernel_bind(k, node, -1));
    gradient g;
    return find_gradient(s, node, &g) ? take_gradient(k, &g) : TU_OK;
}
