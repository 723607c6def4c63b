/* Sums values of the ranks of a collective: logical devices of one GPU, or GPUs with peer access. Chooses which
 * address ranges go into which launch, for one rank's share or for all shares. Shares are divided as on the host
 * (src/device/rank_share.c); kernels/combine.cu does the additions.
 *
 * Addresses are passed as the kernel's argument, so nothing is uploaded and a launch can be captured. If the
 * addresses of a bucket with many values do not fit into one argument, several launches are used.
 */
#include "device/cuda/runtime/combine.h"

#include <stdio.h>

#include "device/rank_share.h"

#include "device/cuda/kernels/combine_args.h"

/* Returns the device's table entry for the kernel of an element type and a number of ranks; NULL if the type is not
 * supported. */
static CUfunction *place_of(cuda_device *device, const tu_combination *what) {
    static const int row[TU_DTYPE_COUNT] = {[TU_F32] = 1, [TU_F64] = 2, [TU_BF16] = 3, [TU_F16] = 4};
    if (!row[what->dtype]) return NULL;
    return &device->combine[row[what->dtype] - 1][what->ranks <= COMBINE_RANKS ? what->ranks : 0];
}

tu_status cuda_combine_prepare(cuda_device *device, const tu_combination *what) {
    CUfunction *place = place_of(device, what);
    if (!place || what->ranks < 1 || what->ranks > COMBINE_MAX_RANKS)
        return tu_fail(TU_UNSUPPORTED,
                       "%s: cannot sum %u ranks of %s: expected up to %d ranks of f32, f64, bf16 or f16",
                       device->name, what->ranks, tu_dtype_name(what->dtype), COMBINE_MAX_RANKS);
    if (*place) return TU_OK;
    char expression[32];
    const char *type = cuda_type(what->dtype);
    if (what->ranks <= COMBINE_RANKS)
        snprintf(expression, sizeof expression, "combine<%s, %u>", type, what->ranks);
    else
        snprintf(expression, sizeof expression, "combine_many<%s>", type);
    cuda_function wanted = {.unit = "combine", .expression = expression};
    TU_TRY(cuda_compile(device, &wanted));
    *place = wanted.handle;
    return TU_OK;
}

static unsigned blocks_of(tu_dtype dtype, size_t count) {
    size_t elements = (size_t)COMBINE_THREADS * COMBINE_WORDS * 16 / tu_dtype_size(dtype);
    return (unsigned)((count + elements - 1) / elements);
}

static void add_piece(combine_args *a, const tu_combination *what, const tu__rank_share_range *range) {
    const tu_combine_segment *s = &what->segments[range->segment];
    size_t offset = range->first * tu_dtype_size(what->dtype);
    void **in = a->pointers + (size_t)a->pieces * 2 * what->ranks, **out = in + what->ranks;
    for (uint32_t r = 0; r < what->ranks; r++) {
        in[r] = cuda_pointer(cuda_address(s->in[r]) + offset);
        out[r] = (char *)s->out[r] + offset;
    }
    a->count[a->pieces] = (long long)range->count;
    a->first_block[a->pieces + 1] = a->first_block[a->pieces] + blocks_of(what->dtype, range->count);
    a->pieces++;
}

static tu_status launch(CUstream stream, CUfunction function, combine_args *a) {
    void *parameters[] = {a};
    unsigned blocks = a->first_block[a->pieces];
    a->pieces = 0;
    if (blocks)
        CUDA_TRY(cuLaunchKernel, function, blocks, 1, 1, COMBINE_THREADS, 1, 1, 0, stream, parameters, NULL);
    return TU_OK;
}

/* Sums `lines` cache lines, from the first line of the share of rank `combination->rank`. */
static tu_status combine_lines(cuda_device *device, const tu_combination *what, size_t lines,
                               CUstream stream) {
    enum { MAX_ELEMENTS = 1 << 30 }; /* elements per range: blocks are counted in 32 bits */
    TU_TRY(cuda_combine_prepare(device, what));
    int fit = COMBINE_POINTERS / (2 * (int)what->ranks);
    if (fit > COMBINE_PIECES) fit = COMBINE_PIECES;
    combine_args a = {.ranks = (int)what->ranks};
    tu__rank_share_range piece;
    tu__rank_share_walk walk = tu__rank_share_walk_begin(what, 0, lines);
    while (tu__rank_share_walk_next(&walk, MAX_ELEMENTS, &piece)) {
        add_piece(&a, what, &piece);
        if (a.pieces == fit) TU_TRY(launch(stream, *place_of(device, what), &a));
    }
    return launch(stream, *place_of(device, what), &a);
}

tu_status cuda_combine(cuda_device *device, const tu_combination *what, CUstream stream) {
    return combine_lines(device, what, tu__rank_share_lines(what), stream);
}

tu_status cuda_combine_all(cuda_device *device, const tu_combination *what, CUstream stream) {
    tu_combination part = *what;
    size_t lines = 0;
    for (part.rank = 0; part.rank < part.ranks; part.rank++) lines += tu__rank_share_lines(&part);
    part.rank = 0;
    return combine_lines(device, &part, lines, stream);
}
