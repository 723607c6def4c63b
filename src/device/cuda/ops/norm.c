/* Batch and layer normalisation: how x [rows, width] is distributed over blocks, and which neighbours of a batch
 * normalisation are fused (device/kit/norm_fusion.c); casts around a layer normalisation. Kernels: kernels/norm.cu.
 *
 * A batch normalisation is three launches: partial sums, factors, and the pass that applies them; so is its gradient.
 * Parameters and statistics may have another type than x, usually f32 for x of bf16.
 */
#include "device/cuda/ops/ops.h"
#include "device/cuda/ops/reduce.h"
#include "device/cuda/runtime/branches.h"
#include "device/kit/norm_fusion.h"

#include "device/cuda/kernels/norm_args.h"

/* Resident blocks per multiprocessor of the summing kernels, as in kernels/norm.cu. */
enum { RESIDENT = 4, RESIDENT_RELU = 3 };

/* Rows per thread in the pass that applies the factors: each thread loads its factors once. */
enum { MIN_ROWS = 4, MAX_ROWS = 32 };

typedef struct norm_data {
    int64_t rows, width; /* of x, of one member */
    tu_dtype dtype;
    double epsilon;
    norm_tiling summing, applying;
    size_t partial_bytes;
    const cuda_function *sums, *factors, *apply;
    bool adds_residual, relu; /* forward: in[3] is added to y; a relu follows */
    bool saves_for_gradient;  /* forward: out[3] receives the factors, or a relu mask after an addition */
    bool recomputes_relu, uses_mask; /* backward: in[5] contains these factors, or this mask */
    bool adds;                       /* backward: dy is the sum of in[4] and in[6] */
    tu__members members;             /* of a stack */
    cuda_branches branches;
} norm_data;

/* ---- Tiling ---- */

static norm_tiling tiling_for_sums(const tu__selection *s, int64_t rows, int64_t width, int64_t word,
                                   int resident) {
    cuda_tiling t = cuda_tile_columns(width / word, rows, cuda_of(s)->multiprocessors, resident);
    return (norm_tiling){.rows = rows,
                         .width = width,
                         .groups = width / word,
                         .segment = t.segment,
                         .columns = t.columns,
                         .slices = t.slices,
                         .splits = t.splits};
}

/* With many partial sums, a block combines few columns with many threads each. */
static norm_partial_sums partial_sums_of(const norm_tiling *t, const void *partial) {
    int columns = t->splits > 256 ? 2 : t->splits > 64 ? 4 : 8;
    return (norm_partial_sums){
        .partial = partial, .width = t->width, .splits = t->splits, .columns = columns};
}

static cuda_grid grid_to_add(const norm_partial_sums *j) {
    return (cuda_grid){.blocks = {(unsigned)((j->width + j->columns - 1) / j->columns)}, .threads = 256};
}

/* Many small blocks, so that the last ones end at about the same time. */
static norm_tiling tiling_to_apply(const tu__selection *s, norm_tiling t) {
    int64_t threads = (int64_t)cuda_of(s)->multiprocessors * 2048,
            rows_per_thread = t.rows * t.groups / threads;
    rows_per_thread = rows_per_thread < MIN_ROWS   ? MIN_ROWS
                      : rows_per_thread > MAX_ROWS ? MAX_ROWS
                                                   : rows_per_thread;
    t.segment = rows_per_thread * t.slices;
    int64_t splits = (t.rows + t.segment - 1) / t.segment, limit = 32768; /* blocks along y */
    if (splits > limit) t.segment = (t.rows + limit - 1) / limit;
    t.splits = (int)((t.rows + t.segment - 1) / t.segment);
    return t;
}

static cuda_grid grid_of(const norm_tiling *t) {
    unsigned blocks = (unsigned)((t->groups + t->columns - 1) / t->columns);
    return (cuda_grid){.blocks = {blocks, (unsigned)t->splits}, .threads = 256};
}

static size_t compute_type_bytes(const norm_data *d) {
    return cuda_is_wide(d->dtype) ? sizeof(double) : sizeof(float);
}

