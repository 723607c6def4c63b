/* Fusion: which pointwise nodes become one kernel.
 *
 * A cluster grows from a node whose value is wanted, its root, back over the pending nodes it stands on: those of the
 * same space of elements, computing type and level (select.c says what a level is). Casts, constants and broadcasts on
 * the way are no obstacle: a constant is a number in the program, a broadcast operand is read as often as it repeats.
 * Pepilogue nodes of another space, say a scale of [channels] under an image, are computed first by a kernel of their
 * own, and the cluster is gathered again: hence no cluster ever waits for itself.
 *
 * A member that others read too is stored along the way, unless those others are pointwise nodes still pending and
 * computing it again costs no more memory traffic than reading it would: then it stays pending.
 *
 * What only the outside waits for at the end, typically the new values of all parameters, is joined into one kernel of
 * many pieces, so that a hundred small tensors cost one parallel loop. A piece must not read what its own kernel
 * writes, nor what was computed from that; such a piece begins the next kernel.
 *
 * f32, bf16, f16, u8 and bool are computed in f32, where their values are exact; f64, i32 and i64 in f64. The choice is
 * made node by node and does not depend on what it is fused with, and neither do the bits of any result. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/text.h"
#include "device/fusion.h"

/* ---- What a value is to a cluster ---- */

static bool needs_wide(tu_dtype dtype) {
    return dtype == TU_F64 || dtype == TU_I32 || dtype == TU_I64;
}

static bool is_wide(const tu__selection *s, const tu__node *node) {
    bool wide = needs_wide(node->outputs[0].dtype);
    for (uint32_t i = 0; i < node->input_count; i++)
        wide |= needs_wide(tu__type_of(s, node->inputs[i])->dtype);
    return wide;
}

static bool may_join(const tu__cluster *c, const tu__node *node) {
    const tu__kernel_plan *p = c->s->plan;
    return tu_shape_equal(node->outputs[0].shape, c->space) && is_wide(c->s, node) == c->wide &&
           p->level[node->id] == c->level;
}

static tu__operand load_of(const tu__cluster *c, tu__edge value) {
    return (tu__operand){.kind = TU__LOAD, .value = value, .type = *tu__type_of(c->s, value)};
}

static tu__operand number_of(const tu__node *fill) {
    double number = tu__round_to(fill->outputs[0].dtype, tu__attrs(fill, fill)->number);
    return (tu__operand){.kind = TU__NUMBER, .number = number};
}

/* A pending node: a member, or something to be computed first. */
static tu__operand pending_operand(const tu__cluster *c, tu__edge value) {
    const tu__node *node = c->s->graph->nodes[value.node];
    bool member =
        (node->op->traits & TU__POINTWISE) && may_join(c, node) && c->reserved < TU__MAX_CLUSTER_NODES;
    return (tu__operand){.kind = member ? TU__MEMBER : TU__OBSTACLE, .value = value};
}

tu__operand tu__resolve(tu__cluster *c, tu__edge value) {
    const tu__kernel_plan *p = c->s->plan;
    for (;;) {
        const tu__node *node = c->s->graph->nodes[value.node];
        if (p->state[node->id] == TU__OUTSIDE) return load_of(c, value);
        if (node->op->code == TU__OP_FILL) return number_of(node);
        bool same = node->input_count &&
                    tu_shape_equal(node->outputs[0].shape, tu__type_of(c->s, node->inputs[0])->shape);
        if (p->state[node->id] == TU__PENDING && node->op->code == TU__OP_BROADCAST)
            value = node->inputs[0];
        else if ((node->op->traits & TU__VIEW) && same)
            value = node->inputs[0];
        else
            break;
    }
    tu__edge root = tu__root_of(c->s, value); /* through views of other shapes */
    const tu__node *source = c->s->graph->nodes[root.node];
    bool view = root.node != value.node;
    if (!view && p->mark[source->id] == c->id) return (tu__operand){.kind = TU__MEMBER, .value = value};
    if (p->state[source->id] != TU__PENDING) return load_of(c, value);
    if (source->op->code == TU__OP_FILL) return number_of(source);
    return view ? (tu__operand){.kind = TU__OBSTACLE, .value = root} : pending_operand(c, value);
}

/* ---- Gathering ---- */

