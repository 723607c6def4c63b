/* The lowering rules of convolutions and matrix products of frozen graphs, in f32 and bf16.
 *
 * Their weights are constants with shared data, which are packed here, once (packed_weights.h); the kernels do not
 * read the constant itself. Bias, residual and relu are applied before a result is stored. The kernel is chosen by the
 * shapes of one sample, never by the number of samples or threads, and adds in an order that depends on neither, so
 * the bits of a sample's result do not depend on the samples that are computed with it (decision 43):
 *
 *     3x3 filters with stride 1, if there are some channels and pixels    Winograd's convolution (winograd.c)
 *     1x1 filters, and rows of few pixels                                 a product, with rows gathered from the
 *                                                                         image if necessary (packed_product.c)
 *     other filters                                                       direct convolution (conv_direct.c)
 *
 * Convolutions can compute some samples at a time (sample_groups.c).
 *
 * bf16: with AMX always by tiles (tile_product.c), otherwise always a product, with pairs of numbers. */
#include "device/cpu/frozen.h"

#include "device/cpu/chunks.h"
#include "device/cpu/epilogue.h"
#include "device/cpu/isa/instruction_sets.h"
#include "device/cpu/isa/kernels.h"
#include "device/cpu/packed_panels.h"
#include "device/cpu/packed_product.h"
#include "device/cpu/ranges.h"
#include "device/cpu/tile_product.h"
#include "device/cpu/winograd.h"

enum {
    MIN_PIXELS = 8,    /* of a row of y, for tiles of a direct convolution */
    MAX_DEPTH = 2304,  /* a panel with a larger k does not fit the L2 cache */
    MIN_GATHERED = 16, /* channels: below, gathering copies too few bytes at once */
};

typedef struct frozen_data {
    cpu_packed_weights *weights;
    cpu_direct *direct; /* one of these three is set, or `product` is used */
    cpu_winograd *winograd;
    cpu_tile_product *tiles;
    cpu_product product;
    cpu_convolution shape;
    const cpu_gemm_loops *loops;
    bool bias, residual, relu;
} frozen_data;

static tu_status run_frozen(const tu__kernel *k) {
    const frozen_data *d = k->data;
    const void *weights = cpu_packed_weights_data(d->weights), *bias = d->bias ? k->in[1] : NULL;
    const void *residual = d->residual ? k->in[d->bias ? 2 : 1] : NULL;
    if (d->direct || d->winograd || d->tiles) {
        cpu_direct_operands o = {.first = k->in[0],
                                 .second = weights,
                                 .bias = bias,
                                 .residual = residual,
                                 .out = k->out[0],
                                 .workspace = k->workspace,
                                 .relu = d->relu};
        if (d->direct)
            cpu_direct_run(d->direct, &o);
        else if (d->tiles)
            cpu_tile_product_run(d->tiles, &o);
        else
            cpu_winograd_run(d->winograd, &o);
        return TU_OK;
    }
    cpu_product_operands o = {.a = k->in[0],
                              .b = weights,
                              .bias = bias,
                              .residual = residual,
                              .c = k->out[0],
                              .workspace = k->workspace,
                              .relu = d->relu};
    cpu_product_run(&d->product, &o);
    return TU_OK;
}

static void release_frozen(void *data) {
    frozen_data *d = data;
    cpu_packed_weights_close(d->weights);
}

static size_t workspace_of(const frozen_data *d) {
    if (d->direct) return cpu_direct_workspace(d->direct);
    if (d->tiles) return cpu_tile_product_workspace(d->tiles);
    return d->winograd ? cpu_winograd_workspace(d->winograd) : cpu_product_workspace(&d->product);
}

/* Returns the shared data of a node's second input; NULL: it has none. */
static const tu__shared_data *weights_of(const tu__selection *s, const tu__node *node) {
    const tu__node *constant = s->graph->nodes[tu__root_of(s, node->inputs[1]).node];
    return constant->op->code == TU__OP_CONSTANT ? constant->shared : NULL;
}

/* True if the result may be stored where the residual is: if each of its elements is written once, after that of the
 * residual was read. (The residual may also be the input, other elements of which are read later.) */
static bool can_overwrite_residual(const tu__kernel *k) {
    const frozen_data *d = k->data;
    if (!d->residual || k->reads[0] == k->reads[k->read_count - 1]) return false;
    return d->winograd || d->tiles || (!d->direct && cpu_product_chunks(&d->product) == 1);
}

