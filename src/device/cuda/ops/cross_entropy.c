/* Cross-entropy, fused with what a training step computes around it: its gradient, the mean of the losses, the
 * gradient's scale, and the gradient's column sums, which are the gradient of a bias.
 *
 *     losses -> mean
 *     gradient -> scaled -> sum            gradient = cross_entropy_grad(logits, labels)
 *                        -> cast
 *
 * Each of these is tiny and costs a launch. The loss kernel has computed all inputs of the gradient, so it writes the
 * gradient too, for any shape. If everything fits into one block, such as 128 rows of 10 classes, one block computes
 * all of the above and rounds each value as if it were stored. Only the order of its sums differs from that of
 * separate kernels, so their last bits may differ. In a stack, a block does so for each network: logits are [networks, …,
 * classes], and the mean and the sums have one result, or row, per network.
 *
 * Kernels: kernels/softmax.cu.
 */
#include "device/cuda/ops/ops.h"
#include "device/cuda/ops/reduce.h"

#include "device/cuda/kernels/softmax_args.h"

enum {
    MAX_BLOCK_LOGITS = 16384,
    MAX_THREADS = 1024,
    EXTRA_NUMBERS = MAX_THREADS + 32, /* numbers in shared memory besides logits and losses */
};

/* ---- The gradient ---- */

static bool is_output_of(tu__edge value, const tu__node *node) {
    return tu__same_edge(value, (tu__edge){node->id, 0});
}

/* True if the node is in this partition, has no kernel yet, and has the level of `like`: the kernel of `like` can
 * compute it, even if other kernels read it. */
static bool is_available(const tu__selection *s, const tu__node *node, const tu__node *like) {
    tu__node_state state = s->plan->state[node->id];
    return (state == TU__WAITING || state == TU__PENDING) &&
           s->plan->level[node->id] == s->plan->level[like->id];
}

static const tu__node *only_reader(tu__selection *s, const tu__node *node, tu__opcode op) {
    const tu__node *reader = tu__only_reader(s, (tu__edge){node->id, 0});
    return reader && reader->op->code == op ? reader : NULL;
}

/* Returns the gradient of a loss with class indices and no label smoothing; NULL if it is not in this partition. */
static const tu__node *find_gradient(tu__selection *s, const tu__node *loss) {
    const tu__plan_value *v = tu__plan_value_of(s, loss->inputs[0]);
    if (tu__attrs(loss, cross_entropy)->smoothing != 0) return NULL;
    for (uint32_t i = 0; i < v->reader_count; i++) {
        const tu__node *reader = s->graph->nodes[s->plan->readers[v->first_reader + i]];
        if (reader->op->code == TU__OP_CROSS_ENTROPY_GRAD && is_available(s, reader, loss) &&
            tu__same_edge(reader->inputs[1], loss->inputs[1]))
            return reader;
    }
    return NULL;
}

/* ---- Nodes after the loss and its gradient ---- */

/* A node is NULL if the graph does not have it. */
typedef struct tail {
    const tu__node *mean;   /* of the losses, if it is their only reader */
    const tu__node *scaled; /* the gradient multiplied by `scale` */
    const tu__node *last;   /* scaled, or else the unscaled gradient; sum and cast read it */
    const tu__node *sum, *cast;
    double scale;
} tail;

static bool is_constant(const tu__selection *s, tu__edge value, double *number) {
    const tu__node *node = s->graph->nodes[value.node];
    while (node->op->code == TU__OP_BROADCAST) node = s->graph->nodes[node->inputs[0].node];
    if (node->op->code != TU__OP_FILL) return false;
    *number = tu__attrs(node, fill)->number;
    return true;
}

/* Returns the number of networks whose logits these are: the first axis in a stack; otherwise 1. */
static int64_t count_networks(const tu__selection *s, const tu_type *x) {
    int64_t members = s->graph->members;
    return members && x->shape.rank > 2 && x->shape.dim[0] == members ? members : 1;
}