/* Returns the factors for the last pass, which follow the partial sums in the workspace. */
static void *factors_in_workspace(const tu__kernel *k) {
    const norm_data *d = k->data;
    return (char *)k->workspace + d->partial_bytes;
}

/* Launches the sums, the kernel that combines them into factors, and the pass that applies those. `factor_args` contains
 * `partial_sums`. */
static tu_status launch_passes(const tu__kernel *k, const void *sums, const norm_partial_sums *partial_sums,
                               const void *factor_args, const void *apply) {
    const norm_data *d = k->data;
    TU_TRY(cuda_launch(k, d->sums, grid_of(&d->summing), sums));
    TU_TRY(cuda_launch(k, d->factors, grid_to_add(partial_sums), factor_args));
    return cuda_launch(k, d->apply, grid_of(&d->applying), apply);
}

/* ---- Batch normalisation. Inputs: x, gamma, beta, residual; outputs: y, mean, variance, data for the gradient ---- */

static tu_status run_one_batch_norm(const tu__kernel *k) {
    const norm_data *d = k->data;
    void *factors = d->saves_for_gradient && !d->adds_residual ? k->out[3] : factors_in_workspace(k);
    norm_sums_args sums = {.tiling = d->summing, .x = k->in[0], .partial = k->workspace};
    norm_factors_args factor_args = {.partial_sums = partial_sums_of(&d->summing, k->workspace),
                                     .rows = d->rows,
                                     .epsilon = d->epsilon,
                                     .x = k->in[0],
                                     .gamma = k->in[1],
                                     .beta = k->in[2],
                                     .mean = k->out[1],
                                     .variance = k->out[2],
                                     .factors = factors};
    norm_apply_args apply = {.tiling = d->applying,
                             .x = k->in[0],
                             .residual = d->adds_residual ? k->in[3] : NULL,
                             .factors = factors,
                             .y = k->out[0],
                             .mask = d->saves_for_gradient && d->adds_residual ? k->out[3] : NULL,
                             .relu = d->relu};
    return launch_passes(k, &sums, &factor_args.partial_sums, &factor_args, &apply);
}

static tu_status run_batch_norm(const tu__kernel *k) {
    const norm_data *d = k->data;
    return cuda_run_members(k, &d->members, &d->branches, run_one_batch_norm);
}

/* ---- Its gradient. Inputs: x, gamma, mean, variance, dy, data from forward, value added to dy;
 * outputs: dx, dgamma, dbeta, masked dy ---- */

static tu_status run_one_batch_norm_gradient(const tu__kernel *k) {
    const norm_data *d = k->data;
    const void *relu_factors = d->recomputes_relu ? k->in[5] : NULL,
               *dy = d->uses_mask ? k->out[3] : k->in[4];
    norm_sums_args sums = {.tiling = d->summing,
                           .x = k->in[0],
                           .dy = k->in[4],
                           .mean = k->in[2],
                           .relu_factors = relu_factors,
                           .mask = d->uses_mask ? k->in[5] : NULL,
                           .addend = d->adds ? k->in[6] : NULL,
                           .masked_dy = d->uses_mask ? k->out[3] : NULL,
                           .partial = k->workspace};
    norm_gradient_factors_args factor_args = {.partial_sums = partial_sums_of(&d->summing, k->workspace),
                                              .rows = d->rows,
                                              .epsilon = d->epsilon,
                                              .gamma = k->in[1],
                                              .mean = k->in[2],
                                              .variance = k->in[3],
                                              .dgamma = k->out[1],
                                              .dbeta = k->out[2],
                                              .factors = factors_in_workspace(k)};
    norm_gradient_args apply = {.tiling = d->applying,
                                .x = k->in[0],
                                .dy = dy,
                                .relu_factors = relu_factors,
                                .factors = factors_in_workspace(k),
                                .dx = k->out[0]};
    return launch_passes(k, &sums, &factor_args.partial_sums, &factor_args, &apply);
}

static tu_status run_batch_norm_gradient(const tu__kernel *k) {
    const norm_data *d = k->data;
    return cuda_run_members(k, &d->members, &d->branches, run_one_batch_norm_gradient);
}

/* ---- Lowering ---- */

