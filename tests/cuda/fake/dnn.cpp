/* A fake cuDNN: its graph API for convolutions with an optional bias and relu, in plain loops.
 *
 * A descriptor is a table of attributes. Setting a descriptor as an attribute of another shares its content, so that
 * the handle may be destroyed, as with the real library. Getting one fills a handle that the caller created.
 *
 * The heuristics return three engines, so that callers must check their notes: a nondeterministic one, one with
 * tensor cores (f32 is rounded to tf32, f64 is not supported), and a plain one whose relu turns NaN into 0. Graphs of
 * several operations in f64 or with groups have no engine. With FAKE_CUDA_DNN_DECLINES=1 no graph has an engine, with
 * FAKE_CUDA_DNN_LOSES_NAN=1 the relu of every engine turns NaN into 0.
 */
#include <cudnn.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "driver.h"
#include "elements.h"

/* ---- Descriptors ---- */

struct content;
typedef std::shared_ptr<content> content_ref;

struct attribute {
    cudnnBackendAttributeType_t type;
    int64_t count;
    std::vector<char> bytes;
    std::vector<content_ref> descriptors;
};
struct content {
    cudnnBackendDescriptorType_t type;
    bool finalized;
    std::map<int, attribute> attributes;
};
struct descriptor {
    content_ref content_of;
};
struct cudnnContext {
    cudaStream_t stream;
};

enum engine_number { NONDETERMINISTIC = 1, TENSOR_CORES, PLAIN };
enum { WORKSPACE = 1000 };

static thread_local char last_error[256];

static cudnnStatus_t fail_with(cudnnStatus_t status, const char *why) {
    snprintf(last_error, sizeof last_error, "%s", why);
    return status;
}

size_t cudnnGetVersion() {
    return 91200;
}
const char *cudnnGetErrorString(cudnnStatus_t status) {
    switch (status) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR: return "CUDNN_STATUS_INTERNAL_ERROR";
    case CUDNN_STATUS_EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
    default: return "CUDNN_STATUS";
    }
}
void cudnnGetLastErrorString(char *message, size_t capacity) {
    if (capacity) snprintf(message, capacity, "%s", last_error);
    *last_error = '\0';
}
cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    NEED(fake_synchronise(), CUDNN_STATUS_INTERNAL_ERROR);
    *handle = new cudnnContext{nullptr};
    fake_add_object("cuDNN handle", *handle);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    NEED(fake_synchronise(), CUDNN_STATUS_INTERNAL_ERROR);
    NEED(fake_remove_object("cuDNN handle", handle), CUDNN_STATUS_BAD_PARAM);
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    NEED(fake_is_object("cuDNN handle", handle), CUDNN_STATUS_BAD_PARAM);
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

static content_ref new_content(cudnnBackendDescriptorType_t type) {
    return content_ref(new content{type, false, {}});
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *made) {
    *made = new descriptor{new_content(type)};
    fake_add_object("cuDNN descriptor", *made);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t handle) {
    NEED(fake_remove_object("cuDNN descriptor", handle), CUDNN_STATUS_BAD_PARAM);
    delete (descriptor *)handle;
    return CUDNN_STATUS_SUCCESS;
}

