/* Lowering rule of matmul: cuBLASLt (gemm.c) for f32, f64, bf16 and f16, a handwritten kernel for integers, and another for
 * small layers of a stack (product.c).
 *
 * A product [..., m, k] x [k, n] whose left operand is not transposed is one product of all rows. For other batches
 * the longest axis of matrices at equal distances becomes the library's batch, and a loop of launches covers the
 * rest. A broadcast axis has distance 0.
 *
 * Following operations are fused as an epilogue if the library has a kernel for it; combinations are tried from
 * largest to none: bias, relu, and for bf16 and f16 the tanh form of GELU (the library's tanh is not accurate enough
 * for f32). Each element is then rounded once, at the end, instead of after each operation.
 *
 * In the backward pass the gradient of a relu, relu_grad(y, dX), and the gradient of the bias, its sum over rows,
 * are a separate pointwise kernel (pointwise.c). cuBLASLt could fuse both, given y > 0 as a bit mask, but those
 * products lose more time than the fusion saves: an mlp step became 7 to 50% slower, with 128 to 32,768 samples in
 * tf32 and bf16.
 *
 * In a stack, a product that computes the gradient of weights may also update them (product_update.c).
 */
#include "device/cuda/ops/gemm.h"
#include "device/cuda/ops/ops.h"
#include "device/cuda/ops/product.h"
#include "device/cuda/ops/product_update.h"
#include "device/kit/epilogue.h"

#include <stdio.h>
#include <string.h>

#include "device/cuda/kernels/gemm_args.h"

/* Element offsets of the matrices of one launch. */
typedef struct offsets {
    int64_t a, b, out;
} offsets;

typedef struct matmul_data {
    cuda_gemm gemm;
    cuda_gemm_plan *plan;          /* NULL: use `product` or `function` */
    cuda_product *product;         /* for stacks; or NULL */
    const cuda_function *function; /* of kernels/gemm.cu */
    int64_t launches;
    offsets *launch_offsets;
    bool bias;
} matmul_data;

static tu_type type_of(const tu__selection *s, tu__edge value) {
    return *tu__type_of(s, value);
}

/* ---- Running ---- */

static char *add_offset(void *address, int64_t elements, tu_dtype dtype) {
    return (char *)address + elements * (int64_t)tu_dtype_size(dtype);
}

static tu_status run_product(const tu__kernel *k) {
    const matmul_data *d = k->data;
    for (int64_t i = 0; i < d->launches; i++) {
        cuda_gemm_operands o = {.a = add_offset(k->in[0], d->launch_offsets[i].a, d->gemm.dtype),
                                .b = add_offset(k->in[1], d->launch_offsets[i].b, d->gemm.dtype),
                                .out = add_offset(k->out[0], d->launch_offsets[i].out, d->gemm.dtype),
                                .workspace = k->workspace};
        if (d->bias) o.bias = k->in[2];
        TU_TRY(d->product ? cuda_product_run(k, d->product, &o) : cuda_gemm_run(k, d->plan, &o));
    }
    return TU_OK;
}

static unsigned min_blocks(int64_t count, int64_t limit) {
    return (unsigned)(count < limit ? count : limit);
}

static tu_status run_kernel(const tu__kernel *k) {
    enum { TILE = 32, THREADS = 256, MAX_BLOCKS = 65535 /* along y and z */ };
    const matmul_data *d = k->data;
    const cuda_gemm *g = &d->gemm;
    matmul_args a = {.m = g->m,
                     .n = g->n,
                     .k = g->k,
                     .batch = g->batch,
                     .a_batch_stride = g->a_batch_stride,
                     .b_batch_stride = g->b_batch_stride};
    a.a_row_stride = g->transpose_a ? 1 : g->a_row_stride;
    a.a_column_stride = g->transpose_a ? g->a_row_stride : 1;
    a.b_row_stride = g->transpose_b ? 1 : g->b_row_stride;
    a.b_column_stride = g->transpose_b ? g->b_row_stride : 1;
    cuda_grid grid = {{(unsigned)((g->n + TILE - 1) / TILE), min_blocks((g->m + TILE - 1) / TILE, MAX_BLOCKS),
                       min_blocks(g->batch, MAX_BLOCKS)},
                      THREADS,
                      0};
    for (int64_t i = 0; i < d->launches; i++) {
        a.a = add_offset(k->in[0], d->launch_offsets[i].a, g->dtype);
        a.b = add_offset(k->in[1], d->launch_offsets[i].b, g->dtype);
        a.out = add_offset(k->out[0], d->launch_offsets[i].out, g->dtype);
        TU_TRY(cuda_launch(k, d->function, grid, &a));
    }
    return TU_OK;
}

