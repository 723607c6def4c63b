/* Attention: blocks of queries against blocks of keys, as graph/ops/attention.c defines it. The inner loops are in
 * isa/loops_kernels_attention.c.
 *
 * Scores are computed for BLOCK queries and BLOCK keys at a time, and never stored for all (Dao 2023). The forward pass
 * keeps the running maximum and sum of every query, and scales what it has added so far when the maximum grows. Its work
 * items are blocks of queries. The gradient knows the logarithms of the sums; its work items are heads, each with passes
 * over blocks of keys and, within, of queries. Blocks are converted to f32 and padded to whole vectors when they are
 * loaded: O(BLOCK * width) against O(BLOCK^2 * width) operations.
 *
 * Memory traffic: x is read once per block of queries, from the cache if a head fits there. Per worker the workspace has
 * a few blocks and, for the gradient, dq of one head. */
#include <math.h>
#include <string.h>

#include "device/cpu/isa/kernels.h"
#include "device/cpu/ranges.h"

enum { BLOCK = 64 };

typedef struct attention_data {
    int64_t time, heads, width, items;
    int64_t padded; /* the width, rounded up to CPU_ATTENTION_COLUMNS */
    tu_dtype dtype;
    bool causal;
    float scale;
    size_t worker_floats;
} attention_data;

static const struct cpu_attention_loops *loops_of(const tu__kernel *k) {
    return cpu_of(k)->loops->kernels->attention;
}

static float *workspace_of(const tu__kernel *k, int worker) {
    const attention_data *d = k->data;
    return (float *)k->workspace + (size_t)worker * d->worker_floats;
}

