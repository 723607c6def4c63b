/* Selects the kernels of a partition: which operations the device supports, and the rules that lower them. */
#include "base/text.h"
#include "device/cuda/ops/global_norm.h"
#include "device/cuda/ops/ops.h"
#include "device/cuda/ops/pointwise.h"
#include "device/cuda/runtime/plan.h"

static const tu__lowering_rule rules[TU__OP_COUNT] = {
#define LOWERING_RULE(op, rule) [TU__OP_##op] = rule,
#include "device/cuda/ops/lowering.def"
};

static tu_status fail_without_kernel(tu__selection *s, const tu__node *node) {
    return tu_fail(
        TU_UNSUPPORTED,
        "%s has no kernel for %s '%s' of %s: place it on the CPU with tu_with_device(graph, \"cpu:0\")",
        cuda_of(s)->name, node->op->name, node->name, tu__type_string(node->outputs[0]));
}

/* Supported are pointwise operations, views, and operations with a lowering rule. */
tu_status cuda_supports(const tu__node *node) {
    bool needs_no_rule = node->op->traits & (TU__POINTWISE | TU__VIEW);
    if (needs_no_rule || rules[node->op->code]) return TU_OK;
    if (node->op->code == TU__OP_CUSTOM)
        return tu_fail(TU_UNSUPPORTED, "custom operations run on the CPU only");
    return tu_fail(TU_UNSUPPORTED, "there is no GPU kernel for %s", node->op->name);
}

static tu__edge input_after_fusion(tu__selection *s, const tu__node *node, uint32_t index) {
    if (node->op->code == TU__OP_SUM) return cuda_global_norm_read(s, node, index);
    if (node->op->code == TU__OP_CROSS_ENTROPY) return cuda_loss_input_after_fusion(s, node, index);
    return cuda_norm_input_after_fusion(s, node, index);
}

tu_status cuda_lower(cuda_device *device, const tu_partition *partition, tu_plan **plan) {
    static const tu__selector selector = {
        .rules = rules,
        .fallback = fail_without_kernel,
        .make_copy = cuda_lower_copy,
        .input_after_fusion = input_after_fusion,
        .subkernel_bytes = sizeof(cuda_subkernel),
        .fuses_leaf_casts = true,
        .run_pointwise = cuda_run_pointwise,
        .make_subkernel = cuda_make_subkernel,
        .finish_subkernels = cuda_finish_subkernels,
        .sum_kind_of = cuda_sum_kind_of,
        .fuse_into_kernel = cuda_fuse_into_product,
    };
    TU_TRY(cuda_make_current(device));
    tu_status status = tu__select(device, &selector, partition, plan);
    if (status == TU_OK) {
        status = cuda_request_rings((tu__kernel_plan *)*plan);
        if (status != TU_OK) cuda_plan_free(device, *plan);
    }
    return status == TU_DEVICE ? tu_fail(status, "%s: %s", device->name, tu_message()) : status;
}
