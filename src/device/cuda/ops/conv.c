/* Lowering rules of convolutions. They use cuDNN (conv_dnn.c) if it has an engine, handwritten kernels for first layers
 * (conv_few_channels.c), for f32 without tf32 (conv_f32.c) and for models that compute few samples (conv_small.c), cuBLASLt for
 * 1x1 convolutions of models that compute many (conv_gemm.c), and plain kernels (conv_direct.c) for everything else, including
 * cases that cuDNN computes wrong (cudnn_known_bugs.def). On request conv_wide.c computes those of models.
 *
 * A bias and a relu that follow can be fused into cuDNN's graph, in models also a residual between them. There are two reasons not to use such an engine.
 * First, it need not propagate NaN: many relu implementations turn NaN into 0, so a step with non-finite values would
 * look healthy. This is tested when the plan is created, on memory full of NaN. Models then use a relu that restores NaN, if
 * there is an engine for it. Second, fused graphs have fewer
 * engines: the only one may lack tensor cores or reorder its operands first, while the unfused convolution has a fast
 * engine. This is recognised by the engine's notes and workspace size or, with tuning, by timing both. If a fused
 * engine is rejected, the convolution is followed by one handwritten pass over its result.
 */
#include "device/cuda/ops/conv.h"
#include "device/cuda/ops/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/runtime/branches.h"
#include "device/cuda/runtime/tuning_cache.h"

#include "device/cuda/kernels/conv_args.h"

typedef struct conv_data {
    cuda_dnn_plan dnn; /* one of seven: unused if its plan is NULL */
    cuda_conv_gemm *gemm;
    cuda_conv_few_channels *few;
    cuda_conv_f32 *f32;
    cuda_conv_small *small;
    cuda_conv_wide *wide;
    cuda_conv_direct *direct;      /* unused: NULL */
    const cuda_function *epilogue; /* bias, residual and relu after an unfused convolution; or NULL */
    conv_epilogue_args epilogue_args;
    bool bias, residual, relu;
    tu__members members; /* of a stack: the plan is that of one network */
    cuda_branches branches;
} conv_data;

static tu_status run_epilogue(const tu__kernel *k, const conv_data *d) {
    conv_epilogue_args a = d->epilogue_args;
    a.y = k->out[0];
    a.bias = d->bias ? k->in[2] : NULL;
    a.residual = d->residual ? k->in[2 + d->bias] : NULL;
    return cuda_launch(k, d->epilogue, cuda_grid_for(k, a.packs), &a);
}

static tu_status run_one_conv(const tu__kernel *k) {
    conv_data *d = k->data;
    if (d->gemm) return cuda_conv_gemm_run(k, d->gemm);
    if (d->few) return cuda_conv_few_channels_run(k, d->few);
    if (d->f32) return cuda_conv_f32_run(k, d->f32);
    if (d->small) return cuda_conv_small_run(k, d->small);
    if (d->wide) return cuda_conv_wide_run(k, d->wide);
    if (d->direct) {
        TU_TRY(cuda_conv_direct_run(k, d->direct));
        return d->epilogue ? run_epilogue(k, d) : TU_OK;
    }
    void *addresses[CUDA_DNN_OPERANDS];
    int count = 0;
    for (int i = 0; i < d->dnn.operand_count - 1; i++) addresses[count++] = k->in[i];
    addresses[count] = k->out[0];
    TU_TRY(cuda_dnn_execute(&d->dnn, cuda_stream(k), addresses, k->workspace));
    return d->epilogue ? run_epilogue(k, d) : TU_OK;
}

static tu_status run_conv(const tu__kernel *k) {
    const conv_data *d = k->data;
    return cuda_run_members(k, &d->members, &d->branches, run_one_conv);
}

static void release_conv(void *data) {
    conv_data *d = data;
    cuda_dnn_free(&d->dnn);
    cuda_conv_gemm_free(d->gemm);
}

/* ---- Describing a convolution ---- */

/* Replaces strides and dilations that have no effect (one window, one tap) by values no larger than the axis. */
static void normalize_strides(cuda_convolution *c, int axis) {
    tu__windows *w = &c->windows;
    if (w->size[axis] == 1) w->dilation[axis] = 1;
    int64_t extent = (w->size[axis] - 1) * w->dilation[axis] + 1;
    if (c->y_size[axis] == 1)
        w->stride[axis] = c->x_size[axis] + w->pad[2 * axis] + w->pad[2 * axis + 1] - extent + 1;
}

/* For f32, tensor cores round operands to tf32. If the channels do not fill their tiles, that loses three decimal
 * digits and gains little. First layers (conv_few_channels.c) are an exception. */