static void release_matmul(void *data) {
    matmul_data *d = data;
    cuda_gemm_plan_free(d->plan);
}

/* ---- The batch ---- */

/* Axes of the batch, outermost first, with the distance between neighbours. */
typedef struct batch_axis {
    int64_t count;
    offsets step;
} batch_axis;

typedef struct batch_axes {
    int count;
    batch_axis axis[TU_MAX_RANK];
} batch_axes;

/* Returns the elements between neighbours along an axis of a result of rank `rank`; 0 if the operand is broadcast. */
static int64_t stride_along(tu_shape operand, int64_t rank, int64_t axis) {
    int64_t operand_axis = axis - (rank - operand.rank), step = 1;
    if (operand_axis < 0 || operand.dim[operand_axis] == 1) return 0;
    for (int64_t i = operand_axis + 1; i < operand.rank; i++) step *= operand.dim[i];
    return step;
}

/* Lists the batch axes. Axes of size 1 are dropped, and adjacent axes that can be walked as one are merged. */
static batch_axes axes_of(tu_shape a, tu_shape b, tu_shape out) {
    batch_axes list = {0};
    for (int64_t i = 0; i + 2 < out.rank; i++) {
        if (out.dim[i] == 1) continue;
        batch_axis axis = {
            out.dim[i],
            {stride_along(a, out.rank, i), stride_along(b, out.rank, i), stride_along(out, out.rank, i)}};
        batch_axis *last = list.count ? &list.axis[list.count - 1] : NULL;
        if (last && last->step.a == axis.step.a * axis.count && last->step.b == axis.step.b * axis.count) {
            last->count *= axis.count;
            last->step = axis.step;
        } else {
            list.axis[list.count++] = axis;
        }
    }
    return list;
}

/* Removes the longest axis from the list: one launch covers it. */
static batch_axis remove_longest(batch_axes *list) {
    if (list->count == 0) return (batch_axis){.count = 1};
    int longest = 0;
    for (int i = 1; i < list->count; i++)
        if (list->axis[i].count > list->axis[longest].count) longest = i;
    batch_axis removed = list->axis[longest];
    for (int i = longest; i + 1 < list->count; i++) list->axis[i] = list->axis[i + 1];
    list->count--;
    return removed;
}

static tu_status list_offsets(tu__selection *s, const batch_axes *axes, matmul_data *d) {
    d->launches = 1;
    for (int i = 0; i < axes->count; i++) d->launches *= axes->axis[i].count;
    d->launch_offsets = tu__arena_alloc(&s->arena, (size_t)d->launches * sizeof *d->launch_offsets);
    if (!d->launch_offsets) return TU_NO_MEMORY;
    for (int64_t launch = 0; launch < d->launches; launch++) {
        int64_t remaining = launch;
        offsets *o = &d->launch_offsets[launch];
        for (int i = axes->count - 1; i >= 0; i--) {
            int64_t index = remaining % axes->axis[i].count;
            remaining /= axes->axis[i].count;
            o->a += index * axes->axis[i].step.a;
            o->b += index * axes->axis[i].step.b;
            o->out += index * axes->axis[i].step.out;
        }
        d->gemm.offset_bytes |= (size_t)(o->a | o->b | o->out) * tu_dtype_size(d->gemm.dtype);
    }
    return TU_OK;
}

