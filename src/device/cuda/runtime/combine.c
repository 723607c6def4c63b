/* Sums values of the ranks of a collective: logical devices of one GPU, or GPUs with peer access. Chooses which
 * address ranges go into which launch, for one rank's slice or for all slices. Slices are computed as on the host
 * (src/device/kit/rank_slice.c); kernels/combine.cu does the additions.
 *
 * Addresses are passed as the kernel's argument, so nothing is uploaded and a launch can be captured. If the
 * addresses of a bucket with many values do not fit into one argument, several launches are used.
 */
#include "device/cuda/runtime/combine.h"

#include <stdio.h>

#include "device/kit/rank_slice.h"

#include "device/cuda/kernels/combine_args.h"

/* Returns the device's table entry for the kernel of an element type and a number of ranks; NULL if the type is not
 * supported. */
static CUfunction *kernel_slot(cuda_device *device, const tu_combination *combination) {
    static const int row[TU_DTYPE_COUNT] = {[TU_F32] = 1, [TU_F64] = 2, [TU_BF16] = 3, [TU_F16] = 4};
    if (!row[combination->dtype]) return NULL;
    return &device->combine[row[combination->dtype] - 1]
                           [combination->ranks <= COMBINE_RANKS ? combination->ranks : 0];
}

tu_status cuda_combine_prepare(cuda_device *device, const tu_combination *combination) {
    CUfunction *slot = kernel_slot(device, combination);
    if (!slot || combination->ranks < 1 || combination->ranks > COMBINE_MAX_RANKS)
        return tu_fail(
            TU_UNSUPPORTED,
            "%s: cannot all-reduce %s over %u ranks: expected f32, f64, bf16 or f16, and at most %d ranks",
            device->name, tu_dtype_name(combination->dtype), combination->ranks, COMBINE_MAX_RANKS);
    if (__atomic_load_n(slot, __ATOMIC_ACQUIRE)) return TU_OK; /* another queue may store it */
    char expression[32];
    const char *type = cuda_type(combination->dtype);
    if (combination->ranks <= COMBINE_RANKS)
        snprintf(expression, sizeof expression, "combine<%s, %u>", type, combination->ranks);
    else
        snprintf(expression, sizeof expression, "combine_generic<%s>", type);
    cuda_function function = {.unit = "combine", .expression = expression};
    TU_TRY(cuda_compile(device, &function));
    __atomic_store_n(slot, function.handle, __ATOMIC_RELEASE);
    return TU_OK;
}

static unsigned count_blocks(tu_dtype dtype, size_t count) {
    size_t elements = (size_t)COMBINE_THREADS * COMBINE_WORDS * 16 / tu_dtype_size(dtype);
    return (unsigned)((count + elements - 1) / elements);
}

static void append_range(combine_args *a, const tu_combination *combination,
                         const tu__rank_slice_range *range) {
    const tu_combine_segment *s = &combination->segments[range->segment];
    size_t offset = range->first * tu_dtype_size(combination->dtype);
    void **in = a->pointers + (size_t)a->ranges * 2 * combination->ranks, **out = in + combination->ranks;
    for (uint32_t r = 0; r < combination->ranks; r++) {
        in[r] = cuda_pointer(cuda_address(s->in[r]) + offset);
        out[r] = (char *)s->out[r] + offset;
    }
    a->count[a->ranges] = (long long)range->count;
    a->first_block[a->ranges + 1] =
        a->first_block[a->ranges] + count_blocks(combination->dtype, range->count);
    a->ranges++;
}

static tu_status launch(CUstream stream, CUfunction function, combine_args *a) {
    void *parameters[] = {a};
    unsigned blocks = a->first_block[a->ranges];
    a->ranges = 0;
    if (blocks)
        CUDA_TRY(cuLaunchKernel, function, blocks, 1, 1, COMBINE_THREADS, 1, 1, 0, stream, parameters, NULL);
    return TU_OK;
}

/* Sums `lines` cache lines, from the first line of the slice of rank `combination->rank`. */
static tu_status combine_lines(cuda_device *device, const tu_combination *combination, size_t lines,
                               CUstream stream) {
    enum { MAX_ELEMENTS = 1 << 30 }; /* elements per range: blocks are counted in 32 bits */
    TU_TRY(cuda_combine_prepare(device, combination));
    CUfunction function = __atomic_load_n(kernel_slot(device, combination), __ATOMIC_ACQUIRE);
    int max_ranges = COMBINE_POINTERS / (2 * (int)combination->ranks);
    if (max_ranges > COMBINE_RANGES) max_ranges = COMBINE_RANGES;
    combine_args a = {.ranks = (int)combination->ranks};
    tu__rank_slice_range range;
    tu__rank_slice_iterator iterator = tu__rank_slice_begin(combination, 0, lines);
    while (tu__rank_slice_next(&iterator, MAX_ELEMENTS, &range)) {
        append_range(&a, combination, &range);
        if (a.ranges == max_ranges) TU_TRY(launch(stream, function, &a));
    }
    return launch(stream, function, &a);
}

tu_status cuda_combine(cuda_device *device, const tu_combination *combination, CUstream stream) {
    return combine_lines(device, combination, tu__rank_slice_lines(combination), stream);
}

tu_status cuda_combine_all(cuda_device *device, const tu_combination *combination, CUstream stream) {
    tu_combination all_slices = *combination;
    size_t lines = 0;
    for (all_slices.rank = 0; all_slices.rank < all_slices.ranks; all_slices.rank++)
        lines += tu__rank_slice_lines(&all_slices);
    all_slices.rank = 0;
    return combine_lines(device, &all_slices, lines, stream);
}
