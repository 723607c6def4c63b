/* Collectives over the GPUs of all processes of a group: sums and copies, from all processes or one, to all or one.
 *
 * The order of additions is that of collectives in host memory (comm/group_reduce.c): first the local ranks, then the
 * processes, pairwise in the order of ranks. NCCL only carries bytes. The values of every combination are packed into a
 * *part* of a staging buffer. A part is divided into slices, one per process, some of them empty:
 *
 *     load      add the local ranks' values, into `packed`                              if values come from this process
 *     scatter   send slice p of `packed` to process p; receive this process's slice of all others
 *     add       add the slices of all processes, into this one's slice of `packed`
 *     gather    send that slice to the processes that need the result; receive theirs into `packed`
 *     store     copy the values in `packed` to all local ranks                          if they need the result
 *
 * All kinds of collectives are parts that differ in where values come from, where they go to, and in their slices:
 *
 *     kind             parts           from   to     slices of a part                    exchanges
 *     all-reduce       1               all    all    equal                               scatter, gather
 *     reduce           1               all    root   equal                               scatter, gather
 *     broadcast        1               root   all    equal                               scatter, gather
 *     reduce-scatter   1 per rank      all    owner  everything belongs to the owner     scatter
 *     all-gather       1 per rank      owner  all    everything belongs to the owner     gather
 *
 * With equal slices a root sends less than twice the bytes of a broadcast, since the other processes pass them on. If every
 * process is the root of as much, or with two processes, slices of others would be a detour. is_sliced() decides by the
 * bytes that the busiest process sends.
 *
 * The latency of an exchange matters more than the bytes of a small collective. There every process that needs a result
 * gets all values, and adds all of them:
 *
 *     load, scatter (all of `packed` to every process that needs it), store (adds `packed` and what was received)
 *
 * Sums of bf16 and f16 are rounded after each level of the host path: local ranks, processes of a node, nodes. For f32
 * and f64, levels do not matter, because a node's size is a power of two if there are several.
 */
#include "device/cuda/runtime/process_collective.h"

#include "device/cuda/runtime/combine.h"

enum {
    SMALL_BYTES = 64 << 10, /* of the values of one process, up to which all are sent to all */
    LINE = 64,              /* equal slices consist of whole lines */
    VALUE_ALIGNMENT = 16,   /* of values in the staging buffer, for the kernel that adds words of 16 bytes */
};

/* The values of one combination in the staging buffer. */
typedef struct part {
    const tu_combination *values;
    tu_route route;
    size_t offset, bytes; /* in `packed` */
    size_t slice;      /* bytes of equal slices; the last ones may be shorter. 0: the owner has everything */
    size_t area, step; /* of a sum: where in `received` the operands of process 0 are, and of the next one */
} part;

typedef struct planner {
    cuda_process_collective *to;
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

/* ---- Routes ---- */

static bool includes(uint32_t processes, uint32_t process) {
    return processes == TU_ALL_PROCESSES || processes == process;
}

static bool is_sum(const part *x) {
    return x->route.from == TU_ALL_PROCESSES;
}

/* True if a process needs what others have of a part. */
static bool needs(const part *x, uint32_t process) {
    return includes(x->route.to, process) && x->route.from != process;
}

/* The process that a part comes from or goes to; TU_ALL_PROCESSES if it is an all-reduce. */
static uint32_t root_of(const part *x) {
    return is_sum(x) ? x->route.to : x->route.from;
}

static tu_status check_route(const planner *l, const tu_combination *values, tu_route route) {
    uint32_t own = l->p->rank, size = l->p->size;
    bool exists = (route.from == TU_ALL_PROCESSES || route.from < size) &&
                  (route.to == TU_ALL_PROCESSES || route.to < size) &&
                  (route.from == TU_ALL_PROCESSES || route.to == TU_ALL_PROCESSES);
    if (exists && includes(route.from, own) == (values->in_count > 0) &&
        (includes(route.to, own) || !values->out_count))
        return TU_OK;
    return tu_fail(TU_INVALID,
                   "a collective from process %d to %d (-1: all) has %u inputs and %u outputs in process %u",
                   (int)route.from, (int)route.to, values->in_count, values->out_count, own);
}

/* ---- Layout ---- */

static size_t packed_bytes(const part *x) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < x->values->segment_count; i++)
        bytes = align(bytes, VALUE_ALIGNMENT) + value_bytes(x, i);
    return bytes;
}