static int64_t min_of(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- Blocks ---- */

/* Rows of one head in a value of the graph: `count` of them from `first` on. */
typedef struct rows {
    const void *base;
    int64_t offset, stride; /* elements before row 0; from row to row */
    int64_t first, count;
} rows;

/* part: 0: queries, 1: keys, 2: values */
static rows rows_of_x(const tu__kernel *k, const void *x, int64_t item, int part, int64_t first) {
    const attention_data *d = k->data;
    int64_t sample = item / d->heads, head = item % d->heads, stride = 3 * d->heads * d->width;
    return (rows){x, sample * d->time * stride + (part * d->heads + head) * d->width, stride, first,
                  min_of(BLOCK, d->time - first)};
}

static rows rows_of_y(const tu__kernel *k, const void *y, int64_t item, int64_t first) {
    const attention_data *d = k->data;
    int64_t sample = item / d->heads, head = item % d->heads, stride = d->heads * d->width;
    return (rows){y, sample * d->time * stride + head * d->width, stride, first,
                  min_of(BLOCK, d->time - first)};
}

static void load_row(const tu__kernel *k, const rows *r, int64_t i, float *to) {
    const attention_data *d = k->data;
    cpu_of(k)->loops->convert->load[d->dtype](
        d->width, cpu_element(r->base, d->dtype, r->offset + (r->first + i) * r->stride), to);
}

/* Loads a block [BLOCK, padded], with zeros where there are no elements. */
static void load_block(const tu__kernel *k, rows r, float *to) {
    const attention_data *d = k->data;
    memset(to, 0, (size_t)(BLOCK * d->padded) * sizeof *to);
    for (int64_t i = 0; i < r.count; i++) load_row(k, &r, i, to + i * d->padded);
}

/* Loads a transposed block [width, BLOCK]. `row`: scratch for one row. */
static void load_transposed(const tu__kernel *k, rows r, float *row, float *to) {
    const attention_data *d = k->data;
    memset(to, 0, (size_t)(BLOCK * d->width) * sizeof *to);
    for (int64_t i = 0; i < r.count; i++) {
        load_row(k, &r, i, row);
        for (int64_t c = 0; c < d->width; c++) to[c * BLOCK + i] = row[c];
    }
}

static void store_row(const tu__kernel *k, const rows *r, int64_t i, const float *from, void *to) {
    const attention_data *d = k->data;
    cpu_of(k)->loops->convert->store[d->dtype](
        d->width, from, cpu_element(to, d->dtype, r->offset + (r->first + i) * r->stride));
}

/* Returns how many keys of the block that starts at `first_key` the query sees. */
static int64_t visible_keys(const attention_data *d, int64_t query, int64_t first_key) {
    int64_t end = d->causal ? query + 1 : d->time;
    return end <= first_key ? 0 : min_of(end - first_key, BLOCK);
}

/* Returns the end of the keys that a query of the block sees. */
static int64_t last_key(const attention_data *d, const rows *queries) {
    return d->causal ? queries->first + queries->count : d->time;
}

/* ---- Forward: in x; out y, logarithms ---- */

typedef struct forward_scratch {
    float *q, *keys, *values, *sums; /* [BLOCK, padded] each; keys transposed */
    float *scores;                   /* [BLOCK, BLOCK] */
    float *row;
} forward_scratch;

enum { FORWARD_BLOCKS = 4 };

static forward_scratch forward_scratch_of(const tu__kernel *k, int worker) {
    const attention_data *d = k->data;
    float *next = workspace_of(k, worker), *block[FORWARD_BLOCKS];
    for (int i = 0; i < FORWARD_BLOCKS; i++, next += BLOCK * d->padded) block[i] = next;
    return (forward_scratch){block[0], block[1], block[2], block[3], next, next + BLOCK * BLOCK};
}

/* Adds the keys of one block to the sums of a block of queries. */
static void add_keys(const tu__kernel *k, const forward_scratch *w, const rows *queries, int64_t first_key,
                     cpu_running_softmax *softmax) {
    const attention_data *d = k->data;
    const struct cpu_attention_loops *loops = loops_of(k);
    loops->multiply(&(cpu_block_product){.rows = queries->count,
                                         .columns = BLOCK,
                                         .depth = d->width,
                                         .a = w->q,
                                         .a_row = d->padded,
                                         .a_depth = 1,
                                         .b = w->keys,
                                         .b_row = BLOCK,
                                         .c = w->scores,
                                         .c_row = BLOCK});
    for (int64_t i = 0; i < queries->count; i++) {
        int64_t visible = visible_keys(d, queries->first + i, first_key);
        loops->soften(BLOCK, visible, d->scale, w->scores + i * BLOCK, &softmax[i]);
        if (softmax[i].factor != 1)
            loops->scale_row(d->padded, softmax[i].factor, w->sums + i * d->padded, w->sums + i * d->padded);
    }
    loops->multiply(&(cpu_block_product){.rows = queries->count,
                                         .columns = d->padded,
                                         .depth = BLOCK,
                                         .a = w->scores,
                                         .a_row = BLOCK,
                                         .a_depth = 1,
                                         .b = w->values,
                                         .b_row = d->padded,
                                         .c = w->sums,
                                         .c_row = d->padded,
                                         .adds = true});
}

static void attend(const tu__kernel *k, const forward_scratch *w, int64_t item, int64_t first_query) {
    const attention_data *d = k->data;
    rows queries = rows_of_x(k, k->in[0], item, 0, first_query);
    cpu_running_softmax softmax[BLOCK];
    for (int i = 0; i < BLOCK; i++) softmax[i] = (cpu_running_softmax){-INFINITY, 0, 1};
    load_block(k, queries, w->q);
    memset(w->sums, 0, (size_t)(BLOCK * d->padded) * sizeof(float));
    for (int64_t key = 0; key < last_key(d, &queries); key += BLOCK) {
        load_transposed(k, rows_of_x(k, k->in[0], item, 1, key), w->row, w->keys);
        load_block(k, rows_of_x(k, k->in[0], item, 2, key), w->values);
        add_keys(k, w, &queries, key, softmax);
    }
    rows y = rows_of_y(k, k->out[0], item, first_query);
    float *logarithms = (float *)k->out[1] + item * d->time + first_query;
    for (int64_t i = 0; i < y.count; i++) {
        loops_of(k)->scale_row(d->padded, 1 / softmax[i].sum, w->sums + i * d->padded, w->row);
        store_row(k, &y, i, w->row, k->out[0]);
        logarithms[i] = softmax[i].maximum + logf(softmax[i].sum);
    }
}

static int64_t blocks_of(const attention_data *d) {
    return (d->time + BLOCK - 1) / BLOCK;
}

static void forward_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const attention_data *d = k->data;
    forward_scratch w = forward_scratch_of(k, worker);
    for (int64_t i = first; i < last; i++) attend(k, &w, i / blocks_of(d), i % blocks_of(d) * BLOCK);
}

static void run_items(const tu__kernel *k, int64_t items, tu__parallel_body body) {
    int64_t threads = cpu_of(k)->threads;
    tu__parallel_for(items, (items + threads - 1) / threads, body, (void *)k);
}