/* The axes of all but the last, and in a stack all but the first. */
static int64_t axes_of_rows(int64_t rank, int64_t networks) {
    int64_t all_but_last = ((int64_t)1 << (rank - 1)) - 1;
    return networks > 1 ? all_but_last & ~(int64_t)1 : all_but_last;
}

/* Returns the mean of all losses of each network. */
static const tu__node *find_mean(tu__selection *s, const tu__node *loss, int64_t networks) {
    const tu__node *mean = only_reader(s, loss, TU__OP_MEAN);
    if (!mean || !is_available(s, mean, loss)) return NULL;
    int64_t axes = tu__attrs(mean, sum)->axes; /* mean has the attributes of sum */
    return tu_shape_elements(mean->outputs[0].shape) == networks && (networks == 1 || !(axes & 1)) ? mean
                                                                                                   : NULL;
}

static const tu__node *find_scaled(tu__selection *s, const tu__node *loss, const tu__node *unscaled,
                                   double *scale) {
    const tu__node *mul = only_reader(s, unscaled, TU__OP_MUL);
    bool found = mul && is_available(s, mul, loss) &&
                 is_constant(s, mul->inputs[is_output_of(mul->inputs[0], unscaled) ? 1 : 0], scale) &&
                 tu_shape_equal(mul->outputs[0].shape, unscaled->outputs[0].shape);
    return found ? mul : NULL;
}

/* True if the node sums over all axes but the last, per network. */
static bool sums_columns(const tu__node *node, int64_t rank, int64_t networks) {
    return node->op->code == TU__OP_SUM && rank > 1 &&
           tu__attrs(node, sum)->axes == axes_of_rows(rank, networks);
}

static bool is_float_cast(const tu__node *node) {
    return node->op->code == TU__OP_CAST && tu_dtype_is_float(node->outputs[0].dtype);
}

static tail find_tail(tu__selection *s, const tu__node *loss, const tu__node *gradient) {
    int64_t networks = count_networks(s, tu__type_of(s, loss->inputs[0]));
    tail t = {.mean = find_mean(s, loss, networks), .scale = 1};
    t.scaled = find_scaled(s, loss, gradient, &t.scale);
    t.last = t.scaled ? t.scaled : gradient;
    const tu__plan_value *v = tu__plan_value_of(s, (tu__edge){t.last->id, 0});
    for (uint32_t i = 0; i < v->reader_count; i++) {
        const tu__node *reader = s->graph->nodes[s->plan->readers[v->first_reader + i]];
        if (!is_available(s, reader, loss)) continue;
        if (!t.sum && sums_columns(reader, t.last->outputs[0].shape.rank, networks)) t.sum = reader;
        if (!t.cast && is_float_cast(reader)) t.cast = reader;
    }
    return t;
}

/* True if the gradient has readers other than the sum and the cast. */
static bool has_other_readers(tu__selection *s, const tail *t) {
    const tu__plan_value *v = tu__plan_value_of(s, (tu__edge){t->last->id, 0});
    return v->exported || v->reader_count > (t->sum ? 1u : 0u) + (t->cast ? 1u : 0u);
}

static int64_t classes_of(const tu_type *x) {
    return x->shape.dim[x->shape.rank - 1];
}

/* Shared memory of a block: logits, losses and scratch for sums. */
static size_t shared_bytes_for(const tu__selection *s, const tu_type *x) {
    int64_t count = tu_shape_elements(x->shape) / count_networks(s, x), rows = count / classes_of(x);
    return (size_t)(count + rows + EXTRA_NUMBERS) * (cuda_is_wide(x->dtype) ? sizeof(double) : sizeof(float));
}

/* True if a block can compute the loss of a network. */
static bool fits_block(const tu__selection *s, const tu_type *x) {
    return tu_shape_elements(x->shape) / count_networks(s, x) <= MAX_BLOCK_LOGITS &&
           shared_bytes_for(s, x) <= (size_t)cuda_of(s)->shared_bytes;
}

