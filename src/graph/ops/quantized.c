/* Integer arithmetic of quantized networks: u8 activations, i8 filters, i32 sums.
 *
 * A quantized value q stands for the number (q - zero) * scale. A convolution or product subtracts the zero point from
 * its input and adds integer products, which is exact in any order. `requantize` turns the sums into the u8 values of
 * the next layer: the scales of input, filter and result are one factor per channel.
 *
 * Every device must compute the same bits, so the conversions are defined as f32 arithmetic in which each conversion,
 * product and sum is rounded once, to nearest even, and nothing is contracted to a fused multiply-add. The reference
 * kernels here compute in f32 for that reason, unlike all others. The result is clamped before it is rounded to an
 * integer, which gives the same value as clamping the integer but never converts a number that does not fit.
 *
 * Factors in attributes are f32 numbers between 2^-100 and 2^100, so that it makes no difference if a device treats
 * subnormal numbers as zeros. */
#include <inttypes.h>
#include <math.h>

#include <tutti/ops.h>

#include "base/alloc.h"
#include "base/text.h"
#include "graph/graph.h"
#include "graph/ops/conv.h"
#include "graph/ops/window.h"
#include "graph/rules.h"
#include "graph/walk.h"

enum {
    MAX_TERMS = 1 << 16,  /* of a sum of products: each is at most 255 * 128 < 2^15 */
    MAX_PIXELS = 1 << 23, /* of a sum of activations: each is at most 255 < 2^8 */
};

/* ---- Shape rules ---- */

static tu_status check_dtype(const tu__rule *r, uint32_t index, tu_dtype expected) {
    if (r->in[index].dtype != expected)
        return tu__rule_fail(r, "operand %" PRIu32 " has type %s, expected %s", index,
                             tu_dtype_name(r->in[index].dtype), tu_dtype_name(expected));
    return TU_OK;
}

static tu_status check_rank(const tu__rule *r, uint32_t index, int64_t rank, const char *shape) {
    if (r->in[index].shape.rank != rank)
        return tu__rule_fail(r, "operand %" PRIu32 " has rank %" PRId64 ", expected %" PRId64 ": %s", index,
                             r->in[index].shape.rank, rank, shape);
    return TU_OK;
}

static tu_status check_byte(const tu__rule *r, const char *name, int64_t value) {
    if (value < 0 || value > UINT8_MAX)
        return tu__rule_fail(r, "%s is %" PRId64 ", expected 0 to 255", name, value);
    return TU_OK;
}

static tu_status check_range(const tu__rule *r, int64_t zero, int64_t low, int64_t high) {
    TU_TRY(check_byte(r, "zero", zero));
    TU_TRY(check_byte(r, "low", low));
    TU_TRY(check_byte(r, "high", high));
    if (low > high)
        return tu__rule_fail(r, "low is %" PRId64 " and high %" PRId64 ", expected low <= high", low, high);
    return TU_OK;
}

static tu_status check_factor(const tu__rule *r, double factor) {
    bool is_in_range = fabs(factor) >= 0x1p-100 && fabs(factor) <= 0x1p100; /* not NaN */
    if (!is_in_range || (double)(float)factor != factor)
        return tu__rule_fail(r, "factor is %g, expected an f32 number between 2^-100 and 2^100", factor);
    return TU_OK;
}

static tu_status check_terms(const tu__rule *r, int64_t terms, int64_t max) {
    if (terms > max)
        return tu__rule_fail(
            r, "a sum has %" PRId64 " terms, expected at most %" PRId64 ", so that it fits in i32", terms,
            max);
    return TU_OK;
}

tu_status tu__quantize_shape(tu__rule *r) {
    const struct tu__quantize_attrs *a = r->attrs;
    TU_TRY(check_dtype(r, 0, TU_F32));
    TU_TRY(check_factor(r, a->factor));
    TU_TRY(check_byte(r, "zero", a->zero));
    r->out[0] = (tu_type){TU_U8, r->in[0].shape};
    return TU_OK;
}

