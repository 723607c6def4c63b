/* The operations: functions from values to values.
 *
 * Layout: activations are NHWC (batch, height, width, channels), filters OHWI (outputs, height, width, inputs).
 * Pointwise operations broadcast as in NumPy: shapes are aligned at their last axis, and a dimension of 1 is
 * repeated. All inputs must have the same element type: convert with tu_cast. Axes may be negative: -1 is the last.
 *
 * The message of a failed operation contains its name, its node's name, the types it got and what it expected.
 */
#ifndef TUTTI_OPS_H
#define TUTTI_OPS_H

#include <tutti/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Pointwise ---------------------------------------------------------------------------------------------- */

TU_API tu_value tu_add(tu_value x, tu_value y);
TU_API tu_value tu_sub(tu_value x, tu_value y);
TU_API tu_value tu_mul(tu_value x, tu_value y);
TU_API tu_value tu_div(tu_value x,
                       tu_value y); /* integers are truncated; x/0 is the largest value, 0/0 is 0 */
TU_API tu_value tu_pow(tu_value x, tu_value y);
TU_API tu_value tu_maximum(tu_value x, tu_value y);
TU_API tu_value tu_minimum(tu_value x, tu_value y);

TU_API tu_value tu_equal(tu_value x, tu_value y); /* comparisons return bool */
TU_API tu_value tu_not_equal(tu_value x, tu_value y);
TU_API tu_value tu_less(tu_value x, tu_value y);
TU_API tu_value tu_less_equal(tu_value x, tu_value y);
TU_API tu_value tu_greater(tu_value x, tu_value y);
TU_API tu_value tu_greater_equal(tu_value x, tu_value y);
TU_API tu_value tu_and(tu_value x, tu_value y);
TU_API tu_value tu_or(tu_value x, tu_value y);
TU_API tu_value tu_not(tu_value x);

/* Returns y for elements whose condition (bool) is true, else z. */
TU_API tu_value tu_select(tu_value condition, tu_value y, tu_value z);
/* Converts to another element type. To integers: truncates, clamps to the range, NaN becomes 0. To bool: x != 0. */
TU_API tu_value tu_cast(tu_value x, tu_dtype dtype);
TU_API tu_value tu_clip(tu_value x, double low, double high);

TU_API tu_value tu_neg(tu_value x);
TU_API tu_value tu_abs(tu_value x);
TU_API tu_value tu_sign(tu_value x);
TU_API tu_value tu_square(tu_value x);
TU_API tu_value tu_reciprocal(tu_value x);
TU_API tu_value tu_exp(tu_value x);
TU_API tu_value tu_expm1(tu_value x);
TU_API tu_value tu_log(tu_value x);
TU_API tu_value tu_log1p(tu_value x);
TU_API tu_value tu_sqrt(tu_value x);
TU_API tu_value tu_rsqrt(tu_value x);
TU_API tu_value tu_sin(tu_value x);
TU_API tu_value tu_cos(tu_value x);
TU_API tu_value tu_tan(tu_value x);
TU_API tu_value tu_erf(tu_value x);
TU_API tu_value tu_floor(tu_value x);
TU_API tu_value tu_ceil(tu_value x);
TU_API tu_value tu_round(tu_value x); /* ties to even */
TU_API tu_value tu_is_finite(tu_value x);

TU_API tu_value tu_tanh(tu_value x);
TU_API tu_value tu_sigmoid(tu_value x);
TU_API tu_value tu_relu(tu_value x);
TU_API tu_value tu_leaky_relu(tu_value x, double slope);
TU_API tu_value tu_elu(tu_value x, double alpha);
TU_API tu_value tu_gelu(tu_value x);      /* exact, with erf */
TU_API tu_value tu_gelu_tanh(tu_value x); /* the approximation of GPT-2 */
TU_API tu_value tu_silu(tu_value x);
TU_API tu_value tu_softplus(tu_value x);

