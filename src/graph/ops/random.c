/* The operation `random`. base/draw.h defines the numbers.
 *
 * Its input is either i64[n], the indices of the samples, each of which gets a row of the result, or an i64 scalar
 * (the step) for all elements. The key, a hash of the scoped name, is an attribute, so that copies for
 * recomputation and the same network built for another batch size get the same numbers. */
#include <inttypes.h>
#include <math.h>

#include <tutti/ops.h>

#include "base/draw.h"
#include "base/number.h"
#include "base/text.h"
#include "graph/graph.h"
#include "graph/rules.h"
#include "graph/walk.h"

tu_status tu__random_shape(tu__rule *rule) {
    const struct tu__random_attrs *a = rule->attrs;
    tu_type source = rule->in[0];
    if (source.dtype != TU_I64 || source.shape.rank > 1)
        return tu__rule_fail(rule,
                             "expected sample indices i64[samples] or the step, an i64 scalar, as the input");
    if (a->dtype < 0 || a->dtype >= TU_DTYPE_COUNT)
        return tu__rule_fail(rule, "unknown element type %d", (int)a->dtype);
    if (!tu__shape_valid(a->shape))
        return tu__rule_fail(
            rule,
            "shape %s: expected at most 8 dimensions, each at least 1, and at most 2^48 elements in total",
            tu__shape_string(a->shape));
    if (a->distribution < 0 || a->distribution >= TU__DISTRIBUTION_COUNT)
        return tu__rule_fail(rule, "unknown distribution %d", (int)a->distribution);
    if (a->distribution != TU__BERNOULLI && !tu_dtype_is_float((tu_dtype)a->dtype))
        return tu__rule_fail(rule, "the element type is %s, expected a floating-point type",
                             tu_dtype_name((tu_dtype)a->dtype));
    if (!isfinite(a->a) || !isfinite(a->b))
        return tu__rule_fail(rule, "the distribution's parameters are %g and %g, expected finite numbers",
                             a->a, a->b);
    if (source.shape.rank == 1 && (a->shape.rank < 1 || a->shape.dim[0] != source.shape.dim[0]))
        return tu__rule_fail(rule,
                             "shape %s: expected a first axis of size %" PRId64 ", the number of samples",
                             tu__shape_string(a->shape), source.shape.dim[0]);
    if (tu_shape_elements(a->shape) / tu_shape_elements(source.shape) > TU__DRAW_LIMIT)
        return tu__rule_fail(rule, "shape %s: expected at most 2^34 elements per sample",
                             tu__shape_string(a->shape));
    rule->out[0] = (tu_type){.dtype = (tu_dtype)a->dtype, .shape = a->shape};
    return TU_OK;
}

tu_status tu__random_reference(const tu__reference_call *m) {
    const struct tu__random_attrs *a = m->attrs;
    int64_t rows = tu_shape_elements(m->in[0].type.shape);
    int64_t count = tu_shape_elements(a->shape) / rows;
    tu__draw_key key = tu__draw_key_of(m->seed, (uint64_t)a->key);
    for (int64_t row = 0; row < rows; row++) {
        int64_t ordinal; /* saturated: the largest i64 rounds to 2^63, which is none */
        tu__store_array(TU_I64, &m->in[0].data[row], 1, &ordinal);
        tu__draw(key, (uint64_t)ordinal, (tu__distribution)a->distribution, a->a, a->b, count,
                 m->out[0].data + row * count);
    }
    return TU_OK;
}

/* ---- The numbers of several networks: ordinals i64[n, samples] or steps i64[n], seeds i64[n], a and b f64[n] ---- */

static tu_status check_members(tu__rule *rule) {
    tu_shape source = rule->in[0].shape, members = TU_SHAPE(source.dim[0]);
    if (rule->in[0].dtype != TU_I64 || source.rank < 1 || source.rank > 2)
        return tu__rule_fail(
            rule, "expected sample indices i64[members, samples] or steps i64[members] as input 0");
    static const tu_dtype dtypes[] = {TU_I64, TU_I64, TU_F64, TU_F64};
    for (uint32_t i = 1; i < 4; i++)
        if (rule->in[i].dtype != dtypes[i] || !tu_shape_equal(rule->in[i].shape, members))
            return tu__rule_fail(rule, "input %" PRIu32 " is %s, expected %s", i,
                                 tu__type_string(rule->in[i]),
                                 tu__type_string((tu_type){dtypes[i], members}));
    return TU_OK;
}

