/* Fusion: decides which pointwise nodes become one kernel.
 *
 * A cluster starts at a node whose value is needed, its root, and grows backwards over the pending nodes that it
 * depends on, if they have the same shape, computing type and level (see select.c for levels). Casts, constants and
 * broadcasts are fused too: a constant is a number in the kernel, a broadcast operand is read with repeated indices.
 * Pending nodes of another shape, for example a scale of [channels] for an image, are obstacles: they are computed
 * first by another kernel, and then the cluster is built again. So no cluster depends on itself.
 *
 * A member that other nodes read too is stored, unless these are pending pointwise nodes and recomputing it costs no
 * more memory traffic than reading it: then it stays pending.
 *
 * Exports, typically the new values of all parameters, are fused horizontally into one kernel with many subkernels,
 * so that a hundred small tensors cost one parallel loop. A subkernel must not depend on values that its own kernel
 * writes; such a subkernel starts the next kernel. So do values of another collective: it would otherwise wait for all
 * others, such as gradients that are rounded to bf16 before they are sent. A device may instead compute a subkernel in the
 * kernel of an operand that nothing else reads.
 *
 * f32, bf16, f16, u8 and bool are computed in f32, where their values are exact; f64, i32 and i64 in f64. This is
 * decided per node and does not depend on the fusion, so fusion does not change the bits of results. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/text.h"
#include "device/kit/fusion.h"
#include "graph/collective.h"

/* ---- Operands ---- */

static bool needs_f64(tu_dtype dtype) {
    return dtype == TU_F64 || dtype == TU_I32 || dtype == TU_I64;
}

static bool computes_in_f64(const tu__selection *s, const tu__node *node) {
    bool wide = needs_f64(node->outputs[0].dtype);
    for (uint32_t i = 0; i < node->input_count; i++)
        wide |= needs_f64(tu__type_of(s, node->inputs[i])->dtype);
    return wide;
}

static bool can_join_cluster(const tu__cluster *c, const tu__node *node) {
    const tu__kernel_plan *p = c->s->plan;
    return tu_shape_equal(node->outputs[0].shape, c->space) && computes_in_f64(c->s, node) == c->wide &&
           p->level[node->id] == c->level;
}

static tu__operand load_operand(const tu__cluster *c, tu__edge value) {
    return (tu__operand){.kind = TU__LOAD, .value = value, .type = *tu__type_of(c->s, value)};
}

static tu__operand constant_operand(const tu__node *fill) {
    double number = tu__round_to(fill->outputs[0].dtype, tu__attrs(fill, fill)->number);
    return (tu__operand){.kind = TU__NUMBER, .number = number};
}

/* Classifies a pending node: a member, or an obstacle. */
static tu__operand pending_operand(const tu__cluster *c, tu__edge value) {
    const tu__node *node = c->s->graph->nodes[value.node];
    bool member = (node->op->traits & TU__POINTWISE) && can_join_cluster(c, node) &&
                  c->reserved < TU__MAX_CLUSTER_NODES;
    return (tu__operand){.kind = member ? TU__MEMBER : TU__OBSTACLE, .value = value};
}

tu__operand tu__classify_operand(tu__cluster *c, tu__edge value) {
    const tu__kernel_plan *p = c->s->plan;
    for (;;) {
        const tu__node *node = c->s->graph->nodes[value.node];
        if (p->state[node->id] == TU__OUTSIDE) return load_operand(c, value);
        if (node->op->code == TU__OP_FILL) return constant_operand(node);
        bool keeps_shape = node->input_count &&
                           tu_shape_equal(node->outputs[0].shape, tu__type_of(c->s, node->inputs[0])->shape);
        if (p->state[node->id] == TU__PENDING && node->op->code == TU__OP_BROADCAST)
            value = node->inputs[0];
        else if ((node->op->traits & TU__VIEW) && keeps_shape)
            value = node->inputs[0];
        else
            break;
    }
    tu__edge root = tu__root_of(c->s, value); /* through views of other shapes */
    const tu__node *source = c->s->graph->nodes[root.node];
    bool view = root.node != value.node;
    if (!view && p->mark[source->id] == c->id) return (tu__operand){.kind = TU__MEMBER, .value = value};
    if (p->state[source->id] != TU__PENDING) return load_operand(c, value);
    if (source->op->code == TU__OP_FILL) return constant_operand(source);
    return view ? (tu__operand){.kind = TU__OBSTACLE, .value = root} : pending_operand(c, value);
}

