/* Shard rules: every operation on sharded samples gives the same result as on the whole batch, or is rejected.
 *
 * A case is a value computed from batched inputs of 8 samples, in three shards of 3, 3 and 2. Its result, and the
 * gradients of its sum if it is differentiable, are compared with the original graph. The test fails if an operation
 * has no case. */
#include "replicated.h"

enum { SAMPLES = 8, SHARDS = 3 };

/* ---- Inputs of the cases; each name is created once ---- */

static tu_value batched(tu_graph *g, const char *name, tu_dtype dtype, tu_shape shape) {
    const tu__node *existing = tu__find_node(g, name);
    return existing ? tu__value(g, existing->id, 0) : tu_batch_input(g, name, dtype, shape);
}
static tu_value samples(tu_graph *g) {
    return batched(g, "samples", TU_F64, TU_SHAPE(SAMPLES, 6));
}
static tu_value other_samples(tu_graph *g) {
    return batched(g, "others", TU_F64, TU_SHAPE(SAMPLES, 6));
}
static tu_value images(tu_graph *g) {
    return batched(g, "images", TU_F64, TU_SHAPE(SAMPLES, 6, 5, 4));
}
static tu_value classes(tu_graph *g) {
    return batched(g, "classes", TU_I32, TU_SHAPE(SAMPLES));
}
/* One [4,4] matrix per sample, not close to singular. */
static tu_value matrices(tu_graph *g) {
    double identity[16] = {0};
    for (int i = 0; i < 4; i++) identity[5 * i] = 2;
    return tu_add(batched(g, "matrices", TU_F64, TU_SHAPE(SAMPLES, 4, 4)),
                  tu_constant(g, TU_F64, TU_SHAPE(4, 4), identity));
}
static tu_value weights(tu_graph *g, tu_shape shape) {
    return tu_variable(g, "weights", TU_F64, shape, .init = {.kind = TU_INIT_NORMAL, .b = 1});
}
static tu_value replicated(tu_graph *g, tu_shape shape) {
    return tu_input(g, "whole", TU_F64, shape);
}

/* ---- Cases ---- */

#define CASE(name, ...)                                                                                      \
    static tu_value name(tu_graph *g) {                                                                      \
        __VA_ARGS__                                                                                          \
    }

CASE(broadcast_row, return tu_mul(samples(g), weights(g, TU_SHAPE(6)));)
CASE(broadcast_column, return tu_add(samples(g), replicated(g, TU_SHAPE(SAMPLES, 1)));)
CASE(replicated_samples, return tu_sub(samples(g), replicated(g, TU_SHAPE(SAMPLES, 6)));)
CASE(replicated_scalar, return tu_add(samples(g), weights(g, TU_SCALAR));)
CASE(rank_above, return tu_add(samples(g), replicated(g, TU_SHAPE(2, SAMPLES, 6)));)
CASE(number_of_samples, return tu_mul(samples(g), tu_fill(g, TU_F64, TU_SHAPE(SAMPLES, 6), 3));)
CASE(repeated_number,
     return tu_mul(samples(g), tu_broadcast(weights(g, TU_SHAPE(1, 6)), TU_SHAPE(SAMPLES, 6)));)
CASE(repeated_rows, tu_value w = tu_broadcast(weights(g, TU_SHAPE(SAMPLES, 1)), TU_SHAPE(SAMPLES, 6));
     return tu_mul(samples(g), w);)
CASE(reshaped_rows, tu_value w = tu_reshape(weights(g, TU_SHAPE(SAMPLES * 3, 2)), TU_SHAPE(SAMPLES, 6));
     return tu_mul(samples(g), w);)
CASE(rows_across, tu_value w = tu_reshape(weights(g, TU_SHAPE(6, SAMPLES)), TU_SHAPE(SAMPLES, 6));
     return tu_mul(samples(g), tu_stop_gradient(w));)