tu_status tu__dequantize_shape(tu__rule *r) {
    const struct tu__dequantize_attrs *a = r->attrs;
    TU_TRY(check_dtype(r, 0, TU_U8));
    TU_TRY(check_factor(r, a->factor));
    TU_TRY(check_byte(r, "zero", a->zero));
    r->out[0] = (tu_type){TU_F32, r->in[0].shape};
    return TU_OK;
}

tu_status tu__conv2d_int8_shape(tu__rule *r) {
    const struct tu__conv2d_int8_attrs *a = r->attrs;
    TU_TRY(check_dtype(r, 0, TU_U8));
    TU_TRY(check_dtype(r, 1, TU_I8));
    TU_TRY(check_rank(r, 0, 4, "[n,h,w,c]"));
    TU_TRY(check_rank(r, 1, 4, "[o,h,w,c]"));
    TU_TRY(check_byte(r, "zero", a->zero));
    TU_TRY(check_terms(r, tu__saturating_product(3, r->in[1].shape.dim + 1), MAX_TERMS));
    r->out[0].dtype = TU_I32;
    return tu__conv2d_output_shape(r, 0);
}

tu_status tu__matmul_int8_shape(tu__rule *r) {
    const struct tu__matmul_int8_attrs *a = r->attrs;
    TU_TRY(check_dtype(r, 0, TU_U8));
    TU_TRY(check_dtype(r, 1, TU_I8));
    TU_TRY(check_rank(r, 0, 2, "[m,k]"));
    TU_TRY(check_rank(r, 1, 2, "[k,n]"));
    TU_TRY(check_byte(r, "zero", a->zero));
    const int64_t *x = r->in[0].shape.dim, *y = r->in[1].shape.dim;
    if (x[1] != y[0])
        return tu__rule_fail(r,
                             "operand 0 has %" PRId64 " columns, but operand 1 has %" PRId64
                             " rows: expected the same number",
                             x[1], y[0]);
    TU_TRY(check_terms(r, x[1], MAX_TERMS));
    r->out[0] = (tu_type){TU_I32, TU_SHAPE(x[0], y[1])};
    if (!tu__shape_valid(r->out[0].shape))
        return tu__rule_fail(r, "the result %s is too large: expected at most 2^48 elements",
                             tu__shape_string(r->out[0].shape));
    return TU_OK;
}

/* Checks factors and bias: one number per channel. */
static tu_status check_channels(const tu__rule *r, uint32_t index, tu_dtype dtype) {
    tu_shape sums = r->in[0].shape;
    tu_type expected = {dtype, TU_SHAPE(sums.dim[sums.rank - 1])};
    if (r->in[index].dtype != dtype || !tu_shape_equal(r->in[index].shape, expected.shape))
        return tu__rule_fail(r, "operand %" PRIu32 " is %s, expected %s, a number per channel", index,
                             tu__type_string(r->in[index]), tu__type_string(expected));
    return TU_OK;
}

static tu_status requantize_shape(tu__rule *r, int64_t zero, int64_t low, int64_t high) {
    TU_TRY(check_dtype(r, 0, TU_I32));
    if (r->in[0].shape.rank < 1) return tu__rule_fail(r, "the sums are a scalar, expected [...,channels]");
    TU_TRY(check_channels(r, 1, TU_F32));
    TU_TRY(check_channels(r, 2, TU_I32));
    r->out[0] = (tu_type){TU_U8, r->in[0].shape};
    return check_range(r, zero, low, high);
}

tu_status tu__requantize_shape(tu__rule *r) {
    const struct tu__requantize_attrs *a = r->attrs;
    return requantize_shape(r, a->zero, a->low, a->high);
}

static tu_status check_same_shape(const tu__rule *r, uint32_t index) {
    if (!tu_shape_equal(r->in[index].shape, r->in[0].shape))
        return tu__rule_fail(r, "operand %" PRIu32 " has the shape %s, expected %s, that of operand 0", index,
                             tu__shape_string(r->in[index].shape), tu__shape_string(r->in[0].shape));
    return TU_OK;
}

