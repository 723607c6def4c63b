/* Writes the program of a cluster as CUDA C.
 *
 * A program computes one pack: `width` consecutive elements along the last axis, so that accesses are 16 bytes wide.
 * Its text depends on the operations, the types and the access patterns of operands, but not on sizes or numbers,
 * which are arguments. Many updates of a network are therefore one program, compiled once.
 *
 * Adjacent axes that all operands traverse alike are merged first. What remains is rarely more than [rows, channels].
 * An operand is dense (like the space: one load), a single number, or accessed by coordinates and strides. Indices
 * are 32-bit and divisions are multiplications, unless the space has 2^31 elements or more.
 *
 *     typedef float C; typedef u32 I; enum { W = 4 };
 *     struct subkernel { const void *address[3]; i64 packs; i64 stride[1]; double number[1]; fast_divmod axis[1]; };
 *     static __device__ inline void run(const subkernel &p, I i) {
 *         pack<f32, W> v0 = ((const pack<f32, W> *)p.address[0])[i];
 *         …
 *         for (int w = 0; w < W; w++) { const C x0 = widen(v0.element[w]); … s0.element[w] = narrow<f32>(m2); }
 *         ((pack<f32, W> *)p.address[2])[i] = s0;
 *     }
 *
 * If a kernel of another operation computes one of the operands, and passes packs of it to the program (product_update.c), the
 * dense loads of a pack are a function of their own, so that the kernel can issue those of several packs before the stores of
 * the first, and earlier ask for them to be in the cache:
 *
 *     struct fetched { pack<f32, W> v1; };
 *     static __device__ inline void prefetch(const subkernel &p, I i) { prefetch_l2(…); }
 *     static __device__ inline void fetch(const subkernel &p, I i, fetched &f) { f.v1 = …; }
 *     static __device__ inline void run(const subkernel &p, I i, const fetched &f, const pack<f32, W> &product) { … }
 */
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "device/cuda/ops/pointwise.h"
#include "graph/walk.h"

typedef struct load {
    tu__edge value;
    tu_type type;
    uint32_t in; /* index in the kernel's reads */
    int64_t stride[TU_MAX_RANK];
    bool dense, single; /* dense: indexed by the pack's number; single: one element for all */
    bool is_product;    /* passed to the program instead of loaded */
} load;

typedef struct writer {
    tu__kernel *k;
    tu__cluster *c;
    cuda_subkernel *subkernel;
    const tu__edge *product; /* the operand that is passed to the program; NULL: none */
    tu__text text;
    tu__text fields, fetch, prefetch; /* of dense loads, if there is a product */
    load loads[CUDA_MAX_LOADS];
    uint32_t load_count;
    int64_t rank, dim[TU_MAX_RANK]; /* of the space, with merged axes */
    int64_t elements;
    bool needs_64_bits;
    /* the subkernel's lists under construction */
    uint32_t address[CUDA_MAX_LOADS + TU__MAX_CLUSTER_NODES], address_count;
    int64_t strides[CUDA_MAX_LOADS * TU_MAX_RANK];
    uint32_t stride_count;
    double numbers[5 * TU__MAX_CLUSTER_NODES];
    uint32_t number_count;
    fast_divmod axes[TU_MAX_RANK];
} writer;

/* ---- Operands ---- */

static uint32_t find_load(const writer *w, tu__edge value) {
    for (uint32_t i = 0; i < w->load_count; i++)
        if (w->loads[i].value.node == value.node && w->loads[i].value.output == value.output) return i;
    return TU__NONE;
}

static tu_status add_load(writer *w, const tu__operand *operand) {
    if (find_load(w, operand->value) != TU__NONE) return TU_OK;
    load *l = &w->loads[w->load_count++];
    *l = (load){.value = operand->value, .type = operand->type, .in = w->k->read_count};
    tu__broadcast_strides(operand->type.shape, w->c->space, l->stride);
    l->is_product = w->product && tu__same_edge(operand->value, *w->product);
    if (l->is_product) return TU_OK;
    return tu__kernel_read(w->k, operand->value);
}

static tu_status find_loads(writer *w) {
    for (uint32_t i = 0; i < w->c->member_count; i++)
        for (uint32_t n = 0; n < w->c->members[i]->input_count; n++) {
            tu__operand operand = tu__classify_operand(w->c, w->c->members[i]->inputs[n]);
            if (operand.kind == TU__LOAD) TU_TRY(add_load(w, &operand));
        }
    return TU_OK;
}