/* ---- Building a cluster ---- */

static void add_members(tu__cluster *c, const tu__node *node) {
    tu__kernel_plan *p = c->s->plan;
    if (c->blocked || p->mark[node->id] == c->id) return;
    p->mark[node->id] = c->id;
    c->reserved++;
    for (uint32_t i = 0; i < node->input_count && !c->blocked; i++) {
        tu__operand operand = tu__classify_operand(c, node->inputs[i]);
        if (operand.kind == TU__MEMBER) add_members(c, c->s->graph->nodes[operand.value.node]);
        if (operand.kind == TU__OBSTACLE) {
            c->blocked = true;
            c->obstacle = operand.value;
        }
    }
    if (!c->blocked) c->members[c->member_count++] = node;
}

/* Builds the cluster of `root`. Computes obstacles first, until there is none. */
static tu_status build_cluster(tu__selection *s, const tu__node *root, tu__cluster *c) {
    tu__kernel_plan *p = s->plan;
    do {
        *c = (tu__cluster){.s = s,
                           .id = ++p->cluster_count,
                           .space = root->outputs[0].shape,
                           .wide = computes_in_f64(s, root),
                           .level = p->level[root->id]};
        add_members(c, root);
        if (c->blocked) TU_TRY(tu__require(s, c->obstacle));
    } while (c->blocked);
    return TU_OK;
}

/* ---- Stored values ---- */

/* True if the node is cheap to recompute: one cheap operation with at most one large operand, none larger than the
 * result. */
static bool is_cheap(tu__cluster *c, const tu__node *node) {
    size_t bytes = tu_type_bytes(node->outputs[0]), large = 0;
    for (uint32_t i = 0; i < node->input_count; i++) {
        tu__operand operand = tu__classify_operand(c, node->inputs[i]);
        if (operand.kind == TU__MEMBER) return false;
        if (operand.kind != TU__LOAD) continue;
        size_t operand_bytes = tu_type_bytes(operand.type);
        if (operand_bytes > bytes) return false;
        if (8 * operand_bytes > bytes) large++;
    }
    return (node->op->traits & TU__CHEAP) && large <= 1;
}

typedef enum reader_kind { NO_READER, FUSABLE_READER, OTHER_READER } reader_kind;

static reader_kind max_kind(reader_kind a, reader_kind b) {
    return a > b ? a : b;
}

static bool is_fused_sum(const tu__cluster *c, const tu__node *node) {
    for (uint32_t i = 0; i < c->sum_count; i++)
        if (c->sum_nodes[i] == node) return true;
    return false;
}

/* Classifies the readers of a value outside the cluster; looks through views and broadcasts. */
static reader_kind classify_outside_readers(tu__cluster *c, tu__edge value) {
    tu__kernel_plan *p = c->s->plan;
    const tu__plan_value *v = tu__plan_value_of(c->s, value);
    reader_kind result = v->exported ? OTHER_READER : NO_READER;
    for (uint32_t i = 0; i < v->reader_count && result != OTHER_READER; i++) {
        const tu__node *reader = c->s->graph->nodes[p->readers[v->first_reader + i]];
        if (p->mark[reader->id] == c->id || is_fused_sum(c, reader)) continue;
        bool keeps_shape = tu_shape_equal(reader->outputs[0].shape, c->space);
        if (reader->op->traits & TU__VIEW)
            result = keeps_shape ? max_kind(result, classify_outside_readers(c, (tu__edge){reader->id, 0}))
                                 : OTHER_READER;
        else if (p->state[reader->id] == TU__DONE)
            continue; /* the reader recomputed the value */
        else if ((reader->op->traits & TU__POINTWISE) && can_join_cluster(c, reader))
            result = max_kind(result, FUSABLE_READER);
        else
            result = OTHER_READER;
    }
    return result;
}

static bool is_root(const tu__cluster *c, uint32_t member) {
    return member + 1 == c->member_count;
}

/* Stores the root, unless only a sum of this cluster needs it, and all members that other kernels read. */
static void choose_stored_members(tu__cluster *c, const tu__node *required_by) {
    tu__kernel_plan *p = c->s->plan;
    for (uint32_t i = 0; i < c->member_count; i++) {
        const tu__node *node = c->members[i];
        reader_kind readers = classify_outside_readers(c, (tu__edge){node->id, 0});
        bool is_required = is_root(c, i) && !(required_by && is_fused_sum(c, required_by));
        bool recompute = readers == FUSABLE_READER && !is_required && is_cheap(c, node);
        c->stored[i] = is_required || readers == OTHER_READER || (readers == FUSABLE_READER && !recompute);
        if (!recompute) p->state[node->id] = TU__DONE;
    }
    for (uint32_t i = 0; i < c->sum_count; i++) {
        c->summed[c->sum_members[i]] = !c->stored[c->sum_members[i]];
        p->state[c->sum_nodes[i]->id] = TU__DONE;
    }
}