static bool fills_tensor_cores(int64_t x_channels, int64_t y_channels) {
    return y_channels % 16 == 0 && (x_channels % 16 == 0 || (x_channels <= 4 && y_channels % 64 == 0));
}

static int64_t members_of(const tu__node *node) {
    switch (node->op->code) {
    case TU__OP_CONV2D_DX: return tu__attrs(node, conv2d_dx)->members;
    case TU__OP_CONV2D_DW: return tu__attrs(node, conv2d_dw)->members;
    default: return tu__attrs(node, conv2d)->members;
    }
}

/* Returns the type of one member's block. */
static tu_type block_type(const tu__node *node, tu_type type) {
    if (members_of(node)) type.shape.dim[0] /= members_of(node);
    return type;
}

/* Describes the convolution of one member. The attributes of the three operations start with the same fields. */
static cuda_convolution describe_convolution(const tu__selection *s, const tu__node *node,
                                             cuda_conv_result result, tu_type x, tu_type filter, tu_type y) {
    const struct tu__conv2d_attrs *a = node->attrs;
    x = block_type(node, x), filter = block_type(node, filter), y = block_type(node, y);
    cuda_convolution c = {.result = result,
                          .dtype = x.dtype,
                          .full_f32 =
                              x.dtype == TU_F32 &&
                              !(cuda_allows_tf32(s) &&
                                fills_tensor_cores(filter.shape.dim[3], filter.shape.dim[0] / a->groups)),
                          .images = x.shape.dim[0],
                          .groups = a->groups,
                          .x_channels = filter.shape.dim[3],
                          .y_channels = filter.shape.dim[0] / a->groups};
    for (int i = 0; i < 4; i++) c.windows.pad[i] = a->pad[i];
    for (int i = 0; i < 2; i++) {
        c.windows.size[i] = filter.shape.dim[1 + i];
        c.x_size[i] = x.shape.dim[1 + i];
        c.y_size[i] = y.shape.dim[1 + i];
        c.windows.stride[i] = a->stride[i];
        c.windows.dilation[i] = a->dilation[i];
        normalize_strides(&c, i);
    }
    return c;
}

/* ---- Bias, residual and relu: fused or in a separate pass ---- */

/* One pass over y in place, in 16-byte words if they divide a row. */
static tu_status request_epilogue(tu__selection *s, const cuda_convolution *c, conv_data *d) {
    int64_t channels = c->groups * c->y_channels;
    int64_t rows = c->images * c->y_size[0] * c->y_size[1];
    int elements = (int)(16 / tu_dtype_size(c->dtype));
    if (channels % elements != 0) elements = 1;
    d->epilogue_args = (conv_epilogue_args){
        .packs = rows * (channels / elements), .row_packs = channels / elements, .relu = c->relu};
    d->epilogue = cuda_request(s, "conv", "conv_epilogue<%s, %d>", cuda_type(c->dtype), elements);
    return d->epilogue ? TU_OK : TU_NO_MEMORY;
}

static cuda_convolution without_epilogue(const cuda_convolution *c) {
    cuda_convolution unfused = *c;
    unfused.bias = unfused.residual = unfused.relu = false;
    return unfused;
}

/* Chooses a cuDNN engine for the convolution without bias, residual and relu. */
static tu_status choose_unfused(tu__selection *s, const cuda_convolution *c, cuda_dnn_plan *p) {
    const cuda_convolution unfused = without_epilogue(c);
    return cuda_conv_dnn(cuda_of(s), &unfused, p);
}

/* False if an unfused convolution is expected to be faster. In tf32, fused engines that reorder x took twice as long
 * as an unfused convolution and a pass over y. They are recognised by a workspace that is large enough for x. */
static bool is_fast_fused(const cuda_convolution *c, const cuda_dnn_plan *p) {
    if (!cuda_conv_prefers_tensor_cores(c)) return true;
    return p->tensor_cores && (c->dtype != TU_F32 || p->workspace_bytes < (int64_t)p->operand_bytes[0]);
}

/* Leaves d->dnn.plan NULL if the fused engine is not fast enough or does not propagate NaN; this sets *loses_nan. */
static tu_status try_fused(tu__selection *s, const cuda_convolution *c, conv_data *d, bool *loses_nan) {
    TU_TRY(cuda_conv_dnn(cuda_of(s), c, &d->dnn));
    bool is_accepted = d->dnn.plan && (cuda_of(s)->tune || is_fast_fused(c, &d->dnn)), keeps_nan = true;
    if (is_accepted && c->relu) TU_TRY(cuda_dnn_keeps_nan(&d->dnn, c->dtype, &keeps_nan));
    *loses_nan = !keeps_nan;
    if (!is_accepted || !keeps_nan) cuda_dnn_free(&d->dnn);
    return TU_OK;
}