static tu_status run_attention(const tu__kernel *k) {
    const attention_data *d = k->data;
    run_items(k, d->items * blocks_of(d), forward_range);
    return TU_OK;
}

/* ---- Its gradient: in x, y, logarithms, dy; out dx ---- */

typedef struct gradient_scratch {
    float *q, *dy, *keys, *keys_transposed, *values_transposed, *dk, *dv; /* blocks */
    float *scores, *products;                                             /* [BLOCK, BLOCK] */
    float *row, *centres, *dq; /* [padded], [time], [time, padded] */
} gradient_scratch;

enum { GRADIENT_BLOCKS = 7 };

static int64_t padded_time(const attention_data *d) {
    return blocks_of(d) * BLOCK;
}

static gradient_scratch gradient_scratch_of(const tu__kernel *k, int worker) {
    const attention_data *d = k->data;
    float *next = workspace_of(k, worker), *block[GRADIENT_BLOCKS];
    for (int i = 0; i < GRADIENT_BLOCKS; i++, next += BLOCK * d->padded) block[i] = next;
    gradient_scratch w = {block[0], block[1],       block[2],
                          block[3], block[4],       block[5],
                          block[6], .scores = next, .products = next + BLOCK * BLOCK};
    w.row = w.products + BLOCK * BLOCK;
    w.centres = w.row + d->padded;
    w.dq = w.centres + padded_time(d);
    return w;
}

/* centres[i] = dy[i] . y[i] */
static void compute_centres(const tu__kernel *k, const gradient_scratch *w, int64_t item) {
    const attention_data *d = k->data;
    for (int64_t first = 0; first < d->time; first += BLOCK) {
        rows y = rows_of_y(k, k->in[1], item, first);
        load_block(k, y, w->q);
        load_block(k, rows_of_y(k, k->in[3], item, first), w->dy);
        for (int64_t i = 0; i < y.count; i++)
            w->centres[first + i] = loops_of(k)->dot(d->padded, w->q + i * d->padded, w->dy + i * d->padded);
    }
}

/* c [BLOCK, padded] += a b, where a is [BLOCK, depth], or transposed [depth, BLOCK]; both have rows of BLOCK. */
static void add_product(const tu__kernel *k, const float *a, bool transposed, const float *b,
                        int64_t row_count, int64_t depth, float *c) {
    const attention_data *d = k->data;
    loops_of(k)->multiply(&(cpu_block_product){.rows = row_count,
                                               .columns = d->padded,
                                               .depth = depth,
                                               .a = a,
                                               .a_row = transposed ? 1 : BLOCK,
                                               .a_depth = transposed ? BLOCK : 1,
                                               .b = b,
                                               .b_row = d->padded,
                                               .c = c,
                                               .c_row = d->padded,
                                               .adds = true});
}

static void multiply_by_transposed(const tu__kernel *k, const float *a, const float *b, int64_t row_count,
                                   float *c) {
    const attention_data *d = k->data;
    loops_of(k)->multiply(&(cpu_block_product){.rows = row_count,
                                               .columns = BLOCK,
                                               .depth = d->width,
                                               .a = a,
                                               .a_row = d->padded,
                                               .a_depth = 1,
                                               .b = b,
                                               .b_row = BLOCK,
                                               .c = c,
                                               .c_row = BLOCK});
}

/* Adds to dk and dv of a block of keys, and to dq, what a block of queries contributes. */
static void add_gradients(const tu__kernel *k, const gradient_scratch *w, int64_t item, int64_t first_key,
                          int64_t key_count, int64_t first_query) {
    const attention_data *d = k->data;
    rows queries = rows_of_x(k, k->in[0], item, 0, first_query);
    const float *logarithms = (const float *)k->in[2] + item * d->time + first_query;
    load_block(k, queries, w->q);
    load_block(k, rows_of_y(k, k->in[3], item, first_query), w->dy);
    multiply_by_transposed(k, w->q, w->keys_transposed, queries.count, w->scores);
    multiply_by_transposed(k, w->dy, w->values_transposed, queries.count, w->products);
    for (int64_t i = 0; i < queries.count; i++)
        loops_of(k)->weigh(BLOCK, visible_keys(d, first_query + i, first_key), d->scale, logarithms[i],
                           w->centres[first_query + i], w->scores + i * BLOCK, w->products + i * BLOCK);
    add_product(k, w->scores, true, w->dy, key_count, queries.count, w->dv);
    add_product(k, w->products, true, w->q, key_count, queries.count, w->dk);
    add_product(k, w->products, false, w->keys, queries.count, BLOCK, w->dq + first_query * d->padded);
}