CASE(select_between,
     return tu_select(tu_greater(samples(g), other_samples(g)), samples(g), replicated(g, TU_SHAPE(6)));)

CASE(sum_all, return tu_sum(samples(g));)
CASE(sum_over, return tu_sum(images(g), .axes = TU_AXES(0, 2));)
CASE(sum_kept, return tu_sum(images(g), .axes = TU_AXES(0, 2), .keep = true);)
CASE(sum_other_axis, return tu_sum(images(g), .axes = TU_AXES(1, 3));)
CASE(sum_renumbered, return tu_sum(tu_transpose(images(g), 1, 2, 0, 3), .axes = TU_AXES(0, 3));)
CASE(count_true, return tu_sum(tu_cast(tu_greater(samples(g), other_samples(g)), TU_I64));)
CASE(mean_over, return tu_mean(images(g), .axes = TU_AXES(0, 1));)
CASE(mean_other_axis, return tu_mean(images(g), .axes = TU_AXES(1, 2), .keep = true);)
CASE(max_other_axis, return tu_max(images(g), .axes = TU_AXES(1, 2));)
CASE(min_other_axis, return tu_min(samples(g), .axes = TU_AXES(1), .keep = true);)
CASE(prod_other_axis, return tu_prod(samples(g), .axes = TU_AXES(1));)
CASE(logsumexp_other_axis, return tu_logsumexp(samples(g), .axes = TU_AXES(1));)
CASE(argmax_other_axis, return tu_argmax(images(g), 2);)
CASE(argmin_before, return tu_argmin(tu_transpose(samples(g), 1, 0), 0);)
CASE(cumsum_other_axis, return tu_cumsum(samples(g), 1);)
CASE(top_k_other_axis, return tu_top_k(samples(g), 2, 1);)
CASE(top_k_indices, return tu_output_of(tu_top_k(samples(g), 2, 1), 1);)

CASE(gather_by_samples, return tu_gather(weights(g, TU_SHAPE(5, 3)), classes(g), 0);)
CASE(gather_columns, return tu_gather(weights(g, TU_SHAPE(2, 5, 3)), classes(g), 1);)
CASE(gather_of_samples, int32_t picked[] = {1, 4};
     return tu_gather(samples(g), tu_constant(g, TU_I32, TU_SHAPE(2), picked), 1);)
CASE(gather_after, int32_t picked[] = {1, 0, 1, 1};
     return tu_gather(tu_transpose(samples(g), 1, 0), tu_constant(g, TU_I32, TU_SHAPE(2, 2), picked), 0);)
CASE(scatter_by_samples, return tu_scatter_add(weights(g, TU_SHAPE(3, 6)), classes(g), samples(g), 0);)
CASE(scatter_replicated_updates, tu_value updates = replicated(g, TU_SHAPE(SAMPLES, 6));
     return tu_scatter_add(weights(g, TU_SHAPE(3, 6)), classes(g), updates, 0);)
CASE(scatter_to_samples, int32_t places[] = {1, 0, 1, 3, 2, 1};
     tu_value indices = tu_constant(g, TU_I32, TU_SHAPE(6), places);
     return tu_scatter_add(tu_fill(g, TU_F64, TU_SHAPE(SAMPLES, 4), 0), indices, samples(g), 1);)
CASE(take_along_samples, tu_value places = tu_argmax(samples(g), 1);
     return tu_take_along(other_samples(g), tu_expand_axis(places, 1), 1);)
CASE(take_by_samples, return tu_take_along(weights(g, TU_SHAPE(5)), classes(g), 0);)
CASE(put_along_samples, tu_value places = tu_output_of(tu_top_k(other_samples(g), 2, 1), 1);
     return tu_put_along(places, tu_slice(samples(g), 1, 0, 2, 1), 1, 6);)