static void gather(tu__cluster *c, const tu__node *node) {
    tu__kernel_plan *p = c->s->plan;
    if (c->blocked || p->mark[node->id] == c->id) return;
    p->mark[node->id] = c->id;
    c->reserved++;
    for (uint32_t i = 0; i < node->input_count && !c->blocked; i++) {
        tu__operand operand = tu__resolve(c, node->inputs[i]);
        if (operand.kind == TU__MEMBER) gather(c, c->s->graph->nodes[operand.value.node]);
        if (operand.kind == TU__OBSTACLE) {
            c->blocked = true;
            c->obstacle = operand.value;
        }
    }
    if (!c->blocked) c->members[c->member_count++] = node;
}

/* Gathers, computing what is in the way until nothing is. */
static tu_status gather_from(tu__selection *s, const tu__node *root, tu__cluster *c) {
    tu__kernel_plan *p = s->plan;
    do {
        *c = (tu__cluster){.s = s,
                           .id = ++p->cluster_count,
                           .space = root->outputs[0].shape,
                           .wide = is_wide(s, root),
                           .level = p->level[root->id]};
        gather(c, root);
        if (c->blocked) TU_TRY(tu__require(s, c->obstacle));
    } while (c->blocked);
    return TU_OK;
}

/* ---- What is stored ---- */

static bool is_costly(tu__opcode op) {
    switch (op) {
    case TU__OP_ADD:
    case TU__OP_SUB:
    case TU__OP_MUL:
    case TU__OP_MAXIMUM:
    case TU__OP_MINIMUM:
    case TU__OP_EQUAL:
    case TU__OP_NOT_EQUAL:
    case TU__OP_LESS:
    case TU__OP_LESS_EQUAL:
    case TU__OP_GREATER:
    case TU__OP_GREATER_EQUAL:
    case TU__OP_AND:
    case TU__OP_OR:
    case TU__OP_NOT:
    case TU__OP_SELECT:
    case TU__OP_CAST:
    case TU__OP_CLIP:
    case TU__OP_NEG:
    case TU__OP_ABS:
    case TU__OP_SIGN:
    case TU__OP_SQUARE:
    case TU__OP_RELU:
    case TU__OP_LEAKY_RELU: return false;
    default: return true;
    }
}

/* Cheap to compute again: one operation on at most one operand as large as its result, no wider, and small ones. */
static bool is_cheap(tu__cluster *c, const tu__node *node) {
    size_t bytes = tu_type_bytes(node->outputs[0]), large = 0;
    for (uint32_t i = 0; i < node->input_count; i++) {
        tu__operand operand = tu__resolve(c, node->inputs[i]);
        if (operand.kind == TU__MEMBER) return false;
        if (operand.kind != TU__LOAD) continue;
        size_t each = tu_type_bytes(operand.type);
        if (each > bytes) return false;
        if (8 * each > bytes) large++;
    }
    return !is_costly(node->op->code) && large <= 1;
}

typedef enum demand { NOBODY, POINTWISE_LATER, NOW } demand;

static demand larger(demand a, demand b) {
    return a > b ? a : b;
}

static bool is_sum_of(const tu__cluster *c, const tu__node *node) {
    for (uint32_t i = 0; i < c->sum_count; i++)
        if (c->sum_nodes[i] == node) return true;
    return false;
}

/* Who, outside the cluster, reads a value: looks through views and broadcasts. */
static demand demand_for(tu__cluster *c, tu__edge value) {
    tu__kernel_plan *p = c->s->plan;
    const tu__plan_value *v = tu__plan_value_of(c->s, value);
    demand result = v->exported ? NOW : NOBODY;
    for (uint32_t i = 0; i < v->reader_count && result != NOW; i++) {
        const tu__node *reader = c->s->graph->nodes[p->readers[v->first_reader + i]];
        if (p->mark[reader->id] == c->id || is_sum_of(c, reader)) continue;
        bool same = tu_shape_equal(reader->outputs[0].shape, c->space);
        if (reader->op->traits & TU__VIEW)
            result = same ? larger(result, demand_for(c, (tu__edge){reader->id, 0})) : NOW;
        else if (p->state[reader->id] == TU__DONE)
            continue; /* it computed the value itself */
        else if ((reader->op->traits & TU__POINTWISE) && may_join(c, reader))
            result = larger(result, POINTWISE_LATER);
        else
            result = NOW;
    }
    return result;
}

static bool is_root(const tu__cluster *c, uint32_t member) {
    return member + 1 == c->member_count;
}

