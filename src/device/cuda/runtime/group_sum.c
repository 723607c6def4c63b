/* Sums over the GPUs of all processes of a group.
 *
 * The order of additions is that of sums in host memory (comm/group_reduce.c): first the local ranks, then the
 * processes, pairwise in the order of ranks. NCCL only carries bytes. The values are packed into a staging buffer, by
 * element type. Each process then adds a slice of it:
 *
 *     load      add the local ranks' values, into `packed`
 *     scatter   send slice p of `packed` to process p; receive this process's slice of all others into `received`
 *     add       add the slices of all processes, into this one's slice of `packed`
 *     gather    send that slice to all processes; receive theirs into `packed`
 *     store     copy the values in `packed` to all local ranks
 *
 * The latency of an exchange matters more than the bytes of a small collective. There every process gets all values and
 * adds all of them:
 *
 *     load, scatter (all of `packed` to every process), store (adds `packed` and what was received)
 *
 * Sums of bf16 and f16 are rounded after each level of the host path: local ranks, processes of a node, nodes. For f32
 * and f64, levels do not matter, because a node's size is a power of two if there are several.
 */
#include "device/cuda/runtime/group_sum.h"

#include "device/cuda/runtime/combine.h"

enum {
    SMALL_BYTES = 64 << 10, /* of the values of one process, up to which all are sent to all */
    LINE = 64,              /* slices consist of whole lines */
    VALUE_ALIGNMENT = 16,   /* of values in the staging buffer, for the kernel that adds words of 16 bytes */
};

/* The values of one element type in the staging buffer. */
typedef struct part {
    const tu_combination *values;
    size_t offset, bytes;
    size_t slice; /* bytes of a slice; the last ones may be shorter */
} part;

typedef struct planner {
    cuda_group_sum *sum;
    const tu_processes *p;
    uint32_t part_count;
    part *parts;
    size_t bytes; /* of all parts */
    bool is_small;
    CUdeviceptr packed, received;
} planner;

static size_t align(size_t bytes, size_t to) {
    return (bytes + to - 1) / to * to;
}

static size_t value_bytes(const part *x, uint32_t segment) {
    return x->values->segments[segment].count * tu_dtype_size(x->values->dtype);
}

/* ---- Layout ---- */

static void lay_out_part(planner *l, part *x) {
    *x = (part){.values = x->values, .offset = l->bytes};
    for (uint32_t i = 0; i < x->values->segment_count; i++)
        x->bytes = align(x->bytes, VALUE_ALIGNMENT) + value_bytes(x, i);
    x->slice = align(align(x->bytes, LINE) / l->p->size, LINE);
    if (x->slice * l->p->size < x->bytes) x->slice += LINE;
    l->bytes += align(x->bytes, LINE);
}

/* The parts whose values have any elements. */
static tu_status lay_out(planner *l, uint32_t count, const tu_combination *combinations) {
    l->parts = tu__arena_alloc(&l->sum->arena, (count + 1) * sizeof *l->parts);
    if (!l->parts) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        part *x = &l->parts[l->part_count];
        x->values = &combinations[i];
        lay_out_part(l, x);
        l->part_count += x->bytes > 0;
    }
    if (!l->bytes) return TU_OK;
    l->is_small = l->bytes <= SMALL_BYTES;
    size_t received = 0; /* all values of all processes, or a slice of all processes */
    for (uint32_t i = 0; i < l->part_count; i++) received += l->parts[i].slice * l->p->size;
    if (l->is_small) received = l->bytes * l->p->size;
    l->packed = cuda_connection_staging(l->sum->connection, l->bytes + received);
    l->received = l->packed + l->bytes;
    return l->packed ? TU_OK : TU_NO_MEMORY;
}

/* Returns the offset of slice `process` within its part. */
static size_t slice_offset(const part *x, uint32_t process) {
    size_t offset = process * x->slice;
    return offset < x->bytes ? offset : x->bytes;
}

static size_t slice_bytes(const part *x, uint32_t process) {
    return slice_offset(x, process + 1) - slice_offset(x, process);
}

/* Returns where the values of a process are that this one adds: its slice, or all; at offset `at` of the part. */
static CUdeviceptr operand(const planner *l, const part *x, uint32_t process, size_t at) {
    uint32_t own = l->p->rank;
    if (l->is_small) {
        CUdeviceptr base = process == own ? l->packed : l->received + process * l->bytes;
        return base + x->offset + at;
    }
    if (process == own) return l->packed + x->offset + slice_offset(x, own) + at;
    CUdeviceptr base = l->received;
    for (const part *before = l->parts; before < x; before++) base += before->slice * l->p->size;
    return base + process * x->slice + at;
}

/* ---- Combinations ---- */

/* A combination that is being made. */
typedef struct draft {
    tu_combination *to;
    tu_combine_segment *segments; /* of `to` */
} draft;

