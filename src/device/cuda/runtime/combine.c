/* Adds or copies values of the ranks of a collective: logical devices of one GPU, or GPUs with peer access. Chooses
 * which address ranges go into which launch, for the combinations of one rank or of all ranks. kernels/combine.cu does
 * the additions.
 *
 * Addresses are passed as the kernel's argument, so nothing is uploaded and a launch can be captured. If the
 * addresses of a bucket with many values do not fit into one argument, several launches are used. A range that
 * continues the one before it in all inputs and outputs is merged with it: if all ranks are on one GPU, their slices of
 * an all-reduce become whole values again.
 */
#include "device/cuda/runtime/combine.h"

#include <stdio.h>

#include "device/cuda/kernels/combine_args.h"

/* ---- Kernels ---- */

static bool is_sum(const tu_combination *c) {
    return c->in_count > 1;
}

/* True if the kernel that reads and writes words of 16 bytes can combine a segment. */
static bool fits_words(const tu_combination *c, const tu_combine_segment *s) {
    uintptr_t bits = 0;
    for (uint32_t k = 0; k < c->in_count; k++) bits |= (uintptr_t)s->in[k];
    for (uint32_t k = 0; k < c->out_count; k++) bits |= (uintptr_t)s->out[k];
    return c->in_count <= COMBINE_INPUTS && bits % 16 == 0;
}

/* Returns the device's table entry for a kernel: by number of inputs; 0: any number, element by element; the last
 * one: a copy element by element. */
static CUfunction *kernel_slot(cuda_device *device, const tu_combination *c, bool words) {
    return &device->combine[c->dtype][words ? c->in_count : is_sum(c) ? 0 : COMBINE_INPUTS + 1];
}

static tu_status compile_kernel(cuda_device *device, const tu_combination *c, bool words) {
    CUfunction *slot = kernel_slot(device, c, words);
    if (__atomic_load_n(slot, __ATOMIC_ACQUIRE)) return TU_OK; /* another queue may store it */
    char expression[40];
    if (words)
        snprintf(expression, sizeof expression, "combine<%s, %u>", cuda_type(c->dtype), c->in_count);
    else
        snprintf(expression, sizeof expression, "combine_generic<%s, %s>", cuda_type(c->dtype),
                 is_sum(c) ? "true" : "false");
    cuda_function function = {.unit = "combine", .expression = expression};
    TU_TRY(cuda_compile(device, &function));
    __atomic_store_n(slot, function.handle, __ATOMIC_RELEASE);
    return TU_OK;
}

tu_status cuda_combine_prepare(cuda_device *device, const tu_combination *c) {
    if (c->in_count < 1 || c->in_count > COMBINE_MAX_INPUTS || c->out_count > COMBINE_MAX_INPUTS)
        return tu_fail(TU_UNSUPPORTED, "%s: cannot run a collective over %u ranks: expected at most %d",
                       device->name, c->in_count > c->out_count ? c->in_count : c->out_count,
                       COMBINE_MAX_INPUTS);
    if (is_sum(c) && !tu_dtype_is_float(c->dtype))
        return tu_fail(TU_UNSUPPORTED, "%s: cannot add %s in a collective: expected f32, f64, bf16 or f16",
                       device->name, tu_dtype_name(c->dtype));
    for (uint32_t i = 0; i < c->segment_count; i++)
        TU_TRY(compile_kernel(device, c, fits_words(c, &c->segments[i])));
    return TU_OK;
}

/* ---- Launches ---- */

typedef struct batch { /* the ranges of the next launch */
    const tu_combination *like;
    CUfunction function; /* of these ranges */
    CUstream stream;
    combine_args a;
} batch;

static unsigned count_blocks(tu_dtype dtype, long long count) {
    size_t elements = (size_t)COMBINE_THREADS * COMBINE_WORDS * 16 / tu_dtype_size(dtype);
    return (unsigned)(((size_t)count + elements - 1) / elements);
}