/* ---- Sums at the end of a cluster ---- */

/* Computes the sizes around the reduced axes; false if these are not adjacent. */
static bool sum_form_of(tu_shape shape, int64_t axes, tu__sum_form *f) {
    *f = (tu__sum_form){1, 1, 1};
    bool inside = false, after = false;
    for (int64_t i = 0; i < shape.rank; i++) {
        if (shape.dim[i] == 1) continue;
        bool reduced = axes >> i & 1;
        if (reduced && after) return false;
        inside |= reduced;
        after |= inside && !reduced;
        *(reduced ? &f->reduced : inside ? &f->inner : &f->outer) *= shape.dim[i];
    }
    return f->reduced > 1;
}

static bool is_sum(const tu__node *node) {
    return node->op->code == TU__OP_SUM || node->op->code == TU__OP_MEAN;
}

static void try_add_sum(tu__cluster *c, uint32_t member, const tu__node *node) {
    const tu__kernel_plan *p = c->s->plan;
    bool is_unlowered = p->state[node->id] == TU__WAITING || p->state[node->id] == TU__BUSY;
    tu__sum_form f;
    if (!is_unlowered || !is_sum(node) || c->sum_count == TU__MAX_SUMS) return;
    if (p->level[node->id] != c->level) return; /* it depends on other devices' values */
    if (!sum_form_of(c->space, tu__attrs(node, sum)->axes, &f)) return; /* mean has the attributes of sum */
    bool splits_rows = false;
    tu__sum_kind kind = c->s->selector->sum_kind_of(c, c->members[member]->outputs[0].dtype, f, &splits_rows);
    int64_t row = kind == TU__ROW_SUMS ? f.reduced : f.inner, groups = kind == TU__ROW_SUMS ? 1 : f.outer;
    bool is_alike = kind == c->sums && row == c->sum_row && groups == c->sum_groups;
    if (kind == TU__NO_SUMS || (c->sum_count && !is_alike)) return;
    c->sums = kind;
    c->splits_rows = splits_rows;
    c->sum_row = row;
    c->sum_groups = groups;
    c->sum_nodes[c->sum_count] = node;
    c->sum_members[c->sum_count++] = member;
}

static void find_sums(tu__cluster *c) {
    const tu__kernel_plan *p = c->s->plan;
    for (uint32_t i = 0; i < c->member_count && c->s->selector->sum_kind_of; i++) {
        const tu__plan_value *v = tu__plan_value_of(c->s, (tu__edge){c->members[i]->id, 0});
        for (uint32_t r = 0; r < v->reader_count; r++)
            try_add_sum(c, i, c->s->graph->nodes[p->readers[v->first_reader + r]]);
    }
}

/* ---- Kernels ---- */

/* Returns "sub+mul+add": the operations in order, truncated after 48 characters. */
static const char *kernel_name(tu__selection *s, const tu__cluster *c, uint32_t subkernels) {
    enum { MAX_NAME = 48 };
    tu__text text = {0};
    if (subkernels > 1) tu__text_printf(&text, "%u x ", subkernels);
    for (uint32_t i = 0; i < c->member_count && text.length < MAX_NAME; i++)
        tu__text_printf(&text, "%s%s", i ? "+" : "", c->members[i]->op->name);
    if (text.length >= MAX_NAME) tu__text_printf(&text, "+...");
    for (uint32_t i = 0; i < c->sum_count; i++) tu__text_printf(&text, "+%s", c->sum_nodes[i]->op->name);
    const char *name = text.failed ? NULL : tu__arena_string(&s->arena, tu__text_string(&text));
    tu__text_free(&text);
    return name;
}

static tu_status cover_members(tu__kernel *k, const tu__cluster *c, uint32_t from) {
    for (uint32_t i = from; i < c->member_count; i++) TU_TRY(tu__kernel_add_node(k, c->members[i]));
    for (uint32_t i = 0; i < c->sum_count; i++) TU_TRY(tu__kernel_add_node(k, c->sum_nodes[i]));
    return TU_OK;
}