/* Returns the elements per word. kernels/norm.cu reads full words, so a word must divide `width`. */
static int word_for(tu_dtype dtype, int64_t width) {
    int word = 16 / (int)tu_dtype_size(dtype);
    return width % word == 0 ? word : 1;
}

/* Creates a kernel with its sizes and workspace, without functions, inputs and outputs. `factors`: number of arrays
 * after the partial sums. `members`: 0, or the number of networks. */
static tu_status create_kernel(tu__selection *s, const tu__node *node, double epsilon, int factors,
                               int64_t members, int resident, tu_status (*run)(const tu__kernel *k),
                               tu__kernel **kernel) {
    tu_type x = node->outputs[0];
    tu__kernel *k = *kernel = tu__kernel_new(s, node, node->op->name, run);
    norm_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    int64_t networks = members ? members : 1;
    d->width = tu_shape_elements(tu__type_of(s, node->inputs[1])->shape) / networks;
    d->rows = tu_shape_elements(x.shape) / d->width / networks;
    tu__members_of(&d->members, s, node, members);
    d->dtype = x.dtype;
    d->epsilon = epsilon;
    d->summing = tiling_for_sums(s, d->rows, d->width, word_for(x.dtype, d->width), resident);
    d->applying = tiling_to_apply(s, d->summing);
    size_t array = (size_t)d->width * compute_type_bytes(d);
    d->partial_bytes = (2 * (size_t)d->summing.splits * array + 63) & ~(size_t)63;
    cuda_kernel_set_costs(k, node);
    return cuda_plan_branches(k, members, d->partial_bytes + (size_t)factors * array, &d->branches);
}

static tu_status set_function(const cuda_function **to, cuda_function *function) {
    *to = function;
    return function ? TU_OK : TU_NO_MEMORY;
}

static const char *parameter_type(const tu__selection *s, const tu__node *node) {
    return cuda_type(tu__type_of(s, node->inputs[1])->dtype);
}

static tu_status request_batch(tu__selection *s, const tu__node *node, norm_data *d) {
    const char *type = cuda_type(d->dtype);
    int word = word_for(d->dtype, d->width);
    TU_TRY(set_function(&d->sums, cuda_request(s, "norm", "norm_moments<%s, %d>", type, word)));
    TU_TRY(set_function(&d->factors,
                        cuda_request(s, "norm", "norm_factors<%s, %s>", type, parameter_type(s, node))));
    return set_function(&d->apply, cuda_request(s, "norm", "norm_apply<%s, %d, %s>", type, word,
                                                d->adds_residual ? "true" : "false"));
}

/* Size of the data for the gradient: factors [3, width], or one byte per word of x. */
static size_t saved_bytes(const norm_data *d) {
    return d->adds_residual ? (size_t)(d->rows * d->summing.groups)
                            : 3 * (size_t)d->width * compute_type_bytes(d);
}

tu_status cuda_lower_batch_norm(tu__selection *s, const tu__node *node) {
    tu__kernel *k;
    const struct tu__batch_norm_attrs *a = node->attrs;
    TU_TRY(create_kernel(s, node, a->epsilon, 3, a->members, RESIDENT, run_batch_norm, &k));
    norm_data *d = k->data;
    tu__epilogue epilogue = tu__norm_epilogue_of(s, node);
    k->name = tu__norm_epilogue_name(&epilogue);
    d->adds_residual = epilogue.add;
    d->relu = epilogue.relu;
    d->saves_for_gradient = d->relu && tu__norm_relu_has_gradient(s, &epilogue);
    TU_TRY(request_batch(s, node, d));
    for (uint32_t i = 0; i < node->input_count; i++) TU_TRY(tu__kernel_read(k, node->inputs[i]));
    TU_TRY(tu__kernel_add_epilogue(k, &epilogue));
    TU_TRY(tu__kernel_write(k, epilogue.result, 0));
    for (uint32_t i = 1; i < node->output_count; i++)
        TU_TRY(tu__kernel_write(k, (tu__edge){node->id, i}, -1));
    d->members.in[3] = d->members.in[0];
    d->members.out[3] = saved_bytes(d);
    size_t networks = a->members ? (size_t)a->members : 1;
    return d->saves_for_gradient ? tu__kernel_save(k, node, networks * saved_bytes(d)) : TU_OK;
}