/* Returns the size of an attribute type; 0 if it is not supported. */
static size_t size_of(cudnnBackendAttributeType_t type) {
    switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_DOUBLE: return 8;
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_FLOAT:
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_CONVOLUTION_MODE:
    case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_NAN_PROPOGATION:
    case CUDNN_TYPE_HEUR_MODE:
    case CUDNN_TYPE_KNOB_TYPE:
    case CUDNN_TYPE_NUMERICAL_NOTE:
    case CUDNN_TYPE_BEHAVIOR_NOTE:
    case CUDNN_TYPE_INT32: return 4;
    default: return 0;
    }
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *elements) {
    NEED(fake_is_object("cuDNN descriptor", handle), CUDNN_STATUS_BAD_PARAM);
    content &c = *((descriptor *)handle)->content_of;
    if (c.finalized) return fail_with(CUDNN_STATUS_NOT_INITIALIZED, "the descriptor is finalized already");
    size_t size = size_of(type);
    if (!size || count < 0) return fail_with(CUDNN_STATUS_NOT_SUPPORTED, "no such type of attribute");
    attribute a = {type, count, {}, {}};
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++) {
        cudnnBackendDescriptor_t other = ((const cudnnBackendDescriptor_t *)elements)[i];
        if (!fake_is_object("cuDNN descriptor", other) || !((descriptor *)other)->content_of->finalized)
            return fail_with(CUDNN_STATUS_BAD_PARAM, "a descriptor in another must be finalized");
        a.descriptors.push_back(((descriptor *)other)->content_of);
    }
    if (count) a.bytes.assign((const char *)elements, (const char *)elements + size * (size_t)count);
    c.attributes[name] = a;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t capacity, int64_t *count,
                                       void *elements) {
    NEED(fake_is_object("cuDNN descriptor", handle), CUDNN_STATUS_BAD_PARAM);
    const content &c = *((descriptor *)handle)->content_of;
    if (!c.finalized) return fail_with(CUDNN_STATUS_NOT_INITIALIZED, "the descriptor is not finalized");
    auto found = c.attributes.find(name);
    if (found == c.attributes.end() || found->second.type != type)
        return fail_with(CUDNN_STATUS_BAD_PARAM, "the descriptor has no such attribute");
    const attribute &a = found->second;
    if (count) *count = a.count;
    int64_t given = a.count < capacity ? a.count : capacity;
    if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        if (given) memcpy(elements, a.bytes.data(), size_of(type) * (size_t)given);
        return CUDNN_STATUS_SUCCESS;
    }
    for (int64_t i = 0; i < given; i++) {
        cudnnBackendDescriptor_t into = ((cudnnBackendDescriptor_t *)elements)[i];
        if (!fake_is_object("cuDNN descriptor", into) ||
            ((descriptor *)into)->content_of->type != a.descriptors[(size_t)i]->type)
            return fail_with(CUDNN_STATUS_BAD_PARAM, "the descriptor to fill is not of the right type");
        ((descriptor *)into)->content_of = a.descriptors[(size_t)i];
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- Reading and writing attributes ---- */

static bool has(const content &c, int name) {
    return c.attributes.count(name) != 0;
}
template <typename T> static T value(const content &c, int name, T otherwise = T()) {
    auto found = c.attributes.find(name);
    if (found == c.attributes.end() || found->second.bytes.size() < sizeof(T)) return otherwise;
    T x;
    memcpy(&x, found->second.bytes.data(), sizeof x);
    return x;
}
static std::vector<int64_t> numbers(const content &c, int name) {
    auto found = c.attributes.find(name);
    if (found == c.attributes.end()) return {};
    std::vector<int64_t> list((size_t)found->second.count);
    memcpy(list.data(), found->second.bytes.data(), found->second.bytes.size());
    return list;
}
static const std::vector<content_ref> &descriptors(const content &c, int name) {
    static const std::vector<content_ref> none;
    auto found = c.attributes.find(name);
    return found == c.attributes.end() ? none : found->second.descriptors;
}
static const content &other(const content &c, int name) {
    return *descriptors(c, name)[0];
}

static void put(content &c, int name, cudnnBackendAttributeType_t type, int64_t count, const void *elements) {
    const char *bytes = (const char *)elements;
    c.attributes[name] = {type, count, std::vector<char>(bytes, bytes + size_of(type) * (size_t)count), {}};
}
static void put(content &c, int name, std::vector<content_ref> descriptors) {
    int64_t count = (int64_t)descriptors.size();
    c.attributes[name] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, count, {}, std::move(descriptors)};
}

/* ---- Operations ---- */

/* The attribute names of each kind of convolution: one of x, filter and y is the result. */
static const struct convolution_names {
    cudnnBackendDescriptorType_t operation;
    int windows, alpha, beta, x, filter, y, result;
} convolutions[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW},
};
static const convolution_names *names_of(cudnnBackendDescriptorType_t type) {
    for (const convolution_names &n : convolutions)
        if (n.operation == type) return &n;
    return nullptr;
}

/* A tensor, as described by its descriptor. */
struct tensor {
    int64_t id, alignment;
    bool is_virtual;
    cudaDataType type;
    std::vector<int64_t> dims, strides;
};

