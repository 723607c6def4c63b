/* Batch and layer normalisation: ranges of rows, and merging their statistics. The formulas are in graph/ops/norm.c,
 * the loops in isa/loops_kernels_norm.c.
 *
 * Batch-norm needs the statistics of all rows before it can write the first: two passes. Forward reads x twice and
 * writes y, 3 bytes moved per byte of x; backward reads x and dy twice and writes dx, 5 bytes. Fused relus and
 * additions (device/kit/norm_fusion.c) are part of the same passes. Each worker computes the statistics of its range of
 * rows; they are merged in the order of the ranges, in f64, so that the same number of threads gives the same bits.
 * Layer-norm processes one row at a time, which stays in the cache: 2 and 3 bytes.
 *
 * Parameters and statistics are f32, also if x is bf16; with bf16 parameters the reference kernel is used. */
#include <math.h>
#include <string.h>

#include "device/cpu/isa/kernels.h"
#include "device/cpu/ranges.h"
#include "device/kit/members.h"
#include "device/kit/norm_fusion.h"

typedef struct norm_data {
    int64_t rows, width; /* x [rows, width], of one member */
    double epsilon;
    tu_dtype dtype;
    int64_t workers;
    size_t worker_bytes; /* of statistics: a count, and three arrays [width] */
    /* batch normalisation */
    bool has_addend;    /* another value is added to y: in[3] */
    bool relu;          /* relu is applied to y */
    bool after_relu;    /* gradient: relu was applied to y, whose scale and shift are in[5] */
    bool saves_factors; /* scale and shift of y are saved in out[3] */
    tu__members members;
} norm_data;

typedef struct worker_statistics {
    int64_t rows; /* 0: this worker had none */
    /* forward: mean - pivot, sum of squared differences from the mean, first row; batch-norm gradient: sums of dy and
     * of dy (x - mean); layer-norm gradient: dgamma, dbeta */
    float *first, *second, *pivot;
} worker_statistics;

static const struct cpu_norm_loops *loops_of(const tu__kernel *k) {
    return cpu_of(k)->loops->kernels->norm;
}

/* A worker's statistics: 64 bytes with the number of rows, then the arrays. */
static int64_t *worker_row_count(const tu__kernel *k, int worker) {
    const norm_data *d = k->data;
    return (int64_t *)(void *)((char *)k->workspace + (size_t)worker * d->worker_bytes);
}

static worker_statistics statistics_of(const tu__kernel *k, int worker) {
    const norm_data *d = k->data;
    float *first = (float *)(void *)((char *)worker_row_count(k, worker) + 64);
    return (worker_statistics){*worker_row_count(k, worker), first, first + d->width, first + 2 * d->width};
}

/* Returns an array [width] that all workers read; these follow the workers' statistics. */
static float *shared_array(const tu__kernel *k, int index) {
    const norm_data *d = k->data;
    return (float *)(void *)((char *)k->workspace + d->worker_bytes * (size_t)d->workers) + index * d->width;
}

static void run_rows(const tu__kernel *k, tu__parallel_body body) {
    const norm_data *d = k->data;
    tu__parallel_for(d->rows, cpu_grain(d->rows, d->width, d->workers), body, (void *)k);
}

/* Like run_rows; sets the counts of all workers to zero first, because fewer workers may run. */
static void run_rows_with_statistics(const tu__kernel *k, tu__parallel_body body) {
    const norm_data *d = k->data;
    for (int worker = 0; worker < d->workers; worker++) *worker_row_count(k, worker) = 0;
    run_rows(k, body);
}

/* ---- Batch normalisation: in x, gamma, beta, the value to add; out y, mean, variance, saved scale and shift ---- */

static void moments_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const norm_data *d = k->data;
    *worker_row_count(k, worker) = last - first;
    worker_statistics p = statistics_of(k, worker);
    loops_of(k)->moments[cpu_loop_variant(d->dtype)](last - first, d->width,
                                                     cpu_element(k->in[0], d->dtype, first * d->width),
                                                     p.pivot, p.first, p.second);
}