static tu_status request_batch_gradient(tu__selection *s, const tu__node *node, norm_data *d) {
    const char *type = cuda_type(d->dtype), *parameter = parameter_type(s, node);
    const char *relu_mode = d->recomputes_relu ? "RECOMPUTED" : "PLAIN";
    int word = word_for(d->dtype, d->width);
    cuda_function *sums = d->uses_mask ? cuda_request(s, "norm", "norm_masked_sums<%s, %s, %d, %s>", type,
                                                      parameter, word, d->adds ? "true" : "false")
                                       : cuda_request(s, "norm", "norm_gradient_sums<%s, %s, %d, %s>", type,
                                                      parameter, word, relu_mode);
    TU_TRY(set_function(&d->sums, sums));
    TU_TRY(
        set_function(&d->factors, cuda_request(s, "norm", "norm_gradient_factors<%s, %s>", type, parameter)));
    return set_function(&d->apply,
                        cuda_request(s, "norm", "norm_gradient<%s, %d, %s>", type, word, relu_mode));
}

/* The masked dy reuses dy's memory, and dx then x's. Without a mask dx reuses dy's. */
static tu_status write_gradients(tu__kernel *k, const tu__node *node, const tu__relu_gradient *found) {
    const norm_data *d = k->data;
    for (uint32_t i = 0; i < node->output_count; i++)
        TU_TRY(tu__kernel_write(k, (tu__edge){node->id, i}, i ? -1 : d->uses_mask ? 0 : TU__NORM_DY));
    return d->uses_mask ? tu__kernel_write(k, (tu__edge){found->relu_grad->id, 0}, TU__NORM_DY) : TU_OK;
}

tu_status cuda_lower_batch_norm_grad(tu__selection *s, const tu__node *node) {
    tu__kernel *k;
    tu__relu_gradient found;
    bool has_relu = tu__find_relu_gradient(s, node, &found);
    const struct tu__batch_norm_grad_attrs *a = node->attrs;
    TU_TRY(create_kernel(s, node, a->epsilon, 4, a->members, has_relu ? RESIDENT_RELU : RESIDENT,
                         run_batch_norm_gradient, &k));
    norm_data *d = k->data;
    d->uses_mask = has_relu && found.has_residual;
    d->recomputes_relu = has_relu && !found.has_residual;
    d->adds = d->uses_mask && found.add;
    d->members.in[5] =
        d->uses_mask ? (size_t)(d->rows * d->summing.groups) : 3 * (size_t)d->width * compute_type_bytes(d);
    d->members.in[6] = d->members.in[0];
    d->members.out[3] = d->members.in[0];
    TU_TRY(request_batch_gradient(s, node, d));
    for (uint32_t i = 0; i < node->input_count; i++)
        TU_TRY(tu__kernel_read(k, has_relu && i == TU__NORM_DY ? found.dy : node->inputs[i]));
    if (has_relu) {
        k->name = d->adds        ? "add+relu_grad+batch_norm_grad"
                  : d->uses_mask ? "relu_grad+batch_norm_grad (mask)"
                                 : "relu_grad+batch_norm_grad";
        if (d->uses_mask) k->bytes_moved += (d->adds ? 2 : 1) * (int64_t)tu_type_bytes(node->outputs[0]);
        TU_TRY(tu__kernel_add_relu_gradient(k, &found));
    }
    return write_gradients(k, node, &found);
}

/* ---- Casts around a layer normalisation ----
 *
 * With mixed precision x may be a residual stream in f32, while products read y, and return dy, in half precision
 * (pass/precision.c):
 *
 *     x -> layer_norm -> y -> cast
 *          layer_norm_grad <- cast <- dy
 *
 * The kernels compute the casts: 6 instead of 14 bytes per element are moved forward, and 16 instead of 26 backward. */

static bool is_half(tu_dtype dtype) {
    return dtype == TU_BF16 || dtype == TU_F16;
}