static tu_status choose_fused(tu__selection *s, const cuda_convolution *c, conv_data *d) {
    cuda_convolution restoring = *c;
    bool loses_nan;
    TU_TRY(try_fused(s, c, d, &loses_nan));
    if (!loses_nan || !s->graph->is_frozen) return TU_OK;
    restoring.restores_nan = true;
    return try_fused(s, &restoring, d, &loses_nan);
}

/* ---- Timing the separate pass ---- */

typedef struct copy_trial {
    cuda_device *device;
    CUdeviceptr buffers; /* source and target, one after the other */
    size_t bytes;
} copy_trial;

static tu_status enqueue_copy(void *context) {
    const copy_trial *c = context;
    CUDA_TRY(cuMemcpyDtoDAsync, c->buffers + c->bytes, c->buffers, c->bytes, c->device->own_queue.stream);
    return TU_OK;
}

/* Measures a copy of y instead of the pass: it takes as long and needs no kernel to be compiled. */
static tu_status measure_pass(cuda_device *device, size_t bytes, double *seconds) {
    copy_trial c = {.device = device, .bytes = bytes};
    TU_TRY(cuda_memory_allocate(device->memory, 2 * bytes, &c.buffers));
    tu_status status = cuda_tuning_measure(device, enqueue_copy, &c, seconds);
    cuda_memory_free(device->memory, c.buffers);
    return status;
}

static tu_status get_pass_seconds(cuda_device *device, size_t bytes, double *seconds) {
    char value[32];
    tu__text key = {0};
    tu__text_printf(&key, "pass %zu", bytes);
    tu_status status = cuda_tuning_key(device, CUDA_dnn, &key);
    if (status == TU_OK && cuda_tuning_find(tu__text_string(&key), value, sizeof value)) {
        *seconds = strtod(value, NULL);
    } else if (status == TU_OK) {
        status = measure_pass(device, bytes, seconds);
        snprintf(value, sizeof value, "%.6g", *seconds);
        if (status == TU_OK) cuda_tuning_store(tu__text_string(&key), value);
    }
    tu__text_free(&key);
    return status;
}

/* Replaces the fused plan, if there is one, by an unfused one if that and a pass are faster. */
static tu_status choose_faster(tu__selection *s, const cuda_convolution *c, conv_data *d) {
    cuda_dnn_plan unfused = {0};
    double pass = 0;
    tu_status status = choose_unfused(s, c, &unfused);
    if (status == TU_OK && unfused.plan && d->dnn.plan)
        status = get_pass_seconds(cuda_of(s), unfused.operand_bytes[unfused.operand_count - 1], &pass);
    bool is_faster =
        status == TU_OK && unfused.plan && (!d->dnn.plan || unfused.seconds + pass < d->dnn.seconds);
    cuda_dnn_plan unused = is_faster ? d->dnn : unfused;
    if (is_faster) d->dnn = unfused;
    cuda_dnn_free(&unused);
    return is_faster ? request_epilogue(s, c, d) : status;
}

/* True if an unfused convolution and a pass are expected to be faster than any fused engine: for models that compute many
 * samples. For resnet50 with 256 images in bf16 on an H200, cuDNN's fused engines took 15 ms, which is three times as long
 * as the unfused ones of a training step. */
static bool prefers_pass(const tu__selection *s, const cuda_convolution *c) {
    return s->graph->is_frozen && !cuda_of(s)->tune && (c->dtype == TU_BF16 || c->dtype == TU_F16) &&
           cuda_conv_prefers_tensor_cores(c) && cuda_conv_has_many_results(c, cuda_of(s)->multiprocessors);
}

/* Chooses kernels for y with bias, residual or relu. */
static tu_status choose_with_epilogue(tu__selection *s, const cuda_convolution *c, conv_data *d) {
    if (!prefers_pass(s, c)) TU_TRY(choose_fused(s, c, d));
    return d->dnn.plan && !cuda_of(s)->tune ? TU_OK : choose_faster(s, c, d);
}

/* ---- Choosing between cuDNN and our kernels ---- */