/* ---- Logits in half precision ----
 *
 * With mixed precision the logits of a product are bf16 or f16 and cast to f32 for the loss; its gradient is scaled and
 * cast back:
 *
 *     logits -> cast -> losses
 *                    -> gradient -> scaled -> cast
 *
 * For 32,768 rows of 50,304 classes each f32 value is 6.6 GB, written once and read twice. One kernel reads the 16-bit
 * logits and writes the last cast, in place. */

typedef struct narrow_form {
    const tu__node *widened;           /* the cast of the logits */
    const tu__node *gradient, *scaled; /* scaled: NULL if there is none */
    const tu__node *narrowed;          /* the last cast */
    double scale;
} narrow_form;

static bool is_half(tu_dtype dtype) {
    return dtype == TU_BF16 || dtype == TU_F16;
}

/* True if only the loss and its gradient read the value. */
static bool is_read_only_by(tu__selection *s, const tu__node *value, const tu__node *loss,
                            const tu__node *gradient) {
    const tu__plan_value *v = tu__plan_value_of(s, (tu__edge){value->id, 0});
    for (uint32_t i = 0; i < v->reader_count; i++) {
        const tu__node *reader = s->graph->nodes[s->plan->readers[v->first_reader + i]];
        if (reader != loss && reader != gradient) return false;
    }
    return !v->exported;
}

static bool find_narrow_form(tu__selection *s, const tu__node *loss, narrow_form *f) {
    const tu__node *widened = s->graph->nodes[loss->inputs[0].node];
    if (widened->op->code != TU__OP_CAST || !is_half(tu__type_of(s, widened->inputs[0])->dtype) ||
        widened->outputs[0].dtype != TU_F32 || fits_block(s, &widened->outputs[0]) ||
        !is_available(s, widened, loss))
        return false;
    *f = (narrow_form){.widened = widened, .gradient = find_gradient(s, loss), .scale = 1};
    if (!f->gradient || !is_read_only_by(s, widened, loss, f->gradient)) return false;
    f->scaled = find_scaled(s, loss, f->gradient, &f->scale);
    f->narrowed = only_reader(s, f->scaled ? f->scaled : f->gradient, TU__OP_CAST);
    return f->narrowed && is_available(s, f->narrowed, loss) &&
           f->narrowed->outputs[0].dtype == tu__type_of(s, widened->inputs[0])->dtype;
}

tu__edge cuda_loss_input_after_fusion(tu__selection *s, const tu__node *loss, uint32_t index) {
    narrow_form form;
    bool fuses = index == 0 && loss->op->code == TU__OP_CROSS_ENTROPY && find_narrow_form(s, loss, &form);
    return fuses ? form.widened->inputs[0] : loss->inputs[index];
}

/* ---- Kernels ---- */

/* The possible results of a kernel. */
typedef enum output { LOSSES, MEAN, GRADIENT, CAST, SUMS, OUTPUTS } output;

typedef struct loss_data {
    const cuda_function *function;
    cuda_grid grid;
    int output_index[OUTPUTS]; /* index in the kernel's results, or -1 */
    cross_entropy_args rows;
    block_loss_args block;
} loss_data;

static void *result(const tu__kernel *k, output which) {
    const loss_data *d = k->data;
    return d->output_index[which] < 0 ? NULL : k->out[d->output_index[which]];
}

static tu_status run_rows(const tu__kernel *k) {
    const loss_data *d = k->data;
    cross_entropy_args a = d->rows;
    a.x = k->in[0], a.labels = k->in[1];
    a.losses = result(k, LOSSES), a.gradient = result(k, GRADIENT);
    return cuda_launch(k, d->function, d->grid, &a);
}

static tu_status run_block(const tu__kernel *k) {
    const loss_data *d = k->data;
    block_loss_args a = d->block;
    a.x = k->in[0], a.labels = k->in[1];
    a.losses = result(k, LOSSES), a.mean = result(k, MEAN), a.sums = result(k, SUMS);
    a.gradient = result(k, GRADIENT), a.cast = result(k, CAST);
    return cuda_launch(k, d->function, d->grid, &a);
}

