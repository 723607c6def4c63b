/* Chooses and launches kernels/product.cu: products of a stack in tf32 that are too small for a library.
 *
 * A layer of 512 units of 16 networks, with 128 samples each, has 64 tiles of 128 x 128 results, the library's size: half of a
 * large GPU's multiprocessors are idle. Ours has half of the tile. With more results the library is faster, since it uses an
 * instruction that ours does not (wgmma). For a last layer of 10 classes it takes 9 us, most of which is latency.
 *
 * Used if TUTTI_PRODUCTS is "own": results are compared with the reference on the emulated GPU, but neither they nor times have been
 * measured on a GPU yet.
 */
#include "device/cuda/ops/product.h"

#include <stdlib.h>
#include <string.h>

#include "device/cuda/kernels/product_args.h"

enum {
    ROWS = 128, /* of a tile, as in kernels/product.cu */
    COLUMNS = 64,
    DEPTH = 32,
    STAGES = 4,
    LIBRARY_TILE = 128,
    THREADS = 256,
    SHARED = STAGES * (ROWS + COLUMNS) * (DEPTH + 4) * 4,
    WORD = 4,              /* elements of 16 bytes */
    MAX_SHORT_DEPTH = 512, /* of a last layer: a block takes a few microseconds */
    MIN_CAPABILITY = 80
};

/* A tile of b has as many words in either layout. */
_Static_assert(COLUMNS *(DEPTH + 4) == DEPTH * (COLUMNS + 8), "the shared memory of both layouts of b");

struct cuda_product {
    product_result_args args; /* without addresses */
    const cuda_function *function;
    cuda_grid grid;
};

static int64_t divide_up(int64_t n, int64_t d) {
    return (n + d - 1) / d;
}

/* Only on request, until the kernel has been measured on a GPU. */
static bool is_enabled(void) {
    const char *setting = getenv("TUTTI_PRODUCTS");
    return setting && strcmp(setting, "own") == 0;
}

static bool has_supported_epilogue(const cuda_gemm *g) {
    return !g->subtract && !g->residual &&
           (g->epilogue == CUBLASLT_EPILOGUE_DEFAULT || g->epilogue == CUBLASLT_EPILOGUE_BIAS ||
            g->epilogue == CUBLASLT_EPILOGUE_RELU || g->epilogue == CUBLASLT_EPILOGUE_RELU_BIAS);
}

/* Rows along the contiguous axis of both operands are words at multiples of 16 bytes. */
static bool has_supported_layout(const cuda_gemm *g) {
    const int64_t sizes[] = {g->k,
                             g->transpose_b ? g->k : g->n,
                             g->a_row_stride,
                             g->b_row_stride,
                             g->a_batch_stride,
                             g->b_batch_stride};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] % WORD) return false;
    return !g->transpose_a && g->n % 2 == 0 && g->out_row_stride == g->n &&
           g->out_batch_stride == g->m * g->n && !g->offset_bytes && g->m < INT32_MAX / 2 &&
           g->n < INT32_MAX / 2 && g->k < INT32_MAX / 2;
}

static int64_t count_tiles(const cuda_gemm *g, int64_t rows, int64_t columns) {
    return g->batch * divide_up(g->m, rows) * divide_up(g->n, columns);
}

/* True if the library's tiles do not fill the GPU, and ours fill at least half of it or are few and short: last layers. */
static bool is_faster(const tu__selection *s, const cuda_gemm *g) {
    int64_t multiprocessors = cuda_of(s)->multiprocessors;
    bool is_last_layer = g->n <= COLUMNS && g->k <= MAX_SHORT_DEPTH;
    return s->graph->members > 1 && g->batch == s->graph->members &&
           count_tiles(g, LIBRARY_TILE, LIBRARY_TILE) < multiprocessors &&
           (2 * count_tiles(g, ROWS, COLUMNS) >= multiprocessors || is_last_layer) && is_enabled();
}

tu_status cuda_product_new(tu__selection *s, const cuda_gemm *g, cuda_product **created) {
    const cuda_device *device = cuda_of(s);
    *created = NULL;
    if (g->dtype != TU_F32 || !g->tf32 || !has_supported_epilogue(g) || !has_supported_layout(g) ||
        !is_faster(s, g) || device->capability < MIN_CAPABILITY || device->shared_bytes < SHARED ||
        device->tune)
        return TU_OK;
    cuda_product *p = tu__arena_alloc(&s->arena, sizeof *p);
    if (!p) return TU_NO_MEMORY;
    p->args = (product_result_args){.product = {.a_row_stride = g->a_row_stride,
                                                .b_row_stride = g->b_row_stride,
                                                .a_batch_stride = g->a_batch_stride,
                                                .b_batch_stride = g->b_batch_stride,
                                                .m = (int)g->m,
                                                .n = (int)g->n,
                                                .k = (int)g->k},
                                    .bias_batch_stride = g->bias_batch_stride,
                                    .relu = g->epilogue == CUBLASLT_EPILOGUE_RELU ||
                                            g->epilogue == CUBLASLT_EPILOGUE_RELU_BIAS};
    p->grid = (cuda_grid){
        .blocks = {(unsigned)divide_up(g->n, COLUMNS), (unsigned)divide_up(g->m, ROWS), (unsigned)g->batch},
        .threads = THREADS,
        .shared = SHARED};
    p->function = cuda_request(s, "product", "product<%s>", g->transpose_b ? "false" : "true");
    *created = p;
    return p->function ? TU_OK : TU_NO_MEMORY;
}

tu_status cuda_product_run(const tu__kernel *k, const cuda_product *p, const cuda_gemm_operands *o) {
    product_result_args a = p->args;
    a.product.a = o->a, a.product.b = o->b;
    a.y = o->out, a.bias = o->bias;
    return cuda_launch(k, p->function, p->grid, &a);
}