cuda_conv_choice cuda_conv_preference(void) {
    static const struct {
        const char *name;
        cuda_conv_choice choice;
    } choices[] = {{"cudnn", CUDA_CONV_CUDNN}, {"own", CUDA_CONV_OWN}, {"wide", CUDA_CONV_WIDE}};
    const char *preference = getenv("TUTTI_CONV");
    const size_t length = preference ? strcspn(preference, " ") : 0;
    for (size_t i = 0; length && i < sizeof choices / sizeof *choices; i++)
        if (strlen(choices[i].name) == length && memcmp(choices[i].name, preference, length) == 0)
            return choices[i].choice;
    return CUDA_CONV_AUTO;
}

/* Returns the description of a known bug of cuDNN that affects this convolution; NULL if there is none. */
static const char *known_bug(const cuda_convolution *c) {
    const tu__windows *w = &c->windows;
    const bool dilated = w->dilation[0] > 1 || w->dilation[1] > 1;
    const bool strided = w->stride[0] > 1 || w->stride[1] > 1;
    const bool uneven = w->pad[0] != w->pad[1] || w->pad[2] != w->pad[3];
#define CONVOLUTION(which, condition, evidence)                                                              \
    if (c->result == CUDA_CONV_##which && (condition)) return evidence;
#define ENGINE(problem, number, evidence)
#include "device/cuda/ops/cudnn_known_bugs.def"
    return NULL;
}

/* True if the blocks of all members begin at multiples of 16 bytes, as cuDNN and our fast kernels need. */
static bool are_blocks_aligned(const tu__members *m) {
    for (int i = 0; i < 3; i++)
        if (m->in[i] % 16 || m->out[i] % 16) return false;
    return true;
}

/* The plain kernels add no residual: a pass after them does. */
static tu_status choose_direct(tu__selection *s, const cuda_convolution *c, conv_data *d) {
    const cuda_convolution unfused = without_epilogue(c);
    if (!c->residual) return cuda_conv_direct_new(s, c, &d->direct);
    TU_TRY(cuda_conv_direct_new(s, &unfused, &d->direct));
    return request_epilogue(s, c, d);
}

/* Chooses a kernel that only models use; cuBLASLt's not for a stack, since its operands have other alignments. */
static tu_status choose_of_models(tu__selection *s, const cuda_convolution *c, conv_data *d) {
    TU_TRY(cuda_conv_wide_new(s, c, &d->wide));
    if (d->wide) return TU_OK;
    if (!d->members.count) TU_TRY(cuda_conv_gemm_new(s, c, &d->gemm));
    return d->gemm ? TU_OK : cuda_conv_small_new(s, c, &d->small);
}

static tu_status choose_implementation(tu__selection *s, const cuda_convolution *c, conv_data *d) {
    if (known_bug(c) || !are_blocks_aligned(&d->members)) return choose_direct(s, c, d);
    if (!c->residual) TU_TRY(cuda_conv_few_channels_new(s, c, &d->few));
    if (!c->residual && !d->few) TU_TRY(cuda_conv_f32_new(s, c, &d->f32));
    if (!d->few && !d->f32 && s->graph->is_frozen) TU_TRY(choose_of_models(s, c, d));
    if (d->few || d->f32 || d->gemm || d->small || d->wide) return TU_OK;
    if (cuda_conv_preference() == CUDA_CONV_OWN) return choose_direct(s, c, d);
    if (c->bias || c->residual || c->relu)
        TU_TRY(choose_with_epilogue(s, c, d));
    else
        TU_TRY(cuda_conv_dnn(cuda_of(s), c, &d->dnn));
    if (d->dnn.plan) return TU_OK;
    cuda_dnn_free(&d->dnn);
    return choose_direct(s, c, d);
}

/* ---- Lowering ---- */

/* Models have residuals. Kernels for few channels and for full f32 add none, and are faster than what does; nor does a
 * convolution of stacked networks. */
static tu__epilogue find_epilogue(tu__selection *s, const tu__node *node, const cuda_convolution *c) {
    bool has_own_kernel = c->full_f32 || c->x_channels <= 4 || members_of(node);
    return s->graph->is_frozen && !has_own_kernel ? tu__epilogue_with_residual_of(s, node)
                                                  : tu__epilogue_of_members(s, node, members_of(node));
}

/* Example: "conv2d+bias+relu (cudnn 41)". The suffix shows the implementation in kernel lists. */
static const char *kernel_name(tu__selection *s, const conv_data *d, const char *name) {
    char text[80];
    char wide[32];
    if (d->wide) {
        cuda_conv_wide_describe(d->wide, wide);
        snprintf(text, sizeof text, "%s (%s)", name, wide);
    } else if (d->gemm)
        snprintf(text, sizeof text, "%s (cuBLASLt%s)", name,
                 cuda_conv_gemm_restores_nan(d->gemm) ? ", restores NaN" : "");
    else if (d->few || d->f32 || d->small || d->direct)
        snprintf(text, sizeof text, "%s (%s)", name,
                 d->few     ? "few channels"
                 : d->f32   ? "f32"
                 : d->small ? "small"
                            : "direct");
    else
        snprintf(text, sizeof text, "%s (cudnn %d%s)", name, (int)d->dnn.engine,
                 d->epilogue ? ", epilogue" : "");
    return tu__arena_string(&s->arena, text);
}

static size_t workspace_of(const conv_data *d) {
    if (d->gemm) return cuda_conv_gemm_workspace(d->gemm);
    if (d->few) return cuda_conv_few_channels_workspace(d->few);
    if (d->f32) return cuda_conv_f32_workspace(d->f32);
    if (d->small || d->wide) return 0;
    return d->direct ? cuda_conv_direct_workspace(d->direct) : (size_t)d->dnn.workspace_bytes;
}

static tu_status lower_convolution(tu__selection *s, const tu__node *node, cuda_convolution *c,
                                   const char *const *names) {
    tu__epilogue epilogue = {.result = {node->id, 0}};
    if (c->result == CUDA_CONV_FORWARD) epilogue = find_epilogue(s, node, c);
    c->bias = epilogue.add, c->residual = epilogue.add_residual, c->relu = epilogue.relu;
    c->bias_value = epilogue.added;
    conv_data plan = {.bias = c->bias, .residual = c->residual, .relu = c->relu};
    tu__members_of(&plan.members, s, node, members_of(node));
    if (epilogue.add) tu__members_add_bias(&plan.members, s, epilogue.added, c->groups * c->y_channels, 2);
    tu_status status = choose_implementation(s, c, &plan);
    const char *name = status == TU_OK ? kernel_name(s, &plan, tu__epilogue_name(&epilogue, names)) : NULL;
    tu__kernel *k = name ? tu__kernel_new(s, node, name, run_conv) : NULL;
    conv_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) {
        release_conv(&plan);
        return status == TU_OK ? TU_NO_MEMORY : status;
    }
    *d = plan;
    k->release = release_conv;
    TU_TRY(cuda_plan_branches(k, d->members.count, workspace_of(d), &d->branches));
    const tu_type in[2] = {*tu__type_of(s, node->inputs[0]), *tu__type_of(s, node->inputs[1])};
    k->flops = node->op->flops(node, in);
    k->bytes_moved = (int64_t)(tu_type_bytes(in[0]) + tu_type_bytes(in[1]) + tu_type_bytes(node->outputs[0]));
    TU_TRY(tu__kernel_read(k, node->inputs[0]));
    TU_TRY(tu__kernel_read(k, node->inputs[1]));
    TU_TRY(tu__kernel_add_epilogue(k, &epilogue));
    TU_TRY(tu__kernel_write(k, epilogue.result, -1));
    return d->gemm ? cuda_conv_gemm_add_notes(k, d->gemm, &epilogue) : TU_OK;
}

