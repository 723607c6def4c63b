/* Describes convolutions to cuDNN.
 *
 * cuDNN orders the axes of a tensor n, c, h, w and takes the memory order from strides: ours is n, h, w, c, and o, h,
 * w, c for a filter. Groups follow from the filter's channels. A bias, a residual and a relu are more operations of the same
 * graph, whose inputs are virtual tensors that are never stored. Virtual tensors are f32, so a value is rounded once,
 * when it is stored.
 */
#include <inttypes.h>

#include "base/text.h"
#include "device/cuda/ops/conv.h"

typedef enum operand { X, FILTER, Y, BIAS, RESIDUAL, OPERANDS } operand;

typedef struct tensor {
    int64_t dims[4], strides[4]; /* n, c, h, w */
} tensor;

/* Describes a dense [n, h, w, c] tensor. */
static tensor tensor_of(int64_t n, int64_t h, int64_t w, int64_t c) {
    return (tensor){{n, c, h, w}, {h * w * c, 1, w * c, c}};
}

static tensor tensor_for(const cuda_convolution *c, operand operand_kind) {
    const int64_t *x = c->x_size, *y = c->y_size, *f = c->windows.size;
    int64_t in = c->groups * c->x_channels, out = c->groups * c->y_channels;
    const tensor tensors[OPERANDS] = {[X] = tensor_of(c->images, x[0], x[1], in),
                                      [FILTER] = tensor_of(out, f[0], f[1], c->x_channels),
                                      [Y] = tensor_of(c->images, y[0], y[1], out),
                                      [BIAS] = tensor_of(1, 1, 1, out),
                                      [RESIDUAL] = tensor_of(c->images, y[0], y[1], out)};
    return tensors[operand_kind];
}

static cudnnDataType_t type_of(tu_dtype dtype) {
    static const cudnnDataType_t types[] = {[TU_F32] = CUDNN_DATA_FLOAT,
                                            [TU_F64] = CUDNN_DATA_DOUBLE,
                                            [TU_BF16] = CUDNN_DATA_BFLOAT16,
                                            [TU_F16] = CUDNN_DATA_HALF};
    return types[dtype];
}

/* A cuDNN graph under construction. Ids of tensors in memory start at 1, those of virtual tensors at 100. */
typedef struct graph_builder {
    cuda_dnn_plan *p;
    const cuda_convolution *c;
    cudnnDataType_t compute_type; /* type of sums and of virtual tensors */
    int64_t virtual_count;
    cudnnBackendDescriptor_t operations[6];
    int64_t operation_count;
} graph_builder;

static tu_status create_tensor(graph_builder *d, const tensor *t, cudnnDataType_t type, int64_t id,
                               bool is_virtual, cudnnBackendDescriptor_t *created) {
    int64_t alignment = 16; /* buffers have at least this alignment */
    const cuda_dnn_attribute attributes[] = {
        CUDA_DNN_ATTRIBUTE(TENSOR_DATA_TYPE, DATA_TYPE, 1, &type),
        CUDA_DNN_ATTRIBUTE(TENSOR_DIMENSIONS, INT64, 4, t->dims),
        CUDA_DNN_ATTRIBUTE(TENSOR_STRIDES, INT64, 4, t->strides),
        CUDA_DNN_ATTRIBUTE(TENSOR_UNIQUE_ID, INT64, 1, &id),
        CUDA_DNN_ATTRIBUTE(TENSOR_BYTE_ALIGNMENT, INT64, 1, &alignment),
        CUDA_DNN_ATTRIBUTE(TENSOR_IS_VIRTUAL, BOOLEAN, 1, &is_virtual),
    };
    return cuda_dnn_describe(d->p, CUDNN_BACKEND_TENSOR_DESCRIPTOR, 6, attributes, created);
}

/* Creates a tensor in memory: the plan's next operand. */
static tu_status create_operand(graph_builder *d, operand operand_kind, cudnnBackendDescriptor_t *created) {
    tensor t = tensor_for(d->c, operand_kind);
    int64_t elements = t.dims[0] * t.dims[1] * t.dims[2] * t.dims[3];
    d->p->operand_bytes[d->p->operand_count++] = (size_t)elements * tu_dtype_size(d->c->dtype);
    return create_tensor(d, &t, type_of(d->c->dtype), d->p->operand_count, false, created);
}

/* Creates a result with y's shape: in memory if it is the last, else virtual. */
static tu_status create_result(graph_builder *d, bool last, cudnnBackendDescriptor_t *created) {
    tensor t = tensor_for(d->c, Y);
    if (last) return create_operand(d, Y, created);
    return create_tensor(d, &t, d->compute_type, 100 + d->virtual_count++, true, created);
}

