/* The lowering rule of matrix products: f32 and f64 by gemm.c; bf16 by oneDNN (dnnl.c), or in f32 if oneDNN is wrong
 * (widened.h); integers by the reference kernel.
 *
 * In f32 oneDNN is as fast, within 5% for all but the smallest matrices (bench_products compares both), but needs a
 * second pass over the result, and a second parallel region, for bias and ReLU.
 *
 * A matmul [..., m, k] x [k, n] whose left side is not transposed is computed as one matmul of all rows. Any other
 * batch is a list of matrix offsets, so broadcasting costs nothing. */
#include "device/cpu/cpu.h"
#include "device/cpu/dnnl_bugs.h"
#include "device/cpu/epilogue.h"
#include "device/cpu/frozen.h"
#include "device/cpu/gemm.h"
#include "device/cpu/isa/loops.h"
#include "device/cpu/ranges.h"
#include "device/cpu/widened.h"
#include "graph/walk.h"

typedef struct matmul_data {
    cpu_gemm gemm;
    cpu_dnnl *dnnl;      /* NULL: use `gemm` */
    cpu_widened widened; /* if `gemm` computes a bf16 matmul in f32 */
    bool widens, bias, relu;
    tu_type type; /* of the result */
} matmul_data;

static void run_widened(const matmul_data *d, const cpu_direct_operands *narrow) {
    cpu_direct_operands wide;
    cpu_widen(&d->widened, narrow, &wide);
    cpu_gemm_operands o = {.a = wide.first, .b = wide.second, .c = wide.out, .workspace = wide.workspace};
    cpu_gemm_run(&d->gemm, &o);
    cpu_narrow(&d->widened, &wide, narrow);
}

static tu_status run_matmul(const tu__kernel *k) {
    const matmul_data *d = k->data;
    const void *bias = d->bias ? k->in[2] : NULL;
    if (d->dnnl || d->widens) {
        cpu_direct_operands o = {
            .first = k->in[0], .second = k->in[1], .out = k->out[0], .workspace = k->workspace};
        if (d->widens) run_widened(d, &o);
        if (d->dnnl) TU_TRY(cpu_dnnl_run(d->dnnl, &o));
        cpu_apply_epilogue(k->device, d->type, k->out[0], bias, d->relu);
        return TU_OK;
    }
    cpu_gemm_operands o = {k->in[0], k->in[1], bias, k->out[0], k->workspace, d->relu};
    cpu_gemm_run(&d->gemm, &o);
    return TU_OK;
}

static void release_matmul(void *data) {
    matmul_data *d = data;
    cpu_dnnl_free(d->dnnl);
}

static tu_shape batch_of(tu_shape shape) {
    return tu_shape_of((size_t)(shape.rank - 2), shape.dim);
}

/* Lists the offsets of the matrices of both operands. */
static tu_status list_batch(tu__selection *s, tu_shape batch, tu_shape a, tu_shape b, cpu_gemm *g) {
    int64_t count = tu_shape_elements(batch), a_strides[TU_MAX_RANK], b_strides[TU_MAX_RANK];
    int64_t *offsets = tu__arena_alloc(&s->arena, 2 * (size_t)count * sizeof *offsets);
    if (!offsets) return TU_NO_MEMORY;
    tu__broadcast_strides(batch_of(a), batch, a_strides);
    tu__broadcast_strides(batch_of(b), batch, b_strides);
    tu__walk walk = tu__walk_begin(batch, 2, (const int64_t *[]){a_strides, b_strides});
    int64_t i = 0;
    do {
        offsets[i] = walk.offset[0] * g->m * g->k;
        offsets[count + i++] = walk.offset[1] * g->k * g->n;
    } while (tu__walk_next(&walk));
    g->batch = count;
    g->a_offsets = offsets;
    g->b_offsets = offsets + count;
    return TU_OK;
}

