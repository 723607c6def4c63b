/* Random numbers: bit-identical to base/draw.h, but many at a time.
 *
 * A number is computed in f64 and rounded once to the element type, as base/draw.h defines; the fast path differs
 * only in how the random words are generated (a vector of Philox blocks at a time, isa/loops_kernels_random.c). It
 * supports uniform and Bernoulli numbers, which dropout and augmentation need in every step. Normal numbers, which
 * initialise variables, need a logarithm, a root and a cosine each: they call base/draw.h, on all threads.
 *
 * Work is divided into chunks of one sample's numbers; chunks start at a Philox block, so no block is computed
 * twice. */
#include <tutti/ops.h>

#include "base/draw.h"
#include "base/number.h"
#include "device/cpu/isa/kernels.h"
#include "device/cpu/ranges.h"

enum { CHUNK = 1024 }; /* numbers; a multiple of 4, the numbers per block */

typedef struct random_data {
    int64_t rows, count; /* samples (of all networks), and numbers per sample */
    struct tu__random_attrs attrs;
    int64_t
        member_rows; /* random_members: samples of a network, whose seed and parameters are inputs; 0: one network */
} random_data;

/* Converts a word to a number in [0, 1), like unit() of base/draw.c. */
static double unit(uint32_t word) {
    return (double)(word >> 8) * 0x1p-24;
}

static void to_uniform(const uint32_t *words, int64_t n, double a, double b, double *out) {
    for (int64_t i = 0; i < n; i++) out[i] = a + (b - a) * unit(words[i]);
}

static void to_bernoulli(const uint32_t *words, int64_t n, double a, double *out) {
    for (int64_t i = 0; i < n; i++) out[i] = unit(words[i]) < a;
}

/* What the numbers of one row depend on. */
typedef struct row_source {
    tu__draw_key key;
    double a, b;
} row_source;

static row_source source_of(const tu__kernel *k, int64_t row) {
    const random_data *d = k->data;
    if (!d->member_rows)
        return (row_source){tu__draw_key_of(*k->seed, (uint64_t)d->attrs.key), d->attrs.a, d->attrs.b};
    int64_t member = row / d->member_rows;
    return (row_source){
        tu__draw_key_of((uint64_t)((const int64_t *)k->in[1])[member], (uint64_t)d->attrs.key),
        ((const double *)k->in[2])[member], ((const double *)k->in[3])[member]};
}

static void generate(const tu__kernel *k, const row_source *from, uint64_t ordinal, int64_t first, int64_t n,
                     double *out) {
    const random_data *d = k->data;
    tu__distribution distribution = (tu__distribution)d->attrs.distribution;
    uint32_t words[CHUNK];
    if (distribution != TU__UNIFORM && distribution != TU__BERNOULLI) {
        tu__draw_range(from->key, ordinal, distribution, from->a, from->b, first, n, out);
        return;
    }
    cpu_of(k)->loops->kernels->random->words(from->key, ordinal, (uint32_t)(first / 4), (n + 3) / 4, words);
    if (distribution == TU__UNIFORM)
        to_uniform(words, n, from->a, from->b, out);
    else
        to_bernoulli(words, n, from->a, out);
}

static void store_numbers(tu_dtype dtype, const double *numbers, int64_t n, void *out) {
    if (dtype != TU_F32) {
        tu__store_array(dtype, numbers, n, out);
        return;
    }
    float *to = out;
    for (int64_t i = 0; i < n; i++) to[i] = (float)numbers[i];
}

static int64_t chunks_of(const random_data *d) {
    return (d->count + CHUNK - 1) / CHUNK;
}

static void random_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const random_data *d = k->data;
    tu_dtype dtype = (tu_dtype)d->attrs.dtype;
    (void)worker;
    for (int64_t work_item = first; work_item < last; work_item++) {
        int64_t row = work_item / chunks_of(d), start = work_item % chunks_of(d) * CHUNK;
        int64_t n = d->count - start < CHUNK ? d->count - start : CHUNK;
        double numbers[CHUNK];
        row_source from = source_of(k, row);
        generate(k, &from, (uint64_t)((const int64_t *)k->in[0])[row], start, n, numbers);
        store_numbers(dtype, numbers, n, cpu_element(k->out[0], dtype, row * d->count + start));
    }
}

static tu_status run_random(const tu__kernel *k) {
    const random_data *d = k->data;
    int64_t work_items = d->rows * chunks_of(d), chunk = d->count < CHUNK ? d->count : CHUNK;
    /* a random number costs more than moving an element: ranges may be smaller */
    tu__parallel_for(work_items, cpu_grain(work_items, 8 * chunk, cpu_of(k)->threads), random_range,
                     (void *)k);
    return TU_OK;
}

tu_status cpu_lower_random(tu__selection *s, const tu__node *node) {
    tu__kernel *k = tu__kernel_new(s, node, "random", run_random);
    random_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    d->attrs = *tu__attrs(node, random);
    d->rows = tu_shape_elements(cpu_input_type(s, node, 0).shape);
    d->count = tu_shape_elements(d->attrs.shape) / d->rows;
    cpu_kernel_set_costs(k, s, node);
    return cpu_kernel_add_operands(k, node, -1);
}

tu_status cpu_lower_random_members(tu__selection *s, const tu__node *node) {
    const struct tu__random_members_attrs *a = tu__attrs(node, random_members);
    tu_shape ordinals = cpu_input_type(s, node, 0).shape;
    tu__kernel *k = tu__kernel_new(s, node, "random_members", run_random);
    random_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    d->attrs = (struct tu__random_attrs){.dtype = a->dtype, .distribution = a->distribution, .key = a->key};
    d->rows = tu_shape_elements(ordinals);
    d->member_rows = d->rows / ordinals.dim[0];
    d->count = tu_shape_elements(a->shape) / d->member_rows;
    cpu_kernel_set_costs(k, s, node);
    return cpu_kernel_add_operands(k, node, -1);
}
