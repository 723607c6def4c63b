/* Reductions along axes.
 *
 * sum, mean, reduce_max, reduce_min, prod and logsumexp reduce a set of axes, given as a bit mask. The mask is empty
 * only for a scalar, because the builders turn "no axes" into "all axes". argmax and argmin reduce one axis and
 * return indices (i64), the first among equal elements.
 *
 * A reduced axis is removed, or has size 1 if `keep` is set. Gradients use the shape with kept axes, because it
 * broadcasts against x.
 *
 * NaN propagates: maximum, minimum, argmax and argmin return the first NaN or its index.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <tutti/ops.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/text.h"
#include "graph/rules.h"
#include "graph/walk.h"

/* The six reductions have the same two attributes; their structures differ only in name. */
typedef struct tu__sum_attrs reduction;
_Static_assert(sizeof(struct tu__mean_attrs) == sizeof(reduction), "mean has the attributes of sum");
_Static_assert(sizeof(struct tu__reduce_max_attrs) == sizeof(reduction),
               "reduce_max has the attributes of sum");
_Static_assert(sizeof(struct tu__reduce_min_attrs) == sizeof(reduction),
               "reduce_min has the attributes of sum");
_Static_assert(sizeof(struct tu__prod_attrs) == sizeof(reduction), "prod has the attributes of sum");
_Static_assert(sizeof(struct tu__logsumexp_attrs) == sizeof(reduction),
               "logsumexp has the attributes of sum");
_Static_assert(sizeof(struct tu__argmin_attrs) == sizeof(struct tu__argmax_attrs),
               "argmin has the attributes of argmax");

static reduction reduction_of(const void *attrs) {
    reduction copy;
    memcpy(&copy, attrs, sizeof copy);
    return copy;
}

static struct tu__argmax_attrs arg_attrs_of(const void *attrs) {
    struct tu__argmax_attrs copy;
    memcpy(&copy, attrs, sizeof copy);
    return copy;
}

static bool has_axis(int64_t axes, int64_t axis) {
    return axes >> axis & 1;
}

static tu_shape reduced_shape(tu_shape shape, int64_t axes, bool keep) {
    tu_shape result = {0};
    for (int64_t i = 0; i < shape.rank; i++)
        if (!has_axis(axes, i))
            result.dim[result.rank++] = shape.dim[i];
        else if (keep)
            result.dim[result.rank++] = 1;
    return result;
}

/* Returns the number of elements of x that are reduced to one element. */
static int64_t elements_per_result(tu_shape shape, int64_t axes) {
    int64_t count = 1;
    for (int64_t i = 0; i < shape.rank; i++)
        if (has_axis(axes, i)) count *= shape.dim[i];
    return count;
}

/* ---- Shapes ---- */

typedef enum accepted { NUMBERS, FLOATS } accepted;

static tu_status check_element_type(const tu__rule *r, accepted types) {
    tu_dtype dtype = r->in[0].dtype;
    if (types == FLOATS && !tu_dtype_is_float(dtype))
        return tu__rule_fail(
            r, "the elements are %s, expected floats (f32, f64, bf16, f16): convert with tu_cast",
            tu_dtype_name(dtype));
    if (dtype == TU_BOOL)
        return tu__rule_fail(r, "the elements are bool, expected numbers: convert with tu_cast");
    return TU_OK;
}

static tu_status check_keep(const tu__rule *r, int64_t keep) {
    if (keep == 0 || keep == 1) return TU_OK;
    return tu__rule_fail(r, "keep is %" PRId64 ", expected 0 or 1", keep);
}