/* Returns the cast of y to half precision, if it is the only reader of y; otherwise NULL. */
static const tu__node *narrowing_of(tu__selection *s, const tu__node *norm) {
    const tu__node *cast = tu__fusible_reader(s, (tu__edge){norm->id, 0});
    bool narrows = cast && cast->op->code == TU__OP_CAST && norm->outputs[0].dtype == TU_F32 &&
                   is_half(cast->outputs[0].dtype) && s->plan->level[cast->id] == s->plan->level[norm->id];
    return narrows ? cast : NULL;
}

/* Returns the cast of dy from half precision, if nothing else reads its result; otherwise NULL. */
static const tu__node *widening_of(tu__selection *s, const tu__node *gradient) {
    tu__edge dy = gradient->inputs[TU__NORM_DY];
    const tu__node *cast = s->graph->nodes[dy.node];
    bool widens =
        cast->op->code == TU__OP_CAST && s->plan->state[cast->id] == TU__PENDING && !cast->after_count &&
        cast->outputs[0].dtype == TU_F32 && is_half(tu__type_of(s, cast->inputs[0])->dtype) &&
        s->plan->level[cast->id] == s->plan->level[gradient->id] && tu__only_reader(s, dy) == gradient;
    return widens ? cast : NULL;
}

tu__edge cuda_norm_input_after_fusion(tu__selection *s, const tu__node *node, uint32_t index) {
    if (node->op->code != TU__OP_LAYER_NORM_GRAD) return tu__norm_input_after_fusion(s, node, index);
    const tu__node *widening = index == TU__NORM_DY ? widening_of(s, node) : NULL;
    return widening ? widening->inputs[0] : node->inputs[index];
}

/* Adds the cast to the kernel, which then moves `narrow` instead of the cast's f32 values. */
static tu_status fuse_cast(tu__kernel *k, const tu__node *cast, const char *name, tu_type narrow) {
    k->name = name;
    k->bytes_moved -=
        (int64_t)(tu_shape_elements(narrow.shape) * (int64_t)sizeof(float)) - (int64_t)tu_type_bytes(narrow);
    tu__mark_done(k->owner, cast);
    return tu__kernel_add_node(k, cast);
}

/* ---- Layer normalisation. Inputs: x, gamma, beta; outputs: y or its cast, mean, rstd ---- */

typedef struct layer_data {
    const cuda_function *rows, *sums, *finish;
    cuda_grid grid;
    layer_norm_args forward;
    layer_norm_gradient_args gradient;
    norm_sums_args columns;
    layer_norm_finish_args finish_args;
} layer_data;

static tu_status run_layer_norm(const tu__kernel *k) {
    const layer_data *d = k->data;
    layer_norm_args a = d->forward;
    a.x = k->in[0], a.gamma = k->in[1], a.beta = k->in[2];
    a.y = k->out[0], a.mean = k->out[1], a.rstd = k->out[2];
    return cuda_launch(k, d->rows, d->grid, &a);
}

tu_status cuda_lower_layer_norm(tu__selection *s, const tu__node *node) {
    tu_type x = node->outputs[0];
    const tu__node *cast = narrowing_of(s, node);
    tu_type y = cast ? cast->outputs[0] : x;
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_layer_norm);
    layer_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    int64_t n = tu_shape_elements(tu__type_of(s, node->inputs[1])->shape),
            rows = tu_shape_elements(x.shape) / n;
    int lanes = cuda_row_lanes(n, tu_dtype_size(x.dtype));
    d->grid = cuda_row_grid(rows, lanes);
    d->forward = (layer_norm_args){
        .rows = rows, .n = n, .lanes = lanes, .epsilon = tu__attrs(node, layer_norm)->epsilon};
    TU_TRY(set_function(&d->rows, cuda_request(s, "norm", "layer_norm<%s, %s, %s>", cuda_type(x.dtype),
                                               cuda_type(y.dtype), parameter_type(s, node))));
    cuda_kernel_set_costs(k, node);
    if (!cast) return cuda_kernel_add_operands(k, node, 0);
    TU_TRY(fuse_cast(k, cast, "layer_norm+cast", y));
    for (uint32_t i = 0; i < node->input_count; i++) TU_TRY(tu__kernel_read(k, node->inputs[i]));
    for (uint32_t i = 0; i < node->output_count; i++)
        TU_TRY(tu__kernel_write(k, i ? (tu__edge){node->id, i} : (tu__edge){cast->id, 0}, -1));
    return TU_OK;
}