/* Stored are the root, unless it was a sum in this cluster that asked for it, and what others read. */
static void decide_stores(tu__cluster *c, const tu__node *asking) {
    tu__kernel_plan *p = c->s->plan;
    for (uint32_t i = 0; i < c->member_count; i++) {
        const tu__node *node = c->members[i];
        demand wanted = demand_for(c, (tu__edge){node->id, 0});
        bool asked = is_root(c, i) && !(asking && is_sum_of(c, asking));
        bool again = wanted == POINTWISE_LATER && !asked && is_cheap(c, node);
        c->stored[i] = asked || wanted == NOW || (wanted == POINTWISE_LATER && !again);
        if (!again) p->state[node->id] = TU__DONE;
    }
    for (uint32_t i = 0; i < c->sum_count; i++) {
        c->summed[c->sum_members[i]] = !c->stored[c->sum_members[i]];
        p->state[c->sum_nodes[i]->id] = TU__DONE;
    }
}

/* ---- Sums at the end ---- */

/* The space around the reduced axes; false when these are not one run. */
static bool form_of(tu_shape shape, int64_t axes, tu__sum_form *f) {
    *f = (tu__sum_form){1, 1, 1};
    bool inside = false, behind = false;
    for (int64_t i = 0; i < shape.rank; i++) {
        if (shape.dim[i] == 1) continue;
        bool reduced = axes >> i & 1;
        if (reduced && behind) return false;
        inside |= reduced;
        behind |= inside && !reduced;
        *(reduced ? &f->reduced : inside ? &f->inner : &f->outer) *= shape.dim[i];
    }
    return f->reduced > 1;
}

static bool is_sum(const tu__node *node) {
    return node->op->code == TU__OP_SUM || node->op->code == TU__OP_MEAN;
}

static void consider_sum(tu__cluster *c, uint32_t member, const tu__node *node) {
    const tu__kernel_plan *p = c->s->plan;
    bool waits = p->state[node->id] == TU__WAITING || p->state[node->id] == TU__BUSY;
    tu__sum_form f;
    if (!waits || !is_sum(node) || c->sum_count == TU__MAX_SUMS) return;
    if (p->level[node->id] != c->level) return;                     /* it must wait for others */
    if (!form_of(c->space, tu__attrs(node, sum)->axes, &f)) return; /* mean has the attributes of sum */
    bool cut = false;
    tu__sum_kind kind = c->s->selector->sum_kind_of(c, c->members[member]->outputs[0].dtype, f, &cut);
    int64_t row = kind == TU__ROW_SUMS ? f.reduced : f.inner;
    if (kind == TU__NO_SUMS || (c->sum_count && (kind != c->sums || row != c->sum_row))) return;
    c->sums = kind;
    c->sum_cut = cut;
    c->sum_row = row;
    c->sum_nodes[c->sum_count] = node;
    c->sum_members[c->sum_count++] = member;
}

static void find_sums(tu__cluster *c) {
    const tu__kernel_plan *p = c->s->plan;
    for (uint32_t i = 0; i < c->member_count && c->s->selector->sum_kind_of; i++) {
        const tu__plan_value *v = tu__plan_value_of(c->s, (tu__edge){c->members[i]->id, 0});
        for (uint32_t r = 0; r < v->reader_count; r++)
            consider_sum(c, i, c->s->graph->nodes[p->readers[v->first_reader + r]]);
    }
}

/* ---- Kernels ---- */

/* "sub+mul+add": the operations, in order, as far as they fit. */
static const char *name_of(tu__selection *s, const tu__cluster *c, uint32_t pieces) {
    enum { ENOUGH = 48 };
    tu__text text = {0};
    if (pieces > 1) tu__text_printf(&text, "%u x ", pieces);
    for (uint32_t i = 0; i < c->member_count && text.length < ENOUGH; i++)
        tu__text_printf(&text, "%s%s", i ? "+" : "", c->members[i]->op->name);
    if (text.length >= ENOUGH) tu__text_printf(&text, "+...");
    for (uint32_t i = 0; i < c->sum_count; i++) tu__text_printf(&text, "+%s", c->sum_nodes[i]->op->name);
    const char *name = text.failed ? NULL : tu__arena_string(&s->arena, tu__text_string(&text));
    tu__text_free(&text);
    return name;
}

static tu_status cover_members(tu__kernel *k, const tu__cluster *c, uint32_t from) {
    for (uint32_t i = from; i < c->member_count; i++) TU_TRY(tu__kernel_cover(k, c->members[i]));
    for (uint32_t i = 0; i < c->sum_count; i++) TU_TRY(tu__kernel_cover(k, c->sum_nodes[i]));
    return TU_OK;
}