CASE(put_by_samples, return tu_put_along(classes(g), tu_sum(samples(g), .axes = TU_AXES(1)), 0, 4);)
CASE(one_hot_samples, return tu_one_hot(classes(g), 4, TU_F64);)

CASE(rows_by_weights, return tu_matmul(samples(g), weights(g, TU_SHAPE(6, 3)));)
CASE(rows_by_transposed, return tu_matmul(samples(g), weights(g, TU_SHAPE(3, 6)), .transpose_b = true);)
CASE(weights_by_columns, return tu_matmul(weights(g, TU_SHAPE(3, 6)), samples(g), .transpose_b = true);)
CASE(over_samples, return tu_matmul(samples(g), other_samples(g), .transpose_a = true);)
CASE(over_replicated_samples,
     return tu_matmul(samples(g), replicated(g, TU_SHAPE(SAMPLES, 4)), .transpose_a = true);)
CASE(batch_of_products, return tu_matmul(matrices(g), tu_tanh(matrices(g)));)
CASE(batch_by_one,
     return tu_matmul(tu_reshape(images(g), TU_SHAPE(SAMPLES, 30, 4)), weights(g, TU_SHAPE(4, 2)));)
CASE(batch_by_replicated, tu_value x = tu_reshape(images(g), TU_SHAPE(SAMPLES, 30, 4));
     return tu_matmul(x, replicated(g, TU_SHAPE(SAMPLES, 4, 2)));)
CASE(inverse_each, return tu_inverse(matrices(g));)
CASE(solve_each, return tu_solve(matrices(g), replicated(g, TU_SHAPE(SAMPLES, 4, 2)));)
CASE(cholesky_each, tu_value m = matrices(g); return tu_cholesky(tu_matmul(m, m, .transpose_b = true));)
CASE(triangular_each, return tu_triangular_solve(matrices(g), replicated(g, TU_SHAPE(SAMPLES, 4, 2)));)
CASE(band_each, return tu_band(matrices(g), 1, 0);)

CASE(convolution, return tu_convolve(images(g), weights(g, TU_SHAPE(2, 3, 3, 4)));)
CASE(convolution_back, return tu_convolve_transpose(images(g), weights(g, TU_SHAPE(4, 3, 3, 2)));)
CASE(maximum_of_windows, return tu_max_pool(images(g), .window = {2, 2}, .stride = {2, 2});)
CASE(picked_of_windows, struct tu__max_pool_pick_attrs a = {.window = {2, 2}, .stride = {2, 2}};
     return tu__apply(MAX_POOL_PICK, &a, images(g), tu_tanh(images(g)));)
static tu_value quantized(tu_graph *g) {
    return tu_quantize(tu_cast(images(g), TU_F32), 0.05, 100);
}
static tu_value small_weights(tu_graph *g, tu_shape shape) {
    return tu_cast(tu_scale(weights(g, shape), 40), TU_I8);
}
static tu_value numbers_of(tu_value q) {
    return tu_cast(tu_dequantize(q, 0.05, 7), TU_F64);
}
CASE(int8_convolution,
     tu_value sums = tu_convolve_int8(quantized(g), small_weights(g, TU_SHAPE(2, 3, 3, 4)), 100);
     return numbers_of(tu_requantize(sums, tu_fill(g, TU_F32, TU_SHAPE(2), 0.01),
                                     tu_fill(g, TU_I32, TU_SHAPE(2), 50)));)
CASE(int8_residual, tu_value q = quantized(g);
     tu_value sums = tu_convolve_int8(q, small_weights(g, TU_SHAPE(4, 3, 3, 4)), 100);
     return numbers_of(tu_requantize(sums, tu_fill(g, TU_F32, TU_SHAPE(4), 0.01),
                                     tu_fill(g, TU_I32, TU_SHAPE(4), 50), .residual = q,
                                     .residual_factor = 0.5));)
CASE(int8_product, tu_value q = tu_reshape(quantized(g), TU_SHAPE(SAMPLES, 120));
     return tu_cast(tu_matmul_int8(q, small_weights(g, TU_SHAPE(120, 3)), 100), TU_F64);)