static tu_status infer_reduced_shape(tu__rule *r, accepted types) {
    reduction a = reduction_of(r->attrs);
    tu_shape shape = r->in[0].shape;
    TU_TRY(check_element_type(r, types));
    TU_TRY(check_keep(r, a.keep));
    int64_t all_axes = (INT64_C(1) << shape.rank) - 1;
    if (a.axes & ~all_axes)
        return tu__rule_fail(
            r, "the axes are the bit mask 0x%" PRIx64 ", expected only bits below the rank %" PRId64,
            (uint64_t)a.axes, shape.rank);
    if (a.axes == 0 && shape.rank > 0)
        return tu__rule_fail(r, "the set of axes is empty, expected at least one of the %" PRId64 " axes",
                             shape.rank);
    r->out[0] = (tu_type){r->in[0].dtype, reduced_shape(shape, a.axes, a.keep)};
    return TU_OK;
}

tu_status tu__sum_shape(tu__rule *r) {
    return infer_reduced_shape(r, NUMBERS);
}
tu_status tu__mean_shape(tu__rule *r) {
    return infer_reduced_shape(r, FLOATS);
}
tu_status tu__reduce_max_shape(tu__rule *r) {
    return infer_reduced_shape(r, NUMBERS);
}
tu_status tu__reduce_min_shape(tu__rule *r) {
    return infer_reduced_shape(r, NUMBERS);
}
tu_status tu__prod_shape(tu__rule *r) {
    return infer_reduced_shape(r, NUMBERS);
}
tu_status tu__logsumexp_shape(tu__rule *r) {
    return infer_reduced_shape(r, FLOATS);
}

static tu_status infer_arg_shape(tu__rule *r) {
    struct tu__argmax_attrs a = arg_attrs_of(r->attrs);
    tu_shape shape = r->in[0].shape;
    TU_TRY(check_element_type(r, NUMBERS));
    TU_TRY(check_keep(r, a.keep));
    if (a.axis < 0 || a.axis >= shape.rank) return tu__rule_fail_axis(r, a.axis);
    r->out[0] = (tu_type){TU_I64, reduced_shape(shape, INT64_C(1) << a.axis, a.keep)};
    return TU_OK;
}

tu_status tu__argmax_shape(tu__rule *r) {
    return infer_arg_shape(r);
}
tu_status tu__argmin_shape(tu__rule *r) {
    return infer_arg_shape(r);
}

/* ---- Gradients ---- */

static tu_type input_type(const tu__vjp *v) {
    return tu_value_type(tu__input_of(v->graph, v->node, 0));
}

/* Reshapes a value of the result's shape to the one with reduced axes of size 1, which broadcasts against x. */
static tu_value with_kept_axes(const tu__vjp *v, tu_value result) {
    reduction a = reduction_of(v->node->attrs);
    return a.keep ? result : tu_reshape(result, reduced_shape(input_type(v).shape, a.axes, true));
}

/* Reduces x along the axes of the node being differentiated, keeping them with size 1. */
static tu_value reduce_keeping_axes(const tu__vjp *v, tu__opcode op, tu_value x) {
    reduction a = {.axes = reduction_of(v->node->attrs).axes, .keep = true};
    return tu__apply_list(op, &a, 1, &x);
}

void tu__sum_gradient(tu__vjp *v) {
    tu__vjp_accumulate(v, 0, tu_broadcast(with_kept_axes(v, tu__vjp_gradient(v, 0)), input_type(v).shape));
}

void tu__mean_gradient(tu__vjp *v) {
    tu_shape shape = input_type(v).shape;
    double count = (double)elements_per_result(shape, reduction_of(v->node->attrs).axes);
    tu_value element_gradient = tu_scale(tu__vjp_gradient(v, 0), 1 / count);
    tu__vjp_accumulate(v, 0, tu_broadcast(with_kept_axes(v, element_gradient), shape));
}

/* Splits the gradient evenly among the elements equal to the maximum or minimum, independently of their order. */
static void extremum_gradient(tu__vjp *v) {
    tu_value is_extreme = tu_equal(tu__vjp_input(v, 0), with_kept_axes(v, tu__vjp_output(v, 0)));
    tu_value mask = tu_cast(is_extreme, input_type(v).dtype);
    tu_value element_gradient =
        tu_div(with_kept_axes(v, tu__vjp_gradient(v, 0)), reduce_keeping_axes(v, TU__OP_SUM, mask));
    tu__vjp_accumulate(v, 0, tu_mul(mask, element_gradient));
}