static tu__kernel *kernel_for(tu__selection *s, const tu__cluster *c) {
    tu__kernel *k = tu__kernel_new(s, c->members[0], "pointwise", s->selector->run_pointwise);
    return k && cover_members(k, c, 1) == TU_OK ? k : NULL;
}

static tu_status fuse_one(tu__selection *s, const tu__node *node) {
    tu__cluster c;
    const tu__node *asking = s->plan->asking;
    s->plan->asking = NULL; /* for what is computed on the way */
    TU_TRY(gather_from(s, node, &c));
    find_sums(&c);
    decide_stores(&c, asking);
    tu__kernel *k = kernel_for(s, &c);
    void *piece = tu__arena_alloc(&s->arena, s->selector->piece_bytes);
    if (!k || !piece) return TU_NO_MEMORY;
    TU_TRY(s->selector->make_piece(k, &c, piece));
    k->name = name_of(s, &c, 1);
    return k->name ? s->selector->finish_pieces(k, 1, piece) : TU_NO_MEMORY;
}

/* ---- Joining what the outside waits for ---- */

typedef struct joint {
    tu__selection *s;
    tu__kernel *k; /* NULL: none begun */
    uint32_t level, first_kernel;
    char *pieces; /* of selector->piece_bytes each */
    uint32_t count, capacity;
} joint;

static bool reads_any(const tu__kernel *k, const bool *buffers) {
    for (uint32_t i = 0; i < k->read_count; i++)
        if (buffers[k->reads[i]]) return true;
    return false;
}

/* Marks the buffers written by the joint kernel, and those computed from them. */
static void taint(const joint *j, bool *tainted) {
    const tu__kernel_plan *p = j->s->plan;
    bool again = true;
    while (again) {
        again = false;
        for (uint32_t i = j->first_kernel; i < p->kernel_count; i++) {
            const tu__kernel *k = p->kernels[i];
            bool taints = k == j->k || reads_any(k, tainted);
            for (uint32_t w = 0; w < k->write_count && taints; w++) {
                again |= !tainted[k->writes[w]];
                tainted[k->writes[w]] = true;
            }
        }
    }
}

/* Whether an operand of the cluster is written by the joint kernel or computed from what it writes. */
static tu_status depends_on_joint(const joint *j, tu__cluster *c, bool *depends) {
    tu__kernel_plan *p = j->s->plan;
    *depends = false;
    bool *tainted = tu__alloc_array(p->buffer_count + 1, sizeof *tainted, "a plan");
    if (!tainted) return TU_NO_MEMORY;
    taint(j, tainted);
    for (uint32_t i = 0; i < c->member_count; i++)
        for (uint32_t k = 0; k < c->members[i]->input_count; k++) {
            tu__operand operand = tu__resolve(c, c->members[i]->inputs[k]);
            if (operand.kind != TU__LOAD) continue;
            const tu__plan_value *v = tu__plan_value_of(j->s, tu__root_of(j->s, operand.value));
            if (v->dense != TU__NONE && tainted[v->dense]) *depends = true;
        }
    tu__free(tainted);
    return TU_OK;
}

static tu_status finish_joint(joint *j, const tu__cluster *last) {
    if (!j->k) return TU_OK;
    void *pieces = tu__arena_copy(&j->s->arena, j->pieces, j->count * j->s->selector->piece_bytes);
    j->k->name = name_of(j->s, last, j->count);
    if (!pieces || !j->k->name) return TU_NO_MEMORY;
    tu_status status = j->s->selector->finish_pieces(j->k, j->count, pieces);
    j->k = NULL;
    j->count = 0;
    return status;
}

static tu_status add_piece(joint *j, tu__cluster *c) {
    size_t piece_bytes = j->s->selector->piece_bytes;
    if (j->count == j->capacity) {
        uint32_t capacity = j->capacity ? 2 * j->capacity : 16;
        char *grown = tu__realloc(j->pieces, capacity * piece_bytes, "a plan");
        if (!grown) return TU_NO_MEMORY;
        j->pieces = grown;
        j->capacity = capacity;
    }
    if (!j->k) {
        j->first_kernel = j->s->plan->kernel_count;
        j->level = c->level;
        j->k = kernel_for(j->s, c);
        if (!j->k) return TU_NO_MEMORY;
    } else {
        TU_TRY(cover_members(j->k, c, 0));
    }
    return j->s->selector->make_piece(j->k, c, j->pieces + piece_bytes * j->count++);
}