/* True if the parts with a root are divided into equal slices. Undivided, the busiest root sends or receives its bytes
 * once per other process; divided, every process has its slice of all bytes twice. */
static bool is_sliced(const planner *l) {
    size_t all = 0, busiest = 0;
    for (uint32_t root = 0; root < l->p->size; root++) {
        size_t bytes = 0;
        for (uint32_t i = 0; i < l->part_count; i++)
            if (root_of(&l->parts[i]) == root) bytes += l->parts[i].bytes;
        all += bytes;
        if (bytes > busiest) busiest = bytes;
    }
    return busiest * l->p->size > 2 * all;
}

static size_t equal_slice(const planner *l, const part *x) {
    size_t slice = align(align(x->bytes, LINE) / l->p->size, LINE);
    return slice * l->p->size < x->bytes ? slice + LINE : slice;
}

/* Returns the offset of slice `process` within its part. */
static size_t slice_offset(const part *x, uint32_t process) {
    if (!x->slice) return process <= root_of(x) ? 0 : x->bytes;
    return process * x->slice < x->bytes ? process * x->slice : x->bytes;
}

static size_t slice_bytes(const part *x, uint32_t process) {
    return slice_offset(x, process + 1) - slice_offset(x, process);
}

/* Divides a part, and assigns memory for what this process adds: all values of all processes, or a slice of each. */
static void divide(const planner *l, part *x, bool sliced, size_t *received) {
    if (sliced || root_of(x) == TU_ALL_PROCESSES) x->slice = equal_slice(l, x);
    x->area = *received;
    x->step = align(l->is_small ? x->bytes : slice_bytes(x, l->p->rank), LINE);
    if (is_sum(x)) *received += x->step * l->p->size;
}

static tu_status add_part(planner *l, const tu_combination *values, tu_route route) {
    part *x = &l->parts[l->part_count];
    TU_TRY(check_route(l, values, route));
    *x = (part){.values = values, .route = route, .offset = l->bytes};
    x->bytes = packed_bytes(x);
    l->bytes += align(x->bytes, LINE);
    l->part_count += x->bytes > 0;
    return TU_OK;
}

/* The parts whose values have any elements. */
static tu_status lay_out(planner *l, const cuda_process_work *work) {
    const tu_route all = {TU_ALL_PROCESSES, TU_ALL_PROCESSES};
    size_t received = 0;
    l->parts = tu__arena_alloc(&l->to->arena, (work->count + 1) * sizeof *l->parts);
    if (!l->parts) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < work->count; i++)
        TU_TRY(add_part(l, &work->combinations[i], work->routes ? work->routes[i] : all));
    if (!l->bytes) return TU_OK;
    l->is_small = l->bytes <= SMALL_BYTES;
    bool sliced = is_sliced(l);
    for (uint32_t i = 0; i < l->part_count; i++) divide(l, &l->parts[i], sliced, &received);
    l->packed = cuda_connection_staging(l->to->connection, l->bytes + received);
    l->received = l->packed + l->bytes;
    return l->packed ? TU_OK : TU_NO_MEMORY;
}

/* Returns where the values of a process are that this one adds: its slice, or all; at offset `at`. Copies of the one
 * process that has values need no memory of their own. */
static CUdeviceptr operand(const planner *l, const part *x, uint32_t process, size_t at) {
    size_t first = l->is_small ? 0 : slice_offset(x, l->p->rank);
    if (process == l->p->rank || !is_sum(x)) return l->packed + x->offset + first + at;
    return l->received + x->area + process * x->step + at;
}

/* ---- Combinations ---- */

/* A combination that is being made. */
typedef struct draft {
    tu_combination *to;
    tu_combine_segment *segments; /* of `to` */
} draft;

static tu_status begin_draft(planner *l, tu_combination *to, const part *like, uint32_t in_count,
                             uint32_t out_count, uint32_t segment_count, draft *d) {
    *d = (draft){to, tu__arena_alloc(&l->to->arena, (segment_count + 1) * sizeof *d->segments)};
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
    void **list = tu__arena_alloc(&l->to->arena, sizeof *list);
    if (list) *list = cuda_pointer(address);
    return list;
}