static cudaDataType type_of(cudnnDataType_t type) {
    switch (type) {
    case CUDNN_DATA_DOUBLE: return CUDA_R_64F;
    case CUDNN_DATA_FLOAT: return CUDA_R_32F;
    case CUDNN_DATA_HALF: return CUDA_R_16F;
    case CUDNN_DATA_BFLOAT16: return CUDA_R_16BF;
    default: return CUDA_R_8I;
    }
}
static tensor tensor_of(const content &c) {
    return {value<int64_t>(c, CUDNN_ATTR_TENSOR_UNIQUE_ID),
            value<int64_t>(c, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
            value<bool>(c, CUDNN_ATTR_TENSOR_IS_VIRTUAL, false),
            type_of(value<cudnnDataType_t>(c, CUDNN_ATTR_TENSOR_DATA_TYPE)),
            numbers(c, CUDNN_ATTR_TENSOR_DIMENSIONS),
            numbers(c, CUDNN_ATTR_TENSOR_STRIDES)};
}

/* ---- Finalizing ---- */

static cudnnStatus_t check_tensor(const content &c) {
    tensor t = tensor_of(c);
    if (t.dims.size() != t.strides.size() || t.dims.size() < 3 || !is_supported_float(t.type) || t.alignment < 1)
        return fail_with(CUDNN_STATUS_BAD_PARAM,
                      "a tensor needs a type, an alignment, and 3 or more dimensions with strides");
    for (int64_t size : t.dims)
        if (size < 1) return fail_with(CUDNN_STATUS_BAD_PARAM, "a dimension is less than 1");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_windows(const content &c) {
    size_t axes = (size_t)value<int64_t>(c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
    for (int name : {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
                     CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_DILATIONS})
        if (numbers(c, name).size() != axes)
            return fail_with(CUDNN_STATUS_BAD_PARAM, "a number is missing for an axis");
    for (int64_t pad : numbers(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS))
        if (pad < 0) return fail_with(CUDNN_STATUS_BAD_PARAM, "a padding is negative");
    for (int64_t pad : numbers(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS))
        if (pad < 0) return fail_with(CUDNN_STATUS_BAD_PARAM, "a padding is negative");
    if (axes != 2 ||
        value<cudnnConvolutionMode_t>(c, CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION)
        return fail_with(CUDNN_STATUS_NOT_SUPPORTED, "only correlations of two axes");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_convolution(const content &c, const convolution_names &n) {
    if (!has(c, n.windows) || !has(c, n.x) || !has(c, n.filter) || !has(c, n.y))
        return fail_with(CUDNN_STATUS_BAD_PARAM, "a convolution needs windows, x, filter and y");
    tensor x = tensor_of(other(c, n.x)), w = tensor_of(other(c, n.filter)), y = tensor_of(other(c, n.y));
    const content &windows = other(c, n.windows);
    if (x.dims[0] != y.dims[0] || x.dims[1] % w.dims[1] || w.dims[0] != y.dims[1] ||
        w.dims[0] % (x.dims[1] / w.dims[1]))
        return fail_with(CUDNN_STATUS_BAD_PARAM, "numbers of images or channels do not match");
    for (size_t axis = 0; axis < 2; axis++) {
        int64_t padded = x.dims[axis + 2] + numbers(windows, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)[axis] +
                         numbers(windows, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)[axis];
        int64_t window_extent = (w.dims[axis + 2] - 1) * numbers(windows, CUDNN_ATTR_CONVOLUTION_DILATIONS)[axis] + 1;
        int64_t stride = numbers(windows, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)[axis];
        if (padded < window_extent || (padded - window_extent) / stride + 1 != y.dims[axis + 2])
            return fail_with(CUDNN_STATUS_BAD_PARAM, "the size of y does not match x and the windows");
    }
    return CUDNN_STATUS_SUCCESS;
}

static int64_t groups_of(const content &operation, const convolution_names &n) {
    return tensor_of(other(operation, n.x)).dims[1] / tensor_of(other(operation, n.filter)).dims[1];
}

/* True if an engine supports a graph. */
static bool supports_graph(const content &graph, int64_t engine) {
    const std::vector<content_ref> &operations = descriptors(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    if (fake_setting("FAKE_CUDA_DNN_DECLINES", 0) || engine < NONDETERMINISTIC || engine > PLAIN) return false;
    const convolution_names *n = operations.empty() ? nullptr : names_of(operations[0]->type);
    if (!n) return false;
    bool wide = tensor_of(other(*operations[0], n->x)).type == CUDA_R_64F;
    if (operations.size() > 1 && (wide || groups_of(*operations[0], *n) > 1)) return false;
    return engine != TENSOR_CORES || !wide;
}

static void set_note(content &engine, int64_t number) {
    static const cudnnBackendNumericalNote_t notes[] = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
                                                        CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
    put(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, number == PLAIN ? 0 : 1,
        &notes[number == NONDETERMINISTIC ? 0 : 1]);
}

static content_ref make_configuration(const content_ref &graph, int64_t number) {
    content_ref engine = new_content(CUDNN_BACKEND_ENGINE_DESCRIPTOR),
                configuration = new_content(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    content_ref knob = new_content(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    put(*engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, {graph});
    put(*engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number);
    set_note(*engine, number);
    cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_TILE_SIZE;
    put(*knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    put(*knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &number);
    put(*configuration, CUDNN_ATTR_ENGINECFG_ENGINE, {engine});
    put(*configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, {knob});
    engine->finalized = knob->finalized = configuration->finalized = true;
    return configuration;
}

static void set_suggestions(content &heuristic) {
    const content_ref &graph = descriptors(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)[0];
    bool fallback =
        value<cudnnBackendHeurMode_t>(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_FALLBACK;
    std::vector<content_ref> results;
    for (int64_t number = fallback ? PLAIN : NONDETERMINISTIC; number <= PLAIN; number++)
        if (supports_graph(*graph, number)) results.push_back(make_configuration(graph, number));
    put(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, results);
}

static cudnnStatus_t finalize_engine(content &engine) {
    int64_t number = value<int64_t>(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    if (!has(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH) ||
        !supports_graph(other(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH), number))
        return fail_with(CUDNN_STATUS_NOT_SUPPORTED, "no such engine for this graph");
    set_note(engine, number);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize_plan(content &plan) {
    if (!has(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE) || !has(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG))
        return fail_with(CUDNN_STATUS_BAD_PARAM, "a plan needs a handle and a configuration");
    int64_t bytes = WORKSPACE;
    put(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize_pack(const content &pack) {
    if (numbers(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).size() !=
        numbers(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size())
        return fail_with(CUDNN_STATUS_BAD_PARAM, "the numbers of addresses and ids differ");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle) {
    NEED(fake_is_object("cuDNN descriptor", handle), CUDNN_STATUS_BAD_PARAM);
    content &c = *((descriptor *)handle)->content_of;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    const convolution_names *convolution = names_of(c.type);
    if (convolution) status = check_convolution(c, *convolution);
    if (c.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) status = check_tensor(c);
    if (c.type == CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR) status = check_windows(c);
    if (c.type == CUDNN_BACKEND_ENGINE_DESCRIPTOR) status = finalize_engine(c);
    if (c.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) status = finalize_plan(c);
    if (c.type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) status = finalize_pack(c);
    if (c.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) set_suggestions(c);
    c.finalized = status == CUDNN_STATUS_SUCCESS;
    return status;
}

/* ---- Computing ---- */

typedef std::vector<double> values; /* dense, n c h w */

struct execution {
    content_ref graph;
    int64_t engine;
    std::map<int64_t, char *> addresses;
    char *workspace;
    std::map<int64_t, values> virtual_tensors; /* virtual tensors */
};

static size_t element_count(const tensor &t) {
    size_t count = 1;
    for (int64_t size : t.dims) count *= (size_t)size;
    return count;
}
/* Returns the offset in memory of element `index` (counted in the order n, c, h, w). */
static int64_t offset_of(const tensor &t, size_t index) {
    int64_t offset = 0, remaining = (int64_t)index;
    for (size_t axis = t.dims.size(); axis-- > 0; remaining /= t.dims[axis])
        offset += remaining % t.dims[axis] * t.strides[axis];
    return offset;
}
static char *memory_of(const execution &e, const tensor &t) {
    auto found = e.addresses.find(t.id);
    if (found == e.addresses.end())
        fake_fail("cudnnBackendExecute: tensor %lld has no address", (long long)t.id);
    if ((uintptr_t)found->second % (uintptr_t)t.alignment)
        fake_fail("cudnnBackendExecute: tensor %lld is not aligned to %lld", (long long)t.id,
                  (long long)t.alignment);
    fake_need_memory(found->second, ((size_t)offset_of(t, element_count(t) - 1) + 1) * element_bytes(t.type),
                     "cudnnBackendExecute");
    return found->second;
}

static values load(const execution &e, const content &c) {
    tensor t = tensor_of(c);
    if (t.is_virtual) return e.virtual_tensors.at(t.id);
    const char *memory = memory_of(e, t);
    values x(element_count(t));
    for (size_t i = 0; i < x.size(); i++) x[i] = load_element(t.type, memory, offset_of(t, i));
    return x;
}
static void store(execution &e, const content &c, const values &x) {
    tensor t = tensor_of(c);
    if (t.is_virtual) {
        e.virtual_tensors[t.id] = x;
        return;
    }
    char *memory = memory_of(e, t);
    for (size_t i = 0; i < x.size(); i++) store_element(t.type, memory, offset_of(t, i), x[i]);
}

struct windows {
    int64_t pad[2], stride[2], dilation[2];
};
static windows windows_of(const content &c) {
    windows w;
    for (size_t axis = 0; axis < 2; axis++) {
        w.pad[axis] = numbers(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)[axis];
        w.stride[axis] = numbers(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)[axis];
        w.dilation[axis] = numbers(c, CUDNN_ATTR_CONVOLUTION_DILATIONS)[axis];
    }
    return w;
}

/* The outputs of an axis whose window contains input `offset + output * stride`: [first, last). */
struct span {
    int64_t first, last;
};
static span outputs_within(int64_t offset, int64_t stride, int64_t inputs, int64_t outputs) {
    int64_t first = offset < 0 ? (-offset + stride - 1) / stride : 0;
    int64_t last = offset < inputs ? (inputs - 1 - offset) / stride + 1 : 0;
    return {first, last < outputs ? last : outputs};
}

/* Calls visit(x, filter, y) for every product of the convolution, with offsets in dense n c h w. The outer loop is
 * over filter elements, so that the inner loop needs no tests and multiplications. */
template <typename V>
static void visit_products(const tensor &x, const tensor &f, const tensor &y, const windows &w, V visit) {
    int64_t channels = f.dims[1], groups = x.dims[1] / channels, outputs = f.dims[0] / groups;
    int64_t filter_size = f.dims[2] * f.dims[3];
    for (int64_t n = 0; n < y.dims[0]; n++)
        for (int64_t j = 0; j < f.dims[0] * channels * filter_size; j++) {
            int64_t o = j / (channels * filter_size), c = j / filter_size % channels;
            int64_t h = j / f.dims[3] % f.dims[2] * w.dilation[0] - w.pad[0];
            int64_t v = j % f.dims[3] * w.dilation[1] - w.pad[1];
            const int64_t *image = &x.dims[2], *result = &y.dims[2];
            int64_t from = (n * x.dims[1] + o / outputs * channels + c) * image[0];
            int64_t to = (n * y.dims[1] + o) * result[0];
            span rows = outputs_within(h, w.stride[0], image[0], result[0]);
            span columns = outputs_within(v, w.stride[1], image[1], result[1]);
            for (int64_t p = rows.first; p < rows.last; p++) {
                int64_t i = (from + h + p * w.stride[0]) * image[1] + v, k = (to + p) * result[1];
                for (int64_t q = columns.first; q < columns.last; q++)
                    visit((size_t)(i + q * w.stride[1]), (size_t)j, (size_t)(k + q));
            }
        }
}

static double factor(const content &operation, int name, double otherwise) {
    auto found = operation.attributes.find(name);
    if (found == operation.attributes.end()) return otherwise;
    return found->second.type == CUDNN_TYPE_DOUBLE ? value<double>(operation, name)
                                                   : value<float>(operation, name);
}

static values operand(const execution &e, const content &operation, int name) {
    values x = load(e, other(operation, name));
    if (e.engine == TENSOR_CORES && tensor_of(other(operation, name)).type == CUDA_R_32F)
        for (double &element : x) element = round_to_tf32(element);
    return x;
}

static void convolve(execution &e, const content &operation, const convolution_names &n) {
    const content &result = other(operation, n.result);
    tensor x = tensor_of(other(operation, n.x)), f = tensor_of(other(operation, n.filter)),
           y = tensor_of(other(operation, n.y));
    windows w = windows_of(other(operation, n.windows));
    values out(element_count(tensor_of(result)));
    if (n.result == n.y) {
        values a = operand(e, operation, n.x), b = operand(e, operation, n.filter);
        visit_products(x, f, y, w, [&](size_t i, size_t j, size_t k) { out[k] += a[i] * b[j]; });
    } else if (n.result == n.x) {
        values a = operand(e, operation, n.y), b = operand(e, operation, n.filter);
        visit_products(x, f, y, w, [&](size_t i, size_t j, size_t k) { out[i] += a[k] * b[j]; });
    } else {
        values a = operand(e, operation, n.x), b = operand(e, operation, n.y);
        visit_products(x, f, y, w, [&](size_t i, size_t j, size_t k) { out[j] += a[i] * b[k]; });
    }
    double alpha = factor(operation, n.alpha, 1), beta = factor(operation, n.beta, 0);
    values before = beta != 0 ? load(e, result) : values(out.size());
    for (size_t i = 0; i < out.size(); i++) out[i] = alpha * out[i] + (beta != 0 ? beta * before[i] : 0);
    store(e, result, out);
}

/* Returns the offset in b that broadcasts to element `index` of y. */
static size_t broadcast_offset(const tensor &b, const tensor &y, size_t index) {
    size_t offset = 0, step = 1, remaining = index;
    for (size_t axis = y.dims.size(); axis-- > 0; remaining /= (size_t)y.dims[axis]) {
        if (b.dims[axis] > 1) offset += remaining % (size_t)y.dims[axis] * step;
        step *= (size_t)b.dims[axis];
    }
    return offset;
}

static void apply_pointwise(execution &e, const content &operation) {
    cudnnPointwiseMode_t mode = value<cudnnPointwiseMode_t>(
        other(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), CUDNN_ATTR_POINTWISE_MODE);
    values x = load(e, other(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
    const content &result = other(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    if (mode == CUDNN_POINTWISE_ADD) {
        const content &addend = other(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
        values b = load(e, addend);
        tensor from = tensor_of(addend), to = tensor_of(result);
        for (size_t i = 0; i < x.size(); i++) x[i] += b[broadcast_offset(from, to, i)];
    } else if (mode == CUDNN_POINTWISE_SUB) {
        values b = load(e, other(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
        for (size_t i = 0; i < x.size(); i++) x[i] -= b[i];
    } else if (mode == CUDNN_POINTWISE_RELU_FWD) {
        bool loses_nan = e.engine == PLAIN || fake_setting("FAKE_CUDA_DNN_LOSES_NAN", 0);
        for (double &element : x)
            element = loses_nan ? (element > 0 ? element : 0) : (element < 0 ? 0 : element);
    } else {
        fake_fail("cudnnBackendExecute: no pointwise operation of mode %d", (int)mode);
    }
    store(e, result, x);
}

static void execute(execution &e) {
    fake_need_memory(e.workspace, WORKSPACE, "cudnnBackendExecute: workspace");
    memset(e.workspace, 0xff, WORKSPACE);
    for (const content_ref &operation : descriptors(*e.graph, CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
        const convolution_names *convolution = names_of(operation->type);
        if (convolution)
            convolve(e, *operation, *convolution);
        else
            apply_pointwise(e, *operation);
    }
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
    NEED(fake_is_object("cuDNN handle", handle) && fake_is_object("cuDNN descriptor", plan) &&
             fake_is_object("cuDNN descriptor", pack),
         CUDNN_STATUS_BAD_PARAM);
    const content &p = *((descriptor *)plan)->content_of, &v = *((descriptor *)pack)->content_of;
    if (!p.finalized || !v.finalized)
        return fail_with(CUDNN_STATUS_NOT_INITIALIZED, "plan or addresses are not finalized");
    const content &engine =
        other(other(p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_ATTR_ENGINECFG_ENGINE);
    execution e = {descriptors(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH)[0],
                   value<int64_t>(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX),
                   {},
                   (char *)value<void *>(v, CUDNN_ATTR_VARIANT_PACK_WORKSPACE),
                   {}};
    std::vector<int64_t> ids = numbers(v, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    std::vector<int64_t> addresses = numbers(v, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (size_t i = 0; i < ids.size(); i++) e.addresses[ids[i]] = (char *)addresses[i];
    CUresult result =
        fake_enqueue((CUstream)handle->stream, "cudnnBackendExecute", [=]() mutable { execute(e); });
    return result == CUDA_SUCCESS ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}