static tu__kernel *new_kernel(tu__selection *s, const tu__cluster *c) {
    tu__kernel *k = tu__kernel_new(s, c->members[0], "pointwise", s->selector->run_pointwise);
    return k && cover_members(k, c, 1) == TU_OK ? k : NULL;
}

static tu_status fuse_one(tu__selection *s, const tu__node *node) {
    tu__cluster c;
    const tu__node *required_by = s->plan->required_by;
    s->plan->required_by = NULL; /* obstacles are not needed by that node */
    TU_TRY(build_cluster(s, node, &c));
    find_sums(&c);
    choose_stored_members(&c, required_by);
    tu__kernel *k = new_kernel(s, &c);
    void *subkernel = tu__arena_alloc(&s->arena, s->selector->subkernel_bytes);
    if (!k || !subkernel) return TU_NO_MEMORY;
    TU_TRY(s->selector->make_subkernel(k, &c, subkernel));
    k->name = kernel_name(s, &c, 1);
    return k->name ? s->selector->finish_subkernels(k, 1, subkernel) : TU_NO_MEMORY;
}

/* ---- Kernels with several subkernels ---- */

typedef struct multi_kernel {
    tu__selection *s;
    tu__kernel *k; /* NULL: not started */
    uint32_t level, first_kernel;
    uint32_t collective; /* that its exports are for: see export_root */
    char *subkernels;    /* of selector->subkernel_bytes each */
    uint32_t count, capacity;
} multi_kernel;

static bool reads_any(const tu__kernel *k, const bool *buffers) {
    for (uint32_t i = 0; i < k->read_count; i++)
        if (buffers[k->reads[i]]) return true;
    return false;
}

/* Marks the buffers that the kernel writes, and those computed from them. */
static void mark_dependent_buffers(const multi_kernel *j, bool *is_dependent) {
    const tu__kernel_plan *p = j->s->plan;
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t i = j->first_kernel; i < p->kernel_count; i++) {
            const tu__kernel *k = p->kernels[i];
            bool depends = k == j->k || reads_any(k, is_dependent);
            for (uint32_t w = 0; w < k->write_count && depends; w++) {
                changed |= !is_dependent[k->writes[w]];
                is_dependent[k->writes[w]] = true;
            }
        }
    }
}

/* Sets `*depends` if an operand of the cluster is written by the kernel or computed from its results. */
static tu_status depends_on_kernel(const multi_kernel *j, tu__cluster *c, bool *depends) {
    tu__kernel_plan *p = j->s->plan;
    *depends = false;
    bool *is_dependent = tu__alloc_array(p->buffer_count + 1, sizeof *is_dependent, "a plan");
    if (!is_dependent) return TU_NO_MEMORY;
    mark_dependent_buffers(j, is_dependent);
    for (uint32_t i = 0; i < c->member_count; i++)
        for (uint32_t k = 0; k < c->members[i]->input_count; k++) {
            tu__operand operand = tu__classify_operand(c, c->members[i]->inputs[k]);
            if (operand.kind != TU__LOAD) continue;
            const tu__plan_value *v = tu__plan_value_of(j->s, tu__root_of(j->s, operand.value));
            if (v->dense != TU__NONE && is_dependent[v->dense]) *depends = true;
        }
    tu__free(is_dependent);
    return TU_OK;
}

static tu_status finish_multi_kernel(multi_kernel *j, const tu__cluster *last) {
    if (!j->k) return TU_OK;
    void *subkernels =
        tu__arena_copy(&j->s->arena, j->subkernels, j->count * j->s->selector->subkernel_bytes);
    j->k->name = kernel_name(j->s, last, j->count);
    if (!subkernels || !j->k->name) return TU_NO_MEMORY;
    tu_status status = j->s->selector->finish_subkernels(j->k, j->count, subkernels);
    j->k = NULL;
    j->count = 0;
    return status;
}

static tu_status add_subkernel(multi_kernel *j, tu__cluster *c) {
    size_t subkernel_bytes = j->s->selector->subkernel_bytes;
    if (j->count == j->capacity) {
        uint32_t capacity = j->capacity ? 2 * j->capacity : 16;
        char *grown = tu__realloc(j->subkernels, capacity * subkernel_bytes, "a plan");
        if (!grown) return TU_NO_MEMORY;
        j->subkernels = grown;
        j->capacity = capacity;
    }
    if (!j->k) {
        j->first_kernel = j->s->plan->kernel_count;
        j->level = c->level;
        j->k = new_kernel(j->s, c);
        if (!j->k) return TU_NO_MEMORY;
    } else {
        TU_TRY(cover_members(j->k, c, 0));
    }
    return j->s->selector->make_subkernel(j->k, c, j->subkernels + subkernel_bytes * j->count++);
}