CASE(int8_addition, tu_value q = quantized(g);
     return numbers_of(tu_add_int8(q, tu_max_pool(q, .window = {1, 1}), .factor = {0.5, 0.25}));)
CASE(int8_mean, return numbers_of(tu_mean_int8(quantized(g), 0.03, 100, 20));)
CASE(mean_of_windows, return tu_avg_pool(images(g), .window = {2, 2}, .stride = {2, 2});)
CASE(resized, return tu_resize(images(g), 3, 7, TU_BILINEAR);)
CASE(cropped, return tu_random_crop(images(g), 3, 3);)
CASE(noise,
     return tu_mul(samples(g), tu_random_normal(g, TU_F64, TU_SHAPE(SAMPLES, 6), 0, 1, .per_sample = true));)
CASE(noise_of_step, return tu_mul(samples(g), tu_random_normal(g, TU_F64, TU_SHAPE(SAMPLES, 6), 0, 1));)

CASE(normalized, tu_value gamma = weights(g, TU_SHAPE(4)), beta = replicated(g, TU_SHAPE(4));
     return tu_batch_normalize(images(g), gamma, beta);)
CASE(normalized_rows, tu_value gamma = weights(g, TU_SHAPE(6)), beta = replicated(g, TU_SHAPE(6));
     return tu_layer_normalize(samples(g), gamma, beta);)
CASE(normalized_mean, tu_value gamma = weights(g, TU_SHAPE(5, 4)), beta = replicated(g, TU_SHAPE(5, 4));
     return tu_output_of(tu_layer_normalize(images(g), gamma, beta, .axes = 2), 1);)
CASE(local_response, return tu_lrn(images(g), .radius = 1, .bias = 1, .alpha = 0.5, .beta = 0.75);)
CASE(probabilities, return tu_softmax(samples(g), 1);)
CASE(log_probabilities, return tu_log_softmax(samples(g), 1);)
CASE(attended, tu_value x = tu_reshape(images(g), TU_SHAPE(SAMPLES, 5, 3, 2, 4));
     return tu_attention(x, .causal = true);)
CASE(entropy, return tu_cross_entropy(samples(g), classes(g), .smoothing = 0.1);)
CASE(entropy_gradient, return tu__apply(CROSS_ENTROPY_GRAD, NULL, samples(g), classes(g));)
CASE(entropy_of_both, return tu_cross_entropy(samples(g), tu_softmax(other_samples(g), 1));)

CASE(merged_with_later_axes, return tu_reshape(images(g), TU_SHAPE(SAMPLES * 6 * 5, 4));)
CASE(merged_and_split, tu_value rows = tu_tanh(tu_reshape(images(g), TU_SHAPE(SAMPLES * 30, 4)));
     return tu_reshape(rows, TU_SHAPE(SAMPLES, 3, 2, 20));)
CASE(sum_of_merged, return tu_sum(tu_reshape(images(g), TU_SHAPE(SAMPLES * 30, 4)), .axes = TU_AXES(0));)
CASE(merged_axes_with_replicated, tu_value rows = tu_reshape(images(g), TU_SHAPE(SAMPLES * 30, 4));
     return tu_mul(rows, replicated(g, TU_SHAPE(SAMPLES * 30, 4)));)
CASE(a_new_axis_before, return tu_add(tu_expand_axis(samples(g), 0), replicated(g, TU_SHAPE(3, 1, 1)));)
CASE(repeated, return tu_broadcast(samples(g), TU_SHAPE(3, SAMPLES, 6));)
CASE(transposed, return tu_transpose(images(g), 2, 0, 3, 1);)
CASE(sliced_other_axis, return tu_slice(samples(g), 1, 1, 5, 2);)
CASE(padded_other_axis, return tu_pad(samples(g), 1, 1, 2, 0.5);)
CASE(concat_other_axis, tu_value both[] = {samples(g), replicated(g, TU_SHAPE(SAMPLES, 3))};
     return tu_concat(both, 2, 1);)