void tu__reduce_max_gradient(tu__vjp *v) {
    extremum_gradient(v);
}
void tu__reduce_min_gradient(tu__vjp *v) {
    extremum_gradient(v);
}

/* The derivative with respect to an element is the product of all other elements. Without a division by zero, it is
 *
 *     product of the non-zero elements / (the element, or 1 if it is zero)
 *
 * or zero if another element is zero. This formula is constant in an element that is zero, so second derivatives are
 * correct only if no element is zero. */
void tu__prod_gradient(tu__vjp *v) {
    tu_value x = tu__vjp_input(v, 0);
    tu_value is_zero = tu_equal(x, tu_number(x, 0));
    tu_value zeros = tu_cast(is_zero, input_type(v).dtype);
    tu_value non_zero = tu_select(is_zero, tu_number(x, 1), x);
    tu_value other_zeros = tu_sub(reduce_keeping_axes(v, TU__OP_SUM, zeros), zeros);
    tu_value other_product = tu_div(reduce_keeping_axes(v, TU__OP_PROD, non_zero), non_zero);
    tu_value derivative = tu_select(tu_equal(other_zeros, tu_number(x, 0)), other_product, tu_number(x, 0));
    tu__vjp_accumulate(v, 0, tu_mul(with_kept_axes(v, tu__vjp_gradient(v, 0)), derivative));
}

/* d logsumexp(x) / dx = softmax(x) = exp(x - logsumexp(x)), whose exponent is never positive. */
void tu__logsumexp_gradient(tu__vjp *v) {
    tu_value softmax = tu_exp(tu_sub(tu__vjp_input(v, 0), with_kept_axes(v, tu__vjp_output(v, 0))));
    tu__vjp_accumulate(v, 0, tu_mul(with_kept_axes(v, tu__vjp_gradient(v, 0)), softmax));
}

/* ---- Reference kernels ---- */

/* Starts a walk over x whose offset 0 is the index of the result's element. */
static tu__walk walk_into_result(const tu__reference_call *m) {
    tu_shape shape = m->in[0].type.shape;
    int64_t axes = reduction_of(m->attrs).axes;
    int64_t strides[TU_MAX_RANK];
    tu__strides(reduced_shape(shape, axes, true), strides);
    for (int64_t i = 0; i < shape.rank; i++)
        if (has_axis(axes, i)) strides[i] = 0;
    return tu__walk_begin(shape, 1, (const int64_t *[]){strides});
}

static void reduce_elements(const tu__reference_call *m, double start,
                            double (*combine)(double accumulated, double x)) {
    double *result = m->out[0].data;
    const double *x = m->in[0].data;
    int64_t count = tu_shape_elements(m->out[0].type.shape);
    for (int64_t i = 0; i < count; i++) result[i] = start;
    tu__walk w = walk_into_result(m);
    do {
        double *target = result + w.offset[0];
        *target = combine(*target, *x++);
    } while (tu__walk_next(&w));
}

static double add(double accumulated, double x) {
    return accumulated + x;
}
static double multiply(double accumulated, double x) {
    return accumulated * x;
}
static double max_or_nan(double accumulated, double x) {
    return x > accumulated || isnan(x) ? x : accumulated;
}
static double min_or_nan(double accumulated, double x) {
    return x < accumulated || isnan(x) ? x : accumulated;
}

tu_status tu__sum_reference(const tu__reference_call *m) {
    reduce_elements(m, 0, add);
    return TU_OK;
}

tu_status tu__mean_reference(const tu__reference_call *m) {
    reduce_elements(m, 0, add);
    double reduced = (double)elements_per_result(m->in[0].type.shape, reduction_of(m->attrs).axes);
    int64_t count = tu_shape_elements(m->out[0].type.shape);
    for (int64_t i = 0; i < count; i++) m->out[0].data[i] /= reduced;
    return TU_OK;
}