/* ---- Clusters in the kernel of an operand ---- */

/* True if only members of the cluster, which no other cluster computes again, read a value of the cluster's shape and level. */
static bool is_read_only_by_cluster(const tu__cluster *c, tu__edge value) {
    const tu__kernel_plan *p = c->s->plan;
    const tu__plan_value *v = tu__plan_value_of(c->s, value);
    const tu__node *node = c->s->graph->nodes[value.node];
    bool is_only = p->state[node->id] == TU__DONE && v->dense != TU__NONE && !v->exported &&
                   !node->after_count && p->level[node->id] == c->level &&
                   tu_shape_equal(tu__type_of(c->s, value)->shape, c->space);
    for (uint32_t i = 0; i < v->reader_count && is_only; i++)
        is_only = p->mark[p->readers[v->first_reader + i]] == c->id &&
                  p->state[p->readers[v->first_reader + i]] == TU__DONE;
    return is_only;
}

static tu__kernel *writer_of(const tu__kernel_plan *p, uint32_t buffer) {
    for (uint32_t i = 0; i < p->kernel_count; i++)
        for (uint32_t w = 0; w < p->kernels[i]->write_count; w++)
            if (p->kernels[i]->writes[w] == buffer) return p->kernels[i];
    return NULL;
}

static tu_status fuse_into_kernel_of(tu__cluster *c, tu__edge operand, bool *fused) {
    tu__selection *s = c->s;
    tu__kernel *k = writer_of(s->plan, tu__plan_value_of(s, operand)->dense);
    if (!k) return TU_OK;
    TU_TRY(s->selector->fuse_into_kernel(k, c, operand, fused));
    if (!*fused) return TU_OK;
    const char *cluster = kernel_name(s, c, 1);
    tu__text text = {0};
    tu__text_printf(&text, "%s+%s", s->graph->nodes[operand.node]->op->name, cluster ? cluster : "");
    k->name = text.failed ? NULL : tu__arena_string(&s->arena, tu__text_string(&text));
    tu__text_free(&text);
    return k->name ? cover_members(k, c, 0) : TU_NO_MEMORY;
}

/* Lets the kernel of an operand that nothing else reads compute the cluster: the operand is then neither written nor read. An
 * example is the update of a parameter, and the product that computes its gradient. Devices do so in stacks only, whose parameters
 * are large. */
static tu_status fuse_into_producer(tu__cluster *c, bool *fused) {
    bool may_fuse = c->s->selector->fuse_into_kernel && c->s->graph->members;
    *fused = false;
    for (uint32_t i = 0; i < c->member_count && may_fuse; i++)
        for (uint32_t n = 0; n < c->members[i]->input_count && !*fused; n++) {
            tu__operand operand = tu__classify_operand(c, c->members[i]->inputs[n]);
            if (operand.kind == TU__LOAD && is_read_only_by_cluster(c, operand.value))
                TU_TRY(fuse_into_kernel_of(c, operand.value, fused));
        }
    return TU_OK;
}

static tu_status add_cluster(multi_kernel *j, const tu__node *node, uint32_t collective,
                             tu__cluster *previous) {
    tu__cluster c;
    TU_TRY(build_cluster(j->s, node, &c));
    bool depends = false;
    if (j->k) TU_TRY(depends_on_kernel(j, &c, &depends));
    if (j->k && (depends || c.level != j->level || collective != j->collective))
        TU_TRY(finish_multi_kernel(j, previous));
    j->collective = collective;
    choose_stored_members(&c, NULL);
    bool fused;
    TU_TRY(fuse_into_producer(&c, &fused));
    if (fused) return TU_OK; /* that kernel depends on no result of this one */
    TU_TRY(add_subkernel(j, &c));
    *previous = c;
    return TU_OK;
}

/* ---- Casts of leaves ---- */

/* True if the result of a cast will be needed in memory: a node that is not pointwise reads it, or it is small like
 * a bias, which becomes part of a matmul's epilogue although an addition reads it. */