tu_status tu__requantize_add_shape(tu__rule *r) {
    const struct tu__requantize_add_attrs *a = r->attrs;
    TU_TRY(requantize_shape(r, a->zero, a->low, a->high));
    TU_TRY(check_dtype(r, 3, TU_U8));
    TU_TRY(check_same_shape(r, 3));
    TU_TRY(check_byte(r, "residual_zero", a->residual_zero));
    return check_factor(r, a->factor);
}

tu_status tu__add_int8_shape(tu__rule *r) {
    const struct tu__add_int8_attrs *a = r->attrs;
    for (uint32_t i = 0; i < 2; i++) {
        TU_TRY(check_dtype(r, i, TU_U8));
        TU_TRY(check_factor(r, a->factor[i]));
        TU_TRY(check_byte(r, "input_zero", a->input_zero[i]));
    }
    TU_TRY(check_same_shape(r, 1));
    r->out[0] = (tu_type){TU_U8, r->in[0].shape};
    return check_range(r, a->zero, a->low, a->high);
}

tu_status tu__mean_int8_shape(tu__rule *r) {
    const struct tu__mean_int8_attrs *a = r->attrs;
    TU_TRY(check_dtype(r, 0, TU_U8));
    TU_TRY(check_rank(r, 0, 4, "[n,h,w,c]"));
    TU_TRY(check_factor(r, a->factor));
    TU_TRY(check_byte(r, "input_zero", a->input_zero));
    TU_TRY(check_byte(r, "zero", a->zero));
    const int64_t *x = r->in[0].shape.dim;
    TU_TRY(check_terms(r, tu__saturating_product(2, x + 1), MAX_PIXELS));
    r->out[0] = (tu_type){TU_U8, TU_SHAPE(x[0], x[3])};
    return TU_OK;
}

/* ---- Reference kernels ---- */

typedef struct range {
    int64_t zero, low, high;
} range;

/* Quantizes a number in units of the result's scale. */
static double quantized(float v, range to) {
    const float low = (float)(to.low - to.zero), high = (float)(to.high - to.zero);
    v = v > low ? v : low;
    v = v < high ? v : high;
    return nearbyint((double)v) + (double)to.zero;
}

tu_status tu__quantize_reference(const tu__reference_call *m) {
    const struct tu__quantize_attrs *a = m->attrs;
    const int64_t count = tu_shape_elements(m->in[0].type.shape);
    for (int64_t i = 0; i < count; i++) {
        const float v = (float)m->in[0].data[i] * (float)a->factor;
        m->out[0].data[i] = quantized(v, (range){a->zero, 0, UINT8_MAX});
    }
    return TU_OK;
}

tu_status tu__dequantize_reference(const tu__reference_call *m) {
    const struct tu__dequantize_attrs *a = m->attrs;
    const int64_t count = tu_shape_elements(m->in[0].type.shape);
    for (int64_t i = 0; i < count; i++) {
        const float y = (float)(m->in[0].data[i] - (double)a->zero) * (float)a->factor;
        m->out[0].data[i] = (double)y;
    }
    return TU_OK;
}

/* Returns a copy of x with the zero point subtracted; data NULL: out of memory. */
static tu__tensor centred(tu__tensor x, int64_t zero) {
    const int64_t count = tu_shape_elements(x.type.shape);
    tu__tensor copy = {.type = x.type,
                       .data = tu__alloc_array((size_t)count, sizeof(double), "a quantized input")};
    for (int64_t i = 0; copy.data && i < count; i++) copy.data[i] = x.data[i] - (double)zero;
    return copy;
}

tu_status tu__conv2d_int8_reference(const tu__reference_call *m) {
    const struct tu__conv2d_int8_attrs *a = m->attrs;
    const struct tu__conv2d_attrs windows = {
        .stride = {a->stride[0], a->stride[1]},
        .pad = {a->pad[0], a->pad[1], a->pad[2], a->pad[3]},
        .dilation = {a->dilation[0], a->dilation[1]},
        .groups = a->groups,
    };
    tu__tensor x = centred(m->in[0], a->zero);
    if (!x.data) return TU_NO_MEMORY;
    tu_status status = tu__conv2d_compute(&windows, &x, &m->in[1], &m->out[0]);
    tu__free(x.data);
    return status;
}