static void differentiate(const tu__kernel *k, const gradient_scratch *w, int64_t item) {
    const attention_data *d = k->data;
    size_t block_bytes = (size_t)(BLOCK * d->padded) * sizeof(float);
    compute_centres(k, w, item);
    memset(w->dq, 0, (size_t)blocks_of(d) * block_bytes);
    for (int64_t key = 0; key < d->time; key += BLOCK) {
        rows keys = rows_of_x(k, k->in[0], item, 1, key), values = rows_of_x(k, k->in[0], item, 2, key);
        load_block(k, keys, w->keys);
        load_transposed(k, keys, w->row, w->keys_transposed);
        load_transposed(k, values, w->row, w->values_transposed);
        memset(w->dk, 0, block_bytes);
        memset(w->dv, 0, block_bytes);
        for (int64_t query = d->causal ? key : 0; query < d->time; query += BLOCK)
            add_gradients(k, w, item, key, keys.count, query);
        for (int64_t i = 0; i < keys.count; i++) {
            store_row(k, &keys, i, w->dk + i * d->padded, k->out[0]);
            store_row(k, &values, i, w->dv + i * d->padded, k->out[0]);
        }
    }
    for (int64_t i = 0; i < d->time; i++) {
        rows query = rows_of_x(k, k->in[0], item, 0, i);
        store_row(k, &query, 0, w->dq + i * d->padded, k->out[0]);
    }
}

static void gradient_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    gradient_scratch w = gradient_scratch_of(k, worker);
    for (int64_t i = first; i < last; i++) differentiate(k, &w, i);
}

static tu_status run_gradient(const tu__kernel *k) {
    run_items(k, ((const attention_data *)k->data)->items, gradient_range);
    return TU_OK;
}

/* ---- Lowering rules ---- */

/* Makes a kernel; TU_UNSUPPORTED for f64, which the reference kernel computes. */
static tu_status lower(tu__selection *s, const tu__node *node, tu_status (*run)(const tu__kernel *k),
                       double scale, bool causal, tu__kernel **kernel) {
    tu_type x = cpu_input_type(s, node, 0);
    if (x.dtype == TU_F64) return TU_UNSUPPORTED;
    tu__kernel *k = *kernel = tu__kernel_new(s, node, node->op->name, run);
    attention_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    int64_t width = x.shape.dim[4];
    *d = (attention_data){.time = x.shape.dim[1],
                          .heads = x.shape.dim[3],
                          .width = width,
                          .items = x.shape.dim[0] * x.shape.dim[3],
                          .padded = (width + CPU_ATTENTION_COLUMNS - 1) / CPU_ATTENTION_COLUMNS *
                                    CPU_ATTENTION_COLUMNS,
                          .dtype = x.dtype,
                          .causal = causal,
                          .scale = (float)(scale != 0 ? scale : 1 / sqrt((double)width))};
    cpu_kernel_set_costs(k, s, node);
    return cpu_kernel_add_operands(k, node, -1);
}

static void set_workspace(tu__kernel *k, int64_t floats) {
    attention_data *d = k->data;
    d->worker_floats = cpu_round_up_to_line((size_t)floats * sizeof(float)) / sizeof(float);
    k->workspace_bytes = d->worker_floats * sizeof(float) * (size_t)cpu_of(k)->threads;
}

tu_status cpu_lower_attention(tu__selection *s, const tu__node *node) {
    const struct tu__attention_attrs *a = node->attrs;
    tu__kernel *k;
    TU_TRY(lower(s, node, run_attention, a->scale, a->causal, &k));
    const attention_data *d = k->data;
    set_workspace(k, FORWARD_BLOCKS * BLOCK * d->padded + BLOCK * BLOCK + d->padded);
    return TU_OK;
}

tu_status cpu_lower_attention_grad(tu__selection *s, const tu__node *node) {
    const struct tu__attention_grad_attrs *a = node->attrs;
    tu__kernel *k;
    TU_TRY(lower(s, node, run_gradient, a->scale, a->causal, &k));
    const attention_data *d = k->data;
    set_workspace(k, GRADIENT_BLOCKS * BLOCK * d->padded + 2 * BLOCK * BLOCK + d->padded +
                         padded_time(d) * (1 + d->padded));
    return TU_OK;
}