/* ---- The iteration space ---- */

static bool axes_merge(const writer *w, int64_t outer, int64_t inner, int64_t size) {
    for (uint32_t i = 0; i < w->load_count; i++)
        if (w->loads[i].stride[outer] != w->loads[i].stride[inner] * size) return false;
    return true;
}

static void copy_axis_strides(writer *w, int64_t from, int64_t to) {
    for (uint32_t i = 0; i < w->load_count; i++) w->loads[i].stride[to] = w->loads[i].stride[from];
}

/* Merges axes, but not across the border between rows and columns of sums. */
static void merge_axes(writer *w) {
    tu_shape space = w->c->space;
    int64_t remaining = w->elements; /* elements of this and the following axes */
    for (int64_t axis = 0; axis < space.rank; axis++) {
        int64_t size = space.dim[axis];
        if (size == 1) continue;
        bool is_border = w->c->sums != TU__NO_SUMS && remaining == w->c->sum_row;
        remaining /= size;
        if (w->rank && !is_border && axes_merge(w, w->rank - 1, axis, size)) {
            w->dim[w->rank - 1] *= size;
            copy_axis_strides(w, axis, w->rank - 1);
            continue;
        }
        w->dim[w->rank] = size;
        copy_axis_strides(w, axis, w->rank++);
    }
    if (w->rank == 0) {
        w->dim[w->rank++] = 1; /* a scalar */
        for (uint32_t i = 0; i < w->load_count; i++) w->loads[i].stride[0] = 1;
    }
}

static void classify_loads(writer *w) {
    for (uint32_t i = 0; i < w->load_count; i++) {
        load *l = &w->loads[i];
        int64_t step = 1;
        l->dense = l->single = true;
        for (int64_t axis = w->rank - 1; axis >= 0; axis--) {
            if (l->stride[axis] != step) l->dense = false;
            if (l->stride[axis] != 0) l->single = false;
            step *= w->dim[axis];
        }
    }
}

/* Returns the elements of the narrowest type in 16 bytes, at most eight; fewer if that does not divide the last
 * axis. */
static int choose_width(const writer *w) {
    size_t narrowest = 8;
    for (uint32_t i = 0; i < w->load_count; i++) {
        size_t size = tu_dtype_size(w->loads[i].type.dtype);
        if (!w->loads[i].single && size < narrowest) narrowest = size;
    }
    for (uint32_t i = 0; i < w->c->member_count; i++) {
        size_t size = tu_dtype_size(w->c->members[i]->outputs[0].dtype);
        if (w->c->stored[i] && size < narrowest) narrowest = size;
    }
    for (int width = narrowest == 1 ? 8 : (int)(16 / narrowest); width > 1; width /= 2)
        if (w->dim[w->rank - 1] % width == 0) return width;
    return 1;
}

/* ---- Text ---- */

static void write_space(writer *w) {
    tu__text_printf(&w->text, "typedef %s C;\ntypedef %s I;\nenum { W = %d };\n",
                    w->c->wide ? "double" : "float", w->needs_64_bits ? "i64" : "u32", w->subkernel->width);
}

static bool needs_coordinates(const writer *w) {
    for (uint32_t i = 0; i < w->load_count; i++)
        if (!w->loads[i].dense && !w->loads[i].single) return true;
    return false;
}

/* Writes the coordinates c0, c1, … of the pack's first element, innermost first. */
static void write_coordinates(writer *w) {
    if (!needs_coordinates(w)) return;
    tu__text_printf(&w->text, "    I index = i * W;\n");
    for (int64_t axis = w->rank - 1; axis > 0; axis--) {
        if (w->needs_64_bits)
            tu__text_printf(&w->text, "    I c%d = index %% p.axis[%d].value; index /= p.axis[%d].value;\n",
                            (int)axis, (int)axis, (int)axis);
        else
            tu__text_printf(&w->text, "    I c%d = divmod_in_place(index, p.axis[%d]);\n", (int)axis,
                            (int)axis);
        w->axes[axis] = cuda_fast_divmod((uint32_t)w->dim[axis]);
    }
    tu__text_printf(&w->text, "    I c0 = index;\n");
    w->subkernel->axis_count = (uint32_t)w->rank;
}