static tu_status write_output(tu__kernel *k, output which, const tu__node *node) {
    loss_data *d = k->data;
    if (!node) return TU_OK;
    d->output_index[which] = (int)k->write_count;
    return tu__kernel_write(k, (tu__edge){node->id, 0}, -1);
}

static tu_status fuse_node(tu__kernel *k, const tu__node *node) {
    if (!node) return TU_OK;
    tu__mark_done(k->owner, node);
    return tu__kernel_add_node(k, node);
}

static tu_status fuse_gradient(tu__kernel *k, const tu__node *gradient) {
    k->name = "cross_entropy+gradient";
    k->bytes_moved += (int64_t)tu_type_bytes(gradient->outputs[0]);
    return fuse_node(k, gradient);
}

static tu_status read_inputs(tu__kernel *k, const tu__node *node) {
    cuda_kernel_set_costs(k, node);
    TU_TRY(tu__kernel_read(k, node->inputs[0]));
    return tu__kernel_read(k, node->inputs[1]);
}

/* Uses a few lanes, a warp or a block per row, for a loss or a gradient. */
static tu_status plan_rows(tu__selection *s, const tu__node *node, loss_data *d, double smoothing) {
    tu_type x = *tu__type_of(s, node->inputs[0]);
    int64_t n = classes_of(&x), rows = tu_shape_elements(x.shape) / n;
    int lanes = cuda_row_lanes(n, tu_dtype_size(x.dtype));
    d->rows = (cross_entropy_args){.rows = rows, .n = n, .lanes = lanes, .smoothing = smoothing};
    d->grid = cuda_row_grid(rows, lanes);
    d->function = cuda_request(s, "softmax", "cross_entropy<%s, %s>", cuda_type(x.dtype),
                               cuda_type(tu__type_of(s, node->inputs[1])->dtype));
    return d->function ? TU_OK : TU_NO_MEMORY;
}

/* `gradient`: NULL if none is fused. */
static tu_status lower_rows(tu__selection *s, const tu__node *node, tu__kernel *k, const tu__node *gradient) {
    TU_TRY(plan_rows(s, node, k->data, tu__attrs(node, cross_entropy)->smoothing));
    TU_TRY(read_inputs(k, node));
    TU_TRY(write_output(k, LOSSES, node));
    if (!gradient) return TU_OK;
    TU_TRY(fuse_gradient(k, gradient));
    return write_output(k, GRADIENT, gradient);
}

/* Chooses the lanes per row, so that each has about four classes, and full warps. */
static void plan_block(const tu__selection *s, loss_data *d, const tu_type *x, double scale) {
    int64_t n = classes_of(x), networks = count_networks(s, x),
            rows = tu_shape_elements(x->shape) / n / networks;
    int lanes = 1;
    while (lanes < 32 && 4 * lanes < n) lanes *= 2;
    int64_t threads = (rows * lanes + 31) / 32 * 32;
    d->block = (block_loss_args){.rows = (int)rows, .n = (int)n, .lanes = lanes, .scale = scale};
    d->grid = (cuda_grid){.blocks = {(unsigned)networks},
                          .threads = (unsigned)(threads < MAX_THREADS ? threads : MAX_THREADS),
                          .shared = (unsigned)shared_bytes_for(s, x)};
}

static tu_status write_tail(tu__kernel *k, const tu__node *node, const tail *t) {
    TU_TRY(write_output(k, LOSSES, t->mean ? NULL : node));
    TU_TRY(write_output(k, MEAN, t->mean));
    TU_TRY(write_output(k, GRADIENT, has_other_readers(k->owner, t) ? t->last : NULL));
    TU_TRY(write_output(k, CAST, t->cast));
    return write_output(k, SUMS, t->sum);
}

