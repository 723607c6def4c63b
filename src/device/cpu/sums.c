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

/* How a reduction of this form would run, and whether a cluster can do the same. `cut`: by ranges of rows, not whole. */
static tu__sum_kind kind_of(const tu__sum_form *f, int64_t workers, bool *cut) {
    int64_t strips = (f->inner + STRIP - 1) / STRIP;
    bool large = f->reduced * f->inner >= 2 * (int64_t)CPU_GRAIN;
    *cut = f->outer * strips < workers && large;
    if (f->inner == 1) return !*cut && f->reduced <= LONGEST_ROW ? TU__ROW_SUMS : TU__NO_SUMS;
    if (f->outer > 1 || f->inner > LONGEST_SUMS) return TU__NO_SUMS;
    return *cut || workers == 1 || !large ? TU__COLUMN_SUMS : TU__NO_SUMS;
}

tu__sum_kind cpu_sum_kind_of(const tu__cluster *c, tu_dtype dtype, tu__sum_form f, bool *cut) {
    if (cpu_loop_type(dtype) < 0 || c->wide) return TU__NO_SUMS;
    return kind_of(&f, cpu_of(c->s)->threads, cut);
}