static bool needs_buffer(const tu__selection *s, const tu__node *node) {
    enum { SMALL = 4096 };
    if (tu_shape_elements(node->outputs[0].shape) <= SMALL) return true;
    const tu__plan_value *v = tu__plan_value_of((tu__selection *)s, (tu__edge){node->id, 0});
    for (uint32_t i = 0; i < v->reader_count; i++) {
        const tu__node *reader = s->graph->nodes[s->plan->readers[v->first_reader + i]];
        bool is_view = reader->op->traits & TU__VIEW;
        if (is_view && s->graph->members && needs_buffer(s, reader))
            return true; /* images or filters of a stack */
        if (!(reader->op->traits & TU__POINTWISE) && !is_view && reader->op->code != TU__OP_BROADCAST)
            return true;
    }
    return v->exported;
}

/* True for a cast whose input is in memory from the start. */
static bool is_leaf_cast(const tu__selection *s, const tu__node *node) {
    const tu__kernel_plan *p = s->plan;
    return node->op->code == TU__OP_CAST &&
           (p->state[node->id] == TU__WAITING || p->state[node->id] == TU__PENDING) &&
           p->state[tu__root_of(s, node->inputs[0]).node] == TU__OUTSIDE && needs_buffer(s, node);
}

/* Fuses the casts of many small tensors, mostly parameters, into one kernel. */
static tu_status fuse_leaf_casts(tu__selection *s, uint32_t level) {
    tu__kernel_plan *p = s->plan;
    multi_kernel j = {.s = s};
    tu__cluster previous = {0};
    tu_status status = TU_OK;
    for (uint32_t i = 0; i < p->partition->node_count && status == TU_OK; i++) {
        const tu__node *node = s->graph->nodes[p->partition->nodes[i]];
        if (!is_leaf_cast(s, node) || p->level[node->id] != level) continue;
        p->state[node->id] = TU__PENDING;
        status = add_cluster(&j, node, 0, &previous);
    }
    if (status == TU_OK) status = finish_multi_kernel(&j, &previous);
    tu__free(j.subkernels);
    return status;
}

tu_status tu__fuse(tu__selection *s, const tu__node *node) {
    if (s->selector->fuses_leaf_casts && is_leaf_cast(s, node))
        return fuse_leaf_casts(s, s->plan->level[node->id]);
    return fuse_one(s, node);
}

/* ---- Exports ---- */

typedef struct export_root {
    uint32_t level, node;
    uint32_t collective; /* that reads it: its id + 1; 0: none */
} export_root;

/* Sets the collectives that read the exports. */
static tu_status find_collectives(const tu__selection *s, uint32_t count, export_root *list) {
    const tu_graph *g = s->graph;
    uint32_t *collective = tu__alloc_array(g->node_count, sizeof *collective, "a plan");
    if (!collective) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < g->node_count; i++) {
        const tu__node *node = g->nodes[i];
        if (node->op->traits & TU__COLLECTIVE)
            collective[tu__root_of(s, node->inputs[0]).node] =
                (uint32_t)tu__collective_of(node).collective + 1;
    }
    for (uint32_t i = 0; i < count; i++) list[i].collective = collective[list[i].node];
    tu__free(collective);
    return TU_OK;
}

/* Sorts by level, later nodes first: so an export that another one depends on becomes a member of its subkernel. */
static int compare_export_roots(const void *a, const void *b) {
    const export_root *x = a, *y = b;
    if (x->level != y->level) return x->level < y->level ? -1 : 1;
    return (x->node < y->node) - (x->node > y->node);
}

static tu_status add_all_exports(multi_kernel *j, uint32_t count, const export_root *list) {
    const tu__kernel_plan *p = j->s->plan;
    tu__cluster previous = {0};
    for (uint32_t i = 0; i < count; i++) {
        const tu__node *node = j->s->graph->nodes[list[i].node];
        if (p->state[node->id] == TU__PENDING && (node->op->traits & TU__POINTWISE))
            TU_TRY(add_cluster(j, node, list[i].collective, &previous));
    }
    return finish_multi_kernel(j, &previous);
}

tu_status tu__fuse_exports(tu__selection *s) {
    tu__kernel_plan *p = s->plan;
    uint32_t count = p->partition->export_count;
    export_root *list = tu__alloc_array(count + 1, sizeof *list, "a plan");
    if (!list) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t node = tu__root_of(s, p->partition->exports[i]).node;
        list[i] = (export_root){.level = p->level[node], .node = node};
    }
    qsort(list, count, sizeof *list, compare_export_roots);
    multi_kernel j = {.s = s};
    tu_status status = find_collectives(s, count, list);
    if (status == TU_OK) status = add_all_exports(&j, count, list);
    tu__free(j.subkernels);
    tu__free(list);
    return status;
}
