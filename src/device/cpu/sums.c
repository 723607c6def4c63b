/* Sums at the end of a cluster: the gradient of a bias [rows, c] -> [c], a sum along the last axes, a mean of all.
 *
 * Where a member of a cluster is summed, the kernel computes a block of rows and sums it while it is in the cache: the
 * value is read from memory once less, and is not even written when nobody else wants it.
 *
 * Bits must not depend on what is fused. So the sum here is the reductions' own (reduce.c): its loops, its blocks of
 * rows, and the ranges into which it would cut the rows for this many threads. A sum whose work would be dealt out
 * otherwise than by rows stays a kernel of its own. */
#include "device/cpu/pointwise.h"
#include "device/cpu/ranges.h"

enum {
    STRIP = 512,            /* reduce.c: results of one unit of work */
    LONGEST_ROW = 1 << 14,  /* summed along itself */
    LONGEST_SUMS = 1 << 12, /* columns: a block of rows must stay in the second-level cache */
};

/* The space as [outer, reduced, inner] around the reduced axes; false when these are not one run. */
typedef struct form {
    int64_t outer, reduced, inner;
} form;

static bool form_of(tu_shape shape, int64_t axes, form *f) {
    *f = (form){1, 1, 1};
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

/* How a reduction of this form would run, and whether a cluster can do the same. `cut`: by ranges of rows, not whole. */
static tu__sum_kind kind_of(const form *f, int64_t workers, bool *cut) {
    int64_t strips = (f->inner + STRIP - 1) / STRIP;
    bool large = f->reduced * f->inner >= 2 * (int64_t)CPU_GRAIN;
    *cut = f->outer * strips < workers && large;
    if (f->inner == 1) return !*cut && f->reduced <= LONGEST_ROW ? TU__ROW_SUMS : TU__NO_SUMS;
    if (f->outer > 1 || f->inner > LONGEST_SUMS) return TU__NO_SUMS;
    return *cut || workers == 1 || !large ? TU__COLUMN_SUMS : TU__NO_SUMS;
}

static bool is_sum(const tu__node *node) {
    return node->op->code == TU__OP_SUM || node->op->code == TU__OP_MEAN;
}

static void consider(tu__cluster *c, uint32_t member, const tu__node *node) {
    const tu__kernel_plan *p = c->s->plan;
    bool waits = p->state[node->id] == TU__WAITING || p->state[node->id] == TU__BUSY;
    form f;
    if (!waits || !is_sum(node) || c->sum_count == TU__MOST_SUMS) return;
    if (!form_of(c->space, tu__attrs(node, sum)->axes, &f)) return; /* mean has the attributes of sum */
    bool cut;
    tu__sum_kind kind = kind_of(&f, cpu_of(c->s)->threads, &cut);
    int64_t row = kind == TU__ROW_SUMS ? f.reduced : f.inner;
    if (kind == TU__NO_SUMS || (c->sum_count && (kind != c->sums || row != c->sum_row))) return;
    c->sums = kind;
    c->sum_cut = cut;
    c->sum_row = row;
    c->sum_nodes[c->sum_count] = node;
    c->sum_members[c->sum_count++] = member;
}

void cpu_find_sums(tu__cluster *c) {
    tu__kernel_plan *p = c->s->plan;
    for (uint32_t i = 0; i < c->member_count; i++) {
        const tu__node *node = c->members[i];
        if (cpu_loop_type(node->outputs[0].dtype) < 0 || c->wide) continue;
        const tu__plan_value *v = tu__plan_value_of(c->s, (tu__edge){node->id, 0});
        for (uint32_t r = 0; r < v->reader_count; r++)
            consider(c, i, c->s->graph->nodes[p->readers[v->first_reader + r]]);
    }
}