typedef enum tu_activation {
    TU_LINEAR,
    TU_RELU,
    TU_TANH,
    TU_SIGMOID,
    TU_GELU,
    TU_GELU_TANH,
    TU_SILU,
    TU_SOFTPLUS,
    TU_ELU,        /* tu_elu(x, 1) */
    TU_LEAKY_RELU, /* tu_leaky_relu(x, 0.01) */
} tu_activation;
TU_API tu_value tu_activate(tu_value x, tu_activation activation);

/* Return x * factor and x + term. */
TU_API tu_value tu_scale(tu_value x, double factor);
TU_API tu_value tu_shift(tu_value x, double term);

/* Compare with a number and return bool: x == number, x != number, x < number, x <= number, x > number, x >= number.
 * The number is rounded to x's element type; if that is an integer type, the number must be an integer. */
TU_API tu_value tu_equal_to(tu_value x, double number);
TU_API tu_value tu_not_equal_to(tu_value x, double number);
TU_API tu_value tu_less_than(tu_value x, double number);
TU_API tu_value tu_at_most(tu_value x, double number);
TU_API tu_value tu_greater_than(tu_value x, double number);
TU_API tu_value tu_at_least(tu_value x, double number);

/* ---- Reductions ---------------------------------------------------------------------------------------------
 *
 *     tu_sum(x)                                           // all elements, to a scalar
 *     tu_mean(x, .axes = TU_AXES(1, 2), .keep = true)     // [8,24,24,3] -> [8,1,1,3]
 */
/* Frozen: it gets no more fields. */
typedef struct tu_axes {
    uint32_t count; /* 0: all axes */
    int32_t axis[TU_MAX_RANK];
} tu_axes;

typedef struct tu_reduce_options {
    size_t struct_size;
    tu_axes axes;
    bool keep; /* keep reduced axes, with size 1 */
} tu_reduce_options;