/* "c0 * p.stride[0] + c1 * p.stride[1]" */
static void write_offset(writer *w, const load *l) {
    bool first = true;
    for (int64_t axis = 0; axis < w->rank; axis++) {
        if (l->stride[axis] == 0) continue;
        tu__text_printf(&w->text, "%s(i64)c%d * p.stride[%u]", first ? "" : " + ", (int)axis,
                        w->stride_count);
        w->strides[w->stride_count++] = l->stride[axis];
        first = false;
    }
}

static void write_fetch(writer *w, uint32_t index, const char *type, uint32_t slot) {
    tu__text_printf(&w->fields, " pack<%s, W> v%u;", type, index);
    tu__text_printf(&w->fetch, " f.v%u = ((const pack<%s, W> *)p.address[%u])[i];", index, type, slot);
    tu__text_printf(&w->prefetch, " prefetch_l2((const pack<%s, W> *)p.address[%u] + i);", type, slot);
    tu__text_printf(&w->text, "    const pack<%s, W> &v%u = f.v%u;\n", type, index, index);
}

static void write_load(writer *w, uint32_t index) {
    load *l = &w->loads[index];
    const char *type = cuda_type(l->type.dtype);
    uint32_t slot = w->address_count;
    if (l->is_product) {
        tu__text_printf(&w->text, "    const pack<%s, W> &v%u = product;\n", type, index);
        return;
    }
    w->address[w->address_count++] = l->in;
    if (w->product && l->dense && !l->single) {
        write_fetch(w, index, type, slot);
    } else if (l->single) {
        tu__text_printf(&w->text, "    const C x%u = (C)widen(*(const %s *)p.address[%u]);\n", index, type,
                        slot);
    } else if (l->dense) {
        tu__text_printf(&w->text, "    const pack<%s, W> v%u = ((const pack<%s, W> *)p.address[%u])[i];\n",
                        type, index, type, slot);
    } else if (l->stride[w->rank - 1] == 0) {
        tu__text_printf(&w->text, "    const C x%u = (C)widen(((const %s *)p.address[%u])[", index, type,
                        slot);
        write_offset(w, l);
        tu__text_printf(&w->text, "]);\n");
    } else {
        tu__text_printf(&w->text,
                        "    const pack<%s, W> v%u = *(const pack<%s, W> *)((const %s *)p.address[%u] + ",
                        type, index, type, type, slot);
        write_offset(w, l);
        tu__text_printf(&w->text, ");\n");
    }
}

static bool is_packed(const writer *w, const load *l) {
    return l->dense ? !l->single : !l->single && l->stride[w->rank - 1] != 0;
}

static void write_loads(writer *w) {
    for (uint32_t i = 0; i < w->load_count; i++) write_load(w, i);
}

static uint32_t add_number(writer *w, double number) {
    w->numbers[w->number_count] = number;
    return w->number_count++;
}

static uint32_t member_index(const writer *w, const tu__node *node) {
    uint32_t i = 0;
    while (i < w->c->member_count && w->c->members[i] != node) i++;
    return i;
}

static void write_operand(writer *w, char name, tu__edge value) {
    tu__operand operand = tu__classify_operand(w->c, value);
    tu__text_printf(&w->text, "const C %c = ", name);
    switch (operand.kind) {
    case TU__NUMBER: tu__text_printf(&w->text, "(C)p.number[%u]; ", add_number(w, operand.number)); break;
    case TU__LOAD: tu__text_printf(&w->text, "x%u; ", find_load(w, operand.value)); break;
    default:
        tu__text_printf(&w->text, "m%u; ", member_index(w, w->c->s->graph->nodes[operand.value.node]));
        break;
    }
}

/* Passes the attributes that expressions call a and b, such as bounds or a slope, as numbers. */
static void write_attributes(writer *w, const tu__node *node) {
    const double *cells = node->attrs;
    for (uint32_t i = 0; i < node->op->attr_count && i < 2; i++)
        if (node->op->attrs[i].kind == TU__ATTR_F64)
            tu__text_printf(&w->text, "const C %c = (C)p.number[%u]; ", "ab"[i], add_number(w, cells[i]));
}

/* Results of comparisons need no rounding, nor do values of the type that is computed in. */
static bool needs_rounding(const writer *w, const tu__node *node) {
    tu_dtype dtype = node->outputs[0].dtype;
    if (dtype == TU_BOOL) return node->op->code == TU__OP_CAST;
    return dtype != (w->c->wide ? TU_F64 : TU_F32);
}