/* Computes mean and variance of channel `c` over all ranges (parallel variance, Chan et al. 1979). */
static void merge_moments(const tu__kernel *k, int64_t c, double *mean, double *variance) {
    const norm_data *d = k->data;
    double n = 0, m2 = 0;
    *mean = 0;
    for (int worker = 0; worker < d->workers; worker++) {
        worker_statistics p = statistics_of(k, worker);
        if (p.rows == 0) continue;
        double total = n + (double)p.rows, delta = (double)p.pivot[c] + p.first[c] - *mean;
        *mean += delta * ((double)p.rows / total);
        m2 += p.second[c] + delta * delta * (n * (double)p.rows / total);
        n = total;
    }
    *variance = m2 / n;
}

/* Return scale and shift of y, arrays [width]: in the saved buffer if another kernel needs them. */
static float *scale_of(const tu__kernel *k) {
    const norm_data *d = k->data;
    return d->saves_factors ? k->out[3] : shared_array(k, 0);
}

static float *shift_of(const tu__kernel *k) {
    const norm_data *d = k->data;
    return scale_of(k) + d->width;
}

static void apply_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const norm_data *d = k->data;
    int64_t offset = first * d->width;
    (void)worker;
    cpu_norm_columns columns = {k->out[1], scale_of(k), shift_of(k)};
    loops_of(k)->apply[cpu_loop_variant(d->dtype)](
        last - first, d->width, cpu_element(k->in[0], d->dtype, offset), &columns,
        d->has_addend ? cpu_element(k->in[3], d->dtype, offset) : NULL, d->relu,
        cpu_element(k->out[0], d->dtype, offset));
}

static tu_status run_one_batch_norm(const tu__kernel *k) {
    const norm_data *d = k->data;
    const float *gamma = k->in[1], *beta = k->in[2];
    float *mean = k->out[1], *variance = k->out[2], *scale = scale_of(k), *shift = shift_of(k);
    run_rows_with_statistics(k, moments_range);
    for (int64_t c = 0; c < d->width; c++) {
        double wide_mean, wide_variance;
        merge_moments(k, c, &wide_mean, &wide_variance);
        mean[c] = (float)wide_mean;
        variance[c] = (float)wide_variance;
        scale[c] = (float)(gamma[c] / sqrt(wide_variance + d->epsilon));
        /* Corrects the rounding of the mean. */
        shift[c] = (float)(beta[c] + (mean[c] - wide_mean) * scale[c]);
    }
    run_rows(k, apply_range);
    return TU_OK;
}

static tu_status run_batch_norm(const tu__kernel *k) {
    const norm_data *d = k->data;
    return tu__run_members(k, &d->members, run_one_batch_norm);
}

/* ---- Its gradient: in x, gamma, mean, variance, dy, scale and shift of y; out dx, dgamma, dbeta ---- */

/* Returns scale and shift of y if relu was applied to it, else NULL. */
static const cpu_norm_columns *relu_columns(const tu__kernel *k, cpu_norm_columns *columns) {
    const norm_data *d = k->data;
    if (!d->after_relu) return NULL;
    const float *factors = k->in[5];
    *columns = (cpu_norm_columns){k->in[2], factors, factors + d->width};
    return columns;
}

static void gradient_sums_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const norm_data *d = k->data;
    int64_t offset = first * d->width;
    *worker_row_count(k, worker) = last - first;
    worker_statistics p = statistics_of(k, worker);
    cpu_norm_columns columns;
    loops_of(k)->gradient_sums[cpu_loop_variant(d->dtype)](
        last - first, d->width, cpu_element(k->in[0], d->dtype, offset),
        cpu_element(k->in[4], d->dtype, offset), k->in[2], relu_columns(k, &columns), p.first, p.second);
}

static void gradient_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const norm_data *d = k->data;
    int64_t offset = first * d->width;
    (void)worker;
    cpu_norm_columns columns;
    loops_of(k)->gradient[cpu_loop_variant(d->dtype)](
        last - first, d->width, cpu_element(k->in[0], d->dtype, offset),
        cpu_element(k->in[4], d->dtype, offset), k->in[2], relu_columns(k, &columns), shared_array(k, 0),
        shared_array(k, 1), shared_array(k, 2), cpu_element(k->out[0], d->dtype, offset));
}

