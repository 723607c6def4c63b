/* The squared global norm of many tensors, which the partition lists (tu_squared_norm):
 *
 *     total = f64(sum(sum(square(g0), rows))) + f64(sum(square(g1))) + …
 *
 * Operation by operation that is two or three launches per gradient, hundreds for a deep network, and the step waits
 * for them: its update depends on whether the norm is finite. So all of it, down to the gradients, is one kernel of
 * two launches, plus one for each further element type: each block sums the squares of a chunk of one gradient
 * (kernels/global_norm.cu), and one block adds these sums. Whether the norm is finite is a second result if the graph
 * needs it, at the same level as the first (device/kit/select.c); the gradients may have lower levels.
 *
 * All gradients must be stored in memory: a gradient computed by a fused pointwise kernel is squared there
 * (pointwise.c), and then the kernel is not used.
 */
#include "device/cuda/ops/global_norm.h"
#include "device/cuda/ops/ops.h"

#include "device/cuda/kernels/global_norm_args.h"

/* ---- Tensors ---- */

/* A tensor of a norm, before the cast from bf16 or f16 to f32 if there is one. */
typedef struct tensor {
    tu__edge x;           /* what the kernel reads */
    const tu__node *cast; /* NULL: none. It may have other readers */
} tensor;

static bool is_half(tu_dtype dtype) {
    return dtype == TU_BF16 || dtype == TU_F16;
}

static tensor tensor_of(const tu__selection *s, tu__edge value) {
    const tu__node *node = s->graph->nodes[value.node];
    bool widens = node->op->code == TU__OP_CAST && tu__can_fuse(s, node) &&
                  is_half(tu__type_of(s, node->inputs[0])->dtype) && node->outputs[0].dtype == TU_F32;
    return widens ? (tensor){node->inputs[0], node} : (tensor){value, NULL};
}

/* True if the value is, or will be, stored in memory even if this kernel does not read it. */
static bool is_stored(const tu__selection *s, tu__edge value) {
    const tu__node *node = s->graph->nodes[tu__root_of(s, value).node];
    bool is_lazy = (node->op->traits & TU__POINTWISE) || node->op->code == TU__OP_BROADCAST ||
                   node->op->code == TU__OP_FILL;
    return !is_lazy || !tu__can_fuse(s, node);
}

/* Returns the norm that contains the node, if one kernel can compute it; otherwise NULL. */
static const tu_squared_norm *find_norm(const tu__selection *s, const tu__node *node) {
    const tu_squared_norm *norm = tu__squared_norm_of(s, node);
    for (uint32_t i = 0; norm && i < norm->node_count; i++)
        if (!tu__can_fuse(s, s->graph->nodes[norm->nodes[i]])) return NULL;
    for (uint32_t i = 0; norm && i < norm->tensor_count; i++) {
        tensor t = tensor_of(s, norm->tensors[i]);
        tu_dtype dtype = tu__type_of(s, t.x)->dtype;
        if (!is_stored(s, t.x) || !(is_half(dtype) || dtype == TU_F32)) return NULL;
    }
    return norm;
}

static const tu__node *find_finite(tu__selection *s, uint32_t total) {
    const tu__kernel_plan *p = s->plan;
    const tu__plan_value *v = tu__plan_value_of(s, (tu__edge){total, 0});
    for (uint32_t i = 0; i < v->reader_count; i++) {
        const tu__node *reader = s->graph->nodes[p->readers[v->first_reader + i]];
        if (reader->op->code == TU__OP_IS_FINITE && tu__can_fuse(s, reader) && !reader->after_count &&
            p->level[reader->id] == p->level[total])
            return reader;
    }
    return NULL;
}

/* The first sum of a tensor that the selection visits reads the squares; the kernel reads the tensor instead. */
tu__edge cuda_global_norm_read(tu__selection *s, const tu__node *node, uint32_t index) {
    const tu__node *source = s->graph->nodes[node->inputs[index].node];
    bool is_first = source->op->code == TU__OP_SQUARE && find_norm(s, node);
    return is_first ? tensor_of(s, source->inputs[0]).x : node->inputs[index];
}

/* ---- Launches ---- */

/* Tensors of one element type. */
typedef struct launch {
    const cuda_function *function;
    global_norm_args args;
    uint32_t in[GLOBAL_NORM_TENSORS]; /* indices of the kernel's reads */
    int64_t first_part;
    struct launch *next;
} launch;

typedef struct global_norm_data {
    launch *launches;
    const cuda_function *add;
    int64_t partial_count;
} global_norm_data;

static tu_status run_launch(const tu__kernel *k, const launch *l, double *partial) {
    global_norm_args a = l->args;
    for (int t = 0; t < a.tensors; t++) a.x[t] = k->in[l->in[t]];
    a.partial = partial + l->first_part;
    cuda_grid grid = {.blocks = {a.first_block[a.tensors]}, .threads = GLOBAL_NORM_THREADS};
    return cuda_launch(k, l->function, grid, &a);
}

static tu_status run_global_norm(const tu__kernel *k) {
    const global_norm_data *d = k->data;
    double *partial = k->workspace;
    for (const launch *l = d->launches; l; l = l->next) TU_TRY(run_launch(k, l, partial));
    add_partial_args a = {.partial = partial, .out = k->out[0], .partial_count = d->partial_count};
    if (k->write_count > 1) a.finite = k->out[1];
    return cuda_launch(k, d->add, (cuda_grid){.blocks = {1}, .threads = GLOBAL_NORM_THREADS}, &a);
}