CASE(flipped_other_axis, return tu_flip(images(g), 1, 3);)
CASE(rolled_other_axis, return tu_roll(samples(g), 1, 2);)
CASE(stop_gradient_of_samples, return tu_stop_gradient(samples(g));)
CASE(copy_of_samples, return tu_copy(samples(g));)
CASE(only_replicated, return tu_tanh(replicated(g, TU_SHAPE(SAMPLES, 6)));)

typedef tu_value (*builder)(tu_graph *g);

static const struct supported {
    const char *name;
    builder build;
} supported[] = {
#define ROW(name)                                                                                            \
    { #name, name }
    ROW(broadcast_row),
    ROW(broadcast_column),
    ROW(replicated_samples),
    ROW(replicated_scalar),
    ROW(rank_above),
    ROW(number_of_samples),
    ROW(repeated_number),
    ROW(repeated_rows),
    ROW(reshaped_rows),
    ROW(rows_across),
    ROW(select_between),
    ROW(sum_all),
    ROW(sum_over),
    ROW(sum_kept),
    ROW(sum_other_axis),
    ROW(sum_renumbered),
    ROW(count_true),
    ROW(mean_over),
    ROW(mean_other_axis),
    ROW(max_other_axis),
    ROW(min_other_axis),
    ROW(prod_other_axis),
    ROW(logsumexp_other_axis),
    ROW(argmax_other_axis),
    ROW(argmin_before),
    ROW(cumsum_other_axis),
    ROW(top_k_other_axis),
    ROW(top_k_indices),
    ROW(gather_by_samples),
    ROW(gather_columns),
    ROW(gather_of_samples),
    ROW(gather_after),
    ROW(scatter_by_samples),
    ROW(scatter_replicated_updates),
    ROW(scatter_to_samples),
    ROW(take_along_samples),
    ROW(take_by_samples),
    ROW(put_along_samples),
    ROW(put_by_samples),
    ROW(one_hot_samples),
    ROW(rows_by_weights),
    ROW(rows_by_transposed),
    ROW(weights_by_columns),
    ROW(over_samples),
    ROW(over_replicated_samples),
    ROW(batch_of_products),
    ROW(batch_by_one),
    ROW(batch_by_replicated),
    ROW(inverse_each),
    ROW(solve_each),
    ROW(cholesky_each),
    ROW(triangular_each),
    ROW(band_each),
    ROW(convolution),
    ROW(convolution_back),
    ROW(int8_convolution),
    ROW(int8_residual),
    ROW(int8_product),
    ROW(int8_addition),
    ROW(int8_mean),
    ROW(maximum_of_windows),
    ROW(mean_of_windows),
    ROW(resized),
    ROW(cropped),
    ROW(noise),
    ROW(noise_of_step),
    ROW(normalized),
    ROW(normalized_rows),
    ROW(normalized_mean),
    ROW(local_response),
    ROW(probabilities),
    ROW(log_probabilities),
    ROW(entropy),
    ROW(entropy_gradient),
    ROW(attended),
    ROW(entropy_of_both),
    ROW(merged_with_later_axes),
    ROW(merged_and_split),
    ROW(sum_of_merged),
    ROW(merged_axes_with_replicated),
    ROW(a_new_axis_before),
    ROW(repeated),
    ROW(transposed),
    ROW(sliced_other_axis),
    ROW(padded_other_axis),
    ROW(concat_other_axis),
    ROW(flipped_other_axis),
    ROW(rolled_other_axis),
    ROW(stop_gradient_of_samples),
    ROW(copy_of_samples),
    ROW(only_replicated),
    ROW(picked_of_windows),
#undef ROW
};

/* ---- Supported operations ---- */

enum { MAX_FETCHES = 16 };

/* Adds the gradients of the sum of squares with respect to every float leaf. */
static size_t add_gradients(tu_value value, tu_value *gradients) {
    tu_graph *g = value.graph;
    tu_value leaves[MAX_FETCHES];
    size_t count = 0;
    if (!tu_dtype_is_float(tu_value_dtype(value))) return 0;
    for (uint32_t i = 0; i < g->node_count && count < MAX_FETCHES - 2; i++) {
        tu__opcode op = g->nodes[i]->op->code;
        bool leaf = op == TU__OP_INPUT || op == TU__OP_VARIABLE;
        if (leaf && tu_dtype_is_float(g->nodes[i]->outputs[0].dtype)) leaves[count++] = tu__value(g, i, 0);
    }
    for (uint32_t i = 0; i < g->node_count; i++) /* operations on quantized values have no gradient */
        if (g->nodes[i]->op->gradient_kind == TU__GRADIENT_NONE) return 0;
    if (tu_gradients(tu_sum(tu_square(value)), count, leaves, gradients) != TU_OK)
        fail_msg("%s", tu_message());
    return count;
}

static void record_operations(const tu_graph *g, bool *seen) {
    for (uint32_t i = 0; seen && i < g->node_count; i++) seen[g->nodes[i]->op->code] = true;
}

static void assert_supported(const char *name, tu_value value, tu__strategy strategy, bool *seen) {
    tu_graph *g = value.graph;
    tu_value fetch[MAX_FETCHES] = {value};
    if (tu_graph_status(g) != TU_OK) fail_msg("%s: %s", name, tu_message());
    size_t count = 1 + add_gradients(value, fetch + 1);
    record_operations(g, seen);
    tu__unit unit = unit_to_replicate(g, count, fetch, strategy, SHARDS);
    if (tu__run_passes(&unit, NULL) != TU_OK) fail_msg("%s: %s", name, tu_message());
    if (tu_graph_verify(unit.graph) != TU_OK) fail_msg("%s: %s", name, tu_message());
    interpretation before = interpret(g), after = interpret(unit.graph);
    for (size_t i = 0; i < count; i++) {
        double error = distance(value_in(&before, (tu__edge){fetch[i].node, fetch[i].output}),
                                value_in(&after, unit.fetch[i]));
        if (!(error <= 1e-10))
            fail_msg("%s: fetch %zu, '%s', is off by %g", name, i, tu_value_name(fetch[i]), error);
    }
    interpretation_free(&before);
    interpretation_free(&after);
    tu__unit_end(&unit);
}

static void check_case(const struct supported *c, tu__strategy strategy, bool *seen) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    assert_supported(c->name, c->build(g), strategy, seen);
    tu_graph_free(g);
}