static tu_status plan_gemm(tu__selection *s, const tu__node *node, cpu_gemm *g) {
    const struct tu__matmul_attrs *attrs = tu__attrs(node, matmul);
    tu_shape a = cpu_input_type(s, node, 0).shape, b = cpu_input_type(s, node, 1).shape;
    tu_shape out = node->outputs[0].shape;
    *g = (cpu_gemm){
        .transpose_a = attrs->transpose_a, .transpose_b = attrs->transpose_b, .threads = cpu_of(s)->threads};
    g->m = out.dim[out.rank - 2];
    g->n = out.dim[out.rank - 1];
    g->k = a.dim[a.rank - (g->transpose_a ? 2 : 1)];
    bool is_one_matmul = b.rank == 2 && !g->transpose_a;
    if (is_one_matmul) g->m = tu_shape_elements(out) / g->n;
    return list_batch(s, is_one_matmul ? TU_SCALAR : batch_of(out), is_one_matmul ? tu_shape_of(2, a.dim) : a,
                      b, g);
}

/* True if the matrices are equally spaced, or there is only one: then strides can describe them to oneDNN. */
static bool has_constant_stride(const int64_t *offsets, int64_t count, int64_t *step) {
    *step = count > 1 ? offsets[1] - offsets[0] : 0;
    for (int64_t i = 1; i < count; i++)
        if (offsets[i] - offsets[i - 1] != *step) return false;
    return true;
}

static tu_status try_dnnl(const cpu_gemm *g, tu_dtype dtype, cpu_dnnl **op) {
    cpu_dnnl_product p = {.batch = g->batch, .m = g->m, .n = g->n, .k = g->k, .dtype = dtype};
    int64_t a_step, b_step;
    if (!has_constant_stride(g->a_offsets, g->batch, &a_step) ||
        !has_constant_stride(g->b_offsets, g->batch, &b_step))
        return TU_OK;
    p.a_strides[0] = a_step;
    p.a_strides[1] = g->transpose_a ? 1 : g->k;
    p.a_strides[2] = g->transpose_a ? g->m : 1;
    p.b_strides[0] = b_step;
    p.b_strides[1] = g->transpose_b ? 1 : g->n;
    p.b_strides[2] = g->transpose_b ? g->k : 1;
    return cpu_dnnl_matmul_bug(&p) ? TU_OK : cpu_dnnl_matmul(&p, g->threads, op);
}

static tu_status choose_implementation(tu__selection *s, const tu__node *node, matmul_data *d) {
    tu_dtype dtype = d->type.dtype;
    const struct cpu_loops_gemm *loops = cpu_of(s)->loops->gemm;
    if (dtype == TU_BF16) {
        /* oneDNN blocks its sums by the batch size, which a model's bits must not depend on (decision 43). */
        if (!s->graph->is_frozen) TU_TRY(try_dnnl(&d->gemm, dtype, &d->dnnl));
        if (d->dnnl) return TU_OK;
        d->widens = true;
        d->widened = (cpu_widened){tu_shape_elements(cpu_input_type(s, node, 0).shape),
                                   tu_shape_elements(cpu_input_type(s, node, 1).shape),
                                   tu_shape_elements(d->type.shape), cpu_of(s)->loops};
    }
    d->gemm.loops = dtype == TU_F64 ? loops->f64 : loops->f32;
    cpu_gemm_plan(&d->gemm);
    return TU_OK;
}

tu_status cpu_lower_matmul(tu__selection *s, const tu__node *node) {
    static const char *const names[4] = TU__EPILOGUE_NAMES("matmul");
    tu_dtype dtype = node->outputs[0].dtype;
    tu_status status = cpu_lower_frozen_matmul(s, node);
    if (status != TU_UNSUPPORTED) return status;
    if (dtype != TU_F32 && dtype != TU_F64 && dtype != TU_BF16) return TU_UNSUPPORTED;
    tu__epilogue epilogue = tu__epilogue_of(s, node);
    matmul_data data = {.bias = epilogue.add, .relu = epilogue.relu, .type = node->outputs[0]};
    TU_TRY(plan_gemm(s, node, &data.gemm));
    TU_TRY(choose_implementation(s, node, &data));
    tu__kernel *k = tu__kernel_new(s, node, tu__epilogue_name(&epilogue, names), run_matmul);
    matmul_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) {
        cpu_dnnl_free(data.dnnl);
        return TU_NO_MEMORY;
    }
    *d = data;
    k->release = release_matmul;
    k->workspace_bytes = d->dnnl ? cpu_dnnl_workspace(d->dnnl) : cpu_gemm_workspace(&d->gemm);
    if (d->widens) k->workspace_bytes += cpu_widened_workspace(&d->widened);
    return cpu_kernel_add_epilogue_operands(k, s, node, &epilogue);
}