/* At least four words per thread, and no more blocks than keep the GPU busy. */
static int64_t choose_chunk(const tu__kernel *k, int64_t elements, int64_t word) {
    enum { WORDS = 4, BLOCKS_EACH = 8 /* per multiprocessor */ };
    int64_t step = GLOBAL_NORM_THREADS * word, min_chunk = WORDS * step;
    int64_t even_share = elements / (BLOCKS_EACH * cuda_of(k)->multiprocessors);
    return even_share <= min_chunk ? min_chunk : (even_share + step - 1) / step * step;
}

static void add_tensor(launch *l, uint32_t in, int64_t elements) {
    int t = l->args.tensors++;
    l->in[t] = in;
    l->args.count[t] = elements;
    l->args.first_block[t + 1] =
        l->args.first_block[t] + (unsigned)((elements + l->args.chunk - 1) / l->args.chunk);
}

static launch *new_launch(tu__kernel *k, global_norm_data *d, tu_dtype dtype, int64_t elements) {
    int word = (int)(16 / tu_dtype_size(dtype));
    launch *l = tu__arena_alloc(&k->owner->arena, sizeof *l);
    if (!l) return NULL;
    l->args.chunk = choose_chunk(k, elements, word);
    l->function = cuda_request(k->owner, "global_norm", "sum_squares<%s, %d>", cuda_type(dtype), word);
    l->next = d->launches;
    return l->function ? d->launches = l : NULL;
}

static int64_t elements_of(const tu__kernel *k, tu__edge x) {
    return tu_shape_elements(tu__type_of(k->owner, x)->shape);
}

/* Plans all tensors of one type, in as many launches as needed. */
static tu_status plan_type(tu__kernel *k, global_norm_data *d, const tu_squared_norm *norm, tu_dtype dtype) {
    int64_t elements = 0;
    launch *l = NULL;
    for (uint32_t i = 0; i < norm->tensor_count; i++) {
        tu__edge x = tensor_of(k->owner, norm->tensors[i]).x;
        if (tu__type_of(k->owner, x)->dtype == dtype) elements += elements_of(k, x);
    }
    for (uint32_t i = 0; i < norm->tensor_count; i++) {
        tu__edge x = tensor_of(k->owner, norm->tensors[i]).x;
        if (tu__type_of(k->owner, x)->dtype != dtype) continue;
        if (!l || l->args.tensors == GLOBAL_NORM_TENSORS) l = new_launch(k, d, dtype, elements);
        if (!l) return TU_NO_MEMORY;
        add_tensor(l, i, elements_of(k, x));
    }
    return TU_OK;
}

static tu_status plan_launches(tu__kernel *k, global_norm_data *d, const tu_squared_norm *norm) {
    static const tu_dtype types[] = {TU_F32, TU_BF16, TU_F16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) TU_TRY(plan_type(k, d, norm, types[i]));
    for (launch *l = d->launches; l; l = l->next) {
        l->first_part = d->partial_count;
        d->partial_count += l->args.first_block[l->args.tensors];
    }
    d->add = cuda_request(k->owner, "global_norm", "add_partial");
    k->workspace_bytes = (size_t)d->partial_count * sizeof(double);
    return d->add ? TU_OK : TU_NO_MEMORY;
}

/* ---- Lowering ---- */

static tu_status fuse_node(tu__kernel *k, const tu__node *node) {
    tu__mark_done(k->owner, node);
    return tu__kernel_add_node(k, node);
}

static tu_status fuse_cast(tu__kernel *k, const tu_squared_norm *norm, const tu__node *cast) {
    const tu__node *reader = tu__only_reader(k->owner, (tu__edge){cast->id, 0});
    bool is_private = reader && tu__squared_norm_of(k->owner, reader) == norm;
    return is_private ? fuse_node(k, cast) : tu__kernel_add_node(k, cast);
}

/* Covers the fused nodes first: reading inputs may make the selection lower nodes that belong to this kernel. Lists
 * the tensors before that: tensor_of looks at nodes that are not covered yet. */
static tu_status add_operands(tu__kernel *k, const tu_squared_norm *norm) {
    tu__selection *s = k->owner;
    const tu__node *finite = find_finite(s, norm->total);
    tensor *tensors = tu__arena_alloc(&s->arena, norm->tensor_count * sizeof *tensors);
    if (!tensors) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < norm->tensor_count; i++) tensors[i] = tensor_of(s, norm->tensors[i]);
    for (uint32_t i = 0; i < norm->node_count; i++)
        if (norm->nodes[i] != k->nodes[0]) TU_TRY(fuse_node(k, s->graph->nodes[norm->nodes[i]]));
    for (uint32_t i = 0; i < norm->tensor_count; i++)
        if (tensors[i].cast) TU_TRY(fuse_cast(k, norm, tensors[i].cast));
    if (finite) TU_TRY(fuse_node(k, finite));
    for (uint32_t i = 0; i < norm->tensor_count; i++) {
        TU_TRY(tu__kernel_read(k, tensors[i].x));
        k->bytes_moved += (int64_t)tu_type_bytes(*tu__type_of(s, tensors[i].x));
        k->flops += 2 * elements_of(k, tensors[i].x);
    }
    TU_TRY(tu__kernel_write(k, (tu__edge){norm->total, 0}, -1));
    return finite ? tu__kernel_write(k, (tu__edge){finite->id, 0}, -1) : TU_OK;
}

tu_status cuda_lower_sum(tu__selection *s, const tu__node *node) {
    const tu_squared_norm *norm = find_norm(s, node);
    if (!norm) return cuda_lower_reduce(s, node);
    tu__kernel *k = tu__kernel_new(s, node, "squared norm", run_global_norm);
    global_norm_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    TU_TRY(plan_launches(k, d, norm));
    return add_operands(k, norm);
}