/* Computes the sums of column `c` over all ranges. */
static void merge_sums(const tu__kernel *k, int64_t c, double *first, double *second) {
    const norm_data *d = k->data;
    *first = *second = 0;
    for (int worker = 0; worker < d->workers; worker++) {
        worker_statistics p = statistics_of(k, worker);
        if (p.rows == 0) continue;
        *first += p.first[c];
        *second += p.second[c];
    }
}

static tu_status run_one_batch_gradient(const tu__kernel *k) {
    const norm_data *d = k->data;
    const float *gamma = k->in[1], *variance = k->in[3];
    float *dgamma = k->out[1], *dbeta = k->out[2];
    float *scale = shared_array(k, 0), *mean_dy = shared_array(k, 1), *x_factor = shared_array(k, 2);
    run_rows_with_statistics(k, gradient_sums_range);
    for (int64_t c = 0; c < d->width; c++) {
        double sum_dy, sum_dy_x, rstd = 1 / sqrt(variance[c] + d->epsilon);
        merge_sums(k, c, &sum_dy, &sum_dy_x);
        dbeta[c] = (float)sum_dy;
        dgamma[c] = (float)(sum_dy_x * rstd);
        scale[c] = (float)(gamma[c] * rstd);
        mean_dy[c] = (float)(sum_dy / (double)d->rows);
        x_factor[c] = (float)(gamma[c] * rstd * rstd * rstd * sum_dy_x / (double)d->rows);
    }
    run_rows(k, gradient_range);
    return TU_OK;
}

static tu_status run_batch_gradient(const tu__kernel *k) {
    const norm_data *d = k->data;
    return tu__run_members(k, &d->members, run_one_batch_gradient);
}

/* ---- Layer normalisation: in x, gamma, beta; out y, mean, rstd ---- */

static void layer_norm_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const norm_data *d = k->data;
    int64_t offset = first * d->width;
    (void)worker;
    loops_of(k)->layer[cpu_loop_variant(d->dtype)](
        last - first, d->width, d->epsilon, cpu_element(k->in[0], d->dtype, offset), k->in[1], k->in[2],
        cpu_element(k->out[0], d->dtype, offset), (float *)k->out[1] + first, (float *)k->out[2] + first);
}

static tu_status run_layer_norm(const tu__kernel *k) {
    run_rows(k, layer_norm_range);
    return TU_OK;
}

/* ---- Its gradient: in x, gamma, mean, rstd, dy; out dx, dgamma, dbeta ---- */

static void layer_norm_gradient_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const norm_data *d = k->data;
    int64_t offset = first * d->width;
    *worker_row_count(k, worker) = last - first;
    worker_statistics p = statistics_of(k, worker);
    memset(p.first, 0, (size_t)d->width * 2 * sizeof(float));
    loops_of(k)->layer_gradient[cpu_loop_variant(d->dtype)](
        last - first, d->width, cpu_element(k->in[0], d->dtype, offset), k->in[1],
        (const float *)k->in[2] + first, (const float *)k->in[3] + first,
        cpu_element(k->in[4], d->dtype, offset), cpu_element(k->out[0], d->dtype, offset), p.first, p.second);
}

static tu_status run_layer_norm_gradient(const tu__kernel *k) {
    const norm_data *d = k->data;
    float *dgamma = k->out[1], *dbeta = k->out[2];
    run_rows_with_statistics(k, layer_norm_gradient_range);
    for (int64_t i = 0; i < d->width; i++) {
        double first, second;
        merge_sums(k, i, &first, &second);
        dgamma[i] = (float)first;
        dbeta[i] = (float)second;
    }
    return TU_OK;
}

/* ---- Lowering rules ---- */

/* Makes a kernel without reads and writes. `shared`: number of arrays that all workers read. `members`: 0, or the number of
 * networks. Returns TU_UNSUPPORTED for types without loops. */