#ifdef __cplusplus
}
static inline tu_axes tu_axes_from(std::initializer_list<int32_t> list) {
    tu_axes axes = {};
    for (int32_t axis : list)
        if (axes.count < TU_MAX_RANK) axes.axis[axes.count++] = axis;
    return axes;
}
extern "C" {
#define TU_AXES(...) tu_axes_from({__VA_ARGS__})
#else
#define TU_AXES(...)                                                                                         \
    {                                                                                                        \
        sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), {                                                \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }
#endif

TU_API tu_value tu_sum_with(tu_value x, const tu_reduce_options *options);
TU_API tu_value tu_mean_with(tu_value x, const tu_reduce_options *options);
TU_API tu_value tu_max_with(tu_value x, const tu_reduce_options *options);
TU_API tu_value tu_min_with(tu_value x, const tu_reduce_options *options);
TU_API tu_value tu_prod_with(tu_value x, const tu_reduce_options *options);
TU_API tu_value tu_logsumexp_with(tu_value x, const tu_reduce_options *options);
TU_API tu_value tu_variance_with(tu_value x, const tu_reduce_options *options); /* divided by n, not n - 1 */
#define tu_sum(x, ...) tu_sum_with(x, TU_OPTIONS(tu_reduce_options, __VA_ARGS__))
#define tu_mean(x, ...) tu_mean_with(x, TU_OPTIONS(tu_reduce_options, __VA_ARGS__))
#define tu_max(x, ...) tu_max_with(x, TU_OPTIONS(tu_reduce_options, __VA_ARGS__))
#define tu_min(x, ...) tu_min_with(x, TU_OPTIONS(tu_reduce_options, __VA_ARGS__))
#define tu_prod(x, ...) tu_prod_with(x, TU_OPTIONS(tu_reduce_options, __VA_ARGS__))
#define tu_logsumexp(x, ...) tu_logsumexp_with(x, TU_OPTIONS(tu_reduce_options, __VA_ARGS__))
#define tu_variance(x, ...) tu_variance_with(x, TU_OPTIONS(tu_reduce_options, __VA_ARGS__))

/* Return the index (i64) of the largest or smallest element along an axis, the first of equal ones. Removes the
 * axis. */
TU_API tu_value tu_argmax(tu_value x, int axis);
TU_API tu_value tu_argmin(tu_value x, int axis);

/* ---- Cumulative sums and top-k ------------------------------------------------------------------------------ */

typedef struct tu_cumsum_options {
    size_t struct_size;
    bool exclusive; /* each sum excludes the element itself */
    bool reverse;   /* from the end */
} tu_cumsum_options;
TU_API tu_value tu_cumsum_with(tu_value x, int axis, const tu_cumsum_options *options);
#define tu_cumsum(x, axis, ...) tu_cumsum_with(x, axis, TU_OPTIONS(tu_cumsum_options, __VA_ARGS__))

/* Returns the k largest elements along an axis, largest first, equal ones in order. Output 0: values; 1: indices
 * (i64). */
TU_API tu_value tu_top_k(tu_value x, int64_t k, int axis);

/* ---- Indexing: an index outside its axis reads zeros and writes nothing -------------------------------------- */

/* table [a, n, b], indices [i, j] (i32 or i64), axis 1 -> [a, i, j, b] */
TU_API tu_value tu_gather(tu_value table, tu_value indices, int axis);
/* Adds the rows of `updates` to `base` at `indices`: the transpose of gather. Repeated indices are added in order. */
TU_API tu_value tu_scatter_add(tu_value base, tu_value indices, tu_value updates, int axis);
/* y[…, i, …] = x[…, indices[…, i, …], …]. The shapes may differ at the axis only. */
TU_API tu_value tu_take_along(tu_value x, tu_value indices, int axis);
/* The transpose of take_along: adds updates at the indices to zeros, whose axis has `size` elements. */
TU_API tu_value tu_put_along(tu_value indices, tu_value updates, int axis, int64_t size);
/* Adds a last axis with 1 at the index and 0 elsewhere. */
TU_API tu_value tu_one_hot(tu_value indices, int64_t classes, tu_dtype dtype);

/* ---- Matrices ----------------------------------------------------------------------------------------------- */

typedef struct tu_matmul_options {
    size_t struct_size;
    bool transpose_a, transpose_b;
    bool exact; /* compute in the operands' type, whatever .precision tu_compile has */
} tu_matmul_options;
/* [..., m, k] x [..., k, n] -> [..., m, n]. The leading axes broadcast. */
TU_API tu_value tu_matmul_with(tu_value a, tu_value b, const tu_matmul_options *options);
#define tu_matmul(a, b, ...) tu_matmul_with(a, b, TU_OPTIONS(tu_matmul_options, __VA_ARGS__))

/* Linear algebra on the matrices of the last two axes, in f32 and f64. The leading axes must be equal. */
TU_API tu_value tu_inverse(tu_value a);
TU_API tu_value tu_solve(tu_value a, tu_value b); /* solves a x = b; b is [..., n, k] */
TU_API tu_value
tu_cholesky(tu_value a); /* lower triangular l with l l^T = a; reads only the lower triangle of a */

typedef struct tu_triangular_options {
    size_t struct_size;
    bool upper;     /* a is upper triangular, else lower; the other triangle is not read */
    bool transpose; /* solve a^T x = b */
} tu_triangular_options;
TU_API tu_value tu_triangular_solve_with(tu_value a, tu_value b, const tu_triangular_options *options);
#define tu_triangular_solve(a, b, ...)                                                                       \
    tu_triangular_solve_with(a, b, TU_OPTIONS(tu_triangular_options, __VA_ARGS__))

/* Keeps `below` diagonals below the main one and `above` above it, and sets other elements to zero. A negative number
 * keeps all: tu_band(x, -1, 0) is the lower triangle. */
TU_API tu_value tu_band(tu_value x, int64_t below, int64_t above);

/* Makes [rows, columns] with 1 on the main diagonal and 0 elsewhere, as NumPy's eye. */
TU_API tu_value tu_eye(tu_graph *graph, tu_dtype dtype, int64_t rows, int64_t columns);
/* Returns a diagonal of each matrix, as NumPy's and PyTorch's diagonal of the last two axes: [..., m, n] -> [..., k].
 * Offset 0 is the main one; positive offsets are to the right of it, negative ones below. */
TU_API tu_value tu_diagonal(tu_value x, int64_t offset);
/* The transpose of tu_diagonal, as PyTorch's diag_embed: [..., k] -> [..., n, n] with x on the diagonal `offset` and
 * 0 elsewhere. n is k + |offset|. */
TU_API tu_value tu_diagonal_matrix(tu_value x, int64_t offset);

/* ---- Convolution and pooling --------------------------------------------------------------------------------
 *
 *     tu_convolve(x, filter)                                       // stride 1, "same" padding
 *     tu_convolve(x, filter, .stride = {2, 2}, .padding = TU_VALID)
 *     tu_max_pool(x, .window = {3, 3}, .stride = {2, 2})
 */
typedef enum tu_padding {
    TU_SAME, /* output = ceil(input / stride); if the padding is odd, the end gets one more, as in TensorFlow */
    TU_VALID,    /* no padding */
    TU_EXPLICIT, /* given by .pad */
} tu_padding;

typedef struct tu_convolve_options {
    size_t struct_size;
    int64_t stride[2], dilation[2]; /* height, width; 0: 1 */
    tu_padding padding;
    int64_t pad[4]; /* TU_EXPLICIT: top, bottom, left, right */
    int64_t groups; /* 0: 1 */
} tu_convolve_options;
/* x [n,h,w,c], filter [o,kh,kw,c/groups] -> [n,h',w',o] */
TU_API tu_value tu_convolve_with(tu_value x, tu_value filter, const tu_convolve_options *options);
#define tu_convolve(x, filter, ...) tu_convolve_with(x, filter, TU_OPTIONS(tu_convolve_options, __VA_ARGS__))

/* Transposed convolution: y [n,h',w',o], filter [o,kh,kw,c/groups] -> [n,h,w,c], a shape whose convolution has y's
 * shape. If there are several, `size` {h, w} chooses one; 0: the smallest for TU_VALID and TU_EXPLICIT, stride times
 * the input for TU_SAME. */
typedef struct tu_convolve_transpose_options {
    size_t struct_size;
    int64_t stride[2], dilation[2];
    tu_padding padding;
    int64_t pad[4];
    int64_t groups;
    int64_t size[2];
} tu_convolve_transpose_options;
TU_API tu_value tu_convolve_transpose_with(tu_value y, tu_value filter,
                                           const tu_convolve_transpose_options *options);
#define tu_convolve_transpose(y, filter, ...)                                                                \
    tu_convolve_transpose_with(y, filter, TU_OPTIONS(tu_convolve_transpose_options, __VA_ARGS__))

typedef struct tu_pool_options {
    size_t struct_size;
    int64_t window[2]; /* 0: 2 */
    int64_t stride[2]; /* 0: the window */
    tu_padding padding;
    int64_t pad[4];
    bool count_padding; /* average: the divisor includes padding */
} tu_pool_options;
TU_API tu_value tu_max_pool_with(tu_value x, const tu_pool_options *options);
TU_API tu_value tu_avg_pool_with(tu_value x, const tu_pool_options *options);
#define tu_max_pool(x, ...) tu_max_pool_with(x, TU_OPTIONS(tu_pool_options, __VA_ARGS__))
#define tu_avg_pool(x, ...) tu_avg_pool_with(x, TU_OPTIONS(tu_pool_options, __VA_ARGS__))
/* [n,h,w,c] -> [n,c] */
TU_API tu_value tu_global_avg_pool(tu_value x);
TU_API tu_value tu_global_max_pool(tu_value x);

/* ---- Integer arithmetic of quantized networks --------------------------------------------------------------------
 *
 * A quantized value is u8 and stands for the numbers (q - zero) * scale. Filters are i8 and symmetric, with a scale per
 * output channel. All operations here are defined exactly, so every device computes the same bits: sums are i32; a
 * conversion to f32, a product and a sum of f32 numbers are each rounded to nearest even, and
 *
 *     q = zero + round(min(max(v, low - zero), high - zero))       round: to nearest even; NaN becomes low
 *
 * quantizes a number v that is given in units of the result's scale. They have no gradients.
 *
 *     tu_value q = tu_quantize(x, 0.02, 128);
 *     tu_value sums = tu_convolve_int8(q, filter, 128, .stride = {2, 2});
 *     q = tu_requantize(sums, factors, bias, .zero = 0);   // a zero point of 0: negative numbers become 0
 */

/* f32 -> u8: v = x * (float)(1 / scale), low = 0, high = 255. */
TU_API tu_value tu_quantize(tu_value x, double scale, int64_t zero);
/* u8 -> f32: (x - zero) * (float)scale. */
TU_API tu_value tu_dequantize(tu_value x, double scale, int64_t zero);
/* x u8 [n,h,w,c], filter i8 [o,kh,kw,c/groups] -> i32 [n,h',w',o]: the convolution of x - zero, so padding counts as
 * `zero`. A filter has at most 65,536 weights per output, so no sum overflows. */
TU_API tu_value tu_convolve_int8_with(tu_value x, tu_value filter, int64_t zero,
                                      const tu_convolve_options *options);
#define tu_convolve_int8(x, filter, zero, ...)                                                               \
    tu_convolve_int8_with(x, filter, zero, TU_OPTIONS(tu_convolve_options, __VA_ARGS__))
/* a u8 [m,k], b i8 [k,n] -> i32 [m,n]: (a - zero) b. k is at most 65,536. */
TU_API tu_value tu_matmul_int8(tu_value a, tu_value b, int64_t zero);

typedef struct tu_requantize_options {
    size_t struct_size;
    int64_t zero;      /* zero point of the result */
    int64_t low, high; /* range of the result, 0 … 255; high 0: 255 */
    tu_value
        residual; /* optional, u8 of the sums' shape: adds (residual - residual_zero) * (float)residual_factor */
    double residual_factor; /* the residual's scale divided by the result's */
    int64_t residual_zero;
} tu_requantize_options;
/* sums i32 [...,c], factors f32 [c], bias i32 [c] -> u8 [...,c]: v = (float)(sum + bias) * factor, plus the residual.
 * A factor is scale of x * scale of the filter / scale of the result. sum + bias wraps around at 2^31. */
TU_API tu_value tu_requantize_with(tu_value sums, tu_value factors, tu_value bias,
                                   const tu_requantize_options *options);
#define tu_requantize(sums, factors, bias, ...)                                                              \
    tu_requantize_with(sums, factors, bias, TU_OPTIONS(tu_requantize_options, __VA_ARGS__))

typedef struct tu_add_int8_options {
    size_t struct_size;
    double factor[2];      /* scales of x and y divided by the result's */
    int64_t input_zero[2]; /* zero points of x and y */
    int64_t zero;          /* zero point of the result */
    int64_t low, high;     /* range of the result, 0 … 255; high 0: 255 */
} tu_add_int8_options;
/* u8, u8 -> u8 of one shape: v = (x - zero of x) * factor[0] + (y - zero of y) * factor[1]. */
TU_API tu_value tu_add_int8_with(tu_value x, tu_value y, const tu_add_int8_options *options);
#define tu_add_int8(x, y, ...) tu_add_int8_with(x, y, TU_OPTIONS(tu_add_int8_options, __VA_ARGS__))

/* u8 [n,h,w,c] -> u8 [n,c], the mean over pixels: v = (float)(sum of x - input_zero) * factor. The factor is the scale
 * of x divided by that of the result and by the number of pixels, at most 2^23. */
TU_API tu_value tu_mean_int8(tu_value x, double factor, int64_t input_zero, int64_t zero);

/* ---- Normalisation: operations without variables; layers.h has layers with variables --------------------------- */

/* The samples whose statistics batch normalisation uses. */
typedef enum tu_batch_scope {
    TU_SCOPE_GLOBAL,  /* statistics of the whole batch, over all replicas, as with one device */
    TU_SCOPE_REPLICA, /* statistics of the samples of one replica */
    TU_SCOPE_SHARD,   /* statistics of one shard of tu_compile_options.invariant */
} tu_batch_scope;

typedef struct tu_normalize_options {
    size_t struct_size;
    double epsilon;       /* 0: 1e-5 */
    tu_batch_scope scope; /* batch normalisation only */
    int64_t axes;         /* layer normalisation: number of trailing axes; 0: 1 */
} tu_normalize_options;
/* Normalises over all axes but the last. Outputs: y, mean [c], variance [c] (divided by n). Statistics are f32 if x
 * is bf16 or f16, else of x's type. gamma and beta [c] may have either type. */
TU_API tu_value tu_batch_normalize_with(tu_value x, tu_value gamma, tu_value beta,
                                        const tu_normalize_options *options);
#define tu_batch_normalize(x, gamma, beta, ...)                                                              \
    tu_batch_normalize_with(x, gamma, beta, TU_OPTIONS(tu_normalize_options, __VA_ARGS__))
/* Normalises over the trailing axes, whose shape gamma and beta have. Outputs: y; mean and inverse standard deviation,
 * both with the shape of the leading axes. */
TU_API tu_value tu_layer_normalize_with(tu_value x, tu_value gamma, tu_value beta,
                                        const tu_normalize_options *options);
#define tu_layer_normalize(x, gamma, beta, ...)                                                              \
    tu_layer_normalize_with(x, gamma, beta, TU_OPTIONS(tu_normalize_options, __VA_ARGS__))

typedef struct tu_lrn_options {
    size_t struct_size;
    int64_t radius;           /* 0: 5; TU_ZERO: 0 */
    double bias, alpha, beta; /* 0: 1, 1, 0.5; alpha and beta of TU_ZERO: 0 */
} tu_lrn_options;
/* Local response normalisation across channels (Krizhevsky 2012), as TensorFlow computes it:
 * y = x / (bias + alpha * sum over |d| <= radius of x[c+d]^2) ^ beta */
TU_API tu_value tu_lrn_with(tu_value x, const tu_lrn_options *options);
#define tu_lrn(x, ...) tu_lrn_with(x, TU_OPTIONS(tu_lrn_options, __VA_ARGS__))

/* ---- Softmax and losses ------------------------------------------------------------------------------------- */

TU_API tu_value tu_softmax(tu_value x, int axis);
TU_API tu_value tu_log_softmax(tu_value x, int axis);

typedef struct tu_cross_entropy_options {
    size_t struct_size;
    double smoothing; /* label smoothing in [0, 1) */
} tu_cross_entropy_options;
/* Returns the loss of each row: logits [..., k] with labels [...] (i32, i64: class indices) or [..., k]
 * (probabilities). The loss of a row whose class index is outside [0, k) is zero and has no gradient, but tu_mean
 * still counts the row. */
TU_API tu_value tu_cross_entropy_with(tu_value logits, tu_value labels,
                                      const tu_cross_entropy_options *options);
#define tu_cross_entropy(logits, labels, ...)                                                                \
    tu_cross_entropy_with(logits, labels, TU_OPTIONS(tu_cross_entropy_options, __VA_ARGS__))

typedef struct tu_mean_cross_entropy_options {
    size_t struct_size;
    double smoothing; /* as above */
    bool ignore;      /* leave out the rows with label ignore_label: no loss, no gradient, not in the mean */
    int64_t ignore_label; /* must be 0 without `ignore` */
} tu_mean_cross_entropy_options;
/* Returns the mean loss of the rows, a scalar, for class numbers i32 or i64. It is NaN if a class number outside [0,
 * k) is not ignored; tu_add_optimizer then skips the step. It is 0 if all rows are ignored. */
TU_API tu_value tu_mean_cross_entropy_with(tu_value logits, tu_value labels,
                                           const tu_mean_cross_entropy_options *options);
#define tu_mean_cross_entropy(logits, labels, ...)                                                           \
    tu_mean_cross_entropy_with(logits, labels, TU_OPTIONS(tu_mean_cross_entropy_options, __VA_ARGS__))

/* ---- Attention ---------------------------------------------------------------------------------------------- */

typedef struct tu_attention_options {
    size_t struct_size;
    bool causal;  /* position i reads positions 0 … i only */
    double scale; /* of the scores; 0: 1 / sqrt(width) */
} tu_attention_options;
/* Scaled dot-product attention of several heads: x [batch, time, 3, heads, width] has queries, keys and values along
 * axis 2, as one tu_dense of 3 * heads * units gives them, reshaped. Outputs: y [batch, time, heads, width]; the
 * logarithm of the sum of exponentials of each row of scores [batch, heads, time]. Kernels need memory in proportion to
 * the time, not to its square.
 *
 *     tu_value qkv = tu_reshape(tu_dense(x, .units = 3 * width), TU_SHAPE(batch, time, 3, heads, width / heads));
 *     tu_value y = tu_reshape(tu_attention(qkv, .causal = true), TU_SHAPE(batch, time, width));
 */
TU_API tu_value tu_attention_with(tu_value x, const tu_attention_options *options);
#define tu_attention(x, ...) tu_attention_with(x, TU_OPTIONS(tu_attention_options, __VA_ARGS__))

/* ---- Shape -------------------------------------------------------------------------------------------------- */

/* One dimension may be -1: it is computed from the others. */
TU_API tu_value tu_reshape(tu_value x, tu_shape shape);
/* [n, ...] -> [n, product of the other dimensions] */
TU_API tu_value tu_flatten(tu_value x);
TU_API tu_value tu_broadcast(tu_value x, tu_shape shape);
/* Permutes axes: axis i of the result is axis permutation[i] of x. tu_transpose(x, 0, 2, 1). Without a permutation,
 * tu_transpose(x) swaps the last two axes. */
TU_API tu_value tu_transpose_with(tu_value x, tu_axes permutation);
#ifdef __cplusplus
#define tu_transpose(x, ...) tu_transpose_with(x, tu_axes_from({__VA_ARGS__}))
#else
#define tu_transpose(x, ...) tu_transpose_with(x, (tu_axes)TU_AXES(__VA_ARGS__))
#endif
/* Add or remove an axis of size 1. */
TU_API tu_value tu_expand_axis(tu_value x, int axis);
TU_API tu_value tu_squeeze_axis(tu_value x, int axis);

/* Returns the elements begin, begin + step, … before end of one axis. Negative begin and end count from the end of
 * the axis; TU_END is its end. step is at least 1. */
#define TU_END INT64_MAX
TU_API tu_value tu_slice(tu_value x, int axis, int64_t begin, int64_t end, int64_t step);
/* Joins values along an axis. */
TU_API tu_value tu_concat(const tu_value *parts, size_t count, int axis);
/* Joins values of one type along a new axis of size `count`, which is axis `axis` of the result. */
TU_API tu_value tu_stack(const tu_value *parts, size_t count, int axis);
/* Splits x along an axis into `count` values. `sizes` must add up to the axis' size; NULL: equal sizes. After an
 * error all of `parts` are invalid; it is an error of the graph like any other, so callers may ignore the status.
 *
 *     tu_value qkv[3], parts[2];
 *     tu_split_axis(x, -1, 3, NULL, qkv);                         // [8,96] -> three of [8,32]
 *     tu_split_axis(x, 0, 2, (const int64_t[]){6, 2}, parts);     // [8,96] -> [6,96] and [2,96]
 */
TU_API tu_status tu_split_axis(tu_value x, int axis, size_t count, const int64_t *sizes, tu_value *parts);
/* Adds `before` and `after` elements of value `number` along an axis. */
TU_API tu_value tu_pad(tu_value x, int axis, int64_t before, int64_t after, double number);
TU_API tu_value tu_flip_with(tu_value x, tu_axes axes);
#ifdef __cplusplus
#define tu_flip(x, ...) tu_flip_with(x, tu_axes_from({__VA_ARGS__}))
#else
#define tu_flip(x, ...) tu_flip_with(x, (tu_axes)TU_AXES(__VA_ARGS__))
#endif

/* Moves elements by `shift` positions along an axis; elements that leave at one end enter at the other. */
TU_API tu_value tu_roll(tu_value x, int axis, int64_t shift);

/* ---- Images: [n,h,w,c] --------------------------------------------------------------------------------------- */

typedef enum tu_resize_method {
    TU_BILINEAR, /* as PyTorch's align_corners=False and TensorFlow 2, without antialiasing */
    TU_NEAREST,
} tu_resize_method;
TU_API tu_value tu_resize(tu_value x, int64_t height, int64_t width, tu_resize_method method);
/* Crops a window of each image. offsets [n,2] (i32 or i64) are the top row and left column of each window,
 * clamped to the image. */
TU_API tu_value tu_crop(tu_value x, tu_value offsets, int64_t height, int64_t width);
/* Computes (x - mean) / max(standard deviation, 1/sqrt(count)) of each image. */
TU_API tu_value tu_standardize(tu_value x);

/* Augmentation, with random numbers per sample. In inference mode: the centre crop, and x unchanged. */
TU_API tu_value tu_random_crop(tu_value x, int64_t height, int64_t width);
TU_API tu_value tu_random_flip(tu_value x);                     /* left-right, with probability 1/2 */
TU_API tu_value tu_random_brightness(tu_value x, double delta); /* adds a random number in [-delta, delta) */
TU_API tu_value tu_random_contrast(tu_value x, double low,
                                   double high); /* scales around each channel's mean */

/* ---- Random numbers ------------------------------------------------------------------------------------------
 *
 * Philox 4x32-10, keyed by the state's seed and the operation's scoped name. With .per_sample axis 0 counts samples,
 * and the numbers of a sample depend on its ordinal only, not on the batch or shard that it is in. Otherwise numbers
 * are keyed by the step.
 */
typedef struct tu_random_options {
    size_t struct_size;
    bool per_sample;
    const char *name; /* used in the key; NULL: the operation's scoped name */
} tu_random_options;
TU_API tu_value tu_random_uniform_with(tu_graph *graph, tu_dtype dtype, tu_shape shape, double low,
                                       double high, const tu_random_options *options);
TU_API tu_value tu_random_normal_with(tu_graph *graph, tu_dtype dtype, tu_shape shape, double mean,
                                      double deviation, const tu_random_options *options);
TU_API tu_value tu_random_bernoulli_with(tu_graph *graph, tu_dtype dtype, tu_shape shape, double probability,
                                         const tu_random_options *options);
#define tu_random_uniform(graph, dtype, shape, low, high, ...)                                               \
    tu_random_uniform_with(graph, dtype, shape, low, high, TU_OPTIONS(tu_random_options, __VA_ARGS__))
#define tu_random_normal(graph, dtype, shape, mean, deviation, ...)                                          \
    tu_random_normal_with(graph, dtype, shape, mean, deviation, TU_OPTIONS(tu_random_options, __VA_ARGS__))
#define tu_random_bernoulli(graph, dtype, shape, probability, ...)                                           \
    tu_random_bernoulli_with(graph, dtype, shape, probability, TU_OPTIONS(tu_random_options, __VA_ARGS__))

/* Sets each element to zero with probability `rate` and scales the others by 1 / (1 - rate). Returns x in inference
 * mode. Axis 0 counts samples. */
TU_API tu_value tu_dropout(tu_value x, double rate);

#ifdef __cplusplus
}
#endif
#endif
