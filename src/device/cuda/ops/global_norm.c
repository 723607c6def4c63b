/* The squared global norm of many tensors, as a training step computes it (src/optim/gradients.c):
 *
 *     total = f64(sum(sum(square(g0), rows))) + f64(sum(square(g1))) + …
 *
 * Operation by operation that is two or three launches per gradient, hundreds for a deep network, and the step waits
 * for them: its update depends on whether the norm is finite. So the whole tree, down to the gradients, is one kernel
 * of two launches, plus one for each further element type: each block sums the squares of a chunk of one gradient
 * (kernels/global_norm.cu), and one block adds these sums. Whether the norm is finite is a second result if the graph
 * needs it, at the same level as the first (device/kit/select.c); the gradients may have lower levels.
 *
 * The rule matches a tree of f64 scalar additions over two or more leaves whose values no other node reads. Its
 * gradients must be stored in memory: a gradient computed by a fused pointwise kernel is squared there (pointwise.c),
 * and the tree is not matched.
 */
#include "device/cuda/ops/global_norm.h"
#include "device/cuda/ops/ops.h"

#include "base/alloc.h"

#include "device/cuda/kernels/global_norm_args.h"

/* ---- Leaves ---- */

/* f64(sum(sum(square(x), rows))), possibly without the sum over rows, or with x cast from bf16 or f16. */
typedef struct leaf {
    tu__edge x;               /* what the kernel reads */
    const tu__node *first;    /* the sum that the selection visits first */
    const tu__node *chain[4]; /* from the cast down to the square; NULL if there is no sum over rows */
    const tu__node *cast;     /* from bf16 or f16; NULL: none. It may have other readers */
} leaf;

static const tu__node *input_of(const tu__selection *s, const tu__node *node) {
    return s->graph->nodes[node->inputs[0].node];
}

static bool is_private(tu__selection *s, const tu__node *node, tu__opcode op, const tu__node *reader) {
    return node->op->code == op && tu__can_fuse(s, node) &&
           tu__fusible_reader(s, (tu__edge){node->id, 0}) == reader;
}

static bool is_half(tu_dtype dtype) {
    return dtype == TU_BF16 || dtype == TU_F16;
}

/* True if the value is, or will be, stored in memory even if this kernel does not read it. */
static bool is_stored(const tu__selection *s, tu__edge value) {
    const tu__node *node = s->graph->nodes[tu__root_of(s, value).node];
    bool is_lazy = (node->op->traits & TU__POINTWISE) || node->op->code == TU__OP_BROADCAST ||
                   node->op->code == TU__OP_FILL;
    return !is_lazy || !tu__can_fuse(s, node);
}

static bool find_leaf(tu__selection *s, const tu__node *cast, leaf *found) {
    const tu__node *total = input_of(s, cast), *rows = NULL, *square;
    if (!is_private(s, total, TU__OP_SUM, cast) || tu_shape_elements(total->outputs[0].shape) != 1)
        return false;
    square = input_of(s, total);
    if (square->op->code == TU__OP_SUM) {
        rows = square;
        if (!is_private(s, rows, TU__OP_SUM, total)) return false;
        square = input_of(s, rows);
    }
    const tu__node *first = rows ? rows : total;
    if (!is_private(s, square, TU__OP_SQUARE, first)) return false;
    *found = (leaf){.x = square->inputs[0], .first = first, .chain = {cast, total, rows, square}};
    const tu__node *widening = s->graph->nodes[found->x.node];
    if (widening->op->code == TU__OP_CAST && tu__can_fuse(s, widening) &&
        is_half(tu__type_of(s, widening->inputs[0])->dtype) && widening->outputs[0].dtype == TU_F32) {
        found->cast = widening;
        found->x = widening->inputs[0];
    }
    tu_dtype dtype = tu__type_of(s, found->x)->dtype;
    return is_stored(s, found->x) && (is_half(dtype) || dtype == TU_F32);
}