static tu_status describe_matmul(tu__selection *s, const tu__node *node, matmul_data *d) {
    const struct tu__matmul_attrs *attrs = tu__attrs(node, matmul);
    tu_shape a = type_of(s, node->inputs[0]).shape, b = type_of(s, node->inputs[1]).shape;
    tu_shape out = node->outputs[0].shape;
    cuda_gemm *g = &d->gemm;
    *g = (cuda_gemm){.transpose_a = attrs->transpose_a,
                     .transpose_b = attrs->transpose_b,
                     .dtype = node->outputs[0].dtype,
                     .tf32 = cuda_allows_tf32(s) && !attrs->exact,
                     .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    g->m = out.dim[out.rank - 2];
    g->n = g->out_row_stride = out.dim[out.rank - 1];
    g->k = a.dim[a.rank - (g->transpose_a ? 2 : 1)];
    g->a_row_stride = a.dim[a.rank - 1];
    g->b_row_stride = b.dim[b.rank - 1];
    bool one_b = tu_shape_elements(b) == g->k * g->n;
    batch_axes axes = {0};
    if (one_b && !g->transpose_a)
        g->m = tu_shape_elements(out) / g->n;
    else
        axes = axes_of(a, b, out);
    batch_axis batch = remove_longest(&axes);
    g->batch = batch.count;
    g->a_batch_stride = batch.step.a;
    g->b_batch_stride = batch.step.b;
    g->out_batch_stride = batch.step.out;
    return list_offsets(s, &axes, d);
}

/* ---- Epilogues ---- */

/* True if `bias` has a row of n numbers for each matrix of a batch, as stacked layers have: [batch, 1, n]. */
static bool is_bias_per_matrix(tu_shape bias, tu_shape out) {
    if (bias.rank != out.rank || bias.dim[bias.rank - 2] != 1) return false;
    for (int64_t i = 0; i < bias.rank; i++)
        if (i != bias.rank - 2 && bias.dim[i] != out.dim[i]) return false;
    return out.rank > 2;
}

static bool can_add_bias(tu__selection *s, tu__edge other, tu__edge value) {
    tu_type bias = type_of(s, other), out = type_of(s, value);
    int64_t n = out.shape.dim[out.shape.rank - 1];
    bool is_shared = tu_shape_elements(bias.shape) == n && bias.shape.rank >= 1 &&
                     bias.shape.rank <= out.shape.rank && bias.shape.dim[bias.shape.rank - 1] == n;
    return bias.dtype == out.dtype && (is_shared || is_bias_per_matrix(bias.shape, out.shape));
}

static const tu__epilogue_rules bias_rules = {tu__fusible_reader, can_add_bias};

/* One possible epilogue of a matmul. */
typedef struct epilogue {
    const char *name;
    cublasLtEpilogue_t epilogue;
    tu__edge result;            /* what the kernel stores */
    const tu__node *covered[2]; /* fused nodes; NULL if there are fewer */
    bool has_bias;
    tu__edge bias;
} epilogue;

/* Returns TU_UNSUPPORTED if the library has no kernel with this epilogue. */
static tu_status plan_epilogue(tu__selection *s, const epilogue *e, matmul_data *d) {
    cuda_gemm g = d->gemm;
    g.epilogue = e->epilogue;
    if (e->has_bias && tu_shape_elements(type_of(s, e->bias).shape) > g.n) {
        if (d->launches > 1 || tu_shape_elements(type_of(s, e->bias).shape) != g.batch * g.n)
            return TU_UNSUPPORTED;
        g.bias_batch_stride = g.n;
    }
    if (d->launches == 1) TU_TRY(cuda_product_new(s, &g, &d->product));
    return d->product ? TU_OK : cuda_gemm_plan_new(cuda_of(s), &g, &d->plan);
}

static const tu__node *find_gelu(tu__selection *s, tu__edge value) {
    const tu__node *reader = tu__fusible_reader(s, value);
    tu_dtype dtype = type_of(s, value).dtype;
    bool is_16_bit = dtype == TU_BF16 || dtype == TU_F16;
    return is_16_bit && reader && reader->op->code == TU__OP_GELU_TANH ? reader : NULL;
}

enum { MAX_EPILOGUES = 4 };

typedef struct epilogues {
    int count;
    epilogue list[MAX_EPILOGUES];
} epilogues;

/* Adds the epilogue of a matmul, its bias if it has one, and the following node `last`. `forms`: without and with a
 * bias. */
static void add_epilogue(epilogues *candidates, const tu__epilogue *e, const tu__node *last,
                         const char *const names[2], const cublasLtEpilogue_t forms[2]) {
    bool has_bias = e->add != NULL;
    candidates->list[candidates->count++] = (epilogue){.name = names[has_bias],
                                                       .epilogue = forms[has_bias],
                                                       .result = {last->id, 0},
                                                       .covered = {e->add, last != e->add ? last : NULL},
                                                       .has_bias = has_bias,
                                                       .bias = e->added};
}

/* Lists the possible epilogues, from the largest to none. */
static epilogues list_epilogues(tu__selection *s, const tu__node *node) {
    static const char *const relu_names[2] = {"matmul+relu (cuBLASLt)", "matmul+bias+relu (cuBLASLt)"};
    static const cublasLtEpilogue_t relus[2] = {CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS};
    static const char *const gelu_names[2] = {"matmul+gelu_tanh (cuBLASLt)",
                                              "matmul+bias+gelu_tanh (cuBLASLt)"};
    static const cublasLtEpilogue_t gelus[2] = {CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS};
    static const char *const bias_names[2] = {"", "matmul+bias (cuBLASLt)"};
    static const cublasLtEpilogue_t biases[2] = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS};
    epilogues candidates = {0};
    tu__epilogue e = tu__find_epilogue(s, node, &bias_rules);
    const tu__node *gelu = e.relu ? NULL : find_gelu(s, e.result);
    if (e.relu) add_epilogue(&candidates, &e, e.relu, relu_names, relus);
    if (gelu) add_epilogue(&candidates, &e, gelu, gelu_names, gelus);
    if (e.add) add_epilogue(&candidates, &e, e.add, bias_names, biases);
    candidates.list[candidates.count++] = (epilogue){
        .name = "matmul (cuBLASLt)", .epilogue = CUBLASLT_EPILOGUE_DEFAULT, .result = {node->id, 0}};
    return candidates;
}