/* Adds the kernel: packs the weights, and adds the epilogue and the operands. */
static tu_status add_kernel(tu__selection *s, const tu__node *node, const cpu_packed_layout *layout,
                            const frozen_data *data, const char *const *names, tu__kernel **kernel) {
    tu__epilogue epilogue = tu__epilogue_with_residual_of(s, node);
    tu__kernel *k = *kernel = tu__kernel_new(s, node, tu__epilogue_name(&epilogue, names), run_frozen);
    frozen_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    *d = *data;
    d->bias = epilogue.add;
    d->residual = epilogue.add_residual;
    d->relu = epilogue.relu;
    TU_TRY(cpu_packed_weights_open(weights_of(s, node), layout, &d->weights));
    k->release = release_frozen;
    k->workspace_bytes = workspace_of(d);
    k->resident_bytes = cpu_packed_weights_bytes(d->weights);
    cpu_kernel_set_costs(k, s, node);
    TU_TRY(tu__kernel_read(k, node->inputs[0]));
    TU_TRY(tu__kernel_add_epilogue(k, &epilogue));
    return tu__kernel_write(k, epilogue.result, can_overwrite_residual(k) ? (int)k->read_count - 1 : -1);
}

/* ---- Convolutions ---- */

static bool is_pixel_by_pixel(const cpu_convolution *c) {
    return c->windows.size[0] * c->windows.size[1] == 1;
}

/* True if the rows of the product are the pixels of x themselves. */
static bool is_dense(const cpu_convolution *c) {
    return is_pixel_by_pixel(c) && c->x_size[0] == c->y_size[0] && c->x_size[1] == c->y_size[1] &&
           c->windows.stride[0] == 1 && c->windows.stride[1] == 1;
}

static bool prefers_product(const cpu_convolution *c) {
    if (c->groups > 1 || (c->x_channels < MIN_GATHERED && !is_dense(c))) return false;
    int64_t depth = c->windows.size[0] * c->windows.size[1] * c->x_channels;
    return is_pixel_by_pixel(c) || c->y_size[1] < MIN_PIXELS || depth > MAX_DEPTH;
}

static cpu_product product_of(const cpu_convolution *c, const cpu_gemm_loops *loops, const cpu_device *device,
                              int threads) {
    cpu_product p = {.loops = loops,
                     .round = device->loops->kernels->round,
                     .rows = c->images * c->y_size[0] * c->y_size[1],
                     .depth = c->windows.size[0] * c->windows.size[1] * c->x_channels,
                     .columns = c->y_channels,
                     .gathers = !is_dense(c) || (loops->pair && c->x_channels % 2),
                     .image = *c,
                     .threads = threads};
    cpu_product_plan(&p);
    return p;
}

/* Returns the loops for a type; NULL: there are none. */
static const cpu_gemm_loops *loops_of(const cpu_device *device, tu_dtype dtype) {
    const struct cpu_loops_gemm *loops = device->loops->gemm;
    if (dtype == TU_F32) return loops->f32;
    if (dtype != TU_BF16) return NULL;
    return loops->bf16_dot && cpu_loops_has_bf16_dot() ? loops->bf16_dot : loops->bf16;
}

/* Sets d->tiles if they can compute the bf16 convolution. */
static tu_status choose_tiles(tu__selection *s, const cpu_convolution *c, tu_dtype dtype, frozen_data *d) {
    const cpu_tiles *tiles = dtype == TU_BF16 ? cpu_tiles_for_this_machine() : NULL;
    if (!tiles) return TU_OK;
    const struct cpu_round_loops *round =
        cpu_isa_allows(CPU_AVX512_BF16) ? cpu_round_loops_avx512_bf16() : NULL;
    if (!round) round = cpu_of(s)->loops->kernels->round;
    return cpu_tile_product_new(&s->arena, tiles, round, c, cpu_of(s)->threads, &d->tiles);
}

/* Sets the kernel in `d`, for d->shape. Returns TU_UNSUPPORTED if there is none. */
static tu_status choose_convolution(tu__selection *s, int threads, frozen_data *d,
                                    cpu_packed_layout *layout) {
    const cpu_device *device = cpu_of(s);
    const cpu_convolution *c = &d->shape;
    const cpu_gemm_loops *loops = d->loops;
    int64_t depth = c->windows.size[0] * c->windows.size[1] * c->x_channels;
    *layout = cpu_panel_layout(loops, c->groups, depth, c->y_channels, 1, depth);
    if (loops->pair && c->groups > 1) return TU_UNSUPPORTED;
    if (!loops->pair && cpu_winograd_is_faster(c)) {
        TU_TRY(cpu_winograd_new(&s->arena, device->loops, c, threads, &d->winograd));
        *layout = cpu_winograd_layout(d->winograd);
        return TU_OK;
    }
    if (loops->pair || prefers_product(c)) {
        d->product = product_of(c, loops, device, threads);
        return TU_OK;
    }
    TU_TRY(cpu_direct_new(&s->arena, loops, c, CPU_CONV_Y, threads, &d->direct));
    if (!d->direct) return TU_UNSUPPORTED;
    cpu_direct_use_packed(d->direct);
    return TU_OK;
}