static tu_status create_windows(graph_builder *d, cudnnBackendDescriptor_t *created) {
    const tu__windows *w = &d->c->windows;
    const int64_t before[2] = {w->pad[0], w->pad[2]}, after[2] = {w->pad[1], w->pad[3]}, axes = 2;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const cuda_dnn_attribute attributes[] = {
        CUDA_DNN_ATTRIBUTE(CONVOLUTION_SPATIAL_DIMS, INT64, 1, &axes),
        CUDA_DNN_ATTRIBUTE(CONVOLUTION_COMP_TYPE, DATA_TYPE, 1, &d->compute_type),
        CUDA_DNN_ATTRIBUTE(CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1, &mode),
        CUDA_DNN_ATTRIBUTE(CONVOLUTION_PRE_PADDINGS, INT64, 2, before),
        CUDA_DNN_ATTRIBUTE(CONVOLUTION_POST_PADDINGS, INT64, 2, after),
        CUDA_DNN_ATTRIBUTE(CONVOLUTION_FILTER_STRIDES, INT64, 2, w->stride),
        CUDA_DNN_ATTRIBUTE(CONVOLUTION_DILATIONS, INT64, 2, w->dilation),
    };
    return cuda_dnn_describe(d->p, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, 7, attributes, created);
}

/* cuDNN's names for the operation that computes each result, and the operands it reads, in the order of our
 * operations' inputs. */
static const struct conv_operation {
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t windows, alpha, beta, first, second, result;
    operand reads[2], writes;
} conv_operations[] = {
    [CUDA_CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                           {X, FILTER},
                           Y},
    [CUDA_CONV_DGRAD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                         {Y, FILTER},
                         X},
    [CUDA_CONV_WGRAD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                         {X, Y},
                         FILTER},
};

static tu_status add_operation(graph_builder *d, cudnnBackendDescriptorType_t type, size_t count,
                               const cuda_dnn_attribute *attributes) {
    cudnnBackendDescriptor_t created;
    TU_TRY(cuda_dnn_describe(d->p, type, count, attributes, &created));
    if (created) d->operations[d->operation_count++] = created;
    return TU_OK;
}

static tu_status add_convolution(graph_builder *d, const cudnnBackendDescriptor_t reads[2],
                                 cudnnBackendDescriptor_t result) {
    const struct conv_operation *operation = &conv_operations[d->c->result];
    const double one = 1, zero = 0;
    const float one_f32 = 1, zero_f32 = 0;
    const bool wide = d->c->dtype == TU_F64;
    const cudnnBackendAttributeType_t factor = wide ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
    cudnnBackendDescriptor_t windows;
    TU_TRY(create_windows(d, &windows));
    if (!windows || !reads[0] || !reads[1] || !result) return TU_OK;
    const cuda_dnn_attribute attributes[] = {
        {operation->windows, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &windows},
        {operation->first, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &reads[0]},
        {operation->second, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &reads[1]},
        {operation->result, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &result},
        {operation->alpha, factor, 1, wide ? (const void *)&one : &one_f32},
        {operation->beta, factor, 1, wide ? (const void *)&zero : &zero_f32},
    };
    return add_operation(d, operation->operation, 6, attributes);
}

/* `other` is NULL for a unary operation. */
static tu_status add_pointwise(graph_builder *d, cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t input,
                               cudnnBackendDescriptor_t other, cudnnBackendDescriptor_t result) {
    const cuda_dnn_attribute kind[] = {
        CUDA_DNN_ATTRIBUTE(POINTWISE_MODE, POINTWISE_MODE, 1, &mode),
        CUDA_DNN_ATTRIBUTE(POINTWISE_MATH_PREC, DATA_TYPE, 1, &d->compute_type),
    };
    cudnnBackendDescriptor_t pointwise;
    TU_TRY(cuda_dnn_describe(d->p, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 2, kind, &pointwise));
    if (!pointwise || !input || !result) return TU_OK;
    const cuda_dnn_attribute attributes[] = {
        CUDA_DNN_ATTRIBUTE(OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, 1, &pointwise),
        CUDA_DNN_ATTRIBUTE(OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, 1, &input),
        CUDA_DNN_ATTRIBUTE(OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, 1, &result),
        CUDA_DNN_ATTRIBUTE(OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, 1, &other),
    };
    return add_operation(d, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, other ? 4 : 3, attributes);
}

/* Adds relu(value). An engine's relu may turn NaN into 0; then relu(v) + (v - v) is NaN for NaN and infinities, and relu(v)
 * for all others. */
static tu_status add_relu(graph_builder *d, cudnnBackendDescriptor_t value) {
    cudnnBackendDescriptor_t result, relu, nothing;
    if (!d->c->restores_nan) {
        TU_TRY(create_result(d, true, &result));
        return add_pointwise(d, CUDNN_POINTWISE_RELU_FWD, value, NULL, result);
    }
    TU_TRY(create_result(d, false, &relu));
    TU_TRY(add_pointwise(d, CUDNN_POINTWISE_RELU_FWD, value, NULL, relu));
    TU_TRY(create_result(d, false, &nothing));
    TU_TRY(add_pointwise(d, CUDNN_POINTWISE_SUB, value, value, nothing));
    TU_TRY(create_result(d, true, &result));
    return add_pointwise(d, CUDNN_POINTWISE_ADD, relu, nothing, result);
}