static void write_member(writer *w, uint32_t index) {
    const tu__node *node = w->c->members[index];
    tu__text_printf(&w->text, "        C m%u; { ", index);
    for (uint32_t i = 0; i < node->input_count; i++) write_operand(w, "xyz"[i], node -> inputs[i]);
    write_attributes(w, node);
    tu__text_printf(&w->text, "m%u = (C)(%s); }", index, node->op->expression);
    if (needs_rounding(w, node))
        tu__text_printf(&w->text, " m%u = rounded<%s>(m%u);", index, cuda_type(node->outputs[0].dtype),
                        index);
    tu__text_printf(&w->text, "\n");
}

static void write_elements(writer *w) {
    for (uint32_t i = 0; i < w->c->member_count; i++)
        if (w->c->stored[i])
            tu__text_printf(&w->text, "    pack<%s, W> s%u;\n", cuda_type(w->c->members[i]->outputs[0].dtype),
                            i);
    tu__text_printf(&w->text, "#pragma unroll\n    for (int w = 0; w < W; w++) {\n");
    for (uint32_t i = 0; i < w->load_count; i++)
        if (is_packed(w, &w->loads[i]))
            tu__text_printf(&w->text, "        const C x%u = (C)widen(v%u.element[w]);\n", i, i);
    for (uint32_t i = 0; i < w->c->member_count; i++) write_member(w, i);
    for (uint32_t i = 0; i < w->c->member_count; i++)
        if (w->c->stored[i])
            tu__text_printf(&w->text, "        s%u.element[w] = narrow<%s>(m%u);\n", i,
                            cuda_type(w->c->members[i]->outputs[0].dtype), i);
    for (uint32_t i = 0; i < w->c->sum_count; i++)
        tu__text_printf(&w->text, "        sum[%u][w] += m%u;\n", i, w->c->sum_members[i]);
    tu__text_printf(&w->text, "    }\n");
}

/* ---- Stores ---- */

/* Returns the read whose memory a result may reuse, or -1: dense, of the same element size, preferably the variable
 * it is assigned to. A pack is read completely before it is written. */
static int find_reusable_read(const writer *w, const tu__node *node, bool *reused) {
    size_t size = tu_dtype_size(node->outputs[0].dtype);
    uint32_t variable = w->c->s->plan->assigned[node->id], chosen = TU__NONE;
    for (uint32_t i = 0; i < w->load_count; i++) {
        const load *l = &w->loads[i];
        bool is_variable = l->value.node == variable;
        if (!l->dense || l->is_product || reused[i] || tu_dtype_size(l->type.dtype) != size ||
            (chosen != TU__NONE && !is_variable))
            continue;
        chosen = i;
    }
    if (chosen == TU__NONE) return -1;
    reused[chosen] = true;
    return (int)w->loads[chosen].in;
}

static tu_status write_stores(writer *w) {
    bool reused[CUDA_MAX_LOADS] = {false};
    for (uint32_t i = 0; i < w->c->member_count; i++) {
        const tu__node *node = w->c->members[i];
        if (!w->c->stored[i]) continue;
        tu__text_printf(&w->text, "    ((pack<%s, W> *)p.address[%u])[i] = s%u;\n",
                        cuda_type(node->outputs[0].dtype), w->address_count, i);
        w->address[w->address_count++] = CUDA_WRITE + w->k->write_count;
        TU_TRY(tu__kernel_write(w->k, (tu__edge){node->id, 0}, find_reusable_read(w, node, reused)));
    }
    return TU_OK;
}

static tu_status list_sums(writer *w) {
    tu__cluster *c = w->c;
    cuda_subkernel *subkernel = w->subkernel;
    subkernel->sums = c->sums;
    subkernel->row = c->sum_row;
    subkernel->groups = c->sum_count ? c->sum_groups : 1;
    subkernel->rows = c->sum_count ? w->elements / c->sum_row / c->sum_groups : 0;
    for (uint32_t i = 0; i < c->sum_count; i++) {
        const tu__node *node = c->sum_nodes[i];
        int64_t results = tu_shape_elements(node->outputs[0].shape);
        subkernel->sum[i] =
            (cuda_sum){.out = w->k->write_count,
                       .dtype = node->outputs[0].dtype,
                       .divisor = node->op->code == TU__OP_MEAN ? (double)w->elements / (double)results : 1};
        TU_TRY(tu__kernel_write(w->k, (tu__edge){node->id, 0}, -1));
    }
    subkernel->sum_count = c->sum_count;
    return TU_OK;
}