/* ---- The tree ---- */

typedef struct tree {
    const tu__node *top;
    const tu__node *finite; /* is_finite of the top; NULL: not in the graph */
    uint32_t count;
    leaf *leaves;
    uint32_t add_count;
    const tu__node **adds; /* without the top; at most as many as leaves */
} tree;

static bool is_scalar_add(const tu__node *node) {
    return node->op->code == TU__OP_ADD && node->outputs[0].dtype == TU_F64 &&
           tu_shape_elements(node->outputs[0].shape) == 1;
}

/* Returns the topmost addition above the sum that `node` is part of; NULL if there is none. */
static const tu__node *find_top(tu__selection *s, const tu__node *node) {
    const tu__node *top = NULL, *current = node;
    for (;;) {
        current = tu__fusible_reader(s, (tu__edge){current->id, 0});
        if (current && is_scalar_add(current))
            top = current;
        else if (top || !current || (current->op->code != TU__OP_SUM && current->op->code != TU__OP_CAST))
            return top;
    }
}

/* Counts the additions, which are chained by their first inputs. */
static uint32_t count_adds(const tu__selection *s, const tu__node *top) {
    uint32_t count = 0;
    while (is_scalar_add(top)) {
        count++;
        top = input_of(s, top);
    }
    return count;
}

static bool add_leaf(tree *t, tu__selection *s, tu__edge value, const tu__node *reader) {
    const tu__node *cast = s->graph->nodes[value.node];
    return is_private(s, cast, TU__OP_CAST, reader) && find_leaf(s, cast, &t->leaves[t->count]) && ++t->count;
}

/* Visits the leaves of ((l0 + l1) + l2) + l3. */
static bool match_leaves(tree *t, tu__selection *s) {
    const tu__node *current = t->top;
    for (;;) {
        if (!add_leaf(t, s, current->inputs[1], current)) return false;
        const tu__node *next = input_of(s, current);
        if (!is_scalar_add(next)) return add_leaf(t, s, current->inputs[0], current);
        if (!is_private(s, next, TU__OP_ADD, current)) return false;
        t->adds[t->add_count++] = next;
        current = next;
    }
}

static const tu__node *find_finite(tu__selection *s, const tu__node *top) {
    const tu__kernel_plan *p = s->plan;
    const tu__plan_value *v = tu__plan_value_of(s, (tu__edge){top->id, 0});
    for (uint32_t i = 0; i < v->reader_count; i++) {
        const tu__node *reader = s->graph->nodes[p->readers[v->first_reader + i]];
        if (reader->op->code == TU__OP_IS_FINITE && tu__can_fuse(s, reader) && !reader->after_count &&
            p->level[reader->id] == p->level[top->id])
            return reader;
    }
    return NULL;
}

static void free_tree(tree *t) {
    tu__free(t->leaves);
    tu__free(t->adds);
}

/* Returns TU_UNSUPPORTED, without a message, if `node` is not a sum of such a tree. The caller must call free_tree in
 * any case. */
static tu_status find_tree(tu__selection *s, const tu__node *node, tree *t) {
    *t = (tree){.top = node->op->code == TU__OP_SUM ? find_top(s, node) : NULL};
    if (!t->top) return TU_UNSUPPORTED;
    uint32_t adds = count_adds(s, t->top);
    t->leaves = tu__alloc_array(adds + 1, sizeof *t->leaves, "a plan");
    t->adds = tu__alloc_array(adds, sizeof *t->adds, "a plan");
    if (!t->leaves || !t->adds) return TU_NO_MEMORY;
    bool matches = match_leaves(t, s), is_part = false;
    for (uint32_t i = 0; matches && i < t->count; i++) is_part |= t->leaves[i].first == node;
    if (is_part) t->finite = find_finite(s, t->top);
    return is_part ? TU_OK : TU_UNSUPPORTED;
}