/* Applies a pointwise operation to `booleans` booleans and then numbers. */
static tu_value pointwise(tu_graph *g, tu__opcode op, int booleans) {
    tu_value numbers[] = {samples(g), replicated(g, TU_SHAPE(SAMPLES, 6)), other_samples(g)}, in[3];
    for (int i = 0; i < 3; i++)
        in[i] = i < booleans ? tu_greater(numbers[i], tu_number(numbers[i], 0)) : numbers[i];
    double parameters[2] = {0.25, 0.5};
    struct tu__cast_attrs to = {.dtype = TU_F32};
    return tu__apply_list(op, op == TU__OP_CAST ? (const void *)&to : parameters, tu__op_get(op)->inputs, in);
}

/* Returns false if the operation does not accept so many booleans; else checks that the results are bit-identical. */
static bool check_pointwise(tu__opcode op, int booleans) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value fetch = pointwise(g, op, booleans);
    bool is_accepted = tu_graph_status(g) == TU_OK;
    if (is_accepted) {
        tu__unit unit = unit_to_replicate(g, 1, &fetch, TU__MIRRORED, SHARDS);
        run_all_passes(&unit);
        assert_same_results(g, &fetch, &unit, 0);
        tu__unit_end(&unit);
    }
    tu_graph_free(g);
    return is_accepted;
}