tu_status tu__matmul_int8_reference(const tu__reference_call *m) {
    const struct tu__matmul_int8_attrs *a = m->attrs;
    const int64_t rows = m->in[0].type.shape.dim[0], terms = m->in[0].type.shape.dim[1];
    const int64_t columns = m->in[1].type.shape.dim[1];
    tu__fill_zero(&m->out[0]);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < terms; k++) {
            const double x = m->in[0].data[i * terms + k] - (double)a->zero;
            for (int64_t j = 0; j < columns; j++)
                m->out[0].data[i * columns + j] += x * m->in[1].data[k * columns + j];
        }
    return TU_OK;
}

/* Adds as 32-bit integers, which wrap around, and converts to f32. */
static float biased(double sum, double bias) {
    const uint32_t bits = (uint32_t)(int32_t)sum + (uint32_t)(int32_t)bias;
    return (float)(int32_t)bits;
}

tu_status tu__requantize_reference(const tu__reference_call *m) {
    const struct tu__requantize_attrs *a = m->attrs;
    const int64_t count = tu_shape_elements(m->in[0].type.shape), channels = m->in[1].type.shape.dim[0];
    for (int64_t i = 0; i < count; i++) {
        const int64_t c = i % channels;
        const float v = biased(m->in[0].data[i], m->in[2].data[c]) * (float)m->in[1].data[c];
        m->out[0].data[i] = quantized(v, (range){a->zero, a->low, a->high});
    }
    return TU_OK;
}

static float scaled(double q, int64_t zero, double factor) {
    return (float)(q - (double)zero) * (float)factor;
}

tu_status tu__requantize_add_reference(const tu__reference_call *m) {
    const struct tu__requantize_add_attrs *a = m->attrs;
    const int64_t count = tu_shape_elements(m->in[0].type.shape), channels = m->in[1].type.shape.dim[0];
    for (int64_t i = 0; i < count; i++) {
        const int64_t c = i % channels;
        const float v = biased(m->in[0].data[i], m->in[2].data[c]) * (float)m->in[1].data[c];
        const float sum = v + scaled(m->in[3].data[i], a->residual_zero, a->factor);
        m->out[0].data[i] = quantized(sum, (range){a->zero, a->low, a->high});
    }
    return TU_OK;
}

tu_status tu__add_int8_reference(const tu__reference_call *m) {
    const struct tu__add_int8_attrs *a = m->attrs;
    const int64_t count = tu_shape_elements(m->in[0].type.shape);
    for (int64_t i = 0; i < count; i++) {
        const float x = scaled(m->in[0].data[i], a->input_zero[0], a->factor[0]);
        const float y = scaled(m->in[1].data[i], a->input_zero[1], a->factor[1]);
        m->out[0].data[i] = quantized(x + y, (range){a->zero, a->low, a->high});
    }
    return TU_OK;
}

tu_status tu__mean_int8_reference(const tu__reference_call *m) {
    const struct tu__mean_int8_attrs *a = m->attrs;
    const int64_t *x = m->in[0].type.shape.dim;
    const int64_t pixels = x[1] * x[2];
    for (int64_t n = 0; n < x[0]; n++)
        for (int64_t c = 0; c < x[3]; c++) {
            double sum = 0;
            for (int64_t p = 0; p < pixels; p++)
                sum += m->in[0].data[(n * pixels + p) * x[3] + c] - (double)a->input_zero;
            const float v = (float)sum * (float)a->factor;
            m->out[0].data[n * x[3] + c] = quantized(v, (range){a->zero, 0, UINT8_MAX});
        }
    return TU_OK;
}

/* ---- Operations: a multiplication and an addition count as two, as in f32 ---- */

int64_t tu__conv2d_int8_flops(const tu__node *node, const tu_type *in) {
    return tu__conv_flops(in[1], node->outputs[0]);
}