/* Local ranks' inputs to the staging buffer. */
static tu_status plan_load(planner *l, const part *x, tu_combination *to) {
    const tu_combination *v = x->values;
    draft d;
    TU_TRY(begin_draft(l, to, x, v->in_count, 1, v->segment_count, &d));
    size_t at = 0;
    for (uint32_t i = 0; i < v->segment_count; i++) {
        at = align(at, VALUE_ALIGNMENT);
        TU_TRY(add_segment(&d, v->segments[i].in, one_address(l, l->packed + x->offset + at),
                           v->segments[i].count));
        at += value_bytes(x, i);
    }
    return TU_OK;
}

/* The addresses of the operands of `count` processes from `first` on, `step` apart. */
static void **operands(planner *l, const part *x, uint32_t first, uint32_t step, uint32_t count, size_t at) {
    void **list = tu__arena_alloc(&l->to->arena, count * sizeof *list);
    for (uint32_t i = 0; list && i < count; i++) list[i] = cuda_pointer(operand(l, x, first + i * step, at));
    return list;
}

/* The number of processes whose sum is rounded, if sums of nodes are; otherwise 1. */
static uint32_t rounded_group(const planner *l, const part *x) {
    tu_dtype dtype = x->values->dtype;
    bool rounds = (dtype == TU_BF16 || dtype == TU_F16) && l->p->node_size > 1;
    return rounds && l->p->node_size < l->p->size ? l->p->node_size : 1;
}

/* The elements of a part that this process adds. */
static size_t added_elements(const planner *l, const part *x) {
    size_t bytes = slice_bytes(x, l->p->rank);
    if (l->is_small) bytes = includes(x->route.to, l->p->rank) ? x->bytes : 0;
    return is_sum(x) ? bytes / tu_dtype_size(x->values->dtype) : 0;
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

/* True if the outputs of a segment are its input, such as a variable that is broadcast: other kernels may read it
 * meanwhile. */
static bool is_in_place(const part *x, const tu_combine_segment *s) {
    bool all = !is_sum(x) && x->values->in_count == 1;
    for (uint32_t k = 0; all && k < x->values->out_count; k++) all = s->out[k] == s->in[0];
    return all;
}

/* The result in the staging buffer to the local ranks' outputs. If the values of all processes are in the staging
 * buffers, adds them. */
static tu_status plan_store(planner *l, const part *x, tu_combination *to) {
    const tu_combination *v = x->values;
    bool adds = l->is_small && is_sum(x);
    uint32_t step = rounded_group(l, x), inputs = adds ? l->p->size / step : 1;
    size_t at = 0;
    draft d;
    TU_TRY(begin_draft(l, to, x, inputs, v->out_count, v->segment_count, &d));
    for (uint32_t i = 0; i < v->segment_count; i++) {
        const tu_combine_segment *s = &v->segments[i];
        at = align(at, VALUE_ALIGNMENT);
        void **in = adds ? operands(l, x, 0, step, inputs, at) : one_address(l, l->packed + x->offset + at);
        if (!is_in_place(x, s)) TU_TRY(add_segment(&d, (const void *const *)in, s->out, s->count));
        at += value_bytes(x, i);
    }
    return TU_OK;
}

static tu_combination *new_list(planner *l, size_t count) {
    return tu__arena_alloc(&l->to->arena, (count + 1) * sizeof(tu_combination));
}

static tu_status plan_combinations(planner *l) {
    cuda_process_collective *c = l->to;
    tu_combination *load = new_list(l, l->part_count), *store = new_list(l, l->part_count),
                   *add = new_list(l, (size_t)l->part_count * (l->p->size + 1));
    if (!load || !add || !store) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < l->part_count; i++) {
        const part *x = &l->parts[i];
        if (x->values->in_count) TU_TRY(plan_load(l, x, &load[c->load_count++]));
        TU_TRY(plan_nodes(l, x, add, &c->add_count));
        if (!l->is_small) TU_TRY(plan_slice(l, x, add, &c->add_count));
        if (x->values->out_count) TU_TRY(plan_store(l, x, &store[c->store_count++]));
    }
    c->load = load;
    c->add = add;
    c->store = store;
    return TU_OK;
}

/* ---- Transfers ---- */