static tu_status begin_draft(planner *l, tu_combination *to, const part *like, uint32_t in_count,
                             uint32_t out_count, uint32_t segment_count, draft *d) {
    *d = (draft){to, tu__arena_alloc(&l->sum->arena, (segment_count + 1) * sizeof *d->segments)};
    if (!d->segments) return TU_NO_MEMORY;
    *to = (tu_combination){.struct_size = sizeof *to,
                           .dtype = like->values->dtype,
                           .in_count = in_count,
                           .out_count = out_count,
                           .segments = d->segments};
    return TU_OK;
}

static tu_status add_segment(const draft *d, const void *const *in, void *const *out, size_t count) {
    if (!in || !out) return TU_NO_MEMORY;
    d->segments[d->to->segment_count++] = (tu_combine_segment){in, out, count};
    return TU_OK;
}

static void **one_address(planner *l, CUdeviceptr address) {
    void **list = tu__arena_alloc(&l->sum->arena, sizeof *list);
    if (list) *list = cuda_pointer(address);
    return list;
}

/* Local ranks' inputs to the staging buffer (`is_load`), or the staging buffer to their outputs. */
static tu_status plan_copies(planner *l, const part *x, bool is_load, tu_combination *to) {
    const tu_combination *v = x->values;
    draft d;
    TU_TRY(
        begin_draft(l, to, x, is_load ? v->in_count : 1, is_load ? 1 : v->out_count, v->segment_count, &d));
    size_t at = 0;
    for (uint32_t i = 0; i < v->segment_count; i++) {
        at = align(at, VALUE_ALIGNMENT);
        void **staged = one_address(l, l->packed + x->offset + at);
        const tu_combine_segment *s = &v->segments[i];
        TU_TRY(is_load ? add_segment(&d, s->in, staged, s->count)
                       : add_segment(&d, (const void *const *)staged, s->out, s->count));
        at += value_bytes(x, i);
    }
    return TU_OK;
}

/* The addresses of the operands of `count` processes from `first` on, `step` apart. */
static void **operands(planner *l, const part *x, uint32_t first, uint32_t step, uint32_t count, size_t at) {
    void **list = tu__arena_alloc(&l->sum->arena, count * sizeof *list);
    for (uint32_t i = 0; list && i < count; i++) list[i] = cuda_pointer(operand(l, x, first + i * step, at));
    return list;
}

/* The number of processes whose sum is rounded, if sums of nodes are; otherwise 1. */
static uint32_t rounded_group(const planner *l, const part *x) {
    tu_dtype dtype = x->values->dtype;
    bool rounds = dtype == TU_BF16 || dtype == TU_F16;
    return rounds && l->p->node_size < l->p->size ? l->p->node_size : 1;
}

/* The elements of a part that this process adds. */
static size_t added_elements(const planner *l, const part *x) {
    return (l->is_small ? x->bytes : slice_bytes(x, l->p->rank)) / tu_dtype_size(x->values->dtype);
}

/* Adds the processes of each node into the operand of its first process. Appends to `list`. */
static tu_status plan_nodes(planner *l, const part *x, tu_combination *list, uint32_t *count) {
    draft d;
    uint32_t size = rounded_group(l, x);
    size_t elements = added_elements(l, x);
    for (uint32_t first = 0; size > 1 && elements && first < l->p->size; first += size) {
        TU_TRY(begin_draft(l, &list[(*count)++], x, size, 1, 1, &d));
        TU_TRY(add_segment(&d, (const void *const *)operands(l, x, first, 1, size, 0),
                           one_address(l, operand(l, x, first, 0)), elements));
    }
    return TU_OK;
}

/* Adds the slices of all processes, or of the nodes' first ones. */
static tu_status plan_slice(planner *l, const part *x, tu_combination *list, uint32_t *count) {
    uint32_t step = rounded_group(l, x), inputs = l->p->size / step;
    size_t elements = added_elements(l, x);
    draft d;
    if (!elements) return TU_OK;
    TU_TRY(begin_draft(l, &list[(*count)++], x, inputs, 1, 1, &d));
    return add_segment(&d, (const void *const *)operands(l, x, 0, step, inputs, 0),
                       one_address(l, operand(l, x, l->p->rank, 0)), elements);
}

/* Adds all values of all processes, to the outputs of the local ranks. */
static tu_status plan_all(planner *l, const part *x, tu_combination *to) {
    const tu_combination *v = x->values;
    uint32_t step = rounded_group(l, x), inputs = l->p->size / step;
    size_t at = 0;
    draft d;
    TU_TRY(begin_draft(l, to, x, inputs, v->out_count, v->segment_count, &d));
    for (uint32_t i = 0; i < v->segment_count; i++) {
        at = align(at, VALUE_ALIGNMENT);
        TU_TRY(add_segment(&d, (const void *const *)operands(l, x, 0, step, inputs, at), v->segments[i].out,
                           v->segments[i].count));
        at += value_bytes(x, i);
    }
    return TU_OK;
}

static tu_combination *new_list(planner *l, size_t count) {
    return tu__arena_alloc(&l->sum->arena, (count + 1) * sizeof(tu_combination));
}