/* ---- The whole program ---- */

static uint32_t at_least_one(uint32_t count) {
    return count ? count : 1;
}

static void write_declarations(tu__text *text, const writer *w) {
    tu__text_printf(text,
                    "struct subkernel { void *address[%u]; i64 packs; i64 stride[%u]; double number[%u]; "
                    "fast_divmod axis[%u]; };\n",
                    at_least_one(w->address_count), at_least_one(w->stride_count),
                    at_least_one(w->number_count), at_least_one(w->subkernel->axis_count));
    if (w->product)
        tu__text_printf(text,
                        "struct fetched {%s };\n"
                        "static __device__ inline void prefetch(const subkernel &p, I i) {%s }\n"
                        "static __device__ inline void fetch(const subkernel &p, I i, fetched &f) {%s }\n",
                        tu__text_string(&w->fields), tu__text_string(&w->prefetch),
                        tu__text_string(&w->fetch));
    tu__text_printf(text, "static __device__ inline void run(const subkernel &p, I i");
    if (w->product) tu__text_printf(text, ", const fetched &f, const pack<f32, W> &product");
    if (w->c->sum_count) tu__text_printf(text, ", C (&sum)[%u][W]", w->c->sum_count);
    tu__text_printf(text, ") {\n");
}

static tu_status store_lists(writer *w, const tu__text *program) {
    tu__arena *arena = &w->c->s->arena;
    cuda_subkernel *subkernel = w->subkernel;
    subkernel->body = program->failed ? NULL : tu__arena_string(arena, tu__text_string(program));
    subkernel->address_count = w->address_count;
    subkernel->stride_count = w->stride_count;
    subkernel->number_count = w->number_count;
    subkernel->address = tu__arena_copy(arena, w->address, sizeof w->address);
    subkernel->strides = tu__arena_copy(arena, w->strides, (w->stride_count + 1) * sizeof *w->strides);
    subkernel->numbers = tu__arena_copy(arena, w->numbers, (w->number_count + 1) * sizeof *w->numbers);
    subkernel->axes = tu__arena_copy(arena, w->axes, sizeof w->axes);
    return subkernel->body && subkernel->address && subkernel->strides && subkernel->numbers &&
                   subkernel->axes
               ? TU_OK
               : TU_NO_MEMORY;
}

static tu_status write_program(writer *w) {
    TU_TRY(find_loads(w));
    merge_axes(w);
    classify_loads(w);
    w->subkernel->width = choose_width(w);
    w->subkernel->packs = w->elements / w->subkernel->width;
    write_coordinates(w);
    write_loads(w);
    write_elements(w);
    TU_TRY(write_stores(w));
    TU_TRY(list_sums(w));
    tu__text_printf(&w->text, "}\n");
    tu__text body = w->text, program = {0};
    w->text = (tu__text){0};
    write_space(w);
    tu__text_append(&program, tu__text_string(&w->text), w->text.length);
    write_declarations(&program, w);
    tu__text_append(&program, tu__text_string(&body), body.length);
    if (body.failed || w->fields.failed || w->fetch.failed || w->prefetch.failed) program.failed = true;
    tu_status status = store_lists(w, &program);
    tu__text_free(&body);
    tu__text_free(&program);
    return status;
}

tu_status cuda_write_program(tu__kernel *k, tu__cluster *c, const tu__edge *product,
                             cuda_subkernel *subkernel) {
    writer *w = tu__alloc(sizeof *w, "a fused kernel");
    if (!w) return TU_NO_MEMORY;
    w->product = product;
    *subkernel = (cuda_subkernel){.wide = c->wide};
    w->k = k;
    w->c = c;
    w->subkernel = subkernel;
    w->elements = tu_shape_elements(c->space);
    w->needs_64_bits = w->elements >= INT32_MAX;
    tu_status status = write_program(w);
    tu__text_free(&w->text);
    tu__text_free(&w->fields);
    tu__text_free(&w->fetch);
    tu__text_free(&w->prefetch);
    tu__free(w);
    return status;
}