tu_status cuda_lower_conv2d(tu__selection *s, const tu__node *node) {
    static const char *const names[8] = TU__EPILOGUE_NAMES_WITH_RESIDUAL("conv2d");
    cuda_convolution c = describe_convolution(s, node, CUDA_CONV_FORWARD, *tu__type_of(s, node->inputs[0]),
                                              *tu__type_of(s, node->inputs[1]), node->outputs[0]);
    c.filter_value = node->inputs[1];
    c.filter_is_constant = s->graph->nodes[node->inputs[1].node]->op->code == TU__OP_CONSTANT;
    return lower_convolution(s, node, &c, names);
}

tu_status cuda_lower_conv2d_dx(tu__selection *s, const tu__node *node) {
    static const char *const names[4] = {"conv2d_dx"};
    cuda_convolution c =
        describe_convolution(s, node, CUDA_CONV_DGRAD, node->outputs[0], *tu__type_of(s, node->inputs[1]),
                             *tu__type_of(s, node->inputs[0]));
    return lower_convolution(s, node, &c, names);
}

tu_status cuda_lower_conv2d_dw(tu__selection *s, const tu__node *node) {
    static const char *const names[4] = {"conv2d_dw"};
    cuda_convolution c = describe_convolution(s, node, CUDA_CONV_WGRAD, *tu__type_of(s, node->inputs[0]),
                                              node->outputs[0], *tu__type_of(s, node->inputs[1]));
    return lower_convolution(s, node, &c, names);
}