static tu_status plan_combinations(planner *l) {
    cuda_group_sum *s = l->sum;
    tu_combination *load = new_list(l, l->part_count), *store = new_list(l, l->part_count),
                   *add = new_list(l, (size_t)l->part_count * (l->p->size + 1));
    if (!load || !add || !store) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < l->part_count; i++) {
        const part *x = &l->parts[i];
        TU_TRY(plan_copies(l, x, true, &load[i]));
        TU_TRY(plan_nodes(l, x, add, &s->add_count));
        if (!l->is_small) TU_TRY(plan_slice(l, x, add, &s->add_count));
        TU_TRY(l->is_small ? plan_all(l, x, &store[i]) : plan_copies(l, x, false, &store[i]));
    }
    s->load_count = s->store_count = l->part_count;
    s->load = load;
    s->add = add;
    s->store = store;
    return TU_OK;
}

/* ---- Transfers ---- */

static cuda_transfer scatter_to(const planner *l, const part *x, uint32_t process) {
    if (l->is_small)
        return (cuda_transfer){process, cuda_pointer(l->packed),
                               cuda_pointer(l->received + process * l->bytes), l->bytes, l->bytes};
    return (cuda_transfer){process, cuda_pointer(l->packed + x->offset + slice_offset(x, process)),
                           cuda_pointer(operand(l, x, process, 0)), slice_bytes(x, process),
                           slice_bytes(x, l->p->rank)};
}

static cuda_transfer gather_from(const planner *l, const part *x, uint32_t process) {
    return (cuda_transfer){process, cuda_pointer(operand(l, x, l->p->rank, 0)),
                           cuda_pointer(l->packed + x->offset + slice_offset(x, process)),
                           slice_bytes(x, l->p->rank), slice_bytes(x, process)};
}

static tu_status plan_transfers(planner *l) {
    cuda_group_sum *s = l->sum;
    uint32_t parts = l->is_small ? 1 : l->part_count;
    cuda_transfer *scatter = tu__arena_alloc(&s->arena, ((size_t)parts * l->p->size + 1) * sizeof *scatter);
    cuda_transfer *gather = tu__arena_alloc(&s->arena, ((size_t)parts * l->p->size + 1) * sizeof *gather);
    if (!scatter || !gather) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < parts; i++)
        for (uint32_t process = 0; process < l->p->size; process++) {
            if (process == l->p->rank) continue;
            scatter[s->scatter_count++] = scatter_to(l, &l->parts[i], process);
            if (!l->is_small) gather[s->gather_count++] = gather_from(l, &l->parts[i], process);
        }
    s->scatter = scatter;
    s->gather = gather;
    return TU_OK;
}

/* ---- Preparing and enqueueing ---- */

static tu_status compile_kernels(cuda_device *device, uint32_t count, const tu_combination *list) {
    for (uint32_t i = 0; i < count; i++) TU_TRY(cuda_combine_prepare(device, &list[i]));
    return TU_OK;
}

tu_status cuda_group_sum_prepare(cuda_group_sum *s, const tu_processes *processes, uint32_t count,
                                 const tu_combination *combinations) {
    *s = (cuda_group_sum){.connection = cuda_connection_to(processes),
                          .arena = {.purpose = "a sum over processes"}};
    if (!s->connection) return TU_INVALID;
    planner l = {.sum = s, .p = processes};
    TU_TRY(lay_out(&l, count, combinations));
    if (!l.part_count) return TU_OK;
    TU_TRY(plan_combinations(&l));
    TU_TRY(plan_transfers(&l));
    cuda_device *device = cuda_connection_device(s->connection);
    TU_TRY(compile_kernels(device, s->load_count, s->load));
    TU_TRY(compile_kernels(device, s->add_count, s->add));
    return compile_kernels(device, s->store_count, s->store);
}

static tu_status combine_all(const cuda_group_sum *s, uint32_t count, const tu_combination *list,
                             CUstream stream) {
    for (uint32_t i = 0; i < count; i++)
        TU_TRY(cuda_combine(cuda_connection_device(s->connection), &list[i], 1, 1, stream));
    return TU_OK;
}

static tu_status transfer_all(const cuda_group_sum *s, uint32_t count, const cuda_transfer *list,
                              CUstream stream) {
    return count ? cuda_exchange(s->connection, count, list, stream) : TU_OK;
}

tu_status cuda_group_sum_enqueue(const cuda_group_sum *s, CUstream stream) {
    TU_TRY(combine_all(s, s->load_count, s->load, stream));
    TU_TRY(transfer_all(s, s->scatter_count, s->scatter, stream));
    TU_TRY(combine_all(s, s->add_count, s->add, stream));
    TU_TRY(transfer_all(s, s->gather_count, s->gather, stream));
    return combine_all(s, s->store_count, s->store, stream);
}

void cuda_group_sum_free(cuda_group_sum *s) {
    tu__arena_free(&s->arena);
}
