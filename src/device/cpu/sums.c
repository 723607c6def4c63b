/* Sums fused at the end of a cluster: the gradient of a bias [rows, c] -> [c], a sum along the last axes, a mean of
 * all.
 *
 * The kernel computes a block of rows and sums it while it is in the cache: the value is read from memory once less,
 * and is not even written if nothing else reads it.
 *
 * Fusion must not change the bits of results. So the sum uses the loops, the blocks of rows and the ranges that a
 * separate reduction (reduce.c) would use for this number of threads. A sum whose work reduce.c would not divide by
 * rows is not fused. */
#include "device/cpu/pointwise.h"
#include "device/cpu/ranges.h"

enum {
    STRIP = 512,                /* results per work item, as in reduce.c */
    MAX_ROW_ELEMENTS = 1 << 14, /* of a row that is summed along itself */
    MAX_SUM_COLUMNS = 1 << 12,  /* a block of rows must fit the L2 cache */
};

/* Returns how a cluster can compute this sum like reduce.c. `*splits_rows`: reduce.c divides the rows among
 * workers. */
static tu__sum_kind kind_of(const tu__sum_form *f, int64_t workers, bool *splits_rows) {
    int64_t strips = (f->inner + STRIP - 1) / STRIP;
    bool large = f->reduced * f->inner >= 2 * (int64_t)CPU_GRAIN;
    *splits_rows = f->outer * strips < workers && large;
    if (f->inner == 1) return !*splits_rows && f->reduced <= MAX_ROW_ELEMENTS ? TU__ROW_SUMS : TU__NO_SUMS;
    if (f->outer > 1 || f->inner > MAX_SUM_COLUMNS) return TU__NO_SUMS;
    return *splits_rows || workers == 1 || !large ? TU__COLUMN_SUMS : TU__NO_SUMS;
}

tu__sum_kind cpu_sum_kind_of(const tu__cluster *c, tu_dtype dtype, tu__sum_form f, bool *splits_rows) {
    if (cpu_loop_variant(dtype) < 0 || c->wide) return TU__NO_SUMS;
    tu__sum_kind kind = kind_of(&f, cpu_sum_threads(c->s), splits_rows);
    if (!c->s->graph->is_frozen || !*splits_rows) return kind;
    *splits_rows = false; /* reduce.c divides no rows there */
    return TU__NO_SUMS;
}