tu_status tu__random_members_shape(tu__rule *rule) {
    const struct tu__random_members_attrs *a = rule->attrs;
    TU_TRY(check_members(rule));
    tu_type ordinals = rule->in[0];
    ordinals.shape = tu_shape_of((size_t)ordinals.shape.rank - 1, ordinals.shape.dim + 1);
    struct tu__random_attrs one = {
        .dtype = a->dtype, .shape = a->shape, .distribution = a->distribution, .key = a->key};
    tu__rule member = *rule;
    member.attrs = &one;
    member.in = &ordinals;
    member.input_count = 1;
    TU_TRY(tu__random_shape(&member));
    tu_shape shape = {.rank = a->shape.rank + 1};
    shape.dim[0] = rule->in[0].shape.dim[0];
    for (int64_t i = 0; i < a->shape.rank && i + 1 < TU_MAX_RANK; i++) shape.dim[i + 1] = a->shape.dim[i];
    if (!tu__shape_valid(shape))
        return tu__rule_fail(rule, "the result of %" PRId64 " members of shape %s is too large", shape.dim[0],
                             tu__shape_string(a->shape));
    rule->out[0].shape = shape;
    return TU_OK;
}

tu_status tu__random_members_reference(const tu__reference_call *m) {
    const struct tu__random_members_attrs *a = m->attrs;
    int64_t members = m->in[0].type.shape.dim[0];
    int64_t rows = tu_shape_elements(m->in[0].type.shape) / members;
    int64_t count = tu_shape_elements(a->shape) / rows;
    for (int64_t i = 0; i < members * rows; i++) {
        int64_t member = i / rows;
        tu__draw_key key = tu__draw_key_of((uint64_t)(int64_t)m->in[1].data[member], (uint64_t)a->key);
        tu__draw(key, (uint64_t)(int64_t)m->in[0].data[i], (tu__distribution)a->distribution,
                 m->in[2].data[member], m->in[3].data[member], count, m->out[0].data + i * count);
    }
    return TU_OK;
}

static tu_value build_random(tu_graph *graph, const char *kind, tu_dtype dtype, tu_shape shape,
                             tu__distribution distribution, double a, double b,
                             const tu_random_options *options) {
    TU__OPTIONS(tu_random_options, o, options);
    if (!graph || graph->status != TU_OK) return tu__invalid(graph);
    if (o.per_sample && shape.rank < 1)
        return tu__graph_fail(graph, TU_INVALID,
                              "%s with .per_sample and shape %s: expected a first axis, the samples", kind,
                              tu__shape_string(shape));
    tu_value source = o.per_sample ? tu_sample_ordinals(graph, shape.dim[0]) : tu_step(graph);
    const char *name = o.name ? o.name : kind;
    const char *scoped_name = tu__scoped_name(graph, name);
    if (!scoped_name) return tu__invalid(graph);
    struct tu__random_attrs attrs = {.dtype = dtype,
                                     .shape = shape,
                                     .distribution = distribution,
                                     .a = a,
                                     .b = b,
                                     .key = (int64_t)tu__name_hash(scoped_name)};
    return tu__make(graph, &(tu__node_request){.op = TU__OP_RANDOM,
                                               .name = name,
                                               .exact_name = o.name != NULL,
                                               .attrs = &attrs,
                                               .inputs = &source,
                                               .input_count = 1});
}

tu_value tu_random_uniform_with(tu_graph *graph, tu_dtype dtype, tu_shape shape, double low, double high,
                                const tu_random_options *options) {
    return build_random(graph, "random_uniform", dtype, shape, TU__UNIFORM, low, high, options);
}

tu_value tu_random_normal_with(tu_graph *graph, tu_dtype dtype, tu_shape shape, double mean, double stddev,
                               const tu_random_options *options) {
    return build_random(graph, "random_normal", dtype, shape, TU__NORMAL, mean, stddev, options);
}

tu_value tu_random_bernoulli_with(tu_graph *graph, tu_dtype dtype, tu_shape shape, double probability,
                                  const tu_random_options *options) {
    if (graph && !(probability >= 0 && probability <= 1))
        return tu__graph_fail(graph, TU_INVALID,
                              "random_bernoulli: probability is %g, expected a number in [0, 1]",
                              probability);
    return build_random(graph, "random_bernoulli", dtype, shape, TU__BERNOULLI, probability, 0, options);
}

tu_value tu_dropout(tu_value x, double rate) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    tu_graph *graph = x.graph;
    tu_type type = tu_value_type(x);
    if (!(rate >= 0 && rate < 1))
        return tu__graph_fail(graph, TU_INVALID,
                              "dropout of '%s' %s: rate is %g, expected a number in [0, 1)", tu_value_name(x),
                              tu__type_string(type), rate);
    if (!tu_dtype_is_float(type.dtype) || type.shape.rank < 1)
        return tu__graph_fail(graph, TU_INVALID,
                              "dropout of '%s' %s: expected a floating-point type [samples, ...]",
                              tu_value_name(x), tu__type_string(type));
    if (!tu_training(graph) || rate == 0) return x;
    tu_value y = x;
    tu_scope(graph, "dropout") {
        tu_value is_kept = tu_random_bernoulli(graph, TU_BOOL, type.shape, 1 - rate, .per_sample = true);
        y = tu_select(is_kept, tu_scale(x, 1 / (1 - rate)), tu_number(x, 0));
    }
    return y;
}