static tu_status join(joint *j, const tu__node *node, tu__cluster *previous) {
    tu__cluster c;
    TU_TRY(gather_from(j->s, node, &c));
    bool depends = false;
    if (j->k) TU_TRY(depends_on_joint(j, &c, &depends));
    if (j->k && (depends || c.level != j->level)) TU_TRY(finish_joint(j, previous));
    decide_stores(&c, NULL);
    TU_TRY(add_piece(j, &c));
    *previous = c;
    return TU_OK;
}

/* ---- Joining casts of leaves ---- */

/* Whether a cast will be wanted as it is: an operation that is not pointwise reads it, or it is as small as a bias,
 * which products take in though an addition reads it. */
static bool is_wanted_alone(const tu__selection *s, const tu__node *node) {
    enum { SMALL = 4096 };
    if (tu_shape_elements(node->outputs[0].shape) <= SMALL) return true;
    const tu__plan_value *v = tu__plan_value_of((tu__selection *)s, (tu__edge){node->id, 0});
    for (uint32_t i = 0; i < v->reader_count; i++) {
        const tu__node *reader = s->graph->nodes[s->plan->readers[v->first_reader + i]];
        if (!(reader->op->traits & (TU__POINTWISE | TU__VIEW)) && reader->op->code != TU__OP_BROADCAST)
            return true;
    }
    return v->exported;
}

/* A cast that waits for nothing. */
static bool is_leaf_cast(const tu__selection *s, const tu__node *node) {
    const tu__kernel_plan *p = s->plan;
    return node->op->code == TU__OP_CAST &&
           (p->state[node->id] == TU__WAITING || p->state[node->id] == TU__PENDING) &&
           p->state[node->inputs[0].node] == TU__OUTSIDE && is_wanted_alone(s, node);
}

/* Many small tensors, parameters mostly, in one launch instead of one each. */
static tu_status fuse_leaf_casts(tu__selection *s, uint32_t level) {
    tu__kernel_plan *p = s->plan;
    joint j = {.s = s};
    tu__cluster previous = {0};
    tu_status status = TU_OK;
    for (uint32_t i = 0; i < p->part->node_count && status == TU_OK; i++) {
        const tu__node *node = s->graph->nodes[p->part->nodes[i]];
        if (!is_leaf_cast(s, node) || p->level[node->id] != level) continue;
        p->state[node->id] = TU__PENDING;
        status = join(&j, node, &previous);
    }
    if (status == TU_OK) status = finish_joint(&j, &previous);
    tu__free(j.pieces);
    return status;
}

tu_status tu__fuse(tu__selection *s, const tu__node *node) {
    if (s->selector->joins_casts && is_leaf_cast(s, node))
        return fuse_leaf_casts(s, s->plan->level[node->id]);
    return fuse_one(s, node);
}

/* ---- What the outside waits for ---- */

typedef struct wanted {
    uint32_t level, node;
} wanted;

/* By level; within one, later nodes first: an export that another one stands on becomes a member of its piece. */
static int compare_wanted(const void *a, const void *b) {
    const wanted *x = a, *y = b;
    if (x->level != y->level) return x->level < y->level ? -1 : 1;
    return (x->node < y->node) - (x->node > y->node);
}

static tu_status join_all(joint *j, uint32_t count, const wanted *list) {
    const tu__kernel_plan *p = j->s->plan;
    tu__cluster previous = {0};
    for (uint32_t i = 0; i < count; i++) {
        const tu__node *node = j->s->graph->nodes[list[i].node];
        if (p->state[node->id] == TU__PENDING && (node->op->traits & TU__POINTWISE))
            TU_TRY(join(j, node, &previous));
    }
    return finish_joint(j, &previous);
}

tu_status tu__fuse_exports(tu__selection *s) {
    tu__kernel_plan *p = s->plan;
    uint32_t count = p->part->export_count;
    wanted *list = tu__alloc_array(count + 1, sizeof *list, "a plan");
    if (!list) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t node = tu__root_of(s, p->part->exports[i]).node;
        list[i] = (wanted){p->level[node], node};
    }
    qsort(list, count, sizeof *list, compare_wanted);
    joint j = {.s = s};
    tu_status status = join_all(&j, count, list);
    tu__free(j.pieces);
    tu__free(list);
    return status;
}