int64_t tu__matmul_int8_flops(const tu__node *node, const tu_type *in) {
    return tu__saturating_product(
        3, (const int64_t[]){2, tu_shape_elements(node->outputs[0].shape), in[0].shape.dim[1]});
}

/* ---- Builders ---- */

/* Returns the nearest f32 number, for an attribute. volatile: gcc 12 drops both conversions of two neighbouring
 * attributes. */
static double single(double x) {
    const volatile float nearest = (float)x;
    return (double)nearest;
}

tu_value tu_quantize(tu_value x, double scale, int64_t zero) {
    struct tu__quantize_attrs attrs = {.factor = single(1 / scale), .zero = zero};
    return tu_ok(x) ? tu__apply(QUANTIZE, &attrs, x) : tu__invalid(x.graph);
}

tu_value tu_dequantize(tu_value x, double scale, int64_t zero) {
    struct tu__dequantize_attrs attrs = {.factor = single(scale), .zero = zero};
    return tu_ok(x) ? tu__apply(DEQUANTIZE, &attrs, x) : tu__invalid(x.graph);
}

tu_value tu_convolve_int8_with(tu_value x, tu_value filter, int64_t zero,
                               const tu_convolve_options *options) {
    struct tu__conv2d_attrs w;
    if (!tu__conv2d_attrs_of("convolve_int8", x, filter, options, &w)) return tu__invalid(x.graph);
    struct tu__conv2d_int8_attrs attrs = {
        .stride = {w.stride[0], w.stride[1]},
        .pad = {w.pad[0], w.pad[1], w.pad[2], w.pad[3]},
        .dilation = {w.dilation[0], w.dilation[1]},
        .groups = w.groups,
        .zero = zero,
    };
    return tu__apply(CONV2D_INT8, &attrs, x, filter);
}

tu_value tu_matmul_int8(tu_value a, tu_value b, int64_t zero) {
    struct tu__matmul_int8_attrs attrs = {.zero = zero};
    return tu_ok(a) && tu_ok(b) ? tu__apply(MATMUL_INT8, &attrs, a, b) : tu__invalid(a.graph);
}

static int64_t high_of(int64_t high) {
    return high == 0 ? UINT8_MAX : high;
}

tu_value tu_requantize_with(tu_value sums, tu_value factors, tu_value bias,
                            const tu_requantize_options *options) {
    if (!tu_ok(sums) || !tu_ok(factors) || !tu_ok(bias)) return tu__invalid(sums.graph);
    TU__OPTIONS(tu_requantize_options, o, options);
    if (!o.residual.graph) {
        struct tu__requantize_attrs attrs = {.zero = o.zero, .low = o.low, .high = high_of(o.high)};
        return tu__apply(REQUANTIZE, &attrs, sums, factors, bias);
    }
    if (!tu_ok(o.residual)) return tu__invalid(sums.graph);
    struct tu__requantize_add_attrs attrs = {.zero = o.zero,
                                             .low = o.low,
                                             .high = high_of(o.high),
                                             .factor = single(o.residual_factor),
                                             .residual_zero = o.residual_zero};
    return tu__apply(REQUANTIZE_ADD, &attrs, sums, factors, bias, o.residual);
}

tu_value tu_add_int8_with(tu_value x, tu_value y, const tu_add_int8_options *options) {
    if (!tu_ok(x) || !tu_ok(y)) return tu__invalid(x.graph);
    TU__OPTIONS(tu_add_int8_options, o, options);
    struct tu__add_int8_attrs attrs = {.factor = {single(o.factor[0]), single(o.factor[1])},
                                       .input_zero = {o.input_zero[0], o.input_zero[1]},
                                       .zero = o.zero,
                                       .low = o.low,
                                       .high = high_of(o.high)};
    return tu__apply(ADD_INT8, &attrs, x, y);
}

tu_value tu_mean_int8(tu_value x, double factor, int64_t input_zero, int64_t zero) {
    struct tu__mean_int8_attrs attrs = {.factor = single(factor), .input_zero = input_zero, .zero = zero};
    return tu_ok(x) ? tu__apply(MEAN_INT8, &attrs, x) : tu__invalid(x.graph);
}