static tu_status new_norm_kernel(tu__selection *s, const tu__node *node, double epsilon, int shared,
                                 int64_t members, tu_status (*run)(const tu__kernel *k),
                                 tu__kernel **kernel) {
    tu_type x = node->outputs[0], gamma = cpu_input_type(s, node, 1);
    if (cpu_loop_variant(x.dtype) < 0 || gamma.dtype != TU_F32) return TU_UNSUPPORTED;
    tu__kernel *k = *kernel = tu__kernel_new(s, node, node->op->name, run);
    norm_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    int64_t networks = members ? members : 1, width = tu_shape_elements(gamma.shape) / networks;
    size_t array = (size_t)width * sizeof(float);
    *d = (norm_data){.rows = tu_shape_elements(x.shape) / width / networks,
                     .width = width,
                     .epsilon = epsilon,
                     .dtype = x.dtype,
                     .workers = cpu_of(s)->threads,
                     .worker_bytes = cpu_round_up_to_line(64 + 3 * array)};
    tu__members_of(&d->members, s, node, members);
    k->workspace_bytes = d->worker_bytes * (size_t)d->workers + cpu_round_up_to_line((size_t)shared * array);
    cpu_kernel_set_costs(k, s, node);
    return TU_OK;
}

tu_status cpu_lower_batch_norm(tu__selection *s, const tu__node *node) {
    tu__kernel *k;
    const struct tu__batch_norm_attrs *a = node->attrs;
    TU_TRY(new_norm_kernel(s, node, a->epsilon, 2, a->members, run_batch_norm, &k));
    norm_data *d = k->data;
    tu__epilogue epilogue = tu__norm_epilogue_of(s, node);
    k->name = tu__norm_epilogue_name(&epilogue);
    d->has_addend = epilogue.add;
    d->relu = epilogue.relu;
    d->saves_factors = d->relu && !d->has_addend;
    size_t factors = 2 * (size_t)d->width * sizeof(float), networks = a->members ? (size_t)a->members : 1;
    if (d->has_addend) d->members.in[3] = d->members.in[0];
    d->members.out[3] = factors;
    for (uint32_t i = 0; i < node->input_count; i++) TU_TRY(tu__kernel_read(k, node->inputs[i]));
    TU_TRY(tu__kernel_add_epilogue(k, &epilogue));
    TU_TRY(tu__kernel_write(k, epilogue.result, 0));
    for (uint32_t i = 1; i < node->output_count; i++)
        TU_TRY(tu__kernel_write(k, (tu__edge){node->id, i}, -1));
    return d->saves_factors ? tu__kernel_save(k, node, factors * networks) : TU_OK;
}

tu_status cpu_lower_batch_norm_grad(tu__selection *s, const tu__node *node) {
    tu__kernel *k;
    const struct tu__batch_norm_grad_attrs *a = node->attrs;
    TU_TRY(new_norm_kernel(s, node, a->epsilon, 3, a->members, run_batch_gradient, &k));
    tu__relu_gradient found;
    if (!tu__find_relu_gradient(s, node, &found)) return cpu_kernel_add_operands(k, node, TU__NORM_DY);
    norm_data *d = k->data;
    d->after_relu = true;
    d->members.in[5] = 2 * (size_t)d->width * sizeof(float);
    k->name = "relu_grad+batch_norm_grad";
    for (uint32_t i = 0; i < node->input_count; i++)
        TU_TRY(tu__kernel_read(k, i == TU__NORM_DY ? found.dy : node->inputs[i]));
    TU_TRY(tu__kernel_add_relu_gradient(k, &found));
    for (uint32_t i = 0; i < node->output_count; i++)
        TU_TRY(tu__kernel_write(k, (tu__edge){node->id, i}, i == 0 ? TU__NORM_DY : -1));
    return TU_OK;
}

tu_status cpu_lower_layer_norm(tu__selection *s, const tu__node *node) {
    tu__kernel *k;
    TU_TRY(new_norm_kernel(s, node, tu__attrs(node, layer_norm)->epsilon, 0, 0, run_layer_norm, &k));
    return cpu_kernel_add_operands(k, node, 0);
}

tu_status cpu_lower_layer_norm_grad(tu__selection *s, const tu__node *node) {
    tu__kernel *k;
    TU_TRY(new_norm_kernel(s, node, tu__attrs(node, layer_norm_grad)->epsilon, 0, 0, run_layer_norm_gradient,
                           &k));
    return cpu_kernel_add_operands(k, node, 4);
}