static void pointwise_operations_are_supported(void **state) {
    (void)state;
    for (int op = 0; op < TU__OP_COUNT; op++) {
        const tu__op *row = tu__op_get((tu__opcode)op);
        if (!(row->traits & TU__POINTWISE)) continue;
        bool done = false;
        for (int booleans = 0; booleans <= 2 && !done; booleans++)
            done = check_pointwise(row->code, booleans);
        if (!done) fail_msg("%s: no operands found for it", row->name);
    }
}

/* True for operations that do not work on samples, or that are always rejected (cases below). */
static bool needs_no_case(const tu__op *op) {
    return (op->traits & (TU__POINTWISE | TU__LEAF | TU__EFFECT | TU__COLLECTIVE)) ||
           op->code == TU__OP_FILL || op->code == TU__OP_CUSTOM || op->code == TU__OP_RANDOM_MEMBERS;
}

static void every_operation_is_supported(void **state) {
    (void)state;
    bool seen[TU__OP_COUNT] = {false};
    for (size_t i = 0; i < sizeof supported / sizeof *supported; i++) {
        check_case(&supported[i], TU__MIRRORED, seen);
        check_case(&supported[i], TU__CENTRAL, NULL);
    }
    for (int op = 0; op < TU__OP_COUNT; op++)
        if (!seen[op] && !needs_no_case(tu__op_get((tu__opcode)op)))
            fail_msg("%s: no case has it", tu__op_get((tu__opcode)op)->name);
}

/* ---- Rejected operations ---- */

static tu_status double_shape(const tu_custom_call *call, tu_type *outputs) {
    outputs[0] = call->inputs[0];
    return TU_OK;
}
static tu_status double_run(const tu_custom_call *call, const void *const *in, void *const *out) {
    const double *x = in[0];
    double *y = out[0];
    for (int64_t i = 0; i < tu_shape_elements(call->inputs[0].shape); i++) y[i] = 2 * x[i];
    return TU_OK;
}
static const tu_custom_op doubled = {
    .struct_size = sizeof doubled, .name = "doubled", .outputs = 1, .shape = double_shape, .run = double_run};

CASE(custom, tu_custom_register(&doubled); tu_value x = samples(g); return tu_custom("doubled", 1, &x);)
CASE(max_over, return tu_max(samples(g), .axes = TU_AXES(0));)
CASE(min_over, return tu_min(samples(g));)
CASE(prod_over, return tu_prod(samples(g), .axes = TU_AXES(0));)
CASE(logsumexp_over, return tu_logsumexp(samples(g));)
CASE(argmax_over, return tu_argmax(samples(g), 0);)
CASE(argmin_over, return tu_argmin(samples(g), 0);)
CASE(cumsum_over, return tu_cumsum(samples(g), 0);)
CASE(top_k_over, return tu_top_k(samples(g), 2, 0);)
CASE(gathers_samples, int32_t picked[] = {1, 4};
     return tu_gather(samples(g), tu_constant(g, TU_I32, TU_SHAPE(2), picked), 0);)
CASE(takes_samples, return tu_take_along(samples(g), tu_cast(other_samples(g), TU_I64), 0);)
CASE(between_samples, return tu_matmul(samples(g), other_samples(g), .transpose_b = true);)
CASE(one_matrix, return tu_cholesky(tu_slice(tu_pad(samples(g), 1, 0, 2, 1), 1, 0, 8, 1));)
CASE(softmax_over, return tu_softmax(samples(g), 0);)
CASE(flips_samples, return tu_flip(samples(g), 0);)
CASE(rolls_samples, return tu_roll(samples(g), 0, 1);)
CASE(slices_samples, return tu_slice(samples(g), 0, 1, 5, 1);)
CASE(pads_samples, return tu_pad(samples(g), 0, 1, 0, 0);)
CASE(concats_samples, tu_value both[] = {samples(g), other_samples(g)}; return tu_concat(both, 2, 0);)
CASE(concats_before, return tu_reshape(tu_transpose(images(g), 1, 0, 2, 3), TU_SHAPE(6 * SAMPLES, 5, 4));)
CASE(two_axes, tu_value square = batched(g, "square", TU_F64, TU_SHAPE(SAMPLES, SAMPLES));
     return tu_add(square, tu_transpose(square));)