/* Computes everything in one block, or one for each network of a stack. */
static tu_status lower_block(tu__selection *s, const tu__node *node, tu__kernel *k,
                             const tu__node *gradient) {
    loss_data *d = k->data;
    tu_type x = *tu__type_of(s, node->inputs[0]);
    tail t = find_tail(s, node, gradient);
    plan_block(s, d, &x, t.scale);
    d->function = cuda_request(s, "softmax", "block_loss<%s, %s, %s>", cuda_type(x.dtype),
                               cuda_type(tu__type_of(s, node->inputs[1])->dtype),
                               cuda_type(t.cast ? t.cast->outputs[0].dtype : x.dtype));
    if (!d->function) return TU_NO_MEMORY;
    k->run = run_block;
    TU_TRY(read_inputs(k, node));
    TU_TRY(write_tail(k, node, &t));
    TU_TRY(fuse_gradient(k, gradient));
    const tu__node *const nodes[] = {t.mean, t.scaled, t.sum, t.cast};
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) TU_TRY(fuse_node(k, nodes[i]));
    if (t.mean) k->name = "cross_entropy+mean+gradient";
    return TU_OK;
}

/* The gradient may overwrite the logits. */
static tu_status lower_narrow(tu__selection *s, const tu__node *node, tu__kernel *k,
                              const narrow_form *form) {
    loss_data *d = k->data;
    tu_type x = *tu__type_of(s, form->widened->inputs[0]);
    int64_t n = classes_of(&x), rows = tu_shape_elements(x.shape) / n;
    d->rows = (cross_entropy_args){
        .rows = rows, .n = n, .lanes = cuda_row_lanes(n, tu_dtype_size(x.dtype)), .scale = form->scale};
    d->grid = cuda_row_grid(d->rows.rows, d->rows.lanes);
    d->function = cuda_request(s, "softmax", "narrow_cross_entropy<%s, %s>", cuda_type(x.dtype),
                               cuda_type(tu__type_of(s, node->inputs[1])->dtype));
    if (!d->function) return TU_NO_MEMORY;
    k->name = "cast+cross_entropy+gradient+cast";
    k->flops = node->op->flops(node, (tu_type[]){*tu__type_of(s, node->inputs[0])});
    k->bytes_moved = 2 * (int64_t)tu_type_bytes(x) + (int64_t)tu_type_bytes(node->outputs[0]);
    const tu__node *const nodes[] = {form->widened, form->gradient, form->scaled, form->narrowed};
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) TU_TRY(fuse_node(k, nodes[i]));
    TU_TRY(tu__kernel_read(k, form->widened->inputs[0]));
    TU_TRY(tu__kernel_read(k, node->inputs[1]));
    TU_TRY(write_output(k, LOSSES, node));
    d->output_index[GRADIENT] = (int)k->write_count;
    return tu__kernel_write(k, (tu__edge){form->narrowed->id, 0}, 0);
}

static tu_status new_kernel(tu__selection *s, const tu__node *node, tu__kernel **kernel) {
    tu__kernel *k = *kernel = tu__kernel_new(s, node, node->op->name, run_rows);
    loss_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    for (int i = 0; d && i < OUTPUTS; i++) d->output_index[i] = -1;
    return d ? TU_OK : TU_NO_MEMORY;
}

tu_status cuda_lower_cross_entropy(tu__selection *s, const tu__node *node) {
    tu__kernel *k;
    TU_TRY(new_kernel(s, node, &k));
    narrow_form form;
    if (find_narrow_form(s, node, &form)) return lower_narrow(s, node, k, &form);
    const tu__node *gradient = find_gradient(s, node);
    bool in_block = gradient && fits_block(s, tu__type_of(s, node->inputs[0]));
    return in_block ? lower_block(s, node, k, gradient) : lower_rows(s, node, k, gradient);
}

/* A gradient whose loss is not computed, or on another device. */
tu_status cuda_lower_cross_entropy_grad(tu__selection *s, const tu__node *node) {
    tu__kernel *k;
    TU_TRY(new_kernel(s, node, &k));
    TU_TRY(plan_rows(s, node, k->data, 0));
    TU_TRY(read_inputs(k, node));
    return write_output(k, GRADIENT, node);
}