/* Chooses the first epilogue that the library has a kernel for. If there is none, uses the handwritten kernel, without
 * epilogue. */
static tu_status choose_epilogue(tu__selection *s, const tu__node *node, matmul_data *d, epilogue *chosen) {
    epilogues candidates = list_epilogues(s, node);
    for (int i = 0; i < candidates.count; i++) {
        tu_status status = plan_epilogue(s, &candidates.list[i], d);
        if (status == TU_UNSUPPORTED) continue;
        *chosen = candidates.list[i];
        return status;
    }
    *chosen = (epilogue){.name = "matmul", .result = {node->id, 0}};
    d->function = cuda_request(s, "gemm", "matmul<%s>", cuda_type(d->gemm.dtype));
    return d->function ? TU_OK : TU_NO_MEMORY;
}

/* ---- Lowering ---- */

static tu_status fuse_node(tu__kernel *k, const tu__node *node) {
    if (!node) return TU_OK;
    tu__mark_done(k->owner, node);
    return tu__kernel_add_node(k, node);
}

/* Covers the fused nodes first: reading inputs may make the selection lower nodes that belong to this kernel. */
static tu_status add_operands(tu__kernel *k, const tu__node *node, const epilogue *e) {
    TU_TRY(fuse_node(k, e->covered[0]));
    TU_TRY(fuse_node(k, e->covered[1]));
    TU_TRY(tu__kernel_read(k, node->inputs[0]));
    TU_TRY(tu__kernel_read(k, node->inputs[1]));
    if (e->has_bias) {
        k->bytes_moved += (int64_t)tu_type_bytes(type_of(k->owner, e->bias));
        TU_TRY(tu__kernel_read(k, e->bias));
    }
    return tu__kernel_write(k, e->result, -1);
}

static void count_work(tu__kernel *k, const tu__node *node) {
    const tu_type in[2] = {type_of(k->owner, node->inputs[0]), type_of(k->owner, node->inputs[1])};
    k->flops = node->op->flops(node, in);
    k->bytes_moved = (int64_t)(tu_type_bytes(in[0]) + tu_type_bytes(in[1]) + tu_type_bytes(node->outputs[0]));
}

/* A product with an epilogue computes more than one node. */
tu_status cuda_fuse_into_product(tu__kernel *k, tu__cluster *c, tu__edge operand, bool *fused) {
    matmul_data *d = k->data;
    *fused = k->run == run_product && d->plan && k->node_count == 1 && d->launches == 1 &&
             cuda_product_update_fits(k->owner, &d->gemm, c);
    if (!*fused) return TU_OK;
    const cuda_gemm gemm = d->gemm;
    cuda_gemm_plan_free(d->plan);
    k->release = NULL;
    return cuda_product_update_plan(k, c, operand, &gemm);
}

/* Returns "matmul+bias (tf32)" for "matmul+bias (cuBLASLt)". */
static const char *name_of_own(tu__selection *s, const char *name) {
    char text[80];
    snprintf(text, sizeof text, "%.*s (tf32)", (int)strcspn(name, " "), name);
    return tu__arena_string(&s->arena, text);
}

tu_status cuda_lower_matmul(tu__selection *s, const tu__node *node) {
    matmul_data data = {0};
    epilogue e;
    TU_TRY(describe_matmul(s, node, &data));
    TU_TRY(choose_epilogue(s, node, &data, &e));
    const char *name = data.product ? name_of_own(s, e.name) : e.name;
    tu__kernel *k = name ? tu__kernel_new(s, node, name, data.function ? run_kernel : run_product) : NULL;
    matmul_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) {
        cuda_gemm_plan_free(data.plan);
        return TU_NO_MEMORY;
    }
    *d = data;
    d->bias = e.has_bias;
    k->release = release_matmul;
    k->workspace_bytes = d->plan ? cuda_gemm_workspace(d->plan) : 0;
    count_work(k, node);
    return add_operands(k, node, &e);
}