/* Plans the convolution anew for some of its images. All numbers have the same bits, since the kernel is the same. */
static tu_status divide_convolution(tu__kernel *k, int64_t images) {
    frozen_data *d = k->data;
    cpu_packed_layout same;
    d->shape.images = images;
    TU_TRY(choose_convolution(k->owner, 1, d, &same));
    k->workspace_bytes = workspace_of(d);
    return TU_OK;
}

/* Returns the fewest images of a block of work, for which the weights are read once. (A direct convolution reads them
 * once per image.) */
static int64_t block_images(const frozen_data *d) {
    if (d->direct) return 1;
    if (d->winograd) return cpu_winograd_block_images(d->winograd);
    return divide_up(cpu_product_block_rows(&d->product), d->shape.y_size[0] * d->shape.y_size[1]);
}

static tu__kernel_samples samples_of(const tu__kernel *k) {
    const frozen_data *d = k->data;
    uint32_t residual = d->residual ? 1u << (k->read_count - 1) : 0;
    return (tu__kernel_samples){.count = d->shape.images,
                                .least = block_images(d),
                                .reads = 1 | residual,
                                .divide = divide_convolution};
}

tu_status cpu_lower_frozen_conv2d(tu__selection *s, const tu__node *node, const cpu_convolution *c) {
    static const char *const names[8] = TU__EPILOGUE_NAMES_WITH_RESIDUAL("conv2d");
    static const char *const winograd_names[8] = TU__EPILOGUE_NAMES_WITH_RESIDUAL("winograd");
    const cpu_gemm_loops *loops = loops_of(cpu_of(s), node->outputs[0].dtype);
    if (!loops || !weights_of(s, node)) return TU_UNSUPPORTED;
    frozen_data data = {.shape = *c, .loops = loops};
    cpu_packed_layout layout;
    tu__kernel *k;
    TU_TRY(choose_tiles(s, c, node->outputs[0].dtype, &data));
    if (data.tiles)
        layout = *cpu_tile_product_layout(data.tiles);
    else
        TU_TRY(choose_convolution(s, cpu_of(s)->threads, &data, &layout));
    TU_TRY(add_kernel(s, node, &layout, &data, data.winograd ? winograd_names : names, &k));
    if (!data.tiles) k->samples = samples_of(k);
    return TU_OK;
}

/* ---- Matrix products ---- */

tu_status cpu_lower_frozen_matmul(tu__selection *s, const tu__node *node) {
    static const char *const names[8] = TU__EPILOGUE_NAMES_WITH_RESIDUAL("matmul");
    const struct tu__matmul_attrs *attrs = tu__attrs(node, matmul);
    tu_shape a = cpu_input_type(s, node, 0).shape, b = cpu_input_type(s, node, 1).shape;
    const cpu_gemm_loops *loops = loops_of(cpu_of(s), node->outputs[0].dtype);
    if (!loops || attrs->transpose_a || b.rank != 2 || !weights_of(s, node)) return TU_UNSUPPORTED;
    int64_t depth = a.dim[a.rank - 1], columns = b.dim[attrs->transpose_b ? 0 : 1];
    const cpu_convolution rows = {.windows = {.size = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}},
                                  .images = tu_shape_elements(a) / depth,
                                  .x_size = {1, 1},
                                  .y_size = {1, 1},
                                  .groups = 1,
                                  .x_channels = depth,
                                  .y_channels = columns};
    const int64_t depth_step = attrs->transpose_b ? 1 : columns, column_step = attrs->transpose_b ? depth : 1;
    cpu_packed_layout layout = cpu_panel_layout(loops, 1, depth, columns, depth_step, column_step);
    frozen_data data = {0};
    TU_TRY(choose_tiles(s, &rows, node->outputs[0].dtype, &data));
    if (data.tiles) {
        cpu_tile_product_set_order(data.tiles, depth_step, column_step);
        layout = *cpu_tile_product_layout(data.tiles);
    } else
        data.product = product_of(&rows, loops, cpu_of(s), cpu_of(s)->threads);
    tu__kernel *k;
    return add_kernel(s, node, &layout, &data, names, &k);
}