/* The first exchange with a process. */
static cuda_transfer scatter_to(const planner *l, const part *x, uint32_t process) {
    uint32_t own = l->p->rank;
    size_t first = l->is_small ? 0 : slice_offset(x, process), bytes = slice_bytes(x, process),
           own_bytes = slice_bytes(x, own);
    if (l->is_small) {
        bytes = needs(x, process) ? x->bytes : 0;
        own_bytes = needs(x, own) ? x->bytes : 0;
    }
    return (cuda_transfer){process, cuda_pointer(l->packed + x->offset + first),
                           cuda_pointer(operand(l, x, process, 0)), includes(x->route.from, own) ? bytes : 0,
                           includes(x->route.from, process) ? own_bytes : 0};
}

/* The second one. */
static cuda_transfer gather_from(const planner *l, const part *x, uint32_t process) {
    uint32_t own = l->p->rank;
    return (cuda_transfer){process, cuda_pointer(l->packed + x->offset + slice_offset(x, own)),
                           cuda_pointer(l->packed + x->offset + slice_offset(x, process)),
                           needs(x, process) ? slice_bytes(x, own) : 0,
                           needs(x, own) ? slice_bytes(x, process) : 0};
}

static void add_transfer(cuda_transfer *list, uint32_t *count, cuda_transfer t) {
    if (t.send_bytes || t.receive_bytes) list[(*count)++] = t;
}

static tu_status plan_transfers(planner *l) {
    cuda_process_collective *c = l->to;
    size_t most = (size_t)l->part_count * l->p->size + 1;
    cuda_transfer *scatter = tu__arena_alloc(&c->arena, most * sizeof *scatter);
    cuda_transfer *gather = tu__arena_alloc(&c->arena, most * sizeof *gather);
    if (!scatter || !gather) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < l->part_count; i++)
        for (uint32_t process = 0; process < l->p->size; process++) {
            if (process == l->p->rank) continue;
            add_transfer(scatter, &c->scatter_count, scatter_to(l, &l->parts[i], process));
            if (!l->is_small) add_transfer(gather, &c->gather_count, gather_from(l, &l->parts[i], process));
        }
    c->scatter = scatter;
    c->gather = gather;
    return TU_OK;
}

/* ---- Preparing and enqueueing ---- */

static tu_status compile_kernels(cuda_device *device, uint32_t count, const tu_combination *list) {
    for (uint32_t i = 0; i < count; i++) TU_TRY(cuda_combine_prepare(device, &list[i]));
    return TU_OK;
}

tu_status cuda_process_collective_prepare(cuda_process_collective *c, const cuda_process_work *work) {
    *c = (cuda_process_collective){.connection = cuda_connection_to(work->processes),
                                   .arena = {.purpose = "a collective over processes"}};
    if (!c->connection) return TU_INVALID;
    planner l = {.to = c, .p = work->processes};
    TU_TRY(lay_out(&l, work));
    if (!l.part_count) return TU_OK;
    TU_TRY(plan_combinations(&l));
    TU_TRY(plan_transfers(&l));
    cuda_device *device = cuda_connection_device(c->connection);
    TU_TRY(compile_kernels(device, c->load_count, c->load));
    TU_TRY(compile_kernels(device, c->add_count, c->add));
    return compile_kernels(device, c->store_count, c->store);
}

static tu_status combine_all(const cuda_process_collective *c, uint32_t count, const tu_combination *list,
                             CUstream stream) {
    for (uint32_t i = 0; i < count; i++)
        TU_TRY(cuda_combine(cuda_connection_device(c->connection), &list[i], 1, 1, stream));
    return TU_OK;
}

static tu_status transfer_all(const cuda_process_collective *c, uint32_t count, const cuda_transfer *list,
                              CUstream stream) {
    return count ? cuda_exchange(c->connection, count, list, stream) : TU_OK;
}

tu_status cuda_process_collective_enqueue(const cuda_process_collective *c, CUstream stream) {
    TU_TRY(combine_all(c, c->load_count, c->load, stream));
    TU_TRY(transfer_all(c, c->scatter_count, c->scatter, stream));
    TU_TRY(combine_all(c, c->add_count, c->add, stream));
    TU_TRY(transfer_all(c, c->gather_count, c->gather, stream));
    return combine_all(c, c->store_count, c->store, stream);
}

void cuda_process_collective_free(cuda_process_collective *c) {
    tu__arena_free(&c->arena);
}