CASE(several_networks,
     struct tu__random_members_attrs attrs = {.dtype = TU_F32, .shape = TU_SHAPE(SAMPLES, 3)};
     tu_value ordinals = tu_transpose(batched(g, "ordinals", TU_I64, TU_SHAPE(SAMPLES, 2)));
     tu_value seeds = tu_fill(g, TU_I64, TU_SHAPE(2), 1), low = tu_fill(g, TU_F64, TU_SHAPE(2), 0);
     return tu__apply(RANDOM_MEMBERS, &attrs, ordinals, seeds, low, tu_fill(g, TU_F64, TU_SHAPE(2), 1));)
CASE(keeps_samples, tu_value v = weights(g, TU_SHAPE(SAMPLES, 6)); return tu_assign(v, samples(g));)

static const struct rejected {
    builder build;
    const char *text;
} rejected[] = {
    {custom, "custom 'doubled' is a custom operation over all samples"},
    {max_over, "reduce_max 'reduce_max' takes the maximum over samples (axis 0 of input 0, f64[8,6])"},
    {min_over, "takes the minimum over samples"},
    {prod_over, "takes the product over samples"},
    {logsumexp_over, "takes logsumexp over samples"},
    {argmax_over, "takes the argmax over samples"},
    {argmin_over, "takes the argmin over samples"},
    {cumsum_over, "takes the cumulative sum over samples"},
    {top_k_over, "sorts samples"},
    {gathers_samples, "gather 'gather' selects samples"},
    {takes_samples, "take_along 'take_along' selects samples"},
    {between_samples, "has samples along two different axes"},
    {one_matrix, "uses samples as rows of a matrix"},
    {softmax_over, "normalises over samples"},
    {flips_samples, "reverses the samples"},
    {rolls_samples, "rolls the sample axis"},
    {slices_samples, "slice 'slice' selects samples"},
    {pads_samples, "pads the sample axis"},
    {concats_samples, "concatenates samples"},
    {concats_before, "merges the sample axis with an axis before it"},
    {two_axes, "has samples along two different axes"},
    {several_networks, "draws numbers for several networks"},
    {keeps_samples, "stores samples in a variable"},
};

static void operations_across_samples_are_rejected(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rejected / sizeof *rejected; i++) {
        tu_graph *g;
        assert_int_equal(tu_graph_new(&g), TU_OK);
        tu_value value = rejected[i].build(g);
        if (tu_graph_status(g) != TU_OK) fail_msg("%s", tu_message());
        tu__unit unit = unit_to_replicate(g, 1, &value, TU__MIRRORED, SHARDS);
        if (tu__run_passes(&unit, NULL) != TU_UNSUPPORTED)
            fail_msg("%s: it was not rejected", rejected[i].text);
        bool is_expected = strstr(tu_message(), rejected[i].text) &&
                           strstr(tu_message(), "strategy 'mirrored' does not support this network: ") &&
                           strstr(tu_message(), "use strategy 'single'");
        if (!is_expected) fail_msg("\"%s\" does not contain \"%s\"", tu_message(), rejected[i].text);
        tu__unit_end(&unit);
        tu_graph_free(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pointwise_operations_are_supported),
        cmocka_unit_test(every_operation_is_supported),
        cmocka_unit_test(operations_across_samples_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