tu_status tu__reduce_max_reference(const tu__reference_call *m) {
    reduce_elements(m, -INFINITY, max_or_nan);
    return TU_OK;
}

tu_status tu__reduce_min_reference(const tu__reference_call *m) {
    reduce_elements(m, INFINITY, min_or_nan);
    return TU_OK;
}

tu_status tu__prod_reference(const tu__reference_call *m) {
    reduce_elements(m, 1, multiply);
    return TU_OK;
}

/* max + log(sum of exp(x - max)), so that no exponential overflows. If the maximum is infinite or NaN, it is the
 * result. */
tu_status tu__logsumexp_reference(const tu__reference_call *m) {
    int64_t count = tu_shape_elements(m->out[0].type.shape);
    double *sum = tu__alloc_array((size_t)count, sizeof *sum, "the sums of a logsumexp");
    if (!sum) return TU_NO_MEMORY;
    reduce_elements(m, -INFINITY, max_or_nan);
    double *result = m->out[0].data;
    const double *x = m->in[0].data;
    tu__walk w = walk_into_result(m);
    do {
        sum[w.offset[0]] += exp(*x++ - result[w.offset[0]]);
    } while (tu__walk_next(&w));
    for (int64_t i = 0; i < count; i++)
        if (isfinite(result[i])) result[i] += log(sum[i]);
    tu__free(sum);
    return TU_OK;
}

static tu_status find_extremum_index(const tu__reference_call *m,
                                     double (*better)(double accumulated, double x)) {
    tu__lanes lanes = tu__lanes_of(m->in[0].type.shape, arg_attrs_of(m->attrs).axis);
    for (int64_t o = 0; o < lanes.outer; o++)
        for (int64_t k = 0; k < lanes.inner; k++) {
            const double *x = m->in[0].data + o * lanes.size * lanes.inner + k;
            int64_t best = 0;
            for (int64_t i = 1; i < lanes.size && !isnan(x[best * lanes.inner]); i++)
                if (better(x[best * lanes.inner], x[i * lanes.inner]) != x[best * lanes.inner]) best = i;
            m->out[0].data[o * lanes.inner + k] = (double)best;
        }
    return TU_OK;
}

tu_status tu__argmax_reference(const tu__reference_call *m) {
    return find_extremum_index(m, max_or_nan);
}
tu_status tu__argmin_reference(const tu__reference_call *m) {
    return find_extremum_index(m, min_or_nan);
}

/* ---- Floating-point operations: one per input element; four for logsumexp ---- */

int64_t tu__sum_flops(const tu__node *node, const tu_type *in) {
    (void)node;
    return tu_shape_elements(in[0].shape);
}
int64_t tu__mean_flops(const tu__node *node, const tu_type *in) {
    return tu__sum_flops(node, in);
}
int64_t tu__reduce_max_flops(const tu__node *node, const tu_type *in) {
    return tu__sum_flops(node, in);
}
int64_t tu__reduce_min_flops(const tu__node *node, const tu_type *in) {
    return tu__sum_flops(node, in);
}
int64_t tu__prod_flops(const tu__node *node, const tu_type *in) {
    return tu__sum_flops(node, in);
}
int64_t tu__logsumexp_flops(const tu__node *node, const tu_type *in) {
    return 4 * tu__sum_flops(node, in); /* maximum, difference, exponential, sum */
}
int64_t tu__argmax_flops(const tu__node *node, const tu_type *in) {
    return tu__sum_flops(node, in);
}
int64_t tu__argmin_flops(const tu__node *node, const tu_type *in) {
    return tu__sum_flops(node, in);
}

/* ---- Builders ---- */

/* Converts the options' axes to a bit mask; all axes if none is listed. Returns false, after recording the error in
 * the graph, for an axis out of range or listed twice. */