static int64_t count_operations(const cuda_convolution *c) {
    return 1 + c->bias + c->residual + (c->relu ? c->restores_nan ? 3 : 1 : 0);
}

/* Adds all operations. If cuDNN does not support one, operation_count stays too small. */
static tu_status add_operations(graph_builder *d) {
    const cuda_convolution *c = d->c;
    const struct conv_operation *operation = &conv_operations[c->result];
    cudnnBackendDescriptor_t reads[2], bias = NULL, residual = NULL, value, next;
    for (int i = 0; i < 2; i++) TU_TRY(create_operand(d, operation->reads[i], &reads[i]));
    if (c->bias) TU_TRY(create_operand(d, BIAS, &bias));
    if (c->residual) TU_TRY(create_operand(d, RESIDUAL, &residual));
    if (c->result == CUDA_CONV_FORWARD)
        TU_TRY(create_result(d, !c->bias && !c->residual && !c->relu, &value));
    else
        TU_TRY(create_operand(d, operation->writes, &value));
    TU_TRY(add_convolution(d, reads, value));
    if (c->bias) {
        TU_TRY(create_result(d, !c->residual && !c->relu, &next));
        TU_TRY(add_pointwise(d, CUDNN_POINTWISE_ADD, value, bias, next));
        value = next;
    }
    if (c->residual) {
        TU_TRY(create_result(d, !c->relu, &next));
        TU_TRY(add_pointwise(d, CUDNN_POINTWISE_ADD, value, residual, next));
        value = next;
    }
    return c->relu ? add_relu(d, value) : TU_OK;
}

static tu_status build_graph(graph_builder *d) {
    TU_TRY(add_operations(d));
    if (d->operation_count < count_operations(d->c)) return TU_OK;
    const cuda_dnn_attribute attributes[] = {
        CUDA_DNN_ATTRIBUTE(OPERATIONGRAPH_HANDLE, HANDLE, 1, &d->p->handle),
        CUDA_DNN_ATTRIBUTE(OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, d->operation_count, d->operations),
    };
    return cuda_dnn_describe(d->p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 2, attributes, &d->p->graph);
}

/* Writes everything that a tuning result depends on, except the GPU and the library. */
static void write_key(tu__text *text, const cuda_convolution *c) {
    static const char *const names[] = {"conv_y", "conv_x", "conv_filter"};
    const tu__windows *w = &c->windows;
    tu__text_printf(text, "%s%s%s%s %s%s", names[c->result], c->bias ? "+bias" : "",
                    c->residual ? "+add" : "", c->relu ? c->restores_nan ? "+relu+nan" : "+relu" : "",
                    tu_dtype_name(c->dtype), c->full_f32 ? " full" : "");
    tu__text_printf(text, " n%" PRId64 " x%" PRId64 "x%" PRId64 " y%" PRId64 "x%" PRId64, c->images,
                    c->x_size[0], c->x_size[1], c->y_size[0], c->y_size[1]);
    tu__text_printf(text, " g%" PRId64 " c%" PRId64 " o%" PRId64 " f%" PRId64 "x%" PRId64, c->groups,
                    c->x_channels, c->y_channels, w->size[0], w->size[1]);
    tu__text_printf(text, " s%" PRId64 "x%" PRId64 " d%" PRId64 "x%" PRId64, w->stride[0], w->stride[1],
                    w->dilation[0], w->dilation[1]);
    tu__text_printf(text, " p%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64, w->pad[0], w->pad[1], w->pad[2],
                    w->pad[3]);
}

bool cuda_conv_prefers_tensor_cores(const cuda_convolution *c) {
    return c->groups == 1 && c->dtype != TU_F64 && !c->full_f32;
}

static tu_status choose_engine(cuda_dnn_plan *p, const cuda_convolution *c) {
    tu__text key = {0};
    write_key(&key, c);
    cuda_dnn_needs needs = {.key = tu__text_string(&key),
                            .full_f32 = c->full_f32,
                            .tensor_cores = cuda_conv_prefers_tensor_cores(c)};
    tu_status status = key.failed ? TU_NO_MEMORY : cuda_dnn_choose(p, &needs);
    tu__text_free(&key);
    return status;
}

tu_status cuda_conv_dnn(cuda_device *device, const cuda_convolution *c, cuda_dnn_plan *p) {
    TU_TRY(cuda_dnn_begin(p, device));
    graph_builder d = {
        .p = p, .c = c, .compute_type = c->dtype == TU_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT};
    TU_TRY(build_graph(&d));
    return p->graph ? choose_engine(p, c) : TU_OK;
}