/* ---- Its gradient. Inputs: x, gamma, mean, rstd, dy; outputs: dx, dgamma, dbeta ---- */

/* The sums read dy before dx may overwrite it. */
static tu_status run_layer_norm_gradient(const tu__kernel *k) {
    const layer_data *d = k->data;
    norm_sums_args columns = d->columns;
    columns.x = k->in[0], columns.mean = k->in[2], columns.rstd = k->in[3], columns.dy = k->in[4];
    columns.partial = k->workspace;
    layer_norm_finish_args finish = d->finish_args;
    finish.partial_sums = partial_sums_of(&d->columns.tiling, k->workspace);
    finish.dgamma = k->out[1], finish.dbeta = k->out[2];
    layer_norm_gradient_args a = d->gradient;
    a.x = k->in[0], a.gamma = k->in[1], a.mean = k->in[2], a.rstd = k->in[3], a.dy = k->in[4];
    a.dx = k->out[0];
    TU_TRY(cuda_launch(k, d->sums, grid_of(&columns.tiling), &columns));
    TU_TRY(cuda_launch(k, d->finish, grid_to_add(&finish.partial_sums), &finish));
    return cuda_launch(k, d->rows, d->grid, &a);
}

static tu_status request_layer_gradient(tu__selection *s, const tu__node *node, layer_data *d, tu_dtype x,
                                        tu_dtype dy) {
    const char *type = cuda_type(x), *dy_type = cuda_type(dy), *parameter = parameter_type(s, node);
    TU_TRY(set_function(&d->sums, cuda_request(s, "norm", "layer_norm_sums<%s, %s, %s, %d>", type, dy_type,
                                               parameter, word_for(x, d->gradient.n))));
    TU_TRY(set_function(&d->finish, cuda_request(s, "norm", "layer_norm_finish<%s, %s>", type, parameter)));
    return set_function(&d->rows,
                        cuda_request(s, "norm", "layer_norm_gradient<%s, %s, %s>", type, dy_type, parameter));
}

tu_status cuda_lower_layer_norm_grad(tu__selection *s, const tu__node *node) {
    const tu__node *cast = widening_of(s, node);
    tu__edge dy = cast ? cast->inputs[0] : node->inputs[TU__NORM_DY];
    tu_type x = node->outputs[0];
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_layer_norm_gradient);
    layer_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    int64_t n = tu_shape_elements(tu__type_of(s, node->inputs[1])->shape),
            rows = tu_shape_elements(x.shape) / n;
    int lanes = cuda_row_lanes(n, tu_dtype_size(x.dtype));
    size_t element_bytes = cuda_is_wide(x.dtype) ? sizeof(double) : sizeof(float);
    d->grid = cuda_row_grid(rows, lanes);
    d->gradient = (layer_norm_gradient_args){.rows = rows, .n = n, .lanes = lanes};
    d->columns.tiling = tiling_for_sums(s, rows, n, word_for(x.dtype, n), RESIDENT);
    k->workspace_bytes = 2 * (size_t)d->columns.tiling.splits * (size_t)n * element_bytes;
    TU_TRY(request_layer_gradient(s, node, d, x.dtype, tu__type_of(s, dy)->dtype));
    cuda_kernel_set_costs(k, node);
    if (!cast) return cuda_kernel_add_operands(k, node, TU__NORM_DY);
    TU_TRY(fuse_cast(k, cast, "cast+layer_norm_grad", *tu__type_of(s, dy)));
    for (uint32_t i = 0; i < node->input_count; i++)
        TU_TRY(tu__kernel_read(k, i == TU__NORM_DY ? dy : node->inputs[i]));
    for (uint32_t i = 0; i < node->output_count; i++)
        TU_TRY(tu__kernel_write(k, (tu__edge){node->id, i}, i ? -1 : 0));
    return TU_OK;
}