static bool axes_to_mask(const char *op, tu_value x, const tu_axes *axes, int64_t *mask) {
    tu_type type = tu_value_type(x);
    const char *name = tu_value_name(x), *text = tu__type_string(type);
    if (axes->count > TU_MAX_RANK) {
        tu__graph_fail(x.graph, TU_INVALID, "%s of '%s' %s: %" PRIu32 " axes are listed, expected at most %d",
                       op, name, text, axes->count, TU_MAX_RANK);
        return false;
    }
    *mask = axes->count ? 0 : (INT64_C(1) << type.shape.rank) - 1;
    for (uint32_t i = 0; i < axes->count; i++) {
        int64_t axis = tu__normalize_axis(axes->axis[i], type.shape.rank);
        if (axis < 0) {
            tu__graph_fail_axis(op, x, axes->axis[i]);
            return false;
        }
        if (has_axis(*mask, axis)) {
            tu__graph_fail(x.graph, TU_INVALID, "%s of '%s' %s: axis %" PRId32 " is listed twice", op, name,
                           text, axes->axis[i]);
            return false;
        }
        *mask |= INT64_C(1) << axis;
    }
    return true;
}

static tu_value reduce(tu__opcode op, tu_value x, const tu_reduce_options *options) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    TU__OPTIONS(tu_reduce_options, o, options);
    reduction a = {.keep = o.keep};
    if (!axes_to_mask(tu__op_get(op)->name, x, &o.axes, &a.axes)) return tu__invalid(x.graph);
    return tu__apply_list(op, &a, 1, &x);
}

tu_value tu_sum_with(tu_value x, const tu_reduce_options *options) {
    return reduce(TU__OP_SUM, x, options);
}
tu_value tu_mean_with(tu_value x, const tu_reduce_options *options) {
    return reduce(TU__OP_MEAN, x, options);
}
tu_value tu_max_with(tu_value x, const tu_reduce_options *options) {
    return reduce(TU__OP_REDUCE_MAX, x, options);
}
tu_value tu_min_with(tu_value x, const tu_reduce_options *options) {
    return reduce(TU__OP_REDUCE_MIN, x, options);
}
tu_value tu_prod_with(tu_value x, const tu_reduce_options *options) {
    return reduce(TU__OP_PROD, x, options);
}
tu_value tu_logsumexp_with(tu_value x, const tu_reduce_options *options) {
    return reduce(TU__OP_LOGSUMEXP, x, options);
}

/* Builds the mean of the squared difference from the mean (two passes, for accuracy). Computes bf16 and f16 in
 * f32: the rounding error of their mean may exceed the standard deviation. */
tu_value tu_variance_with(tu_value x, const tu_reduce_options *options) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    TU__OPTIONS(tu_reduce_options, o, options);
    reduction a = {.keep = true};
    if (!axes_to_mask("variance", x, &o.axes, &a.axes)) return tu__invalid(x.graph);
    if (!tu_dtype_is_float(tu_value_dtype(x)))
        return tu__graph_fail(
            x.graph, TU_INVALID,
            "variance of '%s' %s: expected floats (f32, f64, bf16, f16): convert with tu_cast",
            tu_value_name(x), tu__type_string(tu_value_type(x)));
    tu_dtype dtype = tu_value_dtype(x);
    tu_value wide = tu_cast(x, tu__statistics_dtype(dtype));
    tu_value difference = tu_sub(wide, tu__apply(MEAN, &a, wide));
    a.keep = o.keep;
    return tu_cast(tu__apply(MEAN, &a, tu_square(difference)), dtype);
}

/* Builds argmax or argmin. The shape rule reports an axis out of range. */
static tu_value build_arg_reduction(tu__opcode op, tu_value x, int axis) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    int64_t normalized = tu__normalize_axis(axis, tu_value_shape(x).rank);
    struct tu__argmax_attrs a = {.axis = normalized < 0 ? axis : normalized};
    return tu__apply_list(op, &a, 1, &x);
}

tu_value tu_argmax(tu_value x, int axis) {
    return build_arg_reduction(TU__OP_ARGMAX, x, axis);
}
tu_value tu_argmin(tu_value x, int axis) {
    return build_arg_reduction(TU__OP_ARGMIN, x, axis);
}