tu__edge cuda_global_norm_read(tu__selection *s, const tu__node *node, uint32_t index) {
    tree t;
    tu__edge value = node->inputs[index];
    if (find_tree(s, node, &t) == TU_OK)
        for (uint32_t i = 0; i < t.count; i++)
            if (t.leaves[i].first == node) value = t.leaves[i].x;
    free_tree(&t);
    return value;
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

static int64_t elements_of(const tu__kernel *k, const leaf *f) {
    return tu_shape_elements(tu__type_of(k->owner, f->x)->shape);
}

/* Plans all leaves of one type, in as many launches as needed. */
static tu_status plan_type(tu__kernel *k, global_norm_data *d, const tree *t, tu_dtype dtype) {
    int64_t elements = 0;
    launch *l = NULL;
    for (uint32_t i = 0; i < t->count; i++)
        if (tu__type_of(k->owner, t->leaves[i].x)->dtype == dtype) elements += elements_of(k, &t->leaves[i]);
    for (uint32_t i = 0; i < t->count; i++) {
        const leaf *f = &t->leaves[i];
        if (tu__type_of(k->owner, f->x)->dtype != dtype) continue;
        if (!l || l->args.tensors == GLOBAL_NORM_TENSORS) l = new_launch(k, d, dtype, elements);
        if (!l) return TU_NO_MEMORY;
        add_tensor(l, i, elements_of(k, f));
    }
    return TU_OK;
}

static tu_status plan_launches(tu__kernel *k, global_norm_data *d, const tree *t) {
    static const tu_dtype types[] = {TU_F32, TU_BF16, TU_F16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) TU_TRY(plan_type(k, d, t, types[i]));
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

static tu_status fuse_leaf(tu__kernel *k, const leaf *f) {
    for (size_t i = 0; i < sizeof f->chain / sizeof *f->chain; i++)
        if (f->chain[i] && f->chain[i]->id != k->nodes[0]) TU_TRY(fuse_node(k, f->chain[i]));
    if (!f->cast) return TU_OK;
    bool is_only_reader = tu__only_reader(k->owner, (tu__edge){f->cast->id, 0}) == f->chain[3];
    return is_only_reader ? fuse_node(k, f->cast) : tu__kernel_add_node(k, f->cast);
}

/* Covers the fused nodes first: reading inputs may make the selection lower nodes that belong to this kernel. */
static tu_status add_operands(tu__kernel *k, const tree *t) {
    for (uint32_t i = 0; i < t->count; i++) TU_TRY(fuse_leaf(k, &t->leaves[i]));
    for (uint32_t i = 0; i < t->add_count; i++) TU_TRY(fuse_node(k, t->adds[i]));
    TU_TRY(fuse_node(k, t->top));
    if (t->finite) TU_TRY(fuse_node(k, t->finite));
    for (uint32_t i = 0; i < t->count; i++) {
        TU_TRY(tu__kernel_read(k, t->leaves[i].x));
        k->bytes_moved += (int64_t)tu_type_bytes(*tu__type_of(k->owner, t->leaves[i].x));
        k->flops += 2 * elements_of(k, &t->leaves[i]);
    }
    TU_TRY(tu__kernel_write(k, (tu__edge){t->top->id, 0}, -1));
    return t->finite ? tu__kernel_write(k, (tu__edge){t->finite->id, 0}, -1) : TU_OK;
}

static tu_status lower_global_norm(tu__selection *s, const tu__node *node, const tree *t) {
    tu__kernel *k = tu__kernel_new(s, node, "squared norm", run_global_norm);
    global_norm_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    TU_TRY(plan_launches(k, d, t));
    return add_operands(k, t);
}

tu_status cuda_lower_sum(tu__selection *s, const tu__node *node) {
    tree t;
    tu_status status = find_tree(s, node, &t);
    if (status == TU_OK) status = lower_global_norm(s, node, &t);
    free_tree(&t);
    return status == TU_UNSUPPORTED ? cuda_lower_reduce(s, node) : status;
}
