/* Chooses and launches kernels that multiply and update: kernels/product.cuh with the program of a cluster.
 *
 * The update of weights by SGD with momentum reads the gradient, the weights and the momentum, and writes two of them: five
 * passes over memory, after one that wrote the gradient. For a layer of 512 x 784 in each of 16 networks that is 154 MB.
 * If only the update reads the gradient, the product that computes it can update instead of storing: four passes. With a few
 * hundred samples the product is bound by memory as well, so it costs nothing besides.
 *
 * This is used in stacks, where weights of all networks are one large value, with tf32. The library's product is faster in
 * computing than ours, which uses an older instruction (mma.sync), so a product with many samples is left to it.
 *
 * Used if TUTTI_UPDATE is "fused": results are compared with the reference on the emulated GPU, but neither they nor times have been
 * measured on a GPU yet.
 */
#include "device/cuda/ops/product_update.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "device/cuda/ops/pointwise.h"

#include "device/cuda/kernels/product_args.h"

enum {
    TILE = 128, /* rows and columns per block, as in kernels/product.cuh */
    THREADS = 256,
    SHARED = 3 * 2 * 32 * (TILE + 8) * 4, /* bytes: three stages of 32 rows of both operands */
    WORD = 4,                             /* elements of 16 bytes */
    MAX_DEPTH = 512,                      /* deeper products compute longer than they access memory */
    MIN_CAPABILITY = 80,
    MAX_ARGUMENTS = 4096
};

typedef struct update_data {
    cuda_subkernel subkernel;
    product_args product; /* without addresses */
    const cuda_function *function;
    cuda_grid grid;
} update_data;

static int64_t divide_up(int64_t n, int64_t d) {
    return (n + d - 1) / d;
}

/* ---- Choosing ---- */

/* Only on request, until the kernel has been measured on a GPU. */
static bool is_enabled(void) {
    const char *setting = getenv("TUTTI_UPDATE");
    return setting && strcmp(setting, "fused") == 0;
}

/* Both operands have rows along the depth, [k, m] and [k, n], at multiples of 16 bytes. */
static bool has_supported_layout(const cuda_gemm *g) {
    const int64_t sizes[] = {g->m,
                             g->n,
                             g->a_row_stride,
                             g->b_row_stride,
                             g->a_batch_stride,
                             g->b_batch_stride,
                             g->out_batch_stride};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] % WORD) return false;
    return g->transpose_a && !g->transpose_b && g->out_row_stride == g->n &&
           g->out_batch_stride == g->m * g->n && g->m < INT32_MAX / 2 && g->n < INT32_MAX / 2 &&
           g->batch <= UINT16_MAX && divide_up(g->m, TILE) <= UINT16_MAX;
}

/* All values that have the product's size are f32, so that packs have one word. */
static bool is_narrow(const tu__cluster *c) {
    for (uint32_t i = 0; i < c->member_count; i++) {
        if (c->stored[i] && c->members[i]->outputs[0].dtype != TU_F32) return false;
        for (uint32_t n = 0; n < c->members[i]->input_count; n++) {
            const tu_type *type = tu__type_of(c->s, c->members[i]->inputs[n]);
            if (type->dtype != TU_F32 && tu_shape_elements(type->shape) > 1) return false;
        }
    }
    return !c->wide && !c->sum_count;
}

static int64_t count_tiles(const cuda_gemm *g) {
    return g->batch * divide_up(g->m, TILE) * divide_up(g->n, TILE);
}

bool cuda_product_update_fits(const tu__selection *s, const cuda_gemm *g, const tu__cluster *c) {
    const cuda_device *device = cuda_of(s);
    bool is_supported = g->dtype == TU_F32 && g->tf32 && has_supported_layout(g) && is_narrow(c) &&
                        device->capability >= MIN_CAPABILITY && device->shared_bytes >= SHARED;
    bool is_faster =
        s->graph->members && g->k <= MAX_DEPTH && count_tiles(g) >= device->multiprocessors && is_enabled();
    return is_supported && is_faster;
}

/* ---- The source ---- */

static const cuda_function *request(tu__selection *s, const cuda_subkernel *subkernel) {
    tu__text text = {0};
    tu__text_printf(
        &text,
        "#include \"product.cuh\"\n#define K(n) ((C)(n))\n"
        "namespace program0 {\n%s}\n"
        "struct arguments { program0::subkernel p; product_args product; };\n"
        "struct update {\n"
        "    typedef program0::fetched fetched;\n"
        "    const program0::subkernel &p;\n"
        "    __device__ void prefetch(i64 i) const { program0::prefetch(p, (program0::I)i); }\n"
        "    __device__ void fetch(i64 i, fetched &f) const { program0::fetch(p, (program0::I)i, f); }\n"
        "    __device__ void run(i64 i, const fetched &f, const pack<f32, 4> &product) const {\n"
        "        program0::run(p, (program0::I)i, f, product);\n"
        "    }\n"
        "};\n"
        "extern \"C\" __global__ void __launch_bounds__(256, 2) fused(const __grid_constant__ arguments a) {\n"
        "    multiply_and_update(a.product, update{a.p});\n"
        "}\n",
        subkernel->body);
    const cuda_function *f = text.failed ? NULL : cuda_request_source(s, tu__text_string(&text), "fused");
    tu__text_free(&text);
    return f;
}

/* ---- Planning and running ---- */

static tu_status run_update(const tu__kernel *k) {
    const update_data *d = k->data;
    _Alignas(16) unsigned char arguments[MAX_ARGUMENTS];
    product_args product = d->product;
    product.a = k->in[0], product.b = k->in[1];
    size_t bytes = cuda_subkernel_size(&d->subkernel);
    memset(arguments, 0, bytes);
    cuda_write_arguments(k, &d->subkernel, arguments);
    memcpy(arguments + bytes, &product, sizeof product);
    return cuda_launch(k, d->function, d->grid, arguments);
}

tu_status cuda_product_update_plan(tu__kernel *k, tu__cluster *c, tu__edge product, const cuda_gemm *g) {
    update_data *d = tu__kernel_data(k, sizeof *d);
    if (!d) return TU_NO_MEMORY;
    k->run = run_update;
    k->workspace_bytes = 0;
    k->write_count = 0; /* the product is not stored */
    k->bytes_moved = 0; /* those of its reads and writes */
    k->flops += (int64_t)c->member_count * tu_shape_elements(c->space);
    TU_TRY(cuda_write_program(k, c, &product, &d->subkernel));
    if (d->subkernel.width != WORD || cuda_subkernel_size(&d->subkernel) + sizeof d->product > MAX_ARGUMENTS)
        return tu_fail(TU_INTERNAL, "the update of '%s' does not fit the kernel of a product",
                       c->s->graph->nodes[product.node]->name);
    d->product = (product_args){.a_row_stride = g->a_row_stride,
                                .b_row_stride = g->b_row_stride,
                                .a_batch_stride = g->a_batch_stride,
                                .b_batch_stride = g->b_batch_stride,
                                .m = (int)g->m,
                                .n = (int)g->n,
                                .k = (int)g->k};
    d->grid = (cuda_grid){
        .blocks = {(unsigned)divide_up(g->n, TILE), (unsigned)divide_up(g->m, TILE), (unsigned)g->batch},
        .threads = THREADS,
        .shared = SHARED};
    d->function = request(k->owner, &d->subkernel);
    return d->function ? TU_OK : TU_NO_MEMORY;
}