static tu_status launch(batch *b) {
    void *parameters[] = {&b->a};
    unsigned blocks = b->a.first_block[b->a.ranges];
    b->a.ranges = 0;
    if (blocks)
        CUDA_TRY(cuLaunchKernel, b->function, blocks, 1, 1, COMBINE_THREADS, 1, 1, 0, b->stream, parameters,
                 NULL);
    return TU_OK;
}

static uint32_t pointers_per_range(const tu_combination *c) {
    return c->in_count + c->out_count;
}

static void *pointer_of(const tu_combination *c, const tu_combine_segment *s, uint32_t index) {
    return index < c->in_count ? cuda_pointer(cuda_address(s->in[index])) : s->out[index - c->in_count];
}

/* Adds elements to the last range. */
static void extend_range(batch *b, size_t count) {
    combine_args *a = &b->a;
    int last = a->ranges - 1;
    a->count[last] += (long long)count;
    a->first_block[last + 1] = a->first_block[last] + count_blocks(b->like->dtype, a->count[last]);
}

/* True if a segment continues the last range in all inputs and outputs. */
static bool continues_range(const batch *b, const tu_combine_segment *s) {
    if (!b->a.ranges) return false;
    uint32_t pointers = pointers_per_range(b->like);
    size_t bytes = (size_t)b->a.count[b->a.ranges - 1] * tu_dtype_size(b->like->dtype);
    void *const *last = b->a.pointers + (size_t)(b->a.ranges - 1) * pointers;
    for (uint32_t k = 0; k < pointers; k++)
        if ((char *)last[k] + bytes != pointer_of(b->like, s, k)) return false;
    return true;
}

static bool is_full(const batch *b) {
    return b->a.ranges == COMBINE_RANGES ||
           (uint32_t)(b->a.ranges + 1) * pointers_per_range(b->like) > COMBINE_POINTERS;
}

/* Begins a range at element `first` of a segment, which the batch's kernel can combine. */
static void begin_range(batch *b, const tu_combine_segment *s, size_t first) {
    combine_args *a = &b->a;
    uint32_t pointers = pointers_per_range(b->like);
    void **to = a->pointers + (size_t)a->ranges * pointers;
    for (uint32_t k = 0; k < pointers; k++)
        to[k] = (char *)pointer_of(b->like, s, k) + first * tu_dtype_size(b->like->dtype);
    a->count[a->ranges++] = 0;
}

/* Adds a segment to the batch: to its last range, or as new ranges. Launches the batch before if it is full, or if the
 * segment needs another kernel. */
static tu_status add_segment(cuda_device *device, batch *b, const tu_combine_segment *s) {
    enum { MAX_ELEMENTS = 1 << 30 }; /* elements per range: blocks are counted in 32 bits */
    size_t done = 0;
    if (continues_range(b, s)) {
        size_t room = MAX_ELEMENTS - (size_t)b->a.count[b->a.ranges - 1];
        done = s->count < room ? s->count : room;
        extend_range(b, done);
    }
    while (done < s->count) {
        CUfunction function =
            __atomic_load_n(kernel_slot(device, b->like, fits_words(b->like, s)), __ATOMIC_ACQUIRE);
        if (b->a.ranges && (is_full(b) || function != b->function)) TU_TRY(launch(b));
        b->function = function;
        size_t count = s->count - done < MAX_ELEMENTS ? s->count - done : MAX_ELEMENTS;
        begin_range(b, s, done);
        extend_range(b, count);
        done += count;
    }
    return TU_OK;
}

tu_status cuda_combine(cuda_device *device, const tu_combination *combinations, uint32_t count,
                       uint32_t stride, CUstream stream) {
    batch b = {.like = combinations,
               .stream = stream,
               .a = {.in_count = (int)combinations->in_count, .out_count = (int)combinations->out_count}};
    for (uint32_t i = 0; i < count; i++) {
        const tu_combination *c = &combinations[(size_t)i * stride];
        TU_TRY(cuda_combine_prepare(device, c));
        for (uint32_t k = 0; k < c->segment_count; k++) TU_TRY(add_segment(device, &b, &c->segments[k]));
    }
    return launch(&b);
}
